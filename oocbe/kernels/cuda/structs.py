"""Structs of the CUDA sources, filled by the names of their members.

The source alone says which members a struct has and in which order; the host gives each a value by name. All members
are 8 bytes wide, or structs of such, so there is no padding and a struct is an array of uint64.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.modules import source_text

WIDE_TYPES = ("i64", "u64", "wide")
"""Types of 8 bytes that members may have, besides pointers."""

POINTER, NUMBER, STRUCT = range(3)
"""What a member of a struct may be."""


@cache
def members(source: str, struct: str) -> dict[str, str]:
    """C type of each member of a struct of ``source.cu``, by name and in order; a pointer's ends with a star.

    Raises
    ------
    TypeError : the source has no such struct, or a member is not 8 bytes wide.
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
            words(source, kind)  # raises where that is no struct
    return types


@cache
def words(source: str, struct: str) -> int:
    """Numbers of 8 bytes that a struct takes."""
    kinds = members(source, struct).values()
    return sum(1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind) for kind in kinds)


def place_of(source: str, struct: str, member: str) -> int:
    """Where a member of a struct is in what :func:`packed` makes: numbers of 8 bytes before it."""
    kinds = members(source, struct)
    before = list(kinds.values())[: list(kinds).index(member)]
    return sum(1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind) for kind in before)


def packed(source: str, struct: str, /, **values: Any) -> NDArray[np.uint64]:
    """A struct of ``source.cu`` as a kernel's argument, uint64 (:func:`words`,).

    values : of every member, by name: a Python integer, a NumPy scalar of 8 bytes, an address or a CuPy array for a
        pointer (None: the null pointer), or for a struct what this function made of it.

    Raises
    ------
    TypeError : the struct has other members than these.
    """
    fields = _fields(source, struct)
    if fields.keys() != values.keys():
        wrong = ", ".join(sorted(fields.keys() ^ values.keys()))
        raise TypeError(f"struct {struct} of {source}.cu and the values given for it differ in: {wrong}")
    flat: list[int] = []
    for name, width in fields.items():
        value = values[name]
        if isinstance(value, int):
            flat.append(value)
        elif width == POINTER:
            flat.append(0 if value is None else int(value.data.ptr))
        elif width == NUMBER:
            flat.append(int(value.view(np.uint64)))
        else:
            flat.extend(value.tolist())
    if len(flat) != words(source, struct):
        raise TypeError(f"struct {struct} of {source}.cu takes {words(source, struct)} numbers, not {len(flat)}")
    return np.array(flat, dtype=np.uint64)


@cache
def _fields(source: str, struct: str) -> dict[str, int]:
    """What each member of a struct is, by name and in order: looked at for every launch, so it is worked out once."""
    return {
        name: POINTER if kind.endswith("*") else NUMBER if kind in WIDE_TYPES else STRUCT
        for name, kind in members(source, struct).items()
    }
