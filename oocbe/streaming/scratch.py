"""A scratch file of rows: written once by several threads, read by row numbers, gone when nobody holds it any more.

Rows lie in *runs* of a fixed number of rows, each column of a run by itself; each *segment* of a run (what is read
together later on) has a checksum, which is compared whenever the segment is read whole.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.streaming.sources import even_ranges, row_bytes
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.nameless_file import NamelessFile
from oocbe.tracing.recorder import READER, WRITER, span


class ScratchFile:
    """Rows on disk for as long as this object lives.

    Parameters
    ----------
    budget : counts its bytes, and says in which folder it is made.
    layout, dtype : of keys and values.
    run_rows : most rows of a run.

    Raises
    ------
    DiskError : the file cannot be made.
    """

    def __init__(self, budget: DiskBudget, layout: Layout, dtype: np.dtype[Any], run_rows: int) -> None:
        self.layout, self.dtype, self.is_sorted = layout, dtype, False
        self.rows = 0
        self._run_rows = run_rows
        self._row_bytes = row_bytes(layout, dtype)
        self._run_starts: list[int] = []
        self._segments: dict[int, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
        self._lock = Lock()
        self._file = NamelessFile(budget, "scratch file")

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any], bounds: NDArray[np.int64]) -> int:
        """Write a run; several threads may at once.

        Parameters
        ----------
        keys, values : the run's rows, at most ``run_rows``.
        bounds : segment bounds in the run, int64, ascending from 0 to its rows.

        Returns
        -------
        int : the run's first row in this file.

        Raises
        ------
        DiskError : the disk, or what may be used of it, is full.
        """
        with self._lock:
            run, start = len(self._run_starts), self.rows
            self._run_starts.append(start)
            self.rows += len(values)
        columns = [*keys, values]
        offset = run * self._run_rows * self._row_bytes
        with span(WRITER, "write scratch", bytes=sum(column.nbytes for column in columns)):
            for column in columns:
                self._file.write(np.ascontiguousarray(column).view(np.uint8).data, offset, more=column.nbytes)
                offset += column.nbytes
        with span(WRITER, "checksum of scratch"):
            sums = [[_checksum(column[low:high]) for column in columns] for low, high in pairwise(bounds.tolist())]
        self._segments[run] = bounds, np.array(sums, dtype=np.uint32).reshape(-1, len(columns))
        return start

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following, of one run or several, into the caller's arrays; see ``Source``."""
        done, wanted = 0, keys.shape[1]
        while done < wanted:
            run = bisect_right(self._run_starts, start + done) - 1
            first = self._run_starts[run]
            last = self._run_starts[run + 1] if run + 1 < len(self._run_starts) else self.rows
            low = start + done - first
            count = min(last - first - low, wanted - done)
            columns = [column[done : done + count] for column in (*keys, *([] if values is None else [values]))]
            offset = run * self._run_rows * self._row_bytes
            with span(READER, "read scratch", bytes=sum(column.nbytes for column in columns)):
                for column in columns:
                    self._file.read(column.view(np.uint8).data, offset + low * column.dtype.itemsize)
                    offset += (last - first) * 8
            with span(READER, "check scratch"):
                self._verify(run, low, columns)
            done += count

    def _verify(self, run: int, low: int, columns: Sequence[NDArray[Any]]) -> None:
        """Compare the checksums of those segments of a run that were read whole, from its row ``low`` on."""
        bounds, sums = self._segments[run]
        first = int(np.searchsorted(bounds, low))
        last = int(np.searchsorted(bounds, low + len(columns[0]), side="right")) - 1
        for segment in range(first, last):
            rows = slice(int(bounds[segment]) - low, int(bounds[segment + 1]) - low)
            if any(
                _checksum(column[rows]) != expected for column, expected in zip(columns, sums[segment], strict=False)
            ):
                raise CorruptDataError(f"{self._file.name}: rows of run {run:,} changed since they were written")

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """See ``Source``: runs where they are small enough."""
        for first, last in pairwise([*self._run_starts, self.rows]):
            for low, high in even_ranges(last - first, most):
                yield first + low, first + high


def _checksum(column: NDArray[Any]) -> int:
    return zlib.crc32(column.view(np.uint8).data)
