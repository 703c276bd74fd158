"""Solve a problem that one loop does not solve: with bounds if costs are minimised or values maximised, else by plain
elimination.

Small problems, by the predicted rows of the first orders, are eliminated directly, as computing bounds would not pay
off.

:class:`IntegerScaling`: costs are often floats such as 0, 2.5 and 100.0. Sums of integers need no tolerance for
rounding: a bound of 2.0001 proves 3 instead of 2.0001, bounds of linear programs are rounded up, penalties are
distinguished from constraints, and tables have numbers of 32 bits. If all values are multiples of 2**-20 and their sums
are small, float sums are exact, and both problems are equivalent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.solving.components import Component, Components
from oocbe.api.solving.history import History
from oocbe.bounds.row_reduction import Reduction
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.resources import engine_for, memory_warning, message_memory
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.orders.order import OrderChoice, longest_search
from oocbe.elimination.orders.primal_graph import PrimalGraph, predictions_are_exact
from oocbe.elimination.outcome import blank_result, result_of_elimination
from oocbe.elimination.plan.plan import check_disk, easy_orders, needs_no_bounds, plan_for, thorough_orders
from oocbe.elimination.preparation.logarithms import OUT_OF_RANGE, Logarithms
from oocbe.elimination.preparation.ranges import EXACT_SUM, FRACTION, are_fractions, value_dtype
from oocbe.elimination.race import Race, RaceWinner
from oocbe.elimination.reformulation import Number, Reformulation, Stack
from oocbe.elimination.runs.durability import Run, open_run
from oocbe.elimination.solution_check import check_solution, has_logarithms
from oocbe.errors import (
    FloatRangeError,
    OocbeError,
    RequestedEndError,
    ResourceError,
    TimeLimitError,
    UnsupportedError,
    ValueRangeError,
)
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, keeping, suppressed_limit, unlimited
from oocbe.runtime.faults import fault_point
from oocbe.runtime.interruption import Interruption
from oocbe.runtime.process_memory import peak_memory
from oocbe.search.incumbent_search import beside_elimination, offer_first
from oocbe.search.presolve import FEW_ROWS, PresolvedProblem, is_easy, opening_result, presolve, result_of_bounds
from oocbe.search.searches import Searches
from oocbe.search.subsolver import SharedBounds, Statistics

if TYPE_CHECKING:
    from oocbe.bounds.incumbent import Incumbent
    from oocbe.model.settings.option_values import Gap
    from oocbe.search.bounded import BoundedSolve
    from oocbe.search.elimination_attempts import EliminationAttempts


@dataclass(frozen=True)
class IntegerScaling(Reformulation):
    """A problem of floats as one of integers, in units of a step: the greatest common divisor of all values."""

    step: float = 1.0

    @classmethod
    def of(cls, problem: Problem) -> Reformulation:
        """Unchanged for products, integers, floats without a step or with rounded sums, and after the time limit."""
        unchanged = Reformulation(problem, problem)
        if not problem.semiring.optimises_sums or not are_fractions(problem):
            return unchanged
        common = abs(int(problem.constant / FRACTION))
        for f in problem.functions:
            common = math.gcd(common, int(np.gcd.reduce(_steps(f.values, FRACTION))), int((f.default or 0) / FRACTION))
        step = FRACTION * (common or 1)
        top = problem.upper_bound
        try:
            functions = []
            for f in problem.functions:
                default = None if f.default is None else int(f.default / step)
                functions.append(Function(f.scope, f.tuples, _steps(f.values, step), default))
            made = replace(
                problem,
                functions=tuple(functions),
                constant=int(problem.constant / step),
                upper_bound=None if top is None else _least_from(top, step),
            )
        except TimeLimitError:
            return unchanged
        return cls(problem, made, step, name="integer scaling")

    def options(self, options: SolveOptions) -> SolveOptions:
        """The options with differences of values and upper bounds in steps."""
        ub, gap = options.ub, options.gap
        ub = None if ub is None else _least_from(ub, self.step)
        return replace(options, ub=ub, gap=replace(gap, absolute=gap.absolute / self.step))

    def bounds(self, bound: Number, value: Number) -> tuple[Number, Number]:
        """The floats."""
        return None if bound is None else bound * self.step, None if value is None else value * self.step


def _steps(values: Any, step: float) -> NDArray[np.int64]:
    """Values in units of a step, of which they are multiples."""
    return np.asarray(np.asarray(values, dtype=np.float64) / step).astype(np.int64)


def _least_from(bound: float, step: float) -> int:
    """The least number of steps that reaches a bound: fewer steps are less than the bound. All sums are smaller in
    magnitude than :data:`EXACT_SUM`."""
    return math.ceil(max(-EXACT_SUM, min(bound, EXACT_SUM)) / step)


UNBOUNDED = "bounds exist for sums only: solved by sums of logarithms"
"""Reason for the use of logarithms, for a result's notes."""


