"""Drop dominated rows of a message on disk: the rows that substitutions in memory would drop, chunk by chunk.

Substituting one variable's value in a chunk's rows gives keys in another range: a near one if the variable is among the
least significant ones, a distant one if it is among the leading ones. The index of chunks locates the range. Its chunks
are read (or taken from a cache, since neighbouring chunks need neighbouring ones) and merged with the chunk's own rows.
Dominated rows may dominate others, so all rows stay on disk until the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.substitutions import Substitution, Substitutions, arguments_of
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import ChunkCache
from oocbe.kernels.cpu.buckets.dominance import compact_rows, mark_dominated
from oocbe.model.row_numbers import key_number
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.tables.layout import WORD_BITS
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


@dataclass(frozen=True)
class DominanceStream:
    """A sorted message on disk without the rows that a substitution dominates.

    Attributes
    ----------
    table : all its rows. substitutions, sign : as for :meth:`Substitutions.drop_rows`.
    cache : for chunks. streams : number of concurrent chunks. deadline : checked before each chunk.
    chunks : chunks to process; None: all.
    """

    table: StoredTable
    substitutions: Substitutions
    sign: int
    cache: ChunkCache
    streams: int
    deadline: Deadline
    chunks: range | None = None

    def tables(self) -> Generator[Table, None, None]:
        """The undominated rows, in order."""
        chunks = range(self.table.chunk_count) if self.chunks is None else self.chunks
        yield from run_in_order((partial(self._chunk, number) for number in chunks), self.streams)

    def _chunk(self, number: int, stream: int) -> Iterator[Table]:
        """A chunk as a piece of the pipeline."""
        rows = self.undominated(number)
        if rows.rows:
            yield rows

    def undominated(self, number: int) -> Table:
        """The undominated rows of a chunk."""
        self.deadline.check()
        rows = self.cache.chunk(self.table, number)
        dominated = np.zeros(rows.rows, dtype=np.uint8)
        for variable in self.substitutions.variables:
            self._mark(rows, rows, variable, dominated)
        for variable in self.substitutions.variables:
            for other in sorted(self._elsewhere(rows, variable, dominated) - {number}):
                self._mark(rows, self.cache.chunk(self.table, other), variable, dominated)
        self.deadline.check()
        if not dominated.any():
            return rows
        keys, values = compact_rows(rows.keys, rows.values, dominated)
        return Table(rows.layout, keys, values, rows.semiring, is_sorted=True)

    def _mark(self, rows: Table, others: Table, variable: Substitution, dominated: NDArray[np.uint8]) -> None:
        calls = (*arguments_of(variable), self.sign, dominated, self.deadline.flag)
        mark_dominated(rows.keys, rows.values, others.keys, others.values, *calls)

    def _elsewhere(self, rows: Table, variable: Substitution, dominated: NDArray[np.uint8]) -> set[int]:
        """Chunks that may contain the substitutes of some rows."""
        field, start, target, _ = variable
        column = rows.keys[field.word] >> np.uint64(field.shift) & np.uint64(field.mask)
        found: set[int] = set()
        for value in np.flatnonzero(np.diff(start)).tolist():
            mine = np.flatnonzero((column == np.uint64(value)) & (dominated == 0))
            for substitute in target[start[value] : start[value + 1]].tolist() if len(mine) else []:
                shift = WORD_BITS * field.word + field.shift
                found |= self._chunks_of(rows.keys, mine, (substitute - value) << shift)
        return found

    def _chunks_of(self, keys: NDArray[np.uint64], rows: NDArray[Any], moved: int) -> set[int]:
        """Chunks in which some rows' keys lie when a number is added to them."""
        table = self.table
        first, last = (key_number(keys, int(row)) + moved for row in (rows[0], rows[-1]))
        low = table.first_chunk_not_below(first, 0, table.chunk_count)
        if low == table.chunk_count:
            return set()
        high = table.first_chunk_not_below(last, low, table.chunk_count)
        if high == table.chunk_count or table.chunk_keys(high)[0] > last:
            high -= 1
        if high - low < tuning().near_chunks or len(rows) == 1:
            return set(range(low, high + 1))
        middle = len(rows) // 2
        return self._chunks_of(keys, rows[:middle], moved) | self._chunks_of(keys, rows[middle:], moved)
