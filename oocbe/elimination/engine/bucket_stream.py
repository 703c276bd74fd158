"""Join a bucket piece by piece in streams: tables are read by key range, results come in the order of their keys.

Each piece runs on a stream (:mod:`oocbe.execution.pipeline`): a thread that reads and decodes its rows and joins them,
while other streams are at other pieces and the caller encodes and writes what came before. On the CPU a piece is joined
by the thread of its stream. On the device pieces take turns: one has the device, the others read or hand over.

How many rows come of a piece is not known before. Pieces follow what the ones before them came to, and a piece that
makes more rows than there is room for, or for which memory cannot be had, is halved, again and again
(:mod:`oocbe.runtime.pieces`).
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
from oocbe.runtime.pieces import Indivisible, Worklist, cut_to_fit
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.elimination.engine.bucket_engine import BucketEngine

FIRST_PIECES_A_STREAM = 2
"""Into so many pieces a stream a bucket is cut at least, so that all streams have work."""


@dataclass(frozen=True)
class PieceRoom:
    """How large a piece may be.

    Attributes
    ----------
    room : bytes for all streams together.
    streams : pieces at work at a time.
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
        numbers = tuning()
        return int(self._piece * numbers.piece_input_share) // numbers.piece_input_copies

    def result_rows(self, row_bytes: int) -> int:
        """Rows that a piece may come to; at least one."""
        numbers = tuning()
        room = int(self._piece * (1 - numbers.piece_input_share))
        rows = max(1, room // (numbers.piece_result_copies * row_bytes))
        return rows if self.piece_rows is None else min(rows, self.piece_rows)


class BucketStream:
    """A bucket, or a large piece of one, joined in pieces.

    Parameters
    ----------
    whole : what is joined. engine : computes the pieces.
    room : how large they may be. row_limit : of all pieces together. step_limit : of each.

    Attributes
    ----------
    pieces : joined so far, without those that were halved instead. rows : given so far.
    input_bytes : of tables read for pieces so far, also for those.
    done : share of the bucket that has been joined, about. made : rows that came of it.
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
        # Where functions alone are joined, tables have no bytes to go by, and one stream would do everything.
        self._first_share = self._most_share = 1 / (FIRST_PIECES_A_STREAM * room.streams)
        self.pieces = self.rows = self.input_bytes = self.made = 0
        self.done = 0.0

    def tables(self) -> Generator[Table, None, None]:
        """The message's rows, sorted, in tables in main memory.

        Raises
        ------
        TooManyRowsError : more than the limit. TimeLimitError : the engine's deadline came.
        ResourceError : memory could not be had for a piece that has no half.
        CorruptDataError : a table on disk is damaged.
        """
        with closing(run_in_order(self._pieces(), self._room.streams)) as results:
            for table in results:
                self.rows += table.rows
                if self.rows > self._row_limit:
                    raise TooManyRowsError(len(self._join.scope.separator), self._row_limit)
                if table.rows:
                    yield table

    def _pieces(self) -> Iterator[StreamedPiece[Table]]:
        """Pieces that fit, in order; how large they are depends on what came of the ones before."""
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
        """Results of a piece, halved where it has to be."""
        worklist = Worklist(piece, self._halves, self._is_too_large, has_alone=True)
        del piece
        for part in worklist:
            if worklist.is_alone:
                yield from self._join_alone(part)
            else:
                with worklist:
                    self._check_size(part)
                    yield from self._join_piece(part)
            del part  # before the next one is made

    def _check_size(self, piece: BucketPiece) -> None:
        """Have a piece halved that looks too large by what others came to since it was cut (TooManyRowsError)."""
        if self._row_limit > self._result_rows and not self._fits(piece):
            raise TooManyRowsError(len(self._join.scope.separator), self._result_rows)

    def _is_too_large(self, error: Exception) -> bool:
        """Whether less may come of the halves of a piece, or they may take less."""
        if isinstance(error, TooManyRowsError):
            return not isinstance(error, TooManyStepsError) and self._row_limit > self._result_rows
        return isinstance(error, ResourceError | MemoryError) and not isinstance(error, DiskError)

    def _join_piece(self, piece: BucketPiece, may_halve: bool = True) -> list[Table]:
        if piece.is_empty:
            self._count(piece, 0)
            return []
        rows = self._result_rows if may_halve else NO_LIMIT
        limits = (min(rows, self._row_limit), self._step_limit)
        join, tables = self._join, piece.tables()
        try:
            made = self._engine.join_piece(
                piece.program, join.scope.layout, tables, join.semiring, join.dtype, *limits, may_halve
            )
        except TooManyRowsError:
            self._learn(piece, limits[0])
            raise
        self._learn(piece, made.rows)
        self._count(piece, made.rows)
        return [made]

    def _join_alone(self, piece: BucketPiece) -> list[Table]:
        """A piece that has no half: one row of the message at most, and the rows that it is made of."""
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
        """A piece is done, and so many rows came of it."""
        with self._lock:
            self.pieces += not piece.is_empty
            self.done += piece.share
            self.made += rows

    def _learn(self, piece: BucketPiece, rows: int) -> None:
        """So many rows came of a piece: make the next ones of such a size that their results are likely to fit."""
        with self._lock:
            self.input_bytes += piece.nbytes
            times = tuning().hoped_share * self._result_rows / max(1, rows)
            self._most_bytes = min(float(self._input_bytes), max(1.0, piece.nbytes * times, self._most_bytes / 2))
            self._most_share = min(self._first_share, max(piece.share * times, self._most_share / 2))
