"""Scopes of more variables than an array has axes: variables with a single value are removed from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES

Part = TypeVar("Part", Function, Constraint)


def reduce_arity(problem: Problem) -> Problem:
    """A problem whose scopes of more than :data:`MOST_AXES` variables are reduced to those of several values.

    Functions and constraints are made arrays with an axis a variable where they have few cells. With that many
    variables of several values no array is small enough; those of one value change nothing about a part.
    """
    arities = [*(len(f.scope) for f in problem.functions), *(len(c.scope) for c in problem.constraints)]
    if max(arities, default=0) <= MOST_AXES:
        return problem
    functions = tuple(_narrowed(problem, f) for f in problem.functions)
    constraints = tuple(_narrowed(problem, c) for c in problem.constraints)
    return replace(problem, functions=functions, constraints=constraints)


def _narrowed(problem: Problem, part: Part) -> Part:
    if len(part.scope) <= MOST_AXES:
        return part
    axes = [axis for axis, v in enumerate(part.scope) if problem.sizes[v] > 1]
    return replace(part, scope=tuple(part.scope[axis] for axis in axes), tuples=part.tuples[:, axes])
