"""Who a worker is, and which of the rows that it reads another one wrote: rows that have changed owner.

Rows stay where they are as long as the worker that wrote them reads them again. Those that another one reads travel,
between devices, processes or hosts. So each part says who wrote it (*writer*: the cluster and the name of the worker
there), and each segment counts the rows that it reads. Rows that nobody says the writer of are of no worker: those of
files that were there before, of the process that asks, and of workers of another cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from oocbe.model.results.rows_read import RowsRead

if TYPE_CHECKING:
    from oocbe.tables.stored import StoredTable

_name: ContextVar[str | None] = ContextVar("oocbe-worker-name", default=None)
_reading: ContextVar[Reading | None] = ContextVar("oocbe-reading", default=None)


@contextmanager
def working_as(name: str) -> Iterator[None]:
    """Within the block, this thread is the worker of such a name, which no other one of its cluster has."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class Reading:
    """What a segment reads; for several threads.

    Parameters
    ----------
    writer : what parts say of the worker that does the segment.
    """

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self._cluster = _cluster_of(writer)
        self._rows = self._changed = 0
        self._lock = threading.Lock()

    @property
    def read(self) -> RowsRead:
        """What it has read so far."""
        with self._lock:
            return RowsRead(self._rows, self._changed)

    def add(self, rows: int, writer: str | None) -> None:
        """So many rows were read that somebody wrote; None: nobody says."""
        is_another = writer is not None and writer != self.writer and _cluster_of(writer) == self._cluster
        with self._lock:
            self._rows += rows
            self._changed += rows if is_another else 0

    def of(self, table: StoredTable) -> StoredTable:
        """The table, of which every row that is read counts."""
        from oocbe.tables.counted import CountedTable  # not for a process that has no workers

        return CountedTable(table, self.add)


@contextmanager
def reading(cluster: str) -> Iterator[None]:
    """Within the block, what this thread opens is counted, where it is a worker's.

    cluster : that it belongs to, as the writer of a part says it.
    """
    name = _name.get()
    token = _reading.set(None if name is None else Reading(f"{cluster} {name}"))
    try:
        yield
    finally:
        _reading.reset(token)


def own_reading() -> Reading | None:
    """What the segment of the innermost block of :func:`reading` reads; None where no worker does it."""
    return _reading.get()


def own_writer() -> str | None:
    """What parts that are written now say of their writer; None where no worker writes them."""
    found = _reading.get()
    return None if found is None else found.writer


def _cluster_of(writer: str) -> str:
    return writer.partition(" ")[0]
