"""Random ``.wcnf`` files, old and new, read by toulbar2 and by oocbe.

Left out are headers with another number of clauses than there are (toulbar2 1.4 forgets those that are too many, and
adds 1 where there are too few) and comments between the clauses of old files, at which it stops reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import Tally
from ._toulbar2 import compare, solved

Case = dict[str, Any]


def draw(random: Random) -> Case:
    """Clauses with weights, None of hard ones, and a header or none."""
    count = random.randint(1, 7)
    clauses = []
    for _ in range(random.randint(1, 10)):
        most = random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))
        literals = [random.choice((-1, 1)) * random.randint(1, count) for _ in range(most)]
        weight = None if random.random() < (0.3 if literals else 0.05) else random.choice((1, 2, 3, 7, 100))
        clauses.append([weight, *literals])
    kind = random.choice(("new", "old", "old", "without top", "cnf"))
    weights = sum(own[0] or 0 for own in clauses)
    top = random.choice((weights + 1, max(1, weights), random.randint(1, max(1, weights)), 10**9, 0, -1))
    announced = random.choice((count, count, count + 1, max(0, count - 1)))
    return {
        "kind": kind,
        "clauses": clauses,
        "variables": announced,
        "top": top,
        "style": random.randint(0, 2**32),
    }


def text_of(case: Case) -> str:
    """The file."""
    random = Random(case["style"])
    kind, top, clauses = case["kind"], case["top"], case["clauses"]
    lines = random.choice(([], [], ["c comment: 1 0"], ["", "c"], ["c\t1 0", " c p wcnf 1 1 1"]))
    if kind != "new":
        words = ["p", "cnf" if kind == "cnf" else "wcnf", str(case["variables"]), str(len(clauses))]
        header = random.choice((" ", " ", "  ", "\t")).join(words)
        lines.append(f"{header} {top}" if kind == "old" else header)
    for weight, *literals in clauses:
        first = {"new": "h", "cnf": ""}.get(kind, str(max(top, 1)))
        if weight is not None and kind != "cnf":
            first = str(weight)
        between = random.choice((" ", " ", "  ", "\t"))
        plus = random.choice(("", "", "", "+"))
        shown = (f"{plus if x > 0 else ''}{x}" for x in literals)
        lines.append(between.join([*filter(None, [first]), *shown, "0"]))
        if kind != "new" and random.random() < 0.1:
            lines[-1] = lines[-1].replace(between, "\n", 1)
        if random.random() < 0.1:
            lines.append(" ")
        elif len(lines) > 1 and lines[-2][:1] in "h-+123456789" and lines[-2] and random.random() < 0.1:
            lines[-2:] = [f"{lines[-2]} {lines[-1]}"]
        if kind == "new" and random.random() < 0.1 and clauses[-1] != [weight, *literals]:
            lines.append("c between")
    return random.choice(("\n", "\n", "\n", "\r\n")).join(lines) + random.choice(("\n", "", "\n\n"))


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Both programs read the file as the same problem, and a solve finds its optimum."""
    path = folder / "random.wcnf"
    path.write_bytes(text_of(case).encode())
    problem = compare(path, tally, knows_all=False)  # toulbar2 has no variables of tautologies alone
    if problem is not None and case["style"] % 5 == 0:
        solved(problem, tally)


def smaller(case: Case) -> Iterator[Case]:
    """Without clauses and literals."""
    clauses = case["clauses"]
    for number, own in enumerate(clauses):
        yield {**case, "clauses": clauses[:number] + clauses[number + 1 :]}
        for place in range(1, len(own)):
            rest = [*clauses[:number], own[:place] + own[place + 1 :], *clauses[number + 1 :]]
            yield {**case, "clauses": rest}
    if case["style"] != 1:
        yield {**case, "style": 1}
