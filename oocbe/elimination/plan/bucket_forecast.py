"""Forecast of each bucket's use of memory and disk: form, number of pieces, and written bytes.

The forecast uses the decisions of the forward pass (:func:`oocbe.elimination.engine.decision.decide`), in the same
order and with the same memory accounting (:mod:`oocbe.elimination.buckets.messages`), but with predicted rows:
with the real ones it selects the same strategies. Rows dropped by dominance or bounds are not predicted, so with these
the forecast is the worst case. No device is predicted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from oocbe.algebra.complete_tables.complete_stream import CellRoom, CompleteCuts
from oocbe.elimination.buckets.messages import HeldMessages
from oocbe.elimination.engine.bucket_engine import streams_for
from oocbe.elimination.engine.bucket_stream import PieceRoom
from oocbe.elimination.engine.decision import (
    AttemptHistory,
    BucketConstraints,
    BucketSizes,
    Input,
    Place,
    Strategy,
    decide,
)
from oocbe.kernels.cpu.packing.bit_pack import BLOCK, HEADER_WORDS
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline


@dataclass(frozen=True)
class MessageForecast:
    """Predictions about a message.

    target : position of the receiving bucket; None if it has no variables.
    variable, scope : the eliminated variable, and its own variables, the one eliminated next at the front.
    itemsize, row_bytes : of a value, and of a row with its key. cells : assignments of its variables.
    expected_rows : for the choice of its form. joined_rows : maximum rows of the join. rows : that remain of them.
    """

    target: int | None
    variable: int
    scope: tuple[int, ...]
    itemsize: int
    row_bytes: int
    cells: int
    expected_rows: float
    joined_rows: int
    rows: int


@dataclass(frozen=True)
class BucketForecast:
    """Forecast of a bucket.

    strategy : for its message. nbytes : of the message, in its form. input_bytes : of the tables that it joins.
    pieces : number of pieces; 1 if it fits in memory, or may not be cut.
    fits : False if it neither fits in memory nor may be cut; a run then raises an error.
    disk_bytes : of its message, if that is written to disk (before compression); else 0.
    least_disk_bytes : lower bound on them.
    """

    strategy: Strategy
    nbytes: int
    input_bytes: int
    pieces: int
    disk_bytes: int = 0
    least_disk_bytes: int = 0
    fits: bool = True


BEYOND_ANY_DISK = 1 << 60
"""Bytes above which pieces of a message are only estimated."""


@dataclass(eq=False)
class _Message:
    """A message as a run would have it now; attributes as in :class:`oocbe.elimination.buckets.message.Message`."""

    known: MessageForecast
    is_complete: bool
    is_in_memory: bool
    was_written: bool
    is_on_device: bool = False

    @property
    def complete_bytes(self) -> int:
        """Bytes as a complete table."""
        return self.known.cells * self.known.itemsize

    @property
    def listed_bytes(self) -> int:
        """Bytes of its rows with their keys."""
        return self.known.rows * self.known.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes in its form."""
        return self.complete_bytes if self.is_complete else self.listed_bytes

    @property
    def least_stored_bytes(self) -> int:
        """Lower bound on its bytes on disk: for rows, the information in their keys without values; for a complete
        table, one record of equal values for each block."""
        row_bits = math.log2(self.known.cells) - math.log2(max(1, self.known.rows))
        if self.is_complete:
            return self.known.cells * 8 * HEADER_WORDS // BLOCK
        return math.ceil(self.known.rows * max(1.0, row_bits) / 8)

    def as_input(self) -> Input:
        """The message as input of the decision about its receiving bucket."""
        place = Place.MAIN_MEMORY if self.is_in_memory else Place.DISK
        return Input(self.known.cells, self.known.rows, self.nbytes, self.listed_bytes, self.is_complete, place)


