"""Random ``.opb`` and ``.wbo`` files, read by toulbar2 and by oocbe.

Left out is what toulbar2 (1.4) refuses, negated literals and products in constraints, or misreads: semicolons without a
space before them, constants in objectives, behind which it loses a coefficient, and decimals, which it cuts off.
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
    """An objective, and constraints with weights of soft ones."""
    names = [f"x{v}" for v in range(1, random.randint(2, 7))]
    if random.random() < 0.2:
        names = [random.choice(("a", "b_", "y")) + name for name in names]
    most = random.choice((1, 3, 9, 100))
    kind = random.choice(("min", "min", "max", "soft", ""))
    objective = []
    if kind in ("min", "max"):
        for _ in range(random.randint(0, 6)):
            length = random.choice((1, 1, 1, 2, 3, 4))
            objective.append([random.randint(-most, most), *(random.choice(names) for _ in range(length))])
    constraints = []
    for _ in range(random.randint(1, 5)):
        terms = [[random.randint(-most, most), random.choice(names)] for _ in range(random.randint(1, 5))]
        right = random.randint(-most, 2 * most)
        weight = random.choice((None, 1, 2, 5)) if kind == "soft" else None
        constraints.append([weight, random.choice((">=", ">=", "<=", "=")), right, *terms])
    return {
        "kind": kind,
        "objective": objective,
        "constraints": constraints,
        "most": random.choice((1, 3, 6, 20)),
        # toulbar2 has variables called x1 to the last besides those that a file with other names uses.
        "announced": random.choice((None, len(names), len(names) + 1)) if names[0] == "x1" else None,
        "style": random.randint(0, 2**32),
    }


def text_of(case: Case) -> str:
    """The file."""
    random = Random(case["style"])
    lines = random.choice(([], [], ["* a comment"], ["", "*"]))
    if case["announced"] is not None:
        soft = sum(own[0] is not None for own in case["constraints"])
        more = f" #soft= {soft}" if soft else ""
        lines.append(f"* #variable= {case['announced']} #constraint= {len(case['constraints'])}{more}")

    def shown(term: list[Any], is_first: bool) -> str:
        number, *literals = term
        words = [f"{number:+}" if random.random() < 0.8 else str(number)]
        if number == 1 and random.random() < 0.2 and literals:
            words = [] if is_first else ["+"]
        return random.choice((" ", "  ")).join([*words, *literals])

    def total(terms: list[list[Any]]) -> str:
        return random.choice((" ", " ", "\n ")).join(shown(term, k == 0) for k, term in enumerate(terms))

    if case["kind"] == "soft":
        lines.append(f"soft:{random.choice(('', ' '))}{case['most']} ;")
    elif case["kind"]:
        lines.append(f"{case['kind']}: {total(case['objective'])} ;")
    for weight, relation, right, *terms in case["constraints"]:
        if random.random() < 0.1:
            lines.append(random.choice(("* a comment", " \t* a comment", "*")))
        blank = random.choice(("", "", " "))
        before = "" if weight is None else f"[{blank}{weight}{random.choice(('', blank))}] "
        number = f"+{right}" if right >= 0 and random.random() < 0.1 else str(right)
        behind = random.choice(("", "", "", " * a comment +1 x1 >= 1 ;", " ", "\n"))
        lines.append(f"{before}{total(terms)} {relation} {number} ;{behind}")
    if not any("*" in line for line in lines) and random.random() < 0.3:
        return " ".join(lines)
    return random.choice(("\n", "\n", "\n", "\r\n")).join(lines) + random.choice(("\n", "\n", ""))


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Both programs read the file as the same problem, and a solve finds its optimum."""
    path = folder / "random.opb"
    path.write_bytes(text_of(case).encode())
    problem = compare(path, tally)
    if problem is not None and case["style"] % 5 == 0:
        solved(problem, tally)


def smaller(case: Case) -> Iterator[Case]:
    """Without terms and constraints."""
    for key, first in (("objective", None), ("constraints", 3)):
        own = case[key]
        for number, part in enumerate(own):
            if key == "objective" or len(own) > 1:
                yield {**case, key: own[:number] + own[number + 1 :]}
            for place in range(first or 1, len(part)):
                if len(part) > (first or 1) + 1:
                    yield {**case, key: [*own[:number], part[:place] + part[place + 1 :], *own[number + 1 :]]}
    if case["style"] != 1:
        yield {**case, "style": 1}
