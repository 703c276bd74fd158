"""How a solve tells about itself while it runs: a progress bar, a log, a test that counts."""

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

    All methods do nothing unless overridden: each returns, which tells type checkers that none must be.
    """

    def started(self, plan: Plan) -> None:
        """The plan is made and elimination begins.

        Called again where that order's elimination is given up for another one: buckets then count from 1 again.
        """
        return

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Bucket ``number`` (1-based) of ``total`` has passed its message on.

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
        """More is known about the optimum; called before, between and after eliminations.

        Parameters
        ----------
        lower : proven bound on the optimum (from below where costs are minimised, from above where values are
            maximised), or None. value : of the best assignment so far, or None. why : what found it.
        assignment : the best one so far, one value index a variable, or None.
        """
        return

    def finished(self, result: Result) -> None:
        """The solve ended with this result; not called where it ends with an exception."""
        return


class ForwardingObserver(Observer):
    """Tells another observer what it is told, but for the result; subclasses change what they translate.

    Parameters
    ----------
    told : who is told.
    """

    def __init__(self, told: Observer) -> None:
        self._told = told

    @property
    def wants_plans(self) -> bool:
        """Whether anybody at the end of the chain is told about plans: they take time to make."""
        return not isinstance(self._told, ForwardingObserver) or self._told.wants_plans

    def order_chosen(self, choice: OrderChoice, begins: bool) -> None:
        """An order is likely to be used, or an elimination ``begins`` with it; passed on to our own observers."""
        if isinstance(self._told, ForwardingObserver):
            self._told.order_chosen(choice, begins)

    def width_of(self, result: Result, problem: Problem, options: SolveOptions) -> int:
        """The width that a result of a problem reports, also where no elimination ended."""
        return (
            self._told.width_of(result, problem, options)
            if isinstance(self._told, ForwardingObserver)
            else result.width
        )

    def started(self, plan: Plan) -> None:
        """Passed on: the plan is about what is solved."""
        self._told.started(plan)

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Passed on."""
        self._told.bucket_done(number, total, variable, rows, bytes)


def begin_telling(
    told: ForwardingObserver, problem: Problem, choice: OrderChoice, plan: Callable[[], Plan]
) -> Callable[[int, int, int], None]:
    """Tell that an order's elimination begins; returns what tells about its buckets, by number, rows and bytes.

    problem : what is eliminated. plan : makes the plan, where somebody wants it.
    """
    told.order_chosen(choice, True)
    if told.wants_plans:
        told.started(plan())
    names = [problem.variables[v].name for v in choice.order]

    def bucket_done(number: int, rows: int, size: int) -> None:
        told.bucket_done(number, len(names), names[number - 1], rows, size)

    return bucket_done
