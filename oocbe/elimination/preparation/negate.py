"""A problem that maximises a sum as one that minimises it: all values negated."""

from __future__ import annotations

from dataclasses import replace

from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM


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
