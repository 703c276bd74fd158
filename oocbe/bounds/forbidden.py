"""Inequalities over literals (:class:`Row`), and forbidden sets of literals: values, pairs, larger assignments.

A *literal* is a (variable, value) pair; literals are numbered in order. Forbidden sets come from hard constraints,
from tuples missing in incomplete functions, and, under an upper bound, from tuples too costly for the minima of all
other functions to compensate. Of each part only the *minimal* forbidden partial tuples are kept: a ternary constraint
that forbids (a, b, c) for every c forbids the pair (a, b).

Costly tuples have finite costs so large that relaxations treat them as forbidden, up to their excess cost. Many files
write hard constraints as large costs, and a linear program over cliques of forbidden pairs is far tighter
than any relaxation of single functions. So such a function is split: ``f >= capped f + Σ excess of its costly
tuples``. The capped function is relaxed as any other. Inequalities are derived as if costly tuples were forbidden.
If an assignment contains some of them, the left-hand side exceeds the right by at most the largest coefficient per
tuple: without one literal of each, nothing forbidden remains. So an inequality with multiplier y is a valid bound if
each costly tuple among its literals can pay ``y * largest coefficient``; the payments of one tuple for all
inequalities together must not exceed its excess. (The older certificate format calls such tuples *dear*.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES, distinct_values
from oocbe.runtime.deadline import check_deadline, looked


@dataclass(frozen=True, eq=False)
class Row:
    """A valid inequality: the sum of coefficients of true literals is at most the right-hand side.

    literals : int64, ascending. coefficients : int64. right_hand_side : integer. kind : what the row is called.
    number : of the problem's linear constraint that the row is, -1 where it is none.
    """

    literals: NDArray[np.int64]
    coefficients: NDArray[np.int64]
    right_hand_side: int
    kind: str = "row"
    number: int = -1

    @classmethod
    def of(cls, literals: Sequence[int] | NDArray[np.int64], right_hand_side: int, kind: str) -> Row:
        """Row with coefficients of one."""
        chosen = np.sort(np.asarray(literals, dtype=np.int64))
        return cls(chosen, np.ones(len(chosen), dtype=np.int64), right_hand_side, kind)

    @classmethod
    def of_linear(cls, constraint: LinearConstraint, number: int, first: Sequence[int] | NDArray[np.int64]) -> Row:
        """A linear constraint; first : literal of each variable."""
        literals = np.array([x for v in constraint.scope for x in range(first[v], first[v + 1])], dtype=np.int64)
        coefficients = np.concatenate([np.zeros(0, dtype=np.int64), *constraint.coefficients])
        order = np.argsort(literals)
        order = order[coefficients[order] != 0]
        return cls(literals[order], coefficients[order], constraint.capacity, "linear", number)

    @cached_property
    def largest(self) -> int:
        """Largest absolute value of a coefficient or of the right-hand side."""
        ends = (int(self.coefficients.min(initial=0)), int(self.coefficients.max(initial=0)))
        return max(-ends[0], ends[1], abs(self.right_hand_side))

    def key(self) -> tuple[bytes, bytes, int]:
        """Equal for equal inequalities."""
        return self.literals.tobytes(), self.coefficients.tobytes(), self.right_hand_side


LARGEST_PART = 1 << 16
"""Maximum number of cells of a function or constraint in the search for forbidden tuples; larger ones are skipped."""

LARGEST_SEARCH = 1 << 20
"""Maximum number of cells times subsets of a scope in the search for minimal forbidden partial tuples."""

MOST_SETS = 1 << 14
"""Maximum number of sets of three and more literals. The largest are left out: as rows of a linear program they are the
weakest, and a linear constraint over 16 binary variables can have 60,000."""

MOST_LISTED = 4
"""Maximum number of listed sets of one size, some of them alike or redundant, relative to those that may be kept. To
compare hundreds of thousands of them took two seconds of rosters' solves."""

LARGEST_COEFFICIENT = 2**40
"""Maximum coefficient of a linear constraint that is searched for forbidden literals."""

MOST_LITERALS = 8192
"""Maximum number of literals: conflicts are kept in a square matrix (64 MiB)."""


