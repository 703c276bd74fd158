"""Anytime answers to the tasks of the UAI competitions: exact if possible within the limits, else bounds and estimates.

| task | question | exact | otherwise |
|---|---|---|---|
| ``PR`` | sum of all weights | elimination, in memory or out of core; conditioning on a cut-set; a search if factors of several variables only forbid | weighted mini-buckets, belief propagation |
| ``MAR`` | marginal of each variable | elimination, in memory or out of core; conditioning on a cut-set | exact for the variables on which the partition function depends; belief propagation |
| ``MAP`` | best assignment | elimination and search, below large costs first | its best assignment and bound |
| ``MMAP`` | best values of query variables, the others summed out | the others summed out, then as ``MAP``; elimination of a constrained order | values from mini-buckets, weighed exactly or by a lower bound; bound of mini-buckets |

Evidence and propagation come first: impossible values and rows are removed before the search for an order. A share of
the time goes to join graphs (:mod:`oocbe.bounds.mini_buckets.log_join_graph`) with small clusters, so that an estimate
and bounds exist before the exact attempt. If that is hopeless, or exceeds memory, clusters grow until a limit is
reached.
"""  # noqa: E501

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from threading import Event, Lock
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oocbe.api.facade import load_problem, settings_from
from oocbe.api.solving.solve import solve
from oocbe.api.tasks.count import clauses_left, count_clauses
from oocbe.api.tasks.verbs import answered
from oocbe.bounds.mini_buckets.log_join_graph import CONVERGED, LogJoinGraph
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.orders.order import longest_search, search_orders, speed_of
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.temperature import INEXACT, at_temperature, check_rounding
from oocbe.elimination.reformulation import negated, reduce_arity
from oocbe.errors import LimitError, RequestedEndError, ResourceError, TimeLimitError, UnsupportedError, UsageError
from oocbe.formats.uai import Evidence
from oocbe.junction_trees.explanations import constrained_order, marginal_map, summed_out
from oocbe.junction_trees.query_elimination.answer import QueryAnswer, elimination_seconds
from oocbe.junction_trees.query_elimination.complete_tree import TablePlace, sent_cells, table_bytes
from oocbe.junction_trees.query_elimination.factors import WrittenFactors, written_out
from oocbe.kernels.choice import backend_named, cuda_works
from oocbe.kernels.cuda.gpus import by_gpus, gpus, on_gpus
from oocbe.kernels.cuda.transfer.memory import device_room
from oocbe.model.model_checks import as_tuple
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.results.anytime_result import BOUNDED, ESTIMATED, EXACT, INFEASIBLE, AnytimeResult
from oocbe.model.results.numerals import logarithm_of
from oocbe.model.results.result import UNPROVEN
from oocbe.model.row_numbers import distinct_values
from oocbe.model.run_verb import run_verb
from oocbe.model.semiring import LOG_SUM_EXP, MAX_SUM
from oocbe.model.settings.option_types import OptionValues
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.value_removal import ReducedProblem, remove_values
from oocbe.runtime.deadline import Deadline, check_deadline, current, suppressed_limit, unlimited
from oocbe.runtime.interruption import listening
from oocbe.runtime.memory import DEVICE
from oocbe.runtime.process_memory import peak_memory

ANYTIME_TASKS = ("PR", "MAR", "MAP", "MMAP")
"""Names of the tasks, as in the competitions."""

LEVELS = (6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26)
"""Binary logarithms of the cells of a cluster, one join graph after the other."""

FIRST_LEVELS = 3
"""Levels before the exact attempt; fewer if they take longer than :data:`FIRST_SHARE`."""

FIRST_SHARE = 0.25
"""Share of the time for join graphs before the exact attempt."""

MOST_CELLS = 1e12
"""Cells of all buckets above which the elimination of relevant factors is planned only once."""

PLAN_SHARE, FIRST_PLAN_SHARE = 0.1, 0.03
"""Shares of the time for a plan of the elimination of relevant factors, which takes long for wide networks: after the
search for orders, and before it. The first also limits that search at first, and the preprocessing of clauses."""

EXACT_SHARE = 0.8
"""Share of the remaining time for one exact attempt."""

WIDE_GAP, LEVEL_SHARE = 10.0, 0.5
"""Ratio of two successive costs from which the larger one is taken for a penalty, and the share of the time for a
search of an assignment without penalties."""

SEARCH_SHARE = 0.95
"""Share of the remaining time for the search of a best assignment, which has bounds and estimates of its own."""

