"""A system of linear constraints over variables with bounds: sparse, with integers, reals or both.

A :class:`~oocbe.model.problem.Problem` lists the consumption of every value of a variable, which suits small domains. A
mixed-integer program has unbounded and real variables, and hundreds of thousands of non-zeros: here a row is a list of
coefficients, in compressed sparse rows, and a variable an interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.model.count_question import CountQuestion, FileNotes
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
