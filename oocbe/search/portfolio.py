"""One scheduler for all solvers of pieces of a problem, by measured time, progress and estimates.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oocbe.model.results.progress_curve import SolverShare
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import SubSolver


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
    coarse_seconds: float = 0.5


PARAMETERS = Parameters()
"""Parameters of all solves."""


@dataclass(frozen=True)
class Terms:
    """Terms of one solver.

    share : weight relative to depth-first search.
    after : virtual time, in seconds, at which the solver joins.
    soon, leading : factors of the weight while the solver is expected to end soon, and while it has the best bound.
    waits_for : name of a solver in the portfolio whose first step comes before; empty: none.
    first_step : minimum time of a first coarse step, in seconds.
    finding : factor of the weight while it finds better assignments, see :class:`Parameters`.
    """

    share: float = 1.0
    after: float = 0.0
    soon: float = 1.0
    leading: float = 1.0
    waits_for: str = ""
    first_step: float = 0.0
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
    """A solver in a portfolio. progress_at, found_at : its seconds at the last improvement of a bound, and of the
    incumbent."""

    solver: SubSolver
    terms: Terms
    progress_at: float = 0.0
    found_at: float = -math.inf


class Portfolio:
    """Solvers of one problem in time slices.

    known : bounds of the problem. deadline : of the search.
    parameters, clock : of the schedule; the clock returns seconds.
    """

    def __init__(
        self,
        known: SharedBounds,
        deadline: Deadline,
        parameters: Parameters | None = None,
        clock: Callable[[], float] = working_time,
    ) -> None:
        self._known, self._deadline, self._parameters, self._clock = known, deadline, parameters or PARAMETERS, clock
        self._begin = clock()
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
        """Run until all solvers have ended, or have used their time.

        is_done : whether to stop earlier.
        most : time limit of each solver, in seconds.
        Raises TimeLimitError: the deadline came.
        """
        while not is_done():
            member = self.next(most)
            if member is None:
                return
            value = self._known.value
            if member.solver.work(self._seconds(member), self._deadline).is_better:
                member.progress_at = member.solver.seconds
            if value != self._known.value:
                member.found_at = member.solver.seconds

    def next(self, most: float = math.inf) -> Member | None:
        """The solver that runs next, within limits as of :meth:`run`; None if there is none."""
        left = [one for one in self._open() if one.terms.after < most]
        near = [one for one in left if self._is_near(one)]
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

    def _is_near(self, member: Member) -> bool:
        """Whether a solver runs alone."""
        return max(member.solver.expected, member.solver.seconds) <= self._parameters.near_seconds

    def _is_soon(self, member: Member) -> bool:
        """Whether a solver is expected to end soon."""
        left = member.solver.expected - member.solver.seconds
        return left <= max(self._parameters.soon_seconds, self._clock() - self._begin)
