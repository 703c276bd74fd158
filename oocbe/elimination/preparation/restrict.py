"""A problem with some values removed: smaller domains, and no variable that has one value left.

What bounds or propagation have ruled out need not be carried through elimination, and a variable with a single value is
no variable: its functions and constraints are those of the others. :class:`Restriction` keeps the way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.pruning.row_bounds import BoundSource, RowBound
from oocbe.system.deadline import look


@dataclass(frozen=True)
class Restriction:
    """A problem, and the one it was made from.

    Attributes
    ----------
    original : the problem with all values. problem : what is left; None where nothing is feasible.
    variables : index in the original of each variable left.
    kept : int64, values in the original's domain of each variable of the original, ascending.
    """

    original: Problem
    problem: Problem | None
    variables: tuple[int, ...]
    kept: tuple[NDArray[np.int64], ...]

    @property
    def removed(self) -> int:
        """Values removed, over all variables."""
        return sum(self.original.sizes) - sum(map(len, self.kept))

    def lift(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """An assignment of the original from one of what is left."""
        values = [int(k[0]) if len(k) else 0 for k in self.kept]
        for v, value in zip(self.variables, assignment, strict=True):
            values[v] = int(self.kept[v][value])
        return tuple(values)

    def source(self, source: BoundSource) -> BoundSource:
        """Bounds on what is left, from bounds on the original."""
        return source if self.problem is self.original else _RestrictedSource(self, source)


def restrict(problem: Problem, removed: Iterable[tuple[int, int]]) -> Restriction:
    """Remove values (pairs of variable and value), and then all that hard constraints over one variable forbid.

    Only for semirings that add: constants of fixed functions are added up. The upper bound stays as it is.
    """
    assert problem.semiring.combination is Combination.ADD
    allowed = [np.ones(size, dtype=bool) for size in problem.sizes]
    for v, value in removed:
        allowed[v][value] = False
    parts = _PartsLeft(problem)
    parts.propagate(allowed)
    kept = tuple(np.flatnonzero(a) for a in allowed)
    left = tuple(v for v, k in enumerate(kept) if len(k) > 1)
    if parts.is_infeasible or any(len(k) == 0 for k in kept):
        return Restriction(problem, None, left, kept)
    if all(len(k) == size for k, size in zip(kept, problem.sizes, strict=True)) and 1 not in problem.sizes:
        return Restriction(problem, problem, left, kept)
    return Restriction(problem, parts.rebuilt(kept, left), left, kept)


class _PartsLeft:
    """A problem's functions and constraints, with the tuples that are still possible."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.is_infeasible = False
        self._functions = [(f, np.ones(len(f.tuples), dtype=bool)) for f in problem.functions]
        self._constraints = [(c, np.ones(len(c.tuples), dtype=bool)) for c in problem.constraints]
        self._parts: list[tuple[Function | Constraint, NDArray[np.bool_]]] = [*self._functions, *self._constraints]
        self._uses: list[list[int]] = [[] for _ in problem.variables]
        for number, (part, _) in enumerate(self._parts):
            for v in part.scope:
                self._uses[v].append(number)

    def propagate(self, allowed: list[NDArray[np.bool_]]) -> None:
        """Drop tuples with removed values, and values that a scope with one free variable forbids, until none goes."""
        waiting = {number for number, (part, _) in enumerate(self._parts) if len(part.scope) < 2 or _lists_all(part)}
        for v, values in enumerate(allowed):
            if not values.all() or len(values) == 1:
                waiting.update(self._uses[v])
        while waiting:
            look()
            number = waiting.pop()
            for v in self._reduce(*self._parts[number], allowed):
                waiting.update(self._uses[v])
                waiting.discard(number)

    def _reduce(
        self, part: Function | Constraint, alive: NDArray[np.bool_], allowed: list[NDArray[np.bool_]]
    ) -> list[int]:
        """One part's step of :meth:`propagate`; the variables that lost values."""
        for axis, v in enumerate(part.scope):
            if not allowed[v].all():
                alive &= allowed[v][part.tuples[:, axis]]
        changed = []
        if _lists_all(part):
            # What no listed tuple has is impossible, for every variable of the scope.
            self.is_infeasible |= not alive.any()
            for axis, v in enumerate(part.scope):
                supported = np.zeros(len(allowed[v]), dtype=bool)
                supported[part.tuples[alive, axis]] = True
                if (allowed[v] & ~supported).any():
                    allowed[v] &= supported
                    changed.append(v)
        elif isinstance(part, Constraint) and alive.any():
            free = [axis for axis, v in enumerate(part.scope) if np.count_nonzero(allowed[v]) > 1]
            if not free:
                self.is_infeasible = True
            elif len(free) == 1:
                v = part.scope[free[0]]
                allowed[v][part.tuples[alive, free[0]]] = False
                alive[:] = False
                changed.append(v)
        return changed

    def rebuilt(self, kept: tuple[NDArray[np.int64], ...], left: tuple[int, ...]) -> Problem:
        """The problem over the variables left."""
        problem = self.problem
        number = {v: i for i, v in enumerate(left)}
        place = []
        for k, size in zip(kept, problem.sizes, strict=True):
            places = np.zeros(size, dtype=np.int64)
            places[k] = np.arange(len(k))
            place.append(places)

        def shrunk(part: Function | Constraint, alive: NDArray[np.bool_]) -> tuple[tuple[int, ...], NDArray[Any]]:
            axes = [axis for axis, v in enumerate(part.scope) if v in number]
            tuples = part.tuples[alive]
            columns = [place[part.scope[axis]][tuples[:, axis]] for axis in axes]
            scope = tuple(number[part.scope[axis]] for axis in axes)
            return scope, np.stack(columns, axis=1) if columns else np.zeros((len(tuples), 0), dtype=np.int64)

        constant = problem.constant
        functions = []
        for f, alive in self._functions:
            scope, tuples = shrunk(f, alive)
            if scope:
                functions.append(Function(scope, tuples, f.values[alive], f.default))
            elif len(tuples):
                constant += f.values[alive][0].item()
            else:
                assert f.default is not None
                constant += f.default
        constraints = []
        for c, alive in self._constraints:
            scope, tuples = shrunk(c, alive)
            if scope and (c.allowed or len(tuples)):
                constraints.append(Constraint(scope, tuples, c.allowed))
        linears = []
        for linear in problem.linear_constraints:
            terms = list(zip(linear.scope, linear.coefficients, strict=True))
            used = sum(int(a[kept[v][0]]) for v, a in terms if v not in number)
            rest = [(number[v], a[kept[v]]) for v, a in terms if v in number]
            scope, coefficients = tuple(v for v, _ in rest), tuple(a for _, a in rest)
            linears.append(LinearConstraint(scope, coefficients, linear.capacity - used, linear.name))
        return replace(
            problem,
            variables=tuple(_shrunk_variable(problem.variables[v], kept[v]) for v in left),
            functions=tuple(functions),
            constraints=tuple(constraints),
            linear_constraints=tuple(linears),
            constant=constant,
        )


