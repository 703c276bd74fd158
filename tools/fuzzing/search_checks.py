"""What searches prove and find: no bound above the best assignment, from subproblems or with neighbourhoods beside."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

from .bound_checks import Assignments, at_most, counted
from .descriptions import Description
from .outcome import Tally

if TYPE_CHECKING:
    from oocbe.model.problem import Problem

MOST_SLICES = 60
"""Of a search: it has proven what small problems leave to prove by then, and may end."""


def check_searches(problem: Problem, every: Assignments, own: Assignments, case: Description, tally: Tally) -> None:
    """Searches of what reduction leaves of a problem below its upper bound.

    every, own : feasible assignments, and those that count.
    """
    from oocbe.bounds.row_reduction import reduced
    from oocbe.bounds.row_tables import ScopeTables
    from oocbe.model.settings.option_values import Gap
    from oocbe.runtime.deadline import Deadline
    from oocbe.search import depth_search, subproblems
    from oocbe.search.depth_search import DepthSearch
    from oocbe.search.neighbourhoods import Neighbourhoods
    from oocbe.search.subproblems import SubproblemSearch
    from oocbe.search.subsolver import SharedBounds

    tables = ScopeTables.of(problem)
    if tables is None or not problem.sizes:
        return
    random = Random(f"{case['chance']} searches")
    reduction = reduced(tables)
    given = reduction if random.random() < 0.5 else None
    below = problem.upper_bound
    # Floats are valued exactly here, and added up there.
    slack = 0 if tables.is_integral else counted(4 * tables.rounding, own.unit)

    def told(lower: float | None, value: float | None, why: str, assignment: object) -> None:
        if lower is None or (own.best is None and below is None):
            return
        limit = min(counted(x, own.unit) for x in (below,) if x is not None) if below is not None else math.inf
        least = min(math.inf if own.best is None else own.best, limit)
        tally.holds(f"{why}: a bound", at_most(lower, int(least) + slack, own.unit), least, lower)

    bits = {"FIRST_BITS": random.uniform(1.0, 6.0), "MORE_BITS": random.uniform(0.5, 4.0)}
    with mock.patch.multiple(subproblems, **bits, MOST_LINES=random.choice((1, 3))):
        chosen = tables if given is None else given.tables
        parts = SubproblemSearch(chosen, SharedBounds(problem, Gap(), told), 1 << 24)
        for _ in range(MOST_SLICES):
            if parts.is_over:
                break
            parts.work(0.0, Deadline())
    forced = {
        "ALONE_SECONDS": 0.0,
        "LOOK_SECONDS": 0.0,
        "CALL_SECONDS": 1e-4,
        "NARROWER": random.choice((0.0, 0.5, 1.0)),
    }
    with mock.patch.multiple(depth_search, **forced):
        known = SharedBounds(problem, Gap(), told)
        made = DepthSearch(reduction, known, 1 << 24)
        near = Neighbourhoods(made, known)
        while not made.is_over:
            made.work(0.0, Deadline())
            if near.is_available:
                near.work(1e-4, Deadline())
    if known.assignment is not None:
        # By the problem's own sums it counts, which near a threshold differ from the exact ones by rounding.
        value, counts = every.value_of(known.assignment), problem.evaluate(known.assignment) is not None
        tally.holds("a search with neighbourhoods: an assignment", counts, "one that counts", known.assignment)
        if value is not None and own.best is not None:
            tally.holds("a search with neighbourhoods: the optimum", value <= own.best + slack, own.best, value)
    else:
        is_none = own.best is None or bool(slack)
        tally.holds("a search with neighbourhoods: none", is_none, own.best, None)
