"""Results of pieces on their way from the device to a table on disk: packed there, a file a chunk and column."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from oocbe.table_algebra.packed_chunks import packed_chunks

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor
    from oocbe.tables.writer import StoredTableWriter


class StoredResult:
    """Cuts results, sorted end to end, into a stored table's chunks; what does not fill one waits for the next result.

    Parameters
    ----------
    writer : of the table, inside its ``with`` block.
    """

    def __init__(self, writer: StoredTableWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[Any, Any]] = []

    def take(self, conveyor: Conveyor, keys: Any, values: Any) -> None:
        """Pack a result, keys uint64 (words, rows) and values (rows,) on the device, and start it on its way.

        Raises
        ------
        DiskError : the disk or the disk budget is used up (also later, while the conveyor is waited for).
        """
        from oocbe.kernels.cuda.device import cupy

        if len(values) == 0:
            return
        self._waiting.append((keys, values))
        rows = sum(len(v) for _, v in self._waiting)
        size = self._writer.chunk_rows
        if rows < size:
            return
        if len(self._waiting) > 1:
            keys = cupy().concatenate([k for k, _ in self._waiting], axis=1)
            values = cupy().concatenate([v for _, v in self._waiting])
        whole = rows // size * size
        # A copy: a slice would keep all of the result in the device's memory.
        self._waiting = [(keys[:, whole:].copy(), values[whole:].copy())] if whole < rows else []
        parts = [([w[low : low + size] for w in keys], values[low : low + size]) for low in range(0, whole, size)]
        self._send(conveyor, parts)

    def finish(self, conveyor: Conveyor) -> None:
        """Send what is left; errors as for :meth:`take`."""
        from oocbe.kernels.cuda.device import cupy

        if self._waiting:
            keys = cupy().concatenate([k for k, _ in self._waiting], axis=1)
            values = cupy().concatenate([v for _, v in self._waiting])
            self._waiting = []
            self._send(conveyor, [(list(keys), values)])

    def _send(self, conveyor: Conveyor, parts: list[tuple[list[Any], Any]]) -> None:
        columns, consumers = [], []
        for chunk in packed_chunks(parts, [0] * (self._writer.layout.words + 1)):
            place = self._writer.begin_packed(chunk.rows, chunk.edge_keys, chunk.extent)
            columns += chunk.columns
            consumers += [partial(self._writer.write_packed, place, number) for number in range(len(chunk.columns))]
        conveyor.deliver(columns, consumers)