def _lists_all(part: Function | Constraint) -> bool:
    """Whether only listed tuples are feasible."""
    return part.default is None if isinstance(part, Function) else part.allowed


def _shrunk_variable(variable: Variable, kept: NDArray[np.int64]) -> Variable:
    labels = None if variable.labels is None else tuple(variable.labels[value] for value in kept)
    return Variable(variable.name, len(kept), labels)


class _RestrictedSource:
    """The bounds of another source, with variables and values of the problem that is left.

    A variable with one value left counts as part of every separator: what it adds is known.
    """

    def __init__(self, restriction: Restriction, source: BoundSource) -> None:
        self._restriction = restriction
        self._source = source
        self._fixed = [(v, int(k[0])) for v, k in enumerate(restriction.kept) if len(k) == 1]
        self.name = source.name
        self.why = source.why
        self.root = source.root
        self.assignment: tuple[int, ...] | None = None  # that of the source is one of its own problem

    def for_message(self, eliminated: int, separator: Sequence[int]) -> RowBound:
        """Bound the rows of a message of what is left of the problem, by the original's bound."""
        variables, kept = self._restriction.variables, self._restriction.kept
        members = 0
        for v, original in enumerate(variables):
            if eliminated >> v & 1:
                members |= 1 << original
        bound = self._source.for_message(members, [*(variables[v] for v in separator), *(v for v, _ in self._fixed)])
        tables = {v: bound.tables[variables[v]][kept[variables[v]]] for v in separator if variables[v] in bound.tables}
        constant = bound.constant
        for v, value in self._fixed:
            if v in bound.tables:
                constant += bound.tables[v][value].item()
        for number, price in bound.prices.items():
            constant += price * self._taken(number, members)
        return RowBound(bound.scale, constant, tables, bound.prices)

    def _taken(self, number: int, members: int) -> int:
        """What some of the original's variables take of a linear constraint at least, beyond what they might before."""
        linear = self._restriction.original.linear_constraints[number]
        return sum(
            int(own[self._restriction.kept[v]].min()) - int(own.min())
            for v, own in zip(linear.scope, linear.coefficients, strict=True)
            if members >> v & 1
        )

    def fixed_values(self, upper_bound: int | float) -> list[tuple[int, int]]:
        """Pairs of the problem that is left."""
        variables, kept = self._restriction.variables, self._restriction.kept
        number = {original: v for v, original in enumerate(variables)}
        found = []
        for original, value in self._source.fixed_values(upper_bound):
            if original in number:
                place = int(np.searchsorted(kept[original], value))
                if place < len(kept[original]) and kept[original][place] == value:
                    found.append((number[original], place))
        return found
