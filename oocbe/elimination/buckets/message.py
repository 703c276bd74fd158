"""A message: its scope, and its table in memory or on disk, as rows or with a value for every assignment.

The form of each message is decided when its bucket is processed, from measured densities
(:mod:`oocbe.elimination.engine.decision`). Orders are compared earlier, from predicted rows alone
(:mod:`oocbe.elimination.orders.order`) and the cheaper forms.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import complete_in_memory, rows_in_memory
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.engine.decision import BucketSizes, Input, Place, expected_form
from oocbe.elimination.preparation.ranges import float_sum_bounds, largest_magnitude
from oocbe.errors import DiskError, ResourceError, ValueRangeError
from oocbe.execution.sources import ChunkCache, InMemorySource, SortedRows, StoredRows
from oocbe.kernels.interface import host_array
from oocbe.model.infeasible import feasible_mask, largest_feasible
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import Combination, Semiring
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import WORD_BITS, bits_for, key_words
from oocbe.tables.residence import (
    find_row,
    host_rows,
    host_rows_between,
    host_values,
    is_on_device,
    rows_in_main_memory,
    to_device,
    to_host,
)
from oocbe.tables.stored import AnyComplete, StoredCompleteTable, StoredTable, open_table
from oocbe.tables.table import Table


def may_be_complete(problem: Problem, semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether every possible sum differs from the infeasible value (:mod:`oocbe.model.infeasible`)."""
    if semiring.combination is Combination.MULTIPLY:
        return True
    if dtype.kind == "f":
        return not any(map(math.isinf, float_sum_bounds(problem)))
    return problem.magnitude <= largest_feasible(dtype)


def checked_tables(problem: Problem, semiring: Semiring, dtype: np.dtype[Any], tables: str) -> str:
    """The option for the form of tables; ``auto`` becomes ``incomplete`` if no message can be complete.

    Raises ValueRangeError: ``complete`` is requested and sums could reach the infeasible value.
    """
    if tables == INCOMPLETE or may_be_complete(problem, semiring, dtype):
        return tables
    if tables == COMPLETE:
        raise ValueRangeError(
            f"{problem.name}: sums of its values in {dtype.name} leave no room for what is infeasible in complete "
            "tables; use --tables auto, or give the costs as floating-point numbers"
        )
    return INCOMPLETE


def supported_representations(problem: Problem, semiring: Semiring, dtype: np.dtype[Any], tables: str) -> str:
    """The option for the form of tables, without ``auto`` if no message can be complete.

    If rows carry consumption of linear constraints, the result is ``incomplete`` regardless of the option.
    """
    if carried_in_rows(problem):
        return INCOMPLETE
    return INCOMPLETE if tables == "auto" and not may_be_complete(problem, semiring, dtype) else tables


def expected_work(
    sizes: Sequence[int],
    order: Sequence[int],
    separators: Sequence[Sequence[int]],
    predicted_rows: Sequence[float],
    dtype: np.dtype[Any],
    tables: str,
    memory: int,
    cells_a_row: float | None = None,
    most: float = math.inf,
) -> float:
    """Predicted cost of an order, in rows; a joined cell of a complete bucket counts as a fraction of a row.

    sizes : domain size of each variable. tables : see :func:`supported_representations`.
    memory : the memory limit, regardless of the process's current use: orders do not depend on that.
    cells_a_row : cells that cost as much as a row; None: the value for small problems in
        :class:`oocbe.model.settings.tuning.Tuning`.
    most : the sum stops once it exceeds this, and then covers only part of the buckets.
    """
    work, bits = 0.0, [bits_for(size) for size in sizes]
    cells_a_row = cells_a_row or tuning().cells_a_row
    received: defaultdict[int, list[Input]] = defaultdict(list)
    for v, separator, rows in zip(order, separators, predicted_rows, strict=True):
        if work > most:
            break
        cells = math.prod([sizes[u] for u in separator])
        joined = min(cells * sizes[v], sys.float_info.max) / cells_a_row
        form = tables
        if tables == "auto":
            row_bytes = key_words([bits[u] for u in separator]) * WORD_BITS // 8 + dtype.itemsize
            bucket = BucketSizes(cells, cells * sizes[v], dtype.itemsize, row_bytes, rows, received.pop(v, ()))
            form = expected_form(bucket, memory)
            if separator:
                is_complete, listed = form == COMPLETE, round(rows) * row_bytes
                nbytes = cells * dtype.itemsize if is_complete else listed
                message = Input(cells, round(rows), nbytes, listed, is_complete, Place.MAIN_MEMORY)
                received[separator[0]].append(message)
            joined = min(joined, rows)
        work += joined if form == COMPLETE else rows
    return work


