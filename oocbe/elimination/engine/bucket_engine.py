"""Selects the CPU or the device for a bucket, by its size, and computes it there.

Messages are computed where they are cheapest and stay there until they are needed elsewhere: a table with CuPy arrays
is on the device. The CPU takes small buckets, since a device join launches two kernels a level and waits for two
numbers. Only the CPU can join rows that carry consumption of linear constraints. Both backends produce the same rows in
the same order, bit for bit for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oocbe.elimination.engine.bucket_join import NO_LIMIT, TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.decision import Device, joins_on_device
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels.cpu.buckets.join_arrays import JoinProgram
from oocbe.kernels.cpu.threads import thread_count
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
    from oocbe.kernels.interface import CompleteBackend


def streams_for(streams: int | None) -> int:
    """Number of concurrent pieces: as requested, or one a thread, at least 2 so that reading overlaps with joining."""
    return max(2, min(tuning().most_streams, thread_count())) if streams is None else streams


class BucketEngine:
    """Computes buckets.

    backend : ``cpu``, ``cuda``, or ``auto`` (the device for large buckets, where there is one).
    device_memory : limit in bytes on device memory, for the whole process; None: ``OOCBE_DEVICE_MEMORY``, or all of it.
    block_rows : see :func:`oocbe.elimination.engine.bucket_join.join_and_eliminate`.
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
        self.streams = streams_for(streams)
        self.piece_rows = piece_rows
        self.deadline = deadline or Deadline()
        self._block_rows = block_rows
        self.insists = backend == "cuda"
        self._device_work = 0 if self.insists else device_work if device_work is not None else tuning().device_work
        self.uses_device = False
        self._device_limbs = 0
        if backend == "cpu":
            return
        from oocbe.kernels.choice import cuda_works
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
        :func:`oocbe.elimination.engine.bucket_join.join_and_eliminate`.

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

    def takes_complete(self, joined_cells: int) -> bool:
        """Whether the device computes a bucket of complete tables with ``joined_cells`` cells."""
        device = self.device()
        return device is not None and device.takes_complete(joined_cells)

    def device_room(self) -> int:
        """Bytes of device memory that are available to a bucket now."""
        from oocbe.kernels.cuda.transfer.memory import device_room

        return device_room()

    def complete_kernels(self, joined_cells: int) -> CompleteBackend:
        """Kernels for a bucket with so many joined complete cells; UnsupportedError: the backend has none."""
        from oocbe.kernels.choice import complete_kernels

        self.deadline.check()
        if self.insists:
            return complete_kernels(joined_cells, "cuda")
        return complete_kernels(joined_cells, "auto" if self.takes_complete(joined_cells) else "cpu")

    def drop_dominated(self, table: Table, substitutions: Substitutions, sign: int) -> Table:
        """A sorted table without dominated rows, in its memory; ``sign``: 1 if small values are better, else -1."""
        if is_on_device(table):
            from oocbe.kernels.cuda.buckets.dominance import drop_dominated
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