COUNT_SHARE, DEVICE_COUNT_SHARE = 0.7, 0.1
"""Share of the remaining time for a count of clauses by search, without and with a driver of devices."""

DEVICE_SHARE = 0.9
"""Share of the free device memory for tables: its pool has gaps."""

WEIGHT_DENOMINATOR, WEIGHT_ROUNDING = 10**6, 1e-15
"""Greatest denominator of a weight that replaces a float, and its relative difference from the float, at most."""

RESERVE_SECONDS, RESERVE_SHARE = 0.6, 0.03
"""Time before the limit at which work ends, in seconds and as a share: the smaller one. Answers take time to write."""

PORTIONS, DAMPING = (1, 4, 15, 40), 0.3
"""Rounds of belief propagation, by which most loopy networks converge, and the damping of its messages. The first join
graph gives an estimate after each portion."""

ROWS_A_SECOND = 1.5e7
"""Rows that elimination computes in a second, at most: an attempt with more predicted rows is hopeless."""

MESSAGES = 1.5
"""Memory of a join graph and of the messages of a pass over it, as a multiple of that of its clusters."""

CELLS_A_SECOND = 3e7
"""Cells of a join graph without divided buckets that are eliminated in a second."""

EXPLANATION_SECONDS, EXPLANATION_SHARE = 60.0, 0.5
"""Time limit of the search for a best assignment whose values of a query are weighed, in seconds and as a share."""

SUMMED_CELLS = 1 << 22
"""Cells of all clusters of the variables that are summed out, up to which they are, before the search for the others'
best values."""

ROUNDING = 1e-9
"""Relative rounding error of bounds."""


@dataclass
class _Best:
    """The best answer so far; attributes as those of :class:`AnytimeResult`.

    part : a note about marginals that are exact, until all are. take : keeps marginals of what is left.
    """

    value: float | None = None
    lower: float = -math.inf
    upper: float = math.inf
    marginals: tuple[NDArray[Any], ...] = ()
    assignment: dict[int, int] | None = None
    method: str = ""
    is_proven: bool = False
    notes: list[str] = field(default_factory=list)
    part: str = ""
    take: Callable[[Sequence[NDArray[Any]]], None] = lambda _: None

    def exact(self, value: float, method: str) -> None:
        """Record the exact value."""
        self.value = self.lower = self.upper = value
        self.method, self.is_proven = method, True

    def bound(self, lower: float = -math.inf, upper: float = math.inf) -> None:
        """Record bounds, widened by their rounding."""
        self.lower = max(self.lower, lower - ROUNDING * max(1.0, abs(lower)) if lower > -math.inf else lower)
        self.upper = min(self.upper, upper + ROUNDING * max(1.0, abs(upper)) if upper > -math.inf else upper)

    def is_exact(self) -> bool:
        """Whether the exact value is known; a method, as a type checker takes an attribute for unchanged."""
        return self.is_proven

    @property
    def status(self) -> str:
        """Status of the result."""
        if self.is_proven:
            return INFEASIBLE if self.value == -math.inf else EXACT
        return BOUNDED if self.lower > -math.inf and self.upper < math.inf else ESTIMATED


def anytime(
    task: str,
    problem: Problem | str | Path,
    query: str | Collection[str] = (),
    options: SolveOptions | None = None,
    *,
    evidence: Evidence | None = None,
    **overrides: Unpack[OptionValues],
) -> AnytimeResult:
    """The best answer to a task of the UAI competitions within ``time_limit`` and ``memory``.

    Parameters
    ----------
    task : one of :data:`ANYTIME_TASKS`. problem : of weights, or a path that :func:`oocbe.read` accepts.
    query : names of the variables that ``MMAP`` maximises, or one name; other tasks ignore them.
    options, evidence, overrides : as for :func:`oocbe.solve`.

    Raises
    ------
    UsageError : an unknown task; a query of MMAP without variables, or with unknown ones; no device for ``cuda``.
    UnsupportedError : linear constraints. LimitError : a limit was reached before the first estimate.
    Interrupted : Ctrl-C was pressed; its ``result`` is the best so far.
    """
    settings = settings_from(options, overrides)
    query = (query,) if isinstance(query, str) else as_tuple("query", query)
    work = partial(best_within_limits, task, query=query, options=settings)
    read = partial(load_problem, evidence=evidence)
    return run_verb(problem, read, work, settings.time_limit, settings.memory_limit)