def _widest(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the same kind with the widest range."""
    return np.dtype(np.int64 if dtype.kind == "i" else np.float64)


@contextmanager
def _if_there_is_room() -> Iterator[None]:
    """Suppress the device's out-of-memory errors within the block; the caller then falls back to main memory."""
    try:
        yield
    except DiskError:
        raise
    except ResourceError:
        pass


@dataclass
class Message:
    """A message, in memory or on disk.

    scope : variable indices, the variable eliminated first at the front; the layout has the same order.
    rows, nbytes : of the table.
    is_filtered : whether the constraints covered by its scope have been applied; False for a problem's own tables.
    is_forgotten : whether its table has been discarded (:mod:`oocbe.elimination.buckets.assignment`).
    """

    scope: tuple[int, ...]
    rows: int
    nbytes: int
    is_filtered: bool = True
    is_forgotten: bool = False
    _table: Table | CompleteTable | None = None
    _stored: StoredTable | StoredCompleteTable | None = None
    _least: float | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are held in memory, main memory or the device's."""
        return self._table is not None

    @property
    def is_on_device(self) -> bool:
        """Whether the rows, or values, are in a device's memory."""
        return self._table is not None and is_on_device(self._table)

    @property
    def _source(self) -> Table | CompleteTable | StoredTable | StoredCompleteTable:
        """Its table, wherever it is."""
        source = self._table if self._table is not None else self._stored
        assert source is not None
        return source

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self._source.dtype

    @property
    def path(self) -> Path | None:
        """The folder of its table on disk; None if it is in memory."""
        return None if self._stored is None else self._stored.folder

    @classmethod
    def stored_at(cls, path: Path, scope: tuple[int, ...]) -> Message:
        """The message whose table another process has stored in a folder; CorruptDataError if that is damaged."""
        stored = open_table(path)
        return cls(scope, stored.rows, stored.nbytes, _stored=stored)

    @property
    def main_memory(self) -> int:
        """Bytes of main memory that it takes."""
        return 0 if self._table is None or self.is_on_device else self.nbytes

    def move_to_main_memory(self) -> None:
        """Move it from the device to main memory."""
        assert self._table is not None
        self._table = to_host(self._table)

    def forget(self) -> None:
        """Discard its table."""
        self._table = None
        self.is_forgotten = True

    def keep_as_rows(self, share: float = math.inf) -> None:
        """Replace a complete table on the device by its rows there, if they take less than ``share`` of its bytes and
        the device has room."""
        if isinstance(self._table, CompleteTable) and self.is_on_device and self.listed_bytes < self.nbytes * share:
            with _if_there_is_room():
                self._table = self._table.to_table(tuple(reversed(self._table.scope)))
                self.nbytes = self._table.nbytes

    def as_input(self, domains: Sequence[int], dtype: np.dtype[Any]) -> Input:
        """The message as input of the receiving bucket's decision, with that one's domain sizes and dtype."""
        place = Place.DISK
        if self._table is not None:
            place = Place.DEVICE if is_on_device(self._table) else Place.MAIN_MEMORY
        cells = math.prod(domains[v] for v in self.scope)
        return Input(cells, self.rows, self.nbytes, self.listed_bytes, self.is_complete, place, self.dtype == dtype)

    @property
    def is_complete(self) -> bool:
        """Whether it is a complete table, in memory or on disk."""
        return isinstance(self._table, CompleteTable) or isinstance(self._stored, StoredCompleteTable)

    def table(self) -> Table:
        """The rows, in memory or still on the device: read from disk, or listed from a complete table."""
        source = self._source
        if isinstance(source, Table | StoredTable):
            return rows_in_memory(source)
        complete, scope = complete_in_memory(source), tuple(reversed(source.scope))
        if is_on_device(complete):
            with _if_there_is_room():
                return complete.to_table(scope)
        return to_host(complete).to_table(scope)

    def complete(self, dtype: np.dtype[np.generic], for_device: bool = False) -> CompleteTable:
        """The message as a complete table of a dtype, the variable eliminated last changing fastest; converted if
        necessary. A table on the device stays there while it has room; ``for_device``: convert there if possible.

        Raises ResourceError: it does not fit in memory; ValueRangeError: the dtype cannot represent a value.
        """
        source = self._source
        if isinstance(source, CompleteTable | StoredCompleteTable):
            return complete_in_memory(source)
        scope = tuple(reversed(source.scope))
        if isinstance(source, Table) and source.values.dtype == dtype and (for_device or self.is_on_device):
            with _if_there_is_room():
                return complete_in_memory(to_device(source), scope, dtype)
        return complete_in_memory(to_host(source) if isinstance(source, Table) else source, scope, dtype)

    def value_pieces(self) -> Iterator[NDArray[Any]]:
        """Values of the rows, or of a complete table's feasible cells; one chunk at a time for a table on disk."""
        source = self._source
        if isinstance(source, Table | StoredTable):
            pieces = host_rows(source, tuning().part_bytes) if isinstance(source, Table) else source.chunks()
            yield from (piece.values for piece in pieces)
            return
        codes = (source.semiring.combination, source.semiring.marginalisation)
        if isinstance(source, CompleteTable):
            parts = host_values(source, tuning().part_bytes)
        else:
            parts = source.pieces(source.chunk_cells)
        for part in parts:
            yield part[feasible_mask(part, *codes)]

    def cells(self) -> AnyComplete:
        """The values of a complete message, to be read by boxes."""
        if isinstance(self._stored, StoredCompleteTable):
            return self._stored
        assert isinstance(self._table, CompleteTable)
        return to_host(self._table)

    def rows_on_hand(self) -> Table | StoredTable:
        """The table of an incomplete message, wherever it is."""
        table = self._source
        assert not isinstance(table, CompleteTable | StoredCompleteTable)
        return table

    @property
    def listed_bytes(self) -> int:
        """Bytes of all rows with their keys, as listed from a complete table."""
        table = self._source
        if not isinstance(table, CompleteTable | StoredCompleteTable):
            return self.nbytes
        return self.rows * (8 * table.layout.words + table.dtype.itemsize)

    def sorted_rows(self, cache: ChunkCache) -> SortedRows:
        """The rows for reading by key range, in memory or on disk; those of a complete table are listed in memory
        (:meth:`oocbe.elimination.buckets.messages.MessageStore.list_rows` lists them on disk)."""
        if self._table is not None or isinstance(self._stored, StoredCompleteTable):
            return InMemorySource(self.table())
        assert self._stored is not None
        return StoredRows(self._stored, cache)

    def least_magnitude(self) -> float:
        """Smallest nonzero absolute value of a float message's rows, at most 1; computed once."""
        if self._least is None:
            self._least = 1.0
            for values in self.value_pieces():
                sizes = np.abs(values)
                self._least = min(self._least, float(sizes[sizes > 0].min(initial=1.0)))
        return self._least

    @property
    def has_limbs(self) -> bool:
        """Whether its values are counts of limbs (:mod:`oocbe.tables.numbers`), however small."""
        source = self._table or self._stored
        return isinstance(source, Table | StoredTable) and source.limbs > 0

    def largest_magnitude(self) -> int:
        """Largest absolute value of an integer message of products; read from the metadata of a table on disk."""
        if self._table is not None:
            return largest_magnitude(self._table.values)
        assert self._stored is not None
        low, high = self._stored.extent or (0, 0)
        return max(abs(low), abs(high))

    def longest_run(self) -> int:
        """Most rows whose keys differ in their first field alone; all rows of a table that is not in memory."""
        if not isinstance(self._table, Table) or not self._table.is_sorted:
            return self.rows
        keys = to_host(self._table).keys.copy()
        keys[0] >>= np.uint64(self._table.layout.fields[0].bits)
        ends = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0))
        return int(np.diff(ends, prepend=-1, append=self.rows - 1).max())

    def value_at(self, assignment: dict[int, int]) -> int | float | None:
        """Value of the row selected by an assignment of (at least) the scope's variables; None if there is none."""
        source, values = self._source, [assignment[v] for v in self.scope]
        if isinstance(source, CompleteTable | StoredCompleteTable):
            return source.value_of(values[::-1])
        key = source.layout.key_of(values)
        if isinstance(source, StoredTable):
            return source.find(key)
        row = find_row(source, key)
        if row < 0:
            return None
        value: int | float = source.values[row].item()
        return value

    def near(self, assignment: dict[int, int], variable: int) -> Message:
        """The message; for a message on the device, the part selected by an assignment, copied to main memory.

        The values for all values of ``variable`` are copied together, because one device access takes 0.1 ms. Their
        rows are adjacent if ``variable`` is eliminated first.

        assignment : of the scope's variables but ``variable``.
        """
        table = self._table
        if isinstance(table, CompleteTable):
            return self._cells_near(table, assignment, variable) if is_on_device(table) else self
        if not isinstance(table, Table) or self.scope[0] != variable or not is_on_device(table):
            return self
        others = [assignment[v] for v in self.scope[1:]]
        ends = np.array([[0, *others], [table.layout.sizes[0] - 1, *others]], dtype=np.int64)
        first, last = table.layout.pack(ends).T
        rows = host_rows_between(table, first, last)
        return Message(self.scope, rows.rows, rows.nbytes, _table=rows)

    def _cells_near(self, table: CompleteTable, assignment: dict[int, int], variable: int) -> Message:
        """The part of a complete table selected by an assignment, for each value of ``variable``, in main memory."""
        scope = tuple(reversed(self.scope))
        place = scope.index(variable)
        size, step = table.layout.sizes[place], table.steps[place]
        first = sum(assignment[v] * own for v, own in zip(scope, table.steps, strict=True) if v != variable)
        values = host_array(table.values[first : first + (size - 1) * step + 1 : step].copy())
        cells = replace(table, layout=table.layout.select((table.scope[place],)), values=values)
        return Message((variable,), size, values.nbytes, _table=cells)

    def cells_at(self, assignment: dict[int, int], free: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values for all assignments of some of the scope's variables, and which of them are feasible.

        assignment : value index of each other variable of the scope, at least. free : variables of the scope.
        Returns values : int64 or float64, an axis for each free variable; undefined where not feasible. feasible : bool
        of the same shape.
        """
        near = self.near(assignment, *free) if len(free) == 1 else self
        source = near._source
        scope = tuple(reversed(near.scope)) if near.is_complete else near.scope
        sizes = dict(zip(scope, source.layout.sizes, strict=True))
        shape = tuple(sizes[v] for v in free)
        if isinstance(near._table, CompleteTable):
            steps = dict(zip(scope, near._table.steps, strict=True))
            numbers = np.full(shape, sum(assignment[v] * steps[v] for v in scope if v not in free), dtype=np.int64)
            for axis, v in enumerate(free):
                numbers += (np.arange(sizes[v]) * steps[v]).reshape([-1 if a == axis else 1 for a in range(len(free))])
            found = near._table.values_of(numbers)
            return found.astype(_widest(found.dtype)), near._table.is_feasible(found)
        values, feasible = np.zeros(shape, dtype=_widest(near.dtype)), np.zeros(shape, dtype=np.bool_)
        if free == near.scope[:1] and not near.is_complete:
            cells, found = near.rows_at(assignment)
            values[cells], feasible[cells] = found, True
            return values, feasible
        trial = dict(assignment)
        for cell in np.ndindex(*shape):
            trial.update(zip(free, cell, strict=True))
            value = near.value_at(trial)
            if value is not None:
                values[cell], feasible[cell] = value, True
        return values, feasible

    def rows_at(self, assignment: dict[int, int]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Of the rows of an incomplete message that agree with an assignment: consumption, ascending, and values.

        Without consumption, keys begin with the scope's first variable: its value indices, for an assignment of the
        others.
        """
        assert not self.is_complete
        layout = self._source.layout
        others = self.scope[len(self.scope) + 1 - len(layout.scope) :]
        mask = layout.fields[0].mask
        key = layout.key_of((0, *(assignment[v] for v in others)))
        if self._table is None:
            assert self._stored is not None and not isinstance(self._stored, StoredCompleteTable)
            first = key_number(key[:, np.newaxis], 0)
            table = self._stored.read_between(first, first + mask)
        else:
            assert not isinstance(self._table, CompleteTable)
            table = self._table = to_host(self._table)
        begin, end = rows_in_main_memory(table.keys, key, mask)
        return (table.keys[0, begin:end] & np.uint64(mask)).astype(np.int64), table.values[begin:end]
