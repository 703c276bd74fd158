"""Results of bounded searches, and results and forecasts of searches over rows that run before all other solvers."""

from __future__ import annotations

import math
from dataclasses import replace

from oocbe.elimination.outcome import attempts_note, blank_result, linear_note, usage_note
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import LinearHandling, Result, Status
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.searches import Searches
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import Statistics

FEW_ROWS = 500_000.0
"""Predicted rows up to which elimination finishes before a first attempt: 0.1 to 0.2 s."""

PREPARATION_SECONDS = 1.0
"""Time limit of the sample of a plan beyond that of its order search, in seconds; preparation in a solve may take
longer."""

SAMPLE_SECONDS = 0.3
"""Time limit, in seconds, of the sample search from which a plan forecasts the searches."""


def rows_to_come(problem: Problem, options: SolveOptions) -> str:
    """Forecast of the first searches of a min-sum problem, from a sample; empty if a solve would make none."""
    known = SharedBounds(problem, options.gap, lambda *_: None)
    rows = Searches(problem, options, known, Deadline())
    rows.load()
    seconds = PREPARATION_SECONDS + options.order_seconds
    most = seconds if options.time_limit is None else min(seconds, options.time_limit)
    try:
        with Deadline(most):
            rows.first(SAMPLE_SECONDS)
    except RequestedEndError:
        raise
    except TimeLimitError:
        if not rows.seconds:
            return f"depth-first search (a sample of it takes more than {most:.3g} s)"
    if not rows.seconds:
        return ""
    if known.is_closed:
        return f"depth-first search, which ends it (a sample did, in {rows.seconds:.2g} s)"
    if rows.expected < math.inf:
        return f"depth-first search ({rows.expected:.2g} s expected)"
    return f"depth-first search (a sample of {rows.seconds:.2g} s did not show how long it takes)"


def opening_result(problem: Problem, rows: Searches, options: SolveOptions, known: SharedBounds) -> Result | None:
    """The result of depth-first search before all other solvers; None if it does not close the problem.

    problem : the original one. rows : of the problem in min-sum. known : bounds in min-sum, updated.
    Raises TimeLimitError: the deadline came.
    """
    rows.load()
    rows.open()
    if not known.is_closed:
        return None
    statistics = Statistics()
    rows.report(statistics)
    result = result_of_bounds(problem, options, known, statistics, "cpu")
    return replace(result, seconds={**statistics.seconds, "rows": rows.seconds})


def result_of_bounds(
    problem: Problem, options: SolveOptions, known: SharedBounds, statistics: Statistics, backend: str
) -> Result:
    """The result without times and memory, after a bounded search of a min-sum problem (perhaps a negated one).

    problem : the original problem, in its own semiring. known, statistics : of the solved problem.
    """
    sign = 1 if problem.semiring.marginalisation is Marginalisation.MIN else -1
    value, bound, assignment = known.value, known.lower, known.assignment
    status: Status = "limit"
    if known.is_closed:
        bound = None
        status = "optimal"
        if value is None:
            status, bound = ("infeasible", None) if options.ub is None else ("nothing-better", options.ub)
    notes: tuple[str, ...] = ()
    if statistics.attempts:
        notes += (attempts_note(statistics.attempts),)
    if status == "limit":
        notes += (statistics.stopped or f"ended within the gap of {options.gap}",)
    handling: LinearHandling = "none"
    if problem.linear_constraints:
        handling = "enforced"
        if status == "limit" and statistics.spoiled:
            handling = "relaxed"
            notes = (*(notes if statistics.stopped else notes[:-1]), linear_note(problem))
        elif assignment is not None and usage_note(problem, assignment):
            notes += (usage_note(problem, assignment),)
    return blank_result(
        problem,
        options,
        status,
        backend,
        value=None if value is None else sign * value,
        bound=None if bound is None else (bound if status == "nothing-better" else sign * bound),
        assignment=assignment,
        width=statistics.width,
        order=statistics.order,
        largest_message_rows=statistics.largest_rows,
        total_rows=statistics.total_rows,
        dtype=statistics.dtype or value_dtype(problem, problem.semiring).name,
        linear_constraints=handling,
        notes=notes,
        bounds=statistics.bounds,
        solvers=statistics.solvers,
    )
