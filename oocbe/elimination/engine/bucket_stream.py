"""Join a bucket in pieces on several streams: tables are read by key range, results are yielded in key order.

Each piece runs on a stream (:mod:`oocbe.execution.pipeline`): a thread that reads, decodes and joins its rows, while
other streams process other pieces and the caller encodes and writes earlier results. On the CPU the stream's thread
joins the piece. The device joins one piece at a time, while the other streams read or pass on results.

The number of rows of a piece's result is not known in advance. Piece sizes adapt to earlier results. A piece that
produces more rows than fit, or whose memory allocation fails, is halved repeatedly (:mod:`oocbe.runtime.pieces`).

A piece is a range of keys, cut by the leading variables, whose rows of all tables fit in memory. All tables of a bucket
use the same variable order (elimination-order layout). The join walks the separator from its most significant variables
down, in runs (*levels*) of variables that belong to the same tables. So a range of the first level's values is a range
of rows in each of its tables, while the other tables keep all rows. If one value alone is too large, the next level is
cut in the same way. The concatenated messages of the pieces are the bucket's sorted message.

A level without tables enumerates a variable's values. To cut there, a neutral table over that variable and the
eliminated one is added: it has every row, and its values are the semiring's one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock

import numpy as np

from oocbe.elimination.engine.bucket_engine import (
    NO_LIMIT,
    BucketEngine,
    TooManyRowsError,
    TooManyStepsError,
    streams_for,
)
from oocbe.elimination.engine.factors import PackedFactor
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.elimination.row_pruning.row_bounds import RowBound
from oocbe.errors import DiskError, ResourceError
from oocbe.execution.pipeline import StreamedPiece, run_in_order
from oocbe.execution.sources import InMemorySource, SortedRows
from oocbe.kernels.cpu.buckets.join_arrays import JoinProgram
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import Indivisible, cut_to_fit, run_piece
from oocbe.tables.layout import WORD_BITS, Layout, Schema
from oocbe.tables.table import Table


@dataclass(frozen=True)
class BucketJoin:
    """The inputs of a bucket's join.

    builder : makes its programs. scope : its variables.
    tables : scope (variable indices, the eliminated one first) and rows of each table.
    constraints, functions, bound : as for :meth:`ProgramBuilder.build`. semiring, dtype : of the message's values.
    rows : of the largest table. name : of the bucket, for error messages. limbs : as for :meth:`ProgramBuilder.build`.
    """

    builder: ProgramBuilder
    scope: BucketScope
    tables: tuple[tuple[tuple[int, ...], SortedRows], ...]
    constraints: Sequence[PackedFactor]
    functions: Sequence[PackedFactor]
    bound: RowBound | None
    semiring: Semiring
    dtype: np.dtype[np.generic]
    rows: int
    name: str
    limbs: int = 0

    def program(self) -> JoinProgram:
        """The program that joins all tables, or row ranges of them."""
        layouts = [(members, source.layout) for members, source in self.tables]
        factors = (self.constraints, self.functions)
        return self.builder.build(self.scope, layouts, *factors, self.rows, self.bound, self.limbs)

    @property
    def schema(self) -> Schema:
        """Type of the values of the join's result."""
        return Schema(self.scope.layout, np.dtype(self.dtype), self.semiring)

    def head(self) -> Table:
        """An empty table with the layout, dtype and semiring of the join's result."""
        layout = self.scope.layout
        keys = np.empty((layout.words, 0), dtype=np.uint64)
        values = np.empty((0, self.limbs) if self.limbs else 0, dtype=self.dtype)
        return Table(layout, keys, values, self.semiring, is_sorted=True)

    def with_every_value(self, variable: int, size: int) -> BucketJoin:
        """This join with an additional neutral table over the eliminated variable and another one."""
        layout = Layout(("eliminated", "enumerated"), (self.scope.size, size))
        tuples = np.indices((size, self.scope.size)).reshape(2, -1)[::-1].T
        values = np.full(len(tuples), self.semiring.one, dtype=self.dtype)
        table = Table(layout, layout.pack(tuples), values, self.semiring, is_sorted=True)
        return replace(self, tables=(*self.tables, ((self.scope.variable, variable), InMemorySource(table))))


@dataclass(frozen=True)
class _TableField:
    """A table of a level: its index, and the position of the level's field in its key."""

    table: int
    shift: int


