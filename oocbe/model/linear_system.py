"""A system of linear constraints over variables with bounds: sparse, with integers, reals or both.

A :class:`~oocbe.model.problem.Problem` lists the consumption of every value of a variable, which suits small domains. A
mixed-integer program has unbounded and real variables, and hundreds of thousands of non-zeros: here a row is a list of
coefficients, in compressed sparse rows, and a variable an interval.

A finite-domain problem from such a system has the consumption of every value, in exact integers. Unbounded domains and
real variables are unsupported, unless a real variable is integral in each solution: modelling tools write a constant as
a variable fixed to 1 (Pyomo, PuLP, Gurobi), and a range as a slack in an equation of integers. Decimal fractions become
integers with a common denominator. A row is shifted so that its least consumption is 0. Consumptions above the capacity
are clipped to the capacity plus one, so that large coefficients may fit 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError, UnsupportedError
from oocbe.model.count_question import CountQuestion, FileNotes
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import check_deadline

INFINITE = 1e20
"""Magnitude from which bounds and sides count as infinite, as in SCIP and HiGHS; 1e30 is included."""

EXACT_LIMIT = 2**53
"""Exclusive limit of integers, and their sums, that doubles represent exactly."""

Numbers = NDArray[np.float64] | NDArray[np.object_]
"""Doubles with infinities, or Python integers with the floats ``inf`` and ``-inf`` among them."""


@dataclass(frozen=True, eq=False)
class LinearSystem(FileNotes):
    """Rows ``row_lower <= A x <= row_upper`` over variables ``lower <= x <= upper``, some of them integers.

    All numbers are float64, or all are Python integers (``object`` arrays, for integers beyond doubles); infinity is
    the float ``inf`` in both. float64 numbers of 1e20 and beyond become infinite.

    Attributes
    ----------
    starts : int64 (rows + 1,), first entry of each row, ascending from 0; the number of entries last.
    columns : int64 (entries,), variable of each; unique within a row.
    coefficients : (entries,), of each; never zero.
    row_lower, row_upper : (rows,), sides.
    lower, upper : (variables,), bounds.
    integral : bool (variables,), which are integers.
    names, row_names : of variables and rows; row names may be omitted (default: ``row 0`` and so on).
    objective : (variables,) float64 or Python integers, coefficients of the optimised sum. constant : added to it.
    maximises : whether the sum is maximised.
    name : for messages and reports.
    notes, question, counting : additional contents of the file, see :class:`~oocbe.model.count_question.FileNotes`.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    coefficients: Numbers
    row_lower: Numbers
    row_upper: Numbers
    lower: Numbers
    upper: Numbers
    integral: NDArray[np.bool_]
    names: tuple[str, ...]
    row_names: tuple[str, ...] = ()
    objective: Numbers = field(default_factory=lambda: np.zeros(0))
    constant: int | float = 0
    maximises: bool = False
    name: str = "linear system"
    notes: tuple[str, ...] = ()
    question: str = ""
    counting: CountQuestion | None = None

    def __post_init__(self) -> None:
        kinds = {a.dtype.kind for a in (self.coefficients, self.row_lower, self.row_upper, self.lower, self.upper)}
        if kinds not in ({"f"}, {"O"}):
            raise ModelError(f"{self.name}: coefficients, sides and bounds must all be float64, or all Python integers")
        self._check_shapes()
        for what, numbers in (("coefficient", self.coefficients), ("objective", self.objective)):
            if not _are_finite(numbers):
                raise ModelError(f"{self.name}: a {what} is infinite or no number")
        if len(self.coefficients) and not np.asarray(self.coefficients != 0, dtype=bool).all():
            raise ModelError(f"{self.name}: a coefficient is zero; leave its entry out")
        self._set_sides("row_lower", "row_upper", "row", self.row_name)
        self._set_sides("lower", "upper", "variable", self.names.__getitem__)

    def _check_shapes(self) -> None:
        rows, variables, entries = len(self.row_lower), len(self.lower), len(self.coefficients)
        if len(self.row_upper) != rows or len(self.starts) != rows + 1 or len(self.row_names) not in (0, rows):
            raise ModelError(f"{self.name}: sides, names and starts of different numbers of rows")
        if not len(self.upper) == len(self.integral) == len(self.names) == variables:
            raise ModelError(f"{self.name}: bounds, names and kinds of different numbers of variables")
        if len(self.objective) not in (0, variables):
            raise ModelError(
                f"{self.name}: an objective of {len(self.objective)} coefficients for {variables} variables"
            )
        if len(self.columns) != entries or self.starts[0] != 0 or self.starts[-1] != entries:
            raise ModelError(f"{self.name}: the rows' starts do not span the {entries} coefficients")
        if (np.diff(self.starts) < 0).any():
            raise ModelError(f"{self.name}: the rows' starts do not ascend")
        if entries and (self.columns.min() < 0 or self.columns.max() >= variables):
            raise ModelError(f"{self.name}: an entry's variable does not exist")
        check_deadline()
        owners = np.repeat(np.arange(rows), np.diff(self.starts))
        if ((np.diff(self.columns) > 0) | (np.diff(owners) > 0)).all():
            return  # ascending in each row, as usual in files: no duplicates
        order = np.lexsort((self.columns, owners))
        twice = (np.diff(owners[order]) == 0) & (np.diff(self.columns[order]) == 0)
        if twice.any():
            place = order[np.argmax(twice)]
            raise ModelError(
                f"{self.name}: {self.row_name(int(owners[place]))} has variable {self.names[self.columns[place]]} twice"
            )

    def _set_sides(self, low_name: str, high_name: str, what: str, name_of: Any) -> None:
        """Refuse NaN, lower sides of inf and upper ones of -inf; replace large numbers by infinities."""
        low, high = getattr(self, low_name), getattr(self, high_name)
        is_bad = np.asarray((low != low) | (high != high), dtype=bool)
        if is_bad.any():
            raise ModelError(f"{self.name}: {what} {name_of(int(np.argmax(is_bad)))}: a bound is no number")
        if low.dtype.kind == "f":
            low, high = (np.where(np.abs(n) >= INFINITE, np.copysign(np.inf, n), n) for n in (low, high))
            object.__setattr__(self, low_name, low)
            object.__setattr__(self, high_name, high)
        is_bad = np.asarray((low == math.inf) | (high == -math.inf), dtype=bool)
        if is_bad.any():
            raise ModelError(
                f"{self.name}: {what} {name_of(int(np.argmax(is_bad)))}: a lower bound of infinity, or an upper one of "
                "minus infinity"
            )

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[tuple[Mapping[int, int | float], int | float, int | float]],
        lower: Sequence[int | float],
        upper: Sequence[int | float],
        integral: ArrayLike = True,
        **others: Any,
    ) -> LinearSystem:
        """Make a system from ``({variable: coefficient}, lower side, upper side)`` per row; zeros are omitted.

        Python integers are used if all numbers are integers and some are 2^53 or more; doubles otherwise. Integers
        beyond doubles together with fractions are refused (ModelError). integral : bool, one or one per variable.
        others : further attributes by name.
        """
        listed = [({v: a for v, a in terms.items() if a != 0}, low, high) for terms, low, high in rows]
        starts = np.cumsum([0, *(len(terms) for terms, _, _ in listed)], dtype=np.int64)
        columns = np.array([v for terms, _, _ in listed for v in terms], dtype=np.int64)
        coefficients = [a for terms, _, _ in listed for a in terms.values()]
        lows, highs = [low for _, low, _ in listed], [high for _, _, high in listed]
        exactly = needs_integers(coefficients, lows, highs, lower, upper)
        a, b, c, d, e = (as_numbers(values, exactly) for values in (coefficients, lows, highs, lower, upper))
        kinds = np.broadcast_to(np.asarray(integral, dtype=bool), (len(lower),)).copy()
        names = others.pop("names", tuple(f"x{v}" for v in range(len(lower))))
        return cls(starts, columns, a, b, c, d, e, kinds, names, **others)

    @property
    def is_exact(self) -> bool:
        """Whether the numbers are Python integers."""
        return self.coefficients.dtype.kind == "O"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_lower)

    @property
    def variables(self) -> int:
        """Number of variables."""
        return len(self.lower)

    def row_name(self, row: int) -> str:
        """Name of a row in messages."""
        return self.row_names[row] if self.row_names else f"row {row}"

    @cached_property
    def rows_of_variables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of each variable: starts (variables + 1,), and rows (entries,), ascending for each."""
        counts = np.bincount(self.columns, minlength=self.variables)
        starts = np.zeros(self.variables + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        owners = np.repeat(np.arange(self.rows, dtype=np.int64), np.diff(self.starts))
        return starts, owners[np.argsort(self.columns, kind="stable")]

    def __repr__(self) -> str:
        return (
            f"<LinearSystem {self.name}: {self.rows} rows, {self.variables} variables ({int(self.integral.sum())} "
            f"integral), {len(self.coefficients)} non-zeros>"
        )


def needs_integers(*lists: Iterable[int | float]) -> bool:
    """Whether integers beyond doubles need Python's; ModelError: fractions as well, which no form represents."""
    is_large = has_fraction = False
    for numbers in lists:
        for number in numbers:
            if isinstance(number, int | np.integer):
                is_large |= not -EXACT_LIMIT < number < EXACT_LIMIT
            else:
                has_fraction |= math.isfinite(number) and not float(number).is_integer()
    if is_large and has_fraction:
        raise ModelError("integers of 2^53 and beyond beside fractions: no form of numbers holds both; scale them down")
    return is_large


