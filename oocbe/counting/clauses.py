"""The hard part of a problem as clauses, and clauses as a problem."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from oocbe.counting.formula import Clause, Formula
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import looked

WIDEST = 10
"""Variables of a linear constraint that is written as a clause for each forbidden assignment, at most."""

MOST_CELLS, MOST_CLAUSES = 1 << 20, 1 << WIDEST
"""Cells of a table, and its forbidden assignments, each of which becomes a clause, at most."""


def formula_of(problem: Problem) -> Formula | None:
    """The feasible assignments as models; None if a variable has more than two values, or a part has no short clauses.

    problem : hard parts only, see :func:`oocbe.elimination.preparation.upper_bound.what_forbids`.
    """
    if max(problem.sizes, default=0) > 2:
        return None
    single = [(2 * v + 1,) for v, size in enumerate(problem.sizes) if size == 1]
    clauses: list[tuple[int, ...]] = [*single]
    for part in looked((*problem.constraints, *problem.functions, *problem.linear_constraints)):
        found = _clauses_of(problem, part)
        if found is None:
            return None
        clauses += found
    return Formula.of(len(problem.variables), clauses)


def _clauses_of(problem: Problem, part: object) -> Iterator[tuple[int, ...]] | None:
    """The clauses of one part, one for each forbidden assignment; None if they may be too many."""
    if isinstance(part, LinearConstraint):
        return _clauses_of_linear(part)
    scope, sizes = part.scope, problem.sizes  # type: ignore[attr-defined]
    if isinstance(part, Constraint) and not part.allowed:
        return _forbidding(scope, part.tuples)
    cells = math.prod(sizes[v] for v in scope)
    if cells > MOST_CELLS or cells - len(part.tuples) > MOST_CLAUSES:  # type: ignore[attr-defined]
        return None
    permitted = part.to_array(sizes) if isinstance(part, Constraint) else part.to_array(sizes)[1]  # type: ignore[attr-defined]
    return _forbidding(scope, np.argwhere(~permitted))


def _clauses_of_linear(part: LinearConstraint) -> Iterator[tuple[int, ...]] | None:
    if not part.can_bind:
        return iter(())
    low, high = part.ends
    gaps = [most - least for least, most in zip(low, high, strict=True)]
    bound = [i for i, gap in enumerate(gaps) if gap]
    if bound and part.greatest - min(gaps[i] for i in bound) <= part.capacity:  # one assignment of these is forbidden
        worst = [int(np.argmax(part.coefficients[i])) for i in bound]
        return iter([tuple(2 * part.scope[i] + value for i, value in zip(bound, worst, strict=True))])
    if len(part.scope) > WIDEST:
        return None
    return _forbidding(part.scope, np.argwhere(~part.to_array()))


def _forbidding(scope: tuple[int, ...], rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[Clause]:
    if not scope:
        return iter([()] * min(1, len(rows)))
    return map(tuple, (2 * np.array(scope) + rows).tolist())


def problem_of(formula: Formula, name: str) -> Problem:
    """The clauses as constraints; weights, hidden variables and the multiplier are left out."""
    variables = tuple(Variable(str(v + 1), 2) for v in range(formula.variables))
    constraints = (
        Constraint(tuple(x >> 1 for x in clause), np.array([[x & 1 for x in clause]], dtype=np.int64))
        for clause in looked(formula.clauses)
    )
    return Problem(variables, (), tuple(constraints), name=name)
