"""A problem that maximises a sum as one that minimises it: all values negated."""

from __future__ import annotations

from dataclasses import replace

from oocbe.elimination.reformulation import Number, Reformulation
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, Marginalisation


def negated(problem: Problem) -> Problem:
    """A max-sum problem in min-sum: the same assignments, each worth the negative of its value.

    A lower bound becomes an upper one. An upper one is left out: it means something in min-sum only.
    """
    bound = problem.lower_bound
    functions = tuple(
        Function(f.scope, f.tuples, -f.values, None if f.default is None else -f.default) for f in problem.functions
    )
    return replace(
        problem,
        functions=functions,
        constant=-problem.constant,
        semiring=MIN_SUM,
        upper_bound=None if bound is None else -bound,
        lower_bound=None,
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
