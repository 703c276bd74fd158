"""Move plans: the moves of bit fields from one key layout to another.

A plan is an int64 array (moves, 5), one row per move: source word, source shift, bits, destination word, destination
shift. Fields adjacent in both layouts form one move, so that most plans have one to three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.tables.layout import Layout

BitRange = tuple[int, int, int]
"""Word, shift and number of some bits of a key; a :class:`~oocbe.tables.layout.Field` is one."""


def move_plan(source: Layout, destination: Layout, names: Sequence[str] | None = None) -> NDArray[np.int64]:
    """Plan that moves the fields of ``names`` from one layout to another.

    Parameters
    ----------
    source, destination : the layouts; both contain every name.
    names : variables to move; None: those of both layouts.

    Returns
    -------
    int64 (moves, 5): source word, source shift, bits, destination word, destination shift, ascending in the source.

    Raises
    ------
    ModelError : a variable is missing in a layout or has different sizes in the two.
    """
    moves = _moves(source, destination, None if names is None else tuple(names))
    return np.array(moves, dtype=np.int64).reshape(-1, 5)


@lru_cache(maxsize=1024)
def _moves(source: Layout, destination: Layout, names: tuple[str, ...] | None) -> tuple[tuple[int, ...], ...]:
    """The plan; cached, because the pieces of a streamed table request the same one repeatedly."""
    wanted = set(source.scope) & set(destination.scope) if names is None else set(names)
    moves: list[list[int]] = []
    for name in sorted(wanted, key=source.place):
        if source.sizes[source.place(name)] != destination.sizes[destination.place(name)]:
            raise ModelError(f"variable {name} has different domain sizes in two layouts")
        here, there = source.field(name), destination.field(name)
        if moves:
            word, shift, bits, to_word, to_shift = moves[-1]
            next_places = (word, shift + bits, to_word, to_shift + bits)
            if next_places == (here.word, here.shift, there.word, there.shift):
                moves[-1][2] += here.bits
                continue
        moves.append([here.word, here.shift, here.bits, there.word, there.shift])
    return tuple(map(tuple, moves))


def field_masks(layout: Layout, names: Sequence[str]) -> NDArray[np.uint64]:
    """Mask of the bits of the given variables: uint64 (words of the layout,)."""
    return range_masks(layout.words, map(layout.field, names))


def range_masks(words: int, ranges: Iterable[BitRange]) -> NDArray[np.uint64]:
    """Ones at the bits of some ranges, uint64 (words,)."""
    masks = [0] * words
    for word, shift, bits in ranges:
        masks[word] |= ((1 << bits) - 1) << shift
    return np.array(masks, dtype=np.uint64)


def merged_ranges(ranges: Iterable[BitRange]) -> list[BitRange]:
    """Bit ranges in their order; those that follow one another upwards in one word are merged."""
    merged: list[BitRange] = []
    for word, shift, bits in ranges:
        if merged and merged[-1][0] == word and merged[-1][1] + merged[-1][2] == shift:
            merged[-1] = (word, merged[-1][1], merged[-1][2] + bits)
        else:
            merged.append((word, shift, bits))
    return merged
