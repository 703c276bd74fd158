"""Solve with the best of a few orders, found by trying them: a race with a row cap.

No static estimate ranks orders reliably: dominance removes a hundred rows of one order's messages for each row of
another's. So the best candidates of each heuristic run in the real engine, none of whose messages may pass a cap; when
all of them did, the cap is raised and they run again, those that got furthest first. The first to reach the end has
solved the problem. A run that hits the cap costs about what its cap allows, so with a cap that grows by a factor the
failed runs together cost a few times the successful one at most.
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
from oocbe.problem import Problem
from oocbe.semiring import Semiring

FIRST_CAP = 1 << 20
"""Rows of a message (before dominance) in the first round: a fraction of a second's work."""

CAP_FACTOR = 4
"""How much the cap grows a round."""


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
    start: Callable[[OrderChoice], Callable[[int, int, int], None] | None],
) -> Finish:
    """Run the forward pass with each order until one ends.

    Parameters
    ----------
    choices : orders, the most promising first. A single one runs without a cap.
    make_store : a new place for the messages of one run.
    start : called when a run begins; returns what to call after each bucket.

    Raises
    ------
    ResourceError : no order fits the memory limit (the error of the one that got furthest).
    """
    standing: list[tuple[float, int, OrderChoice]] = [(0.0, number, c) for number, c in enumerate(choices)]
    attempts = 0
    failure: ResourceError | None = None
    for turn in count():
        cap = FIRST_CAP * CAP_FACTOR**turn if len(standing) > 1 else None
        again: list[tuple[float, int, OrderChoice]] = []
        for _, number, choice in sorted(standing, key=lambda s: s[:2]):
            prepared = prepare(problem, semiring, choice.order)
            store = make_store()
            try:
                outcome = Forward(prepared, dominance, store, cap).run(start(choice))
            except RowCapError as reached:
                store.close()
                attempts += 1
                again.append((_predicted_rest(choice, reached.position), number, choice))
            except ResourceError as error:
                store.close()
                attempts += 1
                failure = error
            except BaseException:
                store.close()
                raise
            else:
                return Finish(choice, prepared, outcome, store, attempts)
        if not again:
            assert failure is not None
            raise failure
        standing = again
    raise AssertionError("unreachable")


def _predicted_rest(choice: OrderChoice, position: int) -> float:
    """Predicted rows from the bucket that hit the cap on: how much of the work still lies ahead."""
    return sum(choice.predicted_rows[position:])
