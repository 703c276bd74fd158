"""Random ``.cnf`` files against python-sat (satisfiability, all models, its reader) and Ganak (counts of four types).

Files have comments and blank lines between and within clauses, several clauses a line and clauses over several lines,
headers with a wrong number of clauses, tautologies, literals twice, empty clauses, ends with ``%``, weights and
projections, and comments that ask for another count, which has to be refused. The generator knows the clauses and the
weights; python-sat's own reader, which takes a line for a clause, reads the files that are written so. An empty clause
is given to both programs as two clauses that contradict each other: their interfaces drop it. Ganak gets the weights of
both literals, as floats; with few variables, a sum over all assignments is the exact reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import NotAvailableError, Tally

MOST_LISTED = 7
"""Variables up to which all assignments are compared."""

_COMMENTS = ("c", "c a comment", "c\t1 2 0", "comment", "c p cnf 3 4", "c t mc", "c p = 0.5", "c 1 -2 0", "cnf")
_QUESTIONS = (
    "c t pmc",
    "c t pwmc",
    "c p something 1",
    "c max 1 0",
    "c p weight 1 0.4+2i 0",
    "c p weight 1 2 0",
    "c p weight 1 x 0",
    "c t mc\nc p weight 1 0.5 0",
    "c p show 9999 0",
)
"""Comments that are refused."""

_WEIGHTS = ("1", "0", "2", "0.5", "1/3", "-1", "-7/4", "3e-1", ".25", "+1.75", "12345678.901", "123456789/1000003")


def draw(random: Random) -> dict[str, Any]:
    """Clauses, and a file that has them."""
    count = random.randint(0, MOST_LISTED) if random.random() < 0.75 else random.randint(10, 40)
    longest = random.choice((2, 3, 3, 4))
    clauses = []
    for _ in range(random.randint(0, int(random.choice((0.5, 1, 2, 4)) * count) + 1)):
        length = random.randint(1, longest) if random.random() > 0.02 else 0
        if count:
            clauses.append([random.choice((1, -1)) * random.randint(1, count) for _ in range(length)])
        elif random.random() < 0.1:
            clauses.append([])
    return {"count": count, "clauses": clauses, **_text(random, count, clauses)}


def _question(random: Random, count: int, is_plain: bool) -> tuple[dict[str, Any], list[str]]:
    """Weights of 0 and 1 by variable, as text, and the shown variables (None: all); and the comments about them."""
    weights: dict[str, list[str]] = {}
    lines: list[str] = []
    is_cachet = not is_plain and random.random() < 0.15
    some = random.sample(range(1, count + 1), random.randint(1, count)) if random.random() < 0.7 else []
    for v in some:
        if random.random() < 0.3 or is_cachet:
            digits = random.choice((1, 8, 30))
            own = Fraction(random.randint(1, 10**digits - 1), 10**digits)
            literal = v if random.random() < 0.5 or is_cachet else -v
            weights[str(v)] = [str(w) for w in ((1 - own, own) if literal > 0 else (own, 1 - own))]
            text = f"0.{int(own * 10**digits):0{digits}}" if digits > 1 else str(own)
            lines.append(f"w {literal} {text}" if is_cachet else f"c p weight {literal} {text} 0")
        else:
            weights[str(v)] = [random.choice(_WEIGHTS), random.choice(_WEIGHTS)]
            lines += [f"c p weight {v} {weights[str(v)][1]} 0", f"c p weight -{v} {weights[str(v)][0]} 0"]
    if is_cachet and weights:
        weights = {str(v): weights.get(str(v), ["1/2", "1/2"]) for v in range(1, count + 1)}
    shown = None
    if random.random() < 0.6 or not lines:
        shown = sorted(random.sample(range(1, count + 1), random.randint(0, count)))
        chunk = random.randint(1, count)
        for first in range(0, max(1, len(shown)), chunk):
            words = list(map(str, shown[first : first + chunk]))
            spelling = (
                random.choice(("c p show {} 0", "c p show {} 0", "c ind {} 0", "cr {}")) if words else "c p show 0"
            )
            lines.append(spelling.format(" ".join(words)))
        shown = None if len(shown) == count else shown
    if random.random() < 0.5:
        kind = "p" * (shown is not None) + "w" * bool(weights) + "mc"
        lines.append(f"c t {random.choice(('wpmc', kind)) if kind == 'pwmc' else kind}")
    random.shuffle(lines)
    return {"weights": weights, "shown": shown}, lines


def _text(random: Random, count: int, clauses: list[list[int]]) -> dict[str, Any]:
    """The file's text, whether python-sat's reader takes it, and whether it asks for another count."""
    promised = len(clauses) if random.random() < 0.75 else random.choice((0, len(clauses) + 1, len(clauses) // 2, 99))
    is_plain = random.random() < 0.3
    header = random.choice(("p cnf {} {}", "p  cnf   {} {}", "p\tcnf {} {}", " p cnf {} {} "))
    lines = [] if is_plain else random.sample(_COMMENTS, random.randint(0, 3))
    lines.append((header if not is_plain else "p cnf {} {}").format(count, promised))
    asks = count > 1 and random.random() < 0.06
    if asks:
        lines.insert(random.randint(0, len(lines)), random.choice(_QUESTIONS))
    question, comments = {"weights": {}, "shown": None}, []
    if count and not asks and random.random() < 0.4:
        question, comments = _question(random, count, is_plain)
        place = random.randint(0, len(comments))
        lines[:0] = comments[place:]
        comments = comments[:place]
    words: list[str] = []
    for clause in clauses:
        words += [*map(str, clause), "0"]
        if is_plain or random.random() < 0.7:
            lines.append(" ".join(words))
            words = []
        elif random.random() < 0.3:
            place = random.randint(0, len(words))
            lines += [" ".join(words[:place]), random.choice(("", "c within", "c", "\t")), "\t".join(words[place:])]
            words = []
        if not is_plain and random.random() < 0.05:
            lines.append(random.choice(("", *_COMMENTS)))
    lines.append(" ".join(words))
    if question["weights"] or question["shown"] is not None:
        lines = [line for line in lines if line != "c t mc"]  # it would contradict
    lines += comments
    if random.random() < 0.1:
        lines += ["%", "0", ""]
        is_plain = False
    if not is_plain and random.random() < 0.1:
        place = next(k for k, line in enumerate(lines) if line.split()[:1] == ["p"])
        lines = [
            *lines[: place + 1],
            *(f" +{own}" if own[:1] in "123456789" and own else own for own in lines[place + 1 :]),
        ]
    text = "\n".join(lines) + ("\n" if random.random() < 0.9 else "")
    if not is_plain and random.random() < 0.05:
        text = "\ufeff" + text
    if not is_plain and random.random() < 0.06:
        text = text.replace("\n", "\r\n")
    return {"text": text, "is_plain": is_plain, "asks": asks, "question": question}


def check(case: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Satisfiability, the count and all models, and the file that oocbe writes."""
    try:
        import pyganak
        from pysat.formula import CNF
        from pysat.solvers import Solver
    except ImportError as error:
        raise NotAvailableError("python-sat or pyganak is not installed") from error
    import oocbe
    from oocbe.errors import UnsupportedError

    count, clauses = case["count"], case["clauses"]
    if case["is_plain"]:
        tally.same("clauses by python-sat", clauses, CNF(from_string=case["text"]).clauses)
    path = folder / "drawn.cnf"
    path.write_bytes(case["text"].encode())
    whole = [part for clause in clauses for part in ([clause] if clause else [[count + 1], [-count - 1]])]
    with Solver(name="cadical153", bootstrap_with=whole) as solver:
        satisfiable = solver.solve()
    problem = oocbe.read(path)
    tally.same("domain sizes", (2,) * count, problem.sizes)
    result = oocbe.solve(path)
    tally.same("status", "optimal" if satisfiable else "infeasible", result.status)
    if result.assignment is not None:
        tally.holds("the assignment is a model", _is_model(clauses, result.assignment), clauses, result.assignment)
    if case["asks"]:
        try:
            found = oocbe.count(path)
        except UnsupportedError as error:
            tally.holds("a line", f"{path}, line " in str(error), "a line", error)
            return
        tally.same("a refusal", "UnsupportedError", found.value)
    weights, shown = case["question"]["weights"], case["question"]["shown"]
    pairs = {int(v): (Fraction(low), Fraction(high)) for v, (low, high) in weights.items()}
    counter = pyganak.WeightedCounter() if weights else pyganak.Counter()
    counter.new_vars(count)
    counter.add_clauses(clauses)
    visible = range(1, count + 1) if shown is None else shown
    for v in pairs.keys() & set(visible):
        for literal, weight in zip((-v, v), pairs[v], strict=True):
            counter.set_lit_weight(literal, float(weight))
    if shown is not None:
        counter.set_sampling_set(shown)
    expected = counter.count() if satisfiable else 0  # Ganak counts so, too, and prints a line
    found = oocbe.count(path)
    tally.same("type", "p" * (shown is not None) + "w" * bool(weights) + "mc", found.kind)
    bound = math.prod(float(sum(map(abs, pairs.get(v, (1, 1))))) for v in visible)  # of sums whose terms cancel
    if weights:
        close = math.isclose(expected, found.value, rel_tol=1e-12, abs_tol=1e-12 * bound)
        tally.holds("count", close, expected, found.value)
        rounded = oocbe.count(path, float_counts=True).value
        close = math.isclose(expected, rounded, rel_tol=1e-9, abs_tol=1e-9 * bound)
        tally.holds("count in floats", close, expected, rounded)
    else:
        tally.same("count", expected, found.value)
    if count <= MOST_LISTED:
        tally.same("exact count", _sum(count, clauses, pairs, visible), found.value)
    if weights or shown is not None:
        return
    if count <= MOST_LISTED:
        for row in itertools.product((0, 1), repeat=count):
            tally.same(f"model {row}", _is_model(clauses, row), problem.evaluate(row) is not None)
    oocbe.write(problem, folder / "written.cnf")
    tally.same("count of what is written", expected, oocbe.count(folder / "written.cnf").value)


