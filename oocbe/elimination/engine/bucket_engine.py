"""Join the tables of a bucket and eliminate its variable, on the CPU or the device, by the size of the bucket.

Messages are computed where they are cheapest and stay there until they are needed elsewhere: a table with CuPy arrays
is on the device. The CPU takes small buckets, since a device join launches two kernels a level and waits for two
numbers. Only the CPU can join rows that carry consumption of linear constraints. Both backends produce the same rows in
the same order, bit for bit for integers.

On the CPU, one thread first runs the walk (:mod:`oocbe.kernels.cpu.buckets.bucket_join`) a few levels deep. The
resulting partial walks are then cut into blocks of about equal work, which any thread may finish. Blocks are
concatenated in order, so the message is sorted without a merge, as keys are laid out in elimination order.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.decision import Device, joins_on_device
from oocbe.errors import DiskError, LimitError, ResourceError
from oocbe.kernels.choice import complete_kernels, cuda_works
from oocbe.kernels.cpu.buckets.bucket_join import MessageRows, Walk
from oocbe.kernels.cpu.buckets.join_arrays import Frontier, JoinProgram, SharedCounts, TableArrays, TrieArrays
from oocbe.kernels.cpu.threads import row_ranges, run_all, thread_count
from oocbe.kernels.interface import CompleteBackend
from oocbe.model.settings.machine import device_memory_limit, use_gpus
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables.layout import Schema
from oocbe.tables.residence import is_on_device, to_device, to_host
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.elimination.engine.substitutions import Substitutions
    from oocbe.execution.cluster.workers import Workers

NO_LIMIT = 1 << 62
"""Limit of rows and steps that no walk reaches."""


class TooManyRowsError(LimitError):
    """The message would exceed the row limit.

    variables : of the message. limit : the row limit.
    """

    def __init__(self, variables: int, limit: int) -> None:
        super().__init__(f"the message over {variables} variables passes {limit:,} rows")
        self.variables, self.limit = variables, limit

    def __reduce__(self) -> tuple[type[TooManyRowsError], tuple[int, int]]:
        return type(self), (self.variables, self.limit)  # so that it can be pickled


class TooManyStepsError(TooManyRowsError):
    """The join has taken too many steps before it reached the row limit."""


class _Limits(NamedTuple):
    """Limits of walks: the maximum ``rows`` and ``steps`` of all walks together, and a deadline.
    ``variables`` is the number of the message's variables, for errors."""

    variables: int
    rows: int
    steps: int
    deadline: Deadline

    def counts(self) -> SharedCounts:
        """Initial counts for new walks."""
        return SharedCounts(np.zeros(2, dtype=np.int64), self.deadline.flag)

    def check(self, parts: list[MessageRows], counts: SharedCounts) -> None:
        """Raise the errors of :func:`join_and_eliminate` if any of these walks is incomplete."""
        self.deadline.check()
        if sum(p.rows for p in parts) > self.rows:
            raise TooManyRowsError(self.variables, self.rows)
        if not all(p.complete for p in parts):
            # Walks that stopped at the shared row limit have fewer rows each, and may have fewer in total.
            raise (TooManyStepsError if counts.made[1] > self.steps else TooManyRowsError)(self.variables, self.rows)


