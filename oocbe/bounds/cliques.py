"""Cliques of a conflict graph: at most one literal of a clique is true.

The linear relaxation with one row a conflict is weak (half of everything is allowed); with maximal cliques it is much
tighter, and cliques that a fractional point violates are found greedily (Padberg 1973; Marzi, Rossi, Smriglio 2019).

A clique variable names the member that an assignment takes from a clique of which it takes exactly one. Hard
constraints between pairs of variables often come from a larger structure: a permutation, or a Latin square with
each symbol once in each row. A bound over single functions misses it: three variables with two remaining values, all
different, look feasible. Values that exclude one another are a *clique* of the conflict graph: an assignment contains
at most one of them. If the values of some variables lie in as many cliques as there are variables, it contains exactly
one of each (a *Hall set* without slack). Such a clique gets a variable of its own, whose value is the variable that
takes one of the clique's members. A function ties it to each of these variables and replaces the functions between
them. Dual ascent over these functions solves the linear program of the assignment problem. The search can branch on
the variable that takes a value, besides the value that a variable takes (Cheng, Choi, Lee and Wu 1999, *Increasing
constraint propagation by redundant modeling*).

The reduction is exact: each feasible assignment determines one value of each clique variable, and its cost is
unchanged.

Cliques with slack, whose variables need an extra value for "no member", did not improve the bound of dual ascent on
queens' diagonals, jobs of one machine and radio links, and its passes take longer. Cliques that leave most pairs to
the original functions, such as the queens' columns, do not pay off either.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu import cliques as kernels
from oocbe.bounds.row_reduction import Reduction
from oocbe.bounds.row_tables import MOST_CELLS, ScopeTable, ScopeTables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.runtime.deadline import check_deadline, looked

ROOM = 256
"""Maximum number of cliques of a cover that one compiled call finds."""

HEAVY_AT_ONCE = 64
"""Number of start literals of one compiled search call: the deadline is checked between calls."""

LEAST_WEIGHT = 1e-6
"""Vertices of smaller weight are left out of the sums."""


def bit_matrix(matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """A boolean matrix as uint64 (rows, words), element 0 in the lowest bit."""
    packed = np.packbits(matrix, axis=1, bitorder="little")
    padded = np.zeros((len(matrix), -(-matrix.shape[1] // 64) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def covering_cliques(adjacent: NDArray[np.uint64], wanted: NDArray[np.uint64] | None = None) -> list[list[int]]:
    """Maximal cliques that contain every edge of a graph; each greedily takes edges that no earlier clique covers.

    adjacent : uint64 (vertices, words), a symmetric bit matrix with an empty diagonal.
    wanted : bit matrix of the edges to cover, of the same form; None: all edges.
    """
    open_edges = (adjacent if wanted is None else wanted).copy()
    cliques = np.empty((ROOM, adjacent.shape[1]), dtype=np.uint64)
    found: set[tuple[int, ...]] = set()
    vertex = 0
    while vertex < len(adjacent):
        check_deadline()
        count, vertex = kernels.covering_cliques(adjacent, open_edges, vertex, cliques)
        found |= _members(cliques[:count])
    return [list(clique) for clique in sorted(found)]


def violated_cliques(
    adjacent: NDArray[np.uint64], point: NDArray[np.float64], least_violation: float
) -> list[list[int]]:
    """Maximal cliques whose literals sum to more than 1 at a point: one or two greedy attempts per fractional literal.

    adjacent : as for :func:`covering_cliques`. point : float64 (vertices,). least_violation : beyond 1.
    """
    order = np.argsort(-point, kind="stable")
    heavy = order[point[order] > LEAST_WEIGHT]
    support = bit_matrix((point > LEAST_WEIGHT)[None, :])[0]
    cliques = np.empty((2 * HEAVY_AT_ONCE + 1, adjacent.shape[1]), dtype=np.uint64)
    scratch = np.empty((2, len(point)), dtype=np.int64)
    found: set[tuple[int, ...]] = set()
    for first in looked(range(0, len(heavy), HEAVY_AT_ONCE)):
        some = heavy[first : first + HEAVY_AT_ONCE]
        count = kernels.violated_cliques(adjacent, some, point, support, least_violation, cliques, scratch)
        found |= _members(cliques[:count])
    return [list(clique) for clique in sorted(found)]


def _members(sets: NDArray[np.uint64]) -> set[tuple[int, ...]]:
    """Distinct bit sets as tuples of their elements, ascending."""
    if not len(sets):
        return set()
    bits = np.unpackbits(distinct_values(sets, axis=0).view(np.uint8), axis=1, bitorder="little")
    return {tuple(np.flatnonzero(row).tolist()) for row in bits}


MOST_VALUES = 1 << 12
"""Maximum number of values of all variables together: the conflict matrix has a cell for each pair."""

LEAST_VARIABLES = 3
"""Minimum number of variables of a Hall set: a clique over two variables adds nothing to their function."""

LEAST_COVERED = 0.5
"""Minimum share of the forbidden pairs that cliques must cover."""

MOST_GROWTH = 8.0
"""Maximum growth of the total cells of all functions over two variables, as a factor."""


def with_clique_variables(reduction: Reduction) -> Reduction:
    """The reduced problem with clique variables after the others if they cover enough conflicts; otherwise unchanged.

    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    tables = reduction.tables
    excluding = [part for part in tables.parts if len(part.scope) == 2 and not part.permitted.all()]
    start = starts_of(tables.problem.sizes)
    if len(excluding) < LEAST_VARIABLES or start[-1] > MOST_VALUES or tables.is_impossible:
        return reduction
    excluded = _excluded(excluding, start)
    linked = np.logical_or.reduceat(np.logical_or.reduceat(excluded, start[:-1], axis=0), start[:-1], axis=1)
    # A value without conflicts is in no clique: as many of them as variables, as in packing problems, leave slack.
    free = np.add.reduceat(~excluded.any(axis=1), start[:-1], dtype=np.int64)
    scopes = [s for s in covering_cliques(bit_matrix(linked)) if LEAST_VARIABLES <= len(s) > free[s].sum()]
    if not scopes:
        return reduction
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    adjacent = excluded | (owner[:, None] == owner[None])
    np.fill_diagonal(adjacent, False)
    cliques = [np.array(c) for c in covering_cliques(bit_matrix(adjacent), bit_matrix(excluded))]
    cliques = _without_slack(cliques, scopes, owner)
    covered = np.zeros_like(excluded)
    for members in cliques:
        covered[np.ix_(members, members)] = True
    if not cliques or (covered & excluded).sum() < LEAST_COVERED * excluded.sum():
        return reduction
    kept, constant = _kept(tables, covered, start)
    ties, sizes = _ties(cliques, start, owner)
    before = sum(part.values.size for part in tables.parts if len(part.scope) == 2)
    cells = sum(part.values.size for part in (*kept, *ties) if len(part.scope) == 2)
    if cells > min(MOST_GROWTH * before, MOST_CELLS):
        return reduction
    variables = tuple(map(Variable, _names(tables.problem, len(sizes)), sizes))
    extended = replace(
        tables,
        problem=Problem((*tables.problem.variables, *variables), (), name=tables.problem.name),
        parts=(*kept, *ties),
        constant=constant,
    )
    return replace(reduction, tables=extended)


