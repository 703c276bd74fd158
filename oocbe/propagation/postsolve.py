"""Results and events of what is left of a problem, told as those of the whole problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from oocbe.elimination.observer import ForwardingObserver
from oocbe.model.results.result import Result
from oocbe.propagation.propagated import what_went
from oocbe.propagation.value_removal import ReducedProblem


class Reduced(Protocol):
    """A problem of which another one is left: its assignments are those of that one, lifted."""

    def lift(self, assignment: tuple[int, ...], /) -> tuple[int, ...]:
        """The assignment of all variables that one of what is left stands for."""
        ...


def postsolve(result: Result, left: ReducedProblem) -> Result:
    """The result with the original's variables, those with one value first in the order; what went is a note."""
    if left.problem is left.original:
        return result
    notes = (*result.notes, what_went(left)) if what_went(left) else result.notes
    order, variables = left.lift_order(result.order), left.original.variables
    assignment = None if result.assignment is None else left.lift(result.assignment)
    handling, linear = result.linear_constraints, left.original.linear_constraints
    if handling == "none" and linear and result.status != "interrupted":
        # Propagation has enforced all that can bind, or shown that nothing is feasible.
        handling = "enforced" if any(c.can_bind for c in linear) else "shown not to bind"
    return replace(
        result, order=order, assignment=assignment, variables=variables, linear_constraints=handling, notes=notes
    )


class PostsolveObserver(ForwardingObserver):
    """Tells an observer of the whole problem what is told about what is left of it, but for the result."""

    def __init__(self, told: ForwardingObserver, left: Reduced) -> None:
        super().__init__(told)
        self._left = left

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Passed on with an assignment of all variables."""
        self._told.bounds_changed(lower, value, why, None if assignment is None else self._left.lift(assignment))
