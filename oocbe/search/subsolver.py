"""Solvers that share the time of one solve in slices: bounds, protocol (as OR-tools' ``sat/subsolver.h``), scheduler.

A sub-solver takes bounds from :class:`SharedBounds` at the start of each step, and adds its own. It never calls another
solver of its problem: :class:`Portfolio` alone decides which runs next, by measured time, progress and estimates.

Which solver closes a problem is unpredictable. So each gets a share of the time, and the total is a small multiple of
that of the best one. The solver with the least *virtual time* is next: its own seconds, plus the estimated seconds of
an indivisible step, divided by its weight. An attempt at elimination with an estimate of ten seconds therefore starts
when the other solvers have spent a corresponding time. A solver joins at a virtual time of its own.

The weight is the solver's share (:class:`Terms`) times a few factors (:class:`Parameters`): more if it is expected to
prove the optimum soon, or leads with the lower bound; less if it has made no progress for long. Only ratios of weights
count: if all solvers stagnate, a solver that was given up gets its share again.

The choice depends only on time and progress so far, as reported by the solvers. Under load all of them slow down alike,
so the sequence of choices stays about the same.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from oocbe.elimination.reformulation import Report
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import SolverShare
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline


@dataclass
class SharedBounds:
    """Bounds on the optimum of one problem, each with a proof.

    problem : in min-sum. gap : accepted distance of the bounds. report : called on changes.
    lower : lower bound on all admissible assignments, or None. value, assignment : the best assignment found, or None.
    source : the relaxation of the whole problem with the best bound, whose reduced costs exclude values, or None.
    """

    problem: Problem
    gap: Gap
    report: Report
    lower: int | float | None = None
    value: int | float | None = None
    assignment: tuple[int, ...] | None = None
    source: BoundSource | None = None

    def __post_init__(self) -> None:
        self.grid = self.problem.value_grid
        self._ceiling = above_all_values(self.problem)

    @property
    def upper_bound(self) -> int | float:
        """Cutoff: only assignments strictly below it matter. Without a limit, it exceeds all values."""
        return min(limit for limit in (self.problem.upper_bound, self.value, self._ceiling) if limit is not None)

    def offer(self, value: int | float, assignment: tuple[int, ...], why: str) -> None:
        """Replace the incumbent by a better assignment.

        Non-finite values are ignored.

        Raises InternalError: the assignment is infeasible, or not worth the value
        (:mod:`oocbe.elimination.solution_check`).
        """
        if value < self.upper_bound and math.isfinite(value):
            check_solution(self.problem, value, assignment, why)
            if self.problem.upper_bound is not None and self.problem.evaluate(assignment) is None:
                return  # in the problem's own order of summation the value reaches its bound
            self.value, self.assignment = value, assignment
            self.report(self.lower, self.value, why, self.assignment)

    def raise_lower(self, bound: int | float, why: str) -> None:
        """Raise the lower bound to a better proven bound, capped at the upper bound."""
        bound = min(bound, self.upper_bound)
        if self.lower is None or bound > self.lower:
            self.lower = bound
            self.report(self.lower, self.value, why, self.assignment)

    @property
    def distance(self) -> int | float:
        """Distance between bound and incumbent; infinite while one of them is missing."""
        return math.inf if self.lower is None or self.value is None else max(0, self.value - self.lower)

    @property
    def is_closed(self) -> bool:
        """Whether nothing better than the incumbent (or than the problem's upper bound, or at all) can exist."""
        return self.lower is not None and self.lower >= self.upper_bound

    @property
    def is_near_enough(self) -> bool:
        """Whether bound and incumbent are within the requested gap."""
        if self.is_closed:
            return True
        return self.lower is not None and self.value is not None and self.gap.is_reached(self.lower, self.value)


def above_all_values(problem: Problem) -> int | float:
    """A number above every assignment's value (the sum of greatest ones, and a margin), at most the largest float."""
    greatest = problem.extremes.greatest.tolist()
    total = sum(greatest, problem.constant)
    if problem.is_integral:
        return total + 1
    size = sum(map(abs, greatest), abs(problem.constant))
    above = total + (size * 2.0**-30 or 1.0)
    return above if math.isfinite(above) else sys.float_info.max


class SubSolver(ABC):
    """A solver of one min-sum problem, or of a piece of it, that runs in time slices.

    known : updated.
    seconds : time spent. is_over : whether it has ended: the problem is closed, or nothing is left to try.
    lower : lower bound proven by this solver alone, or None. nodes : number of nodes (rows) created.
    steps, raised, found : number of calls of :meth:`work`, of those that raised the lower bound, and of those that
        found a better assignment. closed : by how much they reduced the distance between both.
    is_coarse : whether a step takes up the time that it is given; one step is then a call of :meth:`work`.
    """

    nodes: int = 0
    is_coarse = False

    def __init__(self, known: SharedBounds) -> None:
        self._known = known
        self.seconds = 0.0
        self.is_over = False
        self.steps = self.raised = self.found = 0
        self.closed = 0.0
        self.lower: int | float | None = None
        self._begin_of_work: float | None = None

    @abstractmethod
    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one indivisible piece of work, of about ``seconds`` or less."""

    def work(self, seconds: float, deadline: Deadline) -> bool:
        """Run for ``seconds``, at least one step; returns whether the lower bound or the incumbent improved.

        A solver without memory is over.

        Raises TimeLimitError: the deadline came; the solver can continue later.
        """
        known = self._known
        before, distance, begin = (known.lower, known.value), known.distance, working_time()
        self._begin_of_work = begin
        try:
            while not self.is_over:
                deadline.check()
                self._step(seconds - (working_time() - begin), deadline)
                left = seconds - (working_time() - begin)
                if left <= 0.0 or self.cost > left or self.is_coarse:
                    break
        except TimeLimitError:
            raise
        except MemoryError:  # other solvers may still find the optimum: proven bounds stay
            self.is_over = True
        except BaseException:
            self.is_over = True  # the state may be inconsistent
            raise
        finally:
            self.seconds += working_time() - begin
            self._begin_of_work = None
            self.steps += 1
            self.raised += before[0] != known.lower
            self.found += before[1] != known.value
            if distance < math.inf:
                self.closed += float(distance - known.distance)
        return before != (known.lower, known.value)

    @property
    def worked(self) -> float:
        """Time spent so far, including that of a running call of :meth:`work`."""
        return self.seconds + (0.0 if self._begin_of_work is None else working_time() - self._begin_of_work)

    @property
    def is_available(self) -> bool:
        """Whether the next step may run now."""
        return not self.is_over

    @property
    def expected(self) -> float:
        """Estimated total seconds until the solver proves the optimum; infinite without an estimate."""
        return math.inf

    @property
    def cost(self) -> float:
        """Estimated seconds of the next step if that is longer than a slice; infinite if it is out of reach."""
        return 0.0

    def report(self, statistics: Statistics) -> None:
        """Add the resources used to ``statistics``."""
        statistics.total_rows += self.nodes

    @property
    def summary(self) -> str:
        """Summary for the result; empty if the solver has done nothing."""
        return ""

    def _prove(self, lower: int | float, why: str) -> None:
        """Report a lower bound on the optimum."""
        self.lower = lower if self.lower is None else max(self.lower, lower)
        self._known.raise_lower(lower, why)


@dataclass
class Statistics:
    """Resources used by a bounded solve.

    seconds : by phase. attempts : abandoned runs.
    order, width, total_rows, dtype : of the last finished run; fixed variables come first in the order.
    largest_rows : of any finished run.
    bounds : the bound used, a sentence. stopped : why the search ended before the proof, a sentence, or empty.
    solvers : what each solver took and gained.
    spoiled : the best assignment without the linear constraints that elimination left out violates one of them.
    """

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("order", "bounds", "forward", "backward"), 0.0)
    )
    attempts: int = 0
    order: tuple[int, ...] = ()
    width: int = 0
    total_rows: int = 0
    dtype: str = ""
    largest_rows: int = 0
    bounds: str = ""
    stopped: str = ""
    solvers: tuple[SolverShare, ...] = ()
    spoiled: bool = False


@dataclass(frozen=True)
class Parameters:
    """Parameters of the scheduler, the same for all solvers.

    slice_seconds : time slice of a solver that can stop at any time, in seconds. Its estimate is read after each.
    near_seconds : a solver runs alone while its elapsed and its estimated total time are at most this, in seconds. On
        most families of generated problems the estimate of depth-first search after 0.1 s is right within a third.
    soon_seconds : a solver is expected to end soon if its estimated remaining time is at most this, in seconds, or at
        most the time elapsed. It then gets this much time before it counts, as estimates are wrong at times.
    idle_seconds, idle_share, idle_factor : factor of the weight of a solver without an improvement of a bound in its
        last ``idle_seconds`` seconds and in the last part ``idle_share`` of its time. The factor is moderate, as
        depth-first search often proves the optimum at once after a long time without progress.
    finding_seconds, finding_share : a solver finds assignments while its last one is at most this many seconds of its
        own time, or this share of it, ago.
    gainless_factor : factor of the weight of a solver with coarse steps that has never improved a bound: relaxations
        without a gain in their first step rarely have one later.
    close_gap : the gap, relative to the incumbent's value, up to which bound and incumbent are close.
    coarse_seconds : minimum time of a step of a solver with coarse steps, in seconds; relaxations of less time are
        poor. A step may take as long as all earlier ones, so that their number is logarithmic in the time.
    """

    slice_seconds: float = 0.05
    near_seconds: float = 2.0
    soon_seconds: float = 8.0
    idle_seconds: float = 4.0
    idle_share: float = 0.5
    idle_factor: float = 0.5
    finding_seconds: float = 0.2
    finding_share: float = 0.25
    gainless_factor: float = 0.125
    close_gap: float = 0.1
    coarse_seconds: float = 0.5


PARAMETERS = Parameters()
"""Parameters of all solves."""


@dataclass(frozen=True)
class Terms:
    """Terms of one solver.

    share : weight relative to depth-first search. after : virtual time, in seconds, at which the solver joins.
    soon, leading : factors of the weight while the solver is expected to end soon, and while it has the best bound.
    waits_for : name of a solver in the portfolio whose first step comes before; empty: none.
    first_step : minimum time of a first coarse step, in seconds.
    close : factor of the weight while bound and incumbent are close.
    finding : factor of the weight while it finds better assignments, see :class:`Parameters`.
    """

    share: float = 1.0
    after: float = 0.0
    soon: float = 1.0
    leading: float = 1.0
    waits_for: str = ""
    first_step: float = 0.0
    close: float = 1.0
    finding: float = 1.0


HEAD_START = 0.25
"""Seconds of depth-first search before all other solvers. It closes cliques, colourings, warehouses and satisfiability
in 0.1 to 0.5 s."""

FIRST_SECONDS = 2.0
"""Virtual time, in seconds, at which bounds join the searches."""

TERMS = {
    "depth": Terms(soon=4.0),
    # They improve the incumbent of a long depth-first search long before it does itself.
    "neighbourhoods": Terms(share=0.25, after=1.0, finding=16.0),
    # A sum over pieces has the best bound of some problems that are hard in one place, and no bound of others. While it
    # leads it has two thirds of the time: it may lead for long where depth-first search ends first.
    "subproblems": Terms(share=0.5, after=1.0, leading=4.0),
    # Root bounds that have not closed a problem in the time of a first attempt take long, and few problems need them.
    "bounds": Terms(after=FIRST_SECONDS),
    # The last units of a gap take cuts very long, and a few decisions close it; a wide gap takes very many.
    "tree": Terms(close=4.0),
    # Depth-first search soon finds better assignments than local search.
    "incumbents": Terms(share=0.25, after=FIRST_SECONDS, waits_for="bounds"),
    # About a fifth of the time: their bounds are better on dense networks of costs only.
    "mini-buckets": Terms(share=0.75, after=FIRST_SECONDS, waits_for="bounds"),
    # Bounded search should not take longer than elimination would have.
    "plain": Terms(share=14.0, after=FIRST_SECONDS, waits_for="bounds"),
}
"""Terms of the solvers by name. See :class:`~oocbe.search.searches.Searches` for changes by the form of the problem."""


@dataclass
class Member:
    """A solver in a portfolio. progress_at, found_at : its seconds at the last better bound, and incumbent."""

    solver: SubSolver
    terms: Terms
    progress_at: float = 0.0
    found_at: float = -math.inf


class Portfolio:
    """Solvers of one problem in time slices.

    known : bounds of the problem. deadline : of the search.
    parameters, clock : of the schedule; the clock returns seconds.
    turn_end : time on the clock from which no step begins; another turn may follow.
    """

    def __init__(
        self,
        known: SharedBounds,
        deadline: Deadline,
        parameters: Parameters | None = None,
        clock: Callable[[], float] = working_time,
    ) -> None:
        self._known, self.deadline, self._parameters, self._clock = known, deadline, parameters or PARAMETERS, clock
        self.turn_end = math.inf
        self.members: dict[str, Member] = {}

    def add(self, name: str, solver: SubSolver, terms: Terms | None = None) -> None:
        """Add a solver; solvers of equal virtual time run in the order in which they were added."""
        self.members[name] = Member(solver, terms or TERMS[name])

    @property
    def shares(self) -> tuple[SolverShare, ...]:
        """Time and gain of each solver that ran."""
        solvers = {name: member.solver for name, member in self.members.items() if member.solver.steps}
        distance = self._known.distance
        whole = sum(one.closed for one in solvers.values()) + (float(distance) if distance < math.inf else 0.0)
        made = []
        for name, one in solvers.items():
            closed = round(one.closed / whole, 6) if whole else 0.0
            made.append(SolverShare(name, round(one.seconds, 6), one.steps, one.raised, one.found, closed))
        return tuple(made)

    def run(self, is_done: Callable[[], bool], most: float = math.inf) -> None:
        """Run until all solvers have ended or used their time, or the turn is over.

        is_done : whether to stop earlier. most : time limit of each solver, in seconds.
        Raises TimeLimitError: the deadline came.
        """
        while not is_done() and not self.is_turn_over:
            member = self.next(most)
            if member is None:
                return
            value, left = self._known.value, self.turn_end - self._clock()
            # A first coarse step that the end of a turn cuts short is poor in all later turns, too.
            most_left = max(left, min(self._parameters.coarse_seconds, (left + self.deadline.remaining) / 2))
            if member.solver.work(min(self._seconds(member), most_left), self.deadline):
                member.progress_at = member.solver.seconds
            if value != self._known.value:
                member.found_at = member.solver.seconds

    @property
    def is_turn_over(self) -> bool:
        """Whether the end of the turn has come."""
        return self._clock() >= self.turn_end

    def next(self, most: float = math.inf) -> Member | None:
        """The solver that runs next, within limits as of :meth:`run`; None if there is none."""
        left = [one for one in self._open() if one.terms.after < most]
        near_seconds = self._parameters.near_seconds  # such a solver runs alone
        near = [one for one in left if max(one.solver.expected, one.solver.seconds) <= near_seconds]
        left = [one for one in left if one.solver.seconds + one.solver.cost < most]
        return min(near or left, key=self._virtual, default=None)

    def _open(self, begun: Member | None = None) -> Iterator[Member]:
        """The solvers that may run, also those that wait for the first step of ``begun``."""
        for member in self.members.values():
            first = self.members.get(member.terms.waits_for)
            is_early = first not in (None, begun) and not first.solver.seconds and first.solver.is_available
            if not is_early and member.solver.is_available and member.solver.cost < math.inf:
                yield member

    def _virtual(self, member: Member) -> float:
        """Virtual time of a solver after its next step."""
        solver, after = member.solver, member.terms.after
        spent = solver.seconds + solver.cost
        if self._is_soon(member):
            spent -= self._parameters.soon_seconds
        virtual = spent / self._weight(member)
        # A search joins without a claim to earlier time, else it would run alone for long.
        is_search = not solver.is_coarse and not solver.cost
        return after + max(0.0, virtual) if is_search else max(after, virtual)

    def _seconds(self, member: Member) -> float:
        """Time limit of the next call: a slice, or until another solver is due."""
        parameters = self._parameters
        if not member.solver.is_coarse:
            return parameters.slice_seconds
        others = min((self._virtual(other) for other in self._open(member) if other is not member), default=math.inf)
        seconds = member.solver.seconds
        least = max(parameters.coarse_seconds, 0.0 if seconds else member.terms.first_step)
        return max(least, seconds, others * self._weight(member) - seconds)

    def _weight(self, member: Member) -> float:
        solver, terms, parameters = member.solver, member.terms, self._parameters
        weight = terms.share
        if solver.seconds - member.found_at <= max(
            parameters.finding_seconds, parameters.finding_share * solver.seconds
        ):
            weight *= terms.finding
        if self._known.distance <= parameters.close_gap * abs(self._known.upper_bound):
            weight *= terms.close
        if self._is_soon(member):
            return weight * terms.soon
        lower = self._known.lower
        if terms.leading > 1.0 and solver.lower is not None and lower is not None and solver.lower >= lower:
            return weight * terms.leading
        idle = solver.seconds - member.progress_at
        if solver.is_coarse and not member.progress_at and idle >= parameters.coarse_seconds:
            weight *= parameters.gainless_factor
        elif idle > max(parameters.idle_seconds, parameters.idle_share * solver.seconds):
            weight *= parameters.idle_factor
        return weight

    def _is_soon(self, member: Member) -> bool:
        """Whether a solver is expected to end soon."""
        left = member.solver.expected - member.solver.seconds
        elapsed = sum(one.solver.seconds for one in self.members.values())  # without pauses between turns
        return left <= max(self._parameters.soon_seconds, elapsed)
