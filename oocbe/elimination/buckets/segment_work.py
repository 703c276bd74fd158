"""What a worker is told of a segment, and does: the rows of one range of keys of a message, written as a part.

A worker is told where tables lie, and opens them itself; small ones are sent. It writes an ordinary table beside the
others' parts (:mod:`oocbe.tables.parts`), below a name that no other attempt has, and answers with that name. Where the
folder of the parts is gone, nobody wants the segment any more: whoever asked has ended, or has given up.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import oocbe
from oocbe.bucket_engine.bucket_cuts import BucketJoin, BucketPiece
from oocbe.bucket_engine.bucket_engine import BucketEngine
from oocbe.bucket_engine.bucket_stream import BucketStream, PieceRoom
from oocbe.bucket_engine.dominance_stream import DominanceStream
from oocbe.bucket_engine.factors import PackedFactor
from oocbe.bucket_engine.join_program import BucketScope, ProgramBuilder
from oocbe.bucket_engine.row_pruning import RowPruning
from oocbe.bucket_engine.substitutions import Substitutions
from oocbe.elimination.buckets.resources import memory_within
from oocbe.elimination.preparation.scaling import scaled_by
from oocbe.errors import ClusterError
from oocbe.model.semiring import Semiring
from oocbe.settings.machine import default_memory_limit, give_back_large_blocks
from oocbe.settings.tuning import tuning
from oocbe.streaming.sources import ChunkCache, HeldRows, StoredRows
from oocbe.system.deadline import Deadline
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.limbs import greatest as greatest_count
from oocbe.tables.parts import PartWriter
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tracing.recorder import KERNELS, span

WANTED_SECONDS = 0.2
"""So often a worker looks whether its segment is still wanted."""

MOST_OPENED = 32
"""Tables that a worker keeps open: the next segments are mostly of the same bucket."""


@dataclass(frozen=True)
class TableAt:
    """A table on disk: where, and the checksum of its manifest."""

    path: Path
    checksum: int


@dataclass(frozen=True)
class Circumstances:
    """How workers are to work.

    Attributes
    ----------
    version : of this program. backend, device_memory, streams, piece_rows : as for :class:`BucketEngine`.
    memory : limit of a host in bytes; None: what follows from each machine. share : of it, for one worker.
    seconds : that are left; None: any number. chunk_rows : rows of a chunk of a part.
    disk : bytes that may still be written; None: any number.
    """

    version: str
    backend: str
    device_memory: int | None
    streams: int | None
    piece_rows: int | None
    memory: int | None
    share: float
    seconds: float | None
    chunk_rows: int
    disk: int | None


@dataclass(frozen=True)
class SentJoin:
    """A bucket's join as it is sent: the fields of :class:`BucketJoin`, tables by where they lie or themselves."""

    builder: ProgramBuilder
    scope: BucketScope
    tables: tuple[tuple[tuple[int, ...], TableAt | Table], ...]
    constraints: tuple[PackedFactor, ...]
    functions: tuple[PackedFactor, ...]
    pruning: RowPruning | None
    semiring: Semiring
    dtype: np.dtype[np.generic]
    rows: int
    name: str
    limbs: int

    def opened(self, cache: ChunkCache) -> BucketJoin:
        """The join, its tables opened."""
        tables = tuple(
            (members, HeldRows(t) if isinstance(t, Table) else StoredRows(opened(t), cache))
            for members, t in self.tables
        )
        factors = (self.constraints, self.functions, self.pruning)
        values = (self.semiring, self.dtype)
        return BucketJoin(self.builder, self.scope, tables, *factors, *values, self.rows, self.name, self.limbs)


@dataclass(frozen=True)
class JoinSegment:
    """A piece of a bucket to be joined.

    Attributes
    ----------
    circumstances : how. part : beginning of the path of the part to be written.
    join : the bucket. low, high, level : of the piece, as for :class:`BucketPiece`.
    row_limit, step_limit : as for :class:`BucketStream`. finish : makes the message's values of those joined.
    """

    circumstances: Circumstances
    part: Path
    join: SentJoin
    low: tuple[int, ...]
    high: tuple[int, ...]
    level: int
    row_limit: int
    step_limit: int
    finish: Callable[[Table], Table]


@dataclass(frozen=True)
class RestSegment:
    """Some chunks of a message whose dominated rows are to be dropped, and which is to be scaled.

    Attributes
    ----------
    circumstances, part : as for :class:`JoinSegment`.
    table : all rows. first, stop : chunks. exponent : of the power of two that values are divided by.
    substitutions, sign : as for :class:`DominanceStream`; None: no row is dominated.
    """

    circumstances: Circumstances
    part: Path
    table: TableAt
    first: int
    stop: int
    exponent: int
    substitutions: Substitutions | None
    sign: int


@dataclass(frozen=True)
class MadePart:
    """What came of a segment.

    Attributes
    ----------
    name : of the part's folder; None where there are no rows. rows : of it. least, greatest : of its values.
    seconds : that it took. pieces : joined. worker : host, process and thread that did it.
    began : when, on the clock of the worker's host (:func:`time.time_ns`).
    """

    name: str | None
    rows: int
    least: float
    greatest: float
    seconds: float
    pieces: int
    worker: str
    began: int


