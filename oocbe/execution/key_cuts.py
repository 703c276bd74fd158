"""Cuts of sorted sources at the first keys of their chunks, found without a pass over the rows.

The index of a table on disk has the first and the last key of each chunk. If sources are sorted by the same *common*
variables, the first key of a chunk cuts all of them alike, and between two such keys a source has at most the rows of
the overlapping chunks. So cuts are chosen from the indices, and only the chunks that a cut intersects are read, once,
to find the row. A source may be the concatenation of runs that several processes have sorted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocbe.execution.budget import Budget
from oocbe.execution.sources import Source, StoredRows
from oocbe.model.row_numbers import even_ranges, key_number
from oocbe.tables.layout import WORD_BITS


@runtime_checkable
class KeyedRows(Source, Protocol):
    """Sorted rows that can be cut by their keys without a pass over them. They consist of stretches, all of the same
    number of rows except the last.
    """

    @property
    def stretch_rows(self) -> int:
        """Maximum rows of a stretch."""

    @property
    def stretch_count(self) -> int:
        """Number of stretches."""

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; the number of rows for the index after the last."""

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""


class KeyIndex:
    """Index of a sorted source's common keys; a key is one number, the last common variable most significant.

    Parameters
    ----------
    source : sorted, with the common variables most significant, in their order. common : the variables.
    budget : of the memory for a stretch's keys during the search for a row.

    Attributes
    ----------
    firsts, lasts : numbers of the first and the last row of each stretch (a chunk) of the source.
    end : a number above all keys.
    """

    def __init__(self, source: KeyedRows, common: Sequence[str], budget: Budget) -> None:
        self.source, self._budget = source, budget
        self._fields: list[tuple[int, int, int]] = []
        place = 0
        for field in map(source.layout.field, common):
            self._fields.append((WORD_BITS * field.word + field.shift, field.mask, place))
            place += field.bits
        self.end = 1 << place
        edges = [tuple(map(self._number, source.edge_keys(stretch))) for stretch in range(source.stretch_count)]
        self.firsts, self.lasts = ([edge[side] for edge in edges] for side in (0, 1))

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return self.source.rows

    def samples(self, fewest: int) -> Iterator[tuple[int, int]]:
        """Ascending key numbers from the first row's, and the rows from each to the next one.

        fewest : approximate minimum of samples, if the source has the rows: if there are fewer stretches than a quarter
            of it, their keys are read, one stretch at a time.
        """
        stretches = max(1, self.source.stretch_count)
        within = -(-fewest // stretches) if 4 * stretches < fewest else 1
        for stretch in range(self.source.stretch_count):
            start, stop = self.source.stretch_start(stretch), self.source.stretch_start(stretch + 1)
            if within <= 1:
                yield self.firsts[stretch], stop - start
                continue
            with self._budget.reserve("cutting sorted tables", 8 * self.source.layout.words * (stop - start)):
                keys = self.source.keys_of(stretch)
                for low, high in even_ranges(stop - start, max(1, (stop - start) // within)):
                    yield self._number(key_number(keys, low)), high - low

    def most_rows(self, low: int, high: int) -> int:
        """Upper limit of the rows with a number from ``low`` up to ``high``, exclusive."""
        stretches = bisect_left(self.firsts, high) - bisect_left(self.lasts, low)
        return min(max(0, stretches) * self.source.stretch_rows, self.source.rows)

    def place(self, number: int) -> int:
        """The first row whose number is not below this one; reads at most one stretch."""
        stretch = bisect_left(self.lasts, number)
        start = self.source.stretch_start(stretch)
        if stretch == len(self.lasts):
            return self.source.rows
        if number <= self.firsts[stretch]:
            return start
        nbytes = 8 * self.source.layout.words * self.source.stretch_rows
        with self._budget.reserve("cutting sorted tables", nbytes):
            keys = self.source.keys_of(stretch)
            rows = range(keys.shape[1])
            return start + bisect_left(rows, number, key=lambda row: self._number(key_number(keys, row)))

    def _number(self, key: int) -> int:
        return sum((key >> shift & mask) << place for shift, mask, place in self._fields)


def cut_alike(
    indices: Sequence[KeyIndex], fits: Callable[[Sequence[int]], bool]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges of rows of each source with the same range of common keys, in ascending order.

    fits : whether these numbers of rows of the sources fit together. A range in which no chunk begins is not cut, even
        if it does not fit.
    """
    end = max(index.end for index in indices)
    numbers = sorted({number for index in indices for number in index.firsts} | {end})
    chosen = [numbers[0]]
    for before, number in pairwise(numbers):
        if before > chosen[-1] and not fits([index.most_rows(chosen[-1], number) for index in indices]):
            chosen.append(before)
    chosen.append(end)
    places = ([index.place(number) for index in indices] for number in chosen)
    for low, high in pairwise(places):
        yield tuple(zip(low, high, strict=True))


class OrderedSlice:
    """A range of rows of a table on disk, sorted by some variables; a ``KeyedRows``.

    Its stretches are the chunks, clipped to the range.

    source : the table. low, high : half-open range of rows. order : the variables by which rows are sorted, the most
        significant last; its keys need not ascend.
    """

    def __init__(self, source: StoredRows, low: int, high: int, order: tuple[str, ...]) -> None:
        self.layout, self.dtype, self.rows = source.layout, source.dtype, high - low
        self.is_sorted = source.is_sorted
        self.stretch_rows = source.stretch_rows
        self.order = order
        self._source, self._low, self._high = source, low, high
        table = source.table
        self._chunk = table.chunk_at(low) if low < high else 0
        self.stretch_count = table.chunk_at(high - 1) + 1 - self._chunk if low < high else 0

    def read_into(self, start: int, keys: NDArray[Any], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following; see :class:`oocbe.execution.sources.Source`."""
        self._source.read_into(self._low + start, keys, values)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of ``most`` rows; see :class:`oocbe.execution.sources.Source`."""
        return even_ranges(self.rows, most)

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; the number of rows for the index after the last."""
        start = self._source.stretch_start(self._chunk + stretch)
        return min(max(start, self._low), self._high) - self._low

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""
        first, stop = self.stretch_start(stretch), self.stretch_start(stretch + 1)
        return self._source.key(self._low + first), self._source.key(self._low + stop - 1)

    def keys_of(self, stretch: int) -> NDArray[Any]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""
        start, stop = (self._low + self.stretch_start(number) for number in (stretch, stretch + 1))
        chunk = self._chunk + stretch
        begin = self._source.stretch_start(chunk)
        return self._source.keys_of(chunk)[:, start - begin : stop - begin]


class LaidEndToEnd:
    """The concatenated rows of several sources of one layout and dtype; see :class:`oocbe.execution.sources.Source`.

    Attributes
    ----------
    sources : at least one.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._starts = [0, *accumulate(source.rows for source in sources)]
        self.layout, self.dtype, self.rows = sources[0].layout, sources[0].dtype, self._starts[-1]
        self.is_sorted = len(sources) == 1 and sources[0].is_sorted

    def read_into(self, start: int, keys: NDArray[Any], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following; see :class:`oocbe.execution.sources.Source`."""
        done, wanted = 0, keys.shape[1]
        number = bisect_right(self._starts, start) - 1
        while done < wanted:
            skipped = start + done - self._starts[number]
            count = min(self.sources[number].rows - skipped, wanted - done)
            if count > 0:
                rows = slice(done, done + count)
                self.sources[number].read_into(skipped, keys[:, rows], None if values is None else values[rows])
                done += count
            number += 1

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows, none across two sources."""
        for start, source in zip(self._starts, self.sources, strict=False):
            for low, high in source.ranges(most):
                yield start + low, start + high


def runs_in_order(source: Source, common: tuple[str, ...]) -> list[KeyedRows]:
    """The components of a concatenated source, or the source itself, if all are sorted by ``common`` and can be cut.

    common : the variables, the most significant last. Returns an empty list if one source is not.
    """
    found = []
    for run in source.sources if isinstance(source, LaidEndToEnd) else [source]:
        order = run.layout.scope if run.is_sorted else run.order if isinstance(run, OrderedSlice) else ()
        if not isinstance(run, KeyedRows) or order[len(order) - len(common) :] != common:
            return []
        found.append(run)
    return found
