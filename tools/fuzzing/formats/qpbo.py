"""Random ``.qpbo`` files, read by toulbar2 and by oocbe.

toulbar2 (1.4) lists some solutions only where coefficients are fractions, or values 1 and -1: it takes a first solution
for an upper bound of the others, or a bound of sums over 0 and 1.
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
    """Coefficients of pairs."""
    count = random.randint(1, 7)
    decimals = random.choice((0, 0, 1, 3, 7))
    most = random.choice((2, 10, 1000))
    entries = []
    for _ in range(random.randint(1, 12)):
        value = f"{random.randint(-most, most)}"
        if decimals:
            value += "." + "".join(random.choice("0123456789") for _ in range(decimals))
        if random.random() < 0.1:
            value = random.choice(("0", "+3", "1e2", "-2.5e-1", ".5", "-.5", "4.", "1E+1", "-0", "+.25e1", "007"))
        entries.append([random.randint(1, count), random.randint(1, count), value])
    return {
        "count": random.choice((count, -count)),
        "sign": random.choice((1, -1)),
        "entries": entries,
        "style": random.randint(0, 2**32),
    }


def text_of(case: Case) -> str:
    """The file."""
    random = Random(case["style"])
    text = f"{case['count']} {case['sign'] * len(case['entries'])}"
    for own in case["entries"]:
        text += random.choice(("\n", "\n", " ", "\n\n", "\r\n")) + random.choice((" ", "  ", "\t")).join(map(str, own))
    return text + random.choice(("\n", "", "\n \n"))


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Both programs read the file as the same problem, and a solve finds its optimum."""
    path = folder / "random.qpbo"
    path.write_bytes(text_of(case).encode())
    is_integral = all(value.lstrip("+-").isdigit() for _, _, value in case["entries"])
    problem = compare(path, tally, lists_all=is_integral and case["count"] > 0)
    if problem is not None and case["style"] % 5 == 0:
        solved(problem, tally)


def smaller(case: Case) -> Iterator[Case]:
    """Without coefficients."""
    entries = case["entries"]
    for number in range(len(entries)):
        if len(entries) > 1:
            yield {**case, "entries": entries[:number] + entries[number + 1 :]}
    if case["style"] != 1:
        yield {**case, "style": 1}