def as_numbers(values: Sequence[int | float], exactly: bool) -> Numbers:
    """An array of float64, or of Python integers (``exactly``) with infinities as floats."""
    if not exactly:
        return np.array(values, dtype=np.float64)
    made = np.empty(len(values), dtype=object)
    made[:] = [n if isinstance(n, float) and not math.isfinite(n) else int(n) for n in values]
    return made


def _are_finite(numbers: Numbers) -> bool:
    if numbers.dtype.kind == "f":
        return bool(np.isfinite(numbers).all())
    return all(isinstance(n, int) for n in numbers)


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
    is_whole = all(float(c).is_integer() for c in [*costs, system.constant] if isinstance(c, float))
    total = Fraction(int(system.constant)) if is_whole else Fraction(repr(float(system.constant)))
    functions = []
    for v in [v for v, cost in enumerate(costs) if cost]:
        exact = Fraction(int(costs[v])) if is_whole else Fraction(repr(costs[v]))  # of the decimal: 3 * 0.1 is 0.3
        total += exact * origins[v]
        top, bottom = exact.as_integer_ratio()
        largest = abs(top) * (sizes[v] if is_whole else sizes[v] + abs(origins[v]))
        if largest > (INT64.max if is_whole else 2**1000 * bottom):
            raise UnsupportedError(
                f"{system.name}: the objective's coefficient of {system.names[v]} leaves 64 bits; scale it down"
            )
        values = top * np.arange(sizes[v]) if is_whole else np.array([top * k / bottom for k in range(sizes[v])])
        functions.append(Function((v,), np.arange(sizes[v])[:, None], values))
    return int(total) if is_whole else float(total), tuple(functions)
