"""Compute the message of one bucket by the chosen strategy, with fallbacks after failed attempts.

:func:`oocbe.elimination.engine.decision.decide` selects the strategy from measurements of the bucket and of memory, and
again after each failed attempt, with its findings. If the device runs out of memory for a complete table, main memory
is used. If a complete table cannot represent infeasibility, rows are used. If a join produces more rows than fit, or a
memory allocation fails, the bucket is joined again in pieces (:mod:`oocbe.elimination.buckets.piecewise`). All row
strategies run the same join program, so they produce the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.buckets import Bucket, ConstraintIndex, reading, subtree_members
from oocbe.elimination.buckets.complete_messages import CompleteMessages
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.piecewise import BucketFinalizer, PiecewiseBucket
from oocbe.elimination.engine.bucket_cuts import BucketJoin
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.bucket_join import NO_LIMIT, TooManyRowsError, TooManyStepsError
from oocbe.elimination.engine.decision import (
    COMPLETE,
    INCOMPLETE,
    NO_ATTEMPTS,
    AttemptHistory,
    BucketConstraints,
    BucketSizes,
    Place,
    Strategy,
    WhyForm,
    WhyPieces,
    decide,
)
from oocbe.elimination.engine.factors import PackedFactor
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.elimination.engine.row_bound import RowBound
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.ranges import check_product, largest_magnitude, rounding_margin
from oocbe.elimination.preparation.scaling import rescale
from oocbe.elimination.row_pruning.dominance import SubstitutionDominance, applies_to
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.errors import DiskError, ResourceError
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout, Schema
from oocbe.tables.limbs import trim_limbs
from oocbe.tables.residence import is_on_device
from oocbe.tables.table import Table, format_bytes


@dataclass
class BucketTask:
    """A bucket whose message is being computed.

    bucket : the factors and messages to join. layout : of the message's rows. covered : constraints that are applied.
    subtree : uint8 (variables,), 1 for those eliminated in the message's subtree.
    bound : for pruning rows; None: all are kept.
    may_cut : whether rows may be joined in pieces. known : findings of earlier attempts.
    limbs : of each count (:mod:`oocbe.tables.limbs`); 0 where values are plain numbers.
    """

    bucket: Bucket
    layout: Layout
    subtree: NDArray[np.uint8]
    bound: RowBound | None
    covered: list[PackedFactor]
    may_cut: bool
    known: AttemptHistory = NO_ATTEMPTS
    limbs: int = 0


class MessageMaker:
    """Computes the messages of one problem's buckets and passes them to the store.

    prepared, dominance, store, row_cap, engine, bounds, tables : as for
        :class:`oocbe.elimination.buckets.forward.Forward`.
    """

    def __init__(
        self,
        prepared: Prepared,
        dominance: bool,
        store: MessageStore,
        row_cap: int | None = None,
        engine: BucketEngine | None = None,
        bounds: BoundSource | None = None,
        tables: str = INCOMPLETE,
    ) -> None:
        self._prepared = prepared
        self._store = store
        self._row_cap = row_cap
        self._step_limit = NO_LIMIT if row_cap is None else row_cap * tuning().steps_a_row
        self._engine = engine or BucketEngine("cpu")
        self._device = self._engine.device(lambda: store.left_on_device)
        self._bounds = bounds
        form = INCOMPLETE if bounds is not None or prepared.consumption is not None else tables
        self._complete = CompleteMessages(prepared, store, self._engine, form)
        has_workers, consumes = self._engine.workers is not None, prepared.consumption is not None
        wishes = BucketConstraints.of(self._complete.tables, self._engine.piece_rows, consumes, has_workers)
        self._may_cut = wishes.may_cut
        self._wishes = [replace(wishes, may_cut=False), wishes]
        problem = prepared.problem
        self._may_cancel = any(f.values.min(initial=0) < 0 or (f.default or 0) < 0 for f in problem.functions)
        is_dominated = dominance and applies_to(prepared.semiring)
        self._program = ProgramBuilder(
            problem.sizes,
            prepared.constraints,
            prepared.functions,
            prepared.semiring,
            prepared.consumption,
            keeps_staircase=is_dominated,
        )
        self._constraints = ConstraintIndex(prepared.constraints, len(problem.variables))
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

        Raises TooManyRowsError: more rows than the cap, or more steps than its step limit; ResourceError: memory or
        disk ran out; TimeLimitError: the engine's deadline passed; ValueRangeError: a product of integers could leave
        the range of int64.
        """
        task = self._begun(bucket, subtree, self._may_cut)
        table: Table | CompleteTable | None = None
        strategy = self._decide(task)
        while table is None and strategy.is_complete:
            if strategy.is_whole:
                table = self._complete_in_memory(task, strategy)
            elif (published := self._complete_in_pieces(place, task)) is not None:
                return published
            if table is None:
                strategy = self._decide(task)
        if table is None:
            if not task.may_cut:
                table = self._held(task, strategy)
            elif not strategy.is_whole or (table := self._rows_in_memory(task, strategy)) is None:
                return self._rows_in_pieces(place, task)
        exponent = 0
        if table.rows:
            table, exponent = rescale(table, self._name_of(task.bucket), self._may_cancel)
        return self._store.publish(place, bucket.separator, table, exponent), exponent

    def table(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table:
        """The message of a bucket as rows in memory, not published; arguments as for :meth:`make`.

        Raises ResourceError: it does not fit the memory limit, or device memory ran out. Else as for :meth:`make`.
        """
        task = self._begun(bucket, subtree, may_cut=False)
        task.known = AttemptHistory(needs_rows=WhyForm.ONLY_ROWS)
        return self._held(task)

    def needed_message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table | CompleteTable:
        """As :meth:`table`, in the cheaper form, unpublished; ResourceError also if a complete one does not fit."""
        task = self._begun(bucket, subtree, may_cut=False)
        while (strategy := self._decide(task)).is_complete:
            if strategy.is_whole:
                made = self._complete_in_memory(task, strategy)
                if made is not None:
                    return made
            elif self._complete.tables == COMPLETE and strategy.why_pieces is not WhyPieces.PIECE_ROWS:
                raise self._complete_out_of_memory(task.bucket, strategy)
            else:
                task.known = replace(task.known, needs_rows=WhyForm.COMPLETE_DOES_NOT_FIT)
        return self._held(task, strategy)

    def _begun(self, bucket: Bucket, subtree: NDArray[np.uint8], may_cut: bool) -> BucketTask:
        """The task of a bucket, with its integer range checked and its pruning bound."""
        if self._prepared.semiring.combination is Combination.MULTIPLY:
            self.check_range(bucket)
        bound = None
        if self._bounds is not None:
            bound = self._bounds.for_message(subtree_members(subtree), bucket.separator)
            bound = bound.below(self._prepared.problem, self._prepared.consumption)
        layout = self._prepared.layout(bucket.separator)
        limbs = self.limbs(bucket)
        known = AttemptHistory(needs_rows=WhyForm.LIMBS) if limbs else NO_ATTEMPTS
        return BucketTask(bucket, layout, subtree, bound, self._constraints.covered_by(bucket), may_cut, known, limbs)

    def _decide(self, task: BucketTask) -> Strategy:
        """Choose the strategy from current findings, and free memory for it as far as possible."""
        bucket, prepared, store = task.bucket, self._prepared, self._store
        domains, dtype = prepared.problem.sizes, prepared.dtype
        cells = math.prod(domains[v] for v in bucket.separator)
        sizes = BucketSizes(
            cells,
            cells * domains[bucket.variable],
            dtype.itemsize,
            8 * task.layout.words + dtype.itemsize * max(1, task.limbs),
            self._complete.expected_rows(bucket, task.covered) if self._complete.tables == "auto" else 0.0,
            [m.as_input(domains, dtype) for m in bucket.messages],
        )
        strategy = decide(sizes, store.room(bucket.messages), self._device, self._wishes[task.may_cut], task.known)
        store.make_room(strategy.wanted, besides=bucket.messages)
        return strategy

    def _held(self, task: BucketTask, strategy: Strategy | None = None) -> Table:
        """The message as rows in memory; ResourceError if it does not fit."""
        strategy = strategy or self._decide(task)
        table = self._rows_in_memory(task, strategy) if strategy.is_whole else None
        if table is None:
            store = self._store
            raise ResourceError(
                f"{self._name_of(task.bucket)}: its message over {len(task.bucket.separator)} variables does not fit "
                f"memory; used {format_bytes(store.in_memory)}, requested more than "
                f"{format_bytes(max(0, store.free))}, limit {format_bytes(store.memory_limit)}. Raise --memory"
            )
        return table

    def limbs(self, bucket: Bucket) -> int:
        """Limbs of each count of a bucket's message: 0, plain numbers, unless a subclass counts."""
        return 0

    def check_range(self, bucket: Bucket) -> None:
        """Raise ValueRangeError if products of integers may leave int64."""
        if self._prepared.dtype.kind != "i":
            return
        problem, entries = self._prepared.problem, self._prepared.functions.entries
        factors = [m.largest_magnitude() for m in bucket.messages]
        factors += [largest_magnitude(entries[f.offset : f.offset + (1 << f.bits)]) for f in bucket.functions]
        check_product(self._name_of(bucket), self._prepared.dtype, factors, problem.sizes[bucket.variable])

    def _name_of(self, bucket: Bucket) -> str:
        problem = self._prepared.problem
        return f"{problem.name}, bucket of {problem.variables[bucket.variable].name}"

    def _complete_in_memory(self, task: BucketTask, strategy: Strategy) -> CompleteTable | None:
        """The message as a complete table; None if the device ran out of memory, or if only rows can represent
        infeasibility. ``task.known`` records the reason."""
        assert strategy.place is not None
        bucket = task.bucket
        self._complete.check_cap(bucket, self._row_cap)
        try:
            with reading(self._prepared, bucket):
                made = self._complete.compute(bucket, task.covered, strategy.place)
        except DiskError:
            raise
        except ResourceError:
            if strategy.place is not Place.DEVICE:
                raise
            task.known = replace(task.known, device_ran_out=True)
            return None
        if self._complete.is_certain(bucket, made):
            return made
        task.known = replace(task.known, needs_rows=WhyForm.UNCERTAIN)
        return None

    def _complete_in_pieces(self, place: int, task: BucketTask) -> tuple[Message, int] | None:
        """The message as a complete table through the disk, published; None if only rows can represent infeasibility.
        ``task.known`` records the reason."""
        bucket, published = task.bucket, None
        if self._complete.may_be_certain(bucket):
            self._complete.check_cap(bucket, self._row_cap)
            with reading(self._prepared, bucket):
                published = self._complete.publish(place, bucket, bucket.separator, task.covered)
        if published is None:
            task.known = replace(task.known, needs_rows=WhyForm.UNCERTAIN)
        return published

    def _complete_out_of_memory(self, bucket: Bucket, strategy: Strategy) -> ResourceError:
        """The error for a complete message that does not fit; it names the short memory, main or device."""
        store, free = self._store, 0 if self._device is None else max(0, self._device.room())
        main = f"used {format_bytes(store.in_memory)}, limit {format_bytes(store.memory_limit)}. Raise --memory"
        device = f"free {format_bytes(free)} of device memory. Raise --device-memory, use --backend auto"
        requested = format_bytes(strategy.device_wanted or strategy.wanted)
        return ResourceError(
            f"{self._name_of(bucket)}: its message over {len(bucket.separator)} variables is to be complete; requested "
            f"{requested}, {device if strategy.device_wanted else main}, or use --tables auto"
        )

    def _rows_in_memory(self, task: BucketTask, strategy: Strategy) -> Table | None:
        """The message as rows if all fit, else None; ResourceError if the device has no room and the CPU must not."""
        bucket, prepared, store, engine = task.bucket, self._prepared, self._store, self._engine
        with reading(prepared, bucket):
            tables = [m.table() for m in bucket.messages]
        layout = task.layout
        program = self._program.build(
            self._scope(bucket, layout),
            [(m.scope, t.layout) for m, t in zip(bucket.messages, tables, strict=True)],
            task.covered,
            bucket.functions,
            max((t.rows for t in tables), default=0),
            task.bound,
            task.limbs,
        )
        while True:
            most = strategy.most_rows
            cap = most + 1 if self._row_cap is None else self._row_cap
            limits = (min(cap, most), self._step_limit)
            try:
                like = Schema(layout, prepared.dtype, prepared.semiring)
                message = engine.join(program, like, tables, *limits, not task.known.rows_ran_out)
                break
            except TooManyStepsError:
                raise
            except TooManyRowsError:
                if cap <= most:
                    raise
                task.known = replace(task.known, needs_rows=strategy.why_form, least_rows=most + 1)
            except DiskError:
                raise
            except ResourceError as error:
                if task.may_cut:
                    return None
                if engine.insists or task.known.rows_ran_out:
                    raise ResourceError(f"{self._name_of(bucket)}: {error}") from None
                task.known = replace(task.known, needs_rows=strategy.why_form, rows_ran_out=True)
            # Outside the handler: the traceback keeps the failed call's arrays alive, and writing needs memory.
            strategy = self._decide(task)
            if not strategy.is_whole:
                return None
        if message.limbs:
            message = replace(message, values=trim_limbs(message.values))
        if self._dominance is not None:
            message = self._dominance.drop_dominated(message, bucket.separator, task.subtree, engine)
        if not is_on_device(message):
            store.make_room(message.nbytes)
        return message

    def _rows_in_pieces(self, place: int, task: BucketTask) -> tuple[Message, int]:
        """The message as rows, joined in pieces through the disk."""
        prepared, bucket = self._prepared, task.bucket
        separator = bucket.separator
        self._store.move_to_main_memory(bucket.messages, as_rows=True)
        self._store.list_rows(bucket.messages)
        name = self._name_of(bucket)
        finish = BucketFinalizer(name, self._may_cancel, self._dominance, separator, task.subtree)
        pieces = PiecewiseBucket(self._store, self._engine, finish, self._row_cap, self._step_limit)
        join = BucketJoin(
            self._program,
            self._scope(bucket, task.layout),
            tuple((m.scope, m.sorted_rows(pieces.cache)) for m in bucket.messages),
            task.covered,
            bucket.functions,
            task.bound,
            prepared.semiring,
            prepared.dtype,
            max((m.rows for m in bucket.messages), default=0),
            name,
            task.limbs,
        )
        with reading(prepared, bucket):
            return pieces.publish(place, join)

    def _scope(self, bucket: Bucket, layout: Layout) -> BucketScope:
        return BucketScope(bucket.variable, self._prepared.problem.sizes[bucket.variable], bucket.separator, layout)
