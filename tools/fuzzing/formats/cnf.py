"""Random ``.cnf`` files against python-sat (satisfiability, all models, its reader) and Ganak (the number of models).

Files have comments and blank lines between and within clauses, several clauses a line and clauses over several lines,
headers with a wrong number of clauses, tautologies, literals twice, empty clauses, ends with ``%``, and comments that
ask for another count, which has to be refused. The generator knows the clauses; python-sat's own reader, which takes a
line for a clause, reads the files that are written so. An empty clause is given to both programs as two clauses that
contradict each other: their interfaces drop it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import NotAvailableError, Tally

MOST_LISTED = 7
"""Variables up to which all assignments are compared."""

_COMMENTS = ("c", "c a comment", "c\t1 2 0", "comment", "c p cnf 3 4", "c t mc", "c p = 0.5", "c 1 -2 0", "cnf")
_QUESTIONS = ("c p show 1 0", "c p weight 1 0.5 0", "c t pmc", "c t wmc", "c ind 1 0", "c t pwmc", "c p something 1")


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
    elif count and random.random() < 0.05:
        shown = " ".join(map(str, random.sample(range(1, count + 1), count)))
        lines.append(f"{random.choice(('c p show', 'c ind'))} {shown} 0")
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
    return {"text": text, "is_plain": is_plain, "asks": asks}


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
    expected = 2**count
    if not satisfiable:
        expected = 0  # Ganak counts so, too, and prints a line
    elif clauses:
        counter = pyganak.Counter()
        counter.new_vars(count)
        counter.add_clauses(clauses)
        expected = counter.count()
    tally.same("count", expected, oocbe.count(path).value)
    if count <= MOST_LISTED:
        for row in itertools.product((0, 1), repeat=count):
            tally.same(f"model {row}", _is_model(clauses, row), problem.evaluate(row) is not None)
    oocbe.write(problem, folder / "written.cnf")
    tally.same("count of what is written", expected, oocbe.count(folder / "written.cnf").value)


def _is_model(clauses: list[list[int]], row: tuple[int, ...]) -> bool:
    return all(any(row[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses)


def smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One clause less, in a plain file."""
    for number in range(len(case["clauses"])):
        clauses = case["clauses"][:number] + case["clauses"][number + 1 :]
        lines = [f"p cnf {case['count']} {len(clauses)}", *(" ".join(map(str, [*c, 0])) for c in clauses)]
        yield {**case, "clauses": clauses, "text": "\n".join(lines) + "\n", "is_plain": True, "asks": False}
