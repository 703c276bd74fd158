"""The vocabulary of a problem: variables, functions over scopes, hard constraints, linear constraints, a constant.

Variables are referred to by their index in ``Problem.variables``; values by their index in the variable's domain
(0 .. size-1). Labels, where a file has them, are for people. A problem is immutable: whatever changes one
(evidence, a new constraint) returns another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.model.model_checks import (
    INT64,
    Values,
    as_coefficients,
    as_default,
    as_integer,
    as_number,
    as_scope,
    as_tuples,
    as_values,
    check_all_tuples,
    check_scope,
)
from oocbe.model.selected_rows import SelectedRows
from oocbe.model.semiring import MIN_SUM, Combination, Semiring
from oocbe.system.deadline import look


@dataclass(frozen=True)
class Variable:
    """A discrete variable.

    Attributes
    ----------
    name : unique within a problem.
    size : number of values, at least 1.
    labels : what each value is called in the file it came from, or None for 0 .. size-1.
    """

    name: str
    size: int
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_integer(f"variable {self.name}: the size of a domain", self.size))
        if self.size < 1:
            raise ModelError(f"variable {self.name}: a domain needs at least one value, not {self.size}")
        if self.labels is not None and len(self.labels) != self.size:
            raise ModelError(f"variable {self.name}: {len(self.labels)} labels for {self.size} values")

    def label(self, value: int) -> str:
        """What value number ``value`` is called."""
        return str(value) if self.labels is None else self.labels[value]


@dataclass(frozen=True, eq=False)
class Function:
    """A cost (or utility, or factor) over a scope.

    Attributes
    ----------
    scope : variable indices, without repetition; empty for a constant.
    tuples : int64 (rows, arity), listed assignments in scope order, without repetition.
    values : int64 or float64 (rows,), value of each listed assignment; always finite.
    default : value of every unlisted assignment, or None where unlisted assignments are infeasible
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
        """Make a function from a dense array with one axis a variable of the scope, in scope order.

        Entries equal to ``infeasible`` (and infinite ones) get no row; the function is then incomplete. NaN is refused,
        unless it is what ``infeasible`` says.
        """
        dense = as_values(f"function over {tuple(scope)}: values", array)
        keep = ~np.isinf(dense)
        if infeasible is not None:
            keep &= ~np.isnan(dense) if infeasible != infeasible else dense != infeasible
        tuples = np.argwhere(keep) if dense.ndim else np.zeros((int(keep), 0), dtype=np.int64)
        return cls(tuple(scope), tuples, dense[keep].ravel(), None)

    @property
    def is_integral(self) -> bool:
        """True where all values, the default too, are integers."""
        return self.values.dtype.kind == "i" and not isinstance(self.default, float)

    def value_at(self, assignment: Sequence[int]) -> int | float | None:
        """Value under an assignment of all the problem's variables; None where it is infeasible."""
        row = np.fromiter((assignment[v] for v in self.scope), dtype=np.int64, count=len(self.scope))
        hits = np.flatnonzero((self.tuples == row).all(axis=1))
        if len(hits) == 0:
            return self.default
        found: int | float = self.values[hits[0]].item()
        return found

    def to_array(self, sizes: Sequence[int]) -> tuple[Values, NDArray[np.bool_]]:
        """Dense form: values and feasibility, each with one axis a scope variable (sizes: of all variables)."""
        look()
        shape = tuple(sizes[v] for v in self.scope)
        fill = self.default or 0
        dense: Values
        dense = np.full(shape, fill, dtype=np.int64) if self.is_integral else np.full(shape, fill, dtype=np.float64)
        feasible = np.full(shape, self.default is not None, dtype=bool)
        if len(self.values):
            index = tuple(self.tuples.T)
            dense[index] = self.values if self.scope else self.values[0]
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
        """Dense form: True where permitted, one axis a scope variable (sizes: of all variables)."""
        look()
        permitted = np.full(tuple(sizes[v] for v in self.scope), not self.allowed, dtype=bool)
        permitted[tuple(self.tuples.T)] = self.allowed if len(self.scope) else bool(len(self.tuples)) == self.allowed
        return permitted


