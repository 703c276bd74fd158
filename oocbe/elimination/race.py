"""Select the best of a few orders by running them: a race with a row cap.

No static estimate ranks orders reliably: dominance removes a hundred rows of one order's messages for each row of
another's. So the best candidates of each heuristic run in the real engine, and a run ends when a message exceeds a cap.
The ratio of its rows to the predicted ones corrects the prediction for the rest. In the next round the cap is higher,
and only orders with a corrected prediction close to the best run. The first complete run solves the problem. The cost
of an abandoned run is about its cap, so with a geometrically growing cap all of them together cost a fraction of the
successful one.

A resumed run does not repeat abandoned attempts: it reads their outcomes
(:meth:`oocbe.elimination.runs.durability.Run.ended`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np

from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.outcome import ForwardPass
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.elimination.runs.durability import Run
from oocbe.errors import DiskError, ResourceError, without_frames
from oocbe.model.problem import Problem
from oocbe.model.semiring import Semiring
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.tuning import tuning

CAP_FACTOR = 8
"""Factor by which the cap grows each round."""


@dataclass
class RaceWinner:
    """Order, forward pass and open ``store`` of the winner, which the caller closes, and the ``attempts`` given up."""

    choice: OrderChoice
    prepared: Prepared
    outcome: ForwardPass
    store: MessageStore
    attempts: int


class Attempt:
    """The current order: a context manager for the block that runs its forward pass.

    The block sets ``outcome``. An error that abandons the order is stored instead of raised.

    choice : the order. forward : its forward pass, to be run; removed once the order is abandoned.
    outcome : of the forward pass; None before its end. error : that abandoned the order, or None.
    """

    def __init__(
        self, choice: OrderChoice, prepared: Prepared, store: MessageStore, forward: Forward, run: Run
    ) -> None:
        self.choice, self.forward, self.prepared, self.store = choice, forward, prepared, store
        self._keeps_messages = run.keeps_messages
        self.outcome: ForwardPass | None = None
        self.error: RowCapError | ResourceError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        if not isinstance(error, RowCapError | ResourceError):
            self.store.close(interrupted=True)
            return False
        self.store.close()
        if isinstance(error, DiskError) and self._keeps_messages:
            return False
        self.error = without_frames(error)
        # References to the attempt no longer keep its messages alive.
        del self.forward, self.prepared, self.store
        return True


class Race:
    """Orders of one problem that run under a cap, round after round, until one is complete.

    The race yields the next order and uses the outcome; the caller runs the forward pass::

        for attempt in race.rounds():
            with attempt:
                attempt.outcome = attempt.forward.run()

    problem, semiring : what is solved. choices : orders, the most promising first.
    dominance : whether to drop dominated rows.
    run : keeps messages and records attempts. engine : computes the buckets.
    bounds : for pruning rows that reach the problem's upper bound; None: all are kept.
    tables : form of the messages, as for :class:`oocbe.elimination.buckets.forward.Forward`. dtype : of their values;
        None: that of the problem.
    maker : the class that computes them, or its constructor with some arguments.
    attempts : number of abandoned runs so far. winner : the completed order, or None.
    """

    def __init__(
        self,
        problem: Problem,
        semiring: Semiring,
        choices: list[OrderChoice],
        dominance: bool,
        run: Run,
        engine: BucketEngine,
        bounds: BoundSource | None = None,
        tables: str = INCOMPLETE,
        maker: Callable[..., MessageMaker] = MessageMaker,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._problem, self._dtype = problem, dtype
        self._semiring, self._dominance, self._run, self._engine = semiring, dominance, run, engine
        self._bounds, self._tables, self._maker = bounds, tables, maker
        self._standing = [_Runner(number, choice, choice.cost()) for number, choice in enumerate(choices)]
        self._turn = self.attempts = 0
        self.winner: RaceWinner | None = None

    def rounds(self) -> Iterator[Attempt]:
        """Rounds with growing caps until an order is complete; the last one left has no cap. Errors as for round."""
        for turn in count():
            yield from self.round(tuning().many_rows * CAP_FACTOR**turn if len(self._standing) > 1 else None)
            if self.winner is not None:
                return

    def round(self, cap: int | None) -> Iterator[Attempt]:
        """The orders that may still be the best, until one is complete: the winner.

        cap : a message with more rows ends its run; None: only memory limits it.
        Raises ResourceError: no order fits the memory limit (the error of the one that got furthest).
        """
        self._standing.sort(key=lambda r: (r.expected_cost, r.number))
        # Before anything has run, predictions are uncorrected and most of them are worth a try.
        factor = tuning().margin if self._turn else tuning().hopeless_factor
        line = self._standing[0].expected_cost * factor
        self._turn += 1
        failure: ResourceError | None = None
        for runner in [r for r in self._standing if r.expected_cost <= line]:
            self._run.attempt(self._problem, runner.choice.order, self._dominance)
            error = self._run.ended(cap) if self._bounds is None else None
            if error is None:
                attempt = self._begun(runner.choice, cap)
                yield attempt
                if attempt.outcome is not None:
                    outcome, store = attempt.outcome, attempt.store
                    self.winner = RaceWinner(runner.choice, attempt.prepared, outcome, store, self.attempts)
                    return
                assert attempt.error is not None
                error = attempt.error
                if isinstance(error, RowCapError) or len(self._standing) > 1:
                    # The last order's messages are worth keeping: with more memory it may go on from them.
                    self._run.give_up(cap, error, self._bounds is None)
            if isinstance(error, RowCapError):
                runner.correct(error)
            else:
                failure = error
                self._standing.remove(runner)
            self.attempts += 1
        if not self._standing:
            assert failure is not None
            raise failure

    def _begun(self, choice: OrderChoice, cap: int | None) -> Attempt:
        """A new attempt with an order, before its forward pass."""
        store = self._run.make_store()
        prepared = prepare(self._problem, self._semiring, choice.order, dtype=self._dtype)
        how = (self._dominance, store, cap, self._engine, self._bounds, self._tables, self._maker)
        forward = Forward(prepared, *how)
        return Attempt(choice, prepared, store, forward, self._run)


@dataclass
class _Runner:
    """An order in the race; ``expected_cost`` is the current estimate of a complete run's cost, in rows."""

    number: int
    choice: OrderChoice
    expected_cost: float

    def correct(self, reached: RowCapError) -> None:
        """Scale the prediction for the remaining buckets by the ratio of actual to predicted rows."""
        predicted = sum(self.choice.predicted_rows[: reached.position])
        ratio = (reached.rows_before + 1) / (predicted + 1)
        self.expected_cost = reached.rows_before + self.choice.cost(reached.position, ratio)
