"""The numbers that decisions turn on: shares of memory, factors and thresholds, each with the reason for its value.

What is decided with them is in :mod:`oocbe.elimination.engine.decision` (form, place, whole or in pieces) and in the
modules that carry decisions out or cut tables into pieces, which ask :func:`tuning` for the numbers each time. None of
them changes a result: tests vary them with :func:`tuned` to send small problems through every way that large ones take.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tuning:
    """Numbers of all decisions about messages, and about operators out of core. Shares are of the memory that messages
    may take where nothing else is said.

    Attributes
    ----------
    favour : how many times the bytes of its rows a complete message may take: a joined cell of complete tables takes a
        small part of the time that a joined row does.
    favoured_share : complete messages whose bucket needs more than this share must be smaller than their rows: the
        bucket's inputs, and the next message, lie beside it.
    cells_a_row : joined cells of complete tables that take the time of one predicted row of incomplete ones, in small
        problems, where a row costs half a microsecond to two.
    complete_copies : of a complete message while it is made: in the order that suits the kernel, then in its own.
    device_copies : a bucket's complete tables on the device, and what kernels take beside them.
    row_copies : of a message of rows while it is made: its blocks grow by doubling, and are then laid end to end.
    input_share : rows to be joined that take more are joined in pieces: the rest is for what comes of them.
    steps_a_row : steps that a capped run may take for each row that its cap allows: bounds may drop nearly all that a
        join tries.
    cells_a_capped_row : cells of a complete message for each row that the cap of a race allows: they take less time.

    wanted_share : freed before a bucket is joined in pieces: messages that wait are written to disk, the largest first.
    held_share : of what is free then, for a message, or its first rows, that may turn out to be small enough to stay.
    cache_share : of what is free then, for chunks of rows that pieces begin and end in.
    chunks_share : of what is free then, for chunks that hold what may take the place of a dominated chunk's rows.
    fill_share : of what is free then, for rows that are written out as a complete table, before any piece is at work.
    forecast_pieces, forecast_times : a bucket is given up when after so many pieces all of it looks so many times as
        large as the disk has room for: how many rows come of a piece varies.

    pieces_share : of the room for a bucket in pieces, for pieces at work; the rest is for tables held whole, chunks
        being read again, and one written.
    piece_input_share : of a piece of a bucket, for its tables; the rest is for the rows that come of them.
    piece_input_copies, piece_result_copies : a piece's tables are read, then laid end to end. Its result grows by
        doubling (the old array beside the new one of twice the size), is then copied once, and waits for the caller.
    hoped_share : pieces are made so large that their results are expected to take this share of the room for them: how
        many rows come of a piece is not known before, and one that makes too many is joined again in halves.
    cells_share : of the room for a bucket of complete tables in pieces, for pieces at work; the rest is for boxes kept,
        chunks being written, and what is compiled or imported meanwhile.
    most_cell_streams : pieces of complete tables in memory at a time: one may be read while another is computed, which
        takes all threads.

    operator_pieces_share, operator_partition_share, operator_nested_share : of the memory of an operator out of core,
        for the pieces at work, for a partition before any piece is at work, and for one while some are. The rest is for
        the chunks being written, and for indices.
    operator_chunk_share : of the same, for the rows of a chunk that is being written; three are held at a time.
    operator_input_share : of a piece of a join out of core, for its input rows, with all that is made of them; the rest
        is for result rows.
    most_run_rows : of a run of a partition: beyond some 100 MB, larger runs make neither writing nor reading faster.
    least_piece_bytes : pieces of operators that take less are not halved: where memory for so little cannot be had,
        none can.

    descent_free_share : freed before a pass back over all rows: messages are written to disk, the largest first.
    descent_weights_share : for the weights of one message in it, beyond which they go to a file: those of several
        messages are held at a time.
    descent_cache_share : for chunks of rows that it reads: rows are looked up in an order of their own.

    chunk_share, least_chunk_rows : a stored chunk's rows take this share at most, unless they are so few: one is being
        filled, one encoded, and some are decoded at a time.
    listing_share, least_listing_room : of what is free, or of this share of all where that is more, for cells of a
        complete table whose rows are listed at a time.
    smaller_share : a complete table that leaves the device goes as rows where they take less than this share of it.
    part_bytes : of a table on its way from the device, where nothing is kept of it.

    device_work : expected work of a join of rows from which the device is faster. Measured on an H200 beside 16 cores:
        a device bucket costs about 1 ms whatever its size, and the CPU takes as long for some 2,000 rows
        (benchmarks/gpu_buckets.py).
    device_cells : joined cells of complete tables from which ``auto`` takes the device: below, the CPU needs a few
        milliseconds.
    device_row_work : cells that a pass over all functions looks at, of all rows of a walk that are to be bounded, for
        each thread of the CPU, from which the device bounds them: below, the CPU needs a millisecond.
    device_tree_work : rows of cliques and entries of maps, of all cases of a batch, for each thread of the CPU, from
        which a device sweeps over a junction tree: the CPU needs a tenth of a second for them, the device as long until
        the tree is there.
    device_input_share : of the device's free memory, for the tables of a piece: its frontiers and rows are of unknown
        size, and halved.
    device_used_share : tables that have been joined stay on the device while no more of its memory is used: the rest is
        for what is still to be joined.

    most_streams : pieces at work at a time: more streams make pieces small.
    most_lookups : in kept messages that one value of a forgotten message may take: small beside copying gigabytes, even
        where each is a read of its own.
    slow_lookups : what a lookup among rows or on disk counts for beside one of a complete table in memory, of which
        many are gathered at once; a cautious choice, not a measurement.

    segment_rows : a bucket with an input of so many rows, or that does not fit in memory, is cut into segments where
        there are workers: fewer take some 0.2 s, which giving work away and writing parts would cost.
    first_segments : segments of a worker, before it is known how long any takes: nothing is lost by small ones.
    segment_part : a segment is this part of what is left for each worker (:mod:`oocbe.execution.cluster.dispatch`).
    least_segment_seconds, most_segment_seconds : within which segments stay all the same.
    sent_bytes : tables that take no more are sent to workers themselves; others as the folders that they lie in.

    propagates : whether propagation takes what it can from a problem before the search for an order.
    narrows : whether values that a message has no row for go from the buckets to come. Not by itself: messages on a
        device, in pieces or found by a run that is resumed do not tell theirs yet, so rows would depend on the way; and
        it gained nothing where propagation goes first (benchmarks/results/propagation.json).

    message_bytes : that messages may take, whatever the process itself does: so a run can be repeated on any machine;
        None: what the memory limit leaves.
    least_bytes, least_share : of the memory limit, that messages may take even where the process itself has used it up.
    headroom, headroom_share : bytes of the memory limit, and largest share of it, that messages leave to the process:
        compiled code that is loaded later, the stacks of threads, buffers of what is read and written, and what the
        allocator can't give back.
    """

    favour: float = 4.0
    favoured_share: float = 0.25
    cells_a_row: float = 2000.0
    complete_copies: int = 2
    device_copies: float = 1.1
    row_copies: int = 3
    input_share: float = 0.5
    steps_a_row: int = 64
    cells_a_capped_row: int = 64

    wanted_share: float = 0.8
    held_share: float = 0.05
    cache_share: float = 0.1
    chunks_share: float = 0.5
    fill_share: float = 0.5
    forecast_pieces: int = 32
    forecast_times: int = 4

    pieces_share: float = 0.7
    piece_input_share: float = 0.4
    piece_input_copies: int = 2
    piece_result_copies: int = 5
    hoped_share: float = 0.5
    cells_share: float = 0.5
    most_cell_streams: int = 2

    operator_pieces_share: float = 0.6
    operator_partition_share: float = 0.8
    operator_nested_share: float = 0.25
    operator_chunk_share: float = 0.03
    operator_input_share: float = 0.6
    most_run_rows: int = 1 << 23
    least_piece_bytes: int = 1 << 16

    descent_free_share: float = 0.5
    descent_weights_share: float = 0.1
    descent_cache_share: float = 0.2

    chunk_share: float = 0.015
    least_chunk_rows: int = 1 << 12
    listing_share: float = 0.25
    least_listing_room: float = 0.1
    smaller_share: float = 0.75
    part_bytes: int = 1 << 28

    device_work: int = 2048
    device_cells: int = 1 << 22
    device_row_work: int = 1 << 17
    device_tree_work: int = 1 << 27
    device_input_share: float = 0.2
    device_used_share: float = 0.5

    most_streams: int = 16
    most_lookups: int = 256
    slow_lookups: int = 16

    segment_rows: int = 1 << 20
    first_segments: int = 64
    segment_part: float = 6.0
    least_segment_seconds: float = 0.5
    most_segment_seconds: float = 5.0
    sent_bytes: int = 1 << 16

    propagates: bool = True
    narrows: bool = False

    message_bytes: int | None = None
    least_bytes: int = 1 << 24
    least_share: float = 0.25
    headroom: int = 1 << 27
    headroom_share: float = 0.125


_now = Tuning()


def tuning() -> Tuning:
    """The numbers that decisions turn on now, in every thread."""
    return _now


@contextmanager
def tuned(**changes: float | None) -> Iterator[Tuning]:
    """Within the block, decisions of the whole process turn on other numbers.

    changes : fields of :class:`Tuning`; TypeError for others.
    """
    global _now
    before, _now = _now, replace(_now, **changes)  # type: ignore[arg-type]
    try:
        yield _now
    finally:
        _now = before
