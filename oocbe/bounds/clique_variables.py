"""Variables that say which of several values of others is taken, where exactly one of these is.

Hard constraints between pairs of variables often come from something larger: some variables are a permutation, each
symbol of a Latin square is in each row once. A bound that looks at one function at a time sees none of that: three
variables with two values left, all different, look possible to it. Values that exclude one another are a *clique* of
the graph of such pairs: an assignment has one of them at most. Where the values of some variables lie in as many
cliques as there are variables, it has exactly one of each (a *Hall set* without slack). Such a clique gets a variable
of its own here, whose value is the variable that takes one of the clique's. A function ties it to each of these, and
takes the place of the functions between them. What dual ascent moves over these functions is the linear program of the
assignment problem, and which variable has a value is there to branch on, beside which value a variable has (Cheng,
Choi, Lee and Wu 1999, *Increasing constraint propagation by redundant modeling*).

That nothing is lost: each assignment that is possible has exactly one value of each clique's variable, and costs as
much with it.

Cliques with slack, whose variables need a value for none of them, made the bound of dual ascent no better on queens'
diagonals, jobs of one machine and radio links, and its passes take longer. Neither do cliques pay that leave most of
the pairs to the functions there were, as the queens' columns do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.cliques import bit_matrix, covering_cliques
from oocbe.bounds.row_reduction import Reduction
from oocbe.bounds.row_tables import MOST_CELLS, Table, Tables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline

MOST_VALUES = 1 << 12
"""Of all variables, at most: a matrix has a place for each pair."""

LEAST_VARIABLES = 3
"""Of which cliques have all values: what two say is what their function does."""

LEAST_COVERED = 0.5
"""Part of the pairs that hard constraints forbid which lies in cliques."""

MOST_GROWTH = 8.0
"""Cells of all functions over two variables, in times what there were."""


@dataclass(frozen=True)
class CliqueReduction(Reduction):
    """What is left of a problem, with variables of cliques behind those that are left."""

    @property
    def summary(self) -> str:
        """What is left, for a result."""
        sizes, count = self.tables.problem.sizes, len(self.variables)
        return (
            f"{count:,} of {len(self.sizes):,} variables and {sum(sizes[:count]):,} of {sum(self.sizes):,} values, "
            f"with {len(sizes) - count:,} cliques of them"
        )

    def complete(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The assignment of all variables that costs what one of those left does."""
        return super().complete(assignment[: len(self.variables)])

    def restricted(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """What an assignment of all variables gives to those left; -1 where its value is gone, and for cliques."""
        found = super().restricted(assignment)
        return (*found, *[-1] * (len(self.tables.problem.sizes) - len(found)))


def with_clique_variables(reduction: Reduction) -> Reduction:
    """What is left of a problem with variables of cliques, where these say much; else as it is.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came.
    """
    tables = reduction.tables
    excluding = [part for part in tables.parts if len(part.scope) == 2 and not part.permitted.all()]
    start = starts_of(tables.problem.sizes)
    if len(excluding) < LEAST_VARIABLES or start[-1] > MOST_VALUES or tables.is_impossible:
        return reduction
    excluded = _excluded(excluding, start)
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    adjacent = excluded | (owner[:, None] == owner[None])
    np.fill_diagonal(adjacent, False)
    cliques = [np.array(c) for c in covering_cliques(bit_matrix(adjacent), bit_matrix(excluded))]
    cliques = _without_slack(cliques, excluded, start, owner)
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
    return CliqueReduction(extended, reduction.variables, reduction.steps, reduction.sizes)


def _names(problem: Problem, count: int) -> list[str]:
    """Names that no variable of the problem has."""
    candidates = (f"clique {number}" for number in itertools.count())
    return list(itertools.islice((name for name in candidates if name not in problem.number_by_name), count))


def _excluded(parts: Sequence[Table], start: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Pairs of values that functions over two variables forbid."""
    excluded = np.zeros((start[-1], start[-1]), dtype=bool)
    for part in parts:
        u, v = part.scope
        excluded[start[u] : start[u + 1], start[v] : start[v + 1]] = ~part.permitted
        excluded[start[v] : start[v + 1], start[u] : start[u + 1]] = ~part.permitted.T
    return excluded


def _kept(tables: Tables, covered: NDArray[np.bool_], start: NDArray[np.int64]) -> tuple[list[Table], int | float]:
    """The functions that say more than cliques do, and what the others cost in any case, with the constant."""
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
) -> tuple[list[Table], list[int]]:
    """Functions between cliques' variables and those that have their values, and the domains of the former."""
    count, sizes, ties = len(start) - 1, [], []
    for number, members in enumerate(cliques):
        scope = np.unique(owner[members]).tolist()
        sizes.append(len(scope))
        for place, v in enumerate(scope):
            is_member = np.zeros(int(start[v + 1] - start[v]), dtype=bool)
            is_member[members[owner[members] == v] - start[v]] = True
            permitted = is_member[:, None] == (np.arange(len(scope)) == place)
            ties.append(Table((v, count + number), np.zeros(permitted.shape, dtype=np.int64), permitted, 0))
    return ties, sizes


def _without_slack(
    cliques: Sequence[NDArray[np.int64]],
    excluded: NDArray[np.bool_],
    start: NDArray[np.int64],
    owner: NDArray[np.int64],
) -> list[NDArray[np.int64]]:
    """Those cliques of which any assignment has a value, as far as they are found: as many as variables, with all
    values of these."""
    linked = np.logical_or.reduceat(np.logical_or.reduceat(excluded, start[:-1], axis=0), start[:-1], axis=1)
    holds = np.zeros((len(cliques), len(owner)), dtype=bool)
    for number, members in enumerate(cliques):
        holds[number, members] = True
    tight: set[int] = set()
    for scope in covering_cliques(bit_matrix(linked)):
        check_deadline()
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
        # A value that is in none of them is a clique by itself.
        if len(found) + int(is_open.sum()) == len(scope) >= LEAST_VARIABLES:
            tight.update(found)
    return [cliques[number] for number in sorted(tight)]
