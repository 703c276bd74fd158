"""A scratch file of rows: written once by several threads, read by row numbers, deleted with its last reference.

Rows are stored in *runs*, as appended, each column separately. Each *segment* of a run (rows that are later read
together) has a checksum, which is verified whenever the segment is read whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.model.row_numbers import even_ranges
from oocbe.runtime.checksums import crc32
from oocbe.runtime.tracing.recorder import READER, WRITER, span
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from oocbe.tables.layout import Layout


class ScratchFile:
    """Rows on disk for the lifetime of this object.

    Parameters
    ----------
    budget : counts its bytes, and has its folder.
    layout, dtype : of keys and values.

    Raises
    ------
    DiskError : the file cannot be made.
    """

    def __init__(self, budget: DiskBudget, layout: Layout, dtype: np.dtype[Any]) -> None:
        self.layout, self.dtype, self.is_sorted = layout, dtype, False
        self.rows = 0
        self._starts: list[int] = []
        self._runs: list[list[int]] = []  # offset of each column
        self._segments: dict[int, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
        self._end = 0
        self._lock = Lock()
        self._file = NamelessFile(budget, "scratch file")

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any], bounds: NDArray[np.int64]) -> int:
        """Write a run; thread-safe.

        Parameters
        ----------
        keys, values : the run's rows.
        bounds : segment bounds in the run, int64, ascending from 0 to its rows.

        Returns
        -------
        int : the run's first row in this file.

        Raises
        ------
        DiskError : the disk, or its permitted share, is full.
        """
        words = [np.ascontiguousarray(column) for column in [*keys, values]]
        nbytes = sum(column.nbytes for column in words)
        with self._lock:
            number, start, offset = len(self._runs), self.rows, self._end
            self._runs.append([*accumulate((column.nbytes for column in words[:-1]), initial=offset)])
            self._starts.append(start)
            self.rows += len(values)
            self._end += nbytes
        with span(WRITER, "write scratch", bytes=nbytes):
            for column, place in zip(words, self._runs[number], strict=True):
                self._file.write(column.view(np.uint8).data, place, more=column.nbytes)
        with span(WRITER, "checksum of scratch"):
            sums = [[_checksum(column[low:high]) for column in words] for low, high in pairwise(bounds.tolist())]
        self._segments[number] = bounds, np.array(sums, dtype=np.uint32).reshape(-1, len(words))
        return start

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following, of one run or several, into the caller's arrays; see ``Source``."""
        done, wanted = 0, keys.shape[1]
        targets = [*keys] if values is None else [*keys, values]
        while done < wanted:
            number = bisect_right(self._starts, start + done) - 1
            first = self._starts[number]
            last = self._starts[number + 1] if number + 1 < len(self._starts) else self.rows
            low = start + done - first
            count = min(last - first - low, wanted - done)
            columns = [column[done : done + count] for column in targets]
            with span(READER, "read scratch", bytes=sum(column.nbytes for column in columns)):
                for column, place in zip(columns, self._runs[number], strict=False):
                    self._file.read(column.view(np.uint8).data, place + low * column.itemsize)
            with span(READER, "check scratch"):
                self._verify(number, low, columns)
            done += count

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


def _checksum(column: NDArray[Any]) -> int:
    return crc32(column.view(np.uint8).data)
