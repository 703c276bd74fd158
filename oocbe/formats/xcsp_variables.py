"""Variables of XCSP3 files: their domains, arrays of them, and the short ways to list many.

A domain is integers and ranges, such as ``0 1 5..9``; ``x[2][]`` and ``x[0..3][1]`` name several cells of an array,
the last index first. Cells without a domain are no variables, and lists pass over them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xml import Element
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Variable
from oocbe.model.row_numbers import MOST_AXES

LARGEST_DOMAIN = 2**22
"""Values of a variable at most."""

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
        values = np.unique(np.concatenate([np.arange(low, high + 1, dtype=np.int64) for low, high in ranges]))
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
