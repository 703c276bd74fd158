"""A problem that maximises a sum as one that minimises it: all values negated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oocbe.elimination.reformulation import Number, Reformulation
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM, Marginalisation
from oocbe.runtime.deadline import looked


def scaled(problem: Problem, factor: int | float) -> Problem:
    """The problem with all values, of functions and the constant, multiplied by a factor."""
    functions = []
    for f in looked(problem.functions):
        values: Any = f.values * factor
        functions.append(Function(f.scope, f.tuples, values, None if f.default is None else f.default * factor))
    return replace(problem, functions=tuple(functions), constant=problem.constant * factor)


def negated(problem: Problem) -> Problem:
    """A max-sum problem in min-sum, or vice versa: the same assignments, each worth the negative of its value.

    A lower bound becomes an upper one, which means something in min-sum only, or vice versa.
    """
    is_maximised = problem.semiring.marginalisation is Marginalisation.MAX
    bound = problem.lower_bound if is_maximised else problem.upper_bound
    opposite = None if bound is None else -bound
    return replace(
        scaled(problem, -1),
        semiring=MIN_SUM if is_maximised else MAX_SUM,
        upper_bound=opposite if is_maximised else None,
        lower_bound=None if is_maximised else opposite,
    )


class Negation(Reformulation):
    """A problem as one that minimises: one that maximises is negated, any other is unchanged."""

    @classmethod
    def of(cls, problem: Problem) -> Reformulation:
        """The reformulation of a problem."""
        if problem.semiring.marginalisation is not Marginalisation.MAX:
            return Reformulation(problem, problem)
        return cls(problem, negated(problem), name="negation")

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """The negatives."""
        return None if bound is None else -bound, None if value is None else -value
