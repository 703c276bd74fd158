"""Elimination of the whole reduced problem in one go, if all its tables are small.

A bucket of the engine takes a millisecond or two whatever its size: it is planned, laid out and joined, and its message
is stored. Chains, circuits and family trees have thousands of buckets of a few dozen cells each. Here their tables are
added directly, as in reduction (:mod:`oocbe.bounds.row_reduction`), in a tenth of that time; only the best values are
kept, a byte each.

Given an order, table sizes are bounded in advance: a table has at most as many cells as its variables have assignments.
"""

from __future__ import annotations

from oocbe.bounds.row_reduction import Reduction, eliminated
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.orders.elimination_speed import speed_of
from oocbe.elimination.orders.order import HEURISTICS
from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import check_deadline

CELLS_A_SECOND = 6e7
"""Cells added up per second. The engine is many times faster on a large bucket."""

BUCKET_SECONDS, BEGIN_SECONDS = 0.003, 0.25
"""Fixed time of a bucket of the engine, and of the preceding search and judgement of orders, in seconds."""

LARGEST = 1 << 24
"""Maximum cells of one function. Limits and signals are checked after each function."""

CELL_BYTES = 40
"""Working memory per cell, in bytes: the sum, the permitted flag, and copies of both."""

MOST_VARIABLES = 1 << 13
"""Maximum number of variables. Greedy orders of slightly more take a second."""

SEEDS = 2
"""Number of orders per heuristic. The order with the fewest cells is used."""


def eliminated_whole(reduction: Reduction, options: SolveOptions) -> Reduction:
    """The reduction after elimination of all variables but one.

    Unchanged if a table would be too large, if the engine would be as fast, if incomplete tables are requested, or if
    the problem is infeasible.

    Raises
    ------
    TimeLimitError : the deadline of the enclosing block came.
    """
    tables, memory = reduction.tables, message_memory(options)
    count = len(tables.problem.variables)
    if not 1 < count <= MOST_VARIABLES or tables.is_impossible or options.tables == INCOMPLETE:
        return reduction
    graph = ScopeGraph(tables.problem.name, [part.scope for part in tables.parts], tables.problem.sizes)
    spared = BEGIN_SECONDS + BUCKET_SECONDS * count
    most = spared / (1 / CELLS_A_SECOND - 1 / speed_of(options.backend).cells)
    best, fewest = None, min(most, memory)  # kept best values take a byte each
    for name in ("min-fill", "weighted-min-fill"):
        for seed in range(SEEDS):
            check_deadline()
            order = HEURISTICS[name](graph, seed, most)
            cells = graph.cells_along(order)
            if cells.max() <= min(LARGEST, memory // CELL_BYTES) and cells.sum() <= fewest:
                best, fewest = order, float(cells.sum())
    if best is None:
        return reduction
    whole = eliminated(reduction, best.tolist())
    return reduction if whole.tables.is_impossible else whole
