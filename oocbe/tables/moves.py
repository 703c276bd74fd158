"""Move plans: the moves of bit fields from one key layout to another.

A plan is an int64 array (moves, 5), one row per move: source word, source shift, bits, destination word, destination
shift. Fields adjacent in both layouts form one move, so that most plans have one to three.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.tables.layout import WORD_BITS, Layout


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
    masks = [0] * layout.words
    for name in names:
        f = layout.field(name)
        masks[f.word] |= f.mask << f.shift
    return np.array(masks, dtype=np.uint64)


def bit_ranges(layout: Layout, names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Bits of the given variables as (word, shift, bits), neighbours merged, the least significant first."""
    ranges: list[tuple[int, int, int]] = []
    for name in sorted(names, key=layout.place):
        f = layout.field(name)
        if ranges and ranges[-1][0] == f.word and ranges[-1][1] + ranges[-1][2] == f.shift:
            ranges[-1] = (f.word, ranges[-1][1], ranges[-1][2] + f.bits)
        else:
            ranges.append((f.word, f.shift, f.bits))
    assert all(shift + bits <= WORD_BITS for _, shift, bits in ranges)
    return ranges
