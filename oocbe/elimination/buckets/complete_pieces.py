"""A complete message of any size: computed in pieces from the cells that each piece needs, and written piece by piece.

The variable eliminated next changes slowest in a message. A piece fixes values of the first variables of the scope, so
it is a contiguous range of cells. It needs, of each message of the bucket, one contiguous range for each value of the
bucket's variable (:mod:`oocbe.algebra.complete_tables.complete_cuts`). Nothing else is read; the concatenated pieces
are the message. Products of floats are scaled by the largest value of the message, so their pieces are written to a
scratch table first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_cuts import CellRoom
from oocbe.algebra.complete_tables.complete_stream import CellFunction, CompleteStream
from oocbe.algebra.complete_tables.conversion import cell_pieces
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.complete_messages import CompleteMessages
from oocbe.elimination.buckets.dense_table_header import DenseTableHeader
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.factors import PackedFactor
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.scaling import exponent_of, out_of_range, rescale, scaled_values
from oocbe.execution.budget import Budget
from oocbe.execution.memory_plan import MemoryPlan
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_named
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.residence import to_host
from oocbe.tables.stored_complete import AnyComplete, StoredCompleteTable


class CompletePieces:
    """Computes complete messages through the disk.

    Parameters
    ----------
    prepared, store, engine : as for :class:`CompleteMessages`. messages : provides the inputs of the join.
    """

    def __init__(
        self, prepared: Prepared, store: MessageStore, engine: BucketEngine, messages: CompleteMessages
    ) -> None:
        self._prepared, self._store, self._engine, self._messages = prepared, store, engine, messages

    def publish(
        self, place: int, bucket: Bucket, separator: tuple[int, ...], covered: Sequence[PackedFactor]
    ) -> tuple[Message, int] | None:
        """Compute and publish the message of the bucket at ``place``; the exponent of its scaling as well.

        None if all products of floats underflow: only rows distinguish that from infeasibility.

        Raises
        ------
        DiskError : the disk, or its permitted share, is full. TimeLimitError : the engine's deadline passed.
        ResourceError : the smallest piece does not fit in memory. CorruptDataError : a table on disk is damaged.
        """
        prepared, store, engine = self._prepared, self._store, self._engine
        store.move_to_main_memory(bucket.messages, as_rows=False)
        store.make_room(int(store.memory_limit * tuning().wanted_share))
        room = max(1, store.free)
        scope = tuple(reversed(separator))
        like = DenseTableHeader(prepared.layout(scope), prepared.dtype, prepared.semiring)
        with ExitStack() as scratch:
            tables = [CellFunction(tuple(reversed(m.scope)), self._cells(m, room, scratch)) for m in bucket.messages]
            stream = CompleteStream(
                scope,
                (bucket.variable,),
                dict(enumerate(prepared.problem.sizes)),
                self._messages.factors(bucket.functions, covered),
                tables,
                prepared.semiring,
                prepared.dtype,
                engine.complete_kernels,
                CellRoom(self._piece_bytes(room), engine.piece_rows),
                engine.streams,
            )
            with closing(stream.values()) as values:
                if not separator or like.layout.complete_rows * like.dtype.itemsize <= room * tuning().held_share:
                    made = np.concatenate(list(values))
                    return self._publish_held(place, separator, CompleteTable(like.layout, made, like.semiring))
                if exponent_of(like.semiring, like.dtype, 2.0) == 0:
                    return store.publish_cells(place, separator, like, values, 0), 0
                seen = _Largest(values)
                with self._written(like, seen.values()) as unscaled:
                    if unscaled.rows == 0:
                        return None
                    if not math.isfinite(seen.largest):
                        raise out_of_range(prepared.problem.name)
                    exponent = exponent_of(like.semiring, like.dtype, seen.largest)
                    scaled = (scaled_values(part, exponent) for part in unscaled.pieces(unscaled.chunk_cells))
                    return store.publish_cells(place, separator, like, scaled, exponent), exponent

    def _publish_held(self, place: int, separator: tuple[int, ...], table: CompleteTable) -> tuple[Message, int] | None:
        """Publish a message that is small enough for memory."""
        if table.rows == 0 and table.dtype.kind == "f":
            return None
        table, exponent = rescale(table, self._prepared.problem.name)
        return self._store.publish(place, separator, table, exponent), exponent

    def _piece_bytes(self, room: int) -> int:
        nbytes = int(room * tuning().cells_share)
        if self._engine.uses_device:
            nbytes = min(nbytes, self._engine.streams * self._engine.piece_bytes())
        return nbytes

    def _cells(self, message: Message, room: int, scratch: ExitStack) -> AnyComplete:
        """A message's values as a complete table, in memory or on disk, converted if necessary."""
        if message.is_complete:
            return message.cells()
        prepared = self._prepared
        layout = prepared.layout(tuple(reversed(message.scope)))
        if layout.complete_rows * prepared.dtype.itemsize + 2 * message.nbytes <= room * tuning().held_share:
            return to_host(message.complete(prepared.dtype))
        like = DenseTableHeader(layout, prepared.dtype, prepared.semiring)
        rows = message.rows_on_hand()
        source = source_of(to_host(rows) if message.is_in_memory else rows)  # type: ignore[type-var]
        space = MemoryPlan(Budget(int(room * tuning().fill_share)), self._store.budget, 1, self._engine.piece_rows)
        values = cell_pieces(source, layout, prepared.dtype, prepared.semiring, space, backend_named("cpu"))
        return scratch.enter_context(self._written(like, values))

    @contextmanager
    def _written(self, like: DenseTableHeader, values: Iterable[NDArray[np.generic]]) -> Iterator[StoredCompleteTable]:
        """A complete table in the scratch folder that exists within the block."""
        stored = self._store.write_cells(like, values)
        try:
            yield stored
        finally:
            self._store.remove_scratch(stored)


class _Largest:
    """Iterates over values and records the largest absolute one."""

    def __init__(self, values: Iterable[NDArray[np.generic]]) -> None:
        self._values = values
        self.largest = 0.0

    def values(self) -> Iterator[NDArray[np.generic]]:
        """The values; can be iterated once."""
        for part in self._values:
            self.largest = max(self.largest, abs(float(part.max())), abs(float(part.min())))
            yield part
