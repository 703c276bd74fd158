"""Where a bucket is computed: on the CPU, on the device, or on whichever its size suits.

Messages are made where they are cheapest and stay there until they are needed elsewhere: a table whose arrays are
CuPy's lives on the device. Small buckets belong to the CPU, since a device join launches two kernels a level and waits
for two numbers. Where rows carry what they consume of linear constraints, only the CPU can join them. Results are the
same rows in the same order, bit for bit for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.elimination.engine.bucket_join import NO_LIMIT, TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.bucket_sizes import Device
from oocbe.elimination.engine.decision import joins_on_device
from oocbe.errors import DiskError, ResourceError
from oocbe.kernels.cpu.buckets.join_arrays import JoinProgram
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import device_memory_limit
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import KERNELS, span
from oocbe.tables.layout import Layout
from oocbe.tables.residence import is_on_device, to_device, to_host
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.elimination.engine.substitutions import Substitutions
    from oocbe.execution.cluster.workers import Workers
    from oocbe.kernels.interface import CompleteBackend


def streams_for(streams: int | None) -> int:
    """Pieces at work at a time: what is asked for, or one a thread, but 2 at least so that one is read meanwhile."""
    return max(2, min(tuning().most_streams, thread_count())) if streams is None else streams


class BucketEngine:
    """Computes buckets.

    Parameters
    ----------
    backend : ``cpu``, ``cuda``, or ``auto`` (the device for large buckets, where there is one).
    device_memory : limit in bytes on device memory, for the whole process; None: ``OOCBE_DEVICE_MEMORY``, or all of it.
    block_rows : see :func:`oocbe.elimination.engine.bucket_join.join_and_eliminate`.
    device_work : expected work (see :meth:`JoinProgram.expected_work`) from which ``auto`` takes the device; None: what
        :class:`oocbe.model.settings.tuning.Tuning` says.
    deadline : when to give up, looked at before each bucket and within the CPU's loops; None: never.
    streams : pieces of a bucket that are at work at a time, where it does not fit in memory; None: one a thread, but 2
        at least, so that one is read while the other is joined.
    piece_rows : most rows of a table in a piece, and of its result; buckets with more are joined in pieces. None: as
        many as fit.
    workers : that large buckets are cut into segments for; None: there are none.

    Raises
    ------
    UsageError : ``cuda`` where no device can be used; the message says why.
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
    ) -> None:
        self.backend, self.device_memory, self.workers = backend, device_memory, workers
        self.streams = streams_for(streams)
        self.piece_rows = piece_rows
        self.deadline = deadline or Deadline()
        self._device_turn = Lock()
        self._block_rows = block_rows
        self.insists = backend == "cuda"
        self._device_work = 0 if self.insists else device_work if device_work is not None else tuning().device_work
        self.uses_device = False
        self._device_limbs = 0
        if backend == "cpu":
            return
        from oocbe.kernels.choice import cuda_works
        from oocbe.kernels.cuda.device import cupy
        from oocbe.kernels.cuda.transfer import memory

        if backend == "cuda":
            cupy()  # raises where there is none
        elif not cuda_works(wanted=False):
            return

        memory.set_limit(device_memory_limit() if device_memory is None else device_memory)
        from oocbe.kernels.cuda.buckets.bucket_join import DEVICE_LIMBS

        self._device_limbs = DEVICE_LIMBS
        self.uses_device = True

    def join(
        self,
        program: JoinProgram,
        layout: Layout,
        tables: Sequence[Table],
        semiring: Semiring,
        dtype: np.dtype[Any],
        row_limit: int,
        step_limit: int = NO_LIMIT,
        may_use_device: bool = True,
    ) -> Table:
        """Message of a bucket; arguments and errors as for
        :func:`oocbe.elimination.engine.bucket_join.join_and_eliminate`.

        may_use_device : whether it may be joined on the device; else the CPU joins it.

        Raises
        ------
        ResourceError : device memory ran out.
        """
        self.deadline.check()
        if may_use_device and self._belongs_on_device(program, tables):
            return _join_on_device(program, layout, tables, semiring, dtype, row_limit)
        host = [to_host(t) for t in tables]
        limits = (row_limit, self._block_rows, self.deadline, step_limit)
        with span(KERNELS, "join bucket"):
            return join_and_eliminate(program, layout, host, semiring, dtype, *limits)

    def join_piece(
        self,
        program: JoinProgram,
        layout: Layout,
        tables: Sequence[Table],
        semiring: Semiring,
        dtype: np.dtype[Any],
        row_limit: int,
        step_limit: int = NO_LIMIT,
        may_halve: bool = True,
    ) -> Table:
        """Rows of a message that come of one piece of its bucket, in main memory, joined by the thread of its stream.

        Arguments and errors as for :meth:`join`.

        may_halve : whether a piece that the device has no memory for is better halved; else it goes to the CPU.

        Raises
        ------
        ResourceError : device memory ran out, and the piece may be halved or the backend is ``cuda``.
        """
        self.deadline.check()
        if self._belongs_on_device(program, tables):
            try:
                with self._device_turn, span(KERNELS, "join piece"):
                    return to_host(_join_on_device(program, layout, tables, semiring, dtype, row_limit))
            except ResourceError:
                if may_halve or self.insists:
                    raise
        # One block: other streams are at work meanwhile.
        block_rows = max((t.rows for t in tables), default=0) + 1
        limits = (row_limit, block_rows, self.deadline, step_limit)
        with span(KERNELS, "join piece"):
            return join_and_eliminate(program, layout, tables, semiring, dtype, *limits)

    def piece_bytes(self) -> int:
        """Bytes of tables that a piece on the device may have; frontiers and results take as much again, and more."""
        return max(1, int(self.device_room() * tuning().device_input_share))

    def _belongs_on_device(self, program: JoinProgram, tables: Sequence[Table]) -> bool:
        device = self.device()
        if device is None or (program.semiring.limbs or 0) > self._device_limbs:
            return False
        rows = max((t.rows for t in tables), default=0)
        work = program.expected_work(rows)
        return joins_on_device(device, work, self._device_work, rows, len(tables), program.consumes)

    def device(self, movable: Callable[[], int] | None = None) -> Device | None:
        """The device as a decision sees it; None where there is none.

        movable : measures the bytes there that may leave it for a bucket.
        """
        if not self.uses_device:
            return None
        from oocbe.kernels.cuda.buckets.bucket_join import MOST_TABLES

        room = self.device_room if movable is None else lambda: self.device_room() + movable()
        return Device(self.insists, MOST_TABLES, room)

    def takes_complete(self, joined_cells: int) -> bool:
        """Whether a bucket of complete tables with so many joined cells is one for the device."""
        device = self.device()
        return device is not None and device.takes_complete(joined_cells, tuning())

    def device_room(self) -> int:
        """Bytes of device memory that a bucket may take now."""
        from oocbe.kernels.cuda.transfer.memory import device_room

        return device_room()

    def complete_kernels(self, joined_cells: int) -> CompleteBackend:
        """The kernels for a bucket of complete tables with so many joined cells.

        Raises
        ------
        UnsupportedError : the backend that is asked for has none for complete tables.
        """
        from oocbe.kernels.choice import complete_kernels

        self.deadline.check()
        if self.insists:
            return complete_kernels(joined_cells, "cuda")
        return complete_kernels(joined_cells, "auto" if self.takes_complete(joined_cells) else "cpu")

    def drop_dominated(self, table: Table, substitutions: Substitutions, sign: int) -> Table:
        """A sorted table without the rows that a substitution dominates, computed where the table is.

        sign : 1 where small values are better, -1 where large ones are.
        """
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


