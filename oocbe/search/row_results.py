"""What the search by rows comes to where it goes before all else: a result, or what a plan says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.parts import LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.beam_search_scheduler import PAYS_SECONDS, BeamSearchScheduler
from oocbe.search.bounds_result import result_of_bounds
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds

EASY_SECONDS = 0.8
"""Time limit of a first attempt, in seconds, if elimination without bounds is fast."""

FEW_ROWS = 500_000.0
"""Predicted rows up to which elimination is over before a first attempt: a tenth of a second or two."""

PREPARATION_SECONDS = 1.0
"""Seconds that a plan's sample of rows may take beyond those of its order; a solve may take longer to prepare them."""

SAMPLE_SECONDS = 0.3
"""Time limit, in seconds, of the sample search from which a plan forecasts the searches."""


def is_wide(constraint: LinearConstraint, sizes: Sequence[int]) -> bool:
    """Whether a linear constraint is over more than a table is written out for."""
    from oocbe.bounds.row_tables import LARGEST_LINEAR

    return constraint.can_bind and math.prod(sizes[v] for v in constraint.scope) > LARGEST_LINEAR


def rows_to_come(problem: Problem, options: SolveOptions) -> str:
    """What a solve of a min-sum problem would begin with, by a sample of rows; empty where it tries none."""
    known = SharedBounds(problem, options.gap, lambda *_: None)
    rows = BeamSearchScheduler(problem, options, Deadline())
    rows.load()
    seconds = PREPARATION_SECONDS + options.order_seconds
    most = seconds if options.time_limit is None else min(seconds, options.time_limit)
    try:
        with Deadline(most):
            rows.first(known, lambda: None, SAMPLE_SECONDS, 0.0)
    except RequestedEndError:
        raise
    except TimeLimitError:
        if not rows.seconds:
            return f"rows with bounds of their own (a sample of them takes more than {most:.3g} s)"
    if not rows.seconds:
        return ""
    if known.is_closed:
        return f"rows with bounds of their own, which end it (a sample did, in {rows.seconds:.2g} s)"
    return f"rows with bounds of their own ({rows.forecast_summary or 'a sample did not come to any'})"


def opening_result(
    problem: Problem, rows: BeamSearchScheduler, options: SolveOptions, known: SharedBounds
) -> Result | None:
    """The result by a search depth first before anything else is looked for; None where there is more to do.

    Parameters
    ----------
    problem : as it was given. rows : of the same in min-sum. known : about the problem in min-sum, filled in.

    Raises
    ------
    TimeLimitError : the deadline came.
    """
    rows.load(is_opening=True)
    rows.open(known)
    return _closed_result(problem, rows, options, known, 0.0)


def result_by_rows(
    problem: Problem,
    rows: BeamSearchScheduler,
    choice: OrderChoice,
    options: SolveOptions,
    known: SharedBounds,
    order_seconds: float,
) -> Result | None:
    """The result by rows with bounds of their own before elimination that needs none; None where it is to go ahead.

    Parameters
    ----------
    problem : as it was given. rows : of the same in min-sum; where there is no result, they hold no memory after it.
    choice : the order of elimination. known : about the problem in min-sum, filled in.
    order_seconds : that the order took.
    """
    # What linear constraints add to rows is in no prediction: a search that promises to end goes on.
    is_foreseen = not any(is_wide(c, problem.sizes) for c in problem.linear_constraints)
    if is_foreseen and sum(choice.predicted_rows) <= FEW_ROWS:
        return None
    rows.load()
    with suppress(TimeLimitError):
        rows.first(known, lambda: None, EASY_SECONDS, 0.0 if is_foreseen else PAYS_SECONDS)
    rows.make_room(0)
    return _closed_result(problem, rows, options, known, order_seconds)


def _closed_result(
    problem: Problem, rows: BeamSearchScheduler, options: SolveOptions, known: SharedBounds, order_seconds: float
) -> Result | None:
    """The result where rows have closed a problem."""
    if not known.is_closed:
        return None
    statistics = Statistics()
    rows.tell(statistics)
    result = result_of_bounds(problem, options, known, statistics, value_dtype(problem, problem.semiring).name, "cpu")
    return replace(result, seconds={**statistics.seconds, "order": order_seconds, "rows": rows.seconds})
