"""Results and events of a reduced problem, converted to the original problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from oocbe.elimination.observer import ForwardingObserver
from oocbe.model.results.result import Result
from oocbe.propagation.propagated import what_went
from oocbe.propagation.value_removal import ReducedProblem


class Reduced(Protocol):
    """A reduced problem whose assignments can be lifted to the original."""

    def lift(self, assignment: tuple[int, ...], /) -> tuple[int, ...]:
        """The assignment of the original for one of the reduced problem."""
        ...


def postsolve(result: Result, left: ReducedProblem) -> Result:
    """The result in the original's variables, those with one value first in the order; a note reports the removals."""
    if left.problem is left.original:
        return result
    notes = (*result.notes, what_went(left)) if what_went(left) else result.notes
    order, variables = left.lift_order(result.order), left.original.variables
    assignment = None if result.assignment is None else left.lift(result.assignment)
    handling, linear = result.linear_constraints, left.original.linear_constraints
    if handling == "none" and linear and result.status != "interrupted":
        # Propagation has enforced every constraint that can bind, or shown infeasibility.
        handling = "enforced" if any(c.can_bind for c in linear) else "shown not to bind"
    return replace(
        result, order=order, assignment=assignment, variables=variables, linear_constraints=handling, notes=notes
    )


class PostsolveObserver(ForwardingObserver):
    """Forwards events of the reduced problem, except the result, to an observer of the original."""

    def __init__(self, target: ForwardingObserver, left: Reduced) -> None:
        super().__init__(target)
        self._left = left

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Passed on with an assignment of all variables."""
        self._target.bounds_changed(lower, value, why, None if assignment is None else self._left.lift(assignment))
