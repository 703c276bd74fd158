"""Code shared by all segments' workers: open tables, check whether the segment is still needed, write a part.

A worker receives the paths of tables and opens them itself. It writes an ordinary table beside the other parts
(:mod:`oocbe.tables.parts`), under a name unique to the attempt, and returns that name. If the folder of the parts is
missing, the segment is no longer needed: the requesting process has ended or abandoned it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import oocbe
from oocbe.errors import ClusterError, DiskError
from oocbe.execution.cluster.ownership import own_reading, own_writer, reading
from oocbe.execution.cluster.workers import DiskShareError, Workers
from oocbe.model.results.progress_curve import NOTHING_READ, RowsRead
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.limbs import greatest as greatest_count
from oocbe.tables.object_path import Place
from oocbe.tables.parts import PartWriter
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

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
    return part.with_name(f"{part.name}-{secrets.token_hex(4)}")


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
