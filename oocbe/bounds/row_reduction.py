"""Presolve: remove variables and values before the search if the tables do not grow.

Eliminating a variable adds up its functions and minimises over it; the result is a function of its neighbours. If it
is no larger than the functions it replaces, fewer variables and cells are left, and the bound of dual ascent rises,
because these functions are combined exactly. This eliminates variables that depend on their neighbours (*functional*
ones: the output of a gate, an inherited gene) and those with few neighbours. Search does so before it begins and on
its way (Larrosa and Dechter 2003, *Boosting search with variable elimination in constraint optimization and constraint
satisfaction problems*).

Before that, values without support in a hard constraint are removed to a fixed point (*generalised arc
consistency*; Mackworth 1977, *Consistency in networks of relations*): in pedigrees, what relatives cannot have passed
on. Then unneeded values are removed, and functions that are sums of smaller ones are split. Each of these may enable
another elimination and vice versa, so all are repeated to a fixed point. Circuits, games and proteins are often solved
completely.

**Substitution.** If a hard constraint leaves one value of a variable for each value of a neighbour (two frequencies at
a fixed distance, a copy), the neighbour replaces the variable in all its functions: a contraction of an edge of the
primal graph, which raises no width. Functions over the same scope are then added up.

**Decomposition.** A variable without influence on a function leaves its scope. If the joint cost of two variables is
the sum of their separate costs, whatever the values of the others, the function is the sum of one without the first and
one without the second (*pairwise decomposition*: Favier, de Givry, Legarra and Schiex 2011, *Pairwise decomposition for
combinatorial optimization in graphical models*). The primal graph loses edges, so separators are smaller and more
variables have few neighbours. Only exact decompositions are made: integers are split, floats are not, as their sums
would round differently. A split is made only if its summands form a forest: any two have at most one variable in
common, and they form no cycle. The relaxation of other summands is weaker than that of the function: the root bound of
a pedigree fell from 2,843 to 2,399 of 3,035.

**Unneeded values.** If the substitution of b for a never raises the cost, whatever the values of other variables, each
assignment with a has one with b at no higher cost, and a is removed: at least one optimal assignment remains. This is
called *dead-end elimination* (Desmet, De Maeyer, Hazes and Lasters 1992, *The dead-end elimination theorem and its use
in protein side-chain positioning*; differences for each assignment of the neighbours are Goldstein's, 1994, *Efficient
rotamer elimination applied to protein side-chains and related spin glasses*) and *soft neighbourhood substitutability*
(Lecoutre, Roussel and Dehani 2012, *WCSP integration of soft neighborhood substitutability*; de Givry, Prestwich and
O'Sullivan 2013, *Dead-end elimination for weighted CSP*). A condition on each function is sufficient for their sum: the
*loss* of a substitution in a function is the largest difference over all assignments of the other variables that permit
a. If the losses sum to at most 0, a is removed. Cost moves between functions and variables change no difference, so
repetition after dual ascent gains nothing; removal of the neighbours' values does. The removal keeps one optimal
assignment only. Counts, the k best and marginals need all of them.

**Joint functions** over three variables raise the bound of dual ascent. Dual ascent moves costs between functions and
single variables, so it misses what functions with two variables in common cost together. A function over two variables
joins one over three that contains its scope, and forbids its tuples in all of these: rosters took a fifth of the time.
Where domains are small, triangles of functions over two variables are joined, the shortest cycles, which the local
polytope misses (Sontag, Meltzer, Globerson, Jaakkola and Weiss 2008, *Tightening LP relaxations for MAP using message
passing*): root bounds of cuts rose from 0 to 0.6 of the optimum.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, compress, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.table_elimination import drop_unneeded, eliminate_variable, mark_divisible
from oocbe.bounds.row_tables import ScopeTable, ScopeTables, from_zero
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.cpu.values import neutral_value
from oocbe.model.parts import LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.runtime.deadline import check_deadline, current_flag, looked

Item = TypeVar("Item")

MOST_JOINED = 1 << 12
"""Maximum number of cells of the sum of a variable's functions. Each pass of the ascent visits every cell."""

