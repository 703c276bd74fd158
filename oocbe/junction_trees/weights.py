"""A problem's functions and constraints as tables of weights, sorted like the cliques' rows.

Each table is divided by a power of two, so that its largest weight is between 1 and 2: this avoids overflow and
underflow of products, without rounding. In log space weights are natural logarithms, the largest 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import is_tabulated, left_out, why_left_out
from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP
from oocbe.runtime.deadline import looked

SORTED_CELLS = 32
"""Assignments of an array that are filled and searched in the time in which a listed row is sorted."""

MOST_CELLS = 1 << 24
"""Maximum cells of the scope of a function with a default value, or of a forbidding constraint, to be made dense."""


@dataclass(frozen=True, eq=False)
class WeightTable:
    """A factor of the product that a tree represents.

    scope : variable indices, the one eliminated last at the front.
    values : (variables, rows), value indices of its rows, sorted, the first variable most significant; None if every
        assignment has a row.
    weights : float64 (rows,), linear or logarithms; None if each row has weight 1.
    input : number of its input, see :mod:`oocbe.junction_trees.conditioning`; None for other tables.
    """

    scope: tuple[int, ...]
    values: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    input: int | None = None


@dataclass(frozen=True, eq=False)
class Weights:
    """All factors of a problem.

    tables : those with variables. logarithm : natural logarithm of the factor divided out of all weights, -inf if every
        assignment has weight 0.
    is_log : whether weights are logarithms.
    """

    tables: tuple[WeightTable, ...]
    logarithm: float
    is_log: bool


def value_kind(sizes: Sequence[int]) -> np.dtype[Any]:
    """The smallest dtype for value indices of domains of these sizes."""
    return np.min_scalar_type(max(sizes, default=1) - 1)


def log_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithms of weights; -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


def weights_of(problem: Problem, order: Sequence[int], is_log: bool) -> Weights:
    """The factors of a problem whose values are multiplied, or logarithms of such values (log-sum-exp).

    order : variables as they are eliminated. is_log : whether weights are to be logarithms.
    Raises UnsupportedError: a negative weight, a linear constraint too large for a table, or a factor with too many
    assignments of default value.
    """
    relaxed = left_out(problem)
    large = [c for c in problem.linear_constraints if c.scope and c.can_bind and not is_tabulated(problem, c)]
    if relaxed or large:
        why = why_left_out(relaxed) if relaxed else f"{large[0].name} over {len(large[0].scope)} variables is too large"
        raise UnsupportedError(f"{problem.name}: a junction tree needs every constraint as a table; {why}")
    if problem.constant < 0 and problem.semiring != LOG_SUM_EXP:
        raise UnsupportedError(f"{problem.name}: the constant is negative; weights are not")
    problem = without_zeros(problem)
    maker = _Maker(problem, order, is_log)
    tables = [t for number, f in enumerate(looked(problem.functions)) for t in maker.function(number, f)]
    tables += [t for c in looked(problem.constraints) for t in maker.constraint(c)]
    for linear in looked(problem.linear_constraints):
        if linear.can_bind:
            tables += maker.support(linear.scope, linear.to_array())
    constant = problem.constant if problem.semiring == LOG_SUM_EXP else math.log(problem.constant)
    return Weights(tuple(tables), maker.logarithm + constant, is_log)


def tabulated(problem: Problem) -> Problem:
    """The problem with small and impossible linear constraints as tables, without those that cannot bind."""
    if not problem.linear_constraints:
        return problem
    linears, tables = [], []
    for linear in problem.linear_constraints:
        if not linear.can_bind:
            continue
        if linear.is_impossible:
            tables.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
        elif is_tabulated(problem, linear):
            tables.append(Constraint(linear.scope, np.argwhere(linear.to_array()), allowed=True))
        else:
            linears.append(linear)
    constraints = (*problem.constraints, *tables)
    return replace(problem, constraints=constraints, linear_constraints=tuple(linears))


class _Maker:
    """Makes tables and sums the logarithms of their divisors."""

    def __init__(self, problem: Problem, order: Sequence[int], is_log: bool) -> None:
        self._problem, self._is_log = problem, is_log
        self._kind = value_kind(problem.sizes)
        self._position = {v: place for place, v in enumerate(order)}
        self.logarithm = 0.0

    def function(self, number: int, f: Function) -> Iterator[WeightTable]:
        """A function's table, or none where it has no variables."""
        if len(f.values) == 0 and f.default is None:
            self.logarithm = -math.inf
            return
        if not f.scope:
            value = f.value_at(())
            assert value is not None
            self.logarithm += value if self._problem.semiring == LOG_SUM_EXP else math.log(value)
            return
        scope, axes = self._sorted(f.scope)
        if self._is_dense(f, f.default is None):
            dense, feasible = f.to_array(self._problem.sizes)
            dense, feasible = dense.transpose(axes), feasible.transpose(axes)
            values = None if feasible.all() else np.array(np.nonzero(feasible), dtype=self._kind)
            numbers = np.ascontiguousarray(dense[feasible], dtype=np.float64)
        else:
            if f.default is not None:
                raise self._too_large(f.scope)
            columns = f.tuples[:, axes]
            rows = np.lexsort(columns.T[::-1])
            values = np.ascontiguousarray(columns[rows].T, dtype=self._kind)
            numbers = f.values[rows].astype(np.float64)
        yield WeightTable(scope, values, self._scaled(number, numbers))

    def constraint(self, c: Constraint) -> Iterator[WeightTable]:
        """A constraint's table, or none where it has no variables."""
        if not c.scope:
            if not c.permits(()):
                self.logarithm = -math.inf
        elif self._is_dense(c, c.allowed and len(c.tuples) > 0):
            yield from self.support(c.scope, c.to_array(self._problem.sizes))
        elif not c.allowed:
            raise self._too_large(c.scope)
        else:
            scope, axes = self._sorted(c.scope)
            columns = c.tuples[:, axes]
            columns = columns[np.lexsort(columns.T[::-1])]
            yield WeightTable(scope, np.ascontiguousarray(columns.T, dtype=self._kind), None)

    def support(self, scope: tuple[int, ...], permitted: NDArray[np.bool_]) -> Iterator[WeightTable]:
        """The table of the permitted assignments of a constraint, or none if all are permitted."""
        if permitted.all():
            return
        if not scope or not permitted.any():
            self.logarithm = -math.inf
            return
        ordered, axes = self._sorted(scope)
        yield WeightTable(ordered, np.array(np.nonzero(permitted.transpose(axes)), dtype=self._kind), None)

    def _sorted(self, scope: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
        axes = sorted(range(len(scope)), key=lambda axis: self._position[scope[axis]], reverse=True)
        return tuple(scope[axis] for axis in axes), axes

    def _is_dense(self, part: Function | Constraint, is_list: bool) -> bool:
        cells = math.prod(self._problem.sizes[v] for v in part.scope)
        return cells <= (min(MOST_CELLS, SORTED_CELLS * len(part.tuples)) if is_list else MOST_CELLS)

    def _scaled(self, number: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scaled weights of values; the logarithm of the divisor is added to the total."""
        greatest = float(values.max())
        if self._problem.semiring == LOG_SUM_EXP:
            self.logarithm += greatest
            return np.asarray(values - greatest if self._is_log else np.exp(values - greatest))
        if values.min() < 0:
            raise UnsupportedError(f"{self._problem.name}: function {number} has a negative value; weights have none")
        if self._is_log:
            self.logarithm += math.log(greatest)
            return np.asarray(np.log(values) - math.log(greatest))
        exponent = math.frexp(greatest)[1] - 1
        self.logarithm += exponent * math.log(2)
        return np.asarray(np.ldexp(values, -exponent))

    def _too_large(self, scope: tuple[int, ...]) -> UnsupportedError:
        cells = math.prod(self._problem.sizes[v] for v in scope)
        return UnsupportedError(
            f"{self._problem.name}: a factor over {len(scope)} variables leaves {cells:.3g} assignments to a default; "
            f"at most {MOST_CELLS:,} are written out. List the feasible tuples instead, or split it into smaller ones"
        )