class _Levels:
    """A join, its program, and the levels at which it can be cut."""

    def __init__(self, join: BucketJoin) -> None:
        self.join = join
        self.program = program = join.program()
        runs = program.runs
        word, shift, size, start = (a.tolist() for a in (runs.word, runs.shift, runs.size, runs.part_start))
        self.bits = [mask.bit_length() for mask in runs.mask.tolist()]
        places = zip(runs.part_table.tolist(), runs.part_word.tolist(), runs.part_shift.tolist(), strict=True)
        fields = [_TableField(table, WORD_BITS * part_word + part_shift) for table, part_word, part_shift in places]
        self.fields = [fields[start[level] : start[level + 1]] for level in range(program.levels)]
        variable_at = {
            (f.word, f.shift): v for v, f in zip(join.scope.separator, join.scope.layout.fields, strict=True)
        }
        # A level without a table has one variable; for levels with tables the variable is not used.
        self._enumerated = [(variable_at[w, s], n) if n else None for w, s, n in zip(word, shift, size, strict=True)]
        self._wider: dict[int, _Levels] = {}

    def with_every_value(self, level: int) -> _Levels:
        """These levels with a table for the variable that one of them enumerates; cached."""
        if level not in self._wider:
            enumerated = self._enumerated[level]
            assert enumerated is not None
            self._wider[level] = _Levels(self.join.with_every_value(*enumerated))
        return self._wider[level]


