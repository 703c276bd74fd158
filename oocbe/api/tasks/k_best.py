"""The k best assignments, from exact messages.

After the forward pass, the value of the best completion of a partial assignment of the variables eliminated last is
exact: the cost so far plus the messages' values. So the variables are assigned in reverse order, level by level, and
the k partial assignments with the best completions are kept. None of the k best is lost: for each dropped one, there
are k others with different completions that are at least as good. (Best-first search with such a heuristic, as in
Flerova, Marinescu and Dechter 2016, needs a queue and expands the same partial assignments one by one.)

The most probable explanation is the assignment with the greatest product of values, given evidence. Products are solved
as sums of logarithms, which do not underflow, and permit bounds and dominance. For a belief network, the logarithm in
the answer is that of the joint probability of assignment and evidence; for a Markov network it is not normalised
(subtract the result of the task ``logz``).

Sums of logarithms are rounded. So the assignment is optimal within a *tolerance*, stated in the result: no other
assignment exceeds its logarithm by more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.solving.solve import solve
from oocbe.api.tasks.result import finished, task_result
from oocbe.api.tasks.tables import Tables, best_products, compute_tables, gaps, multiplies_integers
from oocbe.elimination.buckets.buckets import BucketRows, Evaluated
from oocbe.elimination.observer import Observer
from oocbe.elimination.outcome import unscaled
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.elimination.preparation.ranges import INT64_LIMIT, rounding_margin
from oocbe.elimination.solution_check import check_solution, value_of_assignment
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import MAX_PRODUCT, Combination
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning


def k_best(problem: Problem, options: SolveOptions, k: int, observer: Observer | None = None) -> TaskResult:
    """The k best distinct assignments, best first; fewer where fewer are feasible.

    Each is evaluated by the problem itself. Floating-point sums that differ only by rounding may be in any order;
    equal values are in the order of the assignments.

    Raises errors of :func:`oocbe.api.tasks.tables.compute_tables`.
    """
    tables = compute_tables(problem, options, observer)
    with tables:
        found: list[tuple[int | float, float, tuple[int, ...]]] = []
        sign = -1 if problem.sense == "max" else 1
        if tables.outcome.value is not None:
            assignments, behind = _prefixes(tables, k)
            for assignment, gap in zip(assignments.tolist(), behind.tolist(), strict=True):
                value = problem.evaluate(assignment)
                if value in _OUTSIDE:  # perhaps only on the way
                    value = value_of_assignment(problem, assignment)
                if value is not None:  # else it is at or above the problem's upper bound
                    # Values beyond the range of float64 are all equal; their gaps are not.
                    found.append((sign * value, gap if value in _OUTSIDE else 0, tuple(assignment)))
        found.sort()
        if not found:
            return finished("kbest", problem, tables, None, status="infeasible")
        check_solution(problem, unscaled(tables.outcome, problem.semiring)[0], found[0][2], "elimination")
        best = tuple((sign * value, assignment) for value, _, assignment in found)
        outside = problem.semiring.combination is Combination.MULTIPLY and any(v in _OUTSIDE for v, _ in best)
        note = "products beyond the range of float64 are listed as 0 or inf, in order; mpe has the best's logarithm"
        return finished("kbest", problem, tables, best[0][0], assignments=best, notes=(note,) * outside)


_OUTSIDE = (0.0, math.inf, -math.inf)
"""Values of sums and products beyond the range of float64."""


def _prefixes(tables: Tables, k: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The k assignments with the smallest gaps to the optimum, int64 (at most k, variables), and these gaps.

    Each bucket selects among the partial assignments. To select among all their columns, too, would take time quadratic
    in the variables. So columns are in blocks of about the square root of their number. Only the block being filled is
    selected from; for a full one, ``origin`` has the row that each partial assignment came from.
    """
    buckets = tables.outcome.buckets
    width = math.isqrt(len(buckets)) + 1
    full: list[NDArray[np.int64]] = []
    origin, block = np.zeros((1, 0), dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
    place = {bucket.variable: divmod(number, width) for number, bucket in enumerate(reversed(buckets))}
    tables.store.free_device_memory()
    behind: NDArray[Any] = np.zeros(1, dtype=_gap_dtype(tables))

    def column(v: int) -> NDArray[np.int64]:
        number, own = place[v]
        return full[number][origin[:, number], own] if number < len(full) else np.ascontiguousarray(block[:, own])

    for bucket in reversed(buckets):
        tables.deadline.check()
        columns = {v: column(v) for v in bucket.separator}
        most = int(tables.store.memory_limit * tuning().quarter_share)
        tables.store.list_rows([m for m in bucket.messages if m.is_complete and m.listed_bytes > most])
        evaluated = BucketRows(tables.prepared, bucket).evaluate(columns, len(block))
        totals = _behind(tables, behind, evaluated)
        rows, values = np.nonzero(evaluated.feasible)
        totals = totals[rows, values]
        if len(totals) > k:
            keep = np.sort(np.argsort(totals, kind="stable")[:k])
            rows, values, totals = rows[keep], values[keep], totals[keep]
        origin, block, behind = origin[rows], np.column_stack([block[rows], values]), totals
        if block.shape[1] == width:
            full.append(block)
            origin, block = np.column_stack([origin, np.arange(len(block))]), block[:, :0]
    chosen = np.empty((len(block), len(tables.prepared.problem.variables)), dtype=np.int64)
    for v in place:
        chosen[:, v] = column(v)
    return chosen, behind


def _gap_dtype(tables: Tables) -> np.dtype[Any]:
    if tables.prepared.dtype.kind == "f":
        return np.dtype(np.float64)
    assert tables.outcome.value is not None
    fits = not multiplies_integers(tables.prepared) or tables.outcome.value <= INT64_LIMIT
    return np.dtype(np.int64 if fits else object)


def _behind(tables: Tables, behind: NDArray[Any], evaluated: Evaluated) -> NDArray[Any]:
    """Gap to the optimum of the best completion with each value, from the gap of its partial assignment.

    Products of integers exchange one factor: the completion's value is a multiple of its row's best value.
    """
    if not multiplies_integers(tables.prepared):
        found: NDArray[Any] = behind[:, None] + gaps(tables, evaluated)
        return found
    assert tables.outcome.value is not None
    prefixes = tables.outcome.value - behind
    factors = np.where(evaluated.feasible, evaluated.values, 0)
    products: NDArray[Any] = tables.outcome.value - prefixes[:, None] // best_products(evaluated) * factors
    return products


def most_probable_explanation(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The best assignment of a max-product or sum-product problem, with the natural logarithm of its value.

    Unary constraints are evidence (:meth:`oocbe.model.problem.Problem.with_evidence`). Limits, bounds, run
    directories and errors are those of :func:`oocbe.api.solving.solve.solve`.

    Raises UnsupportedError: negative values.
    """
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
