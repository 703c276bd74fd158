"""Elimination of the whole reduced problem in one go, if all its tables are small.

A bucket of the engine takes a millisecond or two whatever is in it: it is planned, laid out, joined in the form that
suits it, and its message is kept where it fits. Chains, circuits and family trees have thousands of buckets of a few
dozen cells each. Their tables are added up as they lie, as those of variables are that go at no cost
(:mod:`oocbe.bounds.row_reduction`), which takes a tenth of that; only the best values are kept, a byte each.

Whether all tables are small is known for sure once there is an order: they have no more cells than their variables have
assignments.
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
    """What is left when all variables but one are eliminated.

    The same as before where a table would be too large, where the engine would be as fast, and where rows are asked for
    or nothing is feasible.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came.
    """
    tables, memory = reduction.tables, message_memory(options)
    count = len(tables.problem.variables)
    if not 1 < count <= MOST_VARIABLES or tables.is_impossible or options.tables == INCOMPLETE:
        return reduction
    graph = ScopeGraph(tables.problem.name, [part.scope for part in tables.parts], tables.problem.sizes)
    spared = BEGIN_SECONDS + BUCKET_SECONDS * count
    most = spared / (1 / CELLS_A_SECOND - 1 / speed_of(options.backend).cells)
    best, fewest = None, min(most, memory)  # the best values that are kept are a byte each
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
