"""The most probable explanation: the assignment, given evidence, whose product of values is the greatest.

Products are solved as sums of logarithms, which neither underflow nor keep bounds and dominance from working. The
answer's logarithm is that of a belief network's joint probability of assignment and evidence; for a Markov network it
is not normalised (subtract the task ``logz`` for that).

Sums of logarithms are rounded. So the assignment is optimal within a *tolerance*, which the result states: no other one
has a logarithm that is larger by more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.elimination.logarithms import in_logarithms
from oocbe.elimination.order import HEURISTICS, MANY_ROWS_A_SECOND, OrderChoice, longest_search, search_orders
from oocbe.elimination.ranges import rounding_margin
from oocbe.elimination.restrict import Restriction, restrict
from oocbe.elimination.solve import solve
from oocbe.errors import DiskError, ResourceError, TimeLimitError, UnsupportedError
from oocbe.options import SolveOptions
from oocbe.problem import Problem
from oocbe.pruning.incumbent import find_incumbent
from oocbe.result import Result
from oocbe.semiring import MAX_PRODUCT, Combination
from oocbe.tasks.result import TaskResult

LEAST_SECONDS = 0.01
"""What is left of a time limit once it has passed: enough to say what is known."""

LAST_ITERATIONS = 10_000
"""Of the search for an assignment where a time limit has left none: a moment."""

ELIMINATED_ROWS = 1 << 32
"""Predicted rows up to which elimination without bounds is tried first: minutes on two cores. On networks bounds close
slowly, as logarithms are no integers."""

BOUNDS_SHARE, LEAST_SHARE, LONG_ELIMINATION = 0.25, 0.25, 40.0
"""Bounds are tried before elimination for this part of what it is expected to take (of a time limit, or of so long at
most), where that is so many seconds: they close at once on some networks, such as proteins, and never on others."""

SHORT_PART, LONG_PART = 0.5, 0.85
"""When elimination ends, as a part of a time limit: bounds have the rest. The larger one with an assignment."""

if TYPE_CHECKING:
    from oocbe.observer import Observer


def most_probable_explanation(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The best assignment of a max-product or sum-product problem, with the natural logarithm of its value.

    Evidence is what unary constraints fix (:meth:`oocbe.problem.Problem.with_evidence`). Limits, bounds, run
    directories and errors are those of :func:`oocbe.elimination.solve.solve`.

    Raises
    ------
    UnsupportedError : values that are not multiplied, or negative ones.
    """
    semiring = problem.semiring
    if semiring.combination is not Combination.MULTIPLY or semiring.counts:
        raise UnsupportedError(
            f"{problem.name}: the task mpe is about factors that are multiplied, such as probabilities; the {semiring} "
            "semiring adds. Ask for the optimum"
        )
    logs = in_logarithms(problem.in_semiring(MAX_PRODUCT))
    options = replace(options, semiring=None)
    # Variables with one value left are none: evidence makes many, and orders are better without them.
    left = restrict(logs, ()) if options.order in ("auto", *HEURISTICS) else None
    if left is None or left.problem is None:
        result = _solve(logs, options, observer)
    else:
        result = _lifted(_solve(left.problem, options, observer), left)
    value = None if result.value is None else -float(result.value)
    return TaskResult(
        task="mpe",
        status="exact" if result.status == "optimal" else result.status,
        value=value,
        problem=problem.name,
        semiring=problem.semiring.name,
        variables=problem.variables,
        width=result.width,
        largest_message_rows=result.largest_message_rows,
        total_rows=result.total_rows,
        order=result.order,
        dtype=result.dtype,
        backend=result.backend,
        seconds={k: v for k, v in result.seconds.items() if k not in ("backward", "total")},
        peak_memory_bytes=result.peak_memory_bytes,
        assignments=() if result.assignment is None or value is None else ((value, result.assignment),),
        notes=result.notes,
        bound=None if result.bound is None else -float(result.bound),
        tolerance=rounding_margin(logs),
        evidence=_evidence(problem),
    )


