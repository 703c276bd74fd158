"""Solve with bounds: an incumbent as upper bound, a relaxation as lower bound, and elimination between them.

Elimination searches below a *threshold*: rows without a completion below it are pruned, after the removal of values
that the bound excludes (:mod:`oocbe.propagation.value_removal`). An assignment that it finds is optimal; if it finds
none, the threshold is a proven lower bound. The first threshold is just above the root bound, and later ones rise to at
most the incumbent: the number of rows grows steeply with the distance between threshold and bound, so the narrow
searches that find nothing are cheap, and a poor incumbent causes no cost.

At each threshold a few orders race under a cap on rows. If none finishes, the remaining problem gets a tighter bound of
its own, the order search gets more time, and the cap rises. Between these steps other solvers run
(:mod:`oocbe.search.subsolver`). Time limit, gap and memory end the search.
Restrictions by bounds are recorded (:class:`Scope`), so that a resumed run reproduces them exactly.

Mini-bucket bounds run beside the search, on both sides, with growing z. If a linear program or dual ascent leaves a
gap, as on dense networks of costs, mini-bucket elimination often has the better bound; its backward pass gives an
assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.consumption import left_out
from oocbe.elimination.orders.order import OrderChoice, is_order_file, judge_order, read_order, search_orders
from oocbe.elimination.race import CAP_FACTOR, Race, RaceWinner
from oocbe.elimination.reformulation import Stack
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.elimination.runs.durability import Run
from oocbe.errors import OocbeError, ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.value_removal import remove_values
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, unlimited
from oocbe.search.elimination_attempts import EliminationAttempts
from oocbe.search.incumbent_search import IncumbentSearch
from oocbe.search.searches import Searches
from oocbe.search.subsolver import FIRST_SECONDS, HEAD_START, TERMS, SharedBounds, Statistics, SubSolver

if TYPE_CHECKING:
    from oocbe.bounds.bounds import BoundSources
    from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

LEAST_Z, FIRST_COST = 3, 0.1
"""The first z, and the estimated seconds of its pass, including the order search."""

GROWTH = 8.0
"""Estimated time of the next pass relative to the last one; time limit of a pass, and estimated time of its
repetition, relative to its estimate."""


class MiniBucketRounds(SubSolver):
    """Passes of growing z over one min-sum problem, with its settings; ``known`` is updated."""

    def __init__(self, problem: Problem, options: SolveOptions, known: SharedBounds) -> None:
        super().__init__(known)
        self._problem = problem
        # Mini-buckets are joined in memory, not in pieces.
        whole = replace(options, piece_rows=None, streams=None)
        self._options = replace(whole, order_seconds=0.0, incumbent_seconds=0.0, semiring=None)
        self._next_cost, self._z = FIRST_COST, LEAST_Z
        self._bounding: Bounding | None = None

    @property
    def cost(self) -> float:
        """Estimated seconds of the next pass."""
        return self._next_cost

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one pass; one that takes too long is repeated when much more time is available."""
        # Loaded late, as easy solves do not need it, and before the deadline of a pass starts.
        from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

        begin = working_time()
        try:
            with Deadline(min(deadline.remaining, GROWTH * self._next_cost)) as allowed:
                if self._bounding is None:
                    self._bounding = Bounding(self._problem, self._options, "scope", False, None).prepare()
                self._pass(self._bounding, allowed)
            self._z += 1
        except TimeLimitError:
            deadline.check()
        except OocbeError:  # memory exhausted, or an unsupported problem
            self.is_over = True
            deadline.check()
        self._next_cost = GROWTH * (working_time() - begin)

    def _pass(self, bounding: Bounding, deadline: Deadline) -> None:
        known, found = self._known, bounding.with_z(self._z, deadline)
        self.is_over = found.split_buckets == 0
        why = f"mini-buckets with z = {self._z}"
        if found.assignment is not None:
            value = self._problem.evaluate(found.assignment)
            assert value is not None
            known.offer(value, found.assignment, why)
        # Without a bound, no assignment is below the problem's upper bound.
        known.raise_lower(known.upper_bound if found.bound is None else found.bound, why)