def allows_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether the logarithms of a problem of products may be solved in its place.

    Products of integers are exact, and are not converted. If an order, no bounds or a resumable run is requested, the
    given problem is eliminated.
    """
    semiring = problem.semiring
    if not semiring.selects or semiring.combination is not Combination.MULTIPLY or problem.is_integral:
        return False
    is_free = options.bounds == options.order == options.tables == "auto" and options.workdir is None
    return is_free and bool(problem.variables) and has_logarithms(problem)


def prefers_logarithms(problem: Problem, options: SolveOptions) -> bool:
    """Whether to use logarithms at once: if they are allowed, unless elimination of the products is fast."""
    if not allows_logarithms(problem, options):
        return False
    choices: list[OrderChoice] = []
    with suppressed_limit(), Deadline(options.time_limit):
        choices = easy_orders(problem, options)
    return not choices or sum(choices[0].predicted_rows) > FEW_ROWS


LOGARITHM_SECONDS = 0.25
"""Time limit of making logarithms, at least."""

SHORTEST_LIMIT = 1e-3
"""Minimum time limit of an attempt, in seconds, after an earlier one that used up the time limit."""

OVERTIME = 2.0
"""Deadline of a component's turn, as a multiple of its length. A step that it ends ends the search, too: the next turn
begins anew."""

MOST_PAUSED = 3
"""Maximum number of components whose searches are kept between their turns: each may hold a fifth of the memory."""


def solved_or_by_logarithms(
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
    stack, options = stack.then(logarithms), replace(logarithms.options(options), time_limit=left(SHORTEST_LIMIT))
    return _solved(stack, options, history, begin, interruption)


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
                solving = Solving(stack, options, history, deadline, run)
                result = solving.solve_interruptibly(interruption)
            if options.workdir is not None:  # nothing wrong is saved
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


def unfinished(stack: Stack, options: SolveOptions, history: History, interruption: Interruption) -> Result:
    """The partial result of a solve that a signal ended before a strategy began."""
    return Solving(stack, options, history, Deadline(), Run(stack.problem, options)).unfinished(interruption)


@dataclass
class Solving:
    """One solve: its data and its strategies.

    reduction : if the problem is the rest of a larger one. turn_end : working time at which its search pauses.
    """

    stack: Stack
    options: SolveOptions
    history: History
    deadline: Deadline
    run: Run
    reduction: Reduction | None = None
    turn_end: float = math.inf

    def __post_init__(self) -> None:
        self.problem, self.semiring = self.stack.problem, self.stack.problem.semiring
        self._engine = engine_for(self.options, self.deadline)
        self.run.memory = message_memory(self.options)
        self.warning = memory_warning(self.options)
        self._known: SharedBounds | None = None
        self._within: tuple[Reformulation, Solving] | None = None
        self._components: Components | None = None
        self._bounded: tuple[BoundedSolve, EliminationAttempts, Searches] | None = None
        self._before = 0.0  # seconds before the problem within
        self._graph = cache(partial(PrimalGraph, self.problem))  # shared by several strategies

    def solve_interruptibly(self, interruption: Interruption) -> Result:
        """The result, or the partial result after a signal."""
        try:
            result = self.solve()
        except BaseException as error:
            if interruption.caused(error):
                return self.unfinished(interruption)
            found = interruption.behind(error)
            if found is error:
                raise
            raise found from None
        was_requested = result.status == "limit" and self.deadline.is_requested
        return replace(result, status="interrupted") if was_requested else result

    def unfinished(self, interruption: Interruption) -> Result:
        """The partial result after a signal."""
        if self._within is not None:
            result = self._from_within(self._within[1].unfinished(interruption))
            if self._components is not None and (rest := self._components.rest) is not None:
                with interruption.suppressed():
                    return rest.result(self._part(rest, self.deadline).unfinished(interruption))
            return result
        problem, options, why = self.problem, self.options, interruption.reason
        if (
            problem.variables
            and self.semiring.optimises_sums
            and options.bounds != "none"
            and options.incumbent_seconds
        ):
            with interruption.suppressed():
                offer_first(self._knowledge_of([]))
        if (found := self.result_so_far(why)) is None:
            return blank_result(problem, options, "interrupted", self._backend, notes=(why,))
        return replace(found, status="interrupted") if found.status == "limit" else found

    def result_so_far(self, stopped: str) -> Result | None:
        """The result with the best bound and assignment so far; None without any. stopped : why, a sentence."""
        if self._within is not None:
            result = self._within[1].result_so_far(stopped)
            return None if result is None else self._from_within(result)
        known = self._known
        if known is None or (known.lower is None and known.assignment is None):
            return None
        statistics = replace(self._statistics, stopped=stopped)
        result = result_of_bounds(self.problem, self.options, known, statistics, self._backend)
        return replace(result, seconds=statistics.seconds)

    def solve(self) -> Result:
        """Solve by elimination alone, or with bounds, or by elimination and then with bounds."""
        options, problem, begin = self.options, self.problem, working_time()
        value_dtype(problem, self.semiring)  # refuses sums out of range
        bounded = bool(problem.variables) and self.semiring.optimises_sums and options.bounds != "none"
        bounded = bounded and options.tables != "complete"
        if not bounded:
            return self._eliminate(self.run.orders(self._orders), working_time() - begin)
        found: list[Incumbent] = []
        spent = 0.0
        rows = Searches(self._target, options, self._knowledge_of(found), self.deadline, self.reduction)
        rows.portfolio.turn_end = self.turn_end
        if options.bounds == "auto":
            try:
                if options.order == "auto" and options.workdir is None and not is_easy(problem, self._graph):
                    with keeping(tuning().bound_seconds * len(problem.variables)):
                        left = None if self.reduction else presolve(problem, options, rows.form)
                    if left:
                        return self._solved_smaller(left, working_time() - begin)
                    if components := Components.of(problem, options, self._knowledge_of(found).assignment):
                        return self._solved_apart(components, working_time() - begin)
                    if result := opening_result(problem, rows, options, self._knowledge_of(found)):
                        return result
                with keeping(tuning().bound_seconds * len(problem.variables)):
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
        self._bounded = search, others, rows
        return self._searched(search.run, others)

    def _searched(self, run: Callable[[], None], others: EliminationAttempts) -> Result:
        """The result of the search with bounds after a turn, which ``run`` makes."""
        try:
            run()
        except (UnsupportedError, ValueRangeError) as error:
            # Elimination supports problems that a relaxation cannot represent; otherwise it raises its own error.
            result = self._eliminate(self._orders(), sum(self._statistics.seconds.values()))
            return replace(result, notes=(*result.notes, f"solved without bounds: {error}"))
        if likely := others.likely_order:
            self.history.order_chosen(likely)
        statistics = self._statistics
        seconds = statistics.seconds
        if (found := others.result) is not None:
            note = f"solved without bounds, as they had not closed after {seconds['bounds']:.3g} s"
            seconds = {name: spent + found.seconds.get(name, 0.0) for name, spent in seconds.items()}
            return replace(found, notes=(*found.notes, note), seconds=seconds, solvers=statistics.solvers)
        assert self._known is not None
        result = result_of_bounds(self.problem, self.options, self._known, statistics, self._backend)
        return replace(result, seconds=seconds)

    @property
    def _statistics(self) -> Statistics:
        """Resources used by the search with bounds and all its solvers so far."""
        if self._bounded is None:
            return Statistics()
        search, others, rows = self._bounded
        seconds = dict(search.statistics.seconds)
        seconds["forward"] += others.given_up_seconds
        seconds["order"] += others.order_seconds
        taken = {"rows": rows.seconds, "mini-buckets": search.mini_buckets.seconds}
        seconds.update({name: share for name, share in taken.items() if share > 0})
        statistics = replace(search.statistics, seconds=seconds)
        rows.report(statistics)
        return statistics

    @property
    def can_go_on(self) -> bool:
        """Whether a search with bounds has begun, which can continue after its turn."""
        if self._within is not None:
            return self._components is None and self._within[1].can_go_on
        return self._bounded is not None

    def go_on(self, deadline: Deadline, turn_end: float, gap: Gap) -> Result:
        """The result after another turn of the search."""
        if self._within is not None:
            return self._from_within(self._within[1].go_on(deadline, turn_end, gap))
        assert self._bounded is not None and self._known is not None
        self.deadline, self._known.gap = deadline, gap
        search, others, _ = self._bounded
        return self._searched(partial(search.go_on, deadline, turn_end), others)

    def _from_within(self, result: Result) -> Result:
        """The result from that of the problem within."""
        assert self._within is not None
        return self._with_before(self._within[0].result(result))

    def _with_before(self, result: Result) -> Result:
        """The result with the seconds before the problem within."""
        return replace(result, seconds={**result.seconds, "order": result.seconds.get("order", 0.0) + self._before})

    def _solved_smaller(self, left: PresolvedProblem, seconds: float) -> Result:
        """The result from the presolved problem; ``seconds`` : of presolve."""
        within = replace(self, stack=self.stack.then(left), reduction=left.done)
        self._within, self._before = (left, within), seconds
        return self._from_within(within.solve())

    def _solved_apart(self, components: Components, seconds: float) -> Result:
        """The result from the parts of the problem; ``seconds`` : of the search for them."""
        self._components, self._before = components, seconds
        stopped: dict[tuple[int, ...], OocbeError] = {}
        paused: dict[tuple[int, ...], tuple[Component, Solving]] = {}
        for component, limit in components.turns(self.deadline):
            found: Result | None
            turn_end = math.inf if limit is None else working_time() + limit
            with Deadline(None if limit is None else OVERTIME * limit) as deadline:
                before = paused.pop(component.numbers, None)
                self._within = component, part = before or (component, self._part(component, deadline, turn_end))
                if deadline.passed:  # no time for a better bound
                    sign = 1 if self.semiring.marginalisation is Marginalisation.MIN else -1
                    part._knowledge_of([]).raise_lower(sign * component.bound, "minima")
                try:
                    gap = component.options(self.options).gap
                    found = part.go_on(deadline, turn_end, gap) if before else part.solve()
                    stopped.pop(component.numbers, None)
                except RequestedEndError:
                    raise
                except (TimeLimitError, ResourceError) as error:
                    stopped[component.numbers] = error
                    with unlimited():
                        found = part.result_so_far(str(error))
            if found is not None:
                components.take(component, found)
            if deadline.passed:
                continue  # in the middle of a step: the next turn begins anew
            if working_time() < turn_end:
                components.give_up(component.numbers)
            elif part.can_go_on and len(paused) < MOST_PAUSED and self.problem.upper_bound is None:
                paused[component.numbers] = component, part
        if not components.has_results:
            self._within = self._components = None
            raise next(iter(stopped.values()), TimeLimitError(self.deadline.reason))
        result = components.result()
        if result.status in UNPROVEN:
            result = replace(result, notes=tuple(dict.fromkeys((*result.notes, *map(str, stopped.values())))))
        return self._with_before(result)

    def _part(self, component: Component, deadline: Deadline, turn_end: float = math.inf) -> Solving:
        """The solve of some parts, from their best assignment."""
        lifted = None if component.known is None else self.stack.lift(component.known)
        stack = replace(self.stack, known=lifted or self.stack.known).then(component)
        options = component.options(self.options)
        return replace(self, stack=stack, options=options, deadline=deadline, reduction=None, turn_end=turn_end)

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
        is_request, has_search = False, self.semiring.optimises_sums
        left = self.deadline.remaining
        beside = beside_elimination(lambda: self._target, options, left) if has_search else nullcontext()
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
                if incumbents is not None and isinstance(error, ResourceError):
                    incumbents.search_briefly()
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
            return self.stack.minimised()

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
