"""From a problem and an order to what elimination works on: packed factors, sorted tables, buckets.

Each function is split into its *support* (a hard constraint: where it has a row) and its values. Supports and
constraints become packed constraints, which filter every join that covers their scope, long before the bucket they
belong to; values become packed functions, looked up in the bucket of the variable that is eliminated first. What is
too large to be packed becomes a sorted table in that bucket.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.consumption import LOOKUP_BITS, Consumption, carried_in_rows, consumption_of, is_tabulated
from oocbe.elimination.engine.factors import FactorPool, PoolBuilder
from oocbe.elimination.preparation.ranges import split, value_dtype
from oocbe.elimination.preparation.scaling import out_of_range
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import digits
from oocbe.model.semiring import Combination, Semiring
from oocbe.runtime.deadline import looked
from oocbe.tables.layout import Layout, bits_for
from oocbe.tables.table import Table


def without_zeros(problem: Problem) -> Problem:
    """A product problem of unchanged meaning, all of whose zeros are written as what they forbid.

    Assignments of value 0 are infeasible, like missing rows: elimination drops such rows. Planning, and counting in
    another semiring, would not treat zeros as infeasible. Written as constraints, they have the same meaning
    everywhere.

    Listed zeros lose their row, beside a default they become a constraint as well; a default of 0 becomes none; and a
    constant of 0 becomes a constraint that nothing satisfies. Problems without zeros, and of other semirings, come back
    as they are.
    """
    if not problem.semiring.zeros_forbid:
        return problem
    known = _KNOWN.get(problem)
    if known is None:
        known = _without_zeros(problem)
        if known is not problem:
            _KNOWN[problem] = known
    return known


_KNOWN: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()
"""Cache of converted problems with zeros, used by the search for orders, plans and tasks."""


def _without_zeros(problem: Problem) -> Problem:
    functions: list[Function] = []
    constraints = list(problem.constraints)
    for f in looked(problem.functions):
        keep = f.values != 0
        default = None if f.default == 0 else f.default
        if keep.all() and default == f.default:
            functions.append(f)
            continue
        if default is not None:
            constraints.append(Constraint(f.scope, f.tuples[~keep]))
        functions.append(Function(f.scope, f.tuples[keep], f.values[keep], default))
    constant = problem.constant
    if constant == 0:
        constraints.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
        constant = type(constant)(problem.semiring.one)
    elif functions == list(problem.functions):
        return problem
    return replace(problem, functions=tuple(functions), constraints=tuple(constraints), constant=constant)


EXPANDED_ROWS = 1 << 24
"""Maximum rows to which a function with a default value is expanded if it is too large for a lookup."""


@dataclass(frozen=True)
class ScopedTable:
    """A table, with the indices of its variables in the layout's order, the variable eliminated first at the front."""

    scope: tuple[int, ...]
    table: Table


@dataclass
class Prepared:
    """A problem packed for elimination.

    problem, semiring, dtype : the problem, its semiring, and the dtype of values.
    order : variable indices in elimination order. position : of each variable in the order.
    constraints, functions : packed factors. tables : factors too large to be packed.
    constant : combined with the result, which is then to be multiplied by 2 ** exponent.
    is_infeasible : a constraint or function without variables, a linear constraint alone, or a product's constant of 0
        forbids everything.
    consumption : carried by the keys of all tables and messages in their lowest field; None: none.
    """

    problem: Problem
    semiring: Semiring
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    position: tuple[int, ...]
    constraints: FactorPool
    functions: FactorPool
    tables: list[ScopedTable] = field(default_factory=list)
    constant: int | float = 0
    exponent: int = 0
    is_infeasible: bool = False
    consumption: Consumption | None = None

    def layout(self, scope: Sequence[int]) -> Layout:
        """Layout of a scope given by variable indices, the first one least significant; below it what rows consume."""
        variables = self.problem.variables
        names, sizes = [variables[v].name for v in scope], [variables[v].size for v in scope]
        if self.consumption is not None:
            names, sizes = [self._consumption_name, *names], [1 << self.consumption.bits, *sizes]
        return Layout(tuple(names), tuple(sizes))

    @cached_property
    def _consumption_name(self) -> str:
        """Name of the consumption's field: the name of no variable."""
        taken = {v.name for v in self.problem.variables}
        return next(name for name in ("consumption" + "'" * i for i in count()) if name not in taken)