def join_and_eliminate(
    program: JoinProgram,
    like: Schema,
    tables: Sequence[Table],
    row_limit: int,
    block_rows: int | None = None,
    deadline: Deadline | None = None,
    step_limit: int = NO_LIMIT,
) -> Table:
    """Message of a bucket.

    program : from :class:`oocbe.elimination.engine.join_program.ProgramBuilder`, made for these tables.
    like : of the message. tables : sorted tables, the eliminated variable least significant in each.
    row_limit : most rows the message may have.
    block_rows : rows of the largest table that make a block (None: from the number of threads).
    deadline : time limit; None: no limit.
    step_limit : approximate limit of the steps of all walks; with a bound, many steps may produce few rows.
    Returns sorted table; no rows if the bucket is infeasible.
    Raises TooManyRowsError: the message would exceed ``row_limit`` rows, or the join ``step_limit`` steps;
    TimeLimitError: the deadline passed.
    """
    deadline = deadline or Deadline()
    layout, dtype, semiring = like
    flat = _flatten(program, tables, dtype)
    largest = int(np.argmax([t.rows for t in tables])) if tables else 0
    rows = tables[largest].rows if tables else 0
    count = len(tables)
    root = Frontier(
        np.zeros((1, layout.words), dtype=np.uint64),
        np.zeros((1, count), dtype=np.int64),
        np.array([[t.rows for t in tables]], dtype=np.int64),
        np.zeros(1, dtype=program.bounds.entries.dtype),
    )
    limits = _Limits(len(layout.scope), row_limit, step_limit, deadline)
    parts = None if block_rows is not None else _walked_alone(program, flat, root, rows, limits)
    if parts is None:
        parts = _walked_in_blocks(program, flat, root, largest, block_rows, limits)
    keys = np.concatenate([keys for part in parts for keys in part.keys], axis=1)
    values = np.concatenate([values for part in parts for values in part.values])
    limbs = program.semiring.limbs
    values = values.reshape(-1, limbs) if limbs else values
    return Table(layout, keys, values, semiring, is_sorted=True)


def _walked_alone(
    program: JoinProgram, flat: _Flat, root: Frontier, rows: int, limits: _Limits
) -> list[MessageRows] | None:
    """The walk by this thread alone, for little expected work; None if it turns out long and threads can share it.

    The expected work is an estimate, and far too low if the constraints permit nearly everything. Such a walk is
    stopped early and restarted.
    """
    if program.expected_work(rows) >= tuning().serial_work:
        return None
    counts = limits.counts()
    most_rows, most_steps = limits.rows, limits.steps
    if thread_count() > 1:
        most_rows, most_steps = min(most_rows, tuning().many_rows), min(most_steps, tuning().many_rows)
    walked = Walk(*flat, program, root, 0, 1, 0, program.levels, most_rows, most_steps, counts).rows()
    if not walked.complete and (most_rows, most_steps) != (limits.rows, limits.steps):
        limits.deadline.check()
        return None
    limits.check([walked], counts)
    return [walked]


