"""The decision about a bucket: in which form its message is made, where, and whole or in pieces.

:func:`decide` is pure. Elimination calls it with what it has measured, and once more after each attempt that failed,
with what that has shown; a plan calls it with predicted numbers (:mod:`oocbe.elimination.plan.bucket_forecast`). It
asks, in this order:

1. May the message be a complete table, and is that cheaper? By memory it is where the feasible share of its
   assignments is above the value's share of a row's bytes; by time far below that, as a joined cell of complete tables
   costs a small part of what a joined row does. So a complete message may take some times the bytes of its rows
   (``favour``), unless it takes much of the memory.
2. Then it is made on the device where the bucket is large and the device has room, else in main memory where that has
   room, else in pieces through the disk, if it is smaller than its rows.
3. Else it is made of rows: whole where the rows to be joined, and what is known of those that come of them, leave room
   for each other, and in pieces through the disk otherwise. Where rows are joined, :func:`joins_on_device` says, once
   the join is laid out.

All numbers that this turns on are in :class:`oocbe.model.settings.tuning.Tuning`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from oocbe.elimination.engine.bucket_sizes import BucketSizes, Device, Input, MainMemory, Place
from oocbe.model.settings.tuning import Tuning, tuning

COMPLETE, INCOMPLETE = "complete", "incomplete"
"""Forms of a message: a value for every assignment, or feasible rows with their keys."""


class WhyForm(Enum):
    """Why a message has its form."""

    ONLY_ROWS = "complete tables are not asked for, or have no value for what is infeasible"
    ASKED_FOR = "complete tables are asked for"
    COMPLETE_IS_CHEAPER = "a complete table is cheaper than the expected rows"
    ROWS_ARE_CHEAPER = "the expected rows are cheaper than a complete table"
    COMPLETE_DOES_NOT_FIT = "a complete table would be quicker, but does not fit in memory, and rows take less of it"
    LIMBS = "counts may take several words, which only rows have"
    UNCERTAIN = "only rows can tell what is infeasible from products of floats that are too small for one"


class WhyPieces(Enum):
    """Why a message is made in pieces."""

    TABLES = "the tables to be joined take too much of the memory"
    RESULT = "the message takes more memory than there is"
    PIECE_ROWS = "a table has more rows than are asked for in a piece"
    DEVICE = "the device that is insisted on has no room"
    WORKERS = "it is large enough for several workers"


@dataclass(frozen=True, slots=True)
class BucketConstraints:
    """What is asked for.

    Attributes
    ----------
    tables : ``auto``, ``incomplete`` or ``complete``; ``incomplete`` also where no message can be complete.
    piece_rows : most rows, or cells, of a table that is joined or made whole; None: as many as fit.
    may_cut : whether rows may be joined in pieces.
    whole_rows : most rows of a table that is joined, or made of rows, by this process alone; None: any number.
    """

    tables: str
    piece_rows: int | None = None
    may_cut: bool = True
    whole_rows: int | None = None

    @classmethod
    def of(cls, tables: str, piece_rows: int | None, consumes: bool, has_workers: bool = False) -> BucketConstraints:
        """The wishes of a run or plan; rows that carry what they consume of linear constraints are not cut."""
        if consumes:
            return cls(tables, None, may_cut=False)
        return cls(tables, piece_rows, whole_rows=tuning().segment_rows if has_workers else None)


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """What attempts have shown, or a plan predicts.

    Attributes
    ----------
    least_rows : the message has so many rows, or more, as they are joined.
    needs_rows : why only rows will do; None where a complete table may. device_ran_out : while one was made there.
    rows_ran_out : so did the device while rows were joined there; they are joined in main memory.
    """

    least_rows: int = 0
    needs_rows: WhyForm | None = None
    device_ran_out: bool = False
    rows_ran_out: bool = False


NO_ATTEMPTS = AttemptHistory()
"""What is known before the first attempt."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a message is made.

    Attributes
    ----------
    form : ``complete`` or ``incomplete``. why_form : why.
    place : where a complete message is computed whole; None for one in pieces or of rows, each of which goes where
        kernels take it.
    why_pieces : why it is made in pieces; None where it is made whole.
    wanted : bytes of main memory to be freed before, or as many as can be.
    most_rows : rows that a message made whole has room for.
    device_wanted : bytes of device memory that it would take whole; 0 unless the device that is insisted on lacks them.
    """

    form: str
    why_form: WhyForm
    place: Place | None = None
    why_pieces: WhyPieces | None = None
    wanted: int = 0
    most_rows: int = 0
    device_wanted: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is made in one piece, in memory."""
        return self.why_pieces is None

    @property
    def is_complete(self) -> bool:
        """Whether the message is a complete table."""
        return self.form == COMPLETE