Values = tuple[tuple[int, int], ...]
"""Pairs of variable and value."""


@dataclass(frozen=True)
class Scope:
    """A restricted problem, and a bound on it.

    stack : the restrictions of the whole problem. source : None before the first bound.
    removals : values removed by each restriction; variables are numbered as before it.
    """

    stack: Stack
    source: BoundSource | None = None
    removals: tuple[Values, ...] = ()

    @property
    def problem(self) -> Problem:
        """The restricted problem."""
        return self.stack.problem

    @property
    def variables(self) -> tuple[int, ...]:
        """Index in the whole problem of each variable."""
        count = len(self.problem.variables)
        return self.stack.lift_order(range(count))[-count:] if count else ()

    def below(self, threshold: int | float) -> Scope | None:
        """The scope restricted to assignments below a threshold; None if there are none."""
        assert self.source is not None
        if self.source.root >= threshold:
            return None
        return self._without(threshold, self.source.fixed_values(threshold))

    def _without(self, threshold: int | float, removed: Iterable[tuple[int, int]]) -> Scope | None:
        removed = tuple((int(v), int(value)) for v, value in removed)
        made = remove_values(self.problem, removed)
        if made.is_infeasible:
            return None
        source = self.source
        if source is not None and made.problem is not self.problem:
            source = source.restricted(made.problem, made.kept)
        stack = self.stack.then(replace(made, problem=made.problem.below(threshold)))
        return Scope(stack, source, (*self.removals, removed))

    def after(self, removals: Iterable[Values], threshold: int | float) -> Scope | None:
        """The scope after removals that a run has proven valid below the threshold; None if it is empty."""
        scope: Scope | None = self
        for removed in removals:
            scope = None if scope is None else scope._without(threshold, removed)
        return scope


@dataclass(frozen=True)
class RunningOrder:
    """An order run on a scope with ``removals``, below a threshold, published to resume; ``cap``: of message rows."""

    removals: tuple[Values, ...]
    threshold: int | float
    order: tuple[int, ...]
    cap: int

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> RunningOrder:
        """Restore an order from its record of JSON types."""
        removals = tuple(tuple((v, value) for v, value in removed) for removed in record["removals"])
        return cls(removals, record["threshold"], tuple(record["order"]), record["cap"])


QUICK_CAP = 1 << 16
"""Cap on a message's rows in the first round at a threshold, which tries one order per heuristic."""

FIRST_LOOK_SECONDS = 0.1
"""Seconds of local search before all other solvers. With an incumbent the bound can stop early."""

LEAST_RULED_OUT = 0.02
"""Minimum share of values ruled out by a bound for another bound on the remaining values at once."""

LAST_BOUND_SECONDS = 0.5
"""Time limit, in seconds, of a last bound if the deadline came before any bound."""

ELIMINATION_SECONDS = 2.0
"""Expected time of an elimination below a threshold, in seconds, if the root bound is below that of the searches, or
comes early: of rosters and protein designs it took 2 to 9 s, of Latin squares 3 to 5 s, and gained nothing."""

_END = object()

Start = Callable[[Problem, OrderChoice, str], Callable[[int, int, int], None] | None]
"""Called at the start of each run with (problem, order, bound); returns the per-bucket callback, or None."""


