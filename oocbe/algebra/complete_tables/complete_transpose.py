"""The variables of a complete table of any size in another order.

In main memory, each piece of the result (neighbouring cells in the new order) is copied from where its cells lie. From
disk it takes two passes: blocks of neighbouring cells are read, transposed in memory, and written one after the other.
Of such a block, a piece of the result needs one range of neighbours. So the second pass reads, for each piece, one
range of each block, and puts it where it belongs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_cuts import CellRoom, CompleteCuts, Ranges
from oocbe.algebra.complete_tables.complete_stream import read_box, runs_of
from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.interface import CompleteFunction, steps_of
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.stored_complete import AnyComplete, StoredCompleteTable

Values = NDArray[np.generic]
Scratch = Callable[[Iterable[Values]], AbstractContextManager[StoredCompleteTable]]
"""Writes values and gives them as a table on disk; they are removed when the block ends."""


def transposed(
    source: AnyComplete, scope: Sequence[str], nbytes: int, scratch: Scratch, most: int | None = None
) -> Generator[Values, None, None]:
    """Values of a complete table in another order of its variables, piece by piece; not to be written to.

    A table in main memory is read where it is, without scratch, and so is one that has the order already.

    scope : order of the variables, the one that is to change fastest first.
    nbytes : memory to work in. most : cells of a piece; None: as many as fit.
    Raises CorruptDataError: the source is on disk and damaged; DiskError: the disk is full.
    """
    itemsize = source.dtype.itemsize
    room = CellRoom(nbytes // tuning().piece_copies // itemsize * itemsize, most)
    if tuple(scope) == source.scope:
        step = max(1, nbytes // (tuning().piece_copies * itemsize))
        yield from (source.window(low, min(low + step, source.cells)) for low in range(0, source.cells, step))
        return
    sizes, order = source.layout.sizes, tuple(source.layout.place(name) for name in scope)
    fits = source.cells * itemsize <= room.piece_bytes and (most is None or source.cells <= most)
    if fits or isinstance(source, CompleteTable):
        pieces: Iterable[Ranges] = [{}] if fits else _cuts(order, sizes, itemsize, room).ranges()
        yield from (_transposed_block(source, order, piece) for piece in pieces)
        return
    blocks = list(_cuts(tuple(range(len(sizes))), sizes, itemsize, room).ranges())
    with scratch(_transposed_block(source, order, block) for block in blocks) as between:
        for piece in _cuts(order, sizes, itemsize, room).ranges():
            yield _assembled(between, sizes, order, blocks, piece)


def _cuts(axes: tuple[int, ...], sizes: Sequence[int], itemsize: int, room: CellRoom) -> CompleteCuts:
    """Cells in the order of some axes, cut into pieces of the room's size: nothing is read or joined besides."""
    cells = max(1, room.piece_bytes // itemsize)
    cells = cells if room.piece_cells is None else min(cells, room.piece_cells)
    generous = CellRoom(16 * (room.piece_bytes + itemsize), cells)
    return CompleteCuts(axes, (), (), dict(enumerate(sizes)), itemsize, generous)


def _transposed_block(source: AnyComplete, order: Sequence[int], block: Ranges) -> Values:
    """Cells of a box in another order of the variables; one copy of what is in main memory."""
    box = tuple(block.get(v, (0, size)) for v, size in enumerate(source.layout.sizes))
    widths = [high - low for low, high in box]
    lengths = [widths[v] for v in order]
    if isinstance(source, CompleteTable):
        steps = source.steps
        values = source.values[sum(low * step for (low, _), step in zip(box, steps, strict=True)) :]
    else:
        values, steps = read_box(source, source.layout.sizes, box), steps_of(widths)
        if tuple(steps[v] for v in order) == steps_of(lengths):
            return values
    made: Values = copy_function(CompleteFunction(values, tuple(steps[v] for v in order)), lengths)
    return made


def _assembled(
    between: StoredCompleteTable, sizes: Sequence[int], order: Sequence[int], blocks: Sequence[Ranges], piece: Ranges
) -> Values:
    """A piece of the result, from one range of each block that has cells of it."""
    box = [piece.get(v, (0, sizes[v])) for v in order]
    out = np.empty(math.prod(high - low for low, high in box), dtype=between.dtype)
    offset = 0
    for block in blocks:
        mine = [block.get(v, (0, sizes[v])) for v in order]
        offset += math.prod(high - low for low, high in mine)
        met = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, mine, strict=True)]
        if any(low >= high for low, high in met):
            continue
        cells = math.prod(high - low for low, high in mine)
        inside = tuple((low - first, high - first) for (low, high), (first, _) in zip(met, mine, strict=True))
        starts, length = runs_of([high - low for low, high in mine], inside)
        values = np.empty(len(starts) * length, dtype=between.dtype)
        for number, start in enumerate(starts.tolist()):
            between.read_into(offset - cells + start, values[number * length : (number + 1) * length])
        shape, place = zip(*(list(_merged(box, met)) or [(1, slice(None))]), strict=True)
        view = out.reshape(shape[::-1])[place[::-1]]
        view[...] = values.reshape(view.shape)
    return out


def _merged(box: Sequence[tuple[int, int]], met: Sequence[tuple[int, int]]) -> Iterator[tuple[int, slice]]:
    """Axes of a piece, and what of each another box has; neighbouring axes that it has all of are one."""
    run = 1
    for (first, last), (low, high) in zip(box, met, strict=True):
        if (first, last) == (low, high):
            run *= last - first
            continue
        if run > 1:
            yield run, slice(None)
            run = 1
        yield last - first, slice(low - first, high - first)
    if run > 1:
        yield run, slice(None)
