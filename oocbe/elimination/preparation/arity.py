"""Scopes of more variables than an array has axes: variables with a single value are removed from them."""

from __future__ import annotations

from dataclasses import replace

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES


def reduce_arity(problem: Problem) -> Problem:
    """A problem whose scopes of more than :data:`MOST_AXES` variables are reduced to those of several values.

    Functions and constraints are made arrays with an axis a variable where they have few cells. With that many
    variables of several values no array is small enough; those of one value change nothing about a part.
    """
    functions = tuple(_narrowed_function(problem, f) for f in problem.functions)
    constraints = tuple(_narrowed_constraint(problem, c) for c in problem.constraints)
    if functions == problem.functions and constraints == problem.constraints:
        return problem
    return replace(problem, functions=functions, constraints=constraints)


def _narrowed_function(problem: Problem, f: Function) -> Function:
    if len(f.scope) <= MOST_AXES:
        return f
    axes = _axes(problem, f.scope)
    return Function(tuple(f.scope[axis] for axis in axes), f.tuples[:, axes], f.values, f.default)


def _narrowed_constraint(problem: Problem, c: Constraint) -> Constraint:
    if len(c.scope) <= MOST_AXES:
        return c
    axes = _axes(problem, c.scope)
    return Constraint(tuple(c.scope[axis] for axis in axes), c.tuples[:, axes], c.allowed)


def _axes(problem: Problem, scope: tuple[int, ...]) -> list[int]:
    return [axis for axis, v in enumerate(scope) if problem.sizes[v] > 1]
