"""The decision about a bucket: the form of its message, the place of its computation, and whole or in pieces.

:func:`decide` is pure. Elimination calls it with measurements, and again after each failed attempt with its findings; a
plan calls it with predictions (:mod:`oocbe.elimination.plan.bucket_forecast`). It checks, in this order:

1. May the message be a complete table, and is that cheaper? In memory it is cheaper if the feasible share of its
   assignments exceeds the value's share of a row's bytes; in time it is cheaper far below that, since a joined cell of
   complete tables costs a small fraction of a joined row. So a complete message may take several times the bytes of its
   rows (``favour``), unless it takes much of the memory.
2. If so, it is computed on the device if the bucket is large and fits there, else in main memory if it fits there, else
   in pieces through the disk, if it is smaller than its rows.
3. Otherwise it is computed as rows: whole if the input rows and the known part of the result fit together in memory,
   else in pieces through the disk, by the workers if there are any. They also share a bucket that fits in memory but
   that the CPU would join for long; not one for the device, which joins rows faster than files exchange them.
   :func:`joins_on_device` selects the place of a row join, once its program is built.

All thresholds are in :class:`oocbe.model.settings.tuning.Tuning`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.tuning import tuning

LARGEST_DEVICE_ROWS = (1 << 32) - 1
"""Maximum rows of a table on the device, where row numbers have 32 bits."""


class Place(Enum):
    """Location of a table, or of a message's computation."""

    DEVICE = "device"
    MAIN_MEMORY = "main memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a bucket joins.

    cells : assignments of its variables. rows : number of feasible ones.
    nbytes : in its present form. listed_bytes : of its rows with their keys.
    is_complete : its form. place : where it is. has_dtype : whether its values have the message's dtype.
    """

    cells: int
    rows: int
    nbytes: int
    listed_bytes: int
    is_complete: bool
    place: Place
    has_dtype: bool = True

    @property
    def main_memory(self) -> int:
        """Bytes of main memory that it takes."""
        return self.nbytes if self.place is Place.MAIN_MEMORY else 0


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """Sizes of a bucket before its join.

    cells : assignments of the message's variables. joined_cells : the same with the eliminated variable.
    itemsize : bytes of a value. row_bytes : of a row of the message.
    expected_rows : of the message, for the choice of its form; 0 if it must consist of rows.
    inputs : tables that are joined, without small ones used by lookup.
    """

    cells: int
    joined_cells: int
    itemsize: int
    row_bytes: int
    expected_rows: float
    inputs: Sequence[Input]


@dataclass(frozen=True, slots=True)
class MainMemory:
    """Bytes for messages, those ``free`` now, and those of each ``movable`` one, in the order of moving."""

    limit: int
    free: int
    movable: Callable[[], Iterable[int]] = tuple

    def after(self, wanted: int) -> int:
        """Free bytes after moving messages to disk until ``wanted`` bytes are free or nothing is left to move."""
        free = self.free
        if free >= wanted:
            return free
        for nbytes in self.movable():
            free += nbytes
            if free >= wanted:
                break
        return free


@dataclass(frozen=True, slots=True)
class Device:
    """A device that may compute buckets.

    insists : whether the CPU must not compute what the device has kernels for.
    most_tables : maximum number of row tables in one join.
    room : measures the bytes of device memory available to a bucket.
    """

    insists: bool
    most_tables: int
    room: Callable[[], int]

    def takes_complete(self, joined_cells: int) -> bool:
        """Whether the device computes a bucket of complete tables with ``joined_cells`` cells."""
        return self.insists or joined_cells >= tuning().device_cells

    def takes_rows(self, rows: int, tables: int) -> bool:
        """Whether one join supports ``tables`` tables with at most ``rows`` rows each."""
        return rows <= LARGEST_DEVICE_ROWS and tables <= self.most_tables


class WhyForm(Enum):
    """Why a message has its form."""

    ONLY_ROWS = "complete tables are not requested, or have no value for infeasible assignments"
    ASKED_FOR = "complete tables are requested"
    COMPLETE_IS_CHEAPER = "a complete table is cheaper than the expected rows"
    ROWS_ARE_CHEAPER = "the expected rows are cheaper than a complete table"
    COMPLETE_DOES_NOT_FIT = "a complete table would be quicker, but does not fit in memory, and rows take less of it"
    LIMBS = "counts may take several words, which only rows have"
    UNCERTAIN = "only rows can tell what is infeasible from products of floats that are too small for one"


class WhyPieces(Enum):
    """Why a message is made in pieces."""

    TABLES = "the tables to be joined take too much of the memory"
    RESULT = "the message takes more memory than there is"
    PIECE_ROWS = "a table has more rows than the requested rows of a piece"
    DEVICE = "the device that is insisted on has no room"
    WORKERS = "it is large enough for several workers"


@dataclass(frozen=True, slots=True)
class BucketConstraints:
    """Requests and limits that apply to a bucket.

    tables : ``auto``, ``incomplete`` or ``complete``; ``incomplete`` also if no message can be complete.
    piece_rows : most rows, or cells, of a table that is joined or computed whole; None: as many as fit.
    may_cut : whether rows may be joined in pieces.
    whole_rows : most rows of an input or a message of rows for the CPU of this process alone; None: any number.
    """

    tables: str
    piece_rows: int | None = None
    may_cut: bool = True
    whole_rows: int | None = None

    @classmethod
    def of(cls, tables: str, piece_rows: int | None, consumes: bool, has_workers: bool = False) -> BucketConstraints:
        """The constraints of a run or plan; rows that carry consumption of linear constraints are not cut."""
        if consumes:
            return cls(tables, None, may_cut=False)
        return cls(tables, piece_rows, whole_rows=tuning().segment_rows if has_workers else None)


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """Findings of earlier attempts, or predictions of a plan.

    least_rows : lower bound on the joined rows of the message.
    needs_rows : why the message must be rows; None if it may be complete. device_ran_out : whether the device ran out
        of memory for a complete table.
    rows_ran_out : whether it did so for a join of rows; these are then joined in main memory.
    """

    least_rows: int = 0
    needs_rows: WhyForm | None = None
    device_ran_out: bool = False
    rows_ran_out: bool = False


NO_ATTEMPTS = AttemptHistory()
"""The history before the first attempt."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The strategy for computing a message.

    form : ``complete`` or ``incomplete``. why_form : why.
    place : of a complete message computed whole; None for pieces and rows, whose place is chosen for each join.
    why_pieces : why it is computed in pieces; None if it is computed whole.
    wanted : bytes of main memory to be freed before, or as many as possible.
    most_rows : maximum rows of a message computed whole.
    device_wanted : device memory needed to compute it whole, in bytes, if a required device lacks it; else 0.
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
        """Whether it is computed in one piece, in memory."""
        return self.why_pieces is None

    @property
    def is_complete(self) -> bool:
        """Whether the message is a complete table."""
        return self.form == COMPLETE


