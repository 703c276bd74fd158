"""Semi-join: the rows of one table that another one has a row for (Bernstein and Chiu 1981).

It is what a join keeps of one of its tables, without the joined rows. Only the other table's values of the shared
variables are held in memory, each once. A stored table is read chunk by chunk, and a chunk is skipped, unread, where
its first and last key show that nothing of the other table lies between: its slowest variables are shared ones then.

A filter by a hard constraint given as forbidden tuples: :func:`drop_forbidden`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.algebra.complete_tables.conversion import AnyTable, rows_in_memory
from oocbe.algebra.inputs import TableLike, check_form, choose_kernels
from oocbe.kernels import backend_named
from oocbe.kernels.cpu.pairs.sort import find_rows
from oocbe.kernels.interface import Backend
from oocbe.model.row_numbers import first_not_below, key_number
from oocbe.runtime.deadline import looked
from oocbe.runtime.tracing.recorder import phase
from oocbe.tables.columns import RADIX_ROWS, check_values, in_order
from oocbe.tables.layout import Layout, field_masks, move_plan
from oocbe.tables.residence import to_host
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


def semi_join(
    table: AnyTable, other: AnyTable, *, output: str | Path | None = None, overwrite: bool = False
) -> Table | StoredTable:
    """Rows of a table whose values of the shared variables some row of another table has, in their order.

    Parameters
    ----------
    table, other : in memory or stored, incomplete or complete; a complete one is read into memory as its feasible
        rows, a packed one unpacked. Of any semirings, as the other one's values do not count. Without shared
        variables all rows stay, or none where the other table has none.
    output : path of a stored table for the rows, made chunk by chunk; None: they are returned in memory.
    overwrite : whether the output takes the place of a stored table of its name, in the moment that it is complete.

    Raises
    ------
    ModelError : a shared variable has different domain sizes. UsageError : the output exists. CorruptDataError : a
        stored table is damaged. ResourceError : memory has no room for a complete table's rows. DiskError : the disk
        is full. TimeLimitError : at the deadline.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"y": 2, "z": 2}, [[1, 0], [1, 1]], [10, 20])
    >>> semi_join(f, g).to_dict()
    {(1, 1): 3}
    """
    table, other = _by_rows(table), _by_rows(other)
    if isinstance(table, StoredTable):
        table.refuse_duplicates()
    shared = tuple(name for name in table.layout.scope if name in other.layout)
    part = Layout(shared, tuple(table.layout.sizes[table.layout.place(name)] for name in shared))
    move_plan(other.layout, part, shared)  # refuses what does not fit before any row is read
    pieces = _kept(table, _Rows.of(other, part), part)
    dtype, semiring = np.dtype(table.dtype), table.semiring
    if output is not None:
        return StoredTable.save_pieces(output, table.layout, dtype, semiring, pieces, overwrite=overwrite)
    found = list(pieces)
    keys = [np.zeros((table.layout.words, 0), dtype=np.uint64), *(piece.keys for piece in found)]
    values = [np.zeros(0, dtype=dtype), *(piece.values for piece in found)]
    return Table(table.layout, np.concatenate(keys, axis=1), np.concatenate(values), semiring, table.is_sorted)


def _by_rows(table: AnyTable) -> Table | StoredTable:
    check_form(table)
    return table if isinstance(table, Table | StoredTable) else rows_in_memory(table)


@dataclass(frozen=True)
class _Rows:
    """Different rows of a layout: ``keys`` uint64 (words, rows), ascending."""

    layout: Layout
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, table: Table | StoredTable, part: Layout) -> _Rows:
        """A table's values of some variables."""
        waiting: list[NDArray[np.uint64]] = [np.zeros((part.words, 0), dtype=np.uint64)]
        for piece in looked(_pieces(table)):
            waiting.append(_projected(piece.keys, table.layout, part))
            # A merge for each piece would sort all rows before it again.
            if sum(keys.shape[1] for keys in waiting[1:]) >= waiting[0].shape[1]:
                waiting = [_different(waiting, part)]
        return cls(part, waiting[0] if len(waiting) == 1 else _different(waiting, part))

    def slowest(self, count: int) -> _Rows:
        """The values of the last so many variables, which change slowest."""
        first = len(self.layout.scope) - count
        top = Layout(self.layout.scope[first:], self.layout.sizes[first:])
        return _Rows(top, _different([_projected(self.keys, self.layout, top)], top))

    def among(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of some keys uint64 (words, rows) are here."""
        rows = np.arange(keys.shape[1])
        # Keys that are looked up in ascending order read adjacent rows: without order, each look-up leaves the caches.
        if min(keys.shape[1], self.keys.shape[1]) >= RADIX_ROWS:
            keys, rows = in_order(keys, rows, self.layout)
        found = np.empty(len(rows), dtype=np.int64)
        find_rows(self.keys, keys, found)
        is_here = np.empty(len(rows), dtype=np.bool_)
        is_here[rows] = found >= 0
        return is_here

    def is_between(self, edges: NDArray[np.uint64]) -> bool:
        """Whether some row lies between two keys uint64 (words, 2), both included."""
        rows = self.keys.shape[1]
        first = first_not_below(self.keys, key_number(edges, 0), 0, rows)
        return first < rows and key_number(self.keys, first) <= key_number(edges, 1)


def _different(pieces: list[NDArray[np.uint64]], layout: Layout) -> NDArray[np.uint64]:
    """Keys uint64 (words, rows) of some pieces, ascending, each once."""
    keys = np.concatenate(pieces, axis=1)
    keys, _ = in_order(keys, np.zeros(keys.shape[1], dtype=np.int32), layout)
    starts = backend_named("cpu").group_starts(keys, field_masks(layout, layout.scope))
    return np.take(keys, starts[:-1], axis=1)


def _kept(table: Table | StoredTable, rows: _Rows, part: Layout) -> Iterator[Table]:
    """The rows of a table that others have the shared values of, a chunk at a time."""
    if not rows.keys.shape[1]:
        return
    for chunk in looked(_pieces(table) if isinstance(table, Table) else _chunks_near(table, rows)):
        keep = rows.among(_projected(chunk.keys, table.layout, part))
        if keep.all():
            yield chunk
        elif keep.any():
            yield replace(chunk, keys=np.ascontiguousarray(chunk.keys[:, keep]), values=chunk.values[keep])


def _chunks_near(table: StoredTable, rows: _Rows) -> Iterator[Table]:
    """The chunks of a stored table that may have such rows, by their first and last keys."""
    slowest = sum(1 for _ in takewhile(rows.layout.__contains__, reversed(table.layout.scope)))
    top = rows.slowest(slowest) if table.is_sorted and slowest else None
    skipped = 0
    with phase("semi-join") as timed:
        for chunk in range(table.chunk_count):
            if top is None or top.is_between(_edges(table, chunk, top.layout)):
                yield table.read(table.chunk_start(chunk), table.chunk_start(chunk + 1))
            else:
                skipped += 1
        timed.note(chunks=table.chunk_count, chunks_skipped=skipped)


def _edges(table: StoredTable, chunk: int, top: Layout) -> NDArray[np.uint64]:
    """The slowest variables' values in a chunk's first and last row, as keys of theirs uint64 (words, 2)."""
    numbers, words = table.chunk_keys(chunk), table.layout.words
    keys = np.array([[number >> 64 * word & (1 << 64) - 1 for number in numbers] for word in range(words)], np.uint64)
    return _projected(keys, table.layout, top)


def _pieces(table: Table | StoredTable) -> Iterator[Table]:
    return iter([to_host(table)]) if isinstance(table, Table) else table.chunks()


def _projected(keys: NDArray[np.uint64], layout: Layout, part: Layout) -> NDArray[np.uint64]:
    """The values of some variables in keys of a layout, as keys of theirs."""
    return backend_named("cpu").permute(keys, move_plan(layout, part, part.scope), part.words)


def drop_forbidden(
    table: TableLike,
    scope: Mapping[str, int],
    tuples: ArrayLike,
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
) -> Table:
    """Rows of a table that contain none of the forbidden tuples, in their order.

    Parameters
    ----------
    table : in memory or stored.
    scope : the constraint's variables and domain sizes, all of them in the table's scope.
    tuples : integers (tuples, len(scope)), columns in the constraint's scope order.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.

    Raises
    ------
    ModelError : a variable outside the table's scope or with another domain size, a value outside its domain.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> drop_forbidden(f, {"x": 2}, [[1]]).to_dict()
    {(0, 0): 1}
    """
    place = choose_kernels(backend, table).moved()
    (t,), kernels = place.tables, place.kernels
    part = Layout(tuple(scope), tuple(scope.values()))
    plan = move_plan(t.layout, part, part.scope)
    rows = np.asarray(tuples, dtype=np.int64).reshape(-1, len(scope)) if scope else np.asarray(tuples, dtype=np.int64)
    if scope:
        check_values(f"constraint over {part.scope}", rows, part)
    if len(rows) == 0:
        return table if isinstance(table, Table) else place.to_caller(t)
    parts = kernels.permute(t.keys, plan, part.words, piece_rows)
    keys, values = kernels.drop_forbidden(t.keys, t.values, parts, part.pack(rows), part.bits, piece_rows)
    return place.to_caller(replace(t, keys=keys, values=values))
