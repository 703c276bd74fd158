"""The most probable explanation: the assignment with the greatest product of values, given evidence.

Products are solved as sums of logarithms, which do not underflow, and permit bounds and dominance. For a belief
network, the logarithm in the answer is that of the joint probability of assignment and evidence; for a Markov network
it is not normalised (subtract the result of the task ``logz``).

Sums of logarithms are rounded. So the assignment is optimal within a *tolerance*, stated in the result: no other
assignment exceeds its logarithm by more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.api.solving.solve import solve
from oocbe.api.tasks.result import task_result
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import MAX_PRODUCT, Combination
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


def most_probable_explanation(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The best assignment of a max-product or sum-product problem, with the natural logarithm of its value.

    Unary constraints are evidence (:meth:`oocbe.model.problem.Problem.with_evidence`). Limits, bounds, run
    directories and errors are those of :func:`oocbe.api.solving.solve.solve`.

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
    result = solve(logs, options, observer)
    check_solution(logs, result.value, result.assignment, "elimination")
    value = None if result.value is None else -float(result.value)
    shared = ("width", "largest_message_rows", "total_rows", "order", "dtype", "backend", "notes", "presolve")
    return task_result(
        "mpe",
        problem,
        status="exact" if result.status == "optimal" else result.status,
        value=value,
        **{name: getattr(result, name) for name in shared},
        seconds={k: v for k, v in result.seconds.items() if k not in ("backward", "total", "compiling")},
        assignments=() if result.assignment is None or value is None else ((value, result.assignment),),
        bound=None if result.bound is None else -float(result.bound),
        tolerance=rounding_margin(logs),
    )
