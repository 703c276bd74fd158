"""Tuples of XCSP3's constraint ``extension``: parsed once for all instances of a group, in bulk where they are numbers.

``(1,2,*)(3..5,0,1)``: a star stands for every value, a range for several rows. A constraint over one variable lists
values and ranges instead.

Hybrid tables (``type="hybrid-1"`` and ``"hybrid-2"``) have conditions as cells, and are written out.

A cell is an integer, a star, a set ``{1,3}``, a range ``1..3``, the complement of either (``∁{1,3}``), or a comparison
(``≠2``, ``≥c0``, ``c1+2``) with a number or with another column of the same row. Columns are counted from 0; a cell
without an operator is an equality.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, amount
from oocbe.formats.text import Text
from oocbe.formats.xcsp_expressions import Expression, Integers, bounds_of, call, constant, evaluate, variable
from oocbe.formats.xcsp_variables import LARGEST_DOMAIN, Domain, read_integer, read_range
from oocbe.formats.xml import Element
from oocbe.model.compact_problem import ANY
from oocbe.runtime.deadline import check_deadline

STAR = np.iinfo(np.int64).min
"""The integer for a star: in no domain."""

MOST_ROWS = 2**20
"""Rows at most that the ranges of one table stand for."""

_TUPLE = re.compile(rb"\(([^()]*)\)")
_SHAPE = re.compile(rb"\s*(\([^()]*\)\s*)*")
_MARKS = bytes.maketrans(b"(),", b"   ")


def read_tuples(element: Element, arity: int) -> NDArray[np.int64]:
    """Rows of values as the file has them, int64 (rows, arity), a star as :data:`STAR`."""
    text = element.text
    if arity == 1 and b"(" not in text:
        return _values(element, text)
    if b".." in text:
        return _with_ranges(element, text, arity)
    rows = text.count(b"(")
    # Brackets and commas are checked by their numbers and places, the numbers in between all at once.
    commas = text.count(b",")
    if rows != text.count(b")") or commas != rows * (arity - 1) or not _brackets_alternate(text, arity):
        raise _tuple_error(element, text, arity)
    numbers = text.translate(_MARKS)
    parsed = Text(element.file.path, numbers.replace(b"*", b" %d " % STAR) if b"*" in numbers else numbers)
    if len(parsed) != rows * arity:
        raise _tuple_error(element, text, arity)
    try:
        return parsed.integers(0, rows * arity, "a value of a tuple").reshape(rows, arity)
    except FormatError as error:
        raise element.in_text(error) from None


def _brackets_alternate(text: bytes, arity: int) -> bool:
    """Whether marks come as one opening bracket, arity - 1 commas and one closing bracket, again and again."""
    codes = np.frombuffer(text, dtype=np.uint8)
    marks = codes[(codes == ord("(")) | (codes == ord(")")) | (codes == ord(","))]
    expected = np.frombuffer(b"(" + b"," * (arity - 1) + b")", dtype=np.uint8)
    return len(marks) % len(expected) == 0 and bool((marks.reshape(-1, len(expected)) == expected).all())


def _tuple_error(element: Element, text: bytes, arity: int) -> FormatError:
    """Description of the first malformed tuple."""
    place = 0
    for match in _TUPLE.finditer(text):
        between = text[place : match.start()].strip()
        cells = match[1].split(b",")
        if between or len(cells) != arity or not all(len(cell.split()) == 1 for cell in cells):
            break
        place = match.end()
    place += len(text[place:]) - len(text[place:].lstrip())
    shown = text[place : place + 40].decode("utf-8", "replace").strip()
    line = element.file.line_of(element.start) + text.count(b"\n", 0, place)
    return FormatError(element.file.path, line, f"found {shown!r}, expected a tuple of {arity} values in brackets")


def _values(element: Element, text: bytes) -> NDArray[np.int64]:
    words = [word.decode("utf-8", "replace") for word in text.split()]
    if "*" in words:
        return np.full((1, 1), STAR, dtype=np.int64)
    ranges = [read_range(element, word) for word in words]
    rows = sum(high - low + 1 for low, high in ranges)
    if rows > LARGEST_DOMAIN:
        raise element.error(f"found ranges of {rows:,} values, expected at most {LARGEST_DOMAIN:,}")
    pieces = [np.arange(low, high + 1, dtype=np.int64) for low, high in ranges]
    return np.concatenate([np.zeros(0, dtype=np.int64), *pieces])[:, None]


def _with_ranges(element: Element, text: bytes, arity: int) -> NDArray[np.int64]:
    """Rows of tuples some of whose cells are ranges, written out."""
    if not _SHAPE.fullmatch(text):
        raise _tuple_error(element, text, arity)
    rows: list[tuple[int, ...]] = []
    total = 0
    for match in _TUPLE.finditer(text):
        cells = [cell.strip().decode("utf-8", "replace") for cell in match[1].split(b",")]
        if len(cells) != arity:
            raise _tuple_error(element, text, arity)
        ranges = [(STAR, STAR) if cell == "*" else read_range(element, cell) for cell in cells]
        count = 1
        for low, high in ranges:
            count *= high - low + 1
        total += count
        if total > MOST_ROWS:
            raise element.error(f"found ranges that stand for {total:,} tuples, expected at most {MOST_ROWS:,}")
        rows += itertools.product(*(range(low, high + 1) for low, high in ranges))
    return np.array(rows, dtype=np.int64).reshape(len(rows), arity)


def as_indices(rows: NDArray[np.int64], domains: list[Domain]) -> NDArray[np.int64]:
    """Rows of value indices, stars as :data:`ANY`; rows with a value that is in no domain are dropped."""
    columns = []
    fits = np.ones(len(rows), dtype=bool)
    for column, domain in zip(rows.T, domains, strict=True):
        check_deadline()
        values = domain.values
        place = np.minimum(np.searchsorted(values, column), len(values) - 1)
        is_star = column == STAR
        fits &= is_star | (values[place] == column)
        columns.append(np.where(is_star, 0 if len(values) == 1 else ANY, place))
    return np.stack(columns, axis=1)[fits]


_OPERATORS = {"=": "eq", "≠": "ne", "﹤": "lt", "≤": "le", "≥": "ge", "﹥": "gt"}
_COMPLEMENT = "∁"

_HYBRID_TUPLE = re.compile(r"\(([^()]*)\)\s*")
_CELL = re.compile(r"(?:\{[^{}]*\}|[^,{}])+")
_COMPARISON = re.compile(r"([=≠﹤≤≥﹥]?)(?:([+-]?[0-9]+)|c([0-9]{1,9})(?:([+-])(c?)([0-9]+))?)")


def read_hybrid_tuples(element: Element, domains: Sequence[Integers]) -> Integers:
    """Rows of values, int64 (rows, columns) with stars as :data:`STAR`, that a hybrid table allows.

    domains : values of each column, ascending. FormatError where a tuple is malformed, or the rows are more than
    :data:`MOST_ROWS`.
    """
    text = element.text.decode("utf-8", "replace").strip()
    found, place, count = [np.zeros((0, len(domains)), dtype=np.int64)], 0, 0
    while place < len(text):
        match = _HYBRID_TUPLE.match(text, place)
        cells = [] if match is None else [re.sub(r"\s", "", cell) for cell in _CELL.findall(match[1])]
        if match is None or len(cells) != len(domains):
            raise element.error(
                f"found {text[place : place + 40]!r}, expected a tuple of {amount(len(domains), 'cell')}"
            )
        check_deadline()
        rows = _rows_of_tuple(element, cells, domains, MOST_ROWS - count)
        found.append(rows)
        count += len(rows)
        place = match.end()
    return np.concatenate(found)


def _rows_of_tuple(element: Element, cells: Sequence[str], domains: Sequence[Integers], most: int) -> Integers:
    """The rows that one tuple stands for; columns that no condition names stay stars."""
    conditions = [_condition(element, cell, column, len(domains)) for column, cell in enumerate(cells)]
    columns = sorted({v for condition in conditions if condition is not None for v in condition.scope})
    values = {}
    for v in columns:
        own, condition = domains[v], conditions[v]
        if condition is not None and condition.scope == (v,):
            own = own[evaluate(condition.template, [own]) != 0]
        values[v] = own
    size = 1
    for own in values.values():
        size *= len(own)
    if size > most:
        raise element.error(f"found tuples that stand for {size:,} rows and more, expected at most {MOST_ROWS:,}")
    axes = dict(zip(columns, np.ix_(*values.values()) if columns else (), strict=True))
    holds = np.ones(tuple(map(len, values.values())), dtype=bool)
    for condition in conditions:
        if condition is not None and len(condition.scope) > 1 and size:
            bounds_of(condition.template, [(int(values[v][0]), int(values[v][-1])) for v in condition.scope])
            holds &= evaluate(condition.template, [axes[v] for v in condition.scope]) != 0
    chosen = np.argwhere(holds)
    rows = np.full((len(chosen), len(domains)), STAR, dtype=np.int64)
    for place, v in enumerate(columns):
        rows[:, v] = values[v][chosen[:, place]]
    return rows


def _condition(element: Element, cell: str, column: int, count: int) -> Expression | None:
    """Condition of a cell on its column, a variable of that index; None for a star."""
    if cell == "*":
        return None
    own = variable(column)
    if (match := _COMPARISON.fullmatch(cell)) is not None:
        operator, number, other, sign, is_column, shift = match.groups()
        if number is not None:
            return call(_OPERATORS[operator or "="], own, constant(read_integer(element, number)))
        right = variable(int(other))
        if sign is not None:
            more = variable(int(shift)) if is_column else constant(read_integer(element, shift))
            right = call("add" if sign == "+" else "sub", right, more)
        if max(right.scope) >= count:
            raise element.error(f"found {cell[:40]!r}, expected columns from c0 to c{count - 1}")
        return call(_OPERATORS[operator or "="], own, right)
    inside = cell.removeprefix(_COMPLEMENT)
    is_set = inside.startswith("{") and inside.endswith("}")
    if not is_set and ".." not in inside:
        raise element.error(f"found the cell {cell[:40]!r}, expected a number, a star, a set, a range or a comparison")
    parts = [part for part in inside[1:-1].split(",") if part] if is_set else [inside]
    ranges = [read_range(element, part) for part in parts]
    within = [call("and", call("ge", own, constant(low)), call("le", own, constant(high))) for low, high in ranges]
    found = call("or", call("ne", own, own), *within)
    return found if inside == cell else call("not", found)