def _names(problem: Problem, count: int) -> list[str]:
    """Names that are not in use in the problem."""
    candidates = (f"clique {number}" for number in itertools.count())
    return list(itertools.islice((name for name in candidates if name not in problem.number_by_name), count))


def _excluded(parts: Sequence[ScopeTable], start: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Pairs of values that functions over two variables forbid."""
    excluded = np.zeros((start[-1], start[-1]), dtype=bool)
    for part in parts:
        u, v = part.scope
        excluded[start[u] : start[u + 1], start[v] : start[v + 1]] = ~part.permitted
        excluded[start[v] : start[v + 1], start[u] : start[u + 1]] = ~part.permitted.T
    return excluded


def _kept(
    tables: ScopeTables, covered: NDArray[np.bool_], start: NDArray[np.int64]
) -> tuple[list[ScopeTable], int | float]:
    """Functions that cliques do not cover, and the constant plus the minimum cost of the covered ones."""
    kept, constant = [], tables.constant
    for part in tables.parts:
        if len(part.scope) == 2 and not part.permitted.all():
            u, v = part.scope
            within = covered[start[u] : start[u + 1], start[v] : start[v + 1]]
            if within[~part.permitted].all() and (part.values[part.permitted] == part.least).all():
                constant += part.least
                continue
        kept.append(part)
    return kept, constant


def _ties(
    cliques: Sequence[NDArray[np.int64]], start: NDArray[np.int64], owner: NDArray[np.int64]
) -> tuple[list[ScopeTable], list[int]]:
    """Functions between clique variables and the variables of their members, and the domain sizes of the former."""
    count, sizes, ties = len(start) - 1, [], []
    for number, members in enumerate(cliques):
        scope = distinct_values(owner[members]).tolist()
        sizes.append(len(scope))
        for place, v in enumerate(scope):
            is_member = np.zeros(int(start[v + 1] - start[v]), dtype=bool)
            is_member[members[owner[members] == v] - start[v]] = True
            permitted = is_member[:, None] == (np.arange(len(scope)) == place)
            ties.append(ScopeTable((v, count + number), np.zeros(permitted.shape, dtype=np.int64), permitted, 0))
    return ties, sizes


def _without_slack(
    cliques: Sequence[NDArray[np.int64]], scopes: Sequence[Sequence[int]], owner: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Cliques without slack, found greedily: as many cliques as variables, which together contain all values of these
    variables. scopes : sets of variables of which each two exclude values of one another."""
    holds = np.zeros((len(cliques), len(owner)), dtype=bool)
    for number, members in enumerate(cliques):
        holds[number, members] = True
    tight: set[int] = set()
    for scope in looked(scopes):
        is_open = np.isin(owner, scope)
        within = np.flatnonzero(~holds[:, ~is_open].any(axis=1))
        found: list[int] = []
        while is_open.any() and len(found) <= len(scope):
            gains = holds[within] @ is_open.astype(np.int64)
            if gains.max(initial=0) < 2:
                break
            best = int(within[np.argmax(gains)])
            found.append(best)
            is_open &= ~holds[best]
        # A value in none of them is a clique by itself.
        if len(found) + int(is_open.sum()) == len(scope):
            tight.update(found)
    return [cliques[number] for number in sorted(tight)]
