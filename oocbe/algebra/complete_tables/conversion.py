"""From one form of a table to another: rows, packed rows, complete, and each of them on disk.

In memory a table changes its form as a whole: :func:`in_memory` reads what is on disk or packed, :func:`rows_in_memory`
and :func:`complete_in_memory` give the requested form. Of any size it comes piece by piece, for whoever writes
or streams it: :func:`row_pieces` lists a complete table's feasible assignments, :func:`cell_pieces` writes rows out as
a complete table, and :func:`transposed` reorders its variables. The two changes themselves,
of what is at hand, are :meth:`oocbe.tables.complete.CompleteTable.to_table` and
:meth:`~oocbe.tables.complete.CompleteTable.from_table`, wherever the table is; packing and writing are
:meth:`oocbe.tables.packed.PackedTable.pack` and the ``save`` of stored tables.

In main memory, each piece of a reordered table (neighbouring cells in the new order) is copied from where its cells
lie. From disk it takes two passes: blocks of neighbouring cells are read, transposed in memory, and written one after
the other. Of such a block, a piece of the result needs one range of neighbours. So the second pass reads, for each
piece, one range of each block, and puts it where it belongs.

Tables of costs in fixed point, to which others are added in place, are what mini-buckets are made of. All costs are
between 0 and a *cap* that stands for "never": an assignment that a cell at the cap belongs to is infeasible, or not
below the threshold. What is at the cap stays there, so nothing overflows and nothing is undone. The first variable of a
scope changes slowest. Scopes are in one order for all tables that meet, such that variables eliminated first come
first: eliminating them reduces whole runs of neighbouring cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.algebra.complete_tables.complete_stream import CellRoom, CompleteCuts, Ranges, read_box, runs_of
from oocbe.execution.budget import MemoryPlan
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.sources import Buffers, Source, row_bytes
from oocbe.kernels.cpu.complete.capped_costs import add_capped, least_capped
from oocbe.kernels.cpu.complete.complete_copy import cells_of_rows, copy_function
from oocbe.kernels.interface import Backend, CompleteFunction, steps_of
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable, key_fields, rows_among
from oocbe.tables.layout import Layout
from oocbe.tables.numbers import check_feasible
from oocbe.tables.packed import PackedTable
from oocbe.tables.residence import to_host
from oocbe.tables.stored import AnyComplete, StoredCompleteTable, StoredTable
from oocbe.tables.table import Table

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
    return copy_function(CompleteFunction(values, tuple(steps[v] for v in order)), lengths)


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


AnyTable = Table | StoredTable | PackedTable | AnyComplete
"""Every form that a table has."""

COPIES, CELL_BYTES = 3, 24
"""Memory of a row that is written out: as read, sorted by cell, of the wanted dtype; its cell, and their order."""


def in_memory(table: AnyTable) -> Table | CompleteTable:
    """A table in memory, rows or complete as it is: itself, wherever its arrays are, or what is read or unpacked.

    Raises ResourceError: memory has no room for it; CorruptDataError: a chunk on disk is missing or damaged.
    """
    if isinstance(table, Table | CompleteTable):
        return table
    return table.to_complete() if isinstance(table, AnyComplete) else table.to_table()


def rows_in_memory(table: AnyTable, scope: Sequence[str] | None = None) -> Table:
    """A table of any form as rows in memory, on the device where it is there.

    scope : order of the variables of a complete table, the least significant first; None: the table's. Rows keep their
    order. Errors as for :func:`in_memory` and :meth:`CompleteTable.to_table`.
    """
    found = in_memory(table)
    return found.to_table(scope) if isinstance(found, CompleteTable) else found


def complete_in_memory(
    table: AnyTable, scope: Sequence[str] | None = None, dtype: DTypeLike | None = None
) -> CompleteTable:
    """A table of any form as a complete one in memory, on the device where it is there; rows on disk come by chunks.

    scope : order of the variables, the fastest first; None: the table's. dtype : of the values, for rows; None: as for
    :meth:`CompleteTable.from_table`. Errors as for it and for :func:`in_memory`.
    """
    if isinstance(table, StoredTable) and dtype is not None:
        table.refuse_duplicates()
        wanted = table.scope if scope is None else scope
        return CompleteTable.from_pieces(table.layout, table.chunks(), table.semiring, wanted, dtype)
    found = in_memory(table)
    if isinstance(found, Table):
        return CompleteTable.from_table(found, scope, dtype)
    return found if scope is None else found.transposed(scope)


def row_pieces(table: AnyComplete, scope: Sequence[str], nbytes: int, scratch: Scratch) -> Iterator[Table]:
    """A complete table's feasible assignments as sorted rows, piece by piece, without pieces that have none.

    scope : order of the variables, the least significant first. nbytes : memory to work in.
    scratch : as for :func:`oocbe.algebra.complete_tables.conversion.transposed`.
    Raises CorruptDataError: the table is on disk and damaged; DiskError: the disk is full.
    """
    layout, semiring, first = table.layout.select(scope), table.semiring, 0
    most = max(1, nbytes // (2 * tuning().cell_bytes))
    source = to_host(table) if isinstance(table, CompleteTable) else table
    for values in transposed(source, layout.scope, nbytes, scratch):
        for low in range(0, len(values), most):
            rows = rows_among(layout, values[low : low + most], first + low, semiring)
            if rows.rows:
                yield rows
        first += len(values)


def cell_pieces(
    source: Source, layout: Layout, dtype: np.dtype[Any], semiring: Semiring, space: MemoryPlan, kernels: Backend
) -> Generator[NDArray[Any], None, None]:
    """Values of the complete table that rows of any number stand for, a window of neighbouring cells after the other.

    The rows are partitioned by the variables of the complete table, the one that changes slowest first, so that they
    come in the order of its cells (:mod:`oocbe.execution.partition`); each then falls into the window at hand.

    layout : of the complete table, the same variables as the rows'. dtype : of its values. space : memory to work in.
    Raises ValueRangeError: a value that the dtype cannot hold; DiskError: the disk is full.
    """
    cost = COPIES * row_bytes(source.layout, source.dtype) + CELL_BYTES
    what = f"complete table over {layout.scope}"
    infeasible = infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    most = max(1, int(space.budget.limit * tuning().small_share) // dtype.itemsize)

    def empty(low: int) -> NDArray[Any]:
        return np.full(min(most, layout.complete_rows - low), infeasible, dtype=dtype)

    buffers, low = Buffers(), 0
    window = empty(low)
    for part in parts([JoinInput(source, layout.scope, layout.scope, cost)], space, kernels):
        table = buffers.load("rows", part.inputs[0].source)
        check_feasible(what, table.values, semiring, dtype)
        cells = cells_of_rows(table.keys, key_fields(table.layout, layout))  # partitioned rows have another layout
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], table.values[order].astype(dtype, copy=False)
        done = 0
        while done < len(cells):
            last = int(np.searchsorted(cells, low + len(window)))
            window[cells[done:last] - low] = values[done:last]
            done = last
            if done < len(cells):
                yield window
                low += len(window)
                window = empty(low)
    while low < layout.complete_rows:
        yield window
        low += len(window)
        window = empty(low)


@dataclass(frozen=True)
class CompleteCosts:
    """Costs of all assignments of ``scope``, the slowest first: ``values`` int32 or int64 (cells,), 0 to the cap."""

    scope: tuple[int, ...]
    values: NDArray[Any]

    def at(self, assignment: Mapping[int, int | NDArray[np.int64]], sizes: Sequence[int]) -> Any:
        """The cost of an assignment of the scope, or costs of as many as an array has values of a variable."""
        place: int | NDArray[np.int64] = 0
        for v in self.scope:
            place = place * sizes[v] + assignment[v]
        return self.values[place]


def zeros(scope: Sequence[int], sizes: Sequence[int], dtype: np.dtype[Any]) -> CompleteCosts:
    """A table that costs nothing."""
    return CompleteCosts(tuple(scope), np.zeros(math.prod(sizes[v] for v in scope), dtype=dtype))


def add(target: CompleteCosts, part: CompleteCosts, sizes: Sequence[int], cap: int, limit: int | None = None) -> None:
    """Add a table to another one whose scope contains its own, in place.

    part : in -``cap`` to ``cap``, such that no sum is negative.
    limit : cells from there on are at the cap afterwards; None: the cap.
    Raises TimeLimitError: the deadline of the block that this runs in came; some cells have their sums by then.
    """
    axes = _axes(target.scope, part.scope, sizes)
    add_capped(target.values, part.values, axes, cap, cap if limit is None else limit)


def least(table: CompleteCosts, scope: Sequence[int], sizes: Sequence[int], cap: int) -> CompleteCosts:
    """The least cost of each assignment of ``scope``, in the table's own order; errors as for :func:`add`."""
    cells = math.prod(sizes[v] for v in scope)
    return CompleteCosts(tuple(scope), least_capped(table.values, _axes(table.scope, scope, sizes), cells, cap))


def _axes(large: Sequence[int], small: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Size of each of a table's axes, the fastest first, and how far apart another one's cells are along it."""
    steps = dict.fromkeys(large, 0)
    step = 1
    for v in reversed(small):
        steps[v] = step
        step *= sizes[v]
    return [(sizes[v], steps[v]) for v in reversed(large)]
