"""Forecast how each bucket passes through memory and disk: in how many pieces, and what is written.

It follows what the forward pass does (:mod:`oocbe.elimination.bucket_message`, :mod:`oocbe.elimination.messages`) with
predicted rows in place of real ones. Rows that dominance or bounds drop are not predicted, so where these are used the
forecast is what happens at the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oocbe.elimination.bucket_message import INPUT_SHARE, WORKING_COPIES
from oocbe.elimination.piecewise import WANTED_SHARE
from oocbe.operators.bucket_stream import HOPED_SHARE, PieceRoom


@dataclass(frozen=True)
class MessageForecast:
    """What is known of a message beforehand.

    Attributes
    ----------
    target : place of the bucket that it goes to; None where it has no variables.
    rows, nbytes : predicted. listed_bytes : of its rows with their keys.
    complete_rows : of a complete table. is_complete : its form.
    """

    target: int | None
    rows: int
    nbytes: int
    listed_bytes: int
    complete_rows: int
    is_complete: bool

    @property
    def least_stored_bytes(self) -> int:
        """Fewest bytes that its rows take on disk: what tells them from others of the same number, and no values."""
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


IN_MEMORY = Passage(0, 1, 0, 0)
"""Of a bucket that joins nothing and writes nothing."""


def forecast_passages(
    messages: Sequence[MessageForecast], memory: int, streams: int, piece_rows: int | None, keeps_all: bool
) -> list[Passage]:
    """Passages of all buckets, in elimination order.

    Parameters
    ----------
    memory : bytes that messages may take. streams, piece_rows : see :class:`PieceRoom`.
    keeps_all : whether every message is written, for a run that is resumed.
    """
    room = PieceRoom(memory, streams, piece_rows)
    received: list[list[int]] = [[] for _ in messages]
    written = [keeps_all] * len(messages)
    held: dict[int, bool] = {}
    pieces, inputs = [], []
    for place, message in enumerate(messages):
        mine = received[place]
        size = sum(messages[m].listed_bytes for m in mine)
        pieces.append(1 if message.is_complete else _pieces(message, [messages[m] for m in mine], memory, room))
        inputs.append(size)
        if message.target is not None:
            received[message.target].append(place)
        written[place] = written[place] or pieces[place] > 1
        for m in mine:
            if m in held:
                held[m] = True
        if not written[place] and message.target is not None:
            held[place] = False
        _make_room(held, messages, written, memory * (1 - WANTED_SHARE if pieces[place] > 1 else 1))
    return [
        Passage(
            inputs[place],
            pieces[place],
            message.listed_bytes if written[place] else 0,
            message.least_stored_bytes if written[place] else 0,
        )
        for place, message in enumerate(messages)
    ]


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
    order = sorted(held, key=lambda m: (not held[m], -messages[m].nbytes))
    total = sum(messages[m].nbytes for m in held)
    for m in order:
        if total <= most:
            return
        total -= messages[m].nbytes
        written[m] = True
        del held[m]
