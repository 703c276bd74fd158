"""Messages as complete tables: forecasts, and computation in memory and of any size.

A complete message represents the same rows as an incomplete one without dominance: every hard constraint covered by the
bucket's scope is applied. Its variables have the opposite order, the one eliminated *last* changing fastest. The
receiving bucket then reduces over the slowest axis, whole runs of neighbouring cells at a time.

A message of any size is computed in pieces, written one by one. A piece fixes values of the first variables of the
scope, so it is a contiguous range of cells. It needs, of each message of the bucket, one contiguous range for each
value of the bucket's variable (:mod:`oocbe.algebra.complete_tables.complete_cuts`); nothing else is read. Products of
floats are scaled by the largest value of the message, so their pieces are written to a scratch table first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_cuts import CellRoom
from oocbe.algebra.complete_tables.complete_stream import BucketFunction, CellFunction, CompleteBucket, CompleteStream
from oocbe.algebra.complete_tables.conversion import cell_pieces
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forms import checked_tables
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.bucket_join import TooManyRowsError
from oocbe.elimination.engine.decision import Place
from oocbe.elimination.engine.factors import FactorPool, PackedFactor
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.scaling import Extent, exponent_of, out_of_range, rescale, scaled_values
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_named
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Schema, bits_for
from oocbe.tables.residence import to_host
from oocbe.tables.stored_complete import AnyComplete

LEAST_EXPONENT = -1000.0
"""Base-2 exponent from which products are normal float64 numbers, despite rounding."""


class CompleteMessages:
    """Computes the complete messages of a forward pass.

    Parameters
    ----------
    prepared : the problem. store : keeps the messages. engine : provides the kernels.
    tables : ``auto``, ``incomplete`` or ``complete``.

    Attributes
    ----------
    tables : as passed, but ``incomplete`` if no message can be complete.

    Raises
    ------
    ValueRangeError : ``complete`` is requested and sums could reach the infeasible value.
    """

    def __init__(self, prepared: Prepared, store: MessageStore, engine: BucketEngine, tables: str) -> None:
        self._prepared = prepared
        self._store = store
        self._engine = engine
        self.tables = checked_tables(prepared.problem, prepared.semiring, prepared.dtype, tables)

    def expected_rows(self, bucket: Bucket, covered: Sequence[PackedFactor]) -> float:
        """Expected rows of the message of a bucket with a known separator: from the measured densities of the joined
        factors, assumed independent."""
        prepared = self._prepared
        joined = 1.0
        for m in bucket.messages:
            joined *= min(1.0, m.rows / self._cells(m.scope))
        for c in covered:
            permitted = np.count_nonzero(prepared.constraints.entries[c.offset : c.offset + (1 << c.bits)])
            joined *= permitted / self._cells(c.scope)
        density = 1.0 - (1.0 - joined) ** prepared.problem.sizes[bucket.variable]
        return min(self._cells(bucket.separator), sys.float_info.max) * density

    def check_cap(self, bucket: Bucket, row_cap: int | None) -> None:
        """Raise :class:`TooManyRowsError` if a message has far more cells than the race's row cap."""
        if row_cap is not None and self._cells(bucket.separator) > row_cap * tuning().steps_a_row:
            raise TooManyRowsError(len(bucket.separator), row_cap)

    def is_certain(self, bucket: Bucket, made: CompleteTable) -> bool:
        """Whether the infeasible cells of a complete table are truly infeasible. In float products, underflow and
        cancellation look the same; only rows distinguish them."""
        if not self._multiplies_floats or made.rows == made.cells:
            return made.rows > 0 or made.dtype.kind != "f"
        return made.rows > 0 and self.may_be_certain(bucket)

    def may_be_certain(self, bucket: Bucket) -> bool:
        """Whether the product of the smallest nonzero values of all inputs is a normal float64."""
        if not self._multiplies_floats:
            return True
        entries = self._prepared.functions.entries
        bits = 0.0
        for f in bucket.functions:
            own = np.abs(entries[f.offset : f.offset + (1 << f.bits)])
            bits += float(np.log2(own[own > 0].min(initial=1.0)))
        for message in bucket.messages:
            bits += math.log2(message.least_magnitude())
        return bits >= LEAST_EXPONENT

    @property
    def _multiplies_floats(self) -> bool:
        prepared = self._prepared
        return prepared.dtype.kind == "f" and prepared.semiring.combination is Combination.MULTIPLY

    def compute(self, bucket: Bucket, covered: Sequence[PackedFactor], place: Place) -> CompleteTable:
        """The message, on the device or in memory; ResourceError: no room there; DiskError: others cannot leave."""
        has_device = place is Place.DEVICE
        cells = self._cells(bucket.separator)
        kernels = self._engine.complete_kernels(cells * self._sizes[bucket.variable] if has_device else 0)
        separator = tuple(reversed(bucket.separator))
        functions = [self._received(m, has_device) for m in bucket.messages]
        functions += self.factors(bucket.functions, covered)
        prepared = self._prepared
        complete = CompleteBucket(
            separator, (bucket.variable,), self._sizes, prepared.semiring, prepared.dtype, kernels
        )
        return CompleteTable(prepared.layout(separator), complete.eliminate(functions), prepared.semiring)

    def _received(self, message: Message, for_device: bool) -> BucketFunction:
        table = message.complete(self._prepared.dtype, for_device)
        scope = tuple(reversed(message.scope))
        return BucketFunction(scope, table.values, table.steps)

    def factors(self, functions: Sequence[PackedFactor], constraints: Sequence[PackedFactor]) -> list[BucketFunction]:
        """Packed functions and constraints, merged if they have the same variables."""
        prepared = self._prepared
        made: list[BucketFunction] = []
        by_scope: dict[tuple[int, ...], NDArray[Any]] = {}
        adds = prepared.semiring.combination is Combination.ADD
        for f in functions:
            own = self._entries(prepared.functions, f)
            if f.scope in by_scope:
                own = by_scope[f.scope] + own if adds else by_scope[f.scope] * own
            by_scope[f.scope] = own
        one = prepared.dtype.type(prepared.semiring.one)
        infeasible = infeasible_value(prepared.dtype, prepared.semiring.combination, prepared.semiring.marginalisation)
        for c in constraints:
            permitted = self._entries(prepared.constraints, c) != 0
            by_scope[c.scope] = np.where(permitted, by_scope.get(c.scope, one), infeasible)
        for scope, own in by_scope.items():
            bits = [bits_for(prepared.problem.sizes[v]) for v in scope]
            strides = tuple(1 << sum(bits[:i]) for i in range(len(bits)))
            made.append(BucketFunction(scope, own, strides))
        return made

    def publish(
        self, place: int, bucket: Bucket, separator: tuple[int, ...], covered: Sequence[PackedFactor]
    ) -> tuple[Message, int] | None:
        """Compute and publish the message of the bucket at ``place``; the exponent of its scaling as well.

        None if all products of floats underflow: only rows distinguish that from infeasibility.

        Raises DiskError: the disk, or its permitted share, is full; TimeLimitError: the engine's deadline passed;
        ResourceError: the smallest piece does not fit in memory; CorruptDataError: a table on disk is damaged.
        """
        prepared, store, engine = self._prepared, self._store, self._engine
        store.move_to_main_memory(bucket.messages, as_rows=False)
        store.make_room(int(store.memory_limit * tuning().freed_share))
        room = max(1, store.free)
        piece_bytes = int(room * tuning().half_share)
        if engine.uses_device:
            piece_bytes = min(piece_bytes, engine.streams * engine.piece_bytes())
        scope = tuple(reversed(separator))
        like = Schema(prepared.layout(scope), prepared.dtype, prepared.semiring)
        with ExitStack() as scratch:
            tables = [CellFunction(tuple(reversed(m.scope)), self._cells_of(m, room, scratch)) for m in bucket.messages]
            stream = CompleteStream(
                scope,
                (bucket.variable,),
                dict(enumerate(prepared.problem.sizes)),
                self.factors(bucket.functions, covered),
                tables,
                prepared.semiring,
                prepared.dtype,
                engine.complete_kernels,
                CellRoom(piece_bytes, engine.piece_rows),
                engine.streams,
            )
            with closing(stream.values()) as values:
                if not separator or like.layout.complete_rows * like.dtype.itemsize <= room * tuning().held_share:
                    made = np.concatenate(list(values))
                    return self._publish_held(place, separator, CompleteTable(like.layout, made, like.semiring))
                if exponent_of(like.semiring, like.dtype, 2.0) == 0:
                    return store.publish_cells(place, separator, like, values, 0), 0
                extent = Extent()
                with store.scratch_cells(like, map(extent.passing, values)) as unscaled:
                    if unscaled.rows == 0:
                        return None
                    if not math.isfinite(extent.largest):
                        raise out_of_range(prepared.problem.name)
                    exponent = exponent_of(like.semiring, like.dtype, extent.largest)
                    scaled = (scaled_values(part, exponent) for part in unscaled.pieces(unscaled.chunk_cells))
                    return store.publish_cells(place, separator, like, scaled, exponent), exponent

    def _publish_held(self, place: int, separator: tuple[int, ...], table: CompleteTable) -> tuple[Message, int] | None:
        """Publish a message that is small enough for memory."""
        if table.rows == 0 and table.dtype.kind == "f":
            return None
        table, exponent = rescale(table, self._prepared.problem.name)
        return self._store.publish(place, separator, table, exponent), exponent

    def _cells_of(self, message: Message, room: int, scratch: ExitStack) -> AnyComplete:
        """A message's values as a complete table, in memory or on disk, converted if necessary."""
        if message.is_complete:
            return message.cells()
        prepared = self._prepared
        layout = prepared.layout(tuple(reversed(message.scope)))
        if layout.complete_rows * prepared.dtype.itemsize + 2 * message.nbytes <= room * tuning().held_share:
            return to_host(message.complete(prepared.dtype))
        like = Schema(layout, prepared.dtype, prepared.semiring)
        rows = message.rows_on_hand()
        source = source_of(to_host(rows) if message.is_in_memory else rows)  # type: ignore[type-var]
        space = MemoryPlan(Budget(int(room * tuning().half_share)), self._store.budget, 1, self._engine.piece_rows)
        values = cell_pieces(source, layout, prepared.dtype, prepared.semiring, space, backend_named("cpu"))
        return scratch.enter_context(self._store.scratch_cells(like, values))

    @staticmethod
    def _entries(pool: FactorPool, factor: PackedFactor) -> NDArray[Any]:
        return pool.entries[factor.offset : factor.offset + (1 << factor.bits)]

    @property
    def _sizes(self) -> Sequence[int]:
        return self._prepared.problem.sizes

    def _cells(self, scope: Sequence[int]) -> int:
        return math.prod(self._sizes[v] for v in scope)
