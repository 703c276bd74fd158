"""Random ``.mps`` files, free and fixed, against HiGHS; every section and type of bound, and what files say twice.

Left out is what HiGHS (1.15) takes otherwise than the format says, see ``docs/formats.md``: a right-hand side of a
further row of kind ``N`` (it becomes a constant), ``OBJNAME`` of such a row (it is ignored), names that are not
declared, words in the place of numbers, and entries of a variable that are not together. Files of the fixed format with
blanks in names go through another reader of HiGHS, which contradicts its reader of free files (it knows no ``UI``,
takes the last of two bounds, and never ends at a blank line): it reads these with ``_`` for the blanks.
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
    ("C0001", "C0002", "C0003", "C0004", "C0005"),
    ("RHS", "BOUNDS", "COLUMNS", "N", "UP"),
    ("x[0]", "x[1,2]", "flow#a", "e1", "free"),
    ("1", "2", "-3", "1e5", "inf"),
    ("a_very_long_name_of_a_variable", "another_very_long_name", "c%d", "é", "q.1"),
)
_FIXED_NAMES = ("MY X", "Y", "Z Z Z", "U", "V 1")
_ROWS = (("R1", "R2", "R3", "R4"), ("lim", "c[1]", "row_with_a_long_name", "RANGES"), ("1", "2", "3", "4"))
_FIXED_ROWS = ("ROW 1", "R2", "ROW 3", "R4")


def draw(random: Random) -> dict[str, Any]:
    """A file as HiGHS writes it, drawn anew when it is checked, or one of our own."""
    if random.random() < 0.25:
        return {"highs": random.randint(0, 2**32), "text": ""}
    return {"text": _Text(random).written()}


def check(case: dict[str, Any], folder: Path, tally: Tally) -> None:
    """Compare what HiGHS and oocbe make of the file."""
    path = folder / "drawn.mps"
    text = case["text"] or written_by_highs(Random(case["highs"]), "mps", folder)
    path.write_bytes(text.encode())
    twin = folder / "twin.mps"
    names = {name.replace(" ", "_"): name for name in (*_FIXED_NAMES, *_FIXED_ROWS)}
    for plain, name in names.items():
        text = text.replace(name, plain)
    twin.write_bytes(text.encode())
    check_file(path, twin, folder, tally, names)


class _Text:
    """A file's text, section by section."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._is_fixed = random.random() < 0.12
        self._names = list(_FIXED_NAMES if self._is_fixed else random.choice(_NAMES))
        rows = _FIXED_ROWS if self._is_fixed else random.choice(_ROWS)
        self._names = self._names[: random.randint(1, 5)]
        kinds = [random.choice("LLGE") for _ in range(random.randint(0, len(rows)))]
        self._rows = [(kind, name) for kind, name in zip(kinds, rows, strict=False)]
        self._lines: list[str] = []
        self._gap = " " if self._is_fixed else random.choice((" ", " ", "  ", "\t", "      "))
        self._twice = random.random() < 0.25
        self._is_indented = not self._is_fixed and random.random() < 0.9

    def written(self) -> str:
        random = self._random
        if random.random() < 0.9:
            self._lines.append(random.choice(("NAME", "NAME t", "NAME          a b", "* comment\nNAME t")))
        if random.random() < 0.35:
            self._lines.append(
                random.choice(
                    ("OBJSENSE\n    MAX", "OBJSENSE MAX", "OBJSENSE\n    MAXIMIZE", "OBJSENSE\nMAX", "OBJSENSE\n  MIN")
                )
            )
        if random.random() < 0.05:
            self._lines.append("OBJNAME\n    COST")
        objectives = [("N", "COST")] + [("N", "OTHER")] * (random.random() < 0.15)
        listed = objectives + self._rows
        if random.random() < 0.3:
            listed = self._rows[:1] + objectives + self._rows[1:]
        self._section("ROWS", [[kind, name] for kind, name in listed])
        self._columns([name for _, name in listed])
        self._section("RHS", self._right_sides(), may_miss=0.1)
        self._section("RANGES", self._ranges(), may_miss=0.0)
        self._section("BOUNDS", self._bounds(), may_miss=0.0)
        if random.random() < 0.05:
            self._lines.append(random.choice(("QUADOBJ", "QMATRIX", "SOS", "QSECTION COST")))  # with nothing in it
        self._lines.append("ENDATA")
        text = "\n".join(self._lines) + "\n"
        return text.replace("\n", "\r\n") if random.random() < 0.05 else text

    def _number(self) -> str:
        number = self._random.choice(NUMBERS)
        if self._random.random() < 0.08:
            mantissa, _, exponent = number.lower().partition("e")
            return f"{mantissa}{self._random.choice('dD')}{exponent or '0'}"
        return number

    def _section(self, name: str, lines: list[list[str]], may_miss: float = -1.0) -> None:
        if not lines and may_miss >= 0 and self._random.random() < 0.7:
            return
        self._lines.append(name)
        for fields in lines:
            if self._random.random() < 0.04:
                self._lines.append(self._random.choice(("* a comment", "", "*")))
            self._lines.append(self._line(fields))

    def _line(self, fields: list[str]) -> str:
        if not self._is_fixed:
            return ("" if not self._is_indented else self._gap) + self._gap.join(fields)
        if fields[1] == "'MARKER'":
            return f"    M         'MARKER'                 {fields[2]}"
        if fields[0] in ("N", "L", "G", "E"):
            return f" {fields[0]}  {fields[1]}"
        is_bound = len(fields[0]) == 2 and fields[0].isupper() and fields[0] != "R2"
        first, rest = (fields[0], fields[1:]) if is_bound else ("", fields)
        line = f" {first:2} {rest[0]:8}  {rest[1] if len(rest) > 1 else '':8}"
        for field, width in zip(rest[2:], (12, 8, 12), strict=False):
            line += f"  {field:>12}" if width == 12 else f"   {field:8}"
        return line.rstrip()

    def _columns(self, rows: list[str]) -> None:
        random = self._random
        lines: list[list[str]] = []
        is_integral = False
        mostly = random.random() < 0.8
        for name in self._names:
            if is_integral != (random.random() < (0.95 if mostly else 0.5)):
                is_integral = not is_integral
                lines.append(["M", "'MARKER'", f"'INT{'ORG' if is_integral else 'END'}'"])
            chosen = [row for row in rows if random.random() < 0.7] or [rows[0]]
            if self._twice and random.random() < 0.5:
                chosen.append(random.choice(chosen))
            lines += self._paired(name, [(row, self._number()) for row in chosen])
        if is_integral:
            lines.append(["M", "'MARKER'", "'INTEND'"])
        self._section("COLUMNS", lines)

    def _paired(self, name: str, pairs: list[tuple[str, str]]) -> list[list[str]]:
        lines = []
        while pairs:
            count = 2 if len(pairs) > 1 and self._random.random() < 0.4 else 1
            lines.append([name, *(word for pair in pairs[:count] for word in pair)])
            pairs = pairs[count:]
        return lines

    def _right_sides(self) -> list[list[str]]:
        random = self._random
        pairs = [(name, self._number()) for _, name in self._rows if random.random() < 0.7]
        if random.random() < 0.2:
            pairs.append(("COST", self._number()))
        if pairs and self._twice and random.random() < 0.5:
            pairs.append((random.choice(pairs)[0], self._number()))
        paired = self._paired("RHS", pairs)
        is_unnamed = not self._is_fixed and random.random() < 0.1
        return [fields[1:] for fields in paired] if is_unnamed else paired

    def _ranges(self) -> list[list[str]]:
        random = self._random
        if random.random() < 0.6:
            return []
        pairs = [(name, self._number()) for _, name in self._rows if random.random() < 0.5]
        if random.random() < 0.1:
            pairs.append(("COST", self._number()))
        if pairs and self._twice and random.random() < 0.5:
            pairs.append((random.choice(pairs)[0], self._number()))
        return self._paired("RNG", pairs)

    def _bounds(self) -> list[list[str]]:
        random = self._random
        lines = []
        has_vector = self._is_fixed or random.random() < 0.9
        for name in self._names:
            kinds: list[str] = random.choice(
                (["UP"], ["UP"], ["LO", "UP"], ["UP", "LO"], ["LI", "UI"], ["FX"], ["BV"], ["FR"], ["MI"], ["PL"], [],
                 ["UI"], ["LI"], ["MI", "UP"], ["UP", "MI"], ["LO"], ["SC"] if random.random() < 0.2 else ["UP"])
            )  # fmt: skip
            if self._twice and random.random() < 0.4:
                kinds = [*kinds, random.choice(("UP", "LO", "FX", "BV", "FR", "MI", "PL", "LI", "UI"))]
            for kind in kinds:
                fields = [kind, *(["BND"] if has_vector else []), name]
                if kind in ("UP", "LO", "FX", "LI", "UI", "SC"):
                    fields.append(self._bound_number(kind))
                lines.append(fields)
        return lines

    def _bound_number(self, kind: str) -> str:
        random = self._random
        if kind == "UP" and random.random() < 0.06:
            return random.choice(("1e30", "Inf", "1e20", "infinity"))
        if kind == "LO" and random.random() < 0.06:
            return random.choice(("-1e30", "-Inf", "-1e20"))
        if kind in ("LO", "LI"):
            return random.choice(("0", "1", "-1", "-2", "0.5" if kind == "LO" else "0", "-1.0d0"))
        return random.choice(("1", "2", "3", "2", "4", "2.5" if kind == "UP" else "3", "0", "-1", "3D0"))