SMALL_RESULT = 16
"""Number of cells up to which a result is always accepted."""

MOST_COMPARED = 1 << 27
"""Maximum number of cell pairs in all comparisons of values, about a nanosecond each."""

BATCH_CELLS = 1 << 18
"""Cells that are examined in one call of a loop: their copies take 2 MiB, which a core's cache holds."""

MOST_VALUES = 1 << 10
"""Maximum domain size for comparisons of values, which need a table with one cell per pair of values."""


@dataclass(frozen=True)
class Elimination:
    """Elimination of one variable. choice : its best value for each assignment of ``scope``, an axis a variable;
    integers of any width."""

    variable: int
    scope: tuple[int, ...]
    choice: NDArray[Any]

    def undo(self, values: list[int]) -> None:
        """Map an assignment after the step, in place, to one before it: give the variable its best value."""
        values[self.variable] = int(self.choice[tuple(values[u] for u in self.scope)])

    def do(self, values: list[int]) -> None:
        """Map an assignment before the step, in place, to one after it: the other variables keep their values."""


@dataclass(frozen=True)
class Removal:
    """Removal of values of one variable. kept : the remaining values, ascending."""

    variable: int
    kept: NDArray[np.int64]

    def undo(self, values: list[int]) -> None:
        """Restore the value's original number."""
        values[self.variable] = int(self.kept[values[self.variable]])

    def do(self, values: list[int]) -> None:
        """Renumber the value; -1 if it was removed."""
        place = int(np.searchsorted(self.kept, values[self.variable]))
        is_kept = place < len(self.kept) and self.kept[place] == values[self.variable]
        values[self.variable] = place if is_kept else -1


