"""The vocabulary of a problem: variables, functions over scopes, hard constraints, linear constraints, a constant.

Variables are referred to by their index in ``Problem.variables``; values by their index in the variable's domain
(0 .. size-1). Labels, where a file has them, are for people. A problem is immutable: whatever changes one
(evidence, a new constraint) returns another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.semiring import MIN_SUM, Combination, Semiring

Values = NDArray[np.int64] | NDArray[np.float64]


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
        if self.size < 1:
            raise ModelError(f"variable {self.name}: a domain needs at least one value, not {self.size}")
        if self.labels is not None and len(self.labels) != self.size:
            raise ModelError(f"variable {self.name}: {len(self.labels)} labels for {self.size} values")

    def label(self, value: int) -> str:
        """What value number ``value`` is called."""
        return str(value) if self.labels is None else self.labels[value]


def _as_tuples(scope: tuple[int, ...], tuples: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(tuples, dtype=np.int64)
    if array.size == 0 and array.ndim != 2:
        array = array.reshape(0, len(scope))
    if array.ndim != 2 or array.shape[1] != len(scope):
        raise ModelError(f"scope {scope} has {len(scope)} variables, its tuples have shape {array.shape}")
    return np.ascontiguousarray(array)


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
        object.__setattr__(self, "tuples", _as_tuples(self.scope, self.tuples))
        values = np.asarray(self.values)
        if values.dtype.kind in "iub":
            values = values.astype(np.int64, copy=False)
        elif values.dtype.kind == "f":
            values = values.astype(np.float64, copy=False)
            if not np.isfinite(values).all():
                raise ModelError(f"function over {self.scope}: values must be finite; leave infeasible rows out")
        else:
            raise ModelError(f"function over {self.scope}: values must be numbers, not {values.dtype}")
        if values.shape != (len(self.tuples),):
            raise ModelError(f"function over {self.scope}: {len(self.tuples)} tuples, values of shape {values.shape}")
        object.__setattr__(self, "values", values)

    @classmethod
    def from_array(cls, scope: Sequence[int], array: ArrayLike, infeasible: float | None = None) -> Function:
        """Make a function from a dense array with one axis a variable of the scope, in scope order.

        Entries equal to ``infeasible`` (and infinite ones) get no row; the function is then incomplete.
        """
        dense = np.asarray(array)
        keep = np.isfinite(dense) if dense.dtype.kind == "f" else np.ones(dense.shape, dtype=bool)
        if infeasible is not None:
            keep &= dense != infeasible
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
        shape = tuple(sizes[v] for v in self.scope)
        fill = self.default or 0
        dense: Values
        dense = np.full(shape, fill, dtype=np.int64) if self.is_integral else np.full(shape, fill, dtype=np.float64)
        feasible = np.full(shape, self.default is not None, dtype=bool)
        index = tuple(self.tuples.T)
        dense[index] = self.values if len(self.scope) else self.values[-1:].sum()
        feasible[index] = True if len(self.scope) else bool(len(self.values)) or self.default is not None
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
        object.__setattr__(self, "tuples", _as_tuples(self.scope, self.tuples))

    def permits(self, assignment: Sequence[int]) -> bool:
        """Whether an assignment of all the problem's variables satisfies the constraint."""
        row = np.fromiter((assignment[v] for v in self.scope), dtype=np.int64, count=len(self.scope))
        return bool((self.tuples == row).all(axis=1).any()) == self.allowed

    def to_array(self, sizes: Sequence[int]) -> NDArray[np.bool_]:
        """Dense form: True where permitted, one axis a scope variable (sizes: of all variables)."""
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