def best_within_limits(task: str, problem: Problem, query: Collection[str], options: SolveOptions) -> AnytimeResult:
    """The answer for a problem in memory; within the deadline of the enclosing block. See :func:`anytime`."""
    if task not in ANYTIME_TASKS:
        raise UsageError(f"task {task!r}: not one of {', '.join(ANYTIME_TASKS)}")
    number = {v.name: i for i, v in enumerate(problem.variables)}
    if missing := [name for name in query if name not in number]:
        raise UsageError(f"query: there is no variable {missing[0]!r}")
    if task == "MMAP" and not query:
        raise UsageError("query: MMAP needs the variables to be maximised")
    if options.backend == "cuda":
        backend_named("cuda")  # before any work: it is required, also where no table is large
    begin, best = time.perf_counter(), _Best()
    whole = reduce_arity(_with_weights(problem, task))
    outer = current()
    seconds = math.inf if outer is None else outer.remaining
    is_interrupted = False
    with listening() as interruption:
        try:
            with _limited(seconds - min(RESERVE_SECONDS, RESERVE_SHARE * seconds) if seconds < math.inf else seconds):
                if task in ("PR", "MAR"):
                    _sum(whole, options, best, task == "MAR")
                    if task == "MAR" and best.is_exact() and whole.magnitude >= INEXACT:
                        check_rounding(at_temperature(whole, 1.0), best.lower)
                else:
                    asked = range(len(whole.variables)) if task == "MAP" else [number[name] for name in query]
                    _explain(whole, asked, options, best)
            if best.value is None and best.assignment is None and outer is not None:
                raise TimeLimitError(outer.reason)
        except BaseException as error:
            if best.value is None and best.assignment is None:  # not even an estimate
                raise
            if isinstance(error, LimitError | ResourceError | MemoryError) and not isinstance(error, RequestedEndError):
                best.notes.append(str(error) or "memory ran out")
            elif interruption.caused(error):
                is_interrupted = True
                best.notes.append(interruption.reason)
            else:
                raise
    with unlimited():
        return AnytimeResult(
            problem=problem.name,
            task=task,
            status=ESTIMATED if task == "MAR" and best.status == BOUNDED else best.status,
            variables=problem.variables,
            value=None if best.value is None else min(max(best.value, best.lower), best.upper),
            lower=best.lower,
            upper=best.upper,
            method=best.method,
            seconds={"total": time.perf_counter() - begin},
            peak_memory_bytes=peak_memory(),
            marginals=best.marginals,
            assignment=best.assignment,
            evidence=problem.evidence,
            interrupted=is_interrupted,
            notes=(*best.notes, *([best.part] if best.part and not best.is_proven else [])),
        )


def _with_weights(problem: Problem, task: str) -> Problem:
    """The problem with the weights of its file's question as functions. UnsupportedError: a further question."""
    question = problem.counting
    if question is None or question.shown is not None or any(min(own) < 0 for own in question.weights.values()):
        problem.refuse_question(f"the task {task}")
    if question is None or not question.weights:
        return problem
    weighed = ((v, x) for v, x in enumerate(problem.variables) if x.name in question.weights)
    functions = tuple(_logarithms(v, [question.weight(x, value) for value in range(x.size)]) for v, x in weighed)
    return replace(problem, functions=functions, constant=0.0, semiring=LOG_SUM_EXP)


def _logarithms(variable: int, weights: Sequence[int | Fraction]) -> Function:
    """Logarithms of the weights of a variable's values, which may exceed float64."""
    return Function.from_array((variable,), [logarithm_of(weight) for weight in weights])