def is_cheaper_complete(cells: int, rows: float, itemsize: int, row_bytes: int, favour: float) -> bool:
    """Whether a message of so many assignments, of which so many are feasible, is cheaper as a complete table.

    itemsize, row_bytes : bytes of a value, and of a row. favour : see :class:`Tuning`; 1 where only memory counts.
    """
    return cells * itemsize <= favour * rows * row_bytes


def expected_form(bucket: BucketSizes, limit: int) -> str:
    """The form that is cheaper for a message in main memory of so many bytes; whether there is room is not asked."""
    numbers = tuning()
    favour = _favour(_complete_bytes(bucket, numbers), limit, numbers)
    return COMPLETE if _is_cheaper(bucket, favour) else INCOMPLETE


def decide(
    bucket: BucketSizes,
    memory: MainMemory,
    device: Device | None,
    wishes: BucketConstraints,
    known: AttemptHistory = NO_ATTEMPTS,
    numbers: Tuning | None = None,
) -> Strategy:
    """How the message of a bucket is made.

    Parameters
    ----------
    device : None where there is none. known : what attempts at this bucket have shown so far.
    numbers : what the decision turns on; None: those of :func:`oocbe.model.settings.tuning.tuning`.
    """
    numbers = tuning() if numbers is None else numbers
    if wishes.tables == INCOMPLETE or known.needs_rows:
        return _of_rows(bucket, memory, device, wishes, known, numbers, known.needs_rows or WhyForm.ONLY_ROWS, 0)
    asked = wishes.tables == COMPLETE
    why = WhyForm.ASKED_FOR if asked else WhyForm.COMPLETE_IS_CHEAPER
    device_wanted = 0
    if wishes.piece_rows is not None and bucket.cells > wishes.piece_rows:
        why_pieces, wanted = WhyPieces.PIECE_ROWS, 0
    else:
        has_device, wanted = _has_device(bucket, memory, device, known, numbers)
        needed = _complete_bytes(bucket, numbers)
        favour = numbers.favour if has_device else _favour(needed, memory.limit, numbers)
        if not (asked or _is_cheaper(bucket, favour)):
            return _of_rows(bucket, memory, device, wishes, known, numbers, WhyForm.ROWS_ARE_CHEAPER, wanted)
        if has_device:
            return Strategy(COMPLETE, why, Place.DEVICE, wanted=wanted)
        if device is not None and device.insists:
            why_pieces = WhyPieces.DEVICE
            wanted_there = _device_bytes(bucket, numbers)
            # Else main memory is short, for what passes there on its way.
            device_wanted = wanted_there if known.device_ran_out or wanted_there > device.room() else 0
        else:
            wanted = max(wanted, needed)
            if memory.after(wanted) >= needed:
                return Strategy(COMPLETE, why, Place.MAIN_MEMORY, wanted=wanted)
            why_pieces = WhyPieces.RESULT
    if asked or _is_cheaper(bucket, 1.0):
        return Strategy(COMPLETE, why, why_pieces=why_pieces, wanted=wanted, device_wanted=device_wanted)
    return _of_rows(bucket, memory, device, wishes, known, numbers, WhyForm.COMPLETE_DOES_NOT_FIT, wanted)


def joins_on_device(
    device: Device | None, work: float, least_work: float, rows: int, tables: int, consumes: bool
) -> bool:
    """Whether rows are joined on the device.

    Parameters
    ----------
    work : expected of the join. least_work : from which the device is faster.
    rows : of the largest table. tables : how many are joined.
    consumes : whether rows carry what they consume of linear constraints: only the CPU can join these.
    """
    if device is None or consumes or work < least_work:
        return False
    return device.takes_rows(rows, tables)


def _favour(needed: int, limit: int, numbers: Tuning) -> float:
    """How many times the bytes of its rows a complete message may take, in main memory of which it needs so much."""
    return numbers.favour if needed <= limit * numbers.favoured_share else 1.0


def _is_cheaper(bucket: BucketSizes, favour: float) -> bool:
    return is_cheaper_complete(bucket.cells, bucket.expected_rows, bucket.itemsize, bucket.row_bytes, favour)


