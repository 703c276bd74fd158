"""Solves that begin with a hint: an assignment, perhaps of some variables only, as the first incumbent."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace

from oocbe.api.solving.solve import solve
from oocbe.api.solving.strategies import SHORTEST_LIMIT
from oocbe.elimination.observer import Observer
from oocbe.errors import LimitError, RequestedEndError, ResourceError, UsageError
from oocbe.formats.solutions import Hint, hint_of
from oocbe.model.problem import Problem
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.semiring import Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import unlimited

HINT_SECONDS = 10.0
"""Maximum time to complete a hint, in seconds, and at most a quarter of the time limit."""


def solve_from(hint: Hint, problem: Problem, options: SolveOptions, observer: Observer | None = None) -> Result:
    """Solve a problem, with the best assignment that has the values of a hint as the first incumbent.

    The problem with these values fixed is solved first, for a short time. A note of the result says what came of it.

    hint : see :func:`oocbe.formats.solutions.hint_of`. problem, options, observer : as for
        :func:`oocbe.api.solving.solve.solve`, as are the result and the errors.
    """
    given = hint_of(problem, hint)
    if not given:
        return solve(problem, options, observer)
    semiring, begin, limit = options.semiring or problem.semiring, time.perf_counter(), options.time_limit
    if not semiring.selects:
        raise UsageError(f"hint: the {semiring} semiring selects no assignment; leave it out")
    note = f"no assignment with the hint's values, of {len(given):,} of {len(problem.variables):,} variables, "
    seconds = HINT_SECONDS if limit is None else min(HINT_SECONDS, limit / 4)
    first: Result | None = None
    is_whole = len(given) == len(problem.variables)  # nothing to search for
    try:
        fixed = replace(options, workdir=None, resume=False, time_limit=None if is_whole else seconds)
        with unlimited() if is_whole else nullcontext():
            first = solve(problem.with_values(given), fixed)
        note += "was found" if first.status in UNPROVEN else "is feasible" if options.ub is None else "is below ub"
    except RequestedEndError:
        raise
    except (LimitError, ResourceError) as error:
        note += f"was found: {error}"
    if first is not None and first.status == "interrupted":
        whole = tuple(given[v] for v in range(len(problem.variables))) if is_whole and options.ub is None else None
        value = None if whole is None else problem.in_semiring(semiring).evaluate(whole)
        if first.assignment is None and value is not None:
            first = replace(first, value=value, assignment=whole)
        return replace(first, bound=None, notes=(*first.notes, "interrupted while the hint was completed"))
    known = None if first is None else first.assignment
    if first is not None and known is not None:
        note = f"the best assignment found with the hint's values has the value {first.value}"
        if options.workdir is None and _is_least(problem.in_semiring(semiring), first):
            result = replace(first, status="optimal", bound=None, notes=(*first.notes, note))
            if observer is not None:
                observer.finished(result)
            return result
    spent = time.perf_counter() - begin
    left = None if limit is None else max(SHORTEST_LIMIT, limit - spent)
    try:
        result = solve(problem, replace(options, time_limit=left), observer, known)
    except (LimitError, ResourceError) as error:
        if first is None or known is None:
            raise
        result = replace(first, status="limit", bound=None, notes=(*first.notes, str(error)))
    if first is not None and first.value is not None and result.status in UNPROVEN:
        choose = min if result.sense == "min" else max
        if result.value is None or result.value != choose(first.value, result.value):
            # A presolve has removed its values, or elimination alone has not used it.
            result = replace(result, value=first.value, assignment=known, schedule=first.schedule, linear=first.linear)
    seconds_of = {**result.seconds, "total": result.seconds.get("total", 0.0) + spent}
    return replace(result, notes=(*result.notes, note), seconds=seconds_of)


def _is_least(problem: Problem, found: Result) -> bool:
    """Whether each function has its best value at the assignment found, which then is optimal."""
    if problem.semiring.combination is not Combination.ADD:
        return False
    extremes = problem.extremes
    best = extremes.least if found.sense == "min" else extremes.greatest
    return sum(best.tolist(), problem.constant) == found.value
