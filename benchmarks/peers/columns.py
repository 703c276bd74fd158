"""A problem over 0/1 columns, one for each value of each variable: what CP-SAT and a MIP are built from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem

LARGEST_TABLE = 2**22  # cells; an incomplete function or a list of allowed tuples is turned inside out


@dataclass(frozen=True)
class Columns:
    """Columns ``first[v] + value``; exactly one column of each variable is 1.

    Attributes
    ----------
    first : index of the first column of each variable, and the number of columns at the end.
    constant : part of the objective.
    costs : objective coefficient of each column.
    products : sets of columns and what it costs, more than nothing, when all of them are 1.
    conflicts : sets of columns of which at least one is 0, without repetition.
    rows : linear inequalities, as columns, coefficients and a right-hand side not to be exceeded.
    impossible : some constraint has no solution at all.
    """

    first: list[int]
    constant: int
    costs: list[int]
    products: list[tuple[tuple[int, ...], int]]
    conflicts: list[tuple[int, ...]]
    rows: list[tuple[list[int], list[int], int]]
    impossible: bool

    def assignment(self, chosen: list[bool] | np.ndarray) -> list[int]:
        """Value of each variable from the columns' values, of which the largest of each variable counts."""
        values = np.asarray(chosen)
        return [int(np.argmax(values[a:b])) for a, b in zip(self.first, self.first[1:], strict=False)]


def make_columns(problem: Problem) -> Columns:
    """Split every function into what is forbidden, a constant, and costs above that constant."""
    sizes = problem.sizes
    first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(int).tolist()
    constant = int(problem.constant)
    costs = [0] * first[-1]
    products: dict[tuple[int, ...], int] = {}
    conflicts: dict[tuple[int, ...], None] = {}
    for function in problem.functions:
        tuples, values, forbidden = _cells(function, problem)
        occurring = values.tolist()
        if function.default is not None and not _covers(function, sizes):
            occurring.append(int(function.default))
        base = min(occurring, default=0)
        constant += base
        for columns, value in zip(_as_columns(function.scope, tuples, first), values.tolist(), strict=True):
            if value == base:
                continue
            if len(columns) == 1:
                costs[columns[0]] += value - base
            else:
                products[columns] = products.get(columns, 0) + value - base
        conflicts.update(dict.fromkeys(_as_columns(function.scope, forbidden, first)))
    for constraint in problem.constraints:
        tuples = constraint.tuples
        if constraint.allowed:
            _check_cells(problem, constraint.scope)
            tuples = np.argwhere(~constraint.to_array(sizes)) if constraint.scope else np.zeros((1 - len(tuples), 0))
        conflicts.update(dict.fromkeys(_as_columns(constraint.scope, tuples, first)))
    impossible = () in conflicts
    conflicts.pop((), None)
    rows = []
    for linear in problem.linear_constraints:
        used = [first[v] + a for v in linear.scope for a in range(sizes[v])]
        rows.append((used, [int(x) for c in linear.coefficients for x in c], linear.capacity))
    return Columns(first, constant, costs, list(products.items()), list(conflicts), rows, impossible)


def _cells(function: Function, problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tuples worth a term, their values, and the forbidden tuples."""
    nothing = np.zeros((0, len(function.scope)), dtype=np.int64)
    if function.default is not None and function.default <= min(function.values.tolist(), default=function.default):
        return function.tuples, function.values, nothing
    if not function.scope:  # a listed constant, or none: infeasible
        return function.tuples, function.values, np.zeros((1 - len(function.tuples), 0), dtype=np.int64)
    _check_cells(problem, function.scope)
    dense, feasible = function.to_array(problem.sizes)
    tuples = np.argwhere(feasible)
    return tuples, dense[feasible], np.argwhere(~feasible)


def _covers(function: Function, sizes: tuple[int, ...]) -> bool:
    return len(function.tuples) == math.prod(sizes[v] for v in function.scope)


def _check_cells(problem: Problem, scope: tuple[int, ...]) -> None:
    cells = math.prod(problem.sizes[v] for v in scope)
    if cells > LARGEST_TABLE:
        raise UnsupportedError(f"{problem.name}: a table over {len(scope)} variables has {cells:,} cells to write out")


def _as_columns(scope: tuple[int, ...], tuples: np.ndarray, first: list[int]) -> list[tuple[int, ...]]:
    offsets = np.array([first[v] for v in scope], dtype=np.int64)
    return [tuple(sorted(row)) for row in (tuples.astype(np.int64) + offsets).tolist()]


def merge_conflicts(columns: Columns) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Cliques that cover every conflict of two columns, and the conflicts of other sizes.

    A clique may hold several values of one variable, which exclude each other anyway. Greedy: a conflict that is not
    covered yet grows by common neighbours, those with most conflicts first. Each clique is maximal; at most one of its
    columns is 1, which says more in a linear relaxation than its conflicts one by one.
    """
    neighbours: list[set[int]] = [set() for _ in range(columns.first[-1])]
    for a, b in zip(columns.first, columns.first[1:], strict=False):
        for column in range(a, b):
            neighbours[column].update(range(a, b))
            neighbours[column].discard(column)
    pairs = [c for c in columns.conflicts if len(c) == 2]
    for a, b in pairs:
        neighbours[a].add(b)
        neighbours[b].add(a)
    covered: set[tuple[int, int]] = set()
    cliques = []
    for pair in pairs:
        if pair in covered:
            continue
        clique = list(pair)
        candidates = neighbours[pair[0]] & neighbours[pair[1]]
        while candidates:
            best = max(candidates, key=lambda column: (len(neighbours[column]), -column))
            clique.append(best)
            candidates &= neighbours[best]
        clique.sort()
        covered.update((a, b) for i, a in enumerate(clique) for b in clique[i + 1 :])
        cliques.append(tuple(clique))
    return cliques, [c for c in columns.conflicts if len(c) != 2]