def scopes_of(problem: Problem) -> list[tuple[int, ...]]:
    """Scopes that make the primal graph: functions, constraints, and linear constraints small enough to tabulate."""
    scopes = [f.scope for f in problem.functions] + [c.scope for c in problem.constraints]
    return scopes + [c.scope for c in problem.linear_constraints if is_tabulated(problem, c)]


def _bits(problem: Problem, scope: Sequence[int]) -> int:
    return sum(bits_for(problem.sizes[v]) for v in scope)


def prepare(
    problem: Problem,
    semiring: Semiring,
    order: Sequence[int],
    *,
    carries: bool = True,
    dtype: np.dtype[Any] | None = None,
) -> Prepared:
    """Pack a problem's factors for an elimination order (see the module).

    carries : whether rows carry consumption of large linear constraints; these are left out otherwise.
    dtype : of values, if the problem is a part of a larger one; None: derived from the problem alone.
    Raises ValueRangeError: sums of values may leave 64-bit integers; UnsupportedError: a factor too large to be looked
    up and, written out, to be a table.
    """
    problem = problem.in_semiring(semiring)
    position = [0] * len(order)
    for place, v in enumerate(order):
        position[v] = place
    dtype = dtype or value_dtype(problem, semiring)
    check_signs(problem, semiring)
    constraints = PoolBuilder(problem.sizes, position, np.uint8, 0)
    functions = PoolBuilder(problem.sizes, position, dtype, semiring.one)
    empty = FactorPool((), np.empty(0))
    prepared = Prepared(problem, semiring, dtype, tuple(order), tuple(position), empty, empty)
    prepared.consumption = consumption_of(problem, carried_in_rows(problem) if carries else ())
    prepared.constant = semiring.one if semiring.counts else problem.constant
    prepared.is_infeasible = semiring.zeros_forbid and problem.constant == 0
    for c in looked(problem.constraints):
        if not c.scope:
            prepared.is_infeasible |= not c.permits(())
        elif _bits(problem, c.scope) <= LOOKUP_BITS:
            constraints.add(c.scope, c.to_array(problem.sizes))
        else:
            prepared.tables.append(_constraint_table(prepared, c))
    for linear in problem.linear_constraints:
        if linear.is_impossible:
            prepared.is_infeasible = True
        elif linear.scope and is_tabulated(problem, linear):
            constraints.add(linear.scope, linear.to_array())
    for f in looked(problem.functions):
        if _bits(problem, f.scope) <= LOOKUP_BITS:
            _add_function(prepared, constraints, functions, f)
        else:
            prepared.tables.append(_function_table(prepared, f))
    if dtype.kind == "f" and semiring.combination is Combination.MULTIPLY:
        prepared.constant, exponent = split(float(prepared.constant))
        prepared.exponent += exponent
    prepared.constraints = constraints.build()
    prepared.functions = functions.build()
    return prepared


def _add_function(prepared: Prepared, constraints: PoolBuilder, functions: PoolBuilder, f: Function) -> None:
    """Split a function into support and values and pack both, without trivial ones."""
    semiring, one = prepared.semiring, prepared.semiring.one
    if not f.scope:
        _add_constant(prepared, f.value_at(()))
        return
    dense, feasible = f.to_array(prepared.problem.sizes)
    if semiring.zeros_forbid:
        feasible &= dense != 0
    if not feasible.all():
        constraints.add(f.scope, feasible)
    if semiring.counts:
        return
    dense = np.where(feasible, _scaled(prepared, dense), one)
    if (dense != one).any():
        functions.add(f.scope, dense)


def _add_constant(prepared: Prepared, value: float | None) -> None:
    """Combine the value of a function without variables with the constant; None forbids everything."""
    if value is None:
        prepared.is_infeasible = True
    elif prepared.semiring.counts:
        return
    elif prepared.semiring.combination is Combination.ADD:
        prepared.constant += value
    elif value == 0:
        prepared.is_infeasible = True
    else:
        if prepared.dtype.kind == "f":
            prepared.constant, before = split(float(prepared.constant))
            value, exponent = split(float(value))
            prepared.exponent += before + exponent
        prepared.constant *= value