def _lifted(result: Result, left: Restriction) -> Result:
    """The result with the original's variables; those with one value come first in the order."""
    order = tuple(left.variables[v] for v in result.order)
    fixed = sorted(set(range(len(left.original.variables))) - set(left.variables))
    assignment = None if result.assignment is None else left.lift(result.assignment)
    return replace(result, order=(*fixed, *order), assignment=assignment)


def _solve(logs: Problem, options: SolveOptions, observer: Observer | None) -> Result:
    """With bounds for a part of the time that elimination is expected to take, then by elimination, then with bounds.

    Elimination gives no bound where it does not end: it has a part of a time limit. What each way finds stays.
    """
    begin = time.monotonic()
    if options.bounds != "auto" or not logs.variables:
        return solve(logs, options, observer)
    limit = math.inf if options.time_limit is None else options.time_limit
    order_seconds = 0.0

    def left(of: float) -> float | None:
        """Time left of a part of the limit."""
        return None if limit == math.inf else max(LEAST_SECONDS, of * limit - (time.monotonic() - begin))

    def orders(longest: float) -> list[OrderChoice]:
        nonlocal order_seconds
        start, seconds = time.monotonic(), min(options.order_seconds, left(1.0) or math.inf)
        choices = search_orders(logs, options.order, seconds, options.seed, longest=longest)
        order_seconds += time.monotonic() - start
        return choices

    found: list[Result] = []
    choices = orders(0.0)
    share = BOUNDS_SHARE * min(sum(choices[0].predicted_rows) / MANY_ROWS_A_SECOND, limit, LONG_ELIMINATION)
    if share >= LEAST_SHARE:
        if options.workdir is None:  # a run directory belongs to one way of solving
            found.append(solve(logs, replace(options, time_limit=share), observer))
        if not _is_over(found):
            choices = orders(longest_search(options.order_seconds, left(1.0) or math.inf))
    is_elimination = sum(choices[0].predicted_rows) <= ELIMINATED_ROWS
    if is_elimination and not _is_over(found):
        is_found = any(r.value is not None for r in found)
        part = 1.0 if options.workdir is not None else LONG_PART if is_found else SHORT_PART
        try:
            found.append(solve(logs, replace(options, bounds="none", time_limit=left(part)), observer, choices))
        except DiskError:
            raise
        except (ResourceError, TimeLimitError):
            if options.workdir is not None:
                raise
    if not _is_over(found) and not (is_elimination and options.workdir is not None):
        found.append(solve(logs, replace(options, time_limit=left(1.0)), observer))
    last = _together(found)
    if last.status == "limit" and last.value is None and options.incumbent_seconds > 0:
        # Where time was too short even to begin a search: a little of it is worth being late.
        incumbent = find_incumbent(logs, math.inf, options.seed, iterations=LAST_ITERATIONS)
        if incumbent is not None:
            last = replace(last, value=incumbent.value, assignment=incumbent.assignment)
    return replace(last, seconds={**last.seconds, "order": last.seconds.get("order", 0.0) + order_seconds})


def _is_over(found: Sequence[Result]) -> bool:
    """Whether the last of several results leaves nothing to be found."""
    return bool(found) and found[-1].status != "limit"


def _together(found: Sequence[Result]) -> Result:
    """The last result, with the best bound and the best assignment of all where it is not the optimum."""
    last = found[-1]
    if _is_over(found):
        return last
    bounds = [r.bound for r in found if r.bound is not None]
    best = min((r for r in found if r.value is not None), key=lambda r: r.value or 0.0, default=last)
    return replace(last, value=best.value, assignment=best.assignment, bound=max(bounds, default=None))


def _evidence(problem: Problem) -> dict[str, str]:
    fixed = {}
    for c in problem.constraints:
        if len(c.scope) == 1 and c.allowed and len(c.tuples) == 1:
            variable = problem.variables[c.scope[0]]
            fixed[variable.name] = variable.label(int(c.tuples[0, 0]))
    return fixed
