"""Removal of dominated values from long domains, before the search for one optimal assignment.

A value is dominated if another one of its variable costs no more, and conflicts with no value that it does not conflict
with: the other one can take its place in each assignment (Freuder 1991, *Eliminating interchangeable values in
constraint satisfaction problems*; with costs: Lecoutre, Roussel and Dehani 2012). An observation may begin at hundreds
of times, and few of them matter. Reduction of tables (:mod:`oocbe.bounds.row_reduction`) removes these values as well,
but pairs of long domains exceed its tables.

Without these values others conflict with fewer, so the search for them is repeated until it finds none. A variable in a
constraint over three or more variables, in a table of permitted pairs, a linear constraint or a cost over several
variables keeps its values.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import is_order_file
from oocbe.elimination.preparation.listed_factors import slots_of, starts_of
from oocbe.elimination.preparation.penalties import costs_alone
from oocbe.model.model_checks import Values
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.value_removal import ReducedProblem, remove_values
from oocbe.runtime.deadline import looked, suppressed_limit, unlimited

LEAST_SIZE = 16
"""Values of the longest domain of a problem that is searched for dominated ones. Shorter ones fit the reduction."""

LEAST_SHARE = 0.25
"""Least share of all values that must be dominated: the searches' own presolve finds a few in the same time."""

MOST_CELLS = 1 << 26
"""Largest product of a variable's values and the values in conflict with them, a byte each while they are compared. A
variable with more keeps its values."""

MOST_WORK, VALUE_WORK = 1 << 31, 1 << 13
"""Bytes compared in all, about two seconds, and those that take the time of a value beside its comparisons. A variable
with more work than is left keeps its values."""


@dataclass(frozen=True)
class UndominatedProblem(ReducedProblem):
    """A problem without dominated values. Some optimal and other assignments are lost."""

    keeps_counts = False
    remover = "dominance"
    name: str = field(default="dominated values", kw_only=True)


def without_dominated(problem: Problem, options: SolveOptions) -> ReducedProblem:
    """The problem without dominated values; itself where they are few, or where a limit comes first.

    problem : in any semiring; those but min-sum and max-sum stay as they are. options : without dominance, with
        complete tables, or with an order that names all variables, a problem stays as it is.
    """
    left = ReducedProblem.of_all(problem)
    if max(problem.sizes, default=0) < LEAST_SIZE or is_order_file(options.order) or not options.dominance:
        return left
    if options.tables == "complete" or not problem.semiring.optimises_sums:
        return left
    with nullcontext() if options.workdir is None else unlimited(), suppressed_limit():
        alive = _undominated(problem)
        if np.count_nonzero(alive) <= (1 - LEAST_SHARE) * len(alive):
            start, slots = starts_of(problem.sizes), np.flatnonzero(~alive)
            owner = np.searchsorted(start, slots, side="right") - 1
            found = remove_values(problem, zip(owner.tolist(), (slots - start[owner]).tolist(), strict=True))
            variables, kept = (left.variables, left.kept) if found.is_infeasible else (found.variables, found.kept)
            left = UndominatedProblem(problem, found.problem, variables, kept, found.is_infeasible)
    return left


def _undominated(problem: Problem) -> NDArray[np.bool_]:
    """Whether to keep each value, (values of all variables,)."""
    start = starts_of(problem.sizes)
    alive = np.ones(start[-1], dtype=bool)
    costs = costs_alone(problem, start, -1 if problem.semiring.marginalisation is Marginalisation.MAX else 1)
    has_cost, is_fixed = np.zeros((2, len(problem.sizes)), dtype=bool)
    for f in looked(problem.functions):
        v = f.scope[0] if len(f.scope) == 1 else -1
        if v < 0 or has_cost[v] or (f.default is None and len(f.values) < problem.sizes[v]):
            is_fixed[list(f.scope)] = True
        else:
            has_cost[v] = True
    tables = [((0, 0), np.zeros((0, 2), dtype=np.int64))]
    for c in looked(problem.constraints):
        if len(c.scope) == 2 and not c.allowed:
            tables.append(((c.scope[0], c.scope[1]), c.tuples))
        else:
            is_fixed[list(c.scope)] = True
    for linear in problem.linear_constraints:
        is_fixed[list(linear.scope)] = True
    pairs = slots_of(tables, start)
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    waiting, work = np.flatnonzero(~is_fixed), MOST_WORK
    while len(waiting):
        before, bounds = alive.copy(), np.searchsorted(pairs[:, 0], start)
        for v in looked(waiting.tolist()):
            own = pairs[bounds[v] : bounds[v + 1]] - [start[v], 0]
            work -= _remove(alive[start[v] : start[v + 1]], costs[start[v] :], own, work)
        removed = before & ~alive
        gone = removed[pairs[:, 0]]
        touched = np.searchsorted(start, distinct_values(pairs[gone, 1]), side="right") - 1
        pairs = pairs[~(gone | removed[pairs[:, 1]])]
        waiting = distinct_values(touched[~is_fixed[touched]])
    return alive


def _remove(alive: NDArray[np.bool_], costs: Values, pairs: NDArray[np.int64], most: int) -> int:
    """Clear ``alive`` of dominated values of a variable; the work, 0 if it would be more than ``most``.

    pairs : int64 (conflicts, 2), a value and the slot in conflict with it.
    """
    columns, column = np.unique(pairs[:, 1], return_inverse=True)
    values, width = np.flatnonzero(alive).tolist(), -(-len(columns) // 8)
    work = len(values) * (VALUE_WORK + len(values) * width)
    if work > most or len(alive) * len(columns) > MOST_CELLS:
        return 0
    conflicts = np.zeros((len(alive), len(columns)), dtype=bool)
    conflicts[pairs[:, 0], column] = True
    counts, bits = conflicts.sum(axis=1), np.packbits(conflicts, axis=1)
    # A value is dominated only by earlier ones: of equal values, the first one stays.
    kept, count = np.empty((len(values), width), dtype=np.uint8), 0
    for value in sorted(values, key=lambda a: (costs[a], counts[a])):
        if ((kept[:count] & ~bits[value]) == 0).all(axis=1).any():
            alive[value] = False
        else:
            kept[count] = bits[value]
            count += 1
    return work
