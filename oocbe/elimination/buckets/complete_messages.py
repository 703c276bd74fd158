"""Messages as complete tables: when a bucket is computed so, and how.

A complete message stands for the same rows as an incomplete one without dominance: every hard constraint that the
bucket's scope covers is applied. Its variables are in the opposite order, the one eliminated *last* changing fastest:
the bucket that it goes to then reduces over its slowest axis, whole runs of neighbouring cells at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bucket_engine.bucket_engine import BucketEngine
from oocbe.bucket_engine.bucket_join import TooManyRowsError
from oocbe.bucket_engine.factors import FactorPool, PackedFactor
from oocbe.complete_tables.complete_bucket import BucketFunction, CompleteBucket
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forms import (
    COMPLETE,
    FAVOUR,
    INCOMPLETE,
    LARGEST_SHARE,
    is_cheaper_complete,
    may_be_complete,
)
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.errors import DiskError, ResourceError, ValueRangeError
from oocbe.model.infeasible import infeasible_value
from oocbe.model.semiring import Combination
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import bits_for
from oocbe.tables.table import format_bytes

WORKING_COPIES = 2
"""A message is computed in the order that suits the kernel, then put into its own."""

DEVICE_COPIES = 1.1
"""A bucket's complete tables on the device, and what kernels take beside them."""

CELLS_A_CAPPED_ROW = 64
"""Cells of a complete message for each row that the cap of a race allows: they take less time."""


class Place(Enum):
    """Where a complete message is computed."""

    DEVICE = auto()
    MAIN_MEMORY = auto()


