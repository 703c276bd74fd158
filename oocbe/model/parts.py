"""Parts of a problem: variables with their labels, functions, constraints and linear constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.model.model_checks import (
    INT64,
    Values,
    as_default,
    as_integer,
    as_integers,
    as_scope,
    as_tuple,
    as_tuples,
    as_values,
)
from oocbe.runtime.deadline import check_deadline


@dataclass(frozen=True)
class Variable:
    """A discrete variable.

    Attributes
    ----------
    name : unique within a problem.
    size : number of values, at least 1.
    labels : name of each value in the file, or None for 0 .. size-1.
    """

    name: str
    size: int
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ModelError(f"variable {self.name!r}: a name must be text")
        if self.labels is not None and not (isinstance(self.labels, tuple) and {*map(type, self.labels)} <= {str}):
            labels = as_tuple(f"variable {self.name}: labels", self.labels)
            object.__setattr__(self, "labels", tuple(map(str, labels)))
        object.__setattr__(self, "size", as_integer(f"variable {self.name}: the size of a domain", self.size))
        if self.size < 1:
            raise ModelError(f"variable {self.name}: a domain needs at least one value, not {self.size}")
        if self.labels is not None and len(self.labels) != self.size:
            raise ModelError(f"variable {self.name}: {len(self.labels)} labels for {self.size} values")

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings logged about the variable (:mod:`oocbe.model.names`)."""
        return []

    @cached_property
    def values_by_label(self) -> tuple[Mapping[str, Sequence[int]], Mapping[Decimal, Sequence[int]]]:
        """Values by label, and by numeric label; a label of several values maps to all of them."""
        by_text: dict[str, list[int]] = {}
        by_number: dict[Decimal, list[int]] = {}
        for value, label in enumerate(self.labels or map(str, range(self.size))):
            by_text.setdefault(label, []).append(value)
            if (number := number_of(label)) is not None:
                by_number.setdefault(number, []).append(value)
        return by_text, by_number

    def label(self, value: int) -> str:
        """Label of value number ``value``."""
        return str(value) if self.labels is None else self.labels[value]


@dataclass(frozen=True, eq=False)
class Function:
    """A cost (or utility, or factor) over a scope.

    Attributes
    ----------
    scope : variable indices, without repetition; empty for a constant.
    tuples : int64 (rows, arity), listed assignments in scope order, without repetition.
    values : int64 or float64 (rows,), value of each listed assignment; always finite.
    default : value of every unlisted assignment, or None if unlisted assignments are infeasible
        (an *incomplete* function).
    """

    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    values: Values
    default: int | float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", as_scope(self.scope))
        object.__setattr__(self, "tuples", as_tuples(self.scope, self.tuples))
        where = f"function over {self.scope}"
        values = as_values(f"{where}: values", self.values)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ModelError(f"{where}: values must be finite; leave infeasible rows out")
        if values.shape != (len(self.tuples),):
            raise ModelError(f"{where}: {len(self.tuples)} tuples, values of shape {values.shape}")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "default", as_default(f"{where}: the default", self.default))

    @classmethod
    def from_array(cls, scope: Sequence[int], array: ArrayLike, infeasible: float | None = None) -> Function:
        """Make a function from a dense array with one axis per variable of the scope, in scope order.

        Entries equal to ``infeasible``, rounded to the array's type, (and infinite ones) get no row; the function is
        then incomplete. NaN is refused, unless ``infeasible`` is NaN.
        """
        dense = as_values(f"function over {scope}: values", array)
        given: object = infeasible
        if not isinstance(given, Real | None):
            raise ModelError(f"function over {scope}: infeasible must be a number, not {infeasible!r:.100}")
        keep = ~np.isinf(dense)
        if infeasible is not None:
            dtype = np.asarray(array).dtype
            if dtype.kind == "f":
                number, infeasible = infeasible, math.inf  # no entry equals an integer beyond floats
                with np.errstate(over="ignore"), suppress(OverflowError):
                    infeasible = float(dtype.type(number))  # rounded as the entries are
            keep &= ~np.isnan(dense) if infeasible != infeasible else dense != infeasible
        tuples = np.argwhere(keep) if dense.ndim else np.zeros((int(keep), 0), dtype=np.int64)
        return cls(scope, tuples, dense[keep].ravel(), None)  # type: ignore[arg-type]  # made a tuple there

    @property
    def is_integral(self) -> bool:
        """Whether all values, including the default, are integers."""
        return self.values.dtype.kind == "i" and not isinstance(self.default, float)

    def value_at(self, assignment: Sequence[int]) -> int | float | None:
        """Value under an assignment of all the problem's variables; None if it is infeasible."""
        row = np.fromiter((assignment[v] for v in self.scope), dtype=np.int64, count=len(self.scope))
        hits = np.flatnonzero((self.tuples == row).all(axis=1))
        if len(hits) == 0:
            return self.default
        found: int | float = self.values[hits[0]].item()
        return found

    def to_array(self, sizes: Sequence[int]) -> tuple[Values, NDArray[np.bool_]]:
        """Dense form: values and feasibility, each with one axis per scope variable.

        sizes : of all variables. Tuples are distinct, as :class:`~oocbe.model.problem.Problem` checks.
        """
        check_deadline()
        shape = tuple([sizes[v] for v in self.scope])
        is_complete = len(self.values) == math.prod(shape)
        dtype: Any = np.int64 if self.is_integral else np.float64
        dense: Values = np.full(shape, self.default or 0, dtype=dtype)
        feasible = np.full(shape, is_complete or self.default is not None, dtype=bool)
        if len(self.values):
            index = tuple(self.tuples.T)
            dense[index] = self.values if self.scope else self.values[0]
            if not is_complete:
                feasible[index] = True
        return dense, feasible