def check_signs(problem: Problem, semiring: Semiring) -> None:
    """Refuse negative factors where products are compared: the greatest product need not have the greatest factors."""
    if not semiring.selects or semiring.combination is not Combination.MULTIPLY:
        return
    for number, f in enumerate(looked(problem.functions)):
        if f.values.min(initial=0) < 0 or (f.default or 0) < 0:
            raise UnsupportedError(
                f"{problem.name}: function {number} has a negative value; the {semiring} semiring compares products of "
                "values that are not negative, such as probabilities"
            )
    if problem.constant < 0:
        raise UnsupportedError(f"{problem.name}: the {semiring} semiring needs a constant that is not negative")


def _scaled(prepared: Prepared, values: NDArray[Any]) -> NDArray[Any]:
    """Values of a function, in floating-point products divided by a power of two that is noted in ``exponent``."""
    if prepared.dtype.kind != "f" or prepared.semiring.combination is not Combination.MULTIPLY:
        return values
    exponent = split(float(np.abs(values).max(initial=0)))[1]
    prepared.exponent += exponent
    scaled: NDArray[Any] = np.ldexp(values.astype(np.float64), -exponent)
    if ((values != 0) & (np.abs(scaled) < sys.float_info.min)).any():
        raise out_of_range(f"{prepared.problem.name}, a function whose values differ by more than float64 has room for")
    return scaled


def sorted_table(prepared: Prepared, scope: tuple[int, ...], tuples: NDArray[Any], values: NDArray[Any]) -> ScopedTable:
    """A table without consumption, of integers (rows, len(scope)) and values (rows,), or counts of several limbs."""
    axes = sorted(range(len(scope)), key=lambda axis: prepared.position[scope[axis]])
    ordered = tuple(scope[axis] for axis in axes)
    layout = prepared.layout(ordered)
    columns = tuples[:, axes]
    if prepared.consumption is not None:
        columns = np.pad(columns, ((0, 0), (1, 0)))  # tables of the problem's own consume nothing
    sizes = dict(zip(layout.scope, layout.sizes, strict=True))
    table = Table.from_rows(sizes, columns, values.astype(prepared.dtype), prepared.semiring)
    return ScopedTable(ordered, table)


def _all_tuples(prepared: Prepared, scope: tuple[int, ...], what: str) -> NDArray[np.int64]:
    sizes = [prepared.problem.sizes[v] for v in scope]
    if math.prod(sizes) > EXPANDED_ROWS:
        count = digits(math.prod(sizes))
        raise UnsupportedError(
            f"{prepared.problem.name}: a {what} over {len(scope)} variables leaves {count} assignments to a default; "
            f"written out, at most {EXPANDED_ROWS:,} are supported. List the feasible tuples instead, or split it into "
            "smaller ones"
        )
    return np.indices(sizes).reshape(len(sizes), -1).T


def _constraint_table(prepared: Prepared, c: Constraint) -> ScopedTable:
    """Permitted tuples of a constraint, each worth the semiring's one."""
    tuples = c.tuples
    if not c.allowed:
        every = _all_tuples(prepared, c.scope, "constraint that lists forbidden tuples")
        tuples = every[c.to_array(prepared.problem.sizes).ravel()]
    return sorted_table(prepared, c.scope, tuples, np.full(len(tuples), prepared.semiring.one))


def _function_table(prepared: Prepared, f: Function) -> ScopedTable:
    tuples, values = f.tuples, f.values
    if f.default is not None:
        tuples = _all_tuples(prepared, f.scope, "function")
        values = f.to_array(prepared.problem.sizes)[0].ravel()
    if prepared.semiring.counts:
        values = np.ones(len(values), dtype=np.int64)
    elif prepared.semiring.combination is Combination.MULTIPLY:
        tuples, values = tuples[values != 0], _scaled(prepared, values[values != 0])
    return sorted_table(prepared, f.scope, tuples, values)
