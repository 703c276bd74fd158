"""Solve with the best of a few orders, found by trying them: a race with a row cap.

No static estimate ranks orders reliably: dominance removes a hundred rows of one order's messages for each row of
another's. So the best candidates of each heuristic run in the real engine, and a run ends when a message passes a cap.
How many rows it had up to there, over what was predicted, corrects the prediction of what lies ahead of it. In the next
round the cap is higher, and only those run whose corrected prediction comes close to the best. The first run to reach
the end has solved the problem. A run that is given up costs about what its cap allows, so with a cap that grows by a
factor all of them together cost a fraction of the successful one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from oocbe.elimination.forward import Forward, ForwardPass, RowCapError
from oocbe.elimination.messages import MessageStore
from oocbe.elimination.order import OrderChoice
from oocbe.elimination.prepare import Prepared, prepare
from oocbe.errors import ResourceError
from oocbe.operators.bucket_engine import BucketEngine
from oocbe.problem import Problem
from oocbe.semiring import Semiring

FIRST_CAP = 1 << 20
"""Rows of a message (before dominance) in the first round: a fraction of a second's work."""

CAP_FACTOR = 8
"""How much the cap grows a round."""

CONTENTION = 2.0
"""Orders predicted to cost up to this many times the best one's rows run in the same round."""


@dataclass
class Finish:
    """The winner of a race.

    Attributes
    ----------
    choice : its order. prepared, outcome : its forward pass.
    store : holds its messages; the caller closes it.
    attempts : runs that were given up.
    """

    choice: OrderChoice
    prepared: Prepared
    outcome: ForwardPass
    store: MessageStore
    attempts: int


def race(
    problem: Problem,
    semiring: Semiring,
    choices: list[OrderChoice],
    dominance: bool,
    make_store: Callable[[], MessageStore],
    engine: BucketEngine,
    start: Callable[[OrderChoice], Callable[[int, int, int], None] | None],
) -> Finish:
    """Run the forward pass with each order until one ends.

    Parameters
    ----------
    choices : orders, the most promising first. A single one runs without a cap.
    make_store : a new place for the messages of one run. engine : computes the buckets.
    start : called when a run begins; returns what to call after each bucket.

    Raises
    ------
    ResourceError : no order fits the memory limit (the error of the one that got furthest).
    """
    standing = [_Runner(number, choice, sum(choice.predicted_rows)) for number, choice in enumerate(choices)]
    attempts = 0
    failure: ResourceError | None = None
    for turn in count():
        cap = FIRST_CAP * CAP_FACTOR**turn if len(standing) > 1 else None
        standing.sort(key=lambda r: (r.expected_rows, r.number))
        # Before anything has run, every prediction is uncorrected and worth a try.
        line = standing[0].expected_rows * CONTENTION if turn else float("inf")
        for runner in [r for r in standing if r.expected_rows <= line]:
            prepared = prepare(problem, semiring, runner.choice.order)
            store = make_store()
            try:
                outcome = Forward(prepared, dominance, store, cap, engine).run(start(runner.choice))
            except RowCapError as reached:
                store.close()
                runner.correct(reached)
            except ResourceError as error:
                store.close()
                failure = error
                standing.remove(runner)
            except BaseException:
                store.close(interrupted=True)
                raise
            else:
                return Finish(runner.choice, prepared, outcome, store, attempts)
            attempts += 1
        if not standing:
            assert failure is not None
            raise failure
    raise AssertionError("unreachable")


@dataclass
class _Runner:
    """An order in the race; ``expected_rows`` is what a complete run is now expected to have in all."""

    number: int
    choice: OrderChoice
    expected_rows: float

    def correct(self, reached: RowCapError) -> None:
        """Scale the prediction of what lies ahead by what was really seen over what was predicted for it."""
        predicted = sum(self.choice.predicted_rows[: reached.position])
        rest = sum(self.choice.predicted_rows[reached.position :])
        self.expected_rows = reached.rows_before + rest * (reached.rows_before + 1) / (predicted + 1)