def _sum(problem: Problem, options: SolveOptions, best: _Best, wants_marginals: bool) -> None:
    """The partition function, and the marginals if they are wanted."""
    energies = at_temperature(problem, 1.0)
    best.value, best.method = _uniform(energies), "independent factors"
    best.marginals = tuple(np.full(size, 1.0 / size) for size in problem.sizes) if wants_marginals else ()
    for c in problem.constraints if wants_marginals else ():  # in case that the limit comes before propagation ends
        if len(c.scope) == 1 and c.allowed and len(c.tuples) == 1:
            best.marginals[c.scope[0]][:] = np.arange(problem.sizes[c.scope[0]]) == c.tuples[0, 0]
    left = remove_values(energies, ())
    if left.is_infeasible:
        best.exact(-math.inf, "propagation")
        return

    known: dict[int, NDArray[Any]] = {}
    taken: list[NDArray[Any]] = []

    def take(shares: Sequence[NDArray[Any]]) -> None:
        if wants_marginals:
            taken[:] = [known.get(v, share) for v, share in enumerate(shares)]
            best.marginals = left.lift_marginals(taken, 1.0, 0.0)

    best.take = take
    take([np.full(size, 1.0 / size) for size in left.problem.sizes])
    clauses, literals = left.problem, None if wants_marginals else _weights_of_literals(left.problem)
    # The start of CUDA takes longer than many counts: the driver's file stands for it until they have ended.
    has_driver = options.backend == "cuda" or (options.backend == "auto" and DEVICE.exists())
    if literals is not None:
        if _by_counting(clauses, *literals, options, best, DEVICE_COUNT_SHARE if has_driver else COUNT_SHARE):
            return
        left = _presolved(left, *literals) if has_driver and _takes_device(options) else left
    factors, targets = written_out(left.problem), range(len(left.variables)) if wants_marginals else range(0)
    memory = message_memory(options)
    place = TablePlace("cpu", memory)
    answer = None if factors is None else QueryAnswer(factors, {})
    if options.backend != "cuda" and _by_relevant_factors(answer, targets, place, best, FIRST_SHARE, FIRST_PLAN_SHARE):
        return
    if factors is not None and _takes_device(options):
        place = _device()
        answer = QueryAnswer(factors, {}, place)
        if _by_relevant_factors(answer, targets, place, best, FIRST_SHARE, FIRST_PLAN_SHARE):
            return
    work = math.inf if factors is None else 1 / speed_of(place.backend).cells_a_row
    seconds = min(options.order_seconds, PLAN_SHARE * _remaining())
    longest = longest_search(options.order_seconds, _remaining())
    choice = search_orders(left.problem, options.order, seconds, options.seed, cell_work=work, longest=longest)[0]
    if factors is not None:
        factors = replace(factors, order=choice.order)
        answer = QueryAnswer(factors, {}, place)
    graphs = _Graphs(left.problem, choice.order, choice.separators, memory, passes=4 if wants_marginals else 1)
    is_far = place.backend == "cpu" and graphs.cells >= MOST_CELLS
    if not is_far and _by_relevant_factors(answer, targets, place, best, FIRST_SHARE):
        return
    first: LogJoinGraph | None = None

    def refine(graph: LogJoinGraph) -> bool:
        """Whether there is nothing left to do for a graph: its result is exact, or has converged."""
        if not graph.is_divided:
            value = graph.bound()
            if wants_marginals:
                graph.propagate(1)
                take(graph.marginals())
            best.exact(value, "elimination in complete tables")
            return True
        best.bound(upper=graph.bound())
        best.bound(lower=graph.bound(is_upper=False))
        if best.upper == -math.inf:
            best.exact(-math.inf, "mini-buckets")
            return True
        for rounds in PORTIONS:
            is_over = graph.propagate(rounds, DAMPING) < CONVERGED
            if graph is first or is_over or rounds == PORTIONS[-1]:
                estimate = graph.estimate
                if estimate == -math.inf:  # zeros are exact
                    best.exact(estimate, "belief propagation")
                    return True
                take(graph.marginals() if wants_marginals else ())
                best.value = best.value if known else estimate
                best.method = f"belief propagation, clusters of {graph.largest:,} cells"
            if is_over:
                return True
        return False

    for first in islice(graphs, 1):
        is_over = not first.is_divided
        with _limited(FIRST_SHARE * _remaining()):
            is_over |= refine(first)
        first = None if is_over else first
    if best.is_exact():
        return
    if not is_far and _by_relevant_factors(answer, targets, place, best, EXACT_SHARE):
        return
    if factors is not None and factors.order:
        _by_conditioning(factors, choice.separators, targets, place, best)
    if wants_marginals and not best.is_exact():
        known |= _of_relevant_variables(answer, len(targets), len(problem.variables), place, best)
        take(taken)
    if has_driver and literals is not None and not best.is_exact():
        _by_counting(clauses, *literals, options, best, COUNT_SHARE)
    if not best.is_exact() and choice.cost() < ROWS_A_SECOND * _remaining():
        with _attempt(best):
            result = answered("marginals" if wants_marginals else "logz", problem, options)
            assert isinstance(result.value, int | float)
            best.marginals = result.marginals if wants_marginals else ()
            best.exact(float(result.value), "elimination")
    for graph in graphs if first is None else chain((first,), graphs):
        if best.is_exact():
            return
        refine(graph)


def _device() -> TablePlace:
    """The current device, with a share of its free memory."""
    backend_named("cuda")  # sets the limit of device memory
    return TablePlace("cuda", DEVICE_SHARE * device_room())


