"""Partition functions and marginals at a temperature, and min-marginals.

At temperature T an assignment of cost c has weight exp(-c / T), one of utility u exp(u / T), one of product p p^(1/T).
At infinite temperature all feasible assignments have equal weight: marginals are then shares of the count. All
computations use logarithms (log-sum-exp), so that nothing exceeds the range of float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.questions import problem_of_task
from oocbe.api.tasks.result import finished, finished_by_tree, never_of, with_values
from oocbe.api.tasks.tables import compute_tables, descend, gaps
from oocbe.elimination.buckets.buckets import Bucket, Evaluated
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.observer import Observer
from oocbe.elimination.orders.order import is_order_file
from oocbe.elimination.plan.plan import plan_for
from oocbe.elimination.preparation.upper_bound import without_upper_bound
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.junction_trees.compiled import find_order, tree_of
from oocbe.junction_trees.query_elimination.answer import QueryAnswer, large_cost, making_seconds
from oocbe.junction_trees.query_elimination.factors import written_out
from oocbe.junction_trees.query_engine import Calibration
from oocbe.junction_trees.support import ROW_BYTES, Clique
from oocbe.kernels.choice import cuda_works
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.value_removal import ReducedProblem, remove_values
from oocbe.runtime.deadline import Deadline


def log_partition(
    problem: Problem, options: SolveOptions, temperature: float = 1.0, observer: Observer | None = None
) -> TaskResult:
    """Natural logarithm of the sum of all feasible assignments' weights at a temperature (see the module).

    Raises UsageError: a temperature that is not above 0; UnsupportedError: a factor of a product is negative; else as
    for :func:`oocbe.api.tasks.tables.compute_tables`.
    """
    energies = problem_of_task("logz", problem, temperature)
    found = _partition_by_factors(problem, energies, options, temperature)
    if found is not None:
        return found
    tables = compute_tables(energies, options, observer, carries=True)
    with tables:
        if tables.outcome.value is None:
            return finished("logz", problem, tables, -math.inf, status="infeasible", temperature=temperature)
        return finished("logz", problem, tables, float(tables.outcome.value), temperature=temperature)


def _partition_by_factors(
    problem: Problem, energies: Problem, options: SolveOptions, temperature: float
) -> TaskResult | None:
    """The partition function from dense factors: their products and sums need no logarithm for each joined cell.

    None if tables are likely to be cheaper or are requested: where factors have zeros, and an answer takes longer than
    the search for an order; where a clique does not fit the memory.
    """
    if options.tables != "auto" or options.order != "auto" or options.backend == "cuda" or options.has_workers:
        return None
    begin = time.perf_counter()
    with Deadline(options.time_limit):
        left = remove_values(energies, ())
        factors = None if left.is_infeasible else written_out(left.problem)
        if factors is None:
            return None
        answer = QueryAnswer.of(left.problem)
        has_zeros = any(least == 0.0 for least, _ in factors.ends)
        seconds = answer.seconds((), message_memory(options))
        if math.isinf(seconds) or (has_zeros and seconds > options.order_seconds):
            return None
        backend = "cuda" if options.backend == "auto" and cuda_works(wanted=False) else "cpu"
        return _by_parts("logz", problem, left, answer, (), begin, temperature, backend)


def marginals(
    problem: Problem, options: SolveOptions, temperature: float = 1.0, observer: Observer | None = None
) -> TaskResult:
    """Probability of each value of each variable at a temperature, and the partition function; errors as above.

    It uses a junction tree, on the CPU, if its cliques fit the memory; else the backward pass over the messages, which
    may be on disk.
    """
    energies = problem_of_task("marginals", problem, temperature)
    found_by_tree = _marginals_by_tree(problem, energies, options, temperature, observer)
    if isinstance(found_by_tree, TaskResult):
        return found_by_tree
    tables = compute_tables(energies, options, observer, known=found_by_tree)
    found = [np.zeros(size) for size in problem.sizes]

    def share(bucket: Bucket, _: NDArray[np.int64], weights: NDArray[Any], evaluated: Evaluated) -> NDArray[Any]:
        logs = np.where(evaluated.feasible, evaluated.values, -np.inf)
        odds = np.exp(logs - logs.max(axis=1)[:, None])
        shares: NDArray[Any] = weights[:, None] * odds / odds.sum(axis=1)[:, None]
        found[bucket.variable] += shares.sum(axis=0)
        return shares

    with tables:
        if tables.outcome.value is None:
            return finished("marginals", problem, tables, -math.inf, status="infeasible", temperature=temperature)
        descend(tables, 1.0, 0.0, np.add, share)
        value = float(tables.outcome.value)
        return finished("marginals", problem, tables, value, temperature=temperature, marginals=tuple(found))


def _marginals_by_tree(
    problem: Problem, energies: Problem, options: SolveOptions, temperature: float, observer: Observer | None
) -> TaskResult | tuple[int, ...]:
    """The marginals from a junction tree of the problem reduced by evidence.

    If there can be no tree, returns the order of all variables found for it; empty if there was no search.
    """
    if options.backend == "cuda" or is_order_file(options.order):  # of all variables, also those fixed by evidence
        return ()
    begin = time.perf_counter()
    with Deadline(options.time_limit):
        left = remove_values(energies, ())
        if left.is_infeasible:
            return finished_by_tree("marginals", problem, left, -math.inf, temperature=temperature)

        def clique_done(number: int, total: int, clique: Clique, rows: int) -> None:
            if observer is not None:
                name = problem.variables[left.variables[clique.own[-1]]].name
                observer.bucket_done(number, total, name, rows, ROW_BYTES * rows)

        cost = large_cost(left.problem) if options.order == "auto" else None
        if cost is not None:
            answer = QueryAnswer.of(left.problem)
            if answer.seconds(range(len(left.variables)), message_memory(options)) < making_seconds(cost):
                every = range(len(left.variables))
                return _by_parts("marginals", problem, left, answer, every, begin, temperature, "cpu")
        order: tuple[int, ...] = ()
        try:
            choice = find_order(left.problem, options.order, options.order_seconds, options.seed)
            order = left.lift_order(choice.order)
            order_seconds = time.perf_counter() - begin
            if observer is not None:
                observer.started(plan_for(left.problem, left.problem.semiring, choice, "", options))
            memory = message_memory(options)
            tree = tree_of(left.problem, choice.order, choice.separators, memory, clique_done=clique_done)
        except (ResourceError, UnsupportedError, MemoryError):
            return order  # elimination can store messages on disk, and reports invalid problems
        calibration = Calibration(tree) if tree.is_possible else None
        value = -math.inf if calibration is None else calibration.log_evidence
        seconds = {"order": order_seconds, "forward": time.perf_counter() - begin - order_seconds}
        more: dict[str, Any] = {"temperature": temperature, "seconds": seconds}
        if calibration is not None:
            more["marginals"] = left.lift_marginals(calibration.posteriors(range(len(left.variables))), 1.0, 0.0)
    numbers = tree.width, [rows.separator_rows for rows in tree.rows], tree.order
    return finished_by_tree("marginals", problem, left, value, numbers, **more)


def _by_parts(
    task: str,
    problem: Problem,
    left: ReducedProblem,
    answer: QueryAnswer,
    targets: Sequence[int],
    begin: float,
    temperature: float,
    backend: str,
) -> TaskResult:
    """The partition function, and the marginals of all variables or none, from dense tables of relevant factors."""
    order_seconds = time.perf_counter() - begin
    posteriors = answer.posteriors(targets, backend)
    value = answer.log_evidence(backend)
    seconds = {"order": order_seconds, "forward": time.perf_counter() - begin - order_seconds}
    more: dict[str, Any] = {"temperature": temperature, "seconds": seconds}
    if targets and value > -math.inf:
        more["marginals"] = left.lift_marginals([posteriors[v] for v in targets], 1.0, 0.0)
    return finished_by_tree(task, problem, left, value, answer.numbers(targets), **more)


def min_marginals(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """For each value of each variable, the best value of an assignment with it; NaN if none is feasible.

    If all of the problem's values are integers, these are Python integers in arrays of dtype object; else float64, with
    the rounding error of the largest sums.

    Raises UnsupportedError: an upper bound that sums can reach.
    """
    tables = compute_tables(without_upper_bound(problem), options, observer)
    never = never_of(tables.prepared.dtype)
    found = [np.full(size, never) for size in problem.sizes]

    def share(bucket: Bucket, _: NDArray[np.int64], weights: NDArray[Any], evaluated: Evaluated) -> NDArray[Any]:
        totals: NDArray[Any] = np.where(evaluated.feasible, weights[:, None] + gaps(tables, evaluated), never)
        np.minimum(found[bucket.variable], totals.min(axis=0), out=found[bucket.variable])
        return totals

    with tables:
        best = tables.outcome.value
        if best is None:
            return finished("min-marginals", problem, tables, None, status="infeasible")
        descend(tables, np.zeros_like(never)[()], never, np.minimum, share)
        values = with_values(best, found, never, problem.sense)
        return finished("min-marginals", problem, tables, best, marginals=values)