def _complete_bytes(bucket: BucketSizes, numbers: Tuning) -> int:
    """Bytes of main memory that joining takes besides complete messages there: the message, others once they are
    complete and there, and the copies that kernels make to have all in order."""
    cells = numbers.complete_copies * bucket.cells
    for table in bucket.inputs:
        cells += (1 if table.is_complete and table.main_memory else 2) * table.cells
    return cells * bucket.itemsize


def _has_device(
    bucket: BucketSizes, memory: MainMemory, device: Device | None, known: AttemptHistory, numbers: Tuning
) -> tuple[bool, int]:
    """Whether the bucket is one for the device, which has room for it as main memory has for what passes there on its
    way; and the bytes wanted for that."""
    if device is None or known.device_ran_out or not device.takes_complete(bucket.joined_cells, numbers):
        return False, 0
    if _device_bytes(bucket, numbers) > device.room():
        return False, 0
    # Made complete in main memory, on their way to the device.
    passing = sum(t.cells for t in bucket.inputs if t.place is Place.DISK or not t.has_dtype) * bucket.itemsize
    return memory.after(passing) >= passing, passing


def _device_bytes(bucket: BucketSizes, numbers: Tuning) -> int:
    """Bytes of device memory that joining takes besides complete messages there."""
    cells = bucket.cells
    cells += sum(t.cells for t in bucket.inputs if not (t.is_complete and t.place is Place.DEVICE))
    return int(min(cells * bucket.itemsize, sys.maxsize) * numbers.device_copies)


def _of_rows(
    bucket: BucketSizes,
    memory: MainMemory,
    device: Device | None,
    wishes: BucketConstraints,
    known: AttemptHistory,
    numbers: Tuning,
    why: WhyForm,
    wanted: int,
) -> Strategy:
    """How a message is made of rows; ``wanted`` as for a complete one, which was thought of before."""
    inputs, piece_rows = bucket.inputs, wishes.piece_rows
    charged = _charged(inputs)
    if wishes.may_cut:
        why_pieces = None
        if piece_rows is not None and any(t.rows > piece_rows for t in inputs):
            why_pieces = WhyPieces.PIECE_ROWS
        elif sum(t.main_memory for t in inputs) + charged > memory.limit * numbers.input_share:
            why_pieces = WhyPieces.TABLES
        elif wishes.whole_rows is not None and any(t.rows > wishes.whole_rows for t in inputs):
            why_pieces = WhyPieces.WORKERS
        if why_pieces is not None:
            return Strategy(INCOMPLETE, why, why_pieces=why_pieces, wanted=wanted)
    largest = max((t.nbytes for t in inputs), default=0)
    wanted = max(wanted, charged + 2 * numbers.row_copies * largest)
    on_device = sum(t.nbytes for t in inputs if t.place is Place.DEVICE)
    device = None if known.rows_ran_out else device
    if on_device and not (device is not None and device.takes_rows(max(t.rows for t in inputs), len(inputs))):
        charged += on_device  # these come to main memory, then

    def most_rows() -> int:
        most = max(0, memory.after(wanted) - charged) // (bucket.row_bytes * numbers.row_copies)
        return min(most, *(rows for rows in (piece_rows, whole_rows, most) if rows is not None))

    whole_rows = wishes.whole_rows if wishes.may_cut else None
    most = most_rows()
    if known.least_rows > most and piece_rows is None and most != whole_rows:
        wanted = memory.limit  # all that may go to disk
        most = most_rows()
    why_pieces = None
    if known.least_rows > most:
        reasons = {whole_rows: WhyPieces.WORKERS, piece_rows: WhyPieces.PIECE_ROWS}
        why_pieces = reasons.get(most, WhyPieces.RESULT)
    return Strategy(INCOMPLETE, why, why_pieces=why_pieces, wanted=wanted, most_rows=most)


def _charged(inputs: Sequence[Input]) -> int:
    """Bytes that joining rows takes besides messages in memory: those read back or listed, and the copy that lays all
    end to end."""
    charged = 0
    for table in inputs:
        if table.is_complete or table.place is Place.DISK:
            charged += table.listed_bytes
        if table.is_complete:
            charged += table.nbytes  # in the rows' order, while they are listed
        if len(inputs) > 1:
            charged += table.listed_bytes
    return charged
