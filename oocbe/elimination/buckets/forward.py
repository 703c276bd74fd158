"""The forward pass of bucket elimination (Dechter 1999): one message a bucket, in elimination order.

A bucket holds the factors whose first variable (in elimination order) is the bucket's, and the messages received from
earlier buckets. Joining them and eliminating the variable gives the bucket's message, which is sent to the bucket of
the first variable of its scope. A message without variables is a number and is combined with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.assignment import Recomputation
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket, fill_buckets
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine, TooManyRowsError
from oocbe.elimination.engine.factors import elements_of
from oocbe.elimination.outcome import ForwardPass
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.preparation.ranges import split
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.errors import LimitError
from oocbe.model.semiring import Combination
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.runtime.tracing.recorder import ELIMINATION, span
from oocbe.tables.complete import CompleteTable
from oocbe.tables.numbers import total
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table


class RowCapError(LimitError):
    """The message of the bucket at ``position`` exceeded a race's row cap; ``rows_before``: rows of all before it."""

    def __init__(self, position: int, rows_before: int, cap: int) -> None:
        super().__init__(f"bucket {position + 1}: more than {cap:,} rows")
        self.position, self.rows_before, self.cap = position, rows_before, cap


class Forward:
    """Runs the forward pass over a prepared problem.

    prepared : the problem, packed for its order.
    dominance : whether to drop dominated rows (if the semiring permits it). store : keeps the messages.
    row_cap : a message with more rows, or more steps than its step limit, ends the run with :class:`RowCapError`;
        None: only the disk limits it.
    engine : computes the buckets; None: the CPU.
    bounds : for pruning rows that reach the problem's upper bound, in min-sum; None: all rows are kept.
    tables : form of the messages, see :mod:`oocbe.elimination.buckets.message`; all are incomplete with bounds, or if
        rows carry consumption.
    maker : the class that computes the messages, or its constructor with some arguments.
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
        maker: Callable[..., MessageMaker] = MessageMaker,
    ) -> None:
        self._prepared, self._store = prepared, store
        self._maker = maker(prepared, dominance, store, row_cap, engine, bounds, tables)

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None, may_forget: bool = False) -> ForwardPass:
        """Eliminate every variable.

        bucket_done : called with the bucket's number (from 1), rows and bytes.
        may_forget : whether joined messages may be forgotten when memory is short; the backward pass then recomputes
            the few values it needs.
        Raises ResourceError: a memory allocation failed, or the disk is full; RowCapError: a message exceeded the row
        cap; TimeLimitError: the engine's deadline passed; ValueRangeError: an integer product could leave int64.
        """
        prepared = self._prepared
        buckets = fill_buckets(prepared, self._store)
        outcome = ForwardPass(buckets, prepared.constant, prepared.exponent)
        if may_forget and prepared.consumption is None:
            outcome.recomputation = Recomputation(prepared, buckets)
            self._store.forgets = outcome.recomputation.forget
        if prepared.is_infeasible:
            outcome.value = None
            return outcome
        subtrees: dict[int, NDArray[np.uint8]] = {}
        for place, bucket in enumerate(buckets):
            subtree = subtrees.pop(place, None)
            if subtree is None:
                subtree = np.zeros(len(buckets), dtype=np.uint8)
            subtree[bucket.variable] = 1
            name = prepared.problem.variables[bucket.variable].name
            with span(ELIMINATION, f"bucket {place + 1}", variable=name) as timed:
                try:
                    message, exponent = self._published(place, bucket) or self._maker.make(place, bucket, subtree)
                except TooManyRowsError as error:
                    raise RowCapError(place, outcome.total_rows, error.limit) from None
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
            if bucket.separator:
                bucket.sent = message
                if outcome.recomputation is not None:
                    outcome.recomputation.made(message, bucket)
            for received in bucket.messages:
                self._store.joined(received)
            if not bucket.separator:
                self._absorb(outcome, message.table())
                continue
            target = prepared.position[bucket.separator[0]]
            buckets[target].messages.append(message)
            subtrees[target] = subtrees[target] | subtree if target in subtrees else subtree
        return outcome

    def _fill_separator(self, bucket: Bucket) -> tuple[int, ...]:
        """Set and return the bucket's separator.

        If rows carry consumption, the consumptions of unconnected components add up as well: the last bucket of each
        component then sends its rows to the last bucket of all, once for each value there.
        """
        others = elements_of(bucket.scope_members() & ~(1 << bucket.variable))
        last = self._prepared.order[-1]
        if not others and self._prepared.consumption is not None and bucket.variable != last:
            others = [last]
        bucket.separator = tuple(sorted(others, key=self._prepared.position.__getitem__))
        return bucket.separator

    def _published(self, place: int, bucket: Bucket) -> tuple[Message, int] | None:
        """The bucket's message and exponent as published by an earlier run; sets the bucket's separator."""
        layout = partial(self._prepared.layout, self._fill_separator(bucket))
        return self._store.published(place, bucket.separator, layout, self._prepared.dtype)

    def _absorb(self, outcome: ForwardPass, table: Table) -> None:
        """Combine a message without variables, over all its consumptions, with the result."""
        values = to_host(table).values
        semiring = self._prepared.semiring
        # Each value fits int64, but maybe not their sum over all consumptions.
        value = total(values) if values.dtype.kind == "i" and not semiring.selects else semiring.reduce(values).item()
        assert outcome.value is not None
        if self._prepared.semiring.combination is Combination.ADD:
            outcome.value = outcome.value + value
        else:
            outcome.value, exponent = split(outcome.value * value)
            outcome.exponent += exponent

    def cheapest_message(self, bucket: Bucket, subtree: NDArray[np.uint8]) -> Table | CompleteTable:
        """Join a bucket in memory and eliminate its variable, in the cheaper form (see ``tables``); sets the bucket's
        separator. Nothing is published.

        subtree : uint8 (variables,), 1 for those eliminated into the message, the bucket's own included.

        Raises ResourceError: the message does not fit the memory limit.
        """
        self._fill_separator(bucket)
        return self._maker.needed_message(bucket, subtree)