@dataclass(frozen=True, eq=False)
class Problem:
    """Variables, functions, constraints and a constant, to be combined and marginalised in a semiring.

    Attributes
    ----------
    variables : the variables; their index is how everything else refers to them.
    functions : soft functions, complete or incomplete.
    constraints : hard constraints in extension.
    linear_constraints : hard constraints as linear inequalities.
    constant : combined with the result.
    semiring : what the file's values mean by themselves (costs: min-sum; probabilities: max-product).
    upper_bound : for min-sum, only assignments with a value strictly below count (None: all); toulbar2's "top".
    name : for messages and reports.
    """

    variables: tuple[Variable, ...]
    functions: tuple[Function, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    linear_constraints: tuple[LinearConstraint, ...] = ()
    constant: int | float = 0
    semiring: Semiring = MIN_SUM
    upper_bound: int | float | None = None
    name: str = field(default="problem")

    def __post_init__(self) -> None:
        names = {v.name for v in self.variables}
        if len(names) != len(self.variables):
            raise ModelError(f"{self.name}: variable names must be unique")
        sizes = self.sizes
        parts: list[tuple[str, Function | Constraint]] = []
        parts += [(f"function {number}", f) for number, f in enumerate(self.functions)]
        parts += [(f"constraint {number}", c) for number, c in enumerate(self.constraints)]
        for what, part in parts:
            self._check_scope(f"{self.name}: {what}", part.scope)
        _check_all_tuples(self.name, parts, sizes)
        for linear in self.linear_constraints:
            where = f"{self.name}: {linear.name}"
            self._check_scope(where, linear.scope)
            for v, c in zip(linear.scope, linear.coefficients, strict=True):
                if c.shape != (sizes[v],):
                    raise ModelError(f"{where}: variable {v} has {sizes[v]} values and {len(c)} coefficients")
        if not math.isfinite(self.constant):
            raise ModelError(f"{self.name}: the constant must be finite, not {self.constant}")

    def _check_scope(self, where: str, scope: tuple[int, ...]) -> None:
        if len(set(scope)) != len(scope):
            raise ModelError(f"{where}: a variable occurs twice in scope {scope}")
        if scope and not (min(scope) >= 0 and max(scope) < len(self.variables)):
            v = next(v for v in scope if not 0 <= v < len(self.variables))
            raise ModelError(f"{where}: variable {v} of scope {scope} does not exist")

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
        if not all(c.permits(assignment) for c in self.constraints):
            return None
        if not all(c.permits(assignment) for c in self.linear_constraints):
            return None
        total: int | float = self.constant
        for f in self.functions:
            value_here = f.value_at(assignment)
            if value_here is None:
                return None
            total = total + value_here if self.semiring.combination is Combination.ADD else total * value_here
        if self.upper_bound is not None and total >= self.upper_bound:
            return None
        return total

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

    def __repr__(self) -> str:
        parts = [
            f"{len(self.variables)} variables (domains up to {max(self.sizes, default=0)})",
            f"{len(self.functions)} functions",
            f"{len(self.constraints)} constraints",
        ]
        if self.linear_constraints:
            parts.append(f"{len(self.linear_constraints)} linear constraints")
        return f"<Problem {self.name}: {', '.join(parts)}, {self.semiring}>"


# Parts with fewer rows are checked together: a SPOT5 problem has thousands of constraints of one to three rows, and a
# few NumPy calls for each would take longer than reading the file. Larger ones are not worth a copy of their rows.
_FEW_ROWS = 1024


def _check_all_tuples(name: str, parts: list[tuple[str, Function | Constraint]], sizes: tuple[int, ...]) -> None:
    small: dict[int, list[tuple[str, Function | Constraint]]] = {}
    for what, part in parts:
        arity = len(part.scope)
        if arity and len(part.tuples) < _FEW_ROWS:
            small.setdefault(arity, []).append((what, part))
        else:
            _check_tuples(f"{name}: {what}", part.tuples, np.array([sizes[v] for v in part.scope], dtype=np.int64))
    for members in small.values():
        if not _are_clean(members, sizes):
            for what, part in members:
                _check_tuples(f"{name}: {what}", part.tuples, np.array([sizes[v] for v in part.scope], dtype=np.int64))


def _are_clean(members: list[tuple[str, Function | Constraint]], sizes: tuple[int, ...]) -> bool:
    """Whether tuples of parts of one arity are certainly distinct, each within its part, and inside their domains."""
    tuples = np.concatenate([part.tuples for _, part in members])
    owners = np.repeat(np.arange(len(members)), [len(part.tuples) for _, part in members])
    limits = np.array([[sizes[v] for v in part.scope] for _, part in members], dtype=np.int64)
    widest = limits.max(axis=0)
    if math.prod(widest.tolist()) * len(members) >= 2**62:
        return False
    codes = owners
    for column in range(tuples.shape[1]):
        values = tuples[:, column]
        if (values < 0).any() or (values >= limits[owners, column]).any():
            return False
        codes = codes * widest[column] + values
    codes = np.sort(codes)
    return not (codes[1:] == codes[:-1]).any()


def _check_tuples(where: str, tuples: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    if tuples.size == 0:
        return
    low, high = tuples.min(axis=0), tuples.max(axis=0)
    if (low < 0).any() or (high >= sizes).any():
        bad = int(np.flatnonzero((low < 0) | (high >= sizes))[0])
        raise ModelError(f"{where}: a value of scope position {bad} is outside its domain of size {sizes[bad]}")
    if math.prod(int(s) for s in sizes) < 2**62:
        codes = np.ravel_multi_index(tuple(tuples.T), tuple(sizes))
        distinct = len(np.unique(codes))
    else:
        distinct = len(np.unique(tuples, axis=0))
    if distinct != len(tuples):
        raise ModelError(f"{where}: {len(tuples) - distinct} tuples occur twice")
