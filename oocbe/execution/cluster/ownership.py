"""Identity of workers, and counts of the rows that a worker reads but another one wrote: rows that change owner.

Rows stay in place if the worker that wrote them reads them again; rows read by another one move between devices,
processes or hosts. So each part records its *writer* (the cluster and the worker's name there), and each segment counts
the rows it reads. Rows without a recorded writer belong to no worker: those of older files, of the calling process, and
of workers of another cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.results.progress_curve import RowsRead
from oocbe.tables.stored import StoredTable


class CountedTable(StoredTable):
    """A view of a stored table that counts reads of rows and, each time, of keys; reads ahead do not count."""

    def __init__(self, table: StoredTable, counts: ReadCounts) -> None:
        self.__dict__.update(table.__dict__)
        self._table, self._counts = table, counts

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None, alone: bool = False) -> None:
        """Rows ``start`` and following into the caller's arrays; see :class:`StoredTable`."""
        self._table.read_into(start, keys, values, alone)
        stop = start + keys.shape[1]
        if start == stop:
            return
        for chunk in range(self.chunk_at(start), self.chunk_at(stop - 1) + 1):
            rows = min(stop, self.chunk_start(chunk + 1)) - max(start, self.chunk_start(chunk))
            self._counts.add(rows, self._index.writer(chunk))

    def packed_chunk(self, column: int, chunk: int) -> NDArray[np.uint64]:
        """A chunk of a column, packed; see :class:`StoredTable`."""
        found = self._table.packed_chunk(column, chunk)
        self._count_chunk(column, chunk)
        return found

    def packed_chunk_into(self, column: int, chunk: int, target: NDArray[np.uint64]) -> None:
        """The same into memory of the chunk's size; see :class:`StoredTable`."""
        self._table.packed_chunk_into(column, chunk, target)
        self._count_chunk(column, chunk)

    def _count_chunk(self, column: int, chunk: int) -> None:
        if column == 0:  # each chunk is counted once, not once per column
            self._counts.add(self.chunk_start(chunk + 1) - self.chunk_start(chunk), self._index.writer(chunk))


_name: ContextVar[str | None] = ContextVar("oocbe-worker-name", default=None)
_reading: ContextVar[ReadCounts | None] = ContextVar("oocbe-reading", default=None)


@contextmanager
def working_as(name: str) -> Iterator[None]:
    """Within the block, this thread is the worker with this name, which is unique in its cluster."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class ReadCounts:
    """Counts of a segment's reading, thread-safe; ``writer``: its worker, as recorded in parts."""

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._cluster = _cluster_of(writer)
        self._rows = self._changed = 0
        self._lock = threading.Lock()

    @property
    def read(self) -> RowsRead:
        """Counts so far."""
        with self._lock:
            return RowsRead(self._rows, self._changed)

    def add(self, rows: int, writer: str | None) -> None:
        """Add rows read from a writer's part; None: unknown writer."""
        is_another = writer is not None and writer != self.writer and _cluster_of(writer) == self._cluster
        with self._lock:
            self._rows += rows
            self._changed += rows if is_another else 0

    def of(self, table: StoredTable) -> StoredTable:
        """The table, with every read row counted."""
        return CountedTable(table, self)


@contextmanager
def reading(cluster: str) -> Iterator[None]:
    """Within the block, count reads of tables opened by this thread, if of a worker; ``cluster`` as in the writer."""
    name = _name.get()
    token = _reading.set(None if name is None else ReadCounts(f"{cluster} {name}"))
    try:
        yield
    finally:
        _reading.reset(token)


def own_reading() -> ReadCounts | None:
    """Counts of the innermost block of :func:`reading`; None outside of workers."""
    return _reading.get()


def own_writer() -> str | None:
    """Writer to record in new parts; None outside of workers."""
    found = _reading.get()
    return None if found is None else found.writer


def _cluster_of(writer: str) -> str:
    return writer.partition(" ")[0]