def is_cheaper_complete(cells: int, rows: float, itemsize: int, row_bytes: int, favour: float) -> bool:
    """Whether a message of ``cells`` assignments, ``rows`` of them feasible, is cheaper as a complete table.

    itemsize, row_bytes : bytes of a value, and of a row. favour : see :class:`Tuning`; 1 if only memory counts.
    """
    return cells * itemsize <= favour * rows * row_bytes


def expected_form(bucket: BucketSizes, limit: int) -> str:
    """The cheaper form of a message with a main memory of ``limit`` bytes; free space is not considered."""
    favour = _favour(_complete_bytes(bucket), limit)
    return COMPLETE if _is_cheaper(bucket, favour) else INCOMPLETE


def decide(
    bucket: BucketSizes,
    memory: MainMemory,
    device: Device | None,
    wishes: BucketConstraints,
    known: AttemptHistory = NO_ATTEMPTS,
) -> Strategy:
    """The strategy for a bucket's message; ``device``: may be None; ``known``: of its earlier attempts."""
    if wishes.tables == INCOMPLETE or known.needs_rows:
        return _of_rows(bucket, memory, device, wishes, known, known.needs_rows or WhyForm.ONLY_ROWS, 0)
    asked = wishes.tables == COMPLETE
    why = WhyForm.ASKED_FOR if asked else WhyForm.COMPLETE_IS_CHEAPER
    device_wanted = 0
    if wishes.piece_rows is not None and bucket.cells > wishes.piece_rows:
        why_pieces, wanted = WhyPieces.PIECE_ROWS, 0
    else:
        has_device, wanted = _has_device(bucket, memory, device, known)
        needed = _complete_bytes(bucket)
        favour = tuning().favour if has_device else _favour(needed, memory.limit)
        if not (asked or _is_cheaper(bucket, favour)):
            return _of_rows(bucket, memory, device, wishes, known, WhyForm.ROWS_ARE_CHEAPER, wanted)
        if has_device:
            return Strategy(COMPLETE, why, Place.DEVICE, wanted=wanted)
        if device is not None and device.insists:
            why_pieces = WhyPieces.DEVICE
            wanted_there = _device_bytes(bucket)
            # Otherwise main memory is short, for the data that passes through it to the device.
            device_wanted = wanted_there if known.device_ran_out or wanted_there > device.room() else 0
        else:
            wanted = max(wanted, needed)
            if memory.after(wanted) >= needed:
                return Strategy(COMPLETE, why, Place.MAIN_MEMORY, wanted=wanted)
            why_pieces = WhyPieces.RESULT
    if asked or _is_cheaper(bucket, 1.0):
        return Strategy(COMPLETE, why, why_pieces=why_pieces, wanted=wanted, device_wanted=device_wanted)
    return _of_rows(bucket, memory, device, wishes, known, WhyForm.COMPLETE_DOES_NOT_FIT, wanted)


