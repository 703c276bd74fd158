"""A finite-domain problem from a linear system: the consumption of every value, in exact integers.

Unbounded domains and real variables are unsupported, unless a real variable is integral in each solution: modelling
tools write a constant as a variable fixed to 1 (Pyomo, PuLP, Gurobi), and a range as a slack in an equation of
integers. Decimal fractions become integers with a common denominator. A row is shifted so that its least consumption is
0. Consumptions above the capacity are clipped to the capacity plus one, so that large coefficients may fit 64 bits.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.model.linear_system import LinearSystem
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import check_deadline

LARGEST_DOMAIN = 2**24
"""Maximum number of values of a variable."""

MOST_COEFFICIENTS = 2**26
"""Limit of the values of all variables plus the coefficients of all rows, one per value of an entry's variable."""


def problem_of(system: LinearSystem) -> Problem:
    """The problem whose solutions are the integer points of a system; value k of a variable is its lower bound + k.

    Raises UnsupportedError: names the real or unbounded variable, or the row with numbers beyond 64 bits.
    """
    integral = _always_integral(system)
    values = [_size(system, v, bool(integral[v])) for v in range(system.variables)]
    cells = sum(values) + sum(values[v] for v in system.columns.tolist())
    if cells > MOST_COEFFICIENTS:
        raise UnsupportedError(
            f"{system.name}: the variables, by themselves and in rows, have {cells:,} values together; at most "
            f"{MOST_COEFFICIENTS:,} are supported"
        )
    origins: list[int] = []
    variables = []
    for name, size, lower in zip(system.names, values, system.lower, strict=True):
        check_deadline()
        low = math.ceil(lower) if size else 0
        labels = None if low == 0 else tuple(str(low + k) for k in range(size))
        origins.append(low)
        variables.append(Variable(name, max(1, size), labels))
    sizes = [v.size for v in variables]
    is_empty = 0 in values
    nothing = (Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True),)
    constant, functions = _objective(system, sizes, origins)
    return Problem(
        tuple(variables),
        functions,
        nothing if is_empty else (),
        tuple(part for row in range(system.rows) for part in _parts_of(system, row, sizes, origins)),
        constant=constant,
        semiring=MAX_SUM if system.maximises else MIN_SUM,
        name=system.name,
        notes=system.notes,
        question=system.question,
        counting=system.counting,
    )


def _always_integral(system: LinearSystem) -> NDArray[np.bool_]:
    """Mask of the variables that are integers in every solution: integral, fixed to an integer, or by an equation."""
    fixed = [low == high and float(low).is_integer() for low, high in zip(system.lower, system.upper, strict=True)]
    integral: NDArray[np.bool_] = np.logical_or(system.integral, fixed)
    if integral.all():
        return integral
    owners = np.repeat(np.arange(system.rows), np.diff(system.starts))
    reals = np.bincount(owners, ~integral[system.columns], minlength=system.rows)
    is_equation = np.asarray(system.row_lower == system.row_upper, dtype=bool)
    rows = np.flatnonzero(is_equation & (reals == 1)).tolist()
    starts, rows_of = system.rows_of_variables
    while rows:
        check_deadline()
        row = rows.pop()
        entries = slice(system.starts[row], system.starts[row + 1])
        columns, terms = system.columns[entries].tolist(), [_exact(a) for a in system.coefficients[entries].tolist()]
        real = [(v, a) for v, a in zip(columns, terms, strict=True) if not integral[v]]
        if len(real) != 1:
            continue
        v, own = real[0]
        if any((number / own).denominator != 1 for number in (*terms, _exact(system.row_lower[row]))):
            continue
        integral[v] = True
        touched = rows_of[starts[v] : starts[v + 1]]
        reals[touched] -= 1
        rows += touched[is_equation[touched] & (reals[touched] == 1)].tolist()
    return integral


