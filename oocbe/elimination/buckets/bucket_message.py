"""Make the message of one bucket: in memory where its tables and rows fit, in pieces through the disk where not.

Both ways join the same program, so they give the same rows. In memory, all tables of the bucket are read and joined at
once. Where they would take too much of the limit, where the message turns out to have more rows than there is room for,
or where the device has no memory for them, the bucket is joined again in pieces
(:mod:`oocbe.elimination.buckets.piecewise`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.bucket_engine.bucket_cuts import BucketJoin
from oocbe.bucket_engine.bucket_engine import BucketEngine
from oocbe.bucket_engine.bucket_join import NO_LIMIT, TooManyRowsError, TooManyStepsError
from oocbe.bucket_engine.factors import PackedFactor
from oocbe.bucket_engine.join_program import BucketScope, ProgramBuilder
from oocbe.bucket_engine.row_pruning import RowPruning
from oocbe.elimination.buckets.buckets import Bucket, elements_of, members_of, reading, subtree_members
from oocbe.elimination.buckets.complete_messages import CompleteMessages
from oocbe.elimination.buckets.complete_pieces import CompletePieces
from oocbe.elimination.buckets.forms import INCOMPLETE
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.piecewise import Finish, PiecewiseBucket
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.ranges import check_product, largest_magnitude, rounding_margin
from oocbe.elimination.preparation.scaling import rescale
from oocbe.errors import DiskError, ResourceError
from oocbe.model.semiring import Combination
from oocbe.pruning.dominance import SubstitutionDominance, applies_to
from oocbe.pruning.pruner import RowPruner
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.residence import is_on_device
from oocbe.tables.table import Table, format_bytes

WORKING_COPIES = 3
"""What a message takes while it is made: its blocks grow by doubling, and are then laid end to end."""

STEPS_A_ROW = 64
"""Steps that a capped run may take for each row that its cap allows: bounds may drop nearly all that a join tries."""

LEAST_EXPONENT = -1000.0
"""Products of at least two to the power of this are normal numbers, beside rounding."""

INPUT_SHARE = 0.5
"""Tables that would take more of the limit than this are joined in pieces: the rest is for what comes of them."""


class MessageMaker:
    """Makes messages of one problem's buckets and hands them to the store.

    Parameters
    ----------
    prepared, dominance, store, row_cap, engine, pruner, tables : as for
        :class:`oocbe.elimination.buckets.forward.Forward`.
    """

    def __init__(
        self,
        prepared: Prepared,
        dominance: bool,
        store: MessageStore,
        row_cap: int | None = None,
        engine: BucketEngine | None = None,
        pruner: RowPruner | None = None,
        tables: str = INCOMPLETE,
    ) -> None:
        self._prepared = prepared
        self._store = store
        self._row_cap = row_cap
        self._step_limit = NO_LIMIT if row_cap is None else row_cap * STEPS_A_ROW
        self._engine = engine or BucketEngine("cpu")
        self._pruner = pruner
        form = INCOMPLETE if pruner is not None or prepared.consumption is not None else tables
        self._complete = CompleteMessages(prepared, store, self._engine, form)
        self._complete_pieces = CompletePieces(prepared, store, self._engine, self._complete)
        problem = prepared.problem
        self._may_cancel = any(f.values.min(initial=0) < 0 or (f.default or 0) < 0 for f in problem.functions)
        is_dominated = dominance and applies_to(prepared.semiring)
        pools = (prepared.constraints, prepared.functions)
        self._program = ProgramBuilder(
            problem.sizes, *pools, prepared.semiring, prepared.consumption, keeps_staircase=is_dominated
        )
        self._constraints_of: list[list[PackedFactor]] = [[] for _ in problem.variables]
        for c in prepared.constraints.factors:
            for v in c.scope:
                self._constraints_of[v].append(c)
        self._dominance = None
        if is_dominated:
            opaque = [t.scope for t in prepared.tables]
            self._dominance = SubstitutionDominance(
                problem.sizes,
                prepared.semiring,
                prepared.constraints,
                prepared.functions,
                opaque,
                rounding_margin(problem),
                prepared.consumption,
            )

    def make(self, place: int, bucket: Bucket, subtree: NDArray[np.uint8]) -> tuple[Message, int]:
        """The message of the bucket at ``place`` (from 0), published, and the exponent of its scaling.

        subtree : uint8 (variables,), 1 for those eliminated in the message's subtree, the bucket's own included.

        Raises
        ------
        TooManyRowsError : more rows than the cap, or more steps than go with it.
        ResourceError : memory or disk ran out. TimeLimitError : the engine's deadline came.
        ValueRangeError : a product of integers could leave the range of int64.
        """
        separator = bucket.separator
        bucket, pruning = self._begun(bucket, subtree)
        table: Table | CompleteTable | None = self.complete_message(bucket)
        if table is None and (published := self._in_complete_pieces(place, bucket, separator)) is not None:
            return published
        if table is None and self._prepared.consumption is not None:
            table = self._held(bucket, separator, subtree, pruning)
        if table is None and not self._exceeds_memory(bucket):
            table = self._in_memory(bucket, separator, subtree, pruning)
        if table is None:
            return self._in_pieces(place, bucket, separator, subtree, pruning)
        exponent = 0
        if table.rows:
            table, exponent = rescale(table, self._name_of(bucket), self._may_cancel)
        return self._store.publish(place, separator, table, exponent), exponent

    def table(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table:
        """The message of a bucket in memory, not published; arguments as for :meth:`make`.

        Raises
        ------
        ResourceError : it does not fit the memory limit, or device memory ran out. Else as for :meth:`make`.
        """
        separator = bucket.separator
        bucket, pruning = self._begun(bucket, subtree)
        return self._held(bucket, separator, subtree, pruning)

    def _held(
        self, bucket: Bucket, separator: tuple[int, ...], subtree: NDArray[np.uint8], pruning: RowPruning | None
    ) -> Table:
        """The message in memory, whatever it takes: rows that carry what they consume are not cut into pieces."""
        table = self._in_memory(bucket, separator, subtree, pruning)
        if table is None:
            problem, store = self._prepared.problem, self._store
            raise ResourceError(
                f"{problem.name}, bucket of {problem.variables[bucket.variable].name}: its message over "
                f"{len(separator)} variables does not fit memory; used {format_bytes(store.in_memory)}, requested more "
                f"than {format_bytes(max(0, store.free))}, limit {format_bytes(store.memory_limit)}. Raise --memory"
            )
        return table

    def _begun(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> tuple[Bucket, RowPruning | None]:
        """What is joined, its range checked, and the bound to hold rows against."""
        separator = bucket.separator
        bucket = self.factors(bucket)
        if self._prepared.semiring.combination is Combination.MULTIPLY:
            self.check_range(bucket)
        if self._pruner is None:
            return bucket, None
        return bucket, self._pruner.for_message(subtree_members(subtree), separator, self._prepared.consumption)

    def factors(self, bucket: Bucket) -> Bucket:
        """What is joined for a bucket: itself, unless a subclass joins some of its messages beforehand."""
        return bucket

    def finished(self, table: Table) -> Table:
        """Rows as the message has them, from those of the join: the same, unless a subclass changes values."""
        return table

    def check_range(self, bucket: Bucket) -> None:
        """Refuse products of integers that may leave int64."""
        if self._prepared.dtype.kind != "i":
            return
        problem, entries = self._prepared.problem, self._prepared.functions.entries
        factors = [m.largest_magnitude() for m in bucket.messages]
        factors += [largest_magnitude(entries[f.offset : f.offset + (1 << f.bits)]) for f in bucket.functions]
        check_product(self._name_of(bucket), self._prepared.dtype, factors, problem.sizes[bucket.variable])

    def _name_of(self, bucket: Bucket) -> str:
        """The bucket, for messages."""
        problem = self._prepared.problem
        return f"{problem.name}, bucket of {problem.variables[bucket.variable].name}"

    def complete_message(self, bucket: Bucket) -> CompleteTable | None:
        """The message as a complete table, not published; None where rows are cheaper."""
        made = self._computed_complete(bucket)
        return made if made is not None and self._is_certain(bucket, made) else None

    def _computed_complete(self, bucket: Bucket) -> CompleteTable | None:
        """The message as a complete table, certain or not."""
        if not self._complete.are_possible:
            return None
        with reading(self._prepared, bucket):
            return self._complete.compute(bucket, self._covered(bucket), self._row_cap)

    def _is_certain(self, bucket: Bucket, made: CompleteTable) -> bool:
        """Whether what a complete table says is infeasible is so; only rows tell it from floats whose product is too
        small for one, or that cancel."""
        if not self._multiplies_floats or made.rows == made.cells:
            return made.rows > 0 or made.dtype.kind != "f"
        return made.rows > 0 and not self._may_underflow(bucket)

    def needed_message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table | CompleteTable:
        """The message in memory in the form that is cheaper, not published; arguments and errors as for :meth:`table`.

        ResourceError also where it must be complete and does not fit.
        """
        made = self._computed_complete(bucket)
        if made is None:
            self._complete.check_rows_will_do(bucket)
        elif self._is_certain(bucket, made):
            return made
        return self.table(bucket, subtree)

    @property
    def _multiplies_floats(self) -> bool:
        prepared = self._prepared
        return prepared.dtype.kind == "f" and prepared.semiring.combination is Combination.MULTIPLY

    def _may_underflow(self, bucket: Bucket) -> bool:
        """Whether the product of the smallest values of all that is joined, but 0, may be too small for float64."""
        entries = self._prepared.functions.entries
        bits = 0.0
        for f in bucket.functions:
            own = np.abs(entries[f.offset : f.offset + (1 << f.bits)])
            bits += float(np.log2(own[own > 0].min(initial=1.0)))
        for message in bucket.messages:
            bits += math.log2(message.least_magnitude())
        return bits < LEAST_EXPONENT

    def _in_complete_pieces(self, place: int, bucket: Bucket, separator: tuple[int, ...]) -> tuple[Message, int] | None:
        """The message as a complete table through the disk; None where rows are cheaper."""
        if not self._complete.are_possible:
            return None
        covered = self._covered(bucket)
        if not self._complete.suits_in_pieces(bucket, covered):
            return None
        if self._multiplies_floats and self._may_underflow(bucket):
            return None
        self._complete.check_cap(bucket, self._row_cap)
        with reading(self._prepared, bucket):
            return self._complete_pieces.publish(place, bucket, separator, covered)

    def _exceeds_memory(self, bucket: Bucket) -> bool:
        """Whether the bucket's tables would take so much memory that they are better joined in pieces."""
        most = self._engine.piece_rows
        if most is not None and any(m.rows > most for m in bucket.messages):
            return True
        held = sum(m.main_memory for m in bucket.messages)
        return held + _charged(bucket) > self._store.memory_limit * INPUT_SHARE

    def _in_memory(
        self, bucket: Bucket, separator: tuple[int, ...], subtree: NDArray[np.uint8], pruning: RowPruning | None
    ) -> Table | None:
        """The message where all of it fits; None where it does not."""
        prepared, store, engine = self._prepared, self._store, self._engine
        charged = _charged(bucket)
        largest = max((m.nbytes for m in bucket.messages), default=0)
        store.make_room(charged + 2 * WORKING_COPIES * largest, besides=bucket.messages)
        with reading(prepared, bucket):
            tables = [m.table() for m in bucket.messages]
        if not engine.can_take(tables):  # what is on the device comes to main memory, then
            charged += sum(m.nbytes for m in bucket.messages if m.is_on_device)
        layout = prepared.layout(separator)
        program = self._program.build(
            self._scope(bucket, separator, layout),
            [(m.scope, t.layout) for m, t in zip(bucket.messages, tables, strict=True)],
            self._covered(bucket),
            bucket.functions,
            max((t.rows for t in tables), default=0),
            pruning,
        )
        row_bytes = (8 * layout.words + prepared.dtype.itemsize) * WORKING_COPIES
        # Rows that carry what they consume are not cut into pieces.
        piece_rows = engine.piece_rows if prepared.consumption is None else None
        while True:
            limit = max(0, store.free - charged) // row_bytes
            if piece_rows is not None:
                limit = min(limit, piece_rows)
            cap = limit + 1 if self._row_cap is None else self._row_cap
            limits = (min(cap, limit), self._step_limit)
            try:
                message = engine.join(
                    program, layout, tables, prepared.semiring, prepared.dtype, *limits, may_fall_back=False
                )
                break
            except TooManyStepsError:
                raise
            except TooManyRowsError:
                if cap <= limit:
                    raise
            except DiskError:
                raise
            except ResourceError:
                return None
            # Out of the handler: the error's traceback holds the failed call's arrays, and writing takes memory, too.
            if piece_rows is not None or not store.make_room(store.memory_limit, besides=bucket.messages):
                return None
        message = self.finished(message)
        if self._dominance is not None:
            message = self._dominance.drop_dominated(message, separator, subtree, engine)
        if not is_on_device(message):
            store.make_room(message.nbytes)
        return message

    def _in_pieces(
        self,
        place: int,
        bucket: Bucket,
        separator: tuple[int, ...],
        subtree: NDArray[np.uint8],
        pruning: RowPruning | None,
    ) -> tuple[Message, int]:
        """The message through the disk, which has room for tables and rows of any number."""
        prepared = self._prepared
        self._store.bring_home(bucket.messages, as_rows=True)
        self._store.list_rows(bucket.messages)
        finish = Finish(self._name_of(bucket), self._may_cancel, self.finished, self._dominance, separator, subtree)
        pieces = PiecewiseBucket(self._store, self._engine, finish, self._row_cap, self._step_limit)
        join = BucketJoin(
            self._program,
            self._scope(bucket, separator, prepared.layout(separator)),
            tuple((m.scope, m.sorted_rows(pieces.cache)) for m in bucket.messages),
            self._covered(bucket),
            bucket.functions,
            pruning,
            prepared.semiring,
            prepared.dtype,
            max((m.rows for m in bucket.messages), default=0),
            self._name_of(bucket),
        )
        with reading(prepared, bucket):
            return pieces.publish(place, join)

    def _scope(self, bucket: Bucket, separator: tuple[int, ...], layout: Layout) -> BucketScope:
        return BucketScope(bucket.variable, self._prepared.problem.sizes[bucket.variable], separator, layout)

    def _covered(self, bucket: Bucket) -> list[PackedFactor]:
        """Constraints over the bucket's variables that no message enforces already.

        A constraint covered by a message's scope was applied when that message was made. So only those count that
        mention, for every message, a variable that the message lacks; any of them mentions one that the largest lacks.
        The problem's own tables have been through no join and enforce nothing but themselves.
        """
        members = members_of(bucket.separator) | 1 << bucket.variable
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        fresh = members & ~max(scopes, key=int.bit_count, default=0)
        found: dict[int, PackedFactor] = {}
        for v in elements_of(fresh):
            for c in self._constraints_of[v]:
                if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                    found[c.offset] = c
        return list(found.values())


def _charged(bucket: Bucket) -> int:
    """Bytes that joining takes besides messages in memory: those read back or listed, and the copy that lays all end
    to end."""
    charged = sum(m.listed_bytes for m in bucket.messages if m.is_complete or not m.is_in_memory)
    charged += sum(m.nbytes for m in bucket.messages if m.is_complete)  # in the rows' order, while they are listed
    if len(bucket.messages) > 1:
        charged += sum(m.listed_bytes for m in bucket.messages)
    return charged