@dataclass(frozen=True)
class Reduction:
    """A reduced problem with its postsolve.

    tables : over the remaining variables, renumbered, and clique variables after them, if there are any.
    variables : original numbers of the remaining ones.
    steps : eliminations and removals, in order; lists have an entry for every original variable.
    sizes : of the original variables. before : an earlier reduction, of which this one reduces the tables.
    """

    tables: ScopeTables
    variables: tuple[int, ...]
    steps: tuple[Elimination | Removal, ...]
    sizes: tuple[int, ...]
    before: Reduction | None = None

    @property
    def summary(self) -> str:
        """Summary of the reduced problem for the result."""
        sizes, count = self.tables.problem.sizes, len(self.variables)
        cliques = f", with {len(sizes) - count:,} cliques of them" if len(sizes) > count else ""
        left = f"{count:,} of {len(self.sizes):,} variables and {sum(sizes[:count]):,} of {sum(self.sizes):,} values"
        return left + cliques + ("" if self.before is None else f", after {self.before.summary}")

    @property
    def eliminated(self) -> list[Elimination]:
        """The eliminations among the steps."""
        return [step for step in self.steps if isinstance(step, Elimination)]

    def complete(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The assignment of all variables with the cost of an assignment of the remaining ones."""
        values = [0] * len(self.sizes)
        for v, value in zip(self.variables, assignment[: len(self.variables)], strict=True):
            values[v] = value
        for step in reversed(self.steps):
            step.undo(values)
        return tuple(values) if self.before is None else self.before.complete(values)

    def restricted(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The values of the remaining variables in a full assignment; -1 marks removed values and cliques."""
        values = list(assignment if self.before is None else self.before.restricted(assignment))
        for step in self.steps:
            step.do(values)
        cliques = len(self.tables.problem.sizes) - len(self.variables)
        return (*(values[v] for v in self.variables), *[-1] * cliques)

    def left_of(self, is_left: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
        """Which values of the remaining variables are left, given those of all variables; of cliques all are."""
        own = [*is_left] if self.before is None else self.before.left_of(is_left)
        for step in self.steps:
            if isinstance(step, Removal):
                own[step.variable] = own[step.variable][step.kept]
        cliques = self.tables.problem.sizes[len(self.variables) :]
        return [*(own[v] for v in self.variables), *(np.ones(size, dtype=np.bool_) for size in cliques)]


def reduced(tables: ScopeTables, kept: Sequence[NDArray[np.int64]] = ()) -> Reduction:
    """Eliminate variables while tables do not grow (smallest result first), and remove values. At least one variable
    remains. kept : the values of each variable that matter, ascending; empty: all.

    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    return _Reducing(tables, kept).run()


def eliminated(reduction: Reduction, order: Sequence[int]) -> Reduction:
    """Eliminate more variables, even if functions grow; at least one variable remains.

    order : of remaining variables, by their new numbers.
    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    further, old = _Reducing(reduction.tables).run_along(order), reduction.variables
    steps = [
        Elimination(old[step.variable], tuple(old[u] for u in step.scope), step.choice) for step in further.eliminated
    ]
    variables = tuple(old[v] for v in further.variables)
    return Reduction(further.tables, variables, (*reduction.steps, *steps), reduction.sizes)


class _Reducing:
    def __init__(self, tables: ScopeTables, kept: Sequence[NDArray[np.int64]] = ()) -> None:
        self._tables = tables
        self._sizes = list(tables.problem.sizes)
        self._parts: dict[tuple[int, ...], Costs] = {part.scope: (part.values, part.permitted) for part in tables.parts}
        self._scopes: list[set[tuple[int, ...]]] = [set() for _ in self._sizes]
        for scope in self._parts:
            for v in scope:
                self._scopes[v].add(scope)
        self._linear = LinearParts(tables.linear)
        self._constant = tables.constant
        self._is_impossible = tables.is_impossible
        self._left = set(range(len(self._sizes)))
        self._steps: list[Elimination | Removal] = []
        self._cells = [self._result_cells(v) for v in self._left]
        self._heap = [(n, v) for v, n in enumerate(self._cells)]
        heapq.heapify(self._heap)
        self._changed = set(self._left)  # variables whose values are to be compared
        self._whole = set(self._parts)  # functions that may be sums of others
        self._pairs = {scope for scope in self._parts if len(scope) == 2}  # functions that may determine a variable
        self._work_left = MOST_COMPARED
        for v, own in enumerate(kept):
            if len(own) < self._sizes[v]:
                self._keep(v, own)

    def run(self) -> Reduction:
        self._propagate()
        while True:
            self._eliminate_variables()
            if self._is_impossible or not (self._substitute() | self._split() | self._remove_values()):
                return self._result(sorted(self._left))

    def run_along(self, order: Sequence[int]) -> Reduction:
        """Eliminate the variables of an order except the last."""
        for v in looked(order[:-1]):
            self._left.remove(v)
            self._eliminate(v)
        return self._result(sorted(self._left))

    def _propagate(self) -> None:
        """Remove values without support in some function, to a fixed point."""
        queue = dict.fromkeys(scope for scope in sorted(self._parts) if not self._parts[scope][1].all())
        while queue and not self._is_impossible:
            check_deadline()
            scope = next(iter(queue))
            del queue[scope]
            for axis, v in enumerate(scope):
                others = tuple(place for place in range(len(scope)) if place != axis)
                kept = np.flatnonzero(self._parts[scope][1].any(axis=others))
                self._is_impossible |= len(kept) == 0
                if 0 < len(kept) < self._sizes[v]:
                    self._keep(v, kept)
                    queue.update(dict.fromkeys(part for part in sorted(self._scopes[v]) if part != scope))

    def _touch(self, variables: Sequence[int]) -> None:
        """Mark variables as changed after a change of their functions."""
        for u in variables:
            if u in self._left:
                self._cells[u] = self._result_cells(u)
                heapq.heappush(self._heap, (self._cells[u], u))
        self._changed.update(variables)

    def _neighbours(self, v: int) -> set[int]:
        return set().union(*self._scopes[v]) - {v}

    def _eliminate_variables(self) -> None:
        while self._heap and len(self._left) > 1:
            found, v = heapq.heappop(self._heap)
            if v not in self._left or found != self._cells[v] or not self._pays(v, found):
                continue  # a stale entry: the variable is in the heap again, or eliminated
            check_deadline()
            self._left.remove(v)
            self._touch(self._eliminate(v))

    def _result_cells(self, v: int) -> int:
        """Cells of the function that an elimination produces, or a number above the limit; 0 for a variable with one
        value, as no functions are joined."""
        if self._sizes[v] == 1:
            return 0
        cells = 1
        for u in self._neighbours(v):
            cells *= self._sizes[u]
            if cells > MOST_JOINED:
                break
        return min(cells, MOST_JOINED + 1)

    def _pays(self, v: int, cells: int) -> bool:
        if self._linear.count(v) and self._sizes[v] > 1:
            return False
        before = sum(self._parts[scope][0].size for scope in self._scopes[v])
        return cells * self._sizes[v] <= MOST_JOINED and cells <= max(before, SMALL_RESULT)

    def _strides(self, scope: tuple[int, ...], within: tuple[int, ...]) -> list[int]:
        """Strides of a function's cells for each variable of a larger scope (0 for absent variables)."""
        step, steps = 1, dict.fromkeys(within, 0)
        for u in reversed(scope):
            steps[u] = step
            step *= self._sizes[u]
        return [*steps.values()]

    def _take(self, scope: tuple[int, ...]) -> Costs:
        """Remove and return a function."""
        for u in scope:
            self._scopes[u].discard(scope)
        self._whole.discard(scope)
        self._pairs.discard(scope)
        return self._parts.pop(scope)

    def _eliminate(self, v: int) -> tuple[int, ...]:
        """Eliminate a variable; returns its neighbours."""
        scope = tuple(sorted(self._neighbours(v)))
        if self._sizes[v] == 1:
            self._linear.fix(v)
            for part in sorted(self._scopes[v]):
                axis = part.index(v)
                values, permitted = (np.asarray(array.take(0, axis=axis)) for array in self._take(part))
                self._add(part[:axis] + part[axis + 1 :], (values, permitted))
            self._steps.append(Elimination(v, (), np.zeros((), dtype=np.int64)))
            return scope
        within = (v, *scope)
        parts = sorted(self._scopes[v])
        taken = [self._take(part) for part in parts]
        shape = [self._sizes[u] for u in scope]
        cells = math.prod(shape)
        best = np.empty(cells, dtype=np.int64 if self._tables.is_integral else np.float64)
        is_left = np.empty(cells, dtype=bool)
        choice = np.empty(cells, dtype=np.min_scalar_type(self._sizes[v]))
        eliminate_variable(
            np.concatenate([best[:0], *(values.ravel() for values, _ in taken)]),
            np.concatenate([is_left[:0], *(permitted.ravel() for _, permitted in taken)]),
            starts_of([values.size for values, _ in taken]),
            np.array([self._strides(part, within) for part in parts], dtype=np.int64).reshape(-1, len(within)),
            np.array([self._sizes[u] for u in within], dtype=np.int64),
            np.full(1, neutral_value(Marginalisation.MIN, best.dtype)),
            best,
            is_left,
            choice,
        )
        self._add(scope, (best.reshape(shape), is_left.reshape(shape)))
        self._steps.append(Elimination(v, scope, choice.reshape(shape)))
        return scope

    def _substitute(self) -> bool:
        """Replace variables that a neighbour determines; returns whether there were any."""
        found = False
        for scope in sorted(self._pairs):
            self._pairs.discard(scope)
            if scope not in self._parts:
                continue
            permitted = self._parts[scope][1]
            if np.count_nonzero(permitted) not in permitted.shape:
                continue  # which excludes most functions quickly
            check_deadline()
            for axis, (v, u) in enumerate((scope, scope[::-1])):
                if (permitted.sum(axis=axis) == 1).all() and self._may_replace(v, u):
                    self._replace(v, u, permitted.argmax(axis=axis))
                    found = True
                    break
        return found

    def _may_replace(self, v: int, u: int) -> bool:
        """Whether the functions of a variable do not grow if another variable replaces it."""
        before = after = 0
        for scope in self._scopes[v]:
            cells = self._parts[scope][0].size
            before += cells
            after += cells // self._sizes[v] * (1 if u in scope else self._sizes[u])
        return after <= before and not self._linear.count(v)

    def _replace(self, v: int, u: int, choice: NDArray[np.int64]) -> None:
        """Replace a variable by a neighbour. choice : the value of ``v`` for each value of ``u``."""
        near = self._neighbours(v)
        self._left.remove(v)
        for scope in sorted(self._scopes[v]):
            rest = [w for w in scope if w not in (u, v)]
            order = np.argsort([u, *rest])
            taken = []
            for array in self._take(scope):
                if u in scope:
                    array = np.moveaxis(array, (scope.index(v), scope.index(u)), (0, 1))[choice, np.arange(len(choice))]
                else:
                    array = np.moveaxis(array, scope.index(v), 0)[choice]
                taken.append(np.ascontiguousarray(array.transpose(order)))
            self._add(tuple(sorted([u, *rest])), (taken[0], taken[1]))
        self._steps.append(Elimination(v, (u,), choice))
        self._touch(sorted(near))

    def _split(self) -> bool:
        """Split functions that are sums of smaller ones; returns whether there were any."""
        found = False
        for scopes in self._batches(sorted(self._whole), lambda scope: self._parts[scope][0].size):
            self._whole.difference_update(scopes)
            is_marked = np.zeros(len(scopes), dtype=np.bool_)
            functions = [self._parts[scope] for scope in scopes]
            sizes = [values.shape for values, _ in functions]
            axes = starts_of([len(shape) for shape in sizes])
            mark_divisible(*_end_to_end(functions), np.array([*chain(*sizes)], dtype=np.int64), axes, is_marked)
            for scope in compress(scopes, is_marked):
                pieces = pieces_of(scope, self._parts[scope])
                if len(pieces) > 1 or pieces[0][0] != scope:
                    self._take(scope)
                    for piece in pieces:
                        self._add(*piece)
                    self._touch(scope)
                    found = True
        return found

    def _remove_values(self) -> bool:
        """Remove unneeded values of variables with changed functions; returns whether there were any."""
        found, due = False, []
        for v in sorted(self._changed & self._left):
            work = self._sizes[v] * (self._cells_over(v) + self._sizes[v] * self._linear.count(v))
            if 1 < self._sizes[v] <= MOST_VALUES and work <= self._work_left:
                self._work_left -= work
                due.append(v)
        self._changed -= self._left
        for variables in self._batches(due, lambda v: self._cells_over(v) + self._sizes[v] ** 2):
            functions = [
                [(*self._parts[scope], scope.index(v)) for scope in sorted(self._scopes[v])] for v in variables
            ]
            sizes, linear = [self._sizes[v] for v in variables], [self._linear.takes_more(v) for v in variables]
            needed = values_needed(sizes, functions, linear, 4 * self._tables.rounding)
            for v, kept in zip(variables, needed, strict=True):
                self._is_impossible |= len(kept) == 0
                if 0 < len(kept) < self._sizes[v]:
                    self._keep(v, kept)
                    found = True
        return found

    def _cells_over(self, v: int) -> int:
        """Cells of all functions over a variable."""
        return sum([self._parts[scope][0].size for scope in self._scopes[v]])

    def _batches(self, items: Sequence[Item], cells: Callable[[Item], int]) -> Iterator[list[Item]]:
        """The items in runs of at most ``BATCH_CELLS`` cells, or one item; checks the deadline before each."""
        batch: list[Item] = []
        total = 0
        for item in items:
            own = cells(item)
            if batch and total + own > BATCH_CELLS:
                check_deadline()
                yield batch
                batch, total = [], 0
            batch.append(item)
            total += own
        if batch:
            check_deadline()
            yield batch

    def _keep(self, v: int, kept: NDArray[np.int64]) -> None:
        """Keep only some values of a variable."""
        self._steps.append(Removal(v, kept))
        self._linear.keep(v, kept)
        self._sizes[v] = len(kept)
        near = sorted(self._neighbours(v))
        for scope in self._scopes[v]:
            axis = scope.index(v)
            values, permitted = self._parts[scope]
            self._parts[scope] = values.take(kept, axis=axis), permitted.take(kept, axis=axis)
            self._note(scope)
        self._touch([v, *near])

    def _add(self, scope: tuple[int, ...], costs: Costs) -> None:
        values, permitted = costs
        self._is_impossible |= not permitted.any()
        if not scope:
            self._constant += values.item()
            return
        if scope in self._parts:
            permitted = permitted & self._parts[scope][1]
            values = np.where(permitted, values + self._parts[scope][0], 0)
            self._is_impossible |= not permitted.any()
        self._parts[scope] = values, permitted
        self._note(scope)
        for u in scope:
            self._scopes[u].add(scope)

    def _note(self, scope: tuple[int, ...]) -> None:
        """Mark a function as changed."""
        self._whole.add(scope)
        if len(scope) == 2:
            self._pairs.add(scope)

    def _result(self, left: list[int]) -> Reduction:
        tables = self._tables
        number = {v: place for place, v in enumerate(left)}
        parts = []
        known = {part.scope: part for part in tables.parts}
        for scope in sorted(self._parts):
            values, permitted = self._parts[scope]
            if scope in known and known[scope].values is values:
                least = known[scope].least
            else:
                least = values[permitted].min().item() if permitted.any() else 0
            parts.append(ScopeTable(tuple(number[v] for v in scope), values, permitted, least))
        small = replace(
            tables,
            problem=Problem(tuple(self._variable(v) for v in left), (), name=tables.problem.name),
            parts=tuple(parts),
            constant=self._constant,
            is_impossible=self._is_impossible,
            linear=self._linear.left(number),
        )
        return Reduction(small, tuple(left), tuple(self._steps), tables.problem.sizes)

    def _variable(self, v: int) -> Variable:
        """A variable with its remaining number of values."""
        whole = self._tables.problem.variables[v]
        return whole if whole.size == self._sizes[v] else Variable(whole.name, self._sizes[v])


LARGEST_SPLIT = 1 << 32
"""Maximum magnitude of a function that is split: magnitudes of the pieces grow, and sums must stay within 64 bits."""

Costs = tuple[NDArray[Any], NDArray[np.bool_]]
"""Costs (0 if forbidden) and a mask of permitted cells; one axis a variable."""

Piece = tuple[tuple[int, ...], Costs]
"""A scope and a function over it."""


def pieces_of(scope: tuple[int, ...], costs: Costs) -> list[Piece]:
    """Functions that add up to a given one, over as few variables as possible.

    The function itself, without idle variables, where these do not form a forest: two of them share two variables, or
    several form a cycle.
    """
    summands = _summands(scope, costs)
    if len(summands) == 1:
        return summands
    pieces: dict[tuple[int, ...], Costs] = {}
    for inner, (values, permitted) in sorted(summands, key=lambda piece: -len(piece[0])):
        outer = next((own for own in pieces if {*inner} <= {*own}), inner)
        if outer in pieces:
            absent = tuple(place for place, v in enumerate(outer) if v not in inner)
            values = pieces[outer][0] + np.expand_dims(values, absent)
            permitted = pieces[outer][1]
        pieces[outer] = values, permitted
    trees: list[set[int]] = []
    for own in pieces:
        common = [tree.intersection(own) for tree in trees]
        if max(map(len, common), default=0) > 1:
            return [_without_idle(scope, costs)]
        joined = [tree for tree, shared in zip(trees, common, strict=True) if shared]
        trees = [tree for tree in trees if tree not in joined] + [set(own).union(*joined)]
    return [*pieces.items()]


def _summands(scope: tuple[int, ...], costs: Costs) -> list[Piece]:
    """Functions that add up to a given one; the scope of one may be within that of another."""
    scope, costs = _without_idle(scope, costs)
    values, permitted = costs
    can_split = values.dtype.kind == "i" and len(scope) >= 2 and permitted.all()
    if can_split and int(np.abs(values).max()) <= LARGEST_SPLIT:
        for i, j in combinations(range(len(scope)), 2):
            rest = values - values.take([0], axis=j)
            if (rest == rest.take([0], axis=i)).all():
                without_j = _first(values, j), _first(permitted, j)
                without_i = _first(rest, i), _first(permitted, i)
                return _summands(_less(scope, j), without_j) + _summands(_less(scope, i), without_i)
    return [(scope, costs)]


def _without_idle(scope: tuple[int, ...], costs: Costs) -> Piece:
    """The function without the variables that it does not depend on."""
    values, permitted = costs
    for axis in reversed(range(len(scope))):
        is_idle = values.shape[axis] == 1 or (
            (values == values.take([0], axis=axis)).all() and (permitted == permitted.take([0], axis=axis)).all()
        )
        if is_idle:
            scope, values, permitted = _less(scope, axis), _first(values, axis), _first(permitted, axis)
    return scope, (values, permitted)


def _first(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """The slice at index 0 along an axis, without the axis."""
    return array.take([0], axis=axis).squeeze(axis)


def _less(scope: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return scope[:axis] + scope[axis + 1 :]


class LinearParts:
    """The linear ``constraints`` of the whole problem, over variables that lose values."""

    def __init__(self, constraints: Sequence[LinearConstraint]) -> None:
        self._constraints = constraints
        self._coefficients: list[dict[int, NDArray[np.int64]]] = [
            dict(zip(c.scope, c.coefficients, strict=True)) for c in constraints
        ]
        self._capacities = [c.capacity for c in constraints]
        self._over: dict[int, list[int]] = {}
        for place, c in enumerate(constraints):
            for v in c.scope:
                self._over.setdefault(v, []).append(place)

    def count(self, v: int) -> int:
        """Number of constraints that contain the variable."""
        return len(self._over.get(v, ()))

    def keep(self, v: int, kept: NDArray[np.int64]) -> None:
        """Keep only some values of a variable."""
        for place in self._over.get(v, ()):
            self._coefficients[place][v] = self._coefficients[place][v][kept]

    def fix(self, v: int) -> None:
        """Remove a variable with one value from the constraints."""
        for place in self._over.pop(v, ()):
            self._capacities[place] -= int(self._coefficients[place].pop(v)[0])

    def takes_more(self, v: int) -> NDArray[np.bool_]:
        """Whether the variable's value b takes more of some constraint than a, at [a, b]; empty if none contains it."""
        found = np.zeros((0, 0), dtype=np.bool_)
        for place in self._over.get(v, ()):
            own = self._coefficients[place][v]
            more = own[None] > own[:, None]
            found = found | more if len(found) else more
        return found

    def left(self, number: Mapping[int, int]) -> tuple[LinearConstraint, ...]:
        """The constraints that can bind, over the remaining variables. number : new number of each variable."""
        found = []
        for c, coefficients, capacity in zip(self._constraints, self._coefficients, self._capacities, strict=True):
            scope = tuple(number[v] for v in coefficients)
            own = replace(c, scope=scope, coefficients=tuple(coefficients.values()), capacity=capacity)
            if own.can_bind:
                found.append(from_zero(own))
        return tuple(found)


Rows = tuple[NDArray[Any], NDArray[np.bool_], int]
"""Costs of a function, a mask of permitted cells, and the axis of the variable."""


def values_needed(
    sizes: Sequence[int],
    functions: Sequence[Sequence[Rows]],
    takes_more: Sequence[NDArray[np.bool_]],
    rounding: float = 0.0,
) -> list[NDArray[np.int64]]:
    """The values of each variable that an optimal assignment may need; none if all are forbidden.

    sizes : of the variables. functions : all functions over each, all int64 or all float64.
    takes_more : of linear constraints over each, by :meth:`LinearParts.takes_more`.
    rounding : maximum error of a sum of floats; a smaller gain counts only if no single function has a loss.
    """
    values, permitted, begins = _end_to_end([(values, permitted) for own in functions for values, permitted, _ in own])
    outers = np.array([math.prod(values.shape[:axis]) for own in functions for values, _, axis in own], dtype=np.int64)
    limit = np.array([1 if values.dtype.kind == "i" else -rounding], dtype=values.dtype)
    starts, firsts, matrices = map(starts_of, (sizes, [*map(len, functions)], [more.size for more in takes_more]))
    linear, is_left = np.concatenate([more.ravel() for more in takes_more]), np.ones(starts[-1], dtype=np.bool_)
    listed = values, permitted, begins, outers, firsts, linear, matrices
    drop_unneeded(*listed, starts, limit, is_left, current_flag())
    return [np.flatnonzero(is_left[low:high]) for low, high in pairwise(starts.tolist())]


def _end_to_end(functions: Sequence[Costs]) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.int64]]:
    """Cells of functions of one dtype, end to end, which of them are permitted, and where each function begins."""
    values = [values.ravel() for values, _ in functions] or [np.zeros(0, dtype=np.int64)]
    permitted = [permitted.ravel() for _, permitted in functions] or [np.zeros(0, dtype=np.bool_)]
    return np.concatenate(values), np.concatenate(permitted), starts_of([len(own) for own in values[: len(functions)]])


MOST_CELLS = 1 << 7
"""Maximum number of cells of a triangle. Beyond it, passes take longer than the better bound saves."""

MOST_VARIABLES = 1 << 9
"""Maximum number of variables for a search for triangles, which has a matrix of all pairs."""


def with_joint_tables(reduction: Reduction) -> Reduction:
    """The reduced problem with functions over two variables joined to others; the same object if none can be.

    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    tables, parts = reduction.tables, {part.scope: part for part in reduction.tables.parts}
    joins: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for scope in parts:
        for pair in combinations(scope, 2) if len(scope) == 3 else ():
            if pair in parts:
                joins.setdefault(pair, []).append(scope)
    for scope in _triangles(tables, len(reduction.variables), joins.keys()):
        pairs = [*combinations(scope, 2)]
        shape = [tables.problem.sizes[v] for v in scope]
        none: Any = np.zeros(shape, dtype=np.int64 if tables.is_integral else np.float64)
        parts[scope] = ScopeTable(scope, none, np.ones(shape, dtype=bool), 0)
        joins |= {pair: [scope] for pair in pairs}
    for inner, scopes in looked(joins.items()):
        part = parts.pop(inner)
        for number, scope in enumerate(scopes):
            parts[scope] = _joined(parts[scope], part, has_costs=number == 0)
    if not joins:
        return reduction
    is_impossible = not all(part.permitted.any() for part in parts.values())
    made = replace(tables, parts=tuple(parts[scope] for scope in sorted(parts)), is_impossible=is_impossible)
    return replace(reduction, tables=made)


def _joined(whole: ScopeTable, part: ScopeTable, has_costs: bool) -> ScopeTable:
    """A function over three variables that forbids what one over two of them does, and with its costs if it has any."""
    axis = next(place for place, v in enumerate(whole.scope) if v not in part.scope)
    permitted = whole.permitted & np.expand_dims(part.permitted, axis)
    values = whole.values + np.expand_dims(part.values, axis) if has_costs else whole.values
    least = values[permitted].min().item() if permitted.any() else 0
    return ScopeTable(whole.scope, np.where(permitted, values, 0), permitted, least)


def _triangles(tables: ScopeTables, variables: int, taken: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Triangles of functions over the first ``variables`` variables that are not taken, without a function in common.

    Greedily, each is that of the dearest function left and of the two others whose cheaper one is dearest.
    """
    sizes, found = np.array(tables.problem.sizes, dtype=np.int64)[:variables], []
    if variables > MOST_VARIABLES:
        return []
    most = max((part.values.max().item() - part.least for part in tables.parts), default=0)
    weights = dict(zip((part.scope for part in tables.parts), tables.weights(float(most) or 1.0).tolist(), strict=True))
    edges = {scope: weights[scope] for scope in weights.keys() - taken if len(scope) == 2 and scope[1] < variables}
    weight = np.zeros((variables, variables))
    for (u, v), own in edges.items():
        weight[u, v] = weight[v, u] = own
    for u, v in looked(sorted(edges, key=lambda edge: (-edges[edge], edge))):
        cheaper = np.where(sizes * (sizes[u] * sizes[v]) <= MOST_CELLS, np.minimum(weight[u], weight[v]), 0.0)
        w = int(np.argmax(cheaper))
        if weight[u, v] and cheaper[w]:
            found.append(tuple(sorted((u, v, w))))
            for one, other in combinations((u, v, w), 2):
                weight[one, other] = weight[other, one] = 0.0
    return found
