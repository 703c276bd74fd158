"""Schedule beam search and depth-first search beside bounded elimination.

Which method closes a problem is unpredictable. So the searches over partial assignments run first, briefly, and
continue if they are expected to prove the optimum. Otherwise they get as much time as everything else has taken, or an
eighth of it if the others have proven much more: the total is at most twice the time of the better method. Beam search
(:mod:`oocbe.search.row_search`) merges nodes; depth-first search (:mod:`oocbe.search.depth_search`) orders the
variables anew in each node. They alternate. Depth-first search begins, because it closes easy problems sooner.

If neither is expected to end soon, subproblems are solved as well, for the lower bound
(:mod:`oocbe.search.subproblems`).

Beam search does not support linear constraints over many variables: such problems get depth-first search only. Packing
problems are first given to linear programs, which bound them by cliques of conflicts, then to depth-first search. If a
packing problem is a graph of values, a search for stable sets replaces both searches and runs briefly before
everything else (:mod:`oocbe.search.stable_set_search`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from oocbe.elimination.buckets.resources import message_memory
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.row_problem import RowProblem
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds

if TYPE_CHECKING:
    from oocbe.bounds.row_reduction import Reduction
    from oocbe.search.depth_search import DepthSearch
    from oocbe.search.reduced_elimination import ReducedElimination
    from oocbe.search.row_search import RowSearch
    from oocbe.search.stable_set_search import StableSetSearch
    from oocbe.search.subproblems import SubproblemSearch

FIRST_SECONDS = 2.0
"""Time limit of the first pass, in seconds. It runs before every other solver."""

PROMISING_SECONDS, PAYS_SECONDS = 10_000.0, 20.0
"""Beam search with an estimate of at most PROMISING_SECONDS gets PAYS_SECONDS more. Estimates are over a hundred times
too high: the narrow pass of CELAR6-SUB2, with few ascent passes per node, estimates 2,100 s; the whole takes 5."""

BEHIND, LEAST_SHARE = 0.5, 0.125
"""If the other solvers have closed more than BEHIND of the gap between the searches' own lower bound and the incumbent,
the searches get only LEAST_SHARE of the others' time."""

LEAST_PATIENCE = 0.5
"""Minimum time slice of the other solvers, in seconds."""

SLICE_SECONDS = 0.05
"""Time slice of a search, in seconds. Its estimate is read after each slice."""

HEAD_START = 0.25
"""Seconds of depth-first search before the first beam pass. Depth-first search closes cliques, colourings, warehouses
and satisfiability in 0.1 to 0.5 s; beam search takes three to nine times as long or does not close them."""

NEAR_SECONDS = 2.0
"""Depth-first search runs alone while its elapsed and its estimated total time are at most this, in seconds. On most
families of generated problems its estimate after 0.1 s is right within a third."""

PROMISING_SHARE, EQUAL_SHARE, MOST_SHARE = 0.5, 1.0, 8.0
"""Time of depth-first search relative to beam search if only beam search is expected to end soon; if neither is; and if
depth-first search is, or beam search is hopeless. Depth-first estimates are the more reliable."""

BESIDE_DEPTH = 0.1
"""Share of the elapsed time that counts for elimination while depth-first search is expected to end soon. Should that
estimate be wrong, as at times with hard constraints, the attempt is made after ten times as long."""

DEPTH_SECONDS = 8.0
"""Depth-first search is expected to end soon if its estimated remaining time is at most this, in seconds, or at most
the time elapsed. It then gets this much time in addition."""

SUBPROBLEM_SECONDS = 1.0
"""Seconds of depth-first search before subproblems begin, unless it is then expected to end soon."""

LEADING_SHARE, SUBPROBLEM_SHARE = 4.0, 0.25
"""Time of subproblems relative to the other searches: if their bound is the best lower bound, and otherwise."""

