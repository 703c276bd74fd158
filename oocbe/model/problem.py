"""Definition of problems: variables, functions over scopes, hard constraints, linear constraints, a constant.

Variables are identified by their index in ``Problem.variables``, values by their index in the variable's domain
(0 .. size-1). Labels, if the file has them, are for display. A problem is immutable: changes (evidence, a new
constraint) return a new one.

The rows that an assignment selects are found for all parts at once (:class:`SelectedRows`). A SPOT5 problem has
thousands of constraints of one to three rows. A few NumPy calls for each would take longer than reading the file, and
searches evaluate assignments often; therefore rows of small parts of one arity are concatenated.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.model.count_question import CountQuestion, FileNotes
from oocbe.model.model_checks import FEW_ROWS, as_integers, as_number, as_tuple, check_all_tuples, check_scope
from oocbe.model.names import assignment_of, indices_of, items_of
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.semiring import MIN_SUM, Combination, Semiring, semiring_of
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.model.photographs import ImagingDay
    from oocbe.runtime.pictures.plots import Picture


@dataclass(frozen=True, eq=False)
class Problem(Shown, FileNotes):
    """Variables, functions, constraints and a constant, to be combined and marginalised in a semiring.

    Attributes
    ----------
    variables : the variables; all other parts refer to their indices.
    functions : soft functions, dense or sparse.
    constraints : hard constraints in extension.
    linear_constraints : hard constraints as linear inequalities.
    constant : combined with the result; None: the semiring's neutral element.
    semiring : meaning of the file's values (costs: min-sum; probabilities: max-product).
    upper_bound : only assignments whose sum of costs is strictly below it are feasible (None: all); toulbar2's "top".
        In min-sum that is the value of :meth:`evaluate`; floats are added up in the order of the functions.
    name : for messages and reports.
    lower_bound : for max-sum, only assignments with a value strictly above count (None: all).
    day : photographs of the variables, if the problem is a day of an imaging satellite; otherwise None.
    notes, question, counting : see :class:`~oocbe.model.count_question.FileNotes`.
    """

    variables: tuple[Variable, ...]
    functions: tuple[Function, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    linear_constraints: tuple[LinearConstraint, ...] = ()
    constant: int | float = None  # type: ignore[assignment]  # always a number once constructed
    semiring: Semiring = MIN_SUM
    upper_bound: int | float | None = None
    name: str = field(default="problem")
    lower_bound: int | float | None = None
    day: ImagingDay | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    question: str = field(default="", repr=False)
    counting: CountQuestion | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "semiring", semiring_of(self.semiring))
        kinds = {"variables": Variable, "functions": Function, "constraints": Constraint}
        for name, kind in {**kinds, "linear_constraints": LinearConstraint}.items():
            object.__setattr__(self, name, as_tuple(f"{self.name}: {name}", getattr(self, name)))
            if wrong := [part for part in getattr(self, name) if not isinstance(part, kind)]:
                raise ModelError(f"{self.name}: {name}: {wrong[0]!r:.100} is no oocbe.{kind.__name__}")
        given: object = self.constant
        constant = self.semiring.one if given is None else as_number(f"{self.name}: the constant", given)
        object.__setattr__(self, "constant", constant)
        for side in ("upper", "lower"):
            bound = getattr(self, f"{side}_bound")
            if bound is not None:
                object.__setattr__(self, f"{side}_bound", as_number(f"{self.name}: the {side} bound", bound))
        names = {v.name for v in self.variables}
        if len(names) != len(self.variables):
            twice = next(name for name, count in Counter(v.name for v in self.variables).items() if count > 1)
            raise ModelError(f"{self.name}: variable names must be unique, and two are called {twice!r}")
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

    @cached_property
    def number_by_name(self) -> Mapping[str, int]:
        """Index of each variable by its name."""
        return {v.name: number for number, v in enumerate(self.variables)}

    @property
    def hard_parts(self) -> tuple[Constraint | LinearConstraint, ...]:
        """Constraints of both kinds."""
        return (*self.constraints, *self.linear_constraints)

    @property
    def sense(self) -> str:
        """The sense of optimisation: ``min``, ``max``, or ``sum`` if nothing is optimised."""
        return self.semiring.marginalisation.name.lower() if self.semiring.selects else "sum"

    @property
    def is_integral(self) -> bool:
        """Whether every value and the constant are integers."""
        return isinstance(self.constant, int) and self._has_integral_functions

    @cached_property
    def _has_integral_functions(self) -> bool:
        return all(f.is_integral for f in self.functions)

    @cached_property
    def extremes(self) -> Extremes:
        """The least and greatest value of each function."""
        return extremes_of(self.functions, self._has_integral_functions)

    @cached_property
    def least_values(self) -> NDArray[Any]:
        """The least value of each function over all assignments, as in :attr:`extremes`.

        Infinite, and all float64, if a function permits no assignment.
        """
        known = self.extremes
        leaves_any = known.has_default
        if leaves_any.any():
            leaves_any = leaves_any & ~lists_all(self.functions, self.sizes)
        least = np.where(leaves_any, known.least, known.lows)
        permits_nothing = (known.rows == 0) & ~known.has_default
        return np.where(permits_nothing, np.inf, least) if permits_nothing.any() else least

    @cached_property
    def value_grid(self) -> ValueGrid:
        """The coarsest grid with all sums of the problem's integer costs; no grid for floating-point costs."""
        if not self.is_integral:
            return ValueGrid(0, 0)
        known = self.extremes
        first = np.where(known.rows > 0, known.lows, known.defaults)
        return ValueGrid(step_of(self.functions, known) or 1, sum(first.tolist(), int(self.constant)))

    @cached_property
    def magnitude(self) -> int | float:
        """Sum of the largest absolute values of all functions, defaults included, and of the constant.

        An exact integer if all of these are integers; infinite if it exceeds float64.
        """
        total = sum(self.extremes.magnitudes())
        return abs(self.constant) + (total if self.is_integral else float(total))

    def evaluate(self, assignment: Sequence[int] | Mapping[str, str | int]) -> int | float | None:
        """Combined value of a full assignment; None if it is infeasible.

        Independent of the engine, in order to verify the engine's results.

        Parameters
        ----------
        assignment : one value index per variable, or values by variable name as for :meth:`with_evidence`, such as
            ``Result.labels``.

        Raises
        ------
        ModelError : a wrong number of indices, or one outside its variable's domain. UsageError : an unknown name or
            value, or a variable without a value.
        """
        if isinstance(assignment, Mapping):
            assignment = assignment_of(self, assignment)
        values = as_integers(f"{self.name}: an assignment's values", assignment)
        if values.shape != (len(self.variables),):
            raise ModelError(f"{self.name}: {values.size} values for {len(self.variables)} variables")
        for v, value in zip(self.variables, values.tolist(), strict=True):
            if not 0 <= value < v.size:
                raise ModelError(f"{self.name}: variable {v.name} has values 0 to {v.size - 1}, not {value}")
        in_constraints, in_functions = self._selected
        if any(
            (row >= 0) != c.allowed for row, c in zip(in_constraints.of(values).tolist(), self.constraints, strict=True)
        ):
            return None
        if not all(c.permits(assignment) for c in self.linear_constraints):
            return None
        total: int | float = self.constant
        bounded = self._constant_of_sums
        for row, f in zip(in_functions.of(values).tolist(), self.functions, strict=True):
            value_here = f.default if row < 0 else f.values[row].item()
            if value_here is None:
                return None
            total = total + value_here if self.semiring.combination is Combination.ADD else total * value_here
            bounded += value_here
        if self.upper_bound is not None and bounded >= self.upper_bound:
            return None
        if self.lower_bound is not None and bounded <= self.lower_bound:
            return None
        return total

    @property
    def _constant_of_sums(self) -> int | float:
        """The constant of the sums that bounds limit, in every semiring; a product's neutral factor adds nothing."""
        is_sum = self.semiring.combination is Combination.ADD
        return 0 if not is_sum and self.constant == self.semiring.one else self.constant

    @cached_property
    def _selected(self) -> tuple[SelectedRows, SelectedRows]:
        return SelectedRows(self.constraints), SelectedRows(self.functions)

    def below(self, upper_bound: int | float | None) -> Problem:
        """The problem restricted to assignments with a value strictly below a bound; None: no bounds, not even a lower
        one.

        Parts are not checked again, because searches call this often.
        """
        number = None if upper_bound is None else as_number(f"{self.name}: the upper bound", upper_bound)
        made = copy.copy(self)
        object.__setattr__(made, "upper_bound", number)
        if number is None:
            object.__setattr__(made, "lower_bound", None)
        return made

    @property
    def reachable_bound(self) -> str:
        """Bound that some sum may reach, by the functions' extremes: ``upper``, ``lower``, or empty for none."""
        for side, bound, sign in (("upper", self.upper_bound, 1), ("lower", self.lower_bound, -1)):
            if bound is None:
                continue
            ends = self.extremes.greatest if sign > 0 else self.extremes.least
            if sign * sum(ends.tolist(), self._constant_of_sums) >= sign * bound:
                return side
        return ""

    def with_evidence(self, evidence: Mapping[int, int] | Mapping[str, str | int]) -> Problem:
        """The problem with some variables fixed to values by unary hard constraints.

        Parameters
        ----------
        evidence : value by variable name; or value index by variable index. A value is the label that equals it, a
            number as well as its text; a whole number that equals no label is a position, and ``"#1"`` always is.

        Raises
        ------
        UsageError : an unknown name or value. ModelError : an invalid index.
        """
        return self.with_values(indices_of(self, evidence))

    def with_values(self, values: Mapping[int, int]) -> Problem:
        """The same for value indices by variable index, which must be valid."""
        fixed = tuple(Constraint((v,), np.array([[value]]), allowed=True) for v, value in items_of(values))
        return replace(self, constraints=self.constraints + fixed)

    @property
    def evidence(self) -> dict[str, str]:
        """Labels of the values fixed by unary constraints, by variable name; see :meth:`with_evidence`."""
        fixed = [c for c in self.constraints if len(c.scope) == 1 and c.allowed and len(c.tuples) == 1]
        own = [(self.variables[c.scope[0]], int(c.tuples[0, 0])) for c in fixed]
        return {variable.name: variable.label(value) for variable, value in own}

    def in_semiring(self, semiring: Semiring | str) -> Problem:
        """The problem's parts in another semiring, given by itself or by name; a neutral constant remains neutral."""
        if (semiring := semiring_of(semiring)) == self.semiring:
            return self
        found = copy.copy(self)  # tables and names are unchanged and need no check
        object.__setattr__(found, "semiring", semiring)
        object.__setattr__(found, "constant", semiring.one if self.constant == self.semiring.one else self.constant)
        return found

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        scopes = self._scopes
        least, most = min(self.sizes, default=0), max(self.sizes, default=0)
        return self.name, [
            ("variables", len(self.variables)),
            ("values of a variable", least if least == most else f"{least} to {most}"),
            ("functions", f"{len(self.functions):,}, {sum(len(f.values) for f in self.functions):,} rows"),
            ("constraints", f"{len(self.constraints):,}, {sum(len(c.tuples) for c in self.constraints):,} rows"),
            ("linear constraints", ", ".join(c.name for c in self.linear_constraints)),
            ("variables of a scope", f"up to {max(map(len, scopes), default=0)}"),
            ("semiring", str(self.semiring)),
        ]

    @property
    def _scopes(self) -> list[tuple[int, ...]]:
        return [*(f.scope for f in self.functions), *(c.scope for c in self.constraints)]

    def plot(self) -> Picture:
        """The primal graph (variables of one function are neighbours), and the sizes of domains.

        Linear constraints, which connect nearly all variables, are omitted. UsageError without matplotlib.
        """
        from oocbe.runtime.pictures.plots import network

        pairs = sorted({pair for scope in set(self._scopes) for pair in combinations(sorted(scope), 2)})
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return network(self.name, [v.name for v in self.variables], self.sizes, edges)

    def __repr__(self) -> str:
        parts = [
            f"{len(self.variables)} variables (domains up to {max(self.sizes, default=0)})",
            f"{len(self.functions)} functions",
            f"{len(self.constraints)} constraints",
        ]
        if self.linear_constraints:
            parts.append(f"{len(self.linear_constraints)} linear constraints")
        return f"<Problem {self.name}: {', '.join(parts)}, {self.semiring}>"