@dataclass(frozen=True)
class BucketPiece:
    """A piece of a bucket: a range of rows of each table.

    levels : of the join that the tables belong to. low, high : row ranges.
    level : first level that may have more than one value in them.
    share : the piece's share of the whole bucket, estimated from rows of the tables by which it was cut.
    """

    levels: _Levels = field(repr=False)
    low: tuple[int, ...]
    high: tuple[int, ...]
    level: int = 0
    share: float = 1.0

    @classmethod
    def whole(cls, join: BucketJoin) -> BucketPiece:
        """All rows."""
        return cls(_Levels(join), tuple(0 for _ in join.tables), tuple(s.rows for _, s in join.tables))

    @classmethod
    def of(cls, join: BucketJoin, low: Sequence[int], high: Sequence[int], level: int) -> BucketPiece:
        """A piece cut from the same join by another process; it is the whole work of this process."""
        return cls(_Levels(join), tuple(low), tuple(high), level)

    @property
    def join(self) -> BucketJoin:
        """The join of its tables."""
        return self.levels.join

    @property
    def program(self) -> JoinProgram:
        """The program that joins the piece's tables."""
        return self.levels.program

    @property
    def sources(self) -> list[SortedRows]:
        """The tables."""
        return [source for _, source in self.levels.join.tables]

    @property
    def most_rows(self) -> int:
        """Rows of the table that has the most."""
        return max((high - low for low, high in zip(self.low, self.high, strict=True)), default=0)

    @property
    def is_empty(self) -> bool:
        """Whether a table has no rows in the piece; the join is then empty."""
        return any(low >= high for low, high in zip(self.low, self.high, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        ranges = zip(self.low, self.high, self.sources, strict=True)
        return sum((high - low) * source.row_bytes for low, high, source in ranges)

    def tables(self) -> list[Table]:
        """The rows, read."""
        return [s.read(low, high) for s, low, high in zip(self.sources, self.low, self.high, strict=True)]

    def halves(self) -> tuple[BucketPiece, ...] | Indivisible[BucketPiece]:
        """The piece's halves by key, without rows that lack partners in the level; none if the join must be empty."""
        piece = self
        while not piece.is_empty and piece.level < piece.program.levels:
            if not piece.levels.fields[piece.level]:
                piece = piece._with_every_value()
            first, last = piece._values()
            if first > last:
                return ()
            piece = piece._between(first, last + 1)
            if first == last:
                piece = replace(piece, level=piece.level + 1)
                continue
            middle, table = piece._middle(first, last)
            halves = [piece._between(first, middle), piece._between(middle, last + 1)]
            rows = [half.high[table] - half.low[table] for half in halves]
            shares = [self.share * count / max(1, sum(rows)) for count in rows]
            return tuple(replace(half, share=share) for half, share in zip(halves, shares, strict=True))
        return () if piece.is_empty else Indivisible(piece, f"{self.levels.join.name}: one row of its message")

    def _with_every_value(self) -> BucketPiece:
        levels = self.levels.with_every_value(self.level)
        rows = levels.join.tables[-1][1].rows
        return BucketPiece(levels, (*self.low, 0), (*self.high, rows), self.level, self.share)

    def _values(self) -> tuple[int, int]:
        """Least and greatest value of the level's field that all its tables may have in common."""
        mask = (1 << self.levels.bits[self.level]) - 1
        fields, sources = self.levels.fields[self.level], self.sources
        first = max(sources[f.table].key(self.low[f.table]) >> f.shift & mask for f in fields)
        last = min(sources[f.table].key(self.high[f.table] - 1) >> f.shift & mask for f in fields)
        return first, last

    def _middle(self, first: int, last: int) -> tuple[int, int]:
        """Value of the field that cuts the table with the most bytes into about equal halves, and the table's index."""
        sources = self.sources
        sizes = [
            ((self.high[f.table] - self.low[f.table]) * sources[f.table].row_bytes, f)
            for f in self.levels.fields[self.level]
        ]
        _, field = max(sizes, key=lambda pair: pair[0])
        low, high = self.low[field.table], self.high[field.table]
        mask = (1 << self.levels.bits[self.level]) - 1
        value = sources[field.table].key((low + high) // 2) >> field.shift & mask
        return min(max(value, first + 1), last), field.table

    def _between(self, first: int, stop: int) -> BucketPiece:
        """Rows whose field is ``first`` or above, and below ``stop``."""
        low, high = list(self.low), list(self.high)
        for f in self.levels.fields[self.level]:
            source, bounds = self.sources[f.table], (self.low[f.table], self.high[f.table])
            if bounds[0] == bounds[1]:
                continue
            above = f.shift + self.levels.bits[self.level]
            prefix = source.key(bounds[0]) >> above << above
            low[f.table] = source.place(prefix | first << f.shift, *bounds)
            high[f.table] = source.place(prefix + (stop << f.shift), *bounds)
        return replace(self, low=tuple(low), high=tuple(high))


@dataclass(frozen=True)
class PieceRoom:
    """Limits of a piece's size.

    room : bytes for all streams together.
    wanted : number of concurrent pieces; None: one a thread, if their rows have :attr:`Tuning.least_piece` bytes, but
        at least 2.
    piece_rows : most rows of a table in a piece, and of a result; None: as many as fit.
    """

    room: int
    wanted: int | None
    piece_rows: int | None = None

    @cached_property
    def streams(self) -> int:
        """Number of concurrent pieces."""
        fitting = int(self.room * tuning().pieces_share * tuning().quarter_share) // tuning().least_piece
        return self.wanted or max(2, min(fitting, streams_for(None)))

    @property
    def _piece(self) -> float:
        return self.room * tuning().pieces_share / self.streams

    @property
    def input_bytes(self) -> int:
        """Bytes of a piece's rows."""
        return int(self._piece * tuning().quarter_share)

    def result_rows(self, row_bytes: int) -> int:
        """Maximum rows of a piece's result; at least one."""
        numbers = tuning()
        room = int(self._piece * (1 - 2 * numbers.quarter_share))
        rows = max(1, room // (numbers.piece_copies * row_bytes))
        return rows if self.piece_rows is None else min(rows, self.piece_rows)


class BucketStream:
    """A bucket, or a large piece of one, joined in pieces.

    whole : the piece to join. engine : computes its parts.
    room : limits of their size. row_limit : of all pieces together. step_limit : of each.
    pieces : joined so far, without those that were halved. rows : yielded so far.
    done : approximate share of the bucket that has been joined. made : resulting rows.
    """

    def __init__(
        self,
        whole: BucketPiece,
        engine: BucketEngine,
        room: PieceRoom,
        row_limit: int = NO_LIMIT,
        step_limit: int = NO_LIMIT,
    ) -> None:
        self._whole, self._join, self._engine, self._room = whole, whole.join, engine, room
        self._row_limit, self._step_limit = row_limit, step_limit
        self._result_rows = room.result_rows(self._join.head().row_bytes)
        self._input_bytes = room.input_bytes
        if engine.uses_device:
            self._input_bytes = min(self._input_bytes, engine.piece_bytes())
        self._lock = Lock()
        self._most_bytes = float(self._input_bytes)
        # A join of functions alone has no table bytes by which to cut, and one stream would do everything.
        self._first_share = self._most_share = 1 / (tuning().under_way * room.streams)
        self.pieces = self.rows = self.made = 0
        self.done = 0.0

    def tables(self) -> Generator[Table, None, None]:
        """The message's rows, sorted, in tables in main memory.

        Raises TooManyRowsError: more than the limit; TimeLimitError: the engine's deadline passed; ResourceError: a
        memory allocation failed for an indivisible piece; CorruptDataError: a table on disk is damaged.
        """
        with closing(run_in_order(self._pieces(), self._room.streams)) as results:
            for table in results:
                self.rows += table.rows
                if self.rows > self._row_limit:
                    raise TooManyRowsError(len(self._join.scope.separator), self._row_limit)
                if table.rows:
                    yield table

    def _pieces(self) -> Iterator[StreamedPiece[Table]]:
        """Pieces that fit, in order; their size adapts to the results of earlier ones."""
        for piece in cut_to_fit(self._whole, self._halves, self._fits):
            if piece.is_empty:
                self._count(piece, 0)
            else:
                yield partial(self._joined, piece)

    def _fits(self, piece: BucketPiece) -> bool:
        if piece.is_empty:
            return True
        if self._room.piece_rows is not None and piece.most_rows > self._room.piece_rows:
            return False
        with self._lock:
            return piece.nbytes <= self._most_bytes and piece.share <= self._most_share

    def _halves(self, piece: BucketPiece) -> tuple[BucketPiece, ...] | Indivisible[BucketPiece]:
        halves = piece.halves()
        if not isinstance(halves, Indivisible) and not halves:
            self._count(piece, 0)
        return halves

    def _joined(self, piece: BucketPiece, stream: int) -> Iterator[Table]:
        """Results of a piece, halved if necessary."""
        return run_piece(piece, self._join_fitting, self._halves, self._is_too_large, alone=self._join_alone)

    def _join_fitting(self, piece: BucketPiece) -> list[Table]:
        """Join a piece; TooManyRowsError, to halve it, if it is too large by results obtained since it was cut."""
        if self._row_limit > self._result_rows and not self._fits(piece):
            raise TooManyRowsError(len(self._join.scope.separator), self._result_rows)
        return self._join_piece(piece)

    def _is_too_large(self, error: Exception) -> bool:
        """Whether halving the piece may avoid the error."""
        if isinstance(error, TooManyRowsError):
            return not isinstance(error, TooManyStepsError) and self._row_limit > self._result_rows
        return isinstance(error, ResourceError | MemoryError) and not isinstance(error, DiskError)

    def _join_piece(self, piece: BucketPiece, may_halve: bool = True) -> list[Table]:
        if piece.is_empty:
            self._count(piece, 0)
            return []
        rows = self._result_rows if may_halve else NO_LIMIT
        limits = (min(rows, self._row_limit), self._step_limit)
        tables, schema = piece.tables(), self._join.schema
        try:
            made = self._engine.join_piece(piece.program, schema, tables, *limits, may_halve)
        except TooManyRowsError:
            self._learn(piece, limits[0])
            raise
        self._learn(piece, made.rows)
        self._count(piece, made.rows)
        return [made]

    def _join_alone(self, piece: BucketPiece) -> list[Table]:
        """Join an indivisible piece: at most one row of the message, and its input rows."""
        try:
            return self._join_piece(piece, may_halve=False)
        except MemoryError:
            raise ResourceError(
                f"{self._join.name}: memory could not be had for a piece of one row of the message: requested "
                f"{format_bytes(piece.nbytes)}, limit {format_bytes(self._room.room)} for {self._room.streams} "
                "streams; free some memory, or lower the limit to what there is"
            ) from None
        except DiskError:
            raise
        except ResourceError as error:
            raise ResourceError(f"{self._join.name}, a piece of one row of the message: {error}") from None

    def _count(self, piece: BucketPiece, rows: int) -> None:
        with self._lock:
            self.pieces += not piece.is_empty
            self.done += piece.share
            self.made += rows

    def _learn(self, piece: BucketPiece, rows: int) -> None:
        """Adapt the size of the next pieces to the rows of a finished one, so that their results are likely to fit."""
        with self._lock:
            times = tuning().half_share * self._result_rows / max(1, rows)
            self._most_bytes = min(float(self._input_bytes), max(1.0, piece.nbytes * times, self._most_bytes / 2))
            self._most_share = min(self._first_share, max(piece.share * times, self._most_share / 2))