DEPTH_FACTOR = 2.0
"""Time of the two searches relative to everything else, while both are open. Root bounds that have not closed a problem
in the time of a first attempt take long, and few problems need them."""

WORK_SHARE = 0.5
"""Share of the message memory available to the searches. No messages exist while they run, but the allocator may not
have returned freed memory."""

DEPTH_MEMORY = 0.25
"""Share of the searches' memory for the states of depth-first search."""

HELD_SHARE = 0.125
"""Share of the message memory that a beam pass may hold when messages are computed. A larger pass is dropped."""


class BeamSearchScheduler:
    """Beam search, depth-first search and subproblems of one min-sum problem, in time slices.

    Parameters
    ----------
    problem, options : the problem and its settings. deadline : of the search. reduction : of the problem, if known.

    Attributes
    ----------
    order_seconds : time of the order search on the full problem. Orders of the reduced problem take as long; they are
        not searched before the searches here have used that time.
    """

    def __init__(
        self, problem: Problem, options: SolveOptions, deadline: Deadline, reduction: Reduction | None = None
    ) -> None:
        self._options, self._deadline = options, deadline
        self._form = RowProblem(problem, reduction)
        self.order_seconds = 0.0
        self._begin_time = working_time()
        self._search: RowSearch | None = None
        self._depth: DepthSearch | StableSetSearch | None = None
        self._elimination: ReducedElimination | None = None
        self._subproblems: SubproblemSearch | None = None
        self._is_open = options.bounds == "auto" and options.order == "auto"

    @property
    def seconds(self) -> float:
        """Time of all searches and of the elimination of the reduced problem."""
        parts = (self._search, self._depth, self._elimination, self._subproblems)
        return sum(part.seconds for part in parts if part is not None)

    def make_room(self, memory: int, share: float = HELD_SHARE) -> int:
        """Bytes of ``memory`` available to messages beside the beam.

        share : a beam pass that holds more than this share of ``memory`` is dropped.
        """
        search = self._search
        if search is None:
            return memory
        if search.walk_bytes > share * memory:
            search.give_up_walk()
        return memory - search.walk_bytes

    def load(self, is_opening: bool = False) -> None:
        """Lay out the tables and load the compiled loops, outside the measured time.

        is_opening : skip the loops of beam search, which are not needed yet.
        """
        if not self._is_open:
            return
        if self._form.graph is not None:
            from oocbe.search import stable_set_search

            stable_set_search.load_loops()
        if self._form.graph is None and self._form.goes_first and self._form.is_laid_out:
            from oocbe.bounds.row_ascent import load_loops
            from oocbe.search import depth_search

            depth_search.load_loops()
            if not is_opening:
                load_loops()

    def open(self, known: SharedBounds) -> None:
        """Run depth-first search briefly, longer while it is expected to end soon; stops at the gap, as :meth:`first`.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        while self._is_open and self._form.goes_first and not known.is_near_enough:
            depth = self._depth
            if depth is not None and (depth.is_over or (depth.seconds >= HEAD_START and not self._is_depth_near)):
                return
            self._work(known)

    def tell(self, statistics: Statistics) -> None:
        """Add the summary and the counts of the searches to ``statistics``."""
        if self._elimination is not None:
            self._elimination.tell(statistics)
        statistics.bounds = "; ".join(filter(None, (self.summary, statistics.bounds)))
        if self._search is not None:
            statistics.total_rows += self._search.nodes
            statistics.largest_rows = max(statistics.largest_rows, self._search.largest)
        if self._depth is not None:
            statistics.total_rows += self._depth.nodes
        if self._subproblems is not None:
            statistics.total_rows += self._subproblems.nodes

    @property
    def summary(self) -> str:
        """Summary of the searches; empty if none ran."""
        breadth = "" if self._search is None or not self._search.nodes else self._search.summary
        depth = "" if self._depth is None or not self._depth.nodes else self._depth.summary
        own = "" if self._subproblems is None or not self._subproblems.nodes else self._subproblems.summary
        return "; ".join(filter(None, (breadth, depth, own)))

    @property
    def forecast_summary(self) -> str:
        """Forecast from the beam passes so far."""
        search = self._search
        if search is None or not search.nodes:
            return ""
        shown = (
            f"of {search.nodes:,} tried {search.ruled_out / search.nodes:.0%} were ruled out by them, "
            f"{1e6 * search.walking / search.nodes:.0f} µs a row"
        )
        if search.is_hopeless:
            return f"{shown}, too few for what is left: what follows comes at once"
        if search.foreseen is None:
            return shown
        return (
            f"{shown}, {search.foreseen:.2g} s expected for all, a tenth of it or less once good assignments are known"
        )

    def first(
        self,
        known: SharedBounds,
        look: Callable[[], None],
        seconds: float = FIRST_SECONDS,
        more: float = PAYS_SECONDS,
    ) -> None:
        """Run for a short time, at most until the requested gap is reached.

        Parameters
        ----------
        known : updated. look : called between slices; fetches better assignments found elsewhere.
        seconds : time limit. more : additional time while the search is promising.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        while self._is_open and not self._form.is_packing and self._form.graph is None and not known.is_near_enough:
            walks, depth = self._search, self._depth
            if depth is not None:
                is_more = self._is_depth_promising and depth.seconds < seconds + min(more, DEPTH_SECONDS)
                most = seconds + more * self._is_promising
                if walks is None or walks.is_over or walks.is_hopeless:
                    is_more |= not depth.is_over and depth.seconds < min(seconds, max(LEAST_PATIENCE, self._walked))
                else:
                    is_more |= self._walked < most
                if not is_more:
                    return
            look()
            self._work(known)

    def improve(self, known: SharedBounds, look: Callable[[], None]) -> None:
        """Run for as long as everything else has taken, longer if the end is expected soon; as :meth:`first`.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        others = working_time() - self._begin_time - self.seconds
        while self._is_open and not known.is_near_enough:
            most = LEAST_SHARE * others if self._is_behind(known) else others
            if not self._depth_is_over and self._search is not None:
                most *= DEPTH_FACTOR
            more = DEPTH_SECONDS * self._is_depth_promising
            if self._is_promising:
                more = max(more, PAYS_SECONDS * (1 + self._depth_share))
            if self.seconds >= most + more:
                return
            look()
            self._work(known)

    @property
    def patience(self) -> float:
        """Seconds available to the other solvers before the searches continue."""
        if not self._is_open or self._form.is_packing or self._depth_is_over:
            return math.inf
        return max(LEAST_PATIENCE, self.seconds / DEPTH_FACTOR)

    @property
    def _depth_is_over(self) -> bool:
        return self._depth is None or self._depth.is_over

    @property
    def _walked(self) -> float:
        """Seconds of beam search and of the elimination of the reduced problem."""
        return self.seconds - sum(part.seconds for part in (self._depth, self._subproblems) if part is not None)

    @property
    def _is_depth_near(self) -> bool:
        """Whether depth-first search runs alone."""
        depth = self._depth
        return depth is not None and not depth.is_over and max(depth.expected, depth.seconds) <= NEAR_SECONDS

    @property
    def _is_depth_promising(self) -> bool:
        """Whether depth-first search is expected to end soon."""
        if self._depth is None or self._depth.is_over:
            return False
        taken = working_time() - self._begin_time
        return self._depth.expected - self._depth.seconds <= max(DEPTH_SECONDS, taken)

    @property
    def _is_promising(self) -> bool:
        """Whether beam search is expected to end soon."""
        expected = None if self._search is None else self._search.foreseen
        return expected is not None and expected <= PROMISING_SECONDS

    def _is_behind(self, known: SharedBounds) -> bool:
        """Whether the other solvers have proven a much better lower bound."""
        parts = (self._search, self._depth, self._subproblems)
        bounds = [part.lower for part in parts if part is not None and part.lower is not None]
        if not bounds or known.lower is None:
            return False
        own = max(bounds)
        return known.lower - own > BEHIND * (known.upper_bound - own)

    def _work(self, known: SharedBounds) -> None:
        """Run one slice, or eliminate the reduced problem if that is estimated to take at most the time so far."""
        if self._depth is None and not self._begin(known):
            self._is_open = False  # the searches do not apply to the problem
            return
        elimination, breadth, depth = self._elimination, self._search, self._depth
        assert depth is not None
        is_near = self._is_depth_near
        is_time = not is_near and self.seconds >= max(self.order_seconds, HEAD_START)
        spent = (working_time() - self._begin_time) * (BESIDE_DEPTH if self._is_depth_promising else 1.0)
        if is_time and elimination is not None and elimination.is_due(spent):
            elimination.run(known, self.make_room(message_memory(self._options)), self._deadline)
            if known.is_near_enough:
                return
        if self._is_turn_of_subproblems(known):
            assert self._subproblems is not None
            self._subproblems.work(SLICE_SECONDS, self._deadline)
            return
        is_turn = breadth is None or depth.seconds <= HEAD_START + self._depth_share * breadth.seconds
        if not depth.is_over and (is_near or is_turn):
            depth.work(SLICE_SECONDS, self._deadline)
        elif breadth is not None:
            breadth.work(SLICE_SECONDS, self._deadline)
        self._is_open = not (depth.is_over and (breadth is None or breadth.is_over))

    def _is_turn_of_subproblems(self, known: SharedBounds) -> bool:
        """Whether the next slice is for subproblems; not while depth-first search is expected to end soon."""
        own, depth = self._subproblems, self._depth
        if own is None or own.is_over or depth is None or depth.is_over or depth.seconds < SUBPROBLEM_SECONDS:
            return False
        if self._is_depth_promising:
            return False
        is_leading = own.lower is not None and known.lower is not None and own.lower >= known.lower
        return own.seconds <= (LEADING_SHARE if is_leading else SUBPROBLEM_SHARE) * (self.seconds - own.seconds)

    @property
    def _depth_share(self) -> float:
        """Time of depth-first search relative to beam search."""
        breadth = self._search
        if breadth is None or breadth.is_over:
            return math.inf
        if breadth.is_hopeless or self._is_depth_promising:
            return MOST_SHARE
        return PROMISING_SHARE if self._is_promising else EQUAL_SHARE

    def _begin(self, known: SharedBounds) -> bool:
        """Create the searches; False if they do not apply to the problem."""
        if self._form.graph is not None:
            from oocbe.search.stable_set_search import StableSetSearch

            self._depth = StableSetSearch(self._form.graph, known)
            return True
        reduction = self._form.reduction
        if reduction is None:
            return False
        # An easy solve ends before these are needed.
        from oocbe.bounds.clique_variables import with_clique_variables
        from oocbe.search.depth_search import DepthSearch
        from oocbe.search.reduced_elimination import ReducedElimination
        from oocbe.search.row_search import RowSearch
        from oocbe.search.subproblems import SubproblemSearch

        memory = int(WORK_SHARE * message_memory(self._options))
        if not self._form.is_packing and not reduction.tables.linear:
            self._search = RowSearch(reduction, known, memory, self._options.backend)
            self._elimination = ReducedElimination(reduction, self._options)
            self._subproblems = SubproblemSearch(reduction.tables, known, int(DEPTH_MEMORY / 2 * memory))
        self._depth = DepthSearch(with_clique_variables(reduction), known, int(DEPTH_MEMORY * memory))
        return True

    @property
    def reduction(self) -> Reduction | None:
        """The reduced problem with its cost-free removals; None if the problem cannot be tabulated."""
        return self._form.reduction
