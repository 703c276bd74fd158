"""Join a bucket in pieces on several streams: tables are read by key range, results are yielded in key order.

Each piece runs on a stream (:mod:`oocbe.execution.pipeline`): a thread that reads, decodes and joins its rows, while
other streams process other pieces and the caller encodes and writes earlier results. On the CPU the stream's thread
joins the piece. The device joins one piece at a time, while the other streams read or pass on results.

The number of rows of a piece's result is not known in advance. Piece sizes adapt to earlier results. A piece that
produces more rows than fit, or whose memory allocation fails, is halved repeatedly (:mod:`oocbe.runtime.pieces`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from oocbe.elimination.engine.bucket_cuts import BucketPiece
from oocbe.elimination.engine.bucket_join import NO_LIMIT, TooManyRowsError, TooManyStepsError
from oocbe.errors import DiskError, ResourceError
from oocbe.execution.pipeline import StreamedPiece, run_in_order
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import Indivisible, cut_to_fit, run_piece
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.elimination.engine.bucket_engine import BucketEngine


@dataclass(frozen=True)
class PieceRoom:
    """Limits of a piece's size.

    room : bytes for all streams together.
    streams : number of concurrent pieces.
    piece_rows : most rows of a table in a piece, and of a result; None: as many as fit.
    """

    room: int
    streams: int
    piece_rows: int | None = None

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

    Parameters
    ----------
    whole : the piece to join. engine : computes its parts.
    room : limits of their size. row_limit : of all pieces together. step_limit : of each.

    Attributes
    ----------
    pieces : joined so far, without those that were halved. rows : yielded so far.
    input_bytes : of tables read so far, including halved pieces.
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
        self.pieces = self.rows = self.input_bytes = self.made = 0
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
            self.input_bytes += piece.nbytes
            times = tuning().half_share * self._result_rows / max(1, rows)
            self._most_bytes = min(float(self._input_bytes), max(1.0, piece.nbytes * times, self._most_bytes / 2))
            self._most_share = min(self._first_share, max(piece.share * times, self._most_share / 2))