@dataclass(frozen=True)
class _Rows:
    """Concatenated rows of parts of one arity.
    ``scopes`` and ``tuples``, int64 (rows, arity), are the part's scope for each of its rows, and the rows. ``part``
    and ``place``, int64 (rows,), are the index of the row's part, and of the row within the part."""

    scopes: NDArray[np.int64]
    tuples: NDArray[np.int64]
    part: NDArray[np.int64]
    place: NDArray[np.int64]


class SelectedRows:
    """Finds the row of each part selected by an assignment; rows must be unique within each part."""

    def __init__(self, parts: Sequence[Constraint | Function]) -> None:
        self._count = len(parts)
        self._large: list[tuple[int, Constraint | Function]] = []
        small: dict[int, list[tuple[int, Constraint | Function]]] = {}
        for number, part in enumerate(parts):
            if part.scope and len(part.tuples) < FEW_ROWS:
                small.setdefault(len(part.scope), []).append((number, part))
            else:
                self._large.append((number, part))
        self._groups = [_end_to_end(members) for members in small.values()]

    def of(self, assignment: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each part, int64 (parts,), -1 for none, of an assignment, int64 (variables,) value indices."""
        found = np.full(self._count, -1, dtype=np.int64)
        for group in self._groups:
            hits = np.flatnonzero((group.tuples == assignment[group.scopes]).all(axis=1))
            found[group.part[hits]] = group.place[hits]
        for number, part in self._large:
            hits = np.flatnonzero((part.tuples == assignment[list(part.scope)]).all(axis=1))
            if len(hits):
                found[number] = hits[0]
        return found


def _end_to_end(members: Sequence[tuple[int, Constraint | Function]]) -> _Rows:
    lengths = np.array([len(part.tuples) for _, part in members])
    ends = np.cumsum(lengths)
    return _Rows(
        scopes=np.repeat(np.array([part.scope for _, part in members], dtype=np.int64), lengths, axis=0),
        tuples=np.concatenate([part.tuples for _, part in members]),
        part=np.repeat(np.array([number for number, _ in members], dtype=np.int64), lengths),
        place=np.arange(ends[-1]) - np.repeat(ends - lengths, lengths),
    )


LEAST_ROUNDING = 2.0**-36
"""Lower limit of the relative rounding error of sums."""


def relative_rounding(problem: Problem) -> float:
    """Rounding error of a sum of a problem's floats in any order, relative to the sum of magnitudes.

    2**-53 for each addition; there are as many as functions and messages or bound entries; the result is twice that.
    """
    return max(LEAST_ROUNDING, 2.0**-52 * (len(problem.functions) + len(problem.variables)))


@dataclass(frozen=True)
class ValueGrid:
    """The values that assignments of a problem can have: ``offset + step * k`` for integers k; step 0: any number.

    A bound between two values of the grid may be rounded up, so that a row goes as soon as its bound exceeds
    ``largest_below(incumbent)``, often by much less than the incumbent itself.
    """

    step: int
    offset: int

    def round_up(self, bound: int | float) -> int | float:
        """The least value of the grid that is not below a bound."""
        if self.step == 0 or bound == math.inf:
            return bound
        return self.offset - (self.offset - math.ceil(bound)) // self.step * self.step

    def largest_below(self, value: int | float) -> int | float:
        """The largest value of the grid strictly below a value; without a grid, the next float below."""
        if self.step == 0 or value == math.inf:
            return math.nextafter(value, -math.inf)
        return self.offset + (math.ceil(value) - 1 - self.offset) // self.step * self.step


def violations_of(problem: Problem, assignment: Sequence[int]) -> tuple[str, ...]:
    """All constraints violated by an assignment, by their number in the problem, with the values concerned."""

    def stated(scope: Sequence[int]) -> str:
        return ", ".join(f"{problem.variables[v].name}={problem.variables[v].label(assignment[v])}" for v in scope)

    found = [
        f"constraint {number} {'does not list' if c.allowed else 'forbids'} {stated(c.scope)}"
        for number, c in enumerate(problem.constraints)
        if not c.permits(assignment)
    ]
    found += [
        f"{linear.name}: {linear.consumption(assignment)} exceeds the capacity of {linear.capacity}"
        for linear in problem.linear_constraints
        if not linear.permits(assignment)
    ]
    found += [
        f"function {number} has no value for {stated(f.scope)}"
        for number, f in enumerate(problem.functions)
        if f.value_at(assignment) is None
    ]
    if not found and problem.evaluate(assignment) is None:
        value = problem.below(None).evaluate(assignment)
        bound = f"below the upper bound {problem.upper_bound}"
        if problem.lower_bound is not None and value is not None and value <= problem.lower_bound:
            bound = f"above the lower bound {problem.lower_bound}"
        found.append(f"value {value} is not {bound}")
    return tuple(found)


class Extremes(NamedTuple):
    """Extremes of functions, one number each: int64 if every value is an integer, otherwise float64.

    lows, highs : least and greatest listed value; 0 for empty lists. rows : int64, number of listed values.
    defaults : 0 for functions without one. has_default : bool.
    """

    lows: NDArray[Any]
    highs: NDArray[Any]
    rows: NDArray[np.int64]
    defaults: NDArray[Any]
    has_default: NDArray[np.bool_]

    @property
    def greatest(self) -> NDArray[Any]:
        """The greatest value of each function, including its default even if no assignment has it."""
        return self._with_defaults(np.maximum, self.highs)

    @property
    def least(self) -> NDArray[Any]:
        """The least value of each function, including its default even if no assignment has it."""
        return self._with_defaults(np.minimum, self.lows)

    def _with_defaults(self, choose: Any, listed: NDArray[Any]) -> NDArray[Any]:
        chosen = np.where(self.has_default, choose(listed, self.defaults), listed)
        return np.where(self.rows == 0, self.defaults, chosen)

    def magnitudes(self) -> list[int | float]:
        """The largest absolute value of each function, defaults included."""
        pairs = zip(self.least.tolist(), self.greatest.tolist(), strict=True)
        return [max(-low, high) for low, high in pairs]  # as Python numbers: -2^63 has no positive counterpart in int64


def extremes_of(functions: Sequence[Function], is_integral: bool) -> Extremes:
    """The extremes of functions; is_integral : whether all their values are integers, see :class:`Extremes`."""
    dtype = np.dtype(np.int64 if is_integral else np.float64)
    rows = np.fromiter((len(f.values) for f in functions), dtype=np.int64, count=len(functions))
    has_default = np.fromiter((f.default is not None for f in functions), dtype=np.bool_, count=len(functions))
    defaults = np.fromiter((f.default or 0 for f in functions), dtype=dtype, count=len(functions))
    lows, highs = np.zeros((2, len(functions)), dtype=dtype)
    lists = rows > 0
    values = _listed(functions, dtype)
    if len(values):
        starts = np.concatenate([[0], np.cumsum(rows[lists])])[:-1]
        lows[lists] = np.minimum.reduceat(values, starts)
        highs[lists] = np.maximum.reduceat(values, starts)
    return Extremes(lows, highs, rows, defaults, has_default)


def _listed(functions: Sequence[Function], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The listed values of functions, concatenated."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(f.values for f in functions)]).astype(dtype, copy=False)


def step_of(functions: Sequence[Function], known: Extremes) -> int:
    """Greatest common divisor of differences within functions of integers, defaults included; 0: none differs."""
    both = (known.rows > 0) & known.has_default
    lows, defaults = known.lows[both], known.defaults[both]
    pairs = [
        (_listed(functions, np.dtype(np.int64)), np.repeat(known.lows, known.rows)),
        (np.maximum(lows, defaults), np.minimum(lows, defaults)),
    ]
    # The difference of any two int64 fits into uint64.
    return int(np.gcd.reduce(np.concatenate([high.view(np.uint64) - low.view(np.uint64) for high, low in pairs])))


def lists_all(parts: Sequence[Function | Constraint], sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Mask of the parts that list every assignment of their variables; sizes : of the domains of all variables."""
    rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
    scopes = [part.scope for part in parts]
    arity = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
    members = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(arity.sum()))
    cells = np.ones(len(parts))  # as floats: inexact beyond 2^53, which exceeds any list
    with np.errstate(over="ignore"):
        np.multiply.at(cells, np.repeat(np.arange(len(parts)), arity), np.array(sizes, dtype=np.float64)[members])
    found: NDArray[np.bool_] = rows == cells
    return found


def problem_digest(problem: Problem) -> str:
    """SHA-256, in hexadecimal, of variables, functions, constraints, constant, semiring and upper bound.

    The problem's name and the labels of values are excluded: files may be moved, and labels do not affect the answer.
    """
    import hashlib
    import json

    digest = hashlib.sha256()

    def add(*items: object) -> None:
        digest.update(json.dumps(items).encode() + b"\n")

    def add_array(array: np.ndarray[Any, Any]) -> None:
        add(array.dtype.str, array.shape)
        digest.update(np.ascontiguousarray(array).tobytes())

    add("variables", [(v.name, v.size) for v in problem.variables])
    for f in problem.functions:
        add("function", f.scope, repr(f.default))
        add_array(f.tuples)
        add_array(f.values)
    for c in problem.constraints:
        add("constraint", c.scope, c.allowed)
        add_array(c.tuples)
    for linear in problem.linear_constraints:
        add("linear constraint", linear.scope, linear.capacity)
        for coefficients in linear.coefficients:
            add_array(coefficients)
    bounds = [repr(problem.upper_bound), *([] if problem.lower_bound is None else [repr(problem.lower_bound)])]
    add("whole", repr(problem.constant), problem.semiring.name, *bounds)
    return digest.hexdigest()