@dataclass(frozen=True)
class Forbidden:
    """Sets of literals that no assignment that counts contains.

    first : int64 (variables + 1,), the first literal of each variable. owner : int64 (literals,), its variable.
    removed : uint8 (literals,), 1 for literals forbidden by themselves.
    pairs : bool (literals, literals), symmetric; two values of one variable are a forbidden pair.
    larger : int64 (sets, size), one array for each size from 3; none contains a removed literal or a forbidden pair.
    is_empty : whether no assignment counts.
    """

    first: NDArray[np.int64]
    owner: NDArray[np.int64]
    removed: NDArray[np.uint8]
    pairs: NDArray[np.bool_]
    larger: tuple[NDArray[np.int64], ...]
    is_empty: bool

    @cached_property
    def between(self) -> NDArray[np.bool_]:
        """The forbidden pairs of different variables, in a matrix as ``pairs``."""
        between = self.pairs.copy()
        for low, high in itertools.pairwise(self.first.tolist()):
            between[low:high, low:high] = False
        return between


def removed_values(problem: Problem) -> tuple[NDArray[np.uint8], bool]:
    """Literals that parts over one variable forbid, as uint8 (literals,), and whether no assignment counts."""
    first, limits = starts_of(problem.sizes), cost_limits(problem)
    removed = np.zeros(int(first[-1]), dtype=np.uint8)
    functions, constraints = SingleValues.of_functions(problem), SingleValues.of_constraints(problem)
    is_costly = np.zeros(len(functions.costs), dtype=np.bool_)
    if limits:
        own = np.array([limits[number] for number in functions.numbers.tolist()], dtype=object)  # of any length
        is_costly = (functions.costs >= np.repeat(own, np.diff(functions.starts))).astype(np.bool_)
    removed[functions.slots(first)[~functions.permitted | is_costly]] = 1
    removed[constraints.slots(first)[~constraints.permitted]] = 1
    is_empty = not all(c.permits(()) for c in problem.constraints if not c.scope)
    for linear in problem.linear_constraints:
        if linear.can_bind and len(linear.scope) <= 1:
            forbids = ~linear.to_array()
            if linear.scope:
                removed[first[linear.scope[0]] : first[linear.scope[0] + 1]] |= forbids.astype(np.uint8)
            else:
                is_empty |= bool(forbids)
    for number, f in enumerate(problem.functions):
        if not f.scope:
            value = f.value_at(())
            is_empty |= value is None or bool(limits and value >= limits[number])
    return removed, is_empty