def _size(system: LinearSystem, v: int, is_integral: bool) -> int:
    """Number of values of a variable; 0 for an empty domain."""
    name, low, high = system.names[v], system.lower[v], system.upper[v]
    if not is_integral:
        raise UnsupportedError(
            f"{system.name}: variable {name} is real; elimination needs integers, and oocbe propagate bounds reals, too"
        )
    if math.isinf(low) or math.isinf(high):
        side = "below" if math.isinf(low) else "above"
        raise UnsupportedError(
            f"{system.name}: variable {name} has no bound {side}; give it one, where none follows from the rows"
        )
    size = int(max(0, math.floor(high) - math.ceil(low) + 1))
    if size > LARGEST_DOMAIN:
        raise UnsupportedError(
            f"{system.name}: variable {name} has {size:,} values; at most {LARGEST_DOMAIN:,} are supported: bound it"
        )
    return size


def _exact(number: int | float) -> Fraction:
    """The exact number as written in the file: a double's shortest decimal."""
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(int(number))


def _parts_of(system: LinearSystem, row: int, sizes: list[int], origins: list[int]) -> list[LinearConstraint]:
    """The inequalities of a row, without those satisfied by every assignment."""
    check_deadline()
    entries = slice(system.starts[row], system.starts[row + 1])
    columns = system.columns[entries].tolist()
    terms = [_exact(a) for a in system.coefficients[entries].tolist()]
    made = []
    for side, sign in ((system.row_upper[row], 1), (system.row_lower[row], -1)):
        if math.isinf(side):
            continue
        scale = math.lcm(*(a.denominator for a in terms))
        whole = [int(sign * a * scale) for a in terms]
        shared = math.gcd(*whole) or 1
        room = math.floor(sign * _exact(side) * scale / shared)
        whole = [a // shared for a in whole]
        # Shift the consumption to start at 0: subtract that of the cheapest values from the capacity.
        room -= sum(a * origins[v] + min(0, a * (sizes[v] - 1)) for a, v in zip(whole, columns, strict=True))
        if room >= 0 and sum(abs(a) * (sizes[v] - 1) for a, v in zip(whole, columns, strict=True)) <= room:
            continue
        if room >= INT64.max:
            raise UnsupportedError(
                f"{system.name}: {system.row_name(row)}: as integers, its numbers leave 64 bits; elimination needs less"
            )
        limit = max(0, room + 1)
        coefficients = tuple(_consumption(a, sizes[v], limit) for a, v in zip(whole, columns, strict=True))
        made.append(LinearConstraint(tuple(columns), coefficients, max(-1, room), system.row_name(row)))
    return made


def _consumption(coefficient: int, size: int, limit: int) -> NDArray[np.int64]:
    """Consumption of each value above the cheapest one, clipped to ``limit``."""
    if size == 1:
        return np.zeros(1, dtype=np.int64)  # a single value: no choice, whatever the coefficient
    if abs(coefficient) * (size - 1) <= INT64.max:
        steps = np.arange(size, dtype=np.int64)
        taken = np.minimum(steps * abs(coefficient), limit)
    else:
        taken = np.array([min(k * abs(coefficient), limit) for k in range(size)], dtype=np.int64)
    return taken if coefficient > 0 else taken[::-1].copy()


def _objective(system: LinearSystem, sizes: list[int], origins: list[int]) -> tuple[int | float, tuple[Function, ...]]:
    """The constant, and the function of each variable with an objective coefficient."""
    costs = system.objective.tolist()
    constant = system.constant
    is_whole = all(float(c).is_integer() for c in [*costs, constant] if isinstance(c, float))
    total = int(constant) if is_whole else float(constant)
    functions = []
    for v, cost in enumerate(costs):
        if cost == 0:
            continue
        if not is_whole:
            total += cost * origins[v]
            values = cost * np.arange(sizes[v], dtype=np.float64)
        else:
            total += int(cost) * origins[v]
            if abs(int(cost)) * sizes[v] > INT64.max:
                name = system.names[v]
                raise UnsupportedError(
                    f"{system.name}: the objective's coefficient of {name} leaves 64 bits; scale it down"
                )
            values = int(cost) * np.arange(sizes[v], dtype=np.int64)
        functions.append(Function((v,), np.arange(sizes[v])[:, None], values))
    return total, tuple(functions)