def _takes_device(options: SolveOptions) -> bool:
    """Whether large tables are joined on a device."""
    return options.backend == "cuda" or (options.backend == "auto" and cuda_works(wanted=False))


def _by_conditioning(
    factors: WrittenFactors, separators: Sequence[Sequence[int]], targets: Sequence[int], place: TablePlace, best: _Best
) -> None:
    """The sum over all values of a cut-set, the others eliminated in tables that fit the memory, if that is predicted
    to end in time. Until then, the sum so far is a lower bound. GPUs share the values; the order of their sums varies.
    """
    place, most = place._replace(goes_down=len(targets) > 0, has_order=True), EXACT_SHARE * _remaining()
    cut, cells = _cut_set(factors, separators, place, most / tuning().cell_seconds)
    count = math.prod(float(factors.sizes[v]) for v in cut)
    seconds = count * elimination_seconds(len(factors.factors) + len(factors.order), cells)
    if not cut or not seconds < most:
        return
    lock = Lock()

    def attempt(numbers: list[int]) -> tuple[float, list[NDArray[np.float64]]]:
        slices, stopped = product(*(range(factors.sizes[v]) for v in cut)), Event()
        total, sums = -math.inf, [np.zeros(factors.sizes[v]) for v in targets]

        def work(_: int) -> None:
            nonlocal total, sums
            while True:
                with lock:
                    values = next(slices, None)
                if values is None or stopped.is_set():
                    return
                known = {v: np.eye(factors.sizes[v])[value] for v, value in zip(cut, values, strict=True)}
                answer = QueryAnswer(factors, known, place)
                found, logarithm = answer.posteriors(targets, place.backend), answer.log_evidence(place.backend)
                if logarithm == -math.inf:
                    continue
                with lock:
                    before, total = total, float(np.logaddexp(total, logarithm))
                    shares = [math.exp(logarithm - total) * found[v] for v in targets]
                    sums = [math.exp(before - total) * x + y for x, y in zip(sums, shares, strict=True)]
                    best.bound(lower=total)

        if numbers:
            on_gpus(numbers, work, stopped.set)
        else:
            work(0)
        return total, sums

    with _attempt(best):
        total, sums = attempt([]) if place.backend == "cpu" else by_gpus(gpus(seconds), attempt)
        if total > -math.inf:
            best.take(sums)
        best.exact(total, f"conditioning on {len(cut)} variables")


def _cut_set(
    factors: WrittenFactors, separators: Sequence[Sequence[int]], place: TablePlace, most_cases: float
) -> tuple[list[int], float]:
    """Variables without which the tables of an order fit the memory, chosen greedily by the cells of the clusters that
    contain them, and the weighed cells of all clusters that are left; fewer variables if they have too many values."""
    cut: list[int] = []
    sizes, order = factors.sizes, factors.order
    left, number = np.array(sizes, dtype=np.float64), {v: i for i, v in enumerate(order)}
    members = np.concatenate([(v, *s) for v, s in zip(order, separators, strict=True)])
    clusters = np.repeat(np.arange(len(order)), [1 + len(s) for s in separators])
    parents = np.array([number[s[0]] if s else -1 for s in separators])
    while True:
        cells = np.exp2(np.minimum(1000.0, np.bincount(clusters, np.log2(left[members]))))  # finite
        check_deadline()
        is_over = math.prod(sizes[v] for v in cut) > most_cases or (left == 1).all()
        if is_over or table_bytes(cells, sent_cells(cells, left[list(order)], parents), parents, place) <= place.memory:
            return cut, float(place.weighed(cells).sum())
        cut.append(int(np.bincount(members, cells[clusters] * (1 - 1 / left[members])).argmax()))
        left[cut[-1]] = 1


def _by_relevant_factors(
    answer: QueryAnswer | None,
    targets: Collection[int],
    place: TablePlace,
    best: _Best,
    share: float,
    plan_share: float = PLAN_SHARE,
) -> bool:
    """Whether an elimination ended that was expected to take at most a share of the time; it may take longer."""
    if answer is None or not _is_soon(answer, targets, place, share, plan_share):
        return False
    with _attempt(best):
        found = answer.posteriors(targets, place.backend)
        value = answer.log_evidence(place.backend)
        best.take([found[v] for v in targets])
        best.exact(value, "elimination of relevant factors")
    return best.is_exact()