@dataclass(frozen=True, eq=False)
class Constraint:
    """A hard constraint: listed tuples are forbidden (or, with ``allowed``, the only ones permitted).

    Attributes
    ----------
    scope : variable indices, without repetition.
    tuples : int64 (rows, arity), in scope order, without repetition.
    allowed : meaning of the list: False, listed tuples are forbidden; True, all others are.
    """

    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    allowed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", as_scope(self.scope))
        object.__setattr__(self, "tuples", as_tuples(self.scope, self.tuples))

    def permits(self, assignment: Sequence[int]) -> bool:
        """Whether an assignment of all the problem's variables satisfies the constraint."""
        row = np.fromiter((assignment[v] for v in self.scope), dtype=np.int64, count=len(self.scope))
        return bool((self.tuples == row).all(axis=1).any()) == self.allowed

    def to_array(self, sizes: Sequence[int]) -> NDArray[np.bool_]:
        """Dense form: True for permitted tuples, one axis per scope variable (sizes: of all variables)."""
        check_deadline()
        permitted = np.full(tuple(sizes[v] for v in self.scope), not self.allowed, dtype=bool)
        permitted[tuple(self.tuples.T)] = self.allowed if len(self.scope) else bool(len(self.tuples)) == self.allowed
        return permitted


@dataclass(frozen=True, eq=False)
class LinearConstraint:
    """Sum over the scope of ``coefficients[i][value of scope[i]]`` is at most ``capacity``; exact integers.

    Attributes
    ----------
    scope : variable indices, without repetition.
    coefficients : one int64 array (domain size,) per scope variable.
    capacity : the right-hand side.
    name : of the constraint in messages, such as "recorder capacity".
    taken : capacity used by removed variables, for messages.
    """

    scope: tuple[int, ...]
    coefficients: tuple[NDArray[np.int64], ...]
    capacity: int
    name: str = "linear constraint"
    taken: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", as_scope(self.scope))
        lists = as_tuple(f"{self.name}: coefficients", self.coefficients)
        if len(self.scope) != len(lists):
            raise ModelError(f"{self.name}: {len(self.scope)} variables, {len(lists)} coefficient lists")
        what = f"{self.name}: coefficients"
        coefficients = tuple(as_integers(what, as_values(what, c)) for c in lists)  # names integers beyond int64, too
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "capacity", as_integer(f"{self.name}: the capacity", self.capacity))

    def consumption(self, assignment: Sequence[int]) -> int:
        """Left-hand side under an assignment of all the problem's variables."""
        return sum(int(c[assignment[v]]) for v, c in zip(self.scope, self.coefficients, strict=True))

    def usage(self, assignment: Sequence[int]) -> str:
        """Usage of an assignment, for messages, including that of removed variables."""
        return f"{self.consumption(assignment) + self.taken} of {self.capacity + self.taken}"

    def permits(self, assignment: Sequence[int]) -> bool:
        """Whether an assignment of all the problem's variables satisfies the constraint."""
        return self.consumption(assignment) <= self.capacity

    def without(self, values: Mapping[int, int]) -> LinearConstraint:
        """The constraint on the others of its variables, given the value indices of some, by variable index."""
        pairs = list(zip(self.scope, self.coefficients, strict=True))
        used = sum(int(own[values[v]]) for v, own in pairs if v in values)
        left = [pair for pair in pairs if pair[0] not in values]
        scope, coefficients = tuple(v for v, _ in left), tuple(own for _, own in left)
        return LinearConstraint(scope, coefficients, self.capacity - used, self.name, self.taken + used)

    @cached_property
    def ends(self) -> tuple[list[int], list[int]]:
        """The least and greatest coefficient of each scope variable."""
        if not self.coefficients:
            return [], []
        flat = np.concatenate(self.coefficients)  # two NumPy calls for all variables: scopes of hundreds are common
        starts = np.cumsum([0, *map(len, self.coefficients[:-1])], dtype=np.int64)
        return np.minimum.reduceat(flat, starts).tolist(), np.maximum.reduceat(flat, starts).tolist()

    @cached_property
    def least(self) -> int:
        """The least left-hand side of any assignment."""
        return sum(self.ends[0])

    @cached_property
    def greatest(self) -> int:
        """The greatest left-hand side of any assignment."""
        return sum(self.ends[1])

    @property
    def can_bind(self) -> bool:
        """False if even the greatest left-hand side satisfies the constraint."""
        return self.greatest > self.capacity

    @property
    def is_impossible(self) -> bool:
        """Whether even the least left-hand side exceeds the capacity."""
        return self.least > self.capacity

    def to_array(self, sizes: Sequence[int] = ()) -> NDArray[np.bool_]:
        """Dense form: True for permitted tuples, one axis per scope variable; exact, even for sums beyond 64 bits.

        sizes : not needed; other parts have this parameter.
        """
        bound = sum(max(-low, high) for low, high in zip(*self.ends, strict=True))
        dtype = np.dtype(np.int64 if bound <= INT64.max else object)
        total: NDArray[Any] = np.zeros((), dtype=dtype)
        for coefficients in self.coefficients:
            total = np.add.outer(total, coefficients.astype(dtype, copy=False))
        return np.asarray(total <= self.capacity, dtype=np.bool_)


NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")

MOST_CHARACTERS = 64
"""Longest label interpreted as a number, in characters."""


def number_of(label: str) -> Decimal | None:
    """The exact number of a label; None if it is not a number."""
    return Decimal(label) if len(label) <= MOST_CHARACTERS and NUMBER.fullmatch(label) else None