class CompleteMessages:
    """Decides on and computes the complete messages of a forward pass.

    Parameters
    ----------
    prepared : the problem. store : where messages are kept; its limit decides what fits. engine : has the kernels.
    tables : ``auto``, ``incomplete`` or ``complete``.

    Attributes
    ----------
    are_possible : whether any message may be complete at all.

    Raises
    ------
    ValueRangeError : ``complete`` where sums could reach the value of what is infeasible.
    """

    def __init__(self, prepared: Prepared, store: MessageStore, engine: BucketEngine, tables: str) -> None:
        self._prepared = prepared
        self._store = store
        self._engine = engine
        self._tables = tables
        self._not_on_device: set[int] = set()  # variables of buckets that its memory did not do for
        self.are_possible = tables != INCOMPLETE and may_be_complete(
            prepared.problem, prepared.semiring, prepared.dtype
        )
        if tables == COMPLETE and not self.are_possible:
            raise ValueRangeError(
                f"{prepared.problem.name}: sums of its values in {prepared.dtype.name} leave no room for what is "
                "infeasible in complete tables; use --tables auto, or give the costs as floating-point numbers"
            )

    def suits(self, bucket: Bucket, covered: Sequence[PackedFactor]) -> bool:
        """Whether the bucket's message, its separator filled in, is to be computed as a complete table in memory."""
        return self._place(bucket, covered) is not None

    def _place(self, bucket: Bucket, covered: Sequence[PackedFactor]) -> Place | None:
        """Where the message is to be computed as a complete table; None where it is not."""
        if not self.are_possible:
            return None
        needed, most = self._needed(bucket), self._engine.piece_rows
        if most is not None and self._cells(bucket.separator) > most:
            return None
        has_device = self._has_device(bucket)
        favour = FAVOUR if has_device or needed * LARGEST_SHARE <= self._store.memory_limit else 1.0
        is_wanted = self._tables == COMPLETE or self._is_cheaper(bucket, covered, favour)
        if not is_wanted:
            return None
        if has_device:
            return Place.DEVICE
        return Place.MAIN_MEMORY if not self._needs_device(bucket) and self._fits(bucket, needed) else None

    def suits_in_pieces(self, bucket: Bucket, covered: Sequence[PackedFactor]) -> bool:
        """The same for a message that does not suit memory: whether it is to be a complete table on disk."""
        if not self.are_possible:
            return False
        if self._tables == COMPLETE:
            return True
        most = self._engine.piece_rows
        has_to = self._needed(bucket) > self._store.free or (most is not None and self._cells(bucket.separator) > most)
        has_to = has_to or (self._needs_device(bucket) and not self._has_device(bucket))
        return has_to and self._is_cheaper(bucket, covered, 1.0)

    def check_rows_will_do(self, bucket: Bucket) -> None:
        """Refuse a message that does not suit memory where it must be there and complete (:class:`ResourceError`)."""
        if self._tables == COMPLETE and (self._needs_device(bucket) or not self._fits(bucket, self._needed(bucket))):
            raise self._out_of_memory(bucket, self._needed(bucket))

    def _needed(self, bucket: Bucket) -> int:
        """Bytes that joining takes besides complete messages in memory: the message, others once they are so, and the
        copies that kernels make to have all in order."""
        cells = WORKING_COPIES * self._cells(bucket.separator)
        for m in bucket.messages:
            cells += (1 if m.is_complete and m.main_memory else 2) * self._cells(m.scope)
        return cells * self._prepared.dtype.itemsize

    def _has_device(self, bucket: Bucket) -> bool:
        """Whether the bucket is one for the device, and the device has room for it."""
        if bucket.variable in self._not_on_device or not self._engine.takes_complete(self._joined(bucket)):
            return False
        cells = self._cells(bucket.separator)
        cells += sum(self._cells(m.scope) for m in bucket.messages if not (m.is_complete and m.is_on_device))
        needed = int(cells * self._prepared.dtype.itemsize * DEVICE_COPIES)
        has_room = needed <= self._engine.device_room() + self._store.left_on_device
        return has_room and self._fits(bucket, self._passing(bucket))

    def _passing(self, bucket: Bucket) -> int:
        """Bytes of tables that are made complete in main memory, on their way to the device."""
        dtype = self._prepared.dtype
        cells = sum(self._cells(m.scope) for m in bucket.messages if not m.is_in_memory or m.dtype != dtype)
        return cells * dtype.itemsize

    def _needs_device(self, bucket: Bucket) -> bool:
        """Whether nothing but the device may compute the bucket."""
        return self._engine.insists and self._engine.takes_complete(self._joined(bucket))

    def _joined(self, bucket: Bucket) -> int:
        return self._cells(bucket.separator) * self._prepared.problem.sizes[bucket.variable]

    def _is_cheaper(self, bucket: Bucket, covered: Sequence[PackedFactor], favour: float) -> bool:
        prepared = self._prepared
        cells = self._cells(bucket.separator)
        rows = cells * self._density(bucket, covered)
        words = prepared.layout(bucket.separator).words
        return is_cheaper_complete(cells, rows, words, prepared.dtype.itemsize, favour)

    def _fits(self, bucket: Bucket, needed: int) -> bool:
        self._store.make_room(needed, besides=bucket.messages)
        return needed <= self._store.free

    def _density(self, bucket: Bucket, covered: Sequence[PackedFactor]) -> float:
        """Expected density of the message, from the measured ones of what is joined, as if they were independent."""
        prepared = self._prepared
        joined = 1.0
        for m in bucket.messages:
            joined *= min(1.0, m.rows / self._cells(m.scope))
        for c in covered:
            permitted = np.count_nonzero(prepared.constraints.entries[c.offset : c.offset + (1 << c.bits)])
            joined *= permitted / self._cells(c.scope)
        return 1.0 - (1.0 - joined) ** prepared.problem.sizes[bucket.variable]

    def check_cap(self, bucket: Bucket, row_cap: int | None) -> None:
        """Refuse a message of more than :data:`CELLS_A_CAPPED_ROW` times ``row_cap`` cells
        (:class:`TooManyRowsError`)."""
        if row_cap is not None and self._cells(bucket.separator) > row_cap * CELLS_A_CAPPED_ROW:
            raise TooManyRowsError(len(bucket.separator), row_cap)

    def compute(
        self, bucket: Bucket, covered: Sequence[PackedFactor], row_cap: int | None = None
    ) -> CompleteTable | None:
        """The bucket's message in memory, the device's or main memory; None where it suits neither.

        Raises
        ------
        TooManyRowsError : see :meth:`check_cap`.
        """
        while (place := self._place(bucket, covered)) is not None:
            self.check_cap(bucket, row_cap)
            try:
                return self._computed(bucket, covered, place is Place.DEVICE)
            except DiskError:
                raise
            except ResourceError:
                if place is not Place.DEVICE:
                    raise
            self._not_on_device.add(bucket.variable)
        return None

    def _computed(self, bucket: Bucket, covered: Sequence[PackedFactor], has_device: bool) -> CompleteTable:
        kernels = self._engine.complete_kernels(self._joined(bucket) if has_device else 0)
        if not has_device:
            cells = self._cells(bucket.separator)
            self._store.make_room(cells * self._prepared.dtype.itemsize, besides=bucket.messages)
        separator = tuple(reversed(bucket.separator))
        functions = [self._received(m, has_device) for m in bucket.messages]
        functions += self.factors(bucket.functions, covered)
        prepared = self._prepared
        sizes = prepared.problem.sizes
        complete = CompleteBucket(separator, (bucket.variable,), sizes, prepared.semiring, prepared.dtype, kernels)
        return CompleteTable(prepared.layout(separator), complete.eliminate(functions), prepared.semiring)

    def _received(self, message: Message, for_device: bool) -> BucketFunction:
        table = message.complete(self._prepared.dtype, for_device)
        scope = tuple(reversed(message.scope))
        return BucketFunction(scope, table.values, table.steps)

    def factors(self, functions: Sequence[PackedFactor], constraints: Sequence[PackedFactor]) -> list[BucketFunction]:
        """Packed functions and constraints, those over the same variables as one."""
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

    @staticmethod
    def _entries(pool: FactorPool, factor: PackedFactor) -> NDArray[Any]:
        return pool.entries[factor.offset : factor.offset + (1 << factor.bits)]

    def _cells(self, scope: Sequence[int]) -> int:
        return math.prod(self._prepared.problem.sizes[v] for v in scope)

    def _out_of_memory(self, bucket: Bucket, needed: int) -> ResourceError:
        problem, store = self._prepared.problem, self._store
        return ResourceError(
            f"{problem.name}, bucket of {problem.variables[bucket.variable].name}: its message over "
            f"{len(bucket.separator)} variables is to be complete; requested {format_bytes(needed)}, used "
            f"{format_bytes(store.in_memory)}, limit {format_bytes(store.memory_limit)}. Raise --memory, or use "
            "--tables auto"
        )
