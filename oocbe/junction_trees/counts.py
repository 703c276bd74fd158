"""Expected counts of each row of each function over many cases.

They are the sums in the expectation step of learning with incomplete data (Lauritzen 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError
from oocbe.junction_trees.case_sweeps import CaseSweep
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import Cases
from oocbe.junction_trees.stored.answers import count_rows, sweep_stored
from oocbe.junction_trees.stored.pieces import PieceRows
from oocbe.junction_trees.stored.tree import StoredTree

MOST_CELLS = 1 << 27
"""Maximum number of cells of one function's array of counts, which is one GiB."""


def expected_counts(
    tree: CompiledTree | StoredTree, cases: Cases
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """For each of the problem's functions the expected number of possible cases with each assignment of its scope.

    Returns
    -------
    counts : float64, an axis for each variable of the function's scope, in its order.
    logarithms : float64 (cases,), of each case's evidence; cases with -inf are not counted.

    Raises
    ------
    LimitError : a function over more than :data:`MOST_CELLS` cells.
    """
    problem = tree.problem
    for f in problem.functions:
        cells = math.prod(problem.sizes[v] for v in f.scope)
        if cells > MOST_CELLS:
            raise LimitError(
                f"{problem.name}: counts of a function over {len(f.scope)} variables have {cells:.3g} numbers, "
                f"more than {MOST_CELLS:,}"
            )
    if not tree.is_possible:
        none = np.full(len(cases), -np.inf)
        return [np.zeros([problem.sizes[v] for v in f.scope]) for f in problem.functions], none
    cliques = tree.cliques
    home = {v: number for number, clique in enumerate(cliques) for v in clique.own}
    place = {v: i for i, v in enumerate(tree.order)}
    of = [home[min(f.scope, key=place.__getitem__)] if f.scope else -1 for f in problem.functions]
    if isinstance(tree, StoredTree):
        return _stored_counts(tree, cases, of)
    expected = np.zeros(tree.total_rows)
    sweep = CaseSweep(tree, cases, (), expected=expected, rows_of=set(of) - {-1})
    sweep.run()
    counts = []
    for f, clique in zip(problem.functions, of, strict=True):
        shape = [problem.sizes[v] for v in f.scope]
        if clique < 0:
            counts.append(np.array(float(np.isfinite(sweep.logarithms).sum())))
            continue
        first, last = tree.arrays.row_start[clique : clique + 2]
        index = np.zeros(last - first, dtype=np.int64)
        for v in f.scope:
            index = index * problem.sizes[v] + tree.values(clique, v)
        counts.append(np.bincount(index, expected[first:last], math.prod(shape)).reshape(shape))
    return counts, sweep.logarithms


def _stored_counts(
    tree: StoredTree, cases: Cases, of: Sequence[int]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Counts of a tree with rows on disk; ``of``: by function, the clique that covers its scope, -1 for none."""
    functions = tree.problem.functions
    counts = [np.zeros([tree.problem.sizes[v] for v in f.scope]) for f in functions]
    adding: dict[int, list[Callable[..., None]]] = {clique: [] for clique in set(of) - {-1}}
    for f, clique, own in zip(functions, of, counts, strict=True):
        if clique >= 0:
            adding[clique].append(count_rows(tree, f.scope, own))

    def add_all(clique: int, rows: PieceRows, expected: NDArray[np.float64]) -> None:
        for add in adding[clique]:
            add(rows, expected)

    counted = {clique: partial(add_all, clique) for clique in adding}
    _, logarithms = sweep_stored(tree, cases, (), counted)
    for clique, own in zip(of, counts, strict=True):
        if clique < 0:
            own += float(np.isfinite(logarithms).sum())
    return counts, logarithms