def _walked_in_blocks(
    program: JoinProgram, flat: _Flat, root: Frontier, largest: int, block_rows: int | None, limits: _Limits
) -> list[MessageRows]:
    """Walks of blocks by all threads, in the order of their keys; blocks are cut by the rows of table ``largest``."""
    count = len(flat.tries.rows)
    rows = int(flat.tries.rows[largest]) if count else 0
    wanted_blocks = NO_LIMIT
    is_short = block_rows is not None and program.expected_work(rows) < tuning().serial_work
    if block_rows is None:
        threads = thread_count()
        wanted_blocks = 1 if threads == 1 else tuning().parts_a_worker * threads
        block_rows = rows + 1 if threads == 1 else max(1, rows // wanted_blocks)
    # Without tables there are no rows by which to measure blocks.
    most_levels = 0 if count == 0 and wanted_blocks == NO_LIMIT else program.levels
    level, items = 0, root
    while level + 1 < most_levels and len(items.keys) < wanted_blocks and not _is_fine(items, largest, block_rows):
        # Prefixes without table constraints can outnumber all rows: stop before those levels.
        most = max(rows, tuning().serial_work)
        unshared = SharedCounts(np.zeros(2, np.int64), limits.deadline.flag)
        walk = Walk(*flat, program, items, 0, len(items.keys), level, level + 1, most, limits.steps, unshared)
        narrower, complete = walk.partial_walks()
        if not complete:
            break
        items = narrower
        level += 1
    items = _cut_ranges(program, flat, items, level, block_rows)
    blocks = _blocks(items, largest, block_rows, wanted_blocks)
    counts = limits.counts()
    calls = [
        (Walk(*flat, program, items, first, last, level, program.levels, limits.rows, limits.steps, counts),)
        for first, last in blocks
    ]
    parts: list[MessageRows] = (
        [Walk.rows(*calls[0])]
        if is_short and len(calls) == 1
        else run_all(Walk.rows, calls, None if is_short else limits.deadline.interrupt)
    )
    limits.check(parts, counts)
    return parts


class _Flat(NamedTuple):
    """All tables of a bucket, end to end."""

    tries: TrieArrays
    tables: TableArrays


def _flatten(program: JoinProgram, tables: Sequence[Table], dtype: np.dtype[Any]) -> _Flat:
    """All tables' keys and values end to end; a single table is used in place."""
    rows = np.array([t.rows for t in tables], dtype=np.int64)
    key_base, value_base, row_base = (np.zeros(len(tables), dtype=np.int64) for _ in range(3))
    if len(tables) > 1:
        np.cumsum([t.keys.size for t in tables[:-1]], out=key_base[1:])
        np.cumsum([t.values.size for t in tables[:-1]], out=value_base[1:])
        np.cumsum(rows[:-1], out=row_base[1:])
    keys = [t.keys.reshape(-1) for t in tables]
    values = [t.values.reshape(-1) for t in tables]
    limbs = np.array([max(1, t.limbs) for t in tables], dtype=np.int64)
    if sum(map(len, values)) == 0:
        # Compiled loops use the type of element 0 even if they read no row.
        keys.append(np.zeros(1, dtype=np.uint64))
        values.append(np.zeros(1, dtype=dtype))
    flat_keys = keys[0] if len(keys) == 1 else np.concatenate(keys)
    flat_values = values[0] if len(values) == 1 else np.concatenate(values)
    tries = TrieArrays(flat_keys, key_base, rows, row_base, *_priced(program, flat_values, tables))
    return _Flat(tries, TableArrays(flat_keys, flat_values, key_base, value_base, limbs))


def _priced(
    program: JoinProgram, values: NDArray[Any], tables: Sequence[Table]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int32], Any]:
    """Contribution of the tables' rows to bounds: the last fields of ``TrieArrays``.

    The prices are the ``values`` of all tables with the bounds' scale as factor. If rows carry consumption, they are
    the scaled values plus price, always in the bounds' dtype.
    """
    kind, scale = program.bounds.entries.dtype, program.bounds.scale
    none, narrow = np.zeros(0, kind), np.zeros(0, np.int32)
    consumption = program.consumption
    if not program.prunes:
        return np.zeros(len(tables), dtype=kind), none, narrow, scale
    priced: list[NDArray[Any]] = [t.values for t in tables]
    price = consumption.price
    if program.consumes:
        priced = [p.astype(kind) * scale for p in priced]
        for part, t in zip(priced, tables, strict=True):
            for s, m, rate in zip(consumption.shift.tolist(), consumption.mask.tolist(), price, strict=True):
                part += ((t.keys[0] >> np.uint64(s)) & np.uint64(m)).astype(kind) * rate
        values, scale = np.concatenate([none, *priced]), kind.type(1)
    least = np.array([p.min() if len(p) else 0 for p in priced], dtype=kind)
    return (least, none, values, scale) if values.dtype == np.int32 else (least, values, narrow, scale)