def _is_soon(
    answer: QueryAnswer, targets: Collection[int], place: TablePlace, share: float, plan_share: float = PLAN_SHARE
) -> bool:
    """Whether an elimination, planned in ``plan_share`` of the time, is expected to take at most ``share`` of it."""
    seconds = math.inf
    with _limited(plan_share * _remaining()):
        seconds = answer.seconds(targets, int(place.memory))
    return seconds < math.inf and seconds <= share * _remaining()


def _of_relevant_variables(
    answer: QueryAnswer | None, left: int, variables: int, place: TablePlace, best: _Best
) -> dict[int, NDArray[np.float64]]:
    """Exact marginals of the variables whose factors the partition function needs, where all take too long; else none.

    left : number of all variables but those of known values. variables : with these, too.
    """
    with _attempt(best):
        targets = answer.relevant(int(place.memory)) if answer is not None else frozenset()
        if answer is not None and 0 < len(targets) < left and _is_soon(answer, targets, place, EXACT_SHARE):
            found = answer.posteriors(targets, place.backend)
            best.value = answer.log_evidence(place.backend)
            if best.value == -math.inf:
                best.exact(best.value, "elimination of relevant factors")
                return {}
            best.bound(best.value, best.value)
            known = len(found) + variables - left
            best.part = f"the marginals of {known:,} of {variables:,} variables are exact"
            return found
    return {}


def _weights_of_literals(energies: Problem) -> tuple[dict[int, list[int]], float] | None:
    """Integers by variable, whose product for an assignment is its weight divided by the exponential of the offset, if
    factors of several variables only forbid rows. Factors of single variables are weights."""
    weights: dict[int, list[Fraction]] = {}
    offset = float(energies.constant)
    for f in energies.functions:
        peak = float(f.values.max(initial=-math.inf))
        if len(f.scope) == 1 and energies.sizes[f.scope[0]] == 2 and peak > -math.inf:
            values, _ = f.to_array(energies.sizes)
            own = weights.setdefault(f.scope[0], [Fraction(1), Fraction(1)])
            weights[f.scope[0]] = [w * _fraction(x - peak) for w, x in zip(own, values, strict=True)]
        elif f.default is not None or float(f.values.min(initial=peak)) != peak:
            return None
        offset += peak
    scales = {v: math.lcm(*(w.denominator for w in own)) for v, own in weights.items()}
    offset -= sum(map(math.log, scales.values()))
    return {v: [int(w * scales[v]) for w in own] for v, own in weights.items()}, offset


def _by_counting(
    energies: Problem, numbers: dict[int, list[int]], offset: float, options: SolveOptions, best: _Best, share: float
) -> bool:
    """Whether a search counted the weighted models of clauses in a share of the time; arguments as of
    :func:`_weights_of_literals`."""
    least = [min(own) for own in numbers.values()]
    lower = offset + sum(map(math.log, least)) if all(least) else -math.inf  # of any model
    with _attempt(best, share):
        own = replace(options, time_limit=None, backend="cpu")
        found = count_clauses(energies, own, weights=numbers, model_found=lambda: best.bound(lower=lower))
        if found is not None:
            best.exact(offset + logarithm_of(int(found.value or 0)), "search with a cache of components")
    return best.is_exact()


def _presolved(left: ReducedProblem, numbers: dict[int, list[int]], offset: float) -> ReducedProblem:
    """The problem after the preprocessing of its clauses, with the same partition function; arguments as above."""
    found = clauses_left(left.problem, SolveOptions(), PLAN_SHARE * _remaining(), numbers)
    if found is None or not found[2].multiplier:
        return left
    reduced, _, formula = found
    functions = [_logarithms(v, pair[::-1]) for v, pair in enumerate(formula.weights or ())]
    constant = offset + logarithm_of(formula.multiplier)
    return remove_values(replace(reduced, functions=tuple(functions), constant=constant, semiring=LOG_SUM_EXP), ())


def _fraction(logarithm: float) -> Fraction:
    """A short fraction for a weight up to 1, equal up to rounding; else its float. Powers go below the least float."""
    count = 1 if logarithm == -math.inf else 1 + int(-logarithm / 700)
    exact = Fraction(math.exp(logarithm / count))
    short = exact.limit_denominator(WEIGHT_DENOMINATOR)
    return (short if abs(short - exact) <= WEIGHT_ROUNDING * exact else exact) ** count


def _uniform(energies: Problem) -> float:
    """Logarithm of the partition function if the factors were independent under the uniform distribution."""
    total = float(energies.constant) + sum(map(math.log, energies.sizes))
    for f in energies.functions:
        cells = math.prod(energies.sizes[v] for v in f.scope)
        peak = float(f.values.max(initial=-math.inf))
        total += peak if peak == -math.inf else peak + math.log(float(np.exp(f.values - peak).sum()) / cells)
    return total


