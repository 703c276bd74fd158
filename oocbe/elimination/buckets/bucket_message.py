"""Compute the message of one bucket by the chosen strategy, with fallbacks after failed attempts.

:func:`oocbe.elimination.engine.decision.decide` selects the strategy from measurements of the bucket and of memory, and
again after each failed attempt, with its findings. If the device runs out of memory for a complete table, main memory
is used. If a complete table cannot represent infeasibility, rows are used. If a join produces more rows than fit, or a
memory allocation fails, the bucket is joined again in pieces (:mod:`oocbe.elimination.buckets.piecewise`). All row
strategies run the same join program, so they produce the same rows.

A complete message represents the same rows as an incomplete one without dominance: every hard constraint covered by the
bucket's scope is applied. Its variables have the opposite order, the one eliminated *last* changing fastest. The
receiving bucket then reduces over the slowest axis, whole runs of neighbouring cells at a time.

A message of any size is computed in pieces, written one by one. A piece fixes values of the first variables of the
scope, so it is a contiguous range of cells. It needs, of each message of the bucket, one contiguous range for each
value of the bucket's variable (:mod:`oocbe.algebra.complete_tables.complete_stream`); nothing else is read. Products of
floats are scaled by the largest value of the message, so their pieces are written to a scratch table first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.complete_stream import (
    BucketFunction,
    CellFunction,
    CellRoom,
    CompleteBucket,
    CompleteStream,
)
from oocbe.algebra.complete_tables.conversion import cell_pieces
from oocbe.elimination.buckets.buckets import Bucket, ConstraintIndex, reading
from oocbe.elimination.buckets.message import Message, checked_tables
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.piecewise import BucketFinalizer, PiecewiseBucket
from oocbe.elimination.engine.bucket_engine import NO_LIMIT, BucketEngine, TooManyRowsError, TooManyStepsError
from oocbe.elimination.engine.bucket_stream import BucketJoin
from oocbe.elimination.engine.decision import (
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
from oocbe.elimination.engine.factors import FactorPool, PackedFactor
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.ranges import check_product, largest_magnitude, rounding_margin
from oocbe.elimination.preparation.scaling import Extent, exponent_of, out_of_range, rescale, scaled_values
from oocbe.elimination.row_pruning.dominance import SubstitutionDominance
from oocbe.elimination.row_pruning.row_bounds import BoundSource, RowBound
from oocbe.errors import DiskError, ResourceError
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.sources import source_of
from oocbe.kernels import backend_named
from oocbe.model.infeasible import infeasible_value
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Combination
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout, Schema, bits_for
from oocbe.tables.numbers import trim_limbs
from oocbe.tables.residence import is_on_device, to_host
from oocbe.tables.stored import AnyComplete
from oocbe.tables.table import Table

LEAST_EXPONENT = -1000.0
"""Base-2 exponent from which products are normal float64 numbers, despite rounding."""


class CompleteMessages:
    """Computes the complete messages of a forward pass.

    prepared : the problem. store : keeps the messages. engine : provides the kernels.
    tables : ``auto``, ``incomplete`` or ``complete``; the attribute is ``incomplete`` if no message can be complete.
    Raises ValueRangeError: ``complete`` is requested and sums could reach the infeasible value.
    """

    def __init__(self, prepared: Prepared, store: MessageStore, engine: BucketEngine, tables: str) -> None:
        self._prepared, self._store, self._engine = prepared, store, engine
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
        return BucketFunction(tuple(reversed(message.scope)), table.values, table.steps)

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
        return math.prod(map(self._sizes.__getitem__, scope))


@dataclass
class BucketTask:
    """A bucket whose message is being computed.

    bucket : the factors and messages to join. layout : of the message's rows. covered : constraints that are applied.
    subtree : uint8 (variables,), 1 for those eliminated in the message's subtree.
    bound : for pruning rows; None: all are kept.
    may_cut : whether rows may be joined in pieces. known : findings of earlier attempts.
    limbs : of each count (:mod:`oocbe.tables.numbers`); 0 where values are plain numbers.
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
    """Computes the messages of one problem's buckets for the store; parameters as for ``Forward``."""

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
        self._prepared, self._store, self._row_cap = prepared, store, row_cap
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
        is_dominated = dominance and prepared.semiring.optimises_sums
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

    def needed_message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table | CompleteTable:
        """The message of a bucket in memory, in the cheaper form, not published; arguments as for :meth:`make`.

        Raises ResourceError: it does not fit the memory limit, or device memory ran out. Else as for :meth:`make`.
        """
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
            members = int.from_bytes(np.packbits(subtree, bitorder="little").tobytes(), "little")
            bound = self._bounds.for_message(members, bucket.separator)
            bound = bound.with_threshold(self._prepared.problem, self._prepared.consumption)
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

    def _held(self, task: BucketTask, strategy: Strategy) -> Table:
        """The message as rows in memory; ResourceError if it does not fit."""
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
        sizes, entries = self._prepared.problem.sizes, self._prepared.functions.entries
        factors = [m.largest_magnitude() for m in bucket.messages]
        factors += [largest_magnitude(entries[f.offset : f.offset + (1 << f.bits)]) for f in bucket.functions]
        check_product(self._name_of(bucket), factors, sizes[bucket.variable] * self.shares(bucket))

    def shares(self, bucket: Bucket) -> int:
        """Ways to share a consumption among the messages whose values are added: all but one have that of any row."""
        prepared = self._prepared
        if prepared.consumption is None or prepared.semiring.selects:
            return 1
        amounts = math.prod(limit + 1 for limit in prepared.consumption.limits)
        return math.prod(sorted(min(amounts, m.longest_run()) for m in bucket.messages)[:-1])

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
