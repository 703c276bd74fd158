"""A scratch file of rows: written once by several threads, read by row numbers, deleted with its last reference.

Rows are stored in *runs*, as appended, each column separately. A number is stored as its distance from the column's
minimum, in the bytes needed for the largest distance: the disk then takes less time than for whole words. Each
*segment* of a run (rows that are later read together) has a checksum, which is verified whenever the segment is read
whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.model.row_numbers import even_ranges
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.checksums import crc32
from oocbe.runtime.tracing.recorder import READER, WRITER, span
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from oocbe.tables.layout import Layout


class _Column(NamedTuple):
    """A run's column in the file: distances of its numbers from ``base``, ``size`` bytes each, starting at
    ``offset``."""

    base: np.uint64
    size: int
    offset: int


class ScratchFile:
    """Rows on disk for the lifetime of this object.

    budget : counts its bytes, and has its folder.
    layout, dtype : of keys and values.
    Raises DiskError: the file cannot be made.
    """

    def __init__(self, budget: DiskBudget, layout: Layout, dtype: np.dtype[Any]) -> None:
        self.layout, self.dtype, self.is_sorted = layout, dtype, False
        self.rows = 0
        self._words = np.dtype(np.uint32 if dtype.itemsize == 4 else np.uint64)  # a value's bits
        self._starts: list[int] = []
        self._runs: list[list[_Column]] = []
        self._segments: dict[int, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
        self._end = 0
        self._lock = Lock()
        self._file = NamelessFile(budget, "scratch file")

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any], bounds: NDArray[np.int64]) -> int:
        """Write a run; thread-safe.

        keys, values : the run's rows.
        bounds : segment bounds in the run, int64, ascending from 0 to its rows.
        Returns int : the run's first row in this file.
        Raises DiskError: the disk, or its permitted share, is full.
        """
        words = [np.ascontiguousarray(column) for column in keys] + [np.ascontiguousarray(values).view(self._words)]
        narrowest = [_narrowest(column) for column in [*keys, values]]
        sizes = [len(values) * size for _, size in narrowest]
        nbytes = sum(sizes)
        with self._lock:
            number, start = len(self._runs), self.rows
            offsets = accumulate(sizes, initial=self._end)
            run = [_Column(base, size, offset) for (base, size), offset in zip(narrowest, offsets, strict=False)]
            self._runs.append(run)
            self._starts.append(start)
            self.rows += len(values)
            self._end += nbytes
        with span(WRITER, "write scratch", bytes=nbytes):
            for column, how in zip(words, run, strict=True):
                self._write(column, how)
        with span(WRITER, "checksum of scratch"):
            sums = [[_checksum(column[low:high]) for column in words] for low, high in pairwise(bounds.tolist())]
        self._segments[number] = bounds, np.array(sums, dtype=np.uint32).reshape(-1, len(words))
        return start

    def _write(self, words: NDArray[Any], how: _Column) -> None:
        from oocbe.kernels.cpu.packing.narrow import narrow

        buffer = np.empty(min(len(words), tuning().stretch_rows) * how.size, dtype=np.uint8)
        for first in range(0, len(words), tuning().stretch_rows):
            stripe = words[first : first + tuning().stretch_rows]
            data = buffer[: len(stripe) * how.size]
            narrow(stripe, how.base, how.size, data)
            # The whole column is counted with its first stripe, so that an error reports its whole size.
            self._file.write(data.data, how.offset + first * how.size, more=0 if first else len(words) * how.size)

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following, of one run or several, into the caller's arrays; see ``Source``."""
        done, wanted = 0, keys.shape[1]
        targets = [*keys] if values is None else [*keys, values.view(self._words)]
        while done < wanted:
            number = bisect_right(self._starts, start + done) - 1
            first = self._starts[number]
            last = self._starts[number + 1] if number + 1 < len(self._starts) else self.rows
            low = start + done - first
            count = min(last - first - low, wanted - done)
            columns = [column[done : done + count] for column in targets]
            run = self._runs[number][: len(columns)]
            with span(READER, "read scratch", bytes=count * sum(how.size for how in run)):
                for column, how in zip(columns, run, strict=True):
                    self._read(column, how, low)
            with span(READER, "check scratch"):
                self._verify(number, low, columns)
            done += count

    def _read(self, words: NDArray[Any], how: _Column, low: int) -> None:
        from oocbe.kernels.cpu.packing.narrow import widen

        rows = min(len(words), tuning().stretch_rows)
        buffer = np.empty(rows * how.size, dtype=np.uint8)
        for first in range(0, len(words), tuning().stretch_rows):
            stripe = words[first : first + rows]
            data = buffer[: len(stripe) * how.size]
            self._file.read(data.data, how.offset + (low + first) * how.size)
            widen(data, how.base, how.size, stripe)

    def _verify(self, run: int, low: int, columns: Sequence[NDArray[Any]]) -> None:
        """Verify the checksums of the segments of a run that were read whole, from its row ``low`` on."""
        bounds, sums = self._segments[run]
        high = low + len(columns[0])
        segment = int(bounds.searchsorted(low))
        while segment < len(sums) and bounds[segment + 1] <= high:
            rows = slice(int(bounds[segment]) - low, int(bounds[segment + 1]) - low)
            for column, expected in zip(columns, sums[segment].tolist(), strict=False):
                if _checksum(column[rows]) != expected:
                    raise CorruptDataError(f"{self._file.name}: rows of run {run:,} changed since they were written")
            segment += 1

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows: whole runs if they are small enough."""
        for first, last in pairwise([*self._starts, self.rows]):
            for low, high in even_ranges(last - first, most):
                yield first + low, first + high


def _narrowest(column: NDArray[Any]) -> tuple[np.uint64, int]:
    """The minimum of a column, and the fewest bytes for the distances from it; floats are unchanged."""
    if column.dtype.kind == "f" or len(column) == 0:
        return np.uint64(0), column.dtype.itemsize
    low, high = int(column.min()), int(column.max())
    return np.uint64(low % (1 << 64)), max(1, -(-(high - low).bit_length() // 8))


def _checksum(column: NDArray[Any]) -> int:
    return crc32(column.view(np.uint8).data)
