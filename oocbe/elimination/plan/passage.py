"""Forecast how each bucket passes through memory and disk: in how many pieces, and what is written.

It follows what the forward pass does (:mod:`oocbe.elimination.buckets.bucket_message`,
:mod:`oocbe.elimination.buckets.messages`) with predicted rows in place of real ones. Rows that dominance or bounds drop
are not predicted, so where these are used the forecast is what happens at the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oocbe.bucket_engine.bucket_stream import HOPED_SHARE, PieceRoom
from oocbe.complete_tables.complete_cuts import CellRoom, CompleteCuts
from oocbe.complete_tables.complete_stream import CELLS_SHARE, STREAMS
from oocbe.elimination.buckets.bucket_message import INPUT_SHARE, WORKING_COPIES
from oocbe.elimination.buckets.complete_messages import WORKING_COPIES as COMPLETE_COPIES
from oocbe.elimination.buckets.piecewise import HELD_SHARE, WANTED_SHARE
from oocbe.kernels.cpu.packing.bit_pack import BLOCK, HEADER_WORDS


@dataclass(frozen=True)
class MessageForecast:
    """What is known of a message beforehand.

    Attributes
    ----------
    target : place of the bucket that it goes to; None where it has no variables.
    rows, nbytes : predicted. listed_bytes : of its rows with their keys.
    complete_rows : of a complete table. is_complete : its form.
    variable, scope : what its bucket eliminates, and its own variables, the one eliminated next at the front.
    """

    target: int | None
    rows: int
    nbytes: int
    listed_bytes: int
    complete_rows: int
    is_complete: bool
    variable: int = 0
    scope: tuple[int, ...] = ()

    @property
    def stored_bytes(self) -> int:
        """Bytes that are written of it, before compression."""
        return self.nbytes if self.is_complete else self.listed_bytes

    @property
    def least_stored_bytes(self) -> int:
        """Fewest bytes that it takes on disk: what tells its rows from others of the same number, and no values; of a
        complete table what says of each block of values that they are all alike."""
        if self.is_complete:
            return self.complete_rows * 8 * HEADER_WORDS // BLOCK
        return math.ceil(self.rows * max(1.0, math.log2(self.complete_rows / max(1, self.rows))) / 8)


@dataclass(frozen=True)
class Passage:
    """How a bucket passes.

    Attributes
    ----------
    input_bytes : of the tables that it joins.
    pieces : in which it is joined; 1 where it fits in memory.
    disk_bytes : of its message, where that is written to disk (before compression); else 0.
    least_disk_bytes : fewest that may be.
    """

    input_bytes: int
    pieces: int
    disk_bytes: int
    least_disk_bytes: int


BEYOND_ANY_DISK = 1 << 60
"""Bytes above which pieces of a message are only estimated."""

IN_MEMORY = Passage(0, 1, 0, 0)
"""Of a bucket that joins nothing and writes nothing."""


def forecast_passages(
    messages: Sequence[MessageForecast],
    memory: int,
    streams: int,
    piece_rows: int | None,
    keeps_all: bool,
    sizes: Sequence[int] = (),
) -> list[Passage]:
    """Passages of all buckets, in elimination order.

    Parameters
    ----------
    memory : bytes that messages may take. streams, piece_rows : see :class:`PieceRoom`.
    keeps_all : whether every message is written, for a run that is resumed. sizes : domain size of each variable.
    """
    room = PieceRoom(memory, streams, piece_rows)
    received: list[list[int]] = [[] for _ in messages]
    written = [keeps_all] * len(messages)
    held: dict[int, bool] = {}
    pieces, inputs = [], []
    for place, message in enumerate(messages):
        mine = received[place]
        joined = [messages[m] for m in mine]
        if message.is_complete:
            itemsize = message.nbytes // message.complete_rows
            inputs.append(sum(m.complete_rows for m in joined) * itemsize)
            in_memory = _fits_complete(message, inputs[-1], memory, piece_rows)
            pieces.append(1 if in_memory else _complete_pieces(message, joined, itemsize, memory, room, sizes))
            through_disk = not in_memory and message.nbytes > memory * HELD_SHARE
        else:
            inputs.append(sum(m.listed_bytes for m in joined))
            pieces.append(_pieces(message, joined, memory, room))
            through_disk = pieces[-1] > 1
        if message.target is not None:
            received[message.target].append(place)
        written[place] = written[place] or through_disk
        for m in mine:
            if m in held:
                held[m] = True
        if not written[place] and message.target is not None:
            held[place] = False
        _make_room(held, messages, written, memory * (1 - WANTED_SHARE if through_disk else 1))
    return [
        Passage(
            inputs[place],
            pieces[place],
            message.stored_bytes if written[place] else 0,
            message.least_stored_bytes if written[place] else 0,
        )
        for place, message in enumerate(messages)
    ]


def _fits_complete(message: MessageForecast, inputs: int, memory: int, piece_rows: int | None) -> bool:
    """Whether a complete message is made in memory, its inputs of so many bytes being read or written out."""
    if piece_rows is not None and message.complete_rows > piece_rows:
        return False
    return COMPLETE_COPIES * (message.nbytes + inputs) <= memory


def _complete_pieces(
    message: MessageForecast,
    joined: Sequence[MessageForecast],
    itemsize: int,
    memory: int,
    room: PieceRoom,
    sizes: Sequence[int],
) -> int:
    """Pieces of a bucket whose message is complete and does not fit in memory."""
    nbytes = int(memory * CELLS_SHARE) // min(STREAMS, room.streams)
    if message.nbytes > BEYOND_ANY_DISK:
        return -(-message.nbytes // max(1, nbytes))
    read = tuple((m.scope[::-1], itemsize) for m in joined)
    cell_room = CellRoom(nbytes, room.piece_rows)
    cuts = CompleteCuts(message.scope[::-1], (message.variable,), read, dict(enumerate(sizes)), itemsize, cell_room)
    return cuts.pieces


def _pieces(message: MessageForecast, inputs: Sequence[MessageForecast], memory: int, room: PieceRoom) -> int:
    """Pieces of a bucket whose message is made of rows."""
    size = sum(m.listed_bytes for m in inputs)
    joined = size * (2 if len(inputs) > 1 else 1)
    fits = joined <= memory * INPUT_SHARE and joined + message.listed_bytes * WORKING_COPIES <= memory
    most = room.piece_rows
    if most is not None:
        fits = fits and all(m.rows <= most for m in (message, *inputs))
    if fits:
        return 1
    row_bytes = message.listed_bytes / max(1, message.rows)
    result_rows = max(1.0, room.result_rows(max(1, int(row_bytes))) * HOPED_SHARE)
    largest = max((m.rows for m in inputs), default=0)
    parts = [message.rows / result_rows, size / max(1, room.input_bytes), 0 if most is None else largest / most]
    return max(2, math.ceil(max(parts)))


def _make_room(held: dict[int, bool], messages: Sequence[MessageForecast], written: list[bool], most: float) -> None:
    """Write messages until at most so many bytes stay in memory: joined ones first, the largest first."""
    total = sum(messages[m].nbytes for m in held)
    if total <= most:
        return
    for m in sorted(held, key=lambda m: (not held[m], -messages[m].nbytes)):
        if total <= most:
            return
        total -= messages[m].nbytes
        written[m] = True
        del held[m]
