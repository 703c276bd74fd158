"""Linear and mixed-integer programs in the MPS format, free or fixed.

A file has sections, each begun by a keyword on a line of its own: ``ROWS`` (a kind and a name each), ``COLUMNS`` (a
variable's entries, variable by variable), ``RHS``, ``RANGES``, ``BOUNDS``, ``ENDATA``. Fields are separated by
blanks; a file whose names contain blanks is read by the fixed format's columns instead. The first row of kind ``N`` is
the objective, or that which ``OBJNAME`` names; others are left out. Where conventions differ, those of HiGHS hold:

* bounds and sides of 1e20 and beyond are infinite, and so are those written ``inf`` or ``infinity``;
* an integer variable between markers that has no bound at all lies between 0 and 1;
* a negative upper bound leaves the lower one at 0, so that there is no solution (CPLEX makes it minus infinity);
* a right-hand side of the objective is the negative of a constant;
* of a coefficient, side or range that is there twice the first one counts, and a bound is left out that sets a side
  which another one has set; so is a range of a row of kind ``N``. The system's notes say so.

Semicontinuous variables, and special ordered sets, quadratic and indicator parts where there are any, raise
:class:`~oocbe.errors.UnsupportedError`. Numbers are doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from oocbe.errors import FormatError, UnsupportedError, amount
from oocbe.formats.text import LOOK_STEP, Text, shown
from oocbe.model.linear_system import LinearSystem
from oocbe.runtime.deadline import looked

MOST_NOTES = 3
"""Lines that are left out which are named one by one."""

_FIXED_FIELDS = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))
"""First byte of each field of the fixed format, and the byte after its last."""

_HEADERS = (b"NAME", b"OBJSENSE", b"OBJNAME")
"""Sections whose keyword may have its value on the same line."""

_UNSUPPORTED = {
    **dict.fromkeys((b"SOS", b"SETS"), "special ordered sets"),
    **dict.fromkeys((b"QUADOBJ", b"QMATRIX", b"QSECTION", b"QCMATRIX"), "quadratic parts"),
    b"CSECTION": "cone constraints",
    b"INDICATORS": "indicator constraints",
    b"GENCONS": "general constraints",
    b"PWLOBJ": "a piecewise linear objective",
    **dict.fromkeys((b"LAZYCONS", b"USERCUTS"), "lazy constraints or cuts"),
}
"""Sections that are refused unless they are empty, and what they hold."""

_WITHOUT_VALUE = (b"FR", b"MI", b"PL", b"BV")
"""Types of bounds that need no number."""

_WITH_VALUE = (b"UP", b"LO", b"FX", b"LI", b"UI")
"""Types of bounds with a number."""

_SEMICONTINUOUS = (b"SC", b"SI")
"""Types of bounds that make a variable semicontinuous."""


def parse(text: Text) -> LinearSystem:
    """Read a program; FormatError with the line where it is malformed, UnsupportedError where it is not linear."""
    try:
        return _Reader(text, bytes.split).read()
    except FormatError as error:
        # Blanks inside names make too many fields; the columns of the fixed format tell where they are.
        if not _is_fixed(text):
            raise
        reader = _Reader(text, _fixed_fields)
        try:
            return reader.read()
        except (FormatError, UnsupportedError) as other:
            is_named = isinstance(other, UnsupportedError) and reader.number > (error.line or 0)
            raise (other if is_named else error) from None


def _fixed_fields(line: bytes) -> list[bytes]:
    fields = (line[first:last].strip() for first, last in _FIXED_FIELDS)
    return [field for field in fields if field]


def _is_fixed(text: Text) -> bool:
    """Whether every line keeps the blanks between the fixed format's fields."""
    gaps = [slice(0, 1), slice(3, 4), slice(12, 14), slice(22, 24), slice(36, 39), slice(47, 49), slice(61, None)]
    return not any(
        line[gap].strip()
        for _, line in _lines(text)
        if line[:1].isspace() and b"\t" not in line and len(line.split()) > 1  # one word alone: of OBJSENSE, OBJNAME
        for gap in gaps
    )


