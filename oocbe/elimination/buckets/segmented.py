"""A bucket cut into segments for workers: each worker joins a range of keys, and their parts form the message.

The message's rows are cut by their leading variables, like the pieces of one process but larger
(:mod:`oocbe.elimination.engine.bucket_stream`). A worker processes its segment as one process does the bucket, with
streams and pieces. So the rows and their order equal those of a run without workers, bit for bit, for any cuts.

1. Segments are joined. Without further processing, the list of parts is the message.
2. Dominance compares rows across the whole message, and scaling needs its largest value. For these the parts are listed
   as a scratch table first; then workers process runs of its chunks, and their new parts form the message.

The list is published at the very end. A killed process's files are removed, and the bucket is joined again. Code shared
by all workers is in :mod:`oocbe.execution.cluster.segment_files`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import memory_within
from oocbe.elimination.engine.bucket_engine import BucketEngine, TooManyRowsError
from oocbe.elimination.engine.bucket_stream import BucketJoin, BucketPiece, BucketStream, PieceRoom
from oocbe.elimination.engine.substitutions import DominanceStream, Substitutions
from oocbe.elimination.preparation.scaling import Extent, scaled_by
from oocbe.errors import ResourceError
from oocbe.execution.cluster.dispatch import Dispatch, ItemRanges, Pace, PartCollector, halved_run
from oocbe.execution.cluster.segment_files import PartResult, TableAt, WorkerConfig, active, opened, written_part
from oocbe.execution.cluster.workers import Workers
from oocbe.execution.sources import ChunkCache, InMemorySource, SortedRows, StoredRows
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import Indivisible, cut_to_fit
from oocbe.runtime.process_memory import give_back_large_blocks
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables.parts import PartsWriter
from oocbe.tables.stored import StoredTable
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
        join = segment.join.opened(ChunkCache(int(room * tuning().small_share)))
        piece = BucketPiece.of(join, segment.low, segment.high, segment.level)
        pieces = PieceRoom(room, engine.wanted_streams, engine.piece_rows)
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
            cache = ChunkCache(int(room * tuning().half_share))
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


@dataclass(frozen=True)
class SegmentedBucket:
    """Computes one bucket's message by workers.

    store : keeps the tables. engine : computes the buckets, and holds the workers.
    row_cap, step_limit : as for the forward pass.
    forecast : called with the joined share of the bucket, and the resulting rows and parts.
    """

    store: MessageStore
    engine: BucketEngine
    workers: Workers
    row_cap: int
    step_limit: int
    forecast: Callable[[float, int, int], None]

    def join(self, path: Path, join: BucketJoin) -> tuple[StoredTable, Extent]:
        """Join the bucket into a table of parts; returns it and the extent of its values.

        Raises TooManyRowsError: more rows than the cap; ClusterError: the workers cannot continue; ResourceError: a
        worker has no memory for an indivisible segment; DiskError, CorruptDataError and TimeLimitError as without
        workers.
        """
        with ExitStack() as stack:
            sent = _Sent(self.store, stack)
            layout, dtype = join.scope.layout, join.dtype
            budget = self.store.budget
            writer = stack.enter_context(
                PartsWriter(path, layout, dtype, join.semiring, limbs=join.limbs, budget=budget)
            )
            whole = BucketPiece.whole(join)
            variables = len(join.scope.separator)

            def added(done: float, rows: int, parts: int) -> None:
                if rows > self.row_cap:
                    raise TooManyRowsError(variables, self.row_cap)
                self.forecast(done, rows, parts)

            parts = PartCollector(writer, join.name, self.workers, added)

            def segment_of(piece: BucketPiece, sharing: int) -> JoinSegment:
                how = self._circumstances(join.head().row_bytes, sharing)
                ranges = (piece.low, piece.high, piece.level)
                limits = (self.row_cap, self.step_limit)
                return JoinSegment(how, writer.part_path(), sent.join(piece), *ranges, *limits)

            def done(piece: BucketPiece, made: PartResult) -> None:
                pieces.pace.learn(piece.share, made.seconds)
                parts.add(piece.share, made)

            pieces = _Pieces(whole, self.workers)
            # The loops' type parameters, so that the loops are compiled once.
            kind = ("join", layout.words, dtype, join.semiring, join.limbs > 0, join.bound is None)
            deadline = self.engine.deadline
            Dispatch(join.name, self.workers, join_segment, segment_of, done, _halves, deadline, kind).run(pieces)
        return StoredTable.open(path), Extent(parts.least, parts.greatest)

    def finish(
        self, path: Path, table: StoredTable, name: str, exponent: int, substitutions: Substitutions | None, sign: int
    ) -> StoredTable:
        """A joined message without dominated rows, divided by 2 ** exponent, as a table of parts.

        substitutions : None if no row is dominated. sign : as for :class:`DominanceStream`. Errors as for join.
        """
        at = TableAt.of(table)
        row_bytes = 8 * table.layout.words + table.dtype.itemsize
        with PartsWriter(path, table.layout, table.dtype, table.semiring, budget=self.store.budget) as writer:
            parts = PartCollector(writer, f"{name}, the rest", self.workers)
            chunks = ItemRanges(range(table.chunk_count + 1), self.workers)

            def segment_of(run: range, sharing: int) -> RestSegment:
                how = self._circumstances(row_bytes, sharing)
                return RestSegment(how, writer.part_path(), at, run.start, run.stop, exponent, substitutions, sign)

            def done(run: range, made: PartResult) -> None:
                parts.add(chunks.learn(run, made.seconds), made)

            def halves(run: range, error: Exception) -> Iterable[range]:
                return halved_run(run, error, "a chunk of a message")

            deadline = self.engine.deadline
            Dispatch(name, self.workers, finish_segment, segment_of, done, halves, deadline).run(chunks)
        return StoredTable.open(path)

    def _circumstances(self, row_bytes: int, sharing: int) -> WorkerConfig:
        engine = self.engine
        return WorkerConfig.of(
            self.workers,
            engine.deadline,
            self.store.budget,
            sharing,
            self.store.rows_a_chunk(row_bytes),
            backend=engine.backend,
            device_memory=engine.device_memory,
            streams=None if engine.piece_rows is None else engine.streams,
            piece_rows=engine.piece_rows,
        )


class _Sent:
    """The joins sent with segments, without rows: tables in memory are written to disk while the block lasts."""

    def __init__(self, store: MessageStore, stack: ExitStack) -> None:
        self._store, self._stack = store, stack
        self._tables: dict[int, TableAt | Table] = {}
        self._joins: dict[int, tuple[BucketJoin, SentJoin]] = {}

    def join(self, piece: BucketPiece) -> SentJoin:
        """The join that a piece belongs to."""
        join = piece.join
        if id(join) not in self._joins:
            builder, constraints, functions = join.builder.for_factors(join.constraints, join.functions)
            tables = tuple((members, self._table(source)) for members, source in join.tables)
            factors = replace(join, constraints=tuple(constraints), functions=tuple(functions))
            self._joins[id(join)] = join, SentJoin(replace(factors, builder=builder, tables=()), tables)
        return self._joins[id(join)][1]

    def _table(self, source: SortedRows) -> TableAt | Table:
        if id(source) not in self._tables:
            table = source.table
            if isinstance(source, InMemorySource) and isinstance(table, Table):
                if table.nbytes <= tuning().small_bytes:
                    return table
                table = self._store.write_scratch(table, [table])
                self._stack.callback(self._store.remove_scratch, table)
            assert isinstance(table, StoredTable)
            self._tables[id(source)] = TableAt.of(table)
        return self._tables[id(source)]


class _Pieces:
    """Pieces of a bucket, cut on demand in the size of the next segment."""

    def __init__(self, whole: BucketPiece, workers: Workers) -> None:
        self._left, self._workers = 1.0, workers
        self.pace = Pace()
        self._pieces = cut_to_fit(whole, self._cut, self._fits)

    def __iter__(self) -> Iterator[BucketPiece]:
        return self

    def __next__(self) -> BucketPiece:
        for piece in self._pieces:
            self._left -= piece.share
            if not piece.is_empty:
                return piece
        raise StopIteration

    def _fits(self, piece: BucketPiece) -> bool:
        return piece.is_empty or piece.share <= self.pace.wanted(self._left, self._workers.count)

    def _cut(self, piece: BucketPiece) -> Iterable[BucketPiece] | Indivisible[BucketPiece]:
        halves = piece.halves()
        if not isinstance(halves, Indivisible) and not halves:
            self._left -= piece.share
        return halves


def _halves(piece: BucketPiece, error: Exception) -> Iterable[BucketPiece]:
    halves = piece.halves()
    if isinstance(halves, Indivisible):
        raise ResourceError(f"{halves.reason}: {error}") from error
    return halves
