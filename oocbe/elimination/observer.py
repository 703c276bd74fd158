"""Observers of a running solve: a progress bar, a log, a counting test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oocbe.elimination.orders.order_choice import OrderChoice
    from oocbe.elimination.plan.plan import Plan
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.settings.options import SolveOptions


class Observer(Protocol):
    """Receives the events of one solve on the thread that called ``solve``.

    All methods do nothing unless overridden. Each has a ``return``, so that type checkers require no override.
    """

    def started(self, plan: Plan) -> None:
        """Called with the plan when elimination begins.

        Called again when that order is abandoned for another one: bucket numbers then restart from 1.
        """
        return

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Called when bucket ``number`` (1-based) of ``total`` has sent its message.

        Parameters
        ----------
        variable : name of the variable that was eliminated.
        rows : rows of the message.
        bytes : bytes of the message's keys and values.
        """
        return

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Called with improved bounds before, between and after eliminations.

        Parameters
        ----------
        lower : proven bound on the optimum (a lower one for minimisation, an upper one for maximisation), or None.
        value : of the incumbent, or None. why : method that found it.
        assignment : the incumbent, one value index a variable, or None.
        """
        return

    def finished(self, result: Result) -> None:
        """Called with the result at the end of the solve, unless it ends with an exception."""
        return


class ForwardingObserver(Observer):
    """Forwards all events except the result to another observer; subclasses translate some of them.

    Parameters
    ----------
    target : the receiving observer.
    """

    def __init__(self, target: Observer) -> None:
        self._target = target

    @property
    def wants_plans(self) -> bool:
        """Whether the last observer of the chain uses plans, which take time to compute."""
        return not isinstance(self._target, ForwardingObserver) or self._target.wants_plans

    def order_chosen(self, choice: OrderChoice, begins: bool) -> None:
        """An order is likely to be used, or an elimination ``begins`` with it; forwarded to internal observers."""
        if isinstance(self._target, ForwardingObserver):
            self._target.order_chosen(choice, begins)

    def width_of(self, result: Result, problem: Problem, options: SolveOptions) -> int:
        """The width to report in a result, also if no elimination was completed."""
        return (
            self._target.width_of(result, problem, options)
            if isinstance(self._target, ForwardingObserver)
            else result.width
        )

    def started(self, plan: Plan) -> None:
        """Forward the plan, which is about the problem being solved."""
        self._target.started(plan)

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Forward the event."""
        self._target.bucket_done(number, total, variable, rows, bytes)


def begin_telling(
    target: ForwardingObserver, problem: Problem, choice: OrderChoice, plan: Callable[[], Plan]
) -> Callable[[int, int, int], None]:
    """Notify that an order's elimination begins; returns the callback for its buckets (number, rows, bytes).

    problem : the eliminated problem. plan : computes the plan; called only if an observer uses it.
    """
    target.order_chosen(choice, True)
    if target.wants_plans:
        target.started(plan())
    names = [problem.variables[v].name for v in choice.order]

    def bucket_done(number: int, rows: int, size: int) -> None:
        target.bucket_done(number, len(names), names[number - 1], rows, size)

    return bucket_done