def join_segment(told: JoinSegment) -> MadePart:
    """Join a piece of a bucket and write its rows; errors as for :class:`BucketStream`, and ClusterError."""
    begin = time.perf_counter()
    with _at_work(told.circumstances, told.part) as (engine, room):
        join = told.join.opened(ChunkCache(int(room * tuning().cache_share)))
        piece = BucketPiece.of(join, told.low, told.high, told.level)
        pieces = PieceRoom(room, engine.streams, engine.piece_rows)
        stream = BucketStream(piece, engine, pieces, told.row_limit, told.step_limit)
        with span(KERNELS, "segment", bucket=join.name), closing(stream.tables()) as made:
            return _written(told, join.scope.layout, join.dtype, map(told.finish, made), begin, stream)


def finish_segment(told: RestSegment) -> MadePart:
    """Drop the dominated rows of some chunks, scale what is left, and write it; errors as for join_segment."""
    begin = time.perf_counter()
    with _at_work(told.circumstances, told.part) as (engine, room):
        table = opened(told.table)
        chunks = range(told.first, told.stop)
        if told.substitutions is None:
            rows: Iterable[Table] = (table.read(table.chunk_start(c), table.chunk_start(c + 1)) for c in chunks)
        else:
            cache = ChunkCache(int(room * tuning().chunks_share))
            arguments = (told.substitutions, told.sign, cache, engine.streams, engine.deadline, chunks)
            rows = DominanceStream(table, *arguments).tables()
        scaled = (scaled_by(part, told.exponent) for part in rows)
        return _written(told, table.layout, table.dtype, scaled, begin, None)


def opened(at: TableAt) -> StoredTable:
    """A table that another process has written, opened once; ClusterError where it is not there."""
    key = (at.path, at.checksum)
    with _opening:
        found = _opened.pop(key, None)
        if found is None:
            if not at.path.is_dir():
                raise _not_shared(at.path)
            found = StoredTable.open(at.path)
            if found.manifest_checksum != at.checksum:
                raise ClusterError(f"{socket.gethostname()} finds another table in {at.path} than was written there")
        _opened[key] = found
        if len(_opened) > MOST_OPENED:
            _opened.popitem(last=False)
        return found


_opened: OrderedDict[tuple[Path, int], StoredTable] = OrderedDict()
_opening = threading.Lock()


@contextmanager
def _at_work(how: Circumstances, part: Path) -> Iterator[tuple[BucketEngine, int]]:
    """The engine of a segment, and the bytes that its rows may take; it ends when nobody wants the part any more."""
    if how.version != oocbe.__version__:
        raise ClusterError(
            f"a worker on {socket.gethostname()} has version {oocbe.__version__} of oocbe, and was asked by version "
            f"{how.version}: install the same on all hosts"
        )
    if not part.parent.is_dir():
        raise _not_shared(part.parent)
    limit = default_memory_limit() if how.memory is None else how.memory
    if how.memory is not None:
        give_back_large_blocks()
    ended = threading.Event()
    with Deadline(how.seconds) as deadline:
        watcher = threading.Thread(target=_watch, args=(part.parent, deadline, ended), name="oocbe-wanted", daemon=True)
        watcher.start()
        try:
            engine = BucketEngine(
                how.backend, how.device_memory, deadline=deadline, streams=how.streams, piece_rows=how.piece_rows
            )
            yield engine, memory_within(int(limit * how.share))
        finally:
            ended.set()
            watcher.join()


def _watch(folder: Path, deadline: Deadline, ended: threading.Event) -> None:
    """Have a segment end when the folder of its part is gone."""
    while not ended.wait(WANTED_SECONDS):
        if not folder.is_dir():
            deadline.interrupt()
            return


def _not_shared(path: Path) -> ClusterError:
    return ClusterError(
        f"{socket.gethostname()} does not see {path}: workers and this program exchange tables through files. Name a "
        "--workdir that all hosts see under one path"
    )


def _written(
    told: JoinSegment | RestSegment,
    layout: Layout,
    dtype: np.dtype[np.generic],
    tables: Iterable[Table],
    begin: float,
    stream: BucketStream | None,
) -> MadePart:
    """Write sorted tables end to end as the part; nothing where there are no rows."""
    how, name, rows = told.circumstances, None, 0
    least, greatest = np.inf, -np.inf
    tables = iter(tables)
    first = next(tables, None)
    if first is not None:
        path = told.part.with_name(f"{told.part.name}-{secrets.token_hex(4)}")
        name = path.name
        budget = DiskBudget(path.parent, how.disk)
        semiring, chunk_rows = first.semiring, how.chunk_rows
        with PartWriter(path, layout, dtype, semiring, chunk_rows, budget=budget, limbs=first.limbs) as writer:
            table: Table | None = first
            del first
            while table is not None:
                values = table.values
                least = min(least, 0 if table.limbs else values.min().item())
                greatest = max(greatest, greatest_count(values) if table.limbs else values.max().item())
                writer.append(table.keys, table.values)
                table = next(tables, None)
            rows = writer.rows
    seconds = time.perf_counter() - begin
    began = time.time_ns() - int(seconds * 1e9)
    worker = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    return MadePart(name, rows, least, greatest, seconds, stream.pieces if stream else 0, worker, began)
