"""Expected counts of each row of each function over many cases.

They are the sums in the expectation step of learning with incomplete data (Lauritzen 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError
from oocbe.junction_trees.case_sweeps import CaseSweep
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import Cases
from oocbe.junction_trees.stored.answers import sweep_stored
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
    shapes = [[problem.sizes[v] for v in f.scope] for f in problem.functions]
    for shape in shapes:
        if math.prod(shape) > MOST_CELLS:
            raise LimitError(
                f"{problem.name}: counts of a function over {len(shape)} variables have {math.prod(shape):.3g} "
                f"numbers, more than {MOST_CELLS:,}"
            )
    counts = [np.zeros(shape) for shape in shapes]
    if not tree.is_possible:
        return counts, np.full(len(cases), -np.inf)
    home = {v: number for number, clique in enumerate(tree.cliques) for v in clique.own}
    place = {v: i for i, v in enumerate(tree.order)}
    functions: dict[int, list[int]] = {}  # by the clique that covers the scope; -1: no variables
    for number, f in enumerate(problem.functions):
        functions.setdefault(home[min(f.scope, key=place.__getitem__)] if f.scope else -1, []).append(number)

    def add(clique: int, values: Callable[[int], NDArray[Any]], expected: NDArray[np.float64]) -> None:
        """Add the probabilities of rows of a clique; ``values``: of a variable in each of them."""
        for number in functions[clique]:
            index = np.zeros(len(expected), dtype=np.int64)
            for v in problem.functions[number].scope:
                index = index * problem.sizes[v] + values(v)
            counts[number].reshape(-1)[:] += np.bincount(index, expected, counts[number].size)

    covering = functions.keys() - {-1}
    if isinstance(tree, StoredTree):
        _, logarithms = sweep_stored(tree, cases, (), {c: partial(_add_piece, add, c) for c in covering})
    else:
        expected = np.zeros(tree.total_rows)
        sweep = CaseSweep(tree, cases, (), expected=expected, rows_of=covering)
        sweep.run()
        logarithms = sweep.logarithms
        for clique in covering:
            first, last = tree.arrays.row_start[clique : clique + 2]
            add(clique, partial(tree.values, clique), expected[first:last])
    for number in functions.get(-1, ()):
        counts[number] += float(np.isfinite(logarithms).sum())
    return counts, logarithms


def _add_piece(add: Callable[..., None], clique: int, piece: PieceRows, expected: NDArray[np.float64]) -> None:
    add(clique, piece.values, expected)