def _join_on_device(
    program: JoinProgram,
    layout: Layout,
    tables: Sequence[Table],
    semiring: Semiring,
    dtype: np.dtype[Any],
    row_limit: int,
) -> Table:
    """Message of a bucket on the device; arguments as for :meth:`BucketEngine.join`.

    Raises
    ------
    TooManyRowsError : more rows than the limit. ResourceError : device memory ran out.
    """
    from oocbe.kernels.cuda.buckets.bucket_join import RowLimitError
    from oocbe.kernels.cuda.transfer.memory import Retries

    retries = Retries()
    try:
        while True:
            with retries:
                keys, values = _rows_on_device(program, layout, tables, dtype, row_limit)
                break
            retries.free_memory()
    except RowLimitError:
        pass  # out of the handler: its traceback holds the failed call's arrays
    else:
        return Table(layout, keys, values, semiring, is_sorted=True)
    raise TooManyRowsError(len(layout.scope), row_limit)


def _rows_on_device(
    program: JoinProgram, layout: Layout, tables: Sequence[Table], dtype: np.dtype[Any], row_limit: int
) -> tuple[Any, Any]:
    """Keys and values of a message; RowLimitError, or CuPy's OutOfMemoryError."""
    from oocbe.kernels.cuda.buckets.bucket_join import DeviceProgram

    pairs = [(t.keys, t.values) for t in map(to_device, tables)]
    return DeviceProgram(program, pairs, layout.words, dtype).join(row_limit)