def _explain(problem: Problem, query: Sequence[int], options: SolveOptions, best: _Best) -> None:
    """The best values of the query's variables; of all, if the query has no others."""
    energies = at_temperature(problem, 1.0)
    left = remove_values(energies, ())
    best.assignment = {v: int(left.kept[v][0]) if len(left.kept[v]) else 0 for v in query}
    if left.is_infeasible:
        best.exact(-math.inf, "propagation")
        return
    place = {v: i for i, v in enumerate(left.variables)}
    wanted = {place[v] for v in query if v in place}
    order = constrained_order(left.problem, last=wanted)
    separators = PrimalGraph(left.problem).separators(np.array(order, dtype=np.int64)).listed()
    others = order[: len(order) - len(wanted)]
    cells = sum(math.prod(left.problem.sizes[u] for u in (v, *s)) for v, s in zip(others, separators, strict=False))
    if others and wanted and cells <= SUMMED_CELLS and not left.problem.linear_constraints:
        summed: Problem | None = None
        with _attempt(best):
            summed = summed_out(left.problem, others)
        if summed is not None:
            _explain_summed(left, summed, sorted(wanted), options, best)
            return
    memory = message_memory(options)
    graphs = _Graphs(left.problem, order, separators, memory, wanted)

    def weigh(values: dict[int, int], method: str) -> None:
        """Weigh values of the query, and keep them if they are the best so far."""
        lower, is_known = _weight_of(energies, values, options)
        if lower == -math.inf:
            return
        if best.value is None or lower > best.value:
            best.value, best.assignment = lower, values
            best.method = method if is_known else f"{method}; the value is a lower bound of their weight"
        best.bound(lower=lower)

    def refine(graph: LogJoinGraph) -> None:
        bound, chosen = graph.best_values()
        best.bound(upper=bound)
        if bound == -math.inf:
            best.exact(bound, "mini-buckets")
            return
        values = {v: int(left.kept[v][chosen.get(place[v], 0) if v in place else 0]) for v in query}
        if graph.is_divided:
            weigh(values, f"values of mini-buckets, clusters of {graph.largest:,} cells")
        else:
            best.assignment = values
            best.exact(bound, "elimination in complete tables")

    is_whole = len(query) == len(problem.variables)
    with _limited(FIRST_SHARE * _remaining()):
        for graph in islice(graphs, int(graphs.fits) if is_whole else FIRST_LEVELS):
            refine(graph)
            if best.is_exact():
                return
    if not is_whole:
        with _attempt(best):
            seconds = min(EXPLANATION_SECONDS, EXPLANATION_SHARE * _remaining())
            found = _Best(assignment=dict.fromkeys(range(len(problem.variables)), 0))
            with _limited(seconds):
                _solve(energies, replace(options, time_limit=None), found)
            if found.assignment and found.value is not None:
                weigh({v: found.assignment[v] for v in query}, "values of the best assignment found")
    with _attempt(best, SEARCH_SHARE if is_whole else EXACT_SHARE):
        if is_whole:
            _solve(energies, options, best)
        else:
            explained = marginal_map(energies, {}, {}, query, memory)
            chosen, value = explained or (best.assignment or {}, -math.inf)
            best.assignment = {v: chosen[v] for v in query}
            best.exact(value, "elimination of a constrained order")
    for graph in graphs:
        if best.is_exact():
            return
        refine(graph)


def _explain_summed(
    left: ReducedProblem, summed: Problem, wanted: Sequence[int], options: SolveOptions, best: _Best
) -> None:
    """The best values of variables that are all of a problem, in which the others are summed out."""
    given, best.assignment = dict(best.assignment or {}), {}  # from here on, of the summed problem
    try:
        _explain(summed, range(len(wanted)), options, best)
    finally:
        found = {left.variables[v]: (best.assignment or {}).get(i, 0) for i, v in enumerate(wanted)}
        best.assignment = {v: int(left.kept[v][found[v]]) if v in found else x for v, x in given.items()}


