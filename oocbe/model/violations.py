"""Violations of an assignment, found in the problem's constraints and functions without the engine."""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.model.problem import Problem


def violations_of(problem: Problem, assignment: Sequence[int]) -> tuple[str, ...]:
    """All constraints violated by an assignment, by their number in the problem, with the values concerned."""

    def stated(scope: Sequence[int]) -> str:
        return ", ".join(f"{problem.variables[v].name}={problem.variables[v].label(assignment[v])}" for v in scope)

    found = [
        f"constraint {number} {'does not list' if c.allowed else 'forbids'} {stated(c.scope)}"
        for number, c in enumerate(problem.constraints)
        if not c.permits(assignment)
    ]
    found += [
        f"{linear.name}: {linear.consumption(assignment)} exceeds the capacity of {linear.capacity}"
        for linear in problem.linear_constraints
        if not linear.permits(assignment)
    ]
    found += [
        f"function {number} has no value for {stated(f.scope)}"
        for number, f in enumerate(problem.functions)
        if f.value_at(assignment) is None
    ]
    if not found and problem.evaluate(assignment) is None:
        value = problem.below(None).evaluate(assignment)
        bound = f"below the upper bound {problem.upper_bound}"
        if problem.lower_bound is not None and value is not None and value <= problem.lower_bound:
            bound = f"above the lower bound {problem.lower_bound}"
        found.append(f"value {value} is not {bound}")
    return tuple(found)
