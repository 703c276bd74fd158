"""Code shared by all segments' workers: open tables, check whether the segment is still needed, write a part.

A worker receives the paths of tables and opens them itself. It writes an ordinary table beside the other parts
(:mod:`oocbe.tables.parts`), under a name unique to the attempt, and returns that name. If the folder of the parts is
missing, the segment is no longer needed: the requesting process has ended or abandoned it.

Rows stay in place if the worker that wrote them reads them again; rows read by another one move between devices,
processes or hosts. So each part records its *writer* (the cluster and the worker's name there), and each segment counts
the rows it reads. Rows without a recorded writer belong to no worker: those of older files, of the calling process, and
of workers of another cluster.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oocbe
from oocbe.errors import ClusterError, DiskError
from oocbe.execution.cluster.workers import DiskShareError, Workers
from oocbe.model.results.progress_curve import NOTHING_READ, RowsRead
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.numbers import greatest as greatest_count
from oocbe.tables.object_path import Place
from oocbe.tables.parts import PartWriter
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


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


WANTED_SECONDS = 0.2
"""Interval between checks whether a segment is still needed, in seconds."""


@dataclass(frozen=True)
class TableAt:
    """A table on disk: its path, and the checksum of its manifest."""

    path: Place
    checksum: int

    @classmethod
    def of(cls, table: StoredTable) -> TableAt:
        """The location of a table."""
        return cls(table.path.absolute(), table.manifest_checksum)


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Configuration of workers.

    version : of this program. backend : name of the kernels, or None; device_memory, streams, piece_rows : as in one
        process.
    memory : limit of a host in bytes; None: derived from each machine. share : of it, for one worker.
    seconds : remaining time; None: no limit. chunk_rows : maximum rows of a chunk of a part.
    disk : limit of the segment's files in bytes; None: no limit. is_scratch : True if the part may be deleted when the
        requesting process ends (:class:`oocbe.tables.disk_budget.DiskBudget`).
    cluster : of the workers (:class:`oocbe.execution.cluster.workers.Workers`).
    """

    version: str
    backend: str | None = None
    device_memory: int | None = None
    streams: int | None = None
    piece_rows: int | None = None
    memory: int | None
    share: float
    seconds: float | None
    chunk_rows: int
    disk: int | None
    is_scratch: bool
    cluster: str

    @classmethod
    def of(
        cls,
        workers: Workers,
        deadline: Deadline,
        disk: DiskBudget,
        sharing: int,
        chunk_rows: int = 1,
        *,
        memory: int | None = None,
        **kernels: Any,
    ) -> WorkerConfig:
        """Configuration of the next segment's worker.

        disk : limit of all segments together. sharing : maximum number of concurrent ones, which get equal shares.
        memory : of a host; None: that of the workers. kernels : ``backend``, ``device_memory``, ``streams`` and
            ``piece_rows``.
        """
        return cls(
            version=oocbe.__version__,
            **kernels,
            memory=workers.memory if memory is None else memory,
            share=workers.worker_share,
            seconds=None if deadline.remaining == inf else deadline.remaining,
            chunk_rows=chunk_rows,
            disk=None if disk.limit is None else disk.allowed // sharing,
            is_scratch=disk.is_scratch,
            cluster=workers.cluster,
        )

    @property
    def memory_limit(self) -> int:
        """Memory limit of this worker in bytes."""
        return int((default_memory_limit() if self.memory is None else self.memory) * self.share)


@dataclass(frozen=True)
class PartResult:
    """Result of a segment.

    name : of the part's folder; None without rows. rows : of it. least, greatest : of its values.
    seconds : its time. pieces : number of joined ones. worker : its host, process and thread.
    began : start on the clock of the worker's host (:func:`time.time_ns`).
    read : rows read from stored tables; none if the calling process did the segment itself.
    """

    name: str | None
    rows: int
    least: float
    greatest: float
    seconds: float
    pieces: int
    worker: str
    began: int
    read: RowsRead = NOTHING_READ

    @classmethod
    def since(
        cls, begin: float, name: str | None, rows: int, extent: tuple[float, float], pieces: int = 0
    ) -> PartResult:
        """Result of this thread's work since a moment (:func:`time.perf_counter`)."""
        seconds = time.perf_counter() - begin
        worker = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
        own = own_reading()
        read = NOTHING_READ if own is None else own.read
        return cls(name, rows, *extent, seconds, pieces, worker, time.time_ns() - int(seconds * 1e9), read)


NO_VALUES = float(np.inf), float(-np.inf)
"""Least and greatest value of an empty part."""