def _sum(
    count: int, clauses: list[list[int]], pairs: dict[int, tuple[Fraction, Fraction]], visible: Sequence[int]
) -> Fraction:
    """The weights of all assignments of the visible variables that some values of the others complete."""
    rows = itertools.product((0, 1), repeat=count)
    models = {tuple(row[v - 1] for v in visible) for row in rows if _is_model(clauses, row)}
    own = [pairs.get(v, (Fraction(1), Fraction(1))) for v in visible]
    return sum((Fraction(math.prod(w[x] for w, x in zip(own, row, strict=True))) for row in models), Fraction(0))


def _is_model(clauses: list[list[int]], row: tuple[int, ...]) -> bool:
    return all(any(row[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses)


def smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One clause less, in a plain file."""
    for number in range(len(case["clauses"])):
        clauses = case["clauses"][:number] + case["clauses"][number + 1 :]
        lines = [f"p cnf {case['count']} {len(clauses)}", *(" ".join(map(str, [*c, 0])) for c in clauses)]
        for v, (low, high) in case["question"]["weights"].items():
            lines += [f"c p weight -{v} {low} 0", f"c p weight {v} {high} 0"]
        if (shown := case["question"]["shown"]) is not None:
            lines.append(" ".join(map(str, ["c p show", *shown, 0])))
        yield {**case, "clauses": clauses, "text": "\n".join(lines) + "\n", "is_plain": True, "asks": False}
