"""A problem's functions and constraints as complete tables in flat arrays, without a Python loop over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import is_tabulated
from oocbe.elimination.orders.separators import Separators
from oocbe.elimination.preparation.prepare import zeros_forbid
from oocbe.elimination.preparation.temperature import at_temperature, check_range, weight_factor
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Semiring


class FlatTables(NamedTuple):
    """Tables in flat arrays.

    scopes : of each, in the order of its part. starts : int64 (tables + 1,), first cell of each; the first variable
        changes fastest.
    values : int64 or float64 (cells,). permitted : uint8 (cells,).
    """

    scopes: Separators
    starts: NDArray[np.int64]
    values: NDArray[Any]
    permitted: NDArray[np.uint8]

    @property
    def magnitude(self) -> float:
        """The sum of each table's largest value in size; infinite beyond float64."""
        if not len(self.values):
            return 0.0
        with np.errstate(over="ignore"):
            return float(np.maximum.reduceat(np.abs(self.values, dtype=np.float64), self.starts[:-1]).sum())

    def at_temperature(self, problem: Problem, temperature: float) -> tuple[Problem, FlatTables]:
        """The tables as logarithms of weights, and the log-sum-exp problem of the parts without variables.

        Raises UnsupportedError: a factor of a product is negative; ValueRangeError: logarithms leave the range of
        float64.
        """
        semiring = problem.semiring
        factor, permitted = weight_factor(semiring, temperature), self.permitted
        adds = semiring.combination is Combination.ADD or semiring.counts
        if not adds and (self.values < 0).any():
            return at_temperature(problem, temperature), self  # raises the error for the negative factor
        check_range(problem, self.magnitude if adds else 0.0, temperature)
        if adds:
            values = self.values * factor
        else:
            permitted = permitted & (self.values != 0)
            values = np.log(np.where(permitted != 0, self.values, 1)) * factor
        constants = replace(problem, functions=tuple(f for f in problem.functions if not f.scope))
        return at_temperature(constants, temperature), self._replace(values=values, permitted=permitted)


def table_cells(scopes: Separators, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cells of a table over each scope, float64: they may be beyond any integer."""
    logarithms = np.concatenate([[0.0], np.cumsum(np.log2(sizes)[scopes.members])])
    found: NDArray[np.float64] = np.exp2(np.diff(logarithms[scopes.starts]))
    return found


def flat_tables(problem: Problem, semiring: Semiring, most_cells: int) -> FlatTables | None:
    """All parts of a problem with variables, in a semiring; None if they have more than ``most_cells`` cells.

    Of linear constraints only tabulated ones are included; the caller handles parts without variables.
    """
    sizes = np.array(problem.sizes, dtype=np.int64)
    functions: list[Function] = [f for f in problem.functions if f.scope]
    constraints: list[Constraint] = [c for c in problem.constraints if c.scope]
    linear = [c for c in problem.linear_constraints if is_tabulated(problem, c)]
    constraints += [Constraint(c.scope, np.argwhere(~c.to_array())) for c in linear]
    parts: list[Function | Constraint] = [*functions, *constraints]
    scopes = Separators.of([part.scope for part in parts])
    arity = np.diff(scopes.starts)
    cells = _exact_cells(scopes, sizes, most_cells)
    if cells is None:
        return None
    starts = np.concatenate([[0], np.cumsum(cells)])
    is_integral = problem.is_integral and not semiring.needs_floats
    dtype = np.dtype(np.int64 if is_integral else np.float64)
    count = len(functions)
    defaults = np.array([0 if f.default is None else f.default for f in functions], dtype=dtype)
    defaults = np.concatenate([defaults, np.full(len(constraints), semiring.one, dtype=dtype)])
    has_default = np.array(
        [*(f.default is not None for f in functions), *(not c.allowed for c in constraints)], dtype=np.uint8
    )
    values, permitted = np.repeat(defaults, cells), np.repeat(has_default, cells)
    rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
    strides = _strides(scopes, sizes)
    place = np.repeat(starts[:-1], rows)  # of each listed row
    for length in np.unique(arity[rows > 0]):
        own = np.flatnonzero((arity == length) & (rows > 0))
        tuples = np.concatenate([parts[i].tuples for i in own])
        steps = strides[scopes.starts[own][:, None] + np.arange(length)]
        at = np.repeat(arity == length, rows)
        place[at] += (tuples * np.repeat(steps, rows[own], axis=0)).sum(axis=1)
    listed = [f.values for f in functions]
    end = int(rows[:count].sum())
    values[place[:end]] = np.concatenate([np.zeros(0, dtype=dtype), *listed])
    permitted[place[:end]] = 1
    permitted[place[end:]] = np.repeat([c.allowed for c in constraints], rows[count:])
    if zeros_forbid(semiring):
        permitted[values == 0] = 0
    return FlatTables(scopes, starts, values, permitted)


def _exact_cells(scopes: Separators, sizes: NDArray[np.int64], most: int) -> NDArray[np.int64] | None:
    """Cells of a table over each scope; None if their sum exceeds ``most``."""
    if table_cells(scopes, sizes).sum() > most:
        return None
    products = np.ones(len(scopes.starts) - 1, dtype=np.int64)
    np.multiply.at(products, np.repeat(np.arange(len(products)), np.diff(scopes.starts)), sizes[scopes.members])
    return products


def _strides(scopes: Separators, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells from one value to the next of each member of each scope, the first one fastest."""
    strides = np.ones(len(scopes.members), dtype=np.int64)
    arity = np.diff(scopes.starts)
    for axis in range(1, int(arity.max(initial=0))):
        here = scopes.starts[:-1][arity > axis] + axis
        strides[here] = strides[here - 1] * sizes[scopes.members[here - 1]]
    return strides


def constants_of(problem: Problem) -> tuple[list[int | float], bool]:
    """The values of functions without variables and the constant, and whether one forbids everything."""
    found: list[int | float | None] = [problem.constant]
    found += [f.value_at(()) for f in problem.functions if not f.scope]
    is_impossible = None in found or any(c.is_impossible for c in problem.linear_constraints)
    is_impossible |= not all(c.permits(()) for c in problem.constraints if not c.scope)
    return [value for value in found if value is not None], is_impossible


def summed(values: Sequence[int | float], is_integral: bool) -> int | float:
    """A sum, of floats exactly rounded."""
    return sum(values) if is_integral else math.fsum(values)


def scopes_together(*scopes: Separators) -> Separators:
    """Lists of sets one after another."""
    lengths = np.concatenate([np.diff(own.starts) for own in scopes])
    members = np.concatenate([own.members for own in scopes])
    return Separators(np.concatenate([[0], np.cumsum(lengths)]), members)
