"""The most probable explanation: the assignment, given evidence, whose product of values is the greatest.

Products are solved as sums of logarithms, which neither underflow nor keep bounds and dominance from working. The
answer's logarithm is that of a belief network's joint probability of assignment and evidence; for a Markov network it
is not normalised (subtract the task ``logz`` for that).

Sums of logarithms are rounded. So the assignment is optimal within a *tolerance*, which the result states: no other one
has a logarithm that is larger by more.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.elimination.logarithms import in_logarithms
from oocbe.elimination.order import search_orders
from oocbe.elimination.ranges import rounding_margin
from oocbe.elimination.solve import solve
from oocbe.errors import DiskError, ResourceError, TimeLimitError, UnsupportedError
from oocbe.options import SolveOptions
from oocbe.problem import Problem
from oocbe.result import Result
from oocbe.semiring import MAX_PRODUCT, Combination
from oocbe.tasks.result import TaskResult

LEAST_SECONDS = 0.01
"""What is left of a time limit once it has passed: enough to say what is known."""

ELIMINATED_ROWS = 1 << 30
"""Predicted rows up to which elimination without bounds is tried first. On networks bounds close slowly, as logarithms
are no integers, while dominance leaves about a hundredth of the predicted rows: pedigree23 of the UAI competition is
predicted 370 million, has 4 million and takes 24 s on two cores, where bounds have not closed in a minute."""

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
    result = _solve(logs, replace(options, semiring=None), observer)
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


def _solve(logs: Problem, options: SolveOptions, observer: Observer | None) -> Result:
    """By elimination alone where it is expected to end, else with bounds; as the options say where they do.

    Elimination has half of a time limit, since it gives no bound where it does not end.
    """
    begin = time.monotonic()
    if options.bounds != "auto" or not logs.variables:
        return solve(logs, options, observer)
    seconds = min(options.order_seconds, options.time_limit or options.order_seconds)
    choice = search_orders(logs, options.order, seconds, options.seed)[0]
    if sum(choice.predicted_rows) > ELIMINATED_ROWS:
        return solve(logs, options, observer)
    if options.workdir is not None:  # a run directory belongs to one way of solving
        return solve(logs, replace(options, bounds="none"), observer)
    limit = options.time_limit
    first: Result | None = None
    try:
        first = solve(logs, replace(options, bounds="none", time_limit=None if limit is None else limit / 2), observer)
    except DiskError:
        raise
    except (ResourceError, TimeLimitError):
        pass
    if first is not None and first.status != "limit":
        return first
    left = None if limit is None else max(LEAST_SECONDS, limit - (time.monotonic() - begin))
    second = solve(logs, replace(options, time_limit=left), observer)
    if first is None or first.value is None or (second.value is not None and second.value <= first.value):
        return second
    return replace(second, value=first.value, assignment=first.assignment)


def _evidence(problem: Problem) -> dict[str, str]:
    fixed = {}
    for c in problem.constraints:
        if len(c.scope) == 1 and c.allowed and len(c.tuples) == 1:
            variable = problem.variables[c.scope[0]]
            fixed[variable.name] = variable.label(int(c.tuples[0, 0]))
    return fixed
