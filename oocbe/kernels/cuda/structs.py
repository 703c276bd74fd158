"""Structs of the CUDA sources, filled by member name.

The source alone defines the members of a struct and their order; the host sets each value by name. All members are 8
bytes wide, or structs of such, so there is no padding and a struct is an array of uint64.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.modules import source_text

WIDE_TYPES = ("i64", "u64", "wide")
"""Types of members with 8 bytes, besides pointers."""


@cache
def members(source: str, struct: str) -> dict[str, str]:
    """C type of each member of a struct of ``source.cu``, by name and in order; a pointer's ends with a star.

    Raises TypeError: the source has no such struct, or a member is not 8 bytes wide.
    """
    found = re.search(rf"^struct {struct} \{{$(.*?)^\}};", source_text(source), flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise TypeError(f"{source}.cu has no struct {struct}")
    types: dict[str, str] = {}
    for declaration in re.sub(r"//.*", "", found[1]).split(";")[:-1]:
        match = re.fullmatch(r"\s*((?:const )?\w+) (.*)", declaration, flags=re.DOTALL)
        assert match is not None, declaration
        for declared in match[2].split(","):
            name = declared.strip()
            types[name.lstrip("*")] = f"{match[1]} *" if name.startswith("*") else match[1]
    for kind in types.values():
        if not kind.endswith("*") and kind not in WIDE_TYPES:
            words(source, kind)  # raises if it is no struct
    return types


@cache
def words(source: str, struct: str) -> int:
    """Size of a struct in numbers of 8 bytes."""
    kinds = members(source, struct).values()
    return sum(1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind) for kind in kinds)


class Struct:
    """A struct of ``source.cu`` with some members preset: each launch sets the others.

    Hundreds of launches of a bucket differ in a few members, so names are looked up and checked once.

    source, struct : its location. known : values of some members, by name, as for :func:`packed`.
    Raises TypeError: the struct has no such member.
    """

    def __init__(self, source: str, struct: str, /, **known: Any) -> None:
        places = _places(source, struct)
        if not known.keys() <= places.keys():
            raise TypeError(f"struct {struct} of {source}.cu has no {', '.join(sorted(known.keys() - places.keys()))}")
        self._name = f"struct {struct} of {source}.cu"
        self._words = [0] * words(source, struct)
        self._open = {name: place for name, place in places.items() if name not in known}
        for name, value in known.items():
            _set(self._words, places[name], value)

    def words(self, **values: Any) -> list[int]:
        """The struct's words, for an enclosing struct.

        values : of every member that is not preset, by name.

        Raises TypeError: the names differ from those of the members that are not preset.
        """
        if values.keys() != self._open.keys():
            wrong = ", ".join(sorted(self._open.keys() ^ values.keys()))
            raise TypeError(f"{self._name} and the values given for it differ in: {wrong}")
        found = self._words.copy()
        for name, value in values.items():
            if type(value) is int:
                found[self._open[name][0]] = value
            else:
                _set(found, self._open[name], value)
        return found

    def packed(self, **values: Any) -> NDArray[np.uint64]:
        """The struct as a kernel's argument, uint64 (words,); arguments and errors as of :meth:`words`."""
        return np.array(self.words(**values), dtype=np.uint64)


def place_of(source: str, struct: str, member: str) -> int:
    """Offset of a member in the result of :func:`packed`, in numbers of 8 bytes."""
    return _places(source, struct)[member][0]


def packed(source: str, struct: str, /, **values: Any) -> NDArray[np.uint64]:
    """A struct of ``source.cu`` as a kernel's argument, uint64 (:func:`words`,).

    values : of every member, by name: a Python integer, a NumPy scalar of 8 bytes, an address or a CuPy array for a
        pointer (None: the null pointer), or for a struct within it the list of its words.

    Raises TypeError: the names differ from those of the struct's members.
    """
    return Struct(source, struct).packed(**values)


def _set(found: list[int], place: tuple[int, int], value: Any) -> None:
    """Store a member's value at its place: first word and number of words."""
    first, count = place
    if isinstance(value, list):
        if len(value) != count:
            raise TypeError(f"a struct within a struct takes {count} words, not {len(value)}")
        found[first : first + count] = value
    else:
        found[first] = word(value)


def word(value: Any) -> int:
    """A member's value as a number: a Python integer, a NumPy scalar of 8 bytes, a CuPy array's address, or None."""
    if isinstance(value, int):
        return value
    if value is None:
        return 0
    if isinstance(value, np.generic):
        return int(value.view(np.uint64))
    return int(value.data.ptr)


@cache
def _places(source: str, struct: str) -> dict[str, tuple[int, int]]:
    """First word and number of words of each member of a struct, by name and in order."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, kind in members(source, struct).items():
        count = 1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind)
        places[name] = end, count
        end += count
    return places
