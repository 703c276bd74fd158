"""Random ``.lp`` files in the styles of several writers, and files that HiGHS writes, against HiGHS.

Left out is what HiGHS (1.15) takes otherwise than the format says, see ``docs/formats.md``: a variable twice in the
objective, of which it keeps one coefficient, constants among the variables of a row, which it drops, and a binary
variable with other bounds, which may leave it values beyond 0 and 1. It refuses strict relations, ``=>``, two sides of
a row, and brackets in names: these are drawn, and HiGHS reads a twin of the file without them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from ..outcome import Tally
from ._linear_programs import NUMBERS, check_file, smaller, written_by_highs

__all__ = ["check", "draw", "smaller"]

_NAMES = (
    ("x", "y", "z", "u", "v"),
    ("x1", "x_2", "x.3", "x(4)", "x#5"),
    ("e", "e1", "E2x", "gene", "minx"),
    ("a_long_name_of_a_variable", "another%", "c&d", "q~'", "w,1"),
    ("x[0]", "flow[a,b]", "y[-1]", "z[1][2].t", "u[a+b]"),
)


def draw(random: Random) -> dict[str, Any]:
    """A file as HiGHS writes it, drawn anew when it is checked, or one of our own with its twin."""
    if random.random() < 0.3:
        return {"highs": random.randint(0, 2**32), "text": ""}
    return {"text": _Text(random).written()}


def check(case: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Compare what HiGHS and oocbe make of the file."""
    text = case["text"] or written_by_highs(Random(case["highs"]), "lp", folder)
    path, twin = folder / "drawn.lp", folder / "twin.lp"
    path.write_bytes(text.encode())
    twin.write_bytes(_plain(text).encode())
    check_file(path, twin, folder, tally, {_plain(name): name for names in _NAMES for name in names})


def _plain(text: str) -> str:
    """The text as HiGHS reads it."""
    for number, name in enumerate(_NAMES[-1]):
        text = text.replace(name, f"bracket{number}")
    text = text.replace("=>", ">=").replace("=<", "<=")
    for mark in "<>":
        text = text.replace(f" {mark} ", f" {mark}= ")
    return text


class _Text:
    """A file's text, section by section."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = random.choice(_NAMES)[: random.randint(1, 5)]
        self._parts: list[str] = []
        self._end = random.choice(("\n", "\n", "\n", " \n", "\r\n", "\n\n", "\t\n", " \\ a comment: x >= [\n"))

    def written(self) -> str:
        random = self._random
        parts = []
        if random.random() < 0.3:
            parts.append(random.choice(("\\* Problem *\\", "\\ Model p\n\\ more: st", "")))
        parts.append(self._sense())
        parts.append(self._objective())
        parts.append(
            random.choice(("st", "subject to", "Subject To", "such that", "s.t.", "ST", "SUBJECT  TO", "S.T."))
        )
        parts += [self._row(number) for number in range(random.randint(0, 4))]
        binary = [name for name in self._names if random.random() < 0.15]
        integral = [n for n in self._names if n not in binary and random.random() < 0.9]
        bounds = [line for name in self._names if name not in binary for line in self._bounds(name)]
        lists = [
            (("bounds", "Bounds", "bound"), bounds),
            (("general", "generals", "gen", "Generals", "integer", "integers"), integral),
            (("binary", "binaries", "bin", "Binary"), binary),
            (("semi", "semi-continuous", "semis"), [random.choice(self._names)] if random.random() < 0.03 else []),
        ]
        for keywords, lines in lists:
            if lines or random.random() < 0.2:
                parts.append(random.choice(keywords))
                parts += lines if keywords[0] == "bounds" or random.random() < 0.5 else [" ".join(lines)]
        parts.append(random.choice(("end", "End", "END")))
        return "".join(f"{random.choice(('', ' ', '  ', chr(9)))}{part}{self._end}" for part in parts)

    def _sense(self) -> str:
        return self._random.choice(("min", "minimize", "Minimize", "max", "maximize", "Maximize", "minimum", "MAX"))

    def _objective(self) -> str:
        random = self._random
        name = random.choice(("obj:", "obj:\n", "", "value :", "COST:"))
        if random.random() < 0.1:
            return random.choice(("obj:", "obj: 0", f"obj: 0 {self._names[0]}", "obj: + 5"))
        constant = f" {random.choice('+-')} {random.choice(('3', '0.5', '10'))}" if random.random() < 0.2 else ""
        return f"{name} {self._sum(self._some())}{constant}"

    def _some(self) -> list[str]:
        random = self._random
        return random.sample(self._names, random.randint(1, len(self._names)))

    def _sum(self, names: list[str]) -> str:
        random = self._random
        text = ""
        for name in names:
            number = random.choice(("", *NUMBERS))
            sign = random.choice("+-") if not number.startswith("-") else "-"
            number = number.lstrip("-")
            first = "" if not text and sign == "+" and random.random() < 0.7 else sign
            gap = "\n   " if random.random() < 0.05 else random.choice((" ", " ", ""))
            between = " " if not number or name[0] in "eE" else random.choice((" ", " ", ""))
            text += f"{' ' if text else ''}{first}{gap if first else ''}{number}{between if number else ''}{name}"
        return text

    def _number(self) -> str:
        number = self._random.choice(NUMBERS)
        return f"+{number}" if not number.startswith("-") and self._random.random() < 0.3 else number

    def _relation(self) -> str:
        return self._random.choice(("<=", "<=", ">=", ">=", "=", "<", ">", "=<", "=>", "< =", "> ="))

    def _row(self, number: int) -> str:
        random = self._random
        name = random.choice((f"c{number}:", f"row_{number} :", "", f"R{number}:\n"))
        if random.random() < 0.06:
            side = random.choice(("= 0", "= +0", ">= -1", "<= 2", ">= 1"))
            return f"{name or 'r:'} {side}"
        terms = self._some()
        if random.random() < 0.1:
            terms.append(random.choice(terms))
        return f"{name} {self._sum(terms)}{random.choice((' ', chr(10)))}{self._relation()} {self._number()}"

    def _bounds(self, name: str) -> list[str]:
        random = self._random
        low = random.choice(("-2", "-1", "0", "+1", "1", "0.5", "- 1"))
        high = random.choice(("1", "2", "3", "+2", "2.5", "4e0"))
        below = (f"{name} <= {high}", f"{high} >= {name}", f"{name} < {high}", f"{name} <= -1", f"{name} <= +inf")
        above = (f"{name} >= {low}", f"{low} <= {name}", f"{name} => {low}", f"{name} >= -infinity")
        both = (
            f"{low} <= {name} <= {high}",
            f"{name} = {high}",
            f"{name} >= {low}\n {name} <= {high}",
            f"{name} free\n {name} <= {high}",
            f"-inf <= {name} <= {high}",
        )
        others = (f"{name} free", f"{name} <= 1e30")
        line = random.choice(random.choice((below, below, above, both, both, both[:1], others)))
        if random.random() < 0.05:
            line += f"\n {name} <= {high}"
        return [line] if random.random() < 0.9 else []