def _cut_ranges(program: JoinProgram, flat: _Flat, items: Frontier, level: int, block_rows: int) -> Frontier:
    """Cut items whose next level reads a long row range into several with the same prefix and consecutive ranges.

    Cuts are at changes of the level's field, so that groups of rows stay whole. The other tables keep their whole
    ranges; the walk searches in them.
    """
    if level >= program.levels:
        return items
    runs, part_table = program.runs, program.runs.part_table
    parts = range(int(runs.part_start[level]), int(runs.part_start[level + 1]))
    if not parts:
        return items
    widths = np.stack([items.high[:, part_table[p]] - items.low[:, part_table[p]] for p in parts])
    if widths.size == 0 or int(widths.max()) <= block_rows:
        return items
    source: list[int] = []
    table_of: list[int] = []
    bounds: list[tuple[int, int]] = []
    tries = flat.tries
    for item in range(len(items.keys)):
        part = parts[int(widths[:, item].argmax())]
        t = int(part_table[part])
        low, high = int(items.low[item, t]), int(items.high[item, t])
        begin = int(tries.key_base[t]) + int(runs.part_word[part]) * int(tries.rows[t])
        column = tries.keys[begin + low : begin + high]
        field = (int(runs.part_shift[part]), int(runs.mask[level]))
        cuts = [low + cut for cut in _group_cuts(column, *field, block_rows)]
        for first, last in itertools.pairwise([*cuts, high]):
            source.append(item)
            table_of.append(t)
            bounds.append((first, last))
    low_rows, high_rows = items.low[source], items.high[source]
    places = np.arange(len(source))
    low_rows[places, table_of] = [first for first, _ in bounds]
    high_rows[places, table_of] = [last for _, last in bounds]
    return Frontier(items.keys[source], low_rows, high_rows, items.reached[source])


def _group_cuts(column: NDArray[np.uint64], shift: int, mask: int, block_rows: int) -> list[int]:
    """Row 0 and first rows of later groups, about ``block_rows`` apart; the rows of a group share the field's value."""

    def field(row: int) -> int:
        return (int(column[row]) >> shift) & mask

    cuts = [0]
    for wanted in range(block_rows, len(column), block_rows):
        if wanted > cuts[-1]:
            cut = bisect_left(range(len(column)), field(wanted), key=field)
            if cut > cuts[-1]:
                cuts.append(cut)
    return cuts


def _is_fine(items: Frontier, table: int, block_rows: int) -> bool:
    """Whether every partial walk has at most a block's rows of the largest table."""
    if len(items.keys) == 0:
        return True
    if items.low.shape[1] == 0:
        return False
    widths = items.high[:, table] - items.low[:, table]
    return bool(widths.max() <= block_rows)


