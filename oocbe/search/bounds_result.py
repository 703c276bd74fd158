"""Conversion of a bounded search's outcome into a result."""

from __future__ import annotations

from oocbe.elimination.outcome import attempts_note, blank_result, linear_note, usage_note
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.model.problem import Problem
from oocbe.model.results.result import LinearHandling, Result, Status
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds


def result_of_bounds(
    problem: Problem, options: SolveOptions, known: SharedBounds, statistics: Statistics, backend: str
) -> Result:
    """The result without times and memory, after a bounded search of a min-sum problem (perhaps a negated one).

    Parameters
    ----------
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
            notes = (*notes[:-1], linear_note(problem))
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
    )
