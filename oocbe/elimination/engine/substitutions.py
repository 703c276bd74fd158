"""Substitutions of one variable's value by another, and the passes over rows that drop what they dominate.

Rows in memory are compared in one pass. A message on disk is processed chunk by chunk, with the same result.
Substituting one variable's value in a chunk's rows gives keys in another range: a near one if the variable is among the
least significant ones, a distant one if it is among the leading ones. The index of chunks locates the range. Its chunks
are read (or taken from a cache, since neighbouring chunks need neighbouring ones) and merged with the chunk's own rows.
Dominated rows may dominate others, so all rows stay on disk until the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import ChunkCache
from oocbe.kernels.cpu.buckets.dominance import mark_dominated
from oocbe.kernels.cpu.threads import run_all
from oocbe.model.row_numbers import key_number
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, check_deadline, current_flag
from oocbe.tables.layout import WORD_BITS, Field
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

Substitution = tuple[Field, NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[np.int64] | None]
"""Substitutions of one variable: bit field, and CSR by the replaced value, as in :class:`Substitutions`."""

Rows = tuple[NDArray[np.uint64], NDArray[Any]]
"""Keys and values of rows."""


@dataclass
class Substitutions:
    """Permitted substitutions of values, by variable.

    variables : bit field, and CSR by the replaced value: start int64 (size + 1,), target int64 (pairs,), penalty int64
        or float64 (pairs,), the target's worst loss in the remaining factors. If rows carry consumption, saving int64
        (pairs, constraints), consumption of the replaced value minus that of the target; else None.
    parts : if rows carry consumption, (shift, mask), int64 (constraints,), of each constraint's in the keys.
    """

    variables: list[Substitution] = field(default_factory=list)
    parts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def mark(
        self, variable: Substitution, rows: Rows, others: Rows, sign: int, dominated: Any, stop: NDArray[np.int64]
    ) -> None:
        """Mark rows that others dominate by one variable (:mod:`oocbe.kernels.cpu.buckets.dominance`)."""
        f, start, target, penalty, saving = variable
        place = (f.word, np.uint64(f.shift), np.uint64(f.mask))
        mark_dominated(*rows, *others, place, start, target, penalty, saving, self.parts, sign, dominated, stop)

    def drop_rows(self, keys: NDArray[np.uint64], values: NDArray[Any], sign: int) -> tuple[Any, Any]:
        """Undominated rows, in order; the inputs themselves if no row is dominated.

        keys : uint64 (words, rows), ascending. values : (rows,).
        sign : 1 where small values are better, -1 where large ones are.
        Raises TimeLimitError: the deadline of the current block passed.
        """
        dominated, stop = np.zeros(len(values), dtype=np.uint8), current_flag()
        variables = self.variables
        if len(values) <= 64 and len(keys) > 1 and self.parts is None:  # pairs are less work than a pass each
            differing = keys[:, :, np.newaxis] ^ keys[:, np.newaxis]
            in_one_word = differing[:, np.count_nonzero(differing, axis=0) == 1]
            bits = np.bitwise_or.reduce(in_one_word, axis=1).tolist()
            variables = [own for own in variables if bits[own[0].word] >> own[0].shift & own[0].mask]
        calls = [(own, (keys, values), (keys, values), sign, dominated, stop) for own in variables]
        if len(values) < tuning().few_rows:
            for call in calls:
                self.mark(*call)
        else:
            run_all(self.mark, calls)
        check_deadline()
        if not dominated.any():
            return keys, values
        return keys.compress(dominated == 0, axis=1), values[dominated == 0]

    def flat(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All variables concatenated, as arguments of :func:`oocbe.kernels.cuda.buckets.bucket_join.drop_dominated`."""
        offsets, starts, end, places = [], [], 0, 0
        for _, start, target, *_ in self.variables:
            offsets.append(places)
            starts.append(start + end)
            places += len(start)
            end += len(target)
        return (
            np.array([[f.word, f.shift, f.mask] for f, *_ in self.variables], dtype=np.uint64),
            np.array(offsets, dtype=np.int64),
            np.concatenate(starts),
            np.concatenate([target for _, _, target, *_ in self.variables]),
            np.concatenate([penalty for _, _, _, penalty, _ in self.variables]),
        )


@dataclass(frozen=True)
class DominanceStream:
    """A sorted message on disk without the rows that a substitution dominates.

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
        """The undominated rows of a chunk, if there are any."""
        self.deadline.check()
        rows = self.cache.chunk(self.table, number)
        dominated = np.zeros(rows.rows, dtype=np.uint8)
        for variable in self.substitutions.variables:
            self._mark(rows, rows, variable, dominated)
        for variable in self.substitutions.variables:
            for other in sorted(self._elsewhere(rows, variable, dominated) - {number}):
                self._mark(rows, self.cache.chunk(self.table, other), variable, dominated)
        self.deadline.check()
        if dominated.any():
            keys, values = rows.keys.compress(dominated == 0, axis=1), rows.values[dominated == 0]
            rows = Table(rows.layout, keys, values, rows.semiring, is_sorted=True)
        if rows.rows:
            yield rows

    def _mark(self, rows: Table, others: Table, variable: Substitution, dominated: NDArray[np.uint8]) -> None:
        mine, theirs = (rows.keys, rows.values), (others.keys, others.values)
        self.substitutions.mark(variable, mine, theirs, self.sign, dominated, self.deadline.flag)

    def _elsewhere(self, rows: Table, variable: Substitution, dominated: NDArray[np.uint8]) -> set[int]:
        """Chunks that may contain the substitutes of some rows."""
        field, start, target, *_ = variable
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
        if high - low < 2 or len(rows) == 1:  # else the substitutes may be far apart
            return set(range(low, high + 1))
        middle = len(rows) // 2
        return self._chunks_of(keys, rows[:middle], moved) | self._chunks_of(keys, rows[middle:], moved)