def opened(at: TableAt) -> StoredTable:
    """Another process's table, opened once, with reads counted in workers; ClusterError if it is missing."""
    key = (at.path, at.checksum)
    with _opening:
        found = _opened.pop(key, None)
        if found is None:
            if not at.path.is_dir():
                raise not_shared(at.path)
            found = StoredTable.open(at.path)
            if found.manifest_checksum != at.checksum:
                raise ClusterError(f"{socket.gethostname()} finds another table in {at.path} than was written there")
        _opened[key] = found
        if len(_opened) > tuning().cached:
            _opened.popitem(last=False)
    own = own_reading()
    return found if own is None else own.of(found)


_opened: OrderedDict[tuple[Place, int], StoredTable] = OrderedDict()
_opening = threading.Lock()


@contextmanager
def active(how: WorkerConfig, part: Path) -> Iterator[Deadline]:
    """The deadline of a segment, which ends as soon as its part is no longer needed; its reads are counted.

    Raises ClusterError: the caller has another version of this program, or the folder of the parts is missing.
    """
    if how.version != oocbe.__version__:
        raise ClusterError(
            f"a worker on {socket.gethostname()} has version {oocbe.__version__} of oocbe, and was asked by version "
            f"{how.version}: install the same on all hosts"
        )
    if not part.parent.is_dir():
        raise not_shared(part.parent)
    ended = threading.Event()
    with Deadline(how.seconds) as deadline, reading(how.cluster):
        watcher = threading.Thread(target=_watch, args=(part.parent, deadline, ended), name="oocbe-wanted", daemon=True)
        watcher.start()
        try:
            yield deadline
        finally:
            ended.set()
            watcher.join()


def _watch(folder: Path, deadline: Deadline, ended: threading.Event) -> None:
    """End a segment when the folder of its part disappears."""
    while not ended.wait(WANTED_SECONDS):
        if not folder.is_dir():
            deadline.interrupt()
            return


def not_shared(path: Place) -> ClusterError:
    """The error of a worker that does not see a folder."""
    return ClusterError(
        f"{socket.gethostname()} does not see {path}: workers and this program exchange tables through files. Name a "
        "--workdir (scratch and output of an operator) that all hosts see under one path"
    )


def attempt_path(part: Path) -> Path:
    """Path of a part, unique to this attempt."""
    return part.with_name(f"{part.name}-{os.urandom(4).hex()}")


class DiskShare(DiskBudget):
    """One segment's share of the disk budget; :class:`DiskShareError` if it would write more."""

    def take(self, count: int, path: Path | str) -> None:
        """Count a file's bytes; see :class:`oocbe.tables.disk_budget.DiskBudget`."""
        try:
            super().take(count, path)
        except DiskError as error:
            raise DiskShareError(str(error), is_full=True) from None


def part_writer(
    how: WorkerConfig,
    path: Path,
    layout: Layout,
    dtype: np.dtype[np.generic],
    semiring: Semiring,
    chunk_rows: int,
    limbs: int = 0,
) -> PartWriter:
    """Writer of a part, with the segment's share of the disk; errors as for :func:`written_part`."""
    budget = DiskShare(path.parent, how.disk, how.is_scratch)
    writer = PartWriter(path, layout, dtype, semiring, chunk_rows=chunk_rows, budget=budget, limbs=limbs)
    writer.writer = own_writer()
    return writer


def written_part(
    how: WorkerConfig,
    part: Path,
    layout: Layout,
    dtype: np.dtype[np.generic],
    tables: Iterable[Table],
    begin: float,
    pieces: int | None = None,
) -> PartResult:
    """Write the concatenation of tables as the part; nothing if there are no rows.

    part : prefix of its path. begin : start of the segment. pieces : of the segment; None: the number of tables.
    Raises DiskError: the disk is full; DiskShareError : the segment's share of it is.
    """
    name, rows, many = None, 0, 0
    least, greatest = NO_VALUES
    tables = iter(tables)
    first = next(tables, None)
    if first is not None:
        path = attempt_path(part)
        name = path.name
        with part_writer(how, path, layout, dtype, first.semiring, how.chunk_rows, first.limbs) as writer:
            table: Table | None = first
            del first
            while table is not None:
                values = table.values
                least = min(least, 0 if table.limbs else values.min().item())
                greatest = max(greatest, greatest_count(values) if table.limbs else values.max().item())
                writer.append(table.keys, table.values)
                many += 1
                table = next(tables, None)
            rows = writer.rows
    return PartResult.since(begin, name, rows, (least, greatest), many if pieces is None else pieces)
