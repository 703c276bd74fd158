"""The result of a solve whose problem is eliminated in one loop."""

from __future__ import annotations

import time
from dataclasses import replace

from oocbe.elimination.buckets.resources import memory_warning
from oocbe.elimination.narrow.narrow_problem import narrow_problem
from oocbe.elimination.outcome import result_of_elimination
from oocbe.elimination.row_pruning.dominance import applies_to
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.settings.machine import peak_memory
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, unlimited


def narrow_result(problem: Problem, options: SolveOptions) -> Result | None:
    """The result; None if the problem is unsuitable for one loop, or if time ran out and bounds are available.

    Raises
    ------
    TimeLimitError : the deadline of the current block passed. FloatRangeError : float64 cannot represent a value.
    FormatError : the file named by ``options.order`` is no order of this problem.
    """
    begin = time.perf_counter()
    try:
        with Deadline(options.time_limit):
            narrow = narrow_problem(problem, options)
            if narrow is None:
                return None
            outcome, assignment = narrow.solve()
    except RequestedEndError:
        raise
    except TimeLimitError:
        if applies_to(problem.semiring) and options.bounds == "auto":
            return None
        raise
    ended = time.perf_counter()
    order, dtype = tuple(narrow.order.tolist()), narrow.tables.values.dtype.name
    result = result_of_elimination(problem, options, outcome, order, dtype, assignment, "cpu")
    with unlimited():
        check_solution(problem, result.value, result.assignment, "elimination")
    seconds = {"order": narrow.order_seconds, "forward": ended - begin - narrow.order_seconds, "backward": 0.0}
    seconds["total"] = time.perf_counter() - begin
    notes = (*result.notes, *filter(None, [memory_warning(options)]))
    return replace(result, seconds=seconds, peak_memory_bytes=peak_memory(), notes=notes)