class Passages:
    """Simulates a forward pass's use of memory.

    memory : limit of messages in bytes. streams : number of concurrent pieces; None: the default.
    wishes : for all buckets.
    keeps_all : whether every message is written, for a resumable run. sizes : domain size of each variable.
    """

    def __init__(
        self, memory: int, streams: int | None, wishes: BucketConstraints, keeps_all: bool, sizes: Sequence[int] = ()
    ) -> None:
        self._held = HeldMessages[_Message](memory)
        self._streams, self._wishes, self._keeps_all, self._sizes = streams, wishes, keeps_all, sizes

    def of(self, messages: Sequence[MessageForecast]) -> list[BucketForecast]:
        """Forecasts of all buckets, in elimination order; TimeLimitError, RequestedEndError at the deadline."""
        received: defaultdict[int, list[_Message]] = defaultdict(list)
        made, passages = [], []
        for place, known in enumerate(messages):
            check_deadline()  # large plans of many orders take a second
            inputs = received[place]
            strategy = self._decide(known, inputs)
            pieces, is_held = self._passed(known, inputs, strategy)
            itemsize = known.itemsize
            read = sum(m.known.cells * itemsize if strategy.is_complete else m.listed_bytes for m in inputs)
            message = _Message(known, strategy.is_complete, is_held, not is_held)
            fits = strategy.is_whole or self._may_cut(strategy)
            passages.append(BucketForecast(strategy, message.nbytes, read, pieces, fits=fits))
            made.append(message)
            if is_held and known.target is not None:
                self._held.in_memory += message.nbytes
                self._held.waiting.append(message)
            for m in inputs:
                if m.is_in_memory:
                    self._held.waiting.remove(m)
                    self._held.queried.append(m)
            if known.target is not None:
                received[known.target].append(message)
        return [
            replace(passage, disk_bytes=message.nbytes, least_disk_bytes=message.least_stored_bytes)
            if message.was_written
            else passage
            for passage, message in zip(passages, made, strict=True)
        ]

    def _decide(self, known: MessageForecast, inputs: Sequence[_Message]) -> Strategy:
        joined_cells = known.cells * (self._sizes[known.variable] if self._sizes else 1)
        expected = known.expected_rows
        bucket = BucketSizes(
            known.cells, joined_cells, known.itemsize, known.row_bytes, expected, [m.as_input() for m in inputs]
        )
        predicted = AttemptHistory(least_rows=known.joined_rows)
        strategy = decide(bucket, self._held.room(inputs), None, self._wishes, predicted)
        self._make_room(strategy.wanted, inputs)
        return strategy

    def _passed(self, known: MessageForecast, inputs: Sequence[_Message], strategy: Strategy) -> tuple[int, bool]:
        """Pieces in which a message is made, and whether it stays in memory, for now."""
        if strategy.is_whole or not self._may_cut(strategy):
            return 1, not self._keeps_all
        if not strategy.is_complete:
            for m in inputs:
                if m.is_complete:  # is listed on disk
                    self._leave(m)
                    m.is_complete = False
        numbers, held = tuning(), self._held
        self._make_room(int(held.memory_limit * numbers.freed_share), ())
        free = max(1, held.free)
        most, piece_rows = int(free * numbers.held_share), self._wishes.piece_rows
        if strategy.is_complete:
            is_small = known.target is None or known.cells * known.itemsize <= free * numbers.held_share
            return self._complete_pieces(known, inputs, free), is_small and not self._keeps_all
        most = most // known.row_bytes if piece_rows is None else min(most // known.row_bytes, piece_rows)
        return self._pieces(known, inputs, free), known.rows <= most and not self._keeps_all

    def _may_cut(self, strategy: Strategy) -> bool:
        return strategy.is_complete or self._wishes.may_cut

    def _complete_pieces(self, known: MessageForecast, inputs: Sequence[_Message], free: int) -> int:
        """Pieces of a bucket whose message is complete and does not fit in memory."""
        streams = min(tuning().under_way, streams_for(self._streams))
        nbytes = int(free * tuning().half_share) // streams
        size = known.cells * known.itemsize
        if size > BEYOND_ANY_DISK:
            return -(-size // max(1, nbytes))
        read = tuple((m.known.scope[::-1], known.itemsize) for m in inputs)
        room = CellRoom(nbytes, self._wishes.piece_rows)
        scope, sizes = known.scope[::-1], dict(enumerate(self._sizes))
        return CompleteCuts(scope, (known.variable,), read, sizes, known.itemsize, room).pieces

    def _pieces(self, known: MessageForecast, inputs: Sequence[_Message], free: int) -> int:
        """Pieces of a bucket whose message is made of rows, about."""
        piece_rows = self._wishes.piece_rows
        room = PieceRoom(free, self._streams, piece_rows)
        result_rows = max(1.0, room.result_rows(known.row_bytes) * tuning().half_share)
        largest = max((m.known.rows for m in inputs), default=0)
        size = sum(m.listed_bytes for m in inputs)
        parts = [known.joined_rows / result_rows, size / max(1, room.input_bytes)]
        parts.append(0 if piece_rows is None else largest / piece_rows)
        return max(2, math.ceil(max(parts)))

    def _make_room(self, wanted: int, besides: Sequence[_Message]) -> None:
        self._held.move_out(wanted, besides, lambda message, is_joined: self._leave(message))

    def _leave(self, message: _Message) -> None:
        if message.is_in_memory:
            self._held.in_memory -= message.nbytes
            message.is_in_memory, message.was_written = False, True