class BoundedSolve(SubSolver):
    """One solve of a min-sum problem: bounds and elimination below thresholds, in a portfolio with all other solvers.

    problem : in min-sum; its upper bound applies. options : settings. known : updated.
    engine : computes the buckets; its deadline ends the search. run : stores messages and bounds for a resumed run.
    start : see :data:`Start`. plain : elimination without bounds, which may end the search. searches : its portfolio
        runs all solvers.
    statistics, mini_buckets : resources used; ``statistics`` excludes the other solvers.
    """

    is_coarse = True

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        known: SharedBounds,
        engine: BucketEngine,
        run: Run,
        start: Start,
        plain: EliminationAttempts,
        searches: Searches,
    ) -> None:
        super().__init__(known)
        self._plain, self._searches = plain, searches
        plain.keep = self._keep
        self.mini_buckets = MiniBucketRounds(problem, options, known)
        self._incumbents = IncumbentSearch(problem, options, known)
        self._problem, self._options = problem, options
        self._engine, self._run, self._start = engine, run, start
        self._given: list[int] | None = None
        if is_order_file(options.order):
            self._given = read_order(problem, options.order)
        self._bounds = 0
        self._width: int | float = 0
        self._at_work: dict[str, Any] | None = None
        self._left = self._next_seconds = 0.0
        self._rounds = self._all_rounds()
        self.statistics = Statistics()

    def run(self) -> None:
        """Search until the optimum is proven, a limit is reached, or memory ends.

        Raises ResourceError: memory or disk ran out, and no bound or assignment is known.
        """
        known, options, portfolio = self._known, self._options, self._searches.portfolio
        attempt = None if self._run.known is None else self._run.known.get("attempt")
        try:
            self._width = self._resumed_width()
            if attempt is not None and self._plain.resume(attempt, self._engine.deadline):
                return
            if "bounds" not in portfolio.members:
                self._searches.load()
                if self._incumbents.is_available:
                    self._incumbents.work(min(FIRST_LOOK_SECONDS, options.incumbent_seconds), self._engine.deadline)
                self._join_portfolio()
            portfolio.run(lambda: known.is_near_enough or self._plain.result is not None)
            self.statistics.stopped = self._engine.deadline.reason if portfolio.is_turn_over else ""
        except TimeLimitError as reached:
            self.statistics.stopped = str(reached)
        except ResourceError as error:
            if known.lower is None and known.value is None:
                raise
            self.statistics.stopped = str(error)
        with unlimited():
            self._conclude_search()

    def go_on(self, deadline: Deadline, turn_end: float) -> None:
        """Continue after a turn that no deadline ended, until another end and deadline; errors as of :meth:`run`."""
        portfolio = self._searches.portfolio
        self._engine.deadline = portfolio.deadline = deadline
        portfolio.turn_end = turn_end
        self._plain.reopen()
        self.run()

    def _join_portfolio(self) -> None:
        searches, portfolio = self._searches, self._searches.portfolio
        searches.join_bounds()
        after = searches.first_seconds
        # The first linear program of a large photograph problem takes a second, that of a choice of warehouses a tenth.
        first_step = FIRST_SECONDS if searches.waits_for_bounds and not searches.form.is_supply else 0.0
        # The first bound of unary costs takes half a second, and its reduced costs exclude values from the searches.
        begin = 0.0 if searches.waits_for_bounds else min(after, HEAD_START) if searches.form.is_unary else after
        portfolio.add("bounds", self, replace(TERMS["bounds"], after=begin, first_step=first_step))
        portfolio.add("incumbents", self._incumbents, replace(TERMS["incumbents"], after=after))
        if self._options.bounds == "auto":
            portfolio.add("mini-buckets", self.mini_buckets, replace(TERMS["mini-buckets"], after=after))
        portfolio.add("plain", self._plain, replace(TERMS["plain"], after=after))

    @property
    def cost(self) -> float:
        """Expected seconds of the next elimination below a threshold; 0 while the root bound leads, or is not done."""
        return self._next_seconds

    def _step(self, seconds: float, deadline: Deadline) -> None:
        self._left = seconds
        if next(self._rounds, _END) is _END:
            self.is_over = True

    def _all_rounds(self) -> Generator[None]:
        """Compute the root bound, then search below rising thresholds."""
        known, options = self._known, self._options
        import oocbe.bounds.bounds

        with suppress(ImportError):  # outside the time limit of the bounds, which report that HiGHS is missing
            import oocbe.bounds.relaxation  # noqa: F401
        most = options.bound_seconds if self._searches.waits_for_bounds else min(options.bound_seconds, self._left)
        most = self._plain.root_seconds(most)
        whole, sources = Scope(Stack(self._problem)), self._sources(self._problem, math.inf)
        while True:
            whole = self._bound(whole, math.inf, min(most - self.statistics.seconds["bounds"], self._left), sources)
            known.source = whole.source
            self._engine.deadline.check_requested()
            if not known.is_near_enough:
                begin = working_time()
                self._searches.lay_out(sources.relaxation)
                self.seconds -= working_time() - begin  # time of the searches, which join now
            is_over = sources.is_over or known.is_near_enough or self.statistics.seconds["bounds"] >= most
            assert whole.source is not None and known.lower is not None
            is_late = whole.source.root < known.lower or self._searches.form.is_unary
            if is_over and is_late and not self._searches.waits_for_bounds:
                self._next_seconds = ELIMINATION_SECONDS
            yield
            if is_over:
                break
        del sources  # and the linear programs, but the one that is searched
        width = self._width or first_width(known)
        resumed = self._resumed_order()
        while not known.is_near_enough and not self.statistics.spoiled:  # searches keep the constraints
            assert known.lower is not None
            self._width = width
            if resumed is None:
                self._keep(None)
            yield from self._search_below(whole, min(known.lower + width, known.upper_bound), resumed)
            resumed = None
            width = next_width(known, width)
            yield

    def _conclude_search(self) -> None:
        """Search for an assignment if there is none, and publish the bounds."""
        known, options, deadline = self._known, self._options, self._engine.deadline
        incumbents = self._incumbents
        if self._plain.result is not None:
            return
        if known.lower is None:
            with suppress(OocbeError), Deadline(LAST_BOUND_SECONDS):
                self._bound(Scope(Stack(self._problem)), math.inf, 0.0)
        if known.lower is None:  # the loops of a better one could not be compiled in time
            from oocbe.bounds.forbidden import sum_of_minima

            with suppress(OocbeError):
                known.raise_lower(sum_of_minima(self._problem), "minima")
        if known.value is None and not known.is_closed and incumbents.is_available:
            # Without a deadline local search would be compiled in this process, which nothing can end.
            with suppress(TimeLimitError), deadline if deadline.remaining > 0 else nullcontext():
                incumbents.work(min(incumbents.budget - incumbents.seconds, deadline.remaining), deadline)
        is_wanted = options.incumbent_seconds > 0 and not deadline.is_requested
        if known.value is None and not known.is_closed and is_wanted:
            incumbents.search_a_moment()
        if not known.is_closed:
            # A resumed run starts from these bounds: a limit may come before the first round.
            with suppress(ResourceError):
                self._keep_anew()

    def _keep(self, attempt: dict[str, Any] | None, running: RunningOrder | None = None) -> None:
        """Publish the bounds for a resumed run, with the plain ``attempt`` or the bounded order that starts now."""
        order = None if running is None else asdict(running)
        self._at_work = {"attempt": attempt, "running": order}
        self._keep_anew()

    def _keep_anew(self) -> None:
        """Publish the current bounds, with the work record of the last publication (of this run or the resumed one)."""
        known = self._known
        content = {"lower": known.lower, "value": known.value, "assignment": known.assignment, "width": self._width}
        at_work = self._at_work or {"attempt": None, "running": None, **(self._run.known or {})}
        self._run.keep_known({**at_work, **content})

    def _resumed_order(self) -> RunningOrder | None:
        """The order at which the earlier run was interrupted, if its threshold is still above the bound."""
        record = (self._run.known or {}).get("running")
        found = None if record is None else RunningOrder.of_record(record)
        lower = self._known.lower
        return found if found is not None and lower is not None and found.threshold > lower else None

    def _resumed_width(self) -> int | float:
        """Take the bounds and the incumbent of an earlier run; returns its threshold width, or 0 if there was no such
        run."""
        found = self._run.known
        if found is None:
            return 0
        if found["assignment"] is not None:
            value = self._problem.evaluate(found["assignment"])
            if value is not None:
                self._known.offer(value, tuple(found["assignment"]), "the run that is resumed")
        if found["lower"] is not None:
            self._known.raise_lower(found["lower"], "the run that is resumed")
        width: int | float = found["width"]
        return width

    def _search_below(
        self, whole: Scope, threshold: int | float, resumed: RunningOrder | None = None
    ) -> Generator[None]:
        """Find the optimum, or prove that it is not below the threshold; ends earlier if neither is possible.

        resumed : an order that continues first, with its removals and its own threshold.
        """
        known, statistics, options = self._known, self.statistics, self._options
        scope = None if resumed is None else whole.after(resumed.removals, resumed.threshold)
        cap, seconds, share = QUICK_CAP, 0.0, options.bound_seconds
        if scope is None or resumed is None:
            scope, resumed = whole.below(threshold), None
        else:
            cap, threshold = resumed.cap, resumed.threshold
            scope = self._bound(scope, threshold, share)
        while scope is not None:
            choices = self._orders(scope, seconds, None if resumed is None else [*resumed.order])
            resumed = None
            assert scope.source is not None
            begin = working_time()
            winner = self._race(scope, choices, threshold, cap)
            statistics.seconds["forward"] += working_time() - begin
            if winner is not None:
                self._conclude(winner, scope, threshold)
                return
            yield
            assert known.lower is not None
            if known.upper_bound < threshold or known.lower >= threshold:
                return  # bounds have passed the threshold: the caller chooses the next one
            self._incumbents.budget += options.incumbent_seconds
            scope = self._tightened(scope, threshold, min(share, self._left))
            if known.upper_bound < threshold:
                return
            seconds = options.order_seconds
            share *= 2
            cap *= CAP_FACTOR
        known.raise_lower(threshold, "bounds")

    def _tightened(self, scope: Scope, threshold: int | float, seconds: float) -> Scope | None:
        """The scope tightened by a bound of its own, repeatedly while many values are removed; None if infeasible.

        A linear program over fewer values has other optimal multipliers, which exclude other values even if its bound
        is no better. The loop ends when a better incumbent than the threshold is found.
        """
        end = working_time() + seconds
        while True:
            self._engine.deadline.check()
            values = sum(scope.problem.sizes)
            scope = self._bound(scope, threshold, end - working_time())
            smaller = scope.below(threshold)
            if smaller is None or self._known.upper_bound < threshold or working_time() > end:
                return smaller
            if sum(smaller.problem.sizes) > (1 - LEAST_RULED_OUT) * values:
                return smaller
            scope = smaller

    def _race(self, scope: Scope, choices: list[OrderChoice], threshold: int | float, cap: int) -> RaceWinner | None:
        """Run a round of a race below a threshold, with at most ``cap`` rows a message; None if it is given up."""
        problem, source = scope.problem.below(threshold), scope.source
        assert source is not None
        # Rows kept by dominance may violate a constraint that elimination leaves out but bounds use.
        fixed = (self._options.dominance and not left_out(problem), self._run, self._engine)

        def start(choice: OrderChoice) -> Callable[[int, int, int], None] | None:
            if self._run.keeps_messages:
                self._keep(None, RunningOrder(scope.removals, threshold, choice.order, cap))
            return self._start(scope.problem, choice, source.why)

        race = Race(problem, problem.semiring, choices, *fixed, source)
        for attempt in race.round(cap):
            with attempt:
                attempt.outcome = attempt.forward.run(start(attempt.choice), may_forget=problem.semiring.selects)
        self.statistics.attempts += race.attempts
        return race.winner

    def _conclude(self, winner: RaceWinner, scope: Scope, threshold: int | float) -> None:
        """Take the result of a finished run."""
        known, statistics, outcome = self._known, self.statistics, winner.outcome
        with winner.store:
            statistics.width, statistics.total_rows = outcome.width, outcome.total_rows
            statistics.largest_rows = max(statistics.largest_rows, outcome.largest_rows)
            statistics.dtype = winner.prepared.dtype.name
            statistics.order = scope.stack.lift_order(winner.choice.order)
            if outcome.value is None or outcome.value >= threshold:
                known.raise_lower(threshold, "elimination")
                return
            begin = working_time()
            assignment = scope.stack.lift(
                backward_pass(winner.prepared, outcome.buckets, outcome.recomputation, self._engine.deadline)
            )
            statistics.seconds["backward"] += working_time() - begin
        if all(c.permits(assignment) for c in self._problem.linear_constraints):
            known.offer(outcome.value, assignment, "elimination")
            known.raise_lower(outcome.value, "elimination")
        else:
            known.raise_lower(outcome.value, "elimination without the linear constraints")
            statistics.spoiled = True

    def _orders(self, scope: Scope, seconds: float, given: list[int] | None) -> list[OrderChoice]:
        """Orders for what remains, searched for ``seconds`` within the rest of ``order_seconds``, or the given one."""
        begin = working_time()
        problem, options = scope.problem, self._options
        if given is None and self._given is not None:
            index = {v: i for i, v in enumerate(scope.variables)}
            given = [index[v] for v in self._given if v in index]
        if given is None:
            left = options.order_seconds - self.statistics.seconds["order"] - self._plain.order_seconds
            left = min(seconds, max(left, tuning().first_order_seconds), self._engine.deadline.remaining)
            choices = search_orders(problem, options.order, left, options.seed, deadline=self._engine.deadline)
        else:
            choices = [judge_order(problem, given, options.order, options.seed)]
        self.statistics.seconds["order"] += working_time() - begin
        return choices

    def _sources(self, problem: Problem, threshold: int | float) -> BoundSources:
        """Sources of bounds of a problem for assignments below a threshold."""
        from oocbe.bounds.bounds import BoundSources

        seed, self._bounds = self._options.seed + self._bounds, self._bounds + 1
        return BoundSources(problem, seed, min(threshold, self._known.upper_bound), improve=True)

    def _bound(
        self, scope: Scope, threshold: int | float, seconds: float, improving: BoundSources | None = None
    ) -> Scope:
        """The scope with the best bound found in ``seconds``, among the sources that the options allow.

        improving : sources of the scope's problem from an earlier step, which are improved further; None: new ones.
        """
        begin = working_time()
        known, options = self._known, self._options
        improving = improving or self._sources(scope.problem, threshold)
        seconds, limit = min(seconds, self._engine.deadline.remaining), min(threshold, known.upper_bound)
        sources = improving.improved(seconds, limit)
        for source in sources:
            if source.assignment is not None:
                assignment = scope.stack.lift(source.assignment)
                value = self._problem.evaluate(assignment)
                assert value is not None
                known.offer(value, assignment, source.name)
        allowed = [s for s in sources if options.bounds in ("auto", s.name)]
        source = allowed[0] if allowed else next(s for s in sources if s.name == "constant")
        if not self.statistics.bounds or threshold == math.inf:
            others = ", ".join(f"{s.name} {s.root}" for s in sources if s is not source)
            self.statistics.bounds = f"{source.name}: {source.why}" + (f" (others: {others})" if others else "")
        # Assignments outside this scope cost at least `threshold`.
        known.raise_lower(min(source.root, threshold), source.name)
        # On a tie the new source is preferred: it was made for the remaining problem.
        if scope.source is not None and scope.source.root > source.root:
            source = scope.source
        self.statistics.seconds["bounds"] += working_time() - begin
        return replace(scope, source=source)


WIDER = 8
"""Growth factor of the distance between lower bound and threshold."""

GAP_PARTS = 8
"""Thresholds but the first cover at least this part (an eighth) of the gap."""

LEAST_WIDTH = 2.0**-30
"""Width of the first threshold relative to the upper bound, for non-integral values."""


def first_width(known: SharedBounds) -> int | float:
    """Distance of neighbouring values; for non-integral values, a share of the gap. Never 0, even of subnormal gaps."""
    if known.grid.step:
        return known.grid.step
    assert known.lower is not None
    return max((known.upper_bound - known.lower) / GAP_PARTS, abs(known.upper_bound) * LEAST_WIDTH, math.ulp(0.0))


def next_width(known: SharedBounds, width: int | float) -> int | float:
    """The next width: larger, and at least a share of the current gap."""
    part = 0 if known.lower is None or known.value is None else (known.upper_bound - known.lower) / GAP_PARTS
    if known.grid.step == 0:
        return max(WIDER * width, part)
    return max(WIDER * width, math.floor(part) // known.grid.step * known.grid.step)