def joins_on_device(
    device: Device | None, work: float, least_work: float, rows: int, tables: int, consumes: bool
) -> bool:
    """Whether rows are joined on the device.

    work : expected work of the join. least_work : threshold from which the device is faster.
    rows : of the largest table. tables : number of joined tables.
    consumes : whether rows carry consumption of linear constraints: only the CPU can join these.
    """
    if device is None or consumes or work < least_work:
        return False
    return device.takes_rows(rows, tables)


def _favour(needed: int, limit: int) -> float:
    """Permitted size of a complete message relative to its rows, if it needs ``needed`` of ``limit`` bytes."""
    numbers = tuning()
    return numbers.favour if needed <= limit / max(1.0, numbers.favour) else 1.0


def _is_cheaper(bucket: BucketSizes, favour: float) -> bool:
    # A table over all variables of the bucket has at least the joined rows. If they are few, so is their work, however
    # dense the message is; as a complete table, that of two variables of 16,000 values takes two gigabytes.
    rows = min((table.rows for table in bucket.inputs if table.cells >= bucket.joined_cells), default=math.inf)
    if bucket.joined_cells > tuning().cells_a_row * rows:
        return False
    return is_cheaper_complete(bucket.cells, bucket.expected_rows, bucket.itemsize, bucket.row_bytes, favour)


def _complete_bytes(bucket: BucketSizes) -> int:
    """Bytes of main memory for the join, besides complete messages already there: the message, other inputs converted
    to complete tables there, and the kernels' reordered copies."""
    cells = tuning().complete_copies * bucket.cells
    for table in bucket.inputs:
        cells += (1 if table.is_complete and table.main_memory else 2) * table.cells
    return cells * bucket.itemsize


def _has_device(
    bucket: BucketSizes, memory: MainMemory, device: Device | None, known: AttemptHistory
) -> tuple[bool, int]:
    """Whether the device takes the bucket: it has room, and main memory has room for the data in transit; and the bytes
    of main memory wanted for that."""
    if device is None or known.device_ran_out or not device.takes_complete(bucket.joined_cells):
        return False, 0
    if _device_bytes(bucket) > device.room():
        return False, 0
    # Inputs converted to complete tables in main memory before their transfer to the device.
    passing = sum(t.cells for t in bucket.inputs if t.place is Place.DISK or not t.has_dtype) * bucket.itemsize
    return memory.after(passing) >= passing, passing


def _device_bytes(bucket: BucketSizes) -> int:
    """Bytes of device memory for the join, besides complete messages already there."""
    cells = bucket.cells
    cells += sum(t.cells for t in bucket.inputs if not (t.is_complete and t.place is Place.DEVICE))
    return int(min(cells * bucket.itemsize, sys.maxsize) * tuning().device_copies)


def _of_rows(
    bucket: BucketSizes,
    memory: MainMemory,
    device: Device | None,
    wishes: BucketConstraints,
    known: AttemptHistory,
    why: WhyForm,
    wanted: int,
) -> Strategy:
    """Strategy for a message of rows; ``wanted`` as computed for a complete one before."""
    inputs, piece_rows, numbers = bucket.inputs, wishes.piece_rows, tuning()
    charged = _charged(inputs)
    device = None if known.rows_ran_out else device
    most_input_rows = max((t.rows for t in inputs), default=0)
    is_taken = device is not None and device.takes_rows(most_input_rows, len(inputs))
    whole_rows, known_rows = wishes.whole_rows if wishes.may_cut else None, max(most_input_rows, known.least_rows)
    if device is not None and is_taken and (device.insists or known_rows >= numbers.device_work):
        whole_rows = None  # the device joins rows faster than workers exchange them through files
    if wishes.may_cut:
        why_pieces = None
        if piece_rows is not None and any(t.rows > piece_rows for t in inputs):
            why_pieces = WhyPieces.PIECE_ROWS
        elif sum(t.main_memory for t in inputs) + charged > memory.limit * numbers.half_share:
            why_pieces = WhyPieces.TABLES
        elif whole_rows is not None and any(t.rows > whole_rows for t in inputs):
            why_pieces = WhyPieces.WORKERS
        if why_pieces is not None:
            return Strategy(INCOMPLETE, why, why_pieces=why_pieces, wanted=wanted)
    largest = max((t.nbytes for t in inputs), default=0)
    wanted = max(wanted, charged + 2 * numbers.row_copies * largest)
    on_device = sum(t.nbytes for t in inputs if t.place is Place.DEVICE)
    if on_device and not is_taken:
        charged += on_device  # these come to main memory, then

    def most_rows() -> int:
        most = max(0, memory.after(wanted) - charged) // (bucket.row_bytes * numbers.row_copies)
        return min(most, *(rows for rows in (piece_rows, whole_rows, most) if rows is not None))

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
    """Bytes for a join of rows, besides messages in memory: inputs read back or listed, and the concatenated copy."""
    charged = 0
    for table in inputs:
        if table.is_complete or table.place is Place.DISK:
            charged += table.listed_bytes
        if table.is_complete:
            charged += table.nbytes  # in the rows' order, while they are listed
        if len(inputs) > 1:
            charged += table.listed_bytes
    return charged