@dataclass(frozen=True, eq=False)
class LinearConstraint:
    """Sum over the scope of ``coefficients[i][value of scope[i]]`` is at most ``capacity``; exact integers.

    Attributes
    ----------
    scope : variable indices, without repetition.
    coefficients : one int64 array (domain size,) a scope variable.
    capacity : the right-hand side.
    name : what the constraint is called in messages, such as "recorder capacity".
    """

    scope: tuple[int, ...]
    coefficients: tuple[NDArray[np.int64], ...]
    capacity: int
    name: str = "linear constraint"

    def __post_init__(self) -> None:
        if len(self.scope) != len(self.coefficients):
            raise ModelError(f"{self.name}: {len(self.scope)} variables, {len(self.coefficients)} coefficient lists")
        object.__setattr__(self, "scope", as_scope(self.scope))
        coefficients = tuple(as_coefficients(f"{self.name}: coefficients", c) for c in self.coefficients)
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "capacity", as_integer(f"{self.name}: the capacity", self.capacity))

    def consumption(self, assignment: Sequence[int]) -> int:
        """Left-hand side under an assignment of all the problem's variables."""
        return sum(int(c[assignment[v]]) for v, c in zip(self.scope, self.coefficients, strict=True))

    def permits(self, assignment: Sequence[int]) -> bool:
        """Whether an assignment of all the problem's variables satisfies the constraint."""
        return self.consumption(assignment) <= self.capacity

    @property
    def can_bind(self) -> bool:
        """False where even the largest left-hand side satisfies the constraint."""
        return sum(int(c.max()) for c in self.coefficients) > self.capacity

    def to_array(self) -> NDArray[np.bool_]:
        """Dense form: True where permitted, one axis a scope variable; exact, even where sums leave 64 bits."""
        bound = sum(max(-int(c.min()), int(c.max())) for c in self.coefficients)
        dtype = np.dtype(np.int64 if bound <= INT64.max else object)
        total: NDArray[Any] = np.zeros((), dtype=dtype)
        for coefficients in self.coefficients:
            total = np.add.outer(total, coefficients.astype(dtype, copy=False))
        return np.asarray(total <= self.capacity, dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class Problem:
    """Variables, functions, constraints and a constant, to be combined and marginalised in a semiring.

    Attributes
    ----------
    variables : the variables; their index is how everything else refers to them.
    functions : soft functions, complete or incomplete.
    constraints : hard constraints in extension.
    linear_constraints : hard constraints as linear inequalities.
    constant : combined with the result; None becomes the semiring's neutral element, which changes nothing.
    semiring : what the file's values mean by themselves (costs: min-sum; probabilities: max-product).
    upper_bound : for min-sum, only assignments with a value strictly below count (None: all); toulbar2's "top".
    name : for messages and reports.
    """

    variables: tuple[Variable, ...]
    functions: tuple[Function, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    linear_constraints: tuple[LinearConstraint, ...] = ()
    constant: int | float = None  # type: ignore[assignment]  # always a number once constructed
    semiring: Semiring = MIN_SUM
    upper_bound: int | float | None = None
    name: str = field(default="problem")

    def __post_init__(self) -> None:
        given: object = self.constant
        constant = self.semiring.one if given is None else as_number(f"{self.name}: the constant", given)
        object.__setattr__(self, "constant", constant)
        if self.upper_bound is not None:
            object.__setattr__(self, "upper_bound", as_number(f"{self.name}: the upper bound", self.upper_bound))
        names = {v.name for v in self.variables}
        if len(names) != len(self.variables):
            raise ModelError(f"{self.name}: variable names must be unique")
        sizes = self.sizes
        parts: list[tuple[str, Function | Constraint]] = []
        parts += [(f"function {number}", f) for number, f in enumerate(self.functions)]
        parts += [(f"constraint {number}", c) for number, c in enumerate(self.constraints)]
        for what, part in parts:
            check_scope(f"{self.name}: {what}", part.scope, len(sizes))
        check_all_tuples(self.name, parts, sizes)
        for linear in self.linear_constraints:
            where = f"{self.name}: {linear.name}"
            check_scope(where, linear.scope, len(sizes))
            for v, c in zip(linear.scope, linear.coefficients, strict=True):
                if c.shape != (sizes[v],):
                    raise ModelError(f"{where}: variable {v} has {sizes[v]} values and {len(c)} coefficients")

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Domain size of each variable."""
        return tuple(v.size for v in self.variables)

    @property
    def sense(self) -> str:
        """What an optimum means here: ``min``, ``max``, or ``sum`` where nothing is optimised."""
        return self.semiring.marginalisation.name.lower() if self.semiring.selects else "sum"

    @property
    def is_integral(self) -> bool:
        """True where every value and the constant are integers."""
        return isinstance(self.constant, int) and all(f.is_integral for f in self.functions)

    def evaluate(self, assignment: Sequence[int]) -> int | float | None:
        """Combined value of a full assignment (value indices); None where it violates something.

        Written without any of the engine's parts, so that it can judge what the engine returns.
        """
        if len(assignment) != len(self.variables):
            raise ModelError(f"{self.name}: {len(assignment)} values for {len(self.variables)} variables")
        for v, value in zip(self.variables, assignment, strict=True):
            if not 0 <= value < v.size:
                raise ModelError(f"{self.name}: variable {v.name} has values 0 to {v.size - 1}, not {value}")
        values = np.array(assignment, dtype=np.int64)
        in_constraints, in_functions = self._selected
        if any(
            (row >= 0) != c.allowed for row, c in zip(in_constraints.of(values).tolist(), self.constraints, strict=True)
        ):
            return None
        if not all(c.permits(assignment) for c in self.linear_constraints):
            return None
        total: int | float = self.constant
        for row, f in zip(in_functions.of(values).tolist(), self.functions, strict=True):
            value_here = f.default if row < 0 else f.values[row].item()
            if value_here is None:
                return None
            total = total + value_here if self.semiring.combination is Combination.ADD else total * value_here
        if self.upper_bound is not None and total >= self.upper_bound:
            return None
        return total

    @cached_property
    def _selected(self) -> tuple[SelectedRows, SelectedRows]:
        return SelectedRows(self.constraints), SelectedRows(self.functions)

    def below(self, upper_bound: int | float | None) -> Problem:
        """The same problem in which only assignments with a value strictly below a bound count; None: all.

        Its parts were checked when this one was made; searches ask for this again and again.
        """
        number = None if upper_bound is None else as_number(f"{self.name}: the upper bound", upper_bound)
        made = copy.copy(self)
        object.__setattr__(made, "upper_bound", number)
        return made

    def with_evidence(self, evidence: Mapping[int, int]) -> Problem:
        """The same problem with some variables (index) fixed to values (index), as unary hard constraints."""
        for v, value in evidence.items():
            if not 0 <= v < len(self.variables):
                raise ModelError(f"{self.name}: evidence on variable {v}, which does not exist")
            if not 0 <= value < self.variables[v].size:
                size = self.variables[v].size
                raise ModelError(f"{self.name}: evidence {self.variables[v].name}={value} is outside 0..{size - 1}")
        fixed = tuple(Constraint((v,), np.array([[value]]), allowed=True) for v, value in evidence.items())
        return replace(self, constraints=self.constraints + fixed)

    def in_semiring(self, semiring: Semiring) -> Problem:
        """The same parts read in another semiring: a constant that is neutral here is neutral there, too."""
        if semiring == self.semiring:
            return self
        constant = semiring.one if self.constant == self.semiring.one else self.constant
        return replace(self, semiring=semiring, constant=constant)

    def __repr__(self) -> str:
        parts = [
            f"{len(self.variables)} variables (domains up to {max(self.sizes, default=0)})",
            f"{len(self.functions)} functions",
            f"{len(self.constraints)} constraints",
        ]
        if self.linear_constraints:
            parts.append(f"{len(self.linear_constraints)} linear constraints")
        return f"<Problem {self.name}: {', '.join(parts)}, {self.semiring}>"
