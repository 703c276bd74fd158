"""Work of one worker on a segment of a bucket: computes one key range of a message and writes it as a part.

Code shared by all workers is in :mod:`oocbe.execution.cluster.segment_files`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from oocbe.elimination.buckets.resources import memory_within
from oocbe.elimination.engine.bucket_cuts import BucketJoin, BucketPiece
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.bucket_stream import BucketStream, PieceRoom
from oocbe.elimination.engine.substitutions import DominanceStream, Substitutions
from oocbe.elimination.preparation.scaling import scaled_by
from oocbe.execution.cluster.segment_files import PartResult, TableAt, WorkerConfig, active, opened, written_part
from oocbe.execution.sources import ChunkCache, InMemorySource, StoredRows
from oocbe.model.settings.machine import give_back_large_blocks
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables.table import Table


@dataclass(frozen=True)
class SentJoin:
    """A bucket's join as sent to a worker: without its tables, which are given by paths or by value."""

    join: BucketJoin
    tables: tuple[tuple[tuple[int, ...], TableAt | Table], ...]

    def opened(self, cache: ChunkCache) -> BucketJoin:
        """The join with opened tables."""
        tables = tuple(
            (members, InMemorySource(t) if isinstance(t, Table) else StoredRows(opened(t), cache))
            for members, t in self.tables
        )
        return replace(self.join, tables=tables)


@dataclass(frozen=True)
class JoinSegment:
    """A piece of a bucket to be joined.

    Attributes
    ----------
    circumstances : the worker's configuration. part : prefix of the path of the part to be written.
    join : the bucket. low, high, level : of the piece, as for :class:`BucketPiece`.
    row_limit, step_limit : as for :class:`BucketStream`.
    """

    circumstances: WorkerConfig
    part: Path
    join: SentJoin
    low: tuple[int, ...]
    high: tuple[int, ...]
    level: int
    row_limit: int
    step_limit: int


@dataclass(frozen=True)
class RestSegment:
    """Some chunks of a message, to be scaled and cleared of dominated rows.

    Attributes
    ----------
    circumstances, part : as for :class:`JoinSegment`.
    table : all rows. first, stop : range of chunks. exponent : of the power of two by which values are divided.
    substitutions, sign : as for :class:`DominanceStream`; None: no row is dominated.
    """

    circumstances: WorkerConfig
    part: Path
    table: TableAt
    first: int
    stop: int
    exponent: int
    substitutions: Substitutions | None
    sign: int


def join_segment(segment: JoinSegment) -> PartResult:
    """Join a piece of a bucket and write its rows; errors as for :class:`BucketStream`, and ClusterError."""
    begin = time.perf_counter()
    with _at_work(segment.circumstances, segment.part) as (engine, room):
        join = segment.join.opened(ChunkCache(int(room * tuning().cache_share)))
        piece = BucketPiece.of(join, segment.low, segment.high, segment.level)
        pieces = PieceRoom(room, engine.streams, engine.piece_rows)
        stream = BucketStream(piece, engine, pieces, segment.row_limit, segment.step_limit)
        with span(KERNELS, "segment", bucket=join.name), closing(stream.tables()) as made:
            part = written_part(segment.circumstances, segment.part, join.scope.layout, join.dtype, made, begin)
            return replace(part, pieces=stream.pieces)


def finish_segment(segment: RestSegment) -> PartResult:
    """Drop the dominated rows of some chunks, scale and write the others; errors as for join_segment."""
    begin = time.perf_counter()
    with _at_work(segment.circumstances, segment.part) as (engine, room):
        table = opened(segment.table)
        chunks = range(segment.first, segment.stop)
        if segment.substitutions is None:
            rows: Iterable[Table] = (table.read(table.chunk_start(c), table.chunk_start(c + 1)) for c in chunks)
        else:
            cache = ChunkCache(int(room * tuning().chunks_share))
            arguments = (segment.substitutions, segment.sign, cache, engine.streams, engine.deadline, chunks)
            rows = DominanceStream(table, *arguments).tables()
        scaled = (scaled_by(part, segment.exponent) for part in rows)
        return written_part(segment.circumstances, segment.part, table.layout, table.dtype, scaled, begin, 0)


@contextmanager
def _at_work(how: WorkerConfig, part: Path) -> Iterator[tuple[BucketEngine, int]]:
    """The engine of a segment, and the bytes for its rows; the work stops when the part is no longer needed."""
    with active(how, part) as deadline:
        assert how.backend is not None
        if how.memory is not None:
            give_back_large_blocks()  # as in a solve without workers; not in operators, whose pieces have equal sizes
        engine = BucketEngine(
            how.backend, how.device_memory, deadline=deadline, streams=how.streams, piece_rows=how.piece_rows
        )
        yield engine, memory_within(how.memory_limit)
