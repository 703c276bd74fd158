"""The result of a solve whose problem is eliminated in one loop."""

from __future__ import annotations

import time
from dataclasses import replace

from oocbe.elimination.narrow.narrow_problem import narrow_problem
from oocbe.elimination.search.outcome import result_of_elimination
from oocbe.model.problem import Problem
from oocbe.results.result import Result
from oocbe.settings.options import SolveOptions


def narrow_result(problem: Problem, options: SolveOptions) -> Result | None:
    """Everything but memory; None where the problem is not for one loop.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came. FloatRangeError : a value that float64 does not
        hold. FormatError : the file named by ``options.order`` is no order of this problem.
    """
    begin = time.perf_counter()
    narrow = narrow_problem(problem, options)
    if narrow is None:
        return None
    outcome, assignment = narrow.solve()
    order, dtype = tuple(narrow.order.tolist()), narrow.tables.values.dtype.name
    result = result_of_elimination(problem, narrow.semiring, options, outcome, order, dtype, assignment, "cpu")
    taken = time.perf_counter() - begin
    seconds = {"order": narrow.order_seconds, "forward": taken - narrow.order_seconds, "backward": 0.0}
    return replace(result, seconds=seconds)
