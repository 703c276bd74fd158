"""Observers of a running solve: a progress bar, a log, a counting test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from oocbe.errors import UsageError

if TYPE_CHECKING:
    from oocbe.elimination.plan.plan import Plan
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result


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
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
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


def check_observer(observer: object) -> None:
    """Refuse (UsageError) what is neither None nor has the methods of an observer."""
    missing = [name for name in vars(Observer) if not name.startswith("_") and not hasattr(observer, name)]
    if observer is not None and (missing or isinstance(observer, type)):
        raise UsageError(f"observer: {observer!r:.100}: give an instance of a class derived from oocbe.Observer")


def bucket_callback(target: Observer, problem: Problem, order: Sequence[int]) -> Callable[[int, int, int], None]:
    """The callback for the buckets of an order (number, rows, bytes) that notifies an observer."""
    names = [problem.variables[v].name for v in order]

    def bucket_done(number: int, rows: int, size: int) -> None:
        target.bucket_done(number, len(names), names[number - 1], rows, size)

    return bucket_done