def _solve(energies: Problem, options: SolveOptions, best: _Best) -> None:
    """The best assignment of all variables by elimination and search: below large costs, then below the best found."""
    costs = negated(replace(energies, semiring=MAX_SUM))

    def search(limit: float | None) -> None:
        result = solve(costs, replace(options, semiring=None, ub=limit))
        if result.bound is not None:
            best.bound(upper=-float(result.bound if limit is None else min(result.bound, limit)))
        if result.assignment is not None and result.value is not None and -result.value >= best.lower:
            best.assignment = {v: result.assignment[v] for v in best.assignment or ()}
            best.value, best.method = -float(result.value), "search"
            best.bound(lower=best.value)
        if limit is not None and result.status == "nothing-better":
            best.bound(upper=-limit)
        is_all = limit is None or (best.value is not None and limit >= -best.value)
        if is_all and result.status not in UNPROVEN:
            best.exact(-math.inf if best.value is None else best.value, "elimination and search")

    level = _large_cost(costs)
    if level is not None:
        with _limited(LEVEL_SHARE * _remaining()):
            search(level)
    if not best.is_exact():
        search(None if best.value is None else -best.value)


def _large_cost(costs: Problem) -> float | None:
    """The least sum of values with one large cost: the costs above the last wide gap are; None: there is none."""
    least = costs.extremes.least.tolist()
    pairs = zip(costs.functions, least, strict=True)
    levels = distinct_values(np.concatenate([[0.0], *(f.values - x for f, x in pairs)]))
    levels = levels[levels > ROUNDING * levels[-1]]
    above = np.flatnonzero(levels[1:] >= WIDE_GAP * levels[:-1])
    return float(costs.constant + sum(least) + levels[1 + above[-1]]) if len(above) else None


def _weight_of(energies: Problem, values: Mapping[int, int], options: SolveOptions) -> tuple[float, bool]:
    """Logarithm of the weight of some variables' values, the others summed out, and whether it is exact; else it is a
    lower bound."""
    left = remove_values(energies.with_values(values), ())
    if left.is_infeasible:
        return -math.inf, True
    memory = message_memory(options)
    choice = search_orders(left.problem, options.order, 0.0, options.seed)[0]
    lower = -math.inf
    for graph in islice(_Graphs(left.problem, choice.order, choice.separators, memory), FIRST_LEVELS):
        lower = max(lower, graph.bound(is_upper=False))
        if not graph.is_divided:
            return lower, True
    return lower, False


class _Graphs(Iterator[LogJoinGraph]):
    """Join graphs with larger and larger clusters; without divided buckets as soon as that fits memory and time.

    A time limit during the making of a graph leaves the iterator where it was. A graph without divided buckets takes
    ``passes`` over its cells until its answer is known; ``cells`` are those of all its clusters.
    """

    def __init__(
        self,
        problem: Problem,
        order: Sequence[int],
        separators: Sequence[Sequence[int]],
        memory: int,
        maximised: Collection[int] = (),
        passes: int = 1,
    ) -> None:
        self._arguments, self._maximised, self._memory = (problem, order), maximised, memory
        sizes = problem.sizes
        self.cells = sum(math.prod(sizes[u] for u in (v, *s)) for v, s in zip(order, separators, strict=True))
        self._work, self._levels = passes * self.cells, [1 << level for level in LEVELS]
        self._is_tried = False

    @property
    def fits(self) -> bool:
        """Whether the next graph is without divided buckets, for the first time."""
        has_room = self.cells < self._memory / (8 * MESSAGES)
        return has_room and not self._is_tried and self._work < CELLS_A_SECOND * _remaining() / 2

    def __next__(self) -> LogJoinGraph:
        if not self._levels:
            raise StopIteration
        fits = self.fits
        most_cells = max(1, self.cells) if fits else self._levels[0]
        try:
            graph = LogJoinGraph(*self._arguments, most_cells, int(self._memory / MESSAGES), self._maximised)
        except ResourceError:
            self._levels = []
            raise StopIteration from None
        self._is_tried |= fits
        if not fits:
            self._levels = self._levels[1:] if graph.is_divided else []
        return graph


def _remaining() -> float:
    deadline = current()
    return math.inf if deadline is None else deadline.remaining


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """A block that ends after so many seconds without an error."""
    with Deadline(None if seconds == math.inf else max(0.0, seconds)), suppressed_limit():
        yield


@contextmanager
def _attempt(best: _Best, share: float = EXACT_SHARE) -> Iterator[None]:
    """An exact attempt, for a share of the time: a block that may end for lack of time, memory or a suitable form."""
    try:
        with _limited(share * _remaining()):
            yield
    except RequestedEndError:
        raise
    except (LimitError, ResourceError, UnsupportedError, MemoryError) as error:
        best.notes.append(f"the exact attempt ended: {error}")
