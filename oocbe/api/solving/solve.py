"""Solve a problem: with bounds if costs are minimised or values maximised, else by plain elimination.

Small problems, by the predicted rows of the first orders, are eliminated directly, as computing bounds would not pay
off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from oocbe.api.solving.history import History
from oocbe.api.solving.integer_scaling import (
    OUT_OF_RANGE,
    UNBOUNDED,
    IntegerScaling,
    allows_logarithms,
    prefers_logarithms,
)
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.resources import engine_for, memory_warning, message_memory
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.narrow.narrow_problem import narrow_result
from oocbe.elimination.observer import Observer
from oocbe.elimination.orders.order import OrderChoice, longest_search
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.row_limits import predictions_are_exact
from oocbe.elimination.outcome import blank_result, result_of_elimination
from oocbe.elimination.plan.plan import check_disk, easy_orders, needs_no_bounds, plan_for, thorough_orders
from oocbe.elimination.preparation.logarithms import Logarithms
from oocbe.elimination.preparation.prepare import reduce_arity
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.race import Race, RaceWinner
from oocbe.elimination.reformulation import Negation, Reformulation, RoundedBound, Stack
from oocbe.elimination.refusals import check_linear, checked, has_logarithms
from oocbe.elimination.row_pruning.dominance import applies_to
from oocbe.elimination.runs.durability import Run, open_run
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import (
    FloatRangeError,
    RequestedEndError,
    ResourceError,
    TimeLimitError,
    UnsupportedError,
    ValueRangeError,
)
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.settings.machine import peak_memory
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.propagated import presolved
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, unlimited
from oocbe.runtime.faults import fault_point
from oocbe.runtime.interruption import Interruption, listening
from oocbe.search.incumbent_search import beside_elimination, offer_first
from oocbe.search.presolve import PresolvedProblem, is_easy, presolve
from oocbe.search.row_results import FEW_ROWS, opening_result, result_of_bounds
from oocbe.search.searches import Searches
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import Statistics

if TYPE_CHECKING:
    from oocbe.bounds.incumbent import Incumbent
    from oocbe.bounds.row_reduction import Reduction

LOGARITHM_SECONDS = 0.25
"""Time limit of making logarithms, at least."""

SHORTEST_LIMIT = 1e-3
"""Minimum time limit of an attempt, in seconds, after an earlier one that used up the time limit."""


def solve(
    problem: Problem, options: SolveOptions, observer: Observer | None = None, known: tuple[int, ...] | None = None
) -> Result:
    """Solve a problem exactly by bucket elimination.

    Parameters
    ----------
    problem : the problem; ``options.semiring`` overrides its semiring.
    options : settings. observer : receives the plan, every bucket, bounds and incumbents, and the result.
    known : a feasible assignment, the first incumbent of bounds and searches; None: none.

    Returns
    -------
    Result : ``optimal`` with an assignment (semirings that select), ``exact`` (others), ``infeasible``,
        ``nothing-better`` than ``options.ub``; ``limit`` with the best bound and assignment, if time, gap or memory
        ended the search, or the optimum violates a linear constraint that elimination does not enforce; or
        ``interrupted`` with the same, if a signal ended it (:mod:`oocbe.runtime.interruption`).

    Raises
    ------
    ResourceError : messages do not fit the memory limit, and no bound and no assignment is known.
    UsageError : the work folder is in use, or holds another run; ``options.ub`` in any semiring but min-sum.
    CorruptDataError : its record is damaged. DiskError : the disk is full, or its limit reached.
    TimeLimitError : the time limit was reached in a semiring without bounds.
    ValueRangeError : values that no supported dtype can combine exactly; products of floats beyond the range of
        float64 where a value is negative, or in a work folder (others are solved by their logarithms).
    UnsupportedError : a linear constraint that can bind, in a semiring that sums over assignments, or an upper bound
        that can bind, in any semiring but min-sum.
    FormatError : the file named by ``options.order`` is no order of this problem.
    InternalError : an assignment does not have its reported value (:mod:`oocbe.elimination.solution_check`).
    """
    begin = time.perf_counter()
    semiring = options.semiring or problem.semiring
    given = checked(problem, semiring, options).in_semiring(semiring)
    stack = Stack(given, (RoundedBound.of(given, options.ub),), known=known)
    whole = reduce_arity(stack.problem)
    stack = stack.then(Reformulation(stack.problem, whole, name="arity"))
    used, history = stack, History(observer, begin)
    with listening() as interruption:
        try:
            result = narrow_result(whole, options)
            if result is None:
                used = stack = presolved(stack, options)
                check_linear(stack.problem, semiring)
                result = narrow_result(stack.problem, options) if stack.problem.sizes != whole.sizes else None
            if result is None:
                used, result = _solved_or_by_logarithms(stack, options, history, begin, interruption)
        except BaseException as error:
            if not interruption.caused(error):
                raise
            used, result = stack, blank_result(whole, options, "interrupted", "cpu", notes=(interruption.reason,))
    return history.attach_history(used.result(result), given, stack.problem, options)


def _solved_or_by_logarithms(
    stack: Stack, options: SolveOptions, history: History, begin: float, interruption: Interruption
) -> tuple[Stack, Result]:
    """The result of a checked problem, or of its logarithms, and the stack that it belongs to."""
    problem, why = stack.problem, UNBOUNDED
    if not prefers_logarithms(problem, options):
        try:
            return _solved(stack, options, history, begin, interruption)
        except FloatRangeError:
            if options.workdir is not None or not has_logarithms(problem):
                raise
            why = OUT_OF_RANGE
        except RequestedEndError:
            raise
        except TimeLimitError:  # the search with bounds still gives one, and an assignment
            if not allows_logarithms(problem, options):
                raise

    def left(least: float) -> float | None:
        return options.time_limit and max(least, options.time_limit - (time.perf_counter() - begin))

    with unlimited(), Deadline(left(LOGARITHM_SECONDS)):  # partial results at a limit refer to them
        logarithms = Logarithms.of(problem, why)
    options = replace(logarithms.options(options), time_limit=left(SHORTEST_LIMIT))
    return _solved(stack.then(logarithms), options, history, begin, interruption)


def _solved(
    stack: Stack, options: SolveOptions, history: History, begin: float, interruption: Interruption
) -> tuple[Stack, Result]:
    """The result of a problem, saved in the work folder if there is one, and the stack that it belongs to."""
    scaling = IntegerScaling.of(stack.problem)
    stack, options = stack.then(scaling), scaling.options(options)
    problem = stack.problem
    with open_run(problem, options) as run:
        if run.result is None:
            # If propagation fixed all variables, the answer is known, and no limit applies.
            limited = nullcontext() if problem.variables else unlimited()
            with limited, Deadline(options.time_limit if problem.variables else None) as deadline:
                solving = _Solving(stack, options, history, deadline, run)
                result = solving.solve_interruptibly(interruption)
            check_solution(problem, result.value, result.assignment, result.bounds or "elimination")
            seconds = {**result.seconds, "total": time.perf_counter() - begin}
            notes = (*result.notes, solving.warning) if solving.warning else result.notes
            with unlimited():
                result = replace(result, width=history.width_of(result, problem, options), notes=notes)
                result = run.finish(replace(result, seconds=seconds, peak_memory_bytes=peak_memory()))
        else:
            result = run.result
            check_solution(problem, result.value, result.assignment, "the run in the work folder")
    return stack, result


@dataclass
class _Solving:
    """One solve: its data and its strategies. reduction : if the problem is the rest of a larger one."""

    stack: Stack
    options: SolveOptions
    history: History
    deadline: Deadline
    run: Run
    reduction: Reduction | None = None

    def __post_init__(self) -> None:
        self.problem, self.semiring = self.stack.problem, self.stack.problem.semiring
        self._engine = engine_for(self.options, self.deadline)
        self.run.memory = message_memory(self.options)
        self.warning = memory_warning(self.options)
        self._known: SharedBounds | None = None
        self._statistics = Statistics()
        self._within: tuple[PresolvedProblem, _Solving] | None = None
        self._graph = cache(partial(PrimalGraph, self.problem))  # shared by several strategies

    def solve_interruptibly(self, interruption: Interruption) -> Result:
        """The result, or the partial result after a signal."""
        try:
            result = self.solve()
        except BaseException as error:
            if interruption.caused(error):
                return self._unfinished(interruption)
            found = interruption.behind(error)
            if found is error:
                raise
            raise found from None
        was_requested = result.status == "limit" and self.deadline.is_requested
        return replace(result, status="interrupted") if was_requested else result

    def _unfinished(self, interruption: Interruption) -> Result:
        """The partial result after a signal."""
        if self._within is not None:
            left, within = self._within
            return left.result(within._unfinished(interruption))
        problem, options, why = self.problem, self.options, interruption.reason
        if problem.variables and applies_to(self.semiring) and options.bounds != "none" and options.incumbent_seconds:
            try:
                offer_first(self._knowledge_of([]))
            except BaseException as error:
                if not interruption.caused(error):
                    raise
        if self._known is None:
            return blank_result(problem, options, "interrupted", self._backend, notes=(why,))
        statistics = replace(self._statistics, stopped=why)
        result = result_of_bounds(problem, options, self._known, statistics, self._backend)
        return replace(result, status="interrupted", seconds=statistics.seconds) if result.status == "limit" else result

    def solve(self) -> Result:
        """Solve by elimination alone, or with bounds, or by elimination and then with bounds."""
        options, problem, begin = self.options, self.problem, working_time()
        value_dtype(problem, self.semiring)  # refuses sums out of range
        bounded = bool(problem.variables) and applies_to(self.semiring) and options.bounds != "none"
        bounded = bounded and options.tables != "complete"
        if not bounded:
            return self._eliminate(self.run.orders(self._orders), working_time() - begin)
        found: list[Incumbent] = []
        spent = 0.0
        rows = Searches(self._target, options, self._knowledge_of(found), self.deadline, self.reduction)
        if options.bounds == "auto":
            try:
                if options.order == "auto" and options.workdir is None and not is_easy(problem, self._graph):
                    if not self.reduction and (left := presolve(problem, options, rows.form)):
                        return self._solved_smaller(left, working_time() - begin)
                    if result := opening_result(problem, rows, options, self._knowledge_of(found)):
                        return result
                choices = self.run.orders(lambda: easy_orders(problem, options, self._graph()))
                if choices:
                    self.history.order_chosen(choices[0])
            except RequestedEndError:
                raise  # no time is left to load the search with bounds
            except TimeLimitError:
                choices = []  # the search with bounds gives bounds, and an assignment
            spent = working_time() - begin - rows.seconds
            if choices and needs_no_bounds(problem, self.semiring, choices[0], options):
                result = self._eliminate_easily(choices, spent, found)
                if result is not None and rows.summary:
                    notes = (*result.notes, f"solved without bounds, after {rows.summary}")
                    result = replace(result, notes=notes, seconds={**result.seconds, "rows": rows.seconds})
                if result is not None and result.linear_constraints != "relaxed":
                    return result
        else:
            self.run.orders(list)
        from oocbe.search.bounded import BoundedSolve
        from oocbe.search.elimination_attempts import EliminationAttempts  # not for an easy solve

        known = self._knowledge_of(found)
        # Predictions ignore consumptions carried in rows: attempts are made where these are all that may be many.
        is_possible = options.bounds == "auto" and (
            not carried_in_rows(problem) or any(sum(c.predicted_rows) <= FEW_ROWS for c in choices)
        )
        fixed = (self.semiring, options, known, self._attempt, self._graph, is_possible)
        others = EliminationAttempts(lambda: problem, *fixed)
        search = BoundedSolve(self._target, options, known, self._engine, self.run, self._start, others, rows)
        search.statistics.seconds["order"] = spent
        self._statistics = search.statistics
        try:
            search.run()
        except (UnsupportedError, ValueRangeError) as error:
            # Elimination supports problems that a relaxation cannot represent; otherwise it raises its own error.
            result = self._eliminate(self._orders(), working_time() - begin)
            return replace(result, notes=(*result.notes, f"solved without bounds: {error}"))
        if likely := others.likely_order:
            self.history.order_chosen(likely)
        seconds = search.statistics.seconds
        seconds["forward"] += others.given_up_seconds
        seconds["order"] += others.order_seconds
        taken = {"rows": rows.seconds, "mini-buckets": search.mini_buckets.seconds}
        seconds.update({name: share for name, share in taken.items() if share > 0})
        if (result := others.result) is not None:
            note = f"solved without bounds, as they had not closed after {seconds['bounds']:.3g} s"
            seconds = {name: spent + result.seconds.get(name, 0.0) for name, spent in seconds.items()}
            return replace(result, notes=(*result.notes, note), seconds=seconds, solvers=search.statistics.solvers)
        result = result_of_bounds(problem, options, known, search.statistics, self._backend)
        return replace(result, seconds=seconds)

    def _solved_smaller(self, left: PresolvedProblem, seconds: float) -> Result:
        """The result from the presolved problem; ``seconds`` : of presolve."""
        within = replace(self, stack=self.stack.then(left), reduction=left.done)
        self._within = left, within
        result = left.result(within.solve())
        return replace(result, seconds={**result.seconds, "order": result.seconds.get("order", 0.0) + seconds})

    def _attempt(self, choices: list[OrderChoice], deadline: Deadline) -> Result:
        """Elimination without bounds, with a deadline of its own; raises TimeLimitError when it passes."""
        return replace(self, options=replace(self.options, time_limit=None), deadline=deadline)._eliminate(choices, 0.0)

    def _orders(self) -> list[OrderChoice]:
        options, left = self.options, self.deadline.remaining
        return thorough_orders(self.problem, self.semiring, options, left, longest_search(options.order_seconds, left))

    def _eliminate_easily(
        self, choices: list[OrderChoice], order_seconds: float, found: list[Incumbent]
    ) -> Result | None:
        """Elimination without bounds; None if it did not finish and bounds can still help.

        That is the case if time ran out (mini-bucket bounds are cheap), or if memory or disk ran out and an assignment
        is known. found : filled with the incumbents found so far.
        """
        begin = time.perf_counter()
        try:
            return self._finished(self._race(choices, found), order_seconds, begin)
        except RequestedEndError:
            if found:
                self._knowledge_of(found)
            raise
        except TimeLimitError:
            return None
        except ResourceError:
            if self._knowledge_of(found).assignment is None:
                raise
            return None

    def _eliminate(self, choices: list[OrderChoice], order_seconds: float) -> Result:
        """Elimination without bounds; if it cannot finish, the result has the incumbents found so far."""
        begin = time.perf_counter()
        found: list[Incumbent] = []
        try:
            return self._finished(self._race(choices, found), order_seconds, begin)
        except (TimeLimitError, ResourceError) as error:
            if not found:
                raise
            known, statistics = self._knowledge_of(found), Statistics(stopped=str(error))
            return result_of_bounds(self.problem, self.options, known, statistics, self._backend)

    def _race(self, choices: list[OrderChoice], found: list[Incumbent]) -> RaceWinner:
        """The forward pass; ``found`` : filled with the incumbents found in parallel."""
        options, problem = self.options, self.problem
        if options.tables != INCOMPLETE and predictions_are_exact(problem):
            choices = choices[:1]
        is_request = False
        beside = beside_elimination(lambda: self._target, options) if applies_to(self.semiring) else nullcontext()
        with beside as incumbents:
            try:
                check_disk(problem, self.semiring, choices, options, self.run.disk_available)
                given = (problem, self.semiring, choices, options.dominance, self.run, self._engine)
                race = Race(*given, tables=options.tables, dtype=value_dtype(problem, self.semiring))
                for attempt in race.rounds():
                    with attempt:
                        bucket_done = self._start(problem, attempt.choice, "")
                        attempt.outcome = attempt.forward.run(bucket_done, may_forget=self.semiring.selects)
            except BaseException as error:
                is_request = isinstance(error, RequestedEndError) or not isinstance(error, Exception)
                raise
            finally:
                if incumbents is not None and (best := incumbents.best) is not None:
                    found.append(best)
                if found and is_request:
                    self._knowledge_of(found)
        assert race.winner is not None
        return race.winner

    def _knowledge_of(self, found: list[Incumbent]) -> SharedBounds:
        """The bounds and incumbents so far, including those in ``found``."""
        if self._known is None:
            stack, target = self.stack.then(self._minimised), self._target
            self._known = SharedBounds(target, self.options.gap, stack.report(self.history.bounds_changed))
            if (first := stack.known_left) is not None and (value := target.evaluate(first)) is not None:
                self._known.offer(value, first, "hint")
        for best in found:
            self._known.offer(best.value, best.assignment, best.method)
        return self._known

    def _finished(self, winner: RaceWinner, order_seconds: float, begin: float) -> Result:
        """The backward pass; ``begin`` : of the forward pass."""
        outcome, assignment = winner.outcome, None
        with winner.store:
            fault_point("forward:done")
            forward_end = time.perf_counter()
            if outcome.value is not None and self.semiring.selects:
                assignment = backward_pass(winner.prepared, outcome.buckets, outcome.recomputation, self.deadline)
            fault_point("backward:done")
        how = (outcome, winner.choice.order, winner.prepared.dtype.name, assignment, self._backend, winner.attempts)
        result = result_of_elimination(self.problem, self.options, *how)
        seconds = {
            "order": order_seconds,
            "forward": forward_end - begin,
            "backward": time.perf_counter() - forward_end,
        }
        return replace(result, seconds=seconds)

    @cached_property
    def _minimised(self) -> Reformulation:
        """The problem in min-sum, for bounds and searches for assignments."""
        with unlimited():  # partial results at a limit refer to this problem
            return Negation.of(self.problem)

    @property
    def _target(self) -> Problem:
        return self._minimised.problem

    @property
    def _backend(self) -> str:
        return "cuda" if self._engine.uses_device else "cpu"

    def _start(self, problem: Problem, choice: OrderChoice, bounds: str) -> Callable[[int, int, int], None]:
        """Notify the observer of the start of a run; returns the callback for the run's buckets."""
        plan = partial(plan_for, problem, self.semiring, choice, bounds, self.options)
        return self.history.begin(problem, choice, plan)
