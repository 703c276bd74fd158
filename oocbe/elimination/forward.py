"""The forward pass of bucket elimination (Dechter 1999): one message a bucket, in elimination order.

A bucket holds the factors whose first variable (in elimination order) is the bucket's, and the messages that earlier
buckets passed on. Joining them and eliminating the variable gives the bucket's message, which goes to the bucket of the
first variable of its own scope. A message without variables is a number and is combined with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets import Bucket, elements_of, fill_buckets, members_of, reading, subtree_members
from oocbe.elimination.complete_messages import CompleteMessages
from oocbe.elimination.forms import INCOMPLETE
from oocbe.elimination.messages import Message, MessageStore
from oocbe.elimination.prepare import Prepared
from oocbe.elimination.ranges import check_product, largest_magnitude, rounding_margin
from oocbe.elimination.scaling import rescale, split
from oocbe.errors import LimitError, ResourceError
from oocbe.operators.bucket_engine import BucketEngine, to_host
from oocbe.operators.bucket_join import NO_LIMIT, TooManyRowsError, TooManyStepsError
from oocbe.operators.factors import PackedFactor
from oocbe.operators.join_program import BucketScope, ProgramBuilder
from oocbe.operators.row_pruning import RowPruning
from oocbe.pruning.dominance import SubstitutionDominance, applies_to
from oocbe.pruning.pruner import RowPruner
from oocbe.semiring import Combination
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table, format_bytes
from oocbe.tracing.recorder import ELIMINATION, span

WORKING_COPIES = 2
"""A message is held twice while its blocks are laid end to end, or its dominated rows are dropped."""

STEPS_A_ROW = 64
"""Steps that a capped run may take for each row that its cap allows: bounds may drop nearly all that a join tries."""


@dataclass
class ForwardPass:
    """Outcome of the forward pass.

    Attributes
    ----------
    buckets : in elimination order (up to the one that proved infeasibility).
    value : combined value of the problem, to be multiplied by 2 ** exponent; None where it is infeasible.
    exponent : 0 but for floating-point products.
    largest_rows, total_rows : rows of the largest message, and of all.
    width : variables of the largest separator.
    is_pruned : rows were held against an upper bound; no value then means that nothing below it exists.
    """

    buckets: list[Bucket]
    value: int | float | None
    exponent: int = 0
    largest_rows: int = 0
    total_rows: int = 0
    width: int = 0
    is_pruned: bool = False


class RowCapError(LimitError):
    """A message passed the row cap of a race between orders.

    Attributes
    ----------
    position : of the bucket in the order.
    rows_before : rows of all messages before it. cap : the row cap.
    """

    def __init__(self, position: int, rows_before: int, cap: int) -> None:
        super().__init__(f"bucket {position + 1}: more than {cap:,} rows")
        self.position = position
        self.rows_before = rows_before
        self.cap = cap


class Forward:
    """Runs the forward pass over a prepared problem.

    Parameters
    ----------
    prepared : the problem, packed for its order.
    dominance : whether to drop dominated rows (where the semiring allows it).
    store : where messages are kept.
    row_cap : a message with more rows, or :data:`STEPS_A_ROW` times as many steps, ends the run with
        :class:`RowCapError`; None: only memory limits it.
    engine : computes the buckets; None: the CPU.
    pruner : the bound to hold rows against, in min-sum; None: all are kept.
    tables : form of the messages, see :mod:`oocbe.elimination.forms`; with a pruner all are incomplete,
        and where rows carry what they consume.
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
        self._engine = engine or BucketEngine("cpu")
        self._pruner = pruner
        form = INCOMPLETE if pruner is not None or prepared.consumption is not None else tables
        self._complete = CompleteMessages(prepared, store, self._engine, form)
        problem = prepared.problem
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

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None) -> ForwardPass:
        """Eliminate every variable; ``bucket_done`` gets the bucket's number (from 1), rows and bytes.

        Raises
        ------
        ResourceError : a message would not fit the memory limit, or the disk is full.
        RowCapError : a message passed the row cap.
        TimeLimitError : the engine's deadline came.
        ValueRangeError : a product of integers could leave the range of int64.
        """
        prepared = self._prepared
        buckets = fill_buckets(prepared, self._store)
        outcome = ForwardPass(buckets, prepared.constant, prepared.exponent, is_pruned=self._pruner is not None)
        if prepared.is_infeasible:
            outcome.value = None
            return outcome
        subtrees: dict[int, NDArray[np.uint8]] = {}
        for place, bucket in enumerate(buckets):
            subtree = subtrees.pop(place, None)
            if subtree is None:
                subtree = np.zeros(len(buckets), dtype=np.uint8)
            subtree[bucket.variable] = 1
            with span(ELIMINATION, f"bucket {place + 1}", variable=self._name_of(bucket)) as timed:
                message, exponent = self._published(place, bucket) or self._computed(place, bucket, subtree, outcome)
                timed.note(rows=message.rows, bytes=message.nbytes)
            outcome.width = max(outcome.width, len(bucket.separator))
            outcome.total_rows += message.rows
            outcome.largest_rows = max(outcome.largest_rows, message.rows)
            if bucket_done is not None:
                bucket_done(place + 1, message.rows, message.nbytes)
            if message.rows == 0:
                outcome.value = None
                del buckets[place + 1 :]
                return outcome
            outcome.exponent += exponent
            for received in bucket.messages:
                self._store.joined(received)
            if not bucket.separator:
                self._absorb(outcome, message.table())
                continue
            target = prepared.position[bucket.separator[0]]
            bucket.sent = message
            buckets[target].messages.append(message)
            subtrees[target] = subtrees[target] | subtree if target in subtrees else subtree
        return outcome

    def _name_of(self, bucket: Bucket) -> str:
        return self._prepared.problem.variables[bucket.variable].name

    def _fill_separator(self, bucket: Bucket) -> tuple[int, ...]:
        """The variables of the bucket's message, filled in.

        Where rows carry what they consume, the consumptions of parts of the problem that share no variable add up as
        well: the last bucket of each then sends its rows to the last bucket of all, once for each value there.
        """
        others = elements_of(bucket.scope_members() & ~(1 << bucket.variable))
        last = self._prepared.order[-1]
        if not others and self._prepared.consumption is not None and bucket.variable != last:
            others = [last]
        bucket.separator = tuple(sorted(others, key=self._prepared.position.__getitem__))
        return bucket.separator

    def _published(self, place: int, bucket: Bucket) -> tuple[Message, int] | None:
        """The bucket's message and its exponent as an earlier run published them; fills in the bucket's separator."""
        layout = self._prepared.layout(self._fill_separator(bucket))
        return self._store.published(place, bucket.separator, layout, self._prepared.dtype)

    def _computed(
        self, place: int, bucket: Bucket, subtree: NDArray[np.uint8], outcome: ForwardPass
    ) -> tuple[Message, int]:
        """The bucket's message, computed and handed to the store, and its exponent."""
        try:
            table = self.cheapest_message(bucket, subtree)
        except TooManyRowsError as error:
            raise RowCapError(place, outcome.total_rows, error.limit) from None
        exponent = 0
        if table.rows:
            table, exponent = rescale(table)
        return self._store.publish(place, bucket.separator, table, exponent), exponent

    def _absorb(self, outcome: ForwardPass, table: Table) -> None:
        """Combine a message without variables, and with all that it may consume, with the result."""
        value = self._prepared.semiring.reduce(to_host(table).values).item()
        assert outcome.value is not None
        if self._prepared.semiring.combination is Combination.ADD:
            outcome.value = outcome.value + value
        else:
            outcome.value, exponent = split(outcome.value * value)
            outcome.exponent += exponent

    def cheapest_message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table | CompleteTable:
        """The bucket's message in the form that is cheaper (see ``tables``); otherwise as :meth:`message`."""
        self._fill_separator(bucket)
        return self._complete_message(bucket) or self.message(bucket, subtree)

    def _complete_message(self, bucket: Bucket) -> CompleteTable | None:
        """The bucket, its separator filled in, joined and its variable eliminated as a complete table; or None."""
        if not self._complete.are_possible:
            return None
        covered = self._covered(bucket.scope_members(), bucket)
        if not self._complete.suits(bucket, covered):
            return None
        if self._prepared.semiring.combination is Combination.MULTIPLY:
            self._check_range(bucket)
        with reading(self._prepared, bucket):
            made = self._complete.compute(bucket, covered, self._row_cap)
        # A product of floats may be too small for one: rows tell that from what is infeasible.
        return None if made.rows == 0 and made.dtype.kind == "f" else made

    def message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table:
        """Join the bucket and eliminate its variable; fills in the bucket's separator.

        subtree : uint8 (variables,), 1 for those eliminated into the message, the bucket's own included.
        """
        prepared = self._prepared
        layout = prepared.layout(self._fill_separator(bucket))
        members = members_of(bucket.separator) | 1 << bucket.variable
        if prepared.semiring.combination is Combination.MULTIPLY:
            self._check_range(bucket)
        # Messages read back from disk, and the copy that lays several end to end, are charged while the join runs.
        charged = sum(m.nbytes for m in bucket.messages if not m.is_in_memory)
        if len(bucket.messages) > 1:
            charged += sum(m.nbytes for m in bucket.messages)
        largest = max((m.nbytes for m in bucket.messages), default=0)
        self._store.make_room(charged + 2 * WORKING_COPIES * largest)
        with reading(prepared, bucket):
            tables = [m.table() for m in bucket.messages]
        rows = max((t.rows for t in tables), default=0)
        program = self._program.build(
            BucketScope(bucket.variable, prepared.problem.sizes[bucket.variable], bucket.separator, layout),
            [(m.scope, t.layout) for m, t in zip(bucket.messages, tables, strict=True)],
            self._covered(members, bucket),
            bucket.functions,
            rows,
            self._pruning(bucket, subtree),
        )
        row_bytes = (8 * layout.words + prepared.dtype.itemsize) * WORKING_COPIES
        step_limit = NO_LIMIT if self._row_cap is None else self._row_cap * STEPS_A_ROW
        while True:
            limit = max(0, self._store.free - charged) // row_bytes
            cap = limit + 1 if self._row_cap is None else self._row_cap
            try:
                limits = (min(cap, limit), step_limit)
                message = self._engine.join(program, layout, tables, prepared.semiring, prepared.dtype, *limits)
                break
            except TooManyStepsError:
                raise
            except TooManyRowsError:
                if cap <= limit:
                    raise
                if not self._store.spillable:
                    raise self._out_of_memory(bucket, limit, charged + limit * row_bytes) from None
            self._store.make_room(self._store.memory_limit)
        if self._dominance is not None:
            message = self._dominance.drop_dominated(message, bucket.separator, subtree, self._engine)
        self._store.make_room(message.nbytes)
        return message

    def _pruning(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> RowPruning | None:
        """What to hold the rows of the bucket's message against."""
        if self._pruner is None:
            return None
        eliminated = subtree_members(subtree)
        return self._pruner.for_message(eliminated, bucket.separator, self._prepared.consumption)

    def _out_of_memory(self, bucket: Bucket, rows: int, requested: int) -> ResourceError:
        problem, store = self._prepared.problem, self._store
        return ResourceError(
            f"{problem.name}, bucket of {self._name_of(bucket)}: its message over "
            f"{len(bucket.separator)} variables passes {rows:,} rows; requested more than {format_bytes(requested)}, "
            f"used {format_bytes(store.in_memory)}, limit {format_bytes(store.memory_limit)}. "
            "Raise --memory, or let the search for an order take longer (--order-seconds)"
        )

    def _covered(self, members: int, bucket: Bucket) -> list[PackedFactor]:
        """Constraints over the bucket's variables that no message enforces already.

        A constraint covered by a message's scope was applied when that message was made. So only those count that
        mention, for every message, a variable that the message lacks; any of them mentions one that the largest lacks.
        The problem's own tables have been through no join and enforce nothing but themselves.
        """
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        fresh = members & ~max(scopes, key=int.bit_count, default=0)
        found: dict[int, PackedFactor] = {}
        for v in elements_of(fresh):
            for c in self._constraints_of[v]:
                if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                    found[c.offset] = c
        return list(found.values())

    def _check_range(self, bucket: Bucket) -> None:
        if self._prepared.dtype.kind != "i":
            return
        problem, entries = self._prepared.problem, self._prepared.functions.entries
        with reading(self._prepared, bucket):
            factors = [largest_magnitude(m.values()) for m in bucket.messages]
        factors += [largest_magnitude(entries[f.offset : f.offset + (1 << f.bits)]) for f in bucket.functions]
        where = f"{problem.name}, bucket of {self._name_of(bucket)}"
        check_product(where, self._prepared.dtype, factors, problem.sizes[bucket.variable])