def forbidden_sets(problem: Problem, besides: Sequence[NDArray[np.int64]] = ()) -> Forbidden:
    """The forbidden sets of a problem of at most :data:`MOST_LITERALS` literals, the smallest :data:`MOST_SETS`.

    besides : int64 (sets, size), sets of two or more literals to be treated as forbidden, too.
    """
    sizes = problem.sizes
    first = starts_of(sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.zeros((len(owner), len(owner)), dtype=bool)
    for low, high in itertools.pairwise(first.tolist()):
        pairs[low:high, low:high] = True
    np.fill_diagonal(pairs, False)
    removed = np.zeros(len(owner), dtype=np.uint8)
    larger: dict[int, list[NDArray[np.int64]]] = {}
    is_empty = False
    listed, others = _split(problem)
    known: dict[tuple[tuple[int, ...], bytes], list[tuple[tuple[int, ...], NDArray[np.int64]]]] = {}
    for scope, cells in looked(_dense_parts(problem, others)):
        if not cells.any():
            continue
        key = cells.shape, cells.tobytes()  # thousands of parts forbid one of a few patterns
        if key not in known:
            known[key] = _minimal(cells)
        for axes, tuples in known[key]:
            if not axes:
                is_empty = True
                continue
            literals = first[[scope[axis] for axis in axes]] + tuples
            larger.setdefault(len(axes), []).append(literals)
    for c in listed:
        larger.setdefault(len(c.scope), []).append(first[list(c.scope)] + c.tuples)
    for sets in besides:
        larger.setdefault(sets.shape[1], []).append(sets)
    for linear in looked(problem.linear_constraints):
        _add_linear(linear, first, pairs, removed)
    for literals in larger.pop(1, []):
        removed[literals[:, 0]] = 1
    for literals in larger.pop(2, []):
        pairs[literals[:, 0], literals[:, 1]] = True
        pairs[literals[:, 1], literals[:, 0]] = True
    pairs[removed > 0] = False
    pairs[:, removed > 0] = False
    kept: list[NDArray[np.int64]] = []
    room = MOST_SETS
    for _, found in sorted(larger.items()):
        if sum(map(len, found)) > MOST_LISTED * room:
            break
        sets = _irredundant(np.concatenate(found), removed, pairs)
        room -= len(sets)
        if room < 0:
            break
        kept += [sets] if len(sets) else []
    return Forbidden(first, owner, removed, pairs, tuple(kept), is_empty)


def propagated(
    forbidden: Forbidden, removed: NDArray[np.uint8], variables: Iterable[int] | None = None
) -> NDArray[np.uint8]:
    """Removed literals, and those in conflict with all remaining values of some variable (arc consistency).

    variables : those with newly removed literals; None: all.
    """
    removed = removed.copy()
    changed = dict.fromkeys(range(len(forbidden.first) - 1) if variables is None else variables)
    while changed:
        v = next(iter(changed))
        del changed[v]
        low, high = forbidden.first[v : v + 2].tolist()
        left = low + np.flatnonzero(removed[low:high] == 0)
        # Literals in conflict with every remaining value of the variable.
        fresh = np.flatnonzero(forbidden.pairs[left].all(axis=0) & (removed == 0))
        removed[fresh] = 1
        changed.update(dict.fromkeys(forbidden.owner[fresh].tolist()))
    return removed


def _add_linear(
    c: LinearConstraint, first: NDArray[np.int64], pairs: NDArray[np.bool_], removed: NDArray[np.uint8]
) -> None:
    """Mark literals, and pairs of them, that exceed a linear constraint's capacity with the others at their least."""
    least, greatest = c.ends
    largest = max((max(abs(high), -low) for low, high in zip(least, greatest, strict=True)), default=0)
    room = c.capacity - c.least
    if not c.can_bind or largest > LARGEST_COEFFICIENT or not 0 <= room <= LARGEST_COEFFICIENT:
        return
    literals = np.concatenate([np.arange(first[v], first[v + 1]) for v in c.scope])
    use = np.concatenate([own - low for own, low in zip(c.coefficients, least, strict=True)])
    removed[literals[use > room]] = 1
    heavy = 2 * use > room  # if two literals exceed the room together, twice the larger one does
    for literal, own in looked(zip(literals[heavy].tolist(), use[heavy].tolist(), strict=True)):
        others = literals[own + use > room]
        place = int(np.searchsorted(first, literal, side="right"))  # of the variable's end
        others = others[(others < first[place - 1]) | (others >= first[place])]
        pairs[literal, others] = True
        pairs[others, literal] = True


def _irredundant(sets: NDArray[np.int64], removed: NDArray[np.uint8], pairs: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The distinct sets without supersets of a smaller forbidden set."""
    check_deadline()
    keep = ~removed[sets].any(axis=1)
    for one, other in itertools.combinations(range(sets.shape[1]), 2):
        keep &= ~pairs[sets[:, one], sets[:, other]]
    return distinct_values(np.sort(sets[keep], axis=1), axis=0)


def _split(problem: Problem) -> tuple[list[Constraint], list[Constraint]]:
    """Constraints whose listed tuples are probably minimal already (by a cheap test), and the others."""
    listed: list[Constraint] = []
    others: list[Constraint] = []
    for c in problem.constraints:
        cells = math.prod(problem.sizes[v] for v in c.scope)
        is_sparse = not c.allowed and len(c.scope) >= 2 and len(c.tuples) < min(problem.sizes[v] for v in c.scope)
        is_large = not c.allowed and cells > LARGEST_PART
        (listed if is_sparse or is_large else others).append(c)
    return listed, others


def _dense_parts(
    problem: Problem, constraints: Sequence[Constraint]
) -> Iterator[tuple[tuple[int, ...], NDArray[np.bool_]]]:
    """Scopes and dense arrays, True where forbidden, of all parts that are not too large."""
    sizes = problem.sizes
    limit = cost_limits(problem)
    for c in looked(constraints):
        if not _is_too_large(c.scope, sizes):
            yield c.scope, ~c.to_array(sizes)
    for linear in problem.linear_constraints:
        if linear.can_bind and not _is_too_large(linear.scope, sizes):
            yield linear.scope, ~linear.to_array()
    for number, f in enumerate(looked(problem.functions)):
        if _is_too_large(f.scope, sizes):
            continue
        values, feasible = f.to_array(sizes)
        costly = values >= limit[number] if limit else np.zeros(values.shape, dtype=bool)
        yield f.scope, np.asarray(~feasible | costly)


def _is_too_large(scope: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    return len(scope) > MOST_AXES or math.prod(sizes[v] for v in scope) > LARGEST_PART


def cost_limits(problem: Problem) -> list[Any]:
    """The least value of each function that no assignment below the upper bound contains; [] without a bound."""
    if problem.upper_bound is None:
        return []
    check_deadline()
    rest = sum_of_minima(problem)
    return [] if rest == math.inf else [problem.upper_bound - (rest - own) for own in problem.least_values.tolist()]


def sum_of_minima(problem: Problem) -> int | float:
    """A bound below all assignments: the constant and the functions' minima, less what rounding may have added."""
    total: int | float = sum(problem.least_values.tolist(), problem.constant)
    if problem.is_integral or total == math.inf:
        return total
    fixed_point = FixedPoint.of(problem)
    return total - float(fixed_point.magnitude) * fixed_point.rounding


def _minimal(cells: NDArray[np.bool_]) -> list[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """Minimal forbidden partial tuples of a dense array: axes, and int64 (tuples, axes)."""
    arity = cells.ndim
    if cells.size << arity > LARGEST_SEARCH:
        return [(tuple(range(arity)), np.argwhere(cells))]
    if cells.all():
        return [((), np.zeros((1, 0), dtype=np.int64))]
    found = []
    covered = np.zeros_like(cells)
    for size in range(1, arity + 1):
        for axes in itertools.combinations(range(arity), size):
            others = tuple(axis for axis in range(arity) if axis not in axes)
            forbids = cells.all(axis=others) & ~covered.all(axis=others)
            if not forbids.any():
                continue
            found.append((axes, np.argwhere(forbids).reshape(-1, size)))
            covered |= np.expand_dims(forbids, others)
        if (covered | ~cells).all():
            break
    return found


class SingleValues(NamedTuple):
    """Parts over one variable.

    numbers : int64 (parts,), their indices among all functions, or all constraints. variables : int64 (parts,).
    starts : int64 (parts + 1,), start of the values of each part's variable.
    costs : of functions, int64 or float64 (values,); 0 for constraints. permitted : bool (values,).
    """

    numbers: NDArray[np.int64]
    variables: NDArray[np.int64]
    starts: NDArray[np.int64]
    costs: NDArray[Any]
    permitted: NDArray[np.bool_]

    @classmethod
    def of_functions(cls, problem: Problem) -> SingleValues:
        """The unary functions."""
        functions, known = problem.functions, problem.extremes
        numbers = _of_one_variable(functions)
        own = [functions[number] for number in numbers.tolist()]
        return cls._of(
            problem, own, numbers, known.defaults[numbers], known.has_default[numbers], [f.values for f in own]
        )

    @classmethod
    def of_constraints(cls, problem: Problem) -> SingleValues:
        """The unary constraints that list tuples."""
        numbers = _of_one_variable(problem.constraints)
        own = [problem.constraints[number] for number in numbers.tolist()]
        allowed = np.fromiter((c.allowed for c in own), dtype=np.bool_, count=len(own))
        return cls._of(problem, own, numbers, np.zeros(len(own), dtype=np.int64), ~allowed, ())

    @classmethod
    def _of(
        cls,
        problem: Problem,
        parts: Sequence[Function | Constraint],
        numbers: NDArray[np.int64],
        defaults: NDArray[Any],
        unlisted: NDArray[np.bool_],
        listed: Sequence[NDArray[Any]],
    ) -> SingleValues:
        """unlisted : whether a part's unlisted tuples are permitted; listed : costs of listed ones."""
        check_deadline()
        variables = np.fromiter((part.scope[0] for part in parts), dtype=np.int64, count=len(parts))
        sizes = np.array(problem.sizes, dtype=np.int64)[variables]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        costs, permitted = np.repeat(defaults, sizes), np.repeat(unlisted, sizes)
        rows = np.fromiter((len(part.tuples) for part in parts), dtype=np.int64, count=len(parts))
        tuples = np.concatenate([np.zeros(0, dtype=np.int64), *(part.tuples[:, 0] for part in parts)])
        place = np.repeat(starts[:-1], rows) + tuples
        costs[place] = np.concatenate([np.zeros(0, dtype=costs.dtype), *listed]) if listed else 0
        permitted[place] = True if listed else ~np.repeat(unlisted, rows)
        check_deadline()
        return cls(numbers, variables, starts, costs, permitted)

    def slots(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of all values if those of variable ``v`` begin at ``first[v]``."""
        lengths = np.diff(self.starts)
        return np.repeat(first[self.variables] - self.starts[:-1], lengths) + np.arange(self.starts[-1])


def _of_one_variable(parts: Sequence[Function | Constraint]) -> NDArray[np.int64]:
    return np.array([number for number, part in enumerate(parts) if len(part.scope) == 1], dtype=np.int64)


COSTLY = 2
"""A tuple is costly if its cost exceeds its function's minimum by this multiple of a variable's largest saving."""

BLOCK = 1 << 22
"""Maximum number of (row, tuple) pairs in one batch."""


@dataclass(frozen=True)
class CostlyTuples:
    """Costly tuples as sets of literals, one array for each size.

    sets : int64 (tuples, size). excess : int64 (tuples,), in fixed point: the maximum payment of each tuple.
    """

    sets: tuple[NDArray[np.int64], ...] = ()
    excess: tuple[NDArray[np.int64], ...] = ()

    def payable(
        self, rows: Sequence[Row], multipliers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Multipliers in fixed point, lowered until all costly tuples can pay, and a mask of the rows that use them."""
        depends = np.zeros(len(rows), dtype=bool)
        is_derived = np.array(
            [row.kind != "linear" and int(row.coefficients.min(initial=1)) > 0 for row in rows], dtype=bool
        )
        if not self.sets or not len(rows):
            return multipliers, depends
        named = [row.literals for row in rows] + [sets.ravel() for sets in self.sets]
        literals = 1 + int(np.concatenate(named).max())
        contains = np.zeros((literals, len(rows)), dtype=bool)
        for number, row in enumerate(rows):
            if is_derived[number]:  # linear constraints, and rows about removed values, depend on no tuple
                contains[row.literals, number] = True
        largest = np.array([max(1, int(row.coefficients.max(initial=1))) for row in rows], dtype=np.int64)
        charges = (multipliers * largest).astype(np.float64)
        factor = np.ones(len(rows))
        for sets, excess in zip(self.sets, self.excess, strict=True):
            step = max(1, BLOCK // len(rows))
            for begin in range(0, len(sets), step):
                part, can_pay = sets[begin : begin + step], excess[begin : begin + step]
                holds = contains[part].all(axis=1)
                depends |= holds.any(axis=0)
                load = holds @ charges
                # The factor 1 - 1e-9 covers rounding: loads are floating-point sums of positive numbers.
                share = np.minimum(1.0, can_pay * (1 - 1e-9) / np.maximum(load, 1.0))
                lowest = np.where(holds, share[:, None], 1.0).min(axis=0, initial=1.0)
                factor = np.minimum(factor, lowest)
        lowered = np.floor(multipliers * factor).astype(np.int64)
        return np.where(factor < 1, lowered, multipliers), depends


def drop_tuples_above_bound(problem: Problem, fixed_point: FixedPoint) -> tuple[Problem, CostlyTuples]:
    """The problem with its costly tuples capped, and these tuples with their excess cost."""
    if not problem.is_integral:
        return problem, CostlyTuples()
    threshold = COSTLY * largest_saving(problem)
    if threshold == 0:
        return problem, CostlyTuples()
    first = starts_of(problem.sizes)
    limits = cost_limits(problem)
    functions = list(problem.functions)
    found: dict[int, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}
    for number, f in looked(enumerate(problem.functions)):
        if len(f.scope) < 2 or math.prod(problem.sizes[v] for v in f.scope) > LARGEST_PART:
            continue
        values, feasible = f.to_array(problem.sizes)
        permitted = feasible & (values < limits[number]) if limits else feasible
        if not permitted.any():
            continue
        least = int(values[permitted].min())
        is_costly = permitted & (values > least + threshold)
        if not is_costly.any():
            continue
        cap = int(values[permitted & ~is_costly].max())
        tuples = np.argwhere(is_costly)
        excess = fixed_point.down(values[is_costly]) - int(fixed_point.down(cap))
        found.setdefault(len(f.scope), []).append((first[list(f.scope)] + tuples, excess))
        capped = np.where(is_costly, cap, values)
        functions[number] = Function(f.scope, np.argwhere(feasible), capped[feasible])
    sets = tuple(np.concatenate([s for s, _ in group]) for _, group in sorted(found.items()))
    excess_of = tuple(np.concatenate([e for _, e in group]) for _, group in sorted(found.items()))
    return replace(problem, functions=tuple(functions)), CostlyTuples(sets, excess_of)


def largest_saving(problem: Problem) -> int:
    """Maximum saving from a change of one variable in the functions over it alone."""
    totals = [np.zeros(size, dtype=np.int64) for size in problem.sizes]
    for f in problem.functions:
        if len(f.scope) == 1:
            values, feasible = f.to_array(problem.sizes)
            if feasible.any():
                totals[f.scope[0]] += np.where(feasible, values, values[feasible].min())
    return max((int(total.max() - total.min()) for total in totals), default=0)
