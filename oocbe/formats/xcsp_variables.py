"""Variables of XCSP3 files, arrays of them, the short ways to list many, and tuples over them.

A domain is integers and ranges, such as ``0 1 5..9``; ``x[2][]`` and ``x[0..3][1]`` name several cells of an array,
the last index first. Cells without a domain are no variables, and lists pass over them.

Tuples of the constraint ``extension`` are parsed once for all instances of a group, in bulk where they are numbers:
``(1,2,*)(3..5,0,1)``. A star stands for every value, a range for several rows. A constraint over one variable lists
values and ranges instead.

Hybrid tables (``type="hybrid-1"`` and ``"hybrid-2"``) have conditions as cells, and are written out.

A cell is an integer, a star, a set ``{1,3}``, a range ``1..3``, the complement of either (``∁{1,3}``), or a comparison
(``≠2``, ``≥c0``, ``c1+2``) with a number or with another column of the same row. Columns are counted from 0; a cell
without an operator is an equality.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, amount
from oocbe.formats.text import Text
from oocbe.formats.xcsp_expressions import Expression, Integers, bounds_of, call, constant, evaluate, variable
from oocbe.formats.xml import Element
from oocbe.model.compact_problem import ANY
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Variable
from oocbe.model.row_numbers import MOST_AXES, distinct_values
from oocbe.runtime.deadline import check_deadline

LARGEST_DOMAIN = 2**22
"""Values of a variable at most: each has a label, and a range of a few characters stands for many."""

MOST_VALUES = 2**22
"""Values of all different domains together at most: each has a label."""

MOST_VARIABLES = 2**22
"""Cells of all arrays, and single variables, at most."""

MOST_LISTED = 2**22
"""Variables that all lists of a file name together at most: a few characters name a whole array."""

_REFERENCE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\[[0-9]*(?:\.\.[0-9]+)?\])*)")
_INDEX = re.compile(r"\[([0-9]*)(?:\.\.([0-9]+))?\]")
_SIZES = re.compile(r"(?:\[[0-9]+\])+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_RANGE = re.compile(r"([+-]?[0-9]{1,19})\.\.([+-]?[0-9]{1,19})")


@dataclass(eq=False)
class Domain:
    """Values of a variable: int64, ascending; and what they are called."""

    values: NDArray[np.int64]
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Domain:
        """The domain of some values, at least one, ascending."""
        is_plain = values[0] == 0 and values[-1] == len(values) - 1
        return cls(values, None if is_plain else tuple(map(str, values.tolist())))


@dataclass(eq=False)
class _Array:
    """An array: its sizes, where its indices start, and the variable of each cell, or -1."""

    sizes: tuple[int, ...]
    first: int
    cells: NDArray[np.int64]


@dataclass(eq=False)
class Variables:
    """All variables of a file, in its order."""

    variables: list[Variable] = field(default_factory=list)
    domains: list[Domain] = field(default_factory=list)
    _named: dict[str, int] = field(default_factory=dict)
    _arrays: dict[str, _Array] = field(default_factory=dict)
    _known: dict[bytes, Domain] = field(default_factory=dict)
    _values: int = 0
    _cells: int = 0
    _listed: int = 0

    def read(self, section: Element) -> None:
        """Add all variables of the section ``<variables>``."""
        for element in section.children:
            name = element.attributes.get("id", "")
            if not _REFERENCE.fullmatch(name) or "[" in name:
                raise element.error(f"found the name {name!r}, expected a letter, then letters, digits and _")
            if name in self._named or name in self._arrays:
                raise element.error(f"found the variable {name} a second time, expected different names")
            if element.attributes.get("type", "integer") != "integer":
                raise element.unsupported(f"a variable of type {element.attributes['type']}")
            if element.tag == "var":
                self._count(element, 1)
                self.add(name, self._domain(element))
            elif element.tag == "array":
                self._add_array(element, name)
            else:
                raise element.error(f"found <{element.tag}>, expected <var> or <array>")

    def add(self, name: str, domain: Domain) -> int:
        """Add a variable; its index. No word of the file means one whose name has a dot, as no name there has."""
        self.variables.append(Variable(name, len(domain.values), domain.labels))
        self.domains.append(domain)
        if "." not in name:
            self._named[name] = len(self.variables) - 1
        return len(self.variables) - 1

    def _count(self, element: Element, cells: int) -> None:
        self._cells += cells
        if self._cells > MOST_VARIABLES:
            raise element.unsupported(f"{self._cells:,} variables up to here, more than {MOST_VARIABLES:,},")

    def _add_array(self, element: Element, name: str) -> None:
        origin = self._arrays.get(element.attributes.get("as", ""))
        text = element.attributes.get("size", "")
        if origin is not None and not text:
            sizes = origin.sizes
        elif _SIZES.fullmatch(text) and len(text) <= 200:
            sizes = tuple(int(size) for size in re.findall(r"[0-9]+", text))
        else:
            if "as" in element.attributes:
                self._domain(element)  # raises where nothing has this name
            raise element.error(f"found the size {text[:40]!r}, expected such as [3][4]")
        if len(sizes) > MOST_AXES:
            raise element.error(f"found an array of {len(sizes)} dimensions; at most {MOST_AXES} are supported")
        self._count(element, math.prod(sizes))
        start = element.attributes.get("startIndex", "0" if origin is None or text else str(origin.first))
        if not re.fullmatch(r"[0-9]{1,9}", start):
            raise element.error(f"found the startIndex {start[:40]!r}, expected an integer of at least 0")
        array = _Array(sizes, int(start), np.full(sizes, -1, dtype=np.int64))
        self._arrays[name] = array
        owners: dict[tuple[int, ...], Domain] = {}
        cells = list(itertools.product(*(range(size) for size in sizes)))
        if origin is not None and origin.sizes == sizes:
            owners = {cell: self.domains[origin.cells[cell]] for cell in cells if origin.cells[cell] >= 0}
        elif not element.children:
            domain = self._domain(element)
            owners = dict.fromkeys(cells, domain)
        for child in element.children:
            if child.tag != "domain" or "for" not in child.attributes:
                raise child.error(f'found <{child.tag}>, expected <domain for="…">')
            domain = self._domain(child)
            wanted = child.attributes["for"].split()
            if wanted == ["others"]:
                owners = dict.fromkeys(cells, domain) | owners
                continue
            for word in wanted:
                found, boxes = self._boxes(child, word)
                if found is not array:
                    raise child.error(f"found {word[:40]!r}, expected cells of the array {name}")
                for cell in itertools.product(*boxes):
                    if cell in owners:
                        raise child.error(f"found a second domain of {_cell_name(name, array, cell)}, expected one")
                    owners[cell] = domain
        for cell in cells:
            if cell in owners:
                array.cells[cell] = self.add(_cell_name(name, array, cell), owners[cell])

    def _domain(self, element: Element) -> Domain:
        if "as" in element.attributes:
            return self._domain_of(element, element.attributes["as"])
        text = element.text.strip()
        if text not in self._known:
            self._known[text] = self._read_domain(element, text)
        return self._known[text]

    def _domain_of(self, element: Element, same: str) -> Domain:
        if same in self._named:
            return self.domains[self._named[same]]
        cells = self._arrays[same].cells.ravel().tolist() if same in self._arrays else [-1]
        found = {self.domains[v] for v in cells if v >= 0}
        if len(found) != 1 or min(cells) < 0:
            raise element.error(
                f"found as={same[:40]!r}, expected the name of a variable, or of an array with one domain, before it"
            )
        return found.pop()

    def _read_domain(self, element: Element, text: bytes) -> Domain:
        ranges = [read_range(element, word.decode("utf-8", "replace")) for word in text.split()]
        size = sum(high - low + 1 for low, high in ranges)
        self._values += size
        if not 1 <= size <= LARGEST_DOMAIN:
            raise element.error(f"found a domain of {size:,} values, expected between 1 and {LARGEST_DOMAIN:,}")
        if self._values > MOST_VALUES:
            raise element.unsupported(f"domains of {self._values:,} values up to here, more than {MOST_VALUES:,},")
        values = distinct_values(np.concatenate([np.arange(low, high + 1, dtype=np.int64) for low, high in ranges]))
        if len(values) != size:
            raise element.error("found a value of a domain twice, expected different ones")
        return Domain.of(values)

    def of(self, element: Element, word: str) -> Sequence[int]:
        """Variables that a word names, in the order of the cells."""
        single = self._named.get(word)  # of a cell, too, which is most of what files name
        if single is not None:
            return (single,)
        array, boxes = self._boxes(element, word)
        self._count_listed(element, boxes)
        found = array.cells[np.ix_(*boxes)].ravel()
        result: list[int] = found[found >= 0].tolist()
        if not result:
            raise element.error(f"found {word[:40]!r}, expected a cell that has a domain")
        return result

    def rows_of(self, element: Element, word: str) -> list[list[int]]:
        """Variables of a part of an array with two dimensions, or more that have one index each, row by row."""
        array, boxes = self._boxes(element, word)
        lengths = [len(box) for box in boxes if len(box) > 1][-2:]
        self._count_listed(element, boxes)
        found = array.cells[np.ix_(*boxes)].reshape(-1, len(boxes[-1]))
        if (found < 0).any() or len(boxes) < 2 or math.prod(lengths) < found.size:
            raise element.error(f"found {word[:40]!r}, expected a matrix all of whose cells have domains")
        rows: list[list[int]] = found.tolist()
        return rows

    def _count_listed(self, element: Element, boxes: Sequence[range]) -> None:
        self._listed += math.prod(map(len, boxes))
        if self._listed > MOST_LISTED:
            raise element.unsupported(f"lists of {self._listed:,} variables up to here, more than {MOST_LISTED:,},")

    def _boxes(self, element: Element, word: str) -> tuple[_Array, list[range]]:
        """The array that a word names, and the indices of each dimension, counted from 0."""
        match = _REFERENCE.fullmatch(word)
        array = self._arrays.get(match[1]) if match is not None and match[2] else None
        if match is None or array is None:
            raise element.error(f"found {word[:40]!r}, expected a variable")
        given = _INDEX.findall(match[2])
        if len(given) != len(array.sizes):
            raise element.error(f"found {word[:40]!r}, expected {len(array.sizes)} indices")
        boxes = []
        for (low, high), size in zip(given, array.sizes, strict=True):
            first = int(low) - array.first if low else 0
            last = int(high) - array.first if high else (first if low else size - 1)
            if not 0 <= first <= last < size or (high and not low):
                raise element.error(
                    f"found {word[:40]!r}, expected indices from {array.first} to {array.first + size - 1}"
                )
            boxes.append(range(first, last + 1))
        return array, boxes


def read_range(element: Element, word: str) -> tuple[int, int]:
    """First and last integer of a word such as ``7`` or ``3..8``; FormatError where it is none."""
    match = _RANGE.fullmatch(word)
    low, high = (match[1], match[2]) if match is not None else (word, word)
    if not (_INTEGER.fullmatch(low) and INT64.min < int(low) <= int(high) <= INT64.max):
        raise element.error(f"found {word[:40]!r}, expected an integer of 64 bits or a range such as 3..8")
    return int(low), int(high)


def read_integer(element: Element, word: str) -> int:
    """An integer of 64 bits; FormatError where it is none."""
    if not (_INTEGER.fullmatch(word) and INT64.min < int(word) <= INT64.max):
        raise element.error(f"found {word[:40]!r}, expected an integer of 64 bits")
    return int(word)


def _cell_name(name: str, array: _Array, cell: tuple[int, ...]) -> str:
    return name + "".join(f"[{array.first + index}]" for index in cell)


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
        total += math.prod(high - low + 1 for low, high in ranges)
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
    size = math.prod(map(len, values.values()))
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
