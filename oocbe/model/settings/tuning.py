"""Constants of decisions: shares of memory, factors and thresholds, each with the reason for its value.

Decisions are made in :mod:`oocbe.elimination.engine.decision` (form, place, whole or in pieces) and in the modules that
implement them or cut tables into pieces; all read the constants by :func:`tuning` each time. None of them changes a
result: tests vary them by :func:`tuned` so that small problems take every path of large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tuning:
    """Constants of all decisions about messages, and about operators out of core.

    Unless stated otherwise, shares are of the memory for messages.

    Attributes
    ----------
    favour : maximum size of a complete message relative to the bytes of its rows: joining a cell of complete tables
        takes a small part of the time of joining a row.
    favoured_share : complete messages whose bucket needs more than this share must be smaller than their rows, to
        leave room for the bucket's inputs and the next message.
    cells_a_row : joined cells of complete tables per predicted row of incomplete ones with equal time, in small
        problems, where a row takes 0.5 to 2 microseconds.
    complete_copies : of a complete message during its computation: in the kernel's order, then in its own.
    device_copies : a bucket's complete tables on the device, including the working memory of kernels.
    row_copies : of a message of rows during its computation: its blocks grow by doubling, and are then concatenated.
    input_share : larger inputs of rows are joined in pieces: the rest is for the result.
    steps_a_row : maximum steps of a capped run per row of its cap, since bounds may drop nearly all candidate rows of
        a join.
    cells_a_capped_row : cells of a complete message per row of a race's cap: cells take less time than rows.

    wanted_share : freed before a bucket is joined in pieces: waiting messages are written to disk, the largest first.
    held_share : of the memory then free, for a message, or its first rows, that may be small enough to stay in memory.
    cache_share : of the memory then free, for chunks at the boundaries of pieces.
    chunks_share : of the memory then free, for chunks with possible replacements of a dominated chunk's rows.
    fill_share : of the memory then free, for rows expanded to a complete table before any piece is processed.
    forecast_pieces, forecast_times : a bucket is abandoned when its forecast after ``forecast_pieces`` pieces exceeds
        the disk space by the factor ``forecast_times``: the rows per piece vary.

    pieces_share : of the memory for a bucket in pieces, for the pieces being processed; the rest is for tables in
        memory, chunks being reread, and one being written.
    piece_input_share : of a piece of a bucket, for its tables; the rest is for the resulting rows.
    piece_input_copies, piece_result_copies : a piece's tables are read, then concatenated. Its result grows by
        doubling (the old array in addition to the new one of twice the size), is then copied once, and waits for the
        caller.
    hoped_share : expected share of the result memory used by a piece's result, which determines the piece's size; the
        number of resulting rows is unknown in advance, and a piece with too many is joined again in halves.
    cells_share : of the memory for a bucket of complete tables in pieces, for the pieces being processed; the rest is
        for cached boxes, chunks being written, and compilation or imports meanwhile.
    most_cell_streams : pieces of complete tables in memory at a time: one may be read during the computation of
        another, which takes all threads.

    operator_pieces_share, operator_partition_share, operator_nested_share : of the memory of an operator out of core,
        for the pieces being processed, for a partition before any piece, and for one during the processing of pieces.
        The rest is for the chunks being written, and for indices.
    operator_chunk_share : of the same, for the rows of a chunk being written; there are three at a time.
    operator_input_share : of a piece of a join out of core, for its input rows and their derived arrays; the rest is
        for result rows.
    most_run_rows : of a run of a partition: beyond about 100 MB, larger runs speed up neither writing nor reading.
    least_piece_bytes : smaller pieces of operators are not halved: if even this allocation fails, memory is exhausted.

    descent_free_share : freed before a backward pass over all rows: messages are written to disk, the largest first.
    descent_weights_share : for the weights of one message in that pass; larger ones go to a file, since those of
        several messages are kept at a time.
    descent_cache_share : for chunks of rows in that pass, whose order of access differs from the stored order.

    chunk_share, least_chunk_rows : maximum share for a stored chunk's rows, except that a chunk has at least
        ``least_chunk_rows``: one is being filled, one encoded, and some are decoded at a time.
    listing_share, least_listing_room : share of the free memory for the cells of a complete table whose rows are listed
        at a time; the second share of all memory counts as free at least.
    smaller_share : a complete table is transferred from the device as rows if they take less than this share of it.
    part_bytes : of a table in transit from the device without buffering.

    device_work : expected work of a join of rows from which the device is faster. Measured on an H200 with 16 cores:
        a device bucket costs about 1 ms whatever its size, the CPU's time for about 2,000 rows
        (benchmarks/gpu_buckets.py).
    device_cells : joined cells of complete tables from which ``auto`` selects the device: below, the CPU takes a few
        milliseconds.
    device_row_work : cells read by a pass over all functions, for all rows of a walk to be bounded, per thread of the
        CPU, from which the device bounds them: below, the CPU takes a millisecond.
    device_tree_work : rows of cliques and entries of maps, for all cases of a batch, per thread of the CPU, from which
        a device sweeps over a junction tree: the CPU takes a tenth of a second for them, as long as the transfer of the
        tree to the device.
    device_input_share : of the device's free memory, for the tables of a piece: its frontiers and rows are of unknown
        size, and pieces are halved on failure.
    device_used_share : maximum share of the device's memory in use for joined tables to stay there: the rest is for
        pending joins.

    most_streams : pieces processed at a time: more streams make pieces small.
    most_lookups : maximum lookups in kept messages per value of a discarded message: little compared with copying
        gigabytes, even if each lookup is a separate read.
    slow_lookups : cost of a lookup among rows or on disk relative to one of a complete table in memory, of which many
        are gathered at once; a cautious choice, not a measurement.

    segment_rows : input rows from which a bucket is cut into segments for workers; buckets that exceed the memory
        always are. Fewer rows take about 0.2 s, the overhead of distributing work and writing parts.
    first_segments : segments of a worker before the time of any is known; small ones are harmless.
    segment_part : divisor of each worker's share of the remaining work (:mod:`oocbe.execution.cluster.dispatch`).
    least_segment_seconds, most_segment_seconds : range of the expected time of a segment.
    sent_bytes : smaller tables are sent to workers; others are passed as the paths of their folders.

    propagates : whether propagation reduces a problem before the search for an order.
    narrows : whether values without a row in a message are removed from later buckets. Off by default: messages on a
        device, in pieces or of a resumed run do not support it yet, so the rows would depend on the execution; and
        there was no gain after propagation (benchmarks/results/propagation.json).

    message_bytes : memory for messages, regardless of the process's own use, so that a run can be repeated on any
        machine; None: the remainder of the memory limit.
    least_bytes, least_share : of the memory limit, for messages even if the process itself has used it up.
    headroom, headroom_share : bytes of the memory limit, and maximum share of it, reserved for the process: compiled
        code loaded later, the stacks of threads, buffers for reading and writing, and memory that the allocator cannot
        return.
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
    """The current constants of decisions, for all threads."""
    return _now


@contextmanager
def tuned(**changes: float | None) -> Iterator[Tuning]:
    """Within the block, decisions of the whole process use other constants.

    changes : fields of :class:`Tuning`; TypeError for others.
    """
    global _now
    before, _now = _now, replace(_now, **changes)  # type: ignore[arg-type]
    try:
        yield _now
    finally:
        _now = before
