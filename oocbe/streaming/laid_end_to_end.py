"""Several sources as one, one behind the other: runs that several processes have sorted are read so."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from numpy.typing import NDArray

from oocbe.streaming.sources import Source


class LaidEndToEnd:
    """The rows of several sources, of one layout and dtype; see :class:`oocbe.streaming.sources.Source`.

    Parameters
    ----------
    sources : at least one.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._starts = [0, *accumulate(source.rows for source in sources)]
        self.layout, self.dtype, self.rows = sources[0].layout, sources[0].dtype, self._starts[-1]
        self.is_sorted = len(sources) == 1 and sources[0].is_sorted

    def read_into(self, start: int, keys: NDArray[Any], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following; see :class:`oocbe.streaming.sources.Source`."""
        done, wanted = 0, keys.shape[1]
        number = bisect_right(self._starts, start) - 1
        while done < wanted:
            skipped = start + done - self._starts[number]
            count = min(self._sources[number].rows - skipped, wanted - done)
            if count > 0:
                rows = slice(done, done + count)
                self._sources[number].read_into(skipped, keys[:, rows], None if values is None else values[rows])
                done += count
            number += 1

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows, none across two sources."""
        for start, source in zip(self._starts, self._sources, strict=False):
            for low, high in source.ranges(most):
                yield start + low, start + high
