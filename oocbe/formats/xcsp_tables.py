"""Tuples of XCSP3's constraint ``extension``: parsed once for all instances of a group, in bulk where they are numbers.

``(1,2,*)(3..5,0,1)``: a star stands for every value, a range for several rows. A constraint over one variable lists
values and ranges instead.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError
from oocbe.formats.text import Text
from oocbe.formats.xcsp_variables import LARGEST_DOMAIN, Domain, read_range
from oocbe.formats.xml import Element
from oocbe.model.compact_problem import ANY
from oocbe.runtime.deadline import check_deadline

STAR = np.iinfo(np.int64).min
"""What a star is read as: an integer that no domain has."""

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
        line = element.file.line_of(element.start) + (error.line or 1) - 1
        raise FormatError(error.path, line, str(error).partition(": ")[2]) from None


def _brackets_alternate(text: bytes, arity: int) -> bool:
    """Whether marks come as one opening bracket, arity - 1 commas and one closing bracket, again and again."""
    codes = np.frombuffer(text, dtype=np.uint8)
    marks = codes[(codes == ord("(")) | (codes == ord(")")) | (codes == ord(","))]
    expected = np.frombuffer(b"(" + b"," * (arity - 1) + b")", dtype=np.uint8)
    return len(marks) % len(expected) == 0 and bool((marks.reshape(-1, len(expected)) == expected).all())


def _tuple_error(element: Element, text: bytes, arity: int) -> FormatError:
    """What is wrong with the first tuple that is no tuple."""
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