def _lines(text: Text) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line that is not empty or a comment, up to the end line."""
    for number, line in enumerate(looked(text.data.split(b"\n"), LOOK_STEP), 1):
        if not line.startswith(b"*") and line.strip():
            yield number, line
            if line.startswith(b"ENDATA"):
                return


class _Reader:
    def __init__(self, text: Text, fields_of: Callable[[bytes], list[bytes]]) -> None:
        self._text, self._fields_of = text, fields_of
        self.number = 0
        self._name = text.stem
        self._maximises = False
        self._objective = self._wanted = b""
        self._constant = 0.0
        self._kinds: dict[bytes, bytes] = {}
        self._rows: dict[bytes, int] = {}
        self._columns: dict[bytes, int] = {}
        self._in_marker = False
        self._integral: list[bool] = []
        self._entries: tuple[list[int], list[int], list[float]] = ([], [], [])
        self._costs: dict[int, float] = {}
        self._seen: set[bytes] = set()
        self._right: dict[bytes, float] = {}
        self._ranges: dict[bytes, float] = {}
        self._lower: dict[int, float] = {}
        self._upper: dict[int, float] = {}
        self._vectors: dict[str, bytes] = {}
        self._left_out: list[str] = []

    def read(self) -> LinearSystem:
        sections: dict[bytes, Callable[[list[bytes]], None]] = {
            b"ROWS": self._row,
            b"COLUMNS": self._column,
            b"RHS": self._right_side,
            b"RANGES": self._range,
            b"BOUNDS": self._bound,
            b"OBJSENSE": self._sense,
            b"OBJNAME": self._objective_name,
        }
        read_line: Callable[[list[bytes]], None] | None = None
        begun: set[bytes] = set()
        for number, line in _lines(self._text):
            self.number = number
            words = line.split()
            keyword = words[0].upper()
            # A keyword is alone on its line, indented or not, or is one of those with a value.
            is_alone = len(words) == 1 and (keyword in sections or keyword == b"ENDATA" or not line[:1].isspace())
            begins = read_line is None or not line[:1].isspace()
            has_value = begins and (keyword in _HEADERS or keyword in _UNSUPPORTED)
            is_sense = read_line == self._sense and keyword[:3] in (b"MAX", b"MIN")
            if read_line is not None and (is_sense or not (is_alone or has_value)):
                read_line(words if len(words) == 1 else self._fields_of(line))
                continue
            if keyword == b"ENDATA":
                break
            if keyword == b"NAME":
                self._name = b" ".join(words[1:]).decode("utf-8", errors="replace") or self._name
                continue
            if keyword in _UNSUPPORTED or keyword[:3] == b"SOS":
                what = _UNSUPPORTED.get(keyword, "special ordered sets")
                refusal = self._unsupported(f"the section {keyword.decode()} holds {what}, which are not supported")
                read_line = partial(_refuse, refusal)  # where there is anything in it
                continue
            if keyword not in sections:
                raise self._error(f"found {shown(line.strip())}, expected a section such as ROWS or COLUMNS")
            if keyword in begun:
                raise self._error(f"found the section {keyword.decode()} a second time, expected it once")
            if keyword in (b"COLUMNS", b"RHS", b"RANGES", b"BOUNDS") and b"ROWS" not in begun:
                raise self._error(f"found the section {keyword.decode()}, expected ROWS before it")
            if keyword in (b"RHS", b"RANGES", b"BOUNDS") and b"COLUMNS" not in begun:
                raise self._error(f"found the section {keyword.decode()}, expected COLUMNS before it")
            begun.add(keyword)
            read_line = sections[keyword]
            if len(words) > 1:
                read_line(words[1:])
        else:
            raise self._error("the file ends, expected ENDATA")
        if self._wanted != self._objective and self._wanted:
            raise self._error(f"found no row {shown(self._wanted)} of kind N, which OBJNAME names")
        if b"COLUMNS" not in begun:
            raise self._error("found ENDATA, expected the sections ROWS and COLUMNS before it")
        return self._system()

    def _sense(self, fields: list[bytes]) -> None:
        word = b" ".join(fields).upper()
        if word[:3] not in (b"MAX", b"MIN"):
            raise self._error(f"found {shown(b' '.join(fields))}, expected MIN or MAX")
        self._maximises = word.startswith(b"MAX")

    def _objective_name(self, fields: list[bytes]) -> None:
        if len(fields) != 1 or self._kinds:
            raise self._error(f"found {shown(b' '.join(fields))}, expected the objective's name, before ROWS")
        self._wanted = fields[0]

    def _row(self, fields: list[bytes]) -> None:
        if len(fields) != 2:
            raise self._error(f"found {len(fields)} fields, expected a row's kind and name")
        kind, name = fields[0].upper(), fields[1]
        if kind not in (b"N", b"E", b"L", b"G"):
            raise self._error(f"found {shown(fields[0])}, expected a row's kind: N, E, L or G")
        if name in self._kinds:
            raise self._error(f"found the row {shown(name)} a second time, expected different names")
        self._kinds[name] = kind
        if kind != b"N":
            self._rows[name] = len(self._rows)
        elif not self._objective and self._wanted in (b"", name):
            self._objective = name

    def _column(self, fields: list[bytes]) -> None:
        if len(fields) == 3 and fields[1].upper() == b"'MARKER'":
            self._marker(fields[2].upper())
            return
        if len(fields) not in (3, 5):
            raise self._error(f"found {len(fields)} fields, expected a variable and one or two pairs of row and number")
        name = fields[0]
        place = self._columns.get(name)
        if place is None:
            place = self._columns[name] = len(self._columns)
            self._integral.append(self._in_marker)
            self._seen = set()
        elif place != len(self._columns) - 1:
            raise self._error(f"found the variable {shown(name)} again, expected all its entries together")
        for row, value in self._pairs(fields[1:]):
            if row in self._seen:
                self._leave_out(f"a second coefficient of {shown(name)} in {shown(row)}")
                continue
            self._seen.add(row)
            if value and row in self._rows:
                self._entries[0].append(self._rows[row])
                self._entries[1].append(place)
                self._entries[2].append(value)
            elif value and row == self._objective:
                self._costs[place] = value

    def _marker(self, kind: bytes) -> None:
        if kind.startswith(b"'SOS"):
            raise self._unsupported("a marker begins a special ordered set, which is not supported")
        if kind not in (b"'INTORG'", b"'INTEND'"):
            raise self._error(f"found the marker {shown(kind)}, expected 'INTORG' or 'INTEND'")
        if self._in_marker == (kind == b"'INTORG'"):
            raise self._error(f"found the marker {shown(kind)}, expected 'INTORG' and 'INTEND' in turn")
        self._in_marker = not self._in_marker

    def _right_side(self, fields: list[bytes]) -> None:
        for row, value in self._pairs(self._without_vector("right-hand side", fields), infinite=True):
            if row in self._right:
                self._leave_out(f"a second right-hand side of {shown(row)}")
                continue
            self._right[row] = value
            if row == self._objective:
                if math.isinf(value):
                    raise self._error("found an infinite right-hand side of the objective, expected a finite one")
                self._constant = -value

    def _range(self, fields: list[bytes]) -> None:
        for row, value in self._pairs(self._without_vector("range", fields), infinite=True):
            if row in self._ranges or row not in self._rows:
                what = "a second range" if row in self._rows else "a range of an objective"
                self._leave_out(f"{what} ({shown(row)})")
                continue
            self._ranges[row] = value

    def _without_vector(self, what: str, fields: list[bytes]) -> list[bytes]:
        """Pairs of row and number, without the name of their vector, which may be left out."""
        if len(fields) not in (2, 3, 4, 5):
            raise self._error(f"found {len(fields)} fields, expected one or two pairs of row and number")
        has_vector = len(fields) % 2 == 1
        self._check_vector(what, fields[0] if has_vector else b"")
        return fields[has_vector:]

    def _check_vector(self, what: str, name: bytes) -> None:
        first = self._vectors.setdefault(what, name)
        if first != name:
            raise self._unsupported(
                f"a second vector of {what}s ({shown(name)}, {shown(first)}); only one is supported"
            )

    def _bound(self, fields: list[bytes]) -> None:
        kind = fields[0].upper()
        if kind in _SEMICONTINUOUS:
            raise self._unsupported(f"a bound of type {kind.decode()} makes a variable semicontinuous: not supported")
        if kind not in _WITHOUT_VALUE + _WITH_VALUE:
            known = b", ".join(_WITH_VALUE + _WITHOUT_VALUE).decode()
            raise self._error(f"found {shown(fields[0])}, expected a bound's type: {known}")
        needed = 2 + (kind in _WITH_VALUE)
        has_vector = len(fields) > needed or (len(fields) == needed and fields[1] not in self._columns)
        if not needed <= len(fields) <= (4 if kind in _WITHOUT_VALUE else needed + 1):
            raise self._error(f"found {len(fields)} fields, expected a type, a vector, a variable and a number")
        name = fields[1 + has_vector] if 1 + has_vector < len(fields) else fields[1]
        self._check_vector("bound", fields[1] if has_vector else b"")
        if name not in self._columns:
            raise self._error(f"found a bound of {shown(name)}, expected a variable of the section COLUMNS")
        place = self._columns[name]
        value = self._number_of(fields[-1], infinite=True) if kind in _WITH_VALUE else 0.0
        is_lower, is_upper = kind not in (b"UP", b"UI", b"PL"), kind not in (b"LO", b"LI", b"MI")
        if (is_lower and place in self._lower) or (is_upper and place in self._upper):
            self._leave_out(f"a second bound of {shown(name)} ({kind.decode()})")
            return
        if kind in (b"BV", b"LI", b"UI"):
            self._integral[place] = True
        if is_lower:
            self._lower[place] = {b"BV": 0.0, b"FR": -math.inf, b"MI": -math.inf}.get(kind, value)
        if is_upper:
            self._upper[place] = {b"BV": 1.0, b"FR": math.inf, b"PL": math.inf}.get(kind, value)
        if self._lower.get(place, 0.0) >= 1e20 or self._upper.get(place, 0.0) <= -1e20:
            raise self._error(f"found {shown(fields[-1])}, expected a bound of {shown(name)} that leaves it a value")

    def _leave_out(self, what: str) -> None:
        self._left_out.append(f"{self._text.path}, line {self.number}: {what} is left out")

    def _pairs(self, fields: list[bytes], infinite: bool = False) -> Iterator[tuple[bytes, float]]:
        for row, number in zip(fields[::2], fields[1::2], strict=True):
            if row not in self._kinds:
                raise self._error(f"found {shown(row)}, expected a row of the section ROWS")
            yield row, self._number_of(number, infinite)

    def _number_of(self, word: bytes, infinite: bool = False) -> float:
        try:
            value = float(word.upper().replace(b"D", b"E"))  # FORTRAN writes 1.0D3
        except ValueError:
            value = math.nan
        if math.isnan(value) or b"_" in word or (math.isinf(value) and not infinite):
            raise self._error(f"found {shown(word)}, expected a {'' if infinite else 'finite '}number")
        return value

    def _system(self) -> LinearSystem:
        rows, columns = np.array(self._entries[0], dtype=np.int64), np.array(self._entries[1], dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        row_lower, row_upper = (np.empty(len(self._rows)) for _ in range(2))
        for name, row in self._rows.items():
            kind, right = self._kinds[name], self._right.get(name, 0.0)
            width = self._ranges.get(name)
            if kind == b"E":
                row_lower[row], row_upper[row] = right + min(0.0, width or 0.0), right + max(0.0, width or 0.0)
            elif kind == b"G":
                row_lower[row], row_upper[row] = right, np.inf if width is None else right + abs(width)
            else:
                row_lower[row], row_upper[row] = -np.inf if width is None else right - abs(width), right
        integral = np.array(self._integral, dtype=bool)
        lower, upper = np.zeros(len(integral)), np.where(integral, 1.0, np.inf)
        for place in self._lower.keys() | self._upper.keys():
            lower[place] = self._lower.get(place, 0.0)
            upper[place] = self._upper.get(place, np.inf)
        names = tuple(_decoded(name) for name in self._columns)
        self._left_out += [
            f"{self._text.path}: {names[place]} has an upper bound below 0 and no lower one, which is 0 then, as in "
            "HiGHS; other programs take minus infinity, for which the bound MI can be added"
            for place in self._upper
            if upper[place] < 0 and place not in self._lower
        ]
        notes = self._left_out[:MOST_NOTES]
        if more := len(self._left_out) - len(notes):
            notes.append(f"{self._text.path}: {amount(more, 'more line')} like that")
        if not self._maximises and self._text.data.upper().startswith(b"*SENSE:MAX"):
            notes.append(
                f"{self._text.path}, line 1: PuLP's comment states a maximum, the file a minimum; write OBJSENSE MAX "
                "for a maximum"
            )
        objective = np.zeros(len(integral))
        objective[list(self._costs)] = list(self._costs.values())
        return LinearSystem(
            np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(self._rows)))]).astype(np.int64),
            columns[order],
            np.array(self._entries[2], dtype=np.float64)[order],
            row_lower,
            row_upper,
            lower,
            upper,
            integral,
            names,
            tuple(_decoded(name) for name in self._rows),
            objective,
            self._constant,
            self._maximises,
            self._name,
            tuple(notes),
        )

    def _error(self, message: str) -> FormatError:
        return FormatError(self._text.path, self.number, message)

    def _unsupported(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"{self._text.path}, line {self.number}: {message}")


def _refuse(refusal: UnsupportedError, _: list[bytes]) -> None:
    raise refusal


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", errors="backslashreplace")
