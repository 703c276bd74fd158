"""Several sources concatenated to one, for ranges of runs sorted by several processes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from numpy.typing import NDArray

from oocbe.execution.key_cuts import KeyedRows
from oocbe.execution.sources import Source, StoredRows
from oocbe.model.row_numbers import even_ranges


class OrderedSlice:
    """A range of rows of a table on disk, sorted by some variables; a ``KeyedRows``.

    Its stretches are the chunks, clipped to the range.

    Parameters
    ----------
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