def _blocks(items: Frontier, table: int, block_rows: int, most: int) -> list[tuple[int, int]]:
    """Ranges of consecutive partial walks with about ``block_rows`` rows of the largest table each; about ``most``.

    Walks that branched at a level without tables share their row ranges, so their rows may sum to many times its rows.
    """
    count = len(items.keys)
    if count <= 1:
        return [(0, count)]
    if items.low.shape[1] == 0:
        return row_ranges(count, max(1, count // most))
    work = np.cumsum(items.high[:, table] - items.low[:, table])
    block = work // max(1, block_rows, int(work[-1]) // most)
    cuts = np.flatnonzero(np.diff(block)) + 1
    return list(itertools.pairwise([0, *cuts.tolist(), count]))


def streams_for(streams: int | None) -> int:
    """Number of concurrent pieces: as requested, or one a thread, at least 2 so that reading overlaps with joining."""
    return max(2, min(tuning().most_streams, thread_count())) if streams is None else streams


class BucketEngine:
    """Computes buckets.

    backend : ``cpu``, ``cuda``, or ``auto`` (the device for large buckets, where there is one).
    device_memory : limit in bytes on device memory, for the whole process; None: ``OOCBE_DEVICE_MEMORY``, or all of it.
    block_rows : see :func:`oocbe.elimination.engine.bucket_engine.join_and_eliminate`.
    device_work : expected work (see :meth:`JoinProgram.expected_work`) from which ``auto`` uses the device; None: the
        value in :class:`oocbe.model.settings.tuning.Tuning`.
    deadline : time limit, checked before each bucket and within the CPU's loops; None: no limit.
    streams : concurrent pieces of a bucket that does not fit in memory; None: one a thread, at least 2, so that one is
        read while the other is joined.
    piece_rows : most rows of a table in a piece, and of its result; buckets with more are joined in pieces. None: as
        many as fit.
    workers : process segments of large buckets; None: no workers.
    gpus : most devices for the pieces of a bucket; None: ``OOCBE_GPUS``, or all of them.
    Raises UsageError: ``cuda`` is requested and no device is usable; the message states the reason.
    """

    def __init__(
        self,
        backend: str = "auto",
        device_memory: int | None = None,
        block_rows: int | None = None,
        device_work: int | None = None,
        deadline: Deadline | None = None,
        streams: int | None = None,
        piece_rows: int | None = None,
        workers: Workers | None = None,
        gpus: int | None = None,
    ) -> None:
        self.backend, self.device_memory, self.workers = backend, device_memory, workers
        self._gpus = gpus
        self.wanted_streams, self.streams = streams, streams_for(streams)
        self.piece_rows = piece_rows
        self.deadline = deadline or Deadline()
        self._block_rows = block_rows
        self.insists = backend == "cuda"
        self._device_work = 0 if self.insists else device_work if device_work is not None else tuning().device_work
        self.uses_device = False
        self._device_limbs = 0
        if backend == "cpu":
            return
        from oocbe.kernels.cuda.device import cupy
        from oocbe.kernels.cuda.gpus import GpuPool
        from oocbe.kernels.cuda.transfer import memory

        if backend == "cuda":
            cupy()  # raises if there is none
        elif not cuda_works(wanted=False):
            return

        memory.set_limit(device_memory_limit() if device_memory is None else device_memory)
        from oocbe.kernels.cuda.buckets.bucket_join import DEVICE_LIMBS

        self._piece_gpus = GpuPool(gpus)
        self._device_limbs = DEVICE_LIMBS
        self.uses_device = True

    def join(
        self,
        program: JoinProgram,
        like: Schema,
        tables: Sequence[Table],
        row_limit: int,
        step_limit: int = NO_LIMIT,
        may_use_device: bool = True,
    ) -> Table:
        """Message of a bucket; arguments and errors as for
        :func:`oocbe.elimination.engine.bucket_engine.join_and_eliminate`.

        may_use_device : whether it may be joined on the device; else the CPU joins it.

        Raises ResourceError: device memory ran out.
        """
        self.deadline.check()
        if may_use_device and self._belongs_on_device(program, tables):
            with use_gpus(self._gpus):
                return _join_on_device(program, like, tables, row_limit)
        host = [to_host(t) for t in tables]
        limits = (row_limit, self._block_rows, self.deadline, step_limit)
        with span(KERNELS, "join bucket"):
            return join_and_eliminate(program, like, host, *limits)

    def join_piece(
        self,
        program: JoinProgram,
        like: Schema,
        tables: Sequence[Table],
        row_limit: int,
        step_limit: int = NO_LIMIT,
        may_halve: bool = True,
    ) -> Table:
        """Rows of one piece of a bucket's message, in main memory, joined by the thread of its stream.

        Arguments and errors as for :meth:`join`.

        may_halve : whether the caller can halve a piece that exceeds device memory; else the CPU joins it.

        Raises ResourceError: device memory ran out, and the piece may be halved or the backend is ``cuda``.
        """
        self.deadline.check()
        if self._belongs_on_device(program, tables):
            try:
                with span(KERNELS, "join piece"):
                    return self._piece_gpus.do(lambda: to_host(_join_on_device(program, like, tables, row_limit)))
            except ResourceError:
                if may_halve or self.insists:
                    raise
        # One block, because the other streams run concurrently.
        block_rows = max((t.rows for t in tables), default=0) + 1
        limits = (row_limit, block_rows, self.deadline, step_limit)
        with span(KERNELS, "join piece"):
            return join_and_eliminate(program, like, tables, *limits)

    def piece_bytes(self) -> int:
        """Maximum bytes of a piece's tables on the device; frontiers and results take at least as much in addition."""
        return max(1, int(self.device_room() * tuning().device_input_share))

    def _belongs_on_device(self, program: JoinProgram, tables: Sequence[Table]) -> bool:
        device = self.device()
        if device is None or (program.semiring.limbs or 0) > self._device_limbs:
            return False
        rows = max((t.rows for t in tables), default=0)
        work = program.expected_work(rows)
        return joins_on_device(device, work, self._device_work, rows, len(tables), program.consumes)

    def device(self, movable: Callable[[], int] | None = None) -> Device | None:
        """The device as input of a decision, or None; ``movable`` measures bytes that can leave it for a bucket."""
        if not self.uses_device:
            return None
        from oocbe.kernels.cuda.buckets.bucket_join import MOST_TABLES

        room = self.device_room if movable is None else lambda: self.device_room() + movable()
        return Device(self.insists, MOST_TABLES, room)

    def device_room(self) -> int:
        """Bytes of device memory that are available to a bucket now."""
        from oocbe.kernels.cuda.transfer.memory import device_room

        return device_room()

    def complete_kernels(self, joined_cells: int) -> CompleteBackend:
        """Kernels for a bucket with so many joined complete cells; UnsupportedError: the backend has none."""
        self.deadline.check()
        if self.insists:
            return complete_kernels(joined_cells, "cuda")
        device = self.device()
        takes_it = device is not None and device.takes_complete(joined_cells)
        return complete_kernels(joined_cells, "auto" if takes_it else "cpu")

    def drop_dominated(self, table: Table, substitutions: Substitutions, sign: int) -> Table:
        """A sorted table without dominated rows, in its memory; ``sign``: 1 if small values are better, else -1."""
        if is_on_device(table):
            from oocbe.kernels.cuda.buckets.bucket_join import drop_dominated
            from oocbe.kernels.cuda.transfer.memory import with_retry

            try:
                keys, values = with_retry(drop_dominated)(table.keys, table.values, *substitutions.flat(), sign)
            except DiskError:
                raise
            except ResourceError:
                if self.insists:
                    raise
                return self.drop_dominated(to_host(table), substitutions, sign)
        else:
            with span(KERNELS, "drop dominated rows"):
                keys, values = substitutions.drop_rows(table.keys, table.values, sign)
        return table if values is table.values else Table(table.layout, keys, values, table.semiring, is_sorted=True)


def _join_on_device(program: JoinProgram, like: Schema, tables: Sequence[Table], row_limit: int) -> Table:
    """Message of a bucket on the device; arguments as for :meth:`BucketEngine.join`.
    Raises TooManyRowsError if it has more rows than the limit, and ResourceError if device memory ran out."""
    from oocbe.kernels.cuda.buckets.bucket_join import RowLimitError
    from oocbe.kernels.cuda.transfer.memory import Retries

    retries = Retries()
    try:
        while True:
            with retries:
                keys, values = _rows_on_device(program, like, tables, row_limit)
                break
            retries.free_memory()
    except RowLimitError:
        pass  # continue outside the handler: its traceback keeps the failed call's arrays alive
    else:
        return Table(like.layout, keys, values, like.semiring, is_sorted=True)
    raise TooManyRowsError(len(like.layout.scope), row_limit)


def _rows_on_device(program: JoinProgram, like: Schema, tables: Sequence[Table], row_limit: int) -> tuple[Any, Any]:
    """Keys and values of a message; RowLimitError, or CuPy's OutOfMemoryError."""
    from oocbe.kernels.cuda.buckets.bucket_join import DeviceProgram

    pairs = [(t.keys, t.values) for t in map(to_device, tables)]
    return DeviceProgram(program, pairs, like.layout.words, like.dtype).join(row_limit)
