"""When rows with bounds of their own are tried beside a search with bounds, and for how long.

Which of the two closes a problem can't be told beforehand. So rows go first, for a moment: where they prove the
optimum, or are expected to, they go on. Else they get as much time as everything else has taken, or an eighth where
that has proven much more, so that both together take at most twice what the better one takes. Nor can it be told
whether rows should be searched breadth first, which merges them (:mod:`oocbe.search.row_search`), or depth
first, which orders variables anew in each (:mod:`oocbe.search.depth_search`): they take turns, and the
latter begins, as it closes easy problems sooner.

Where no end is in sight, subproblems are solved beside both, for the bound
(:mod:`oocbe.search.subproblems`).

Rows that are merged know nothing of linear constraints over many variables: with these, rows are searched depth first
only. Problems of packing are for linear programs, which bound them by cliques of conflicts: these go first there, and
rows are searched depth first where they have not settled it. Where such a problem is a graph of values, stable sets of
it are searched instead of rows, a moment before all else (:mod:`oocbe.search.stable_set_search`).
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
"""At most, before anything else."""

PROMISING_SECONDS, PAYS_SECONDS = 10_000.0, 20.0
"""A search that is expected to take so long at most, which is a hundred times too much and more, has some seconds
more. CELAR6-SUB2's narrow walk, whose rows get few passes, expects 2,100 s, and all take 5."""

BEHIND, LEAST_SHARE = 0.5, 0.125
"""Where others have proven this part of the distance from what rows have proven to the incumbent, rows get less time:
this part of what everything else takes."""

LEAST_PATIENCE = 0.5
"""Seconds at least that everything else has at a time."""

SLICE_SECONDS = 0.05
"""After which it is looked at what the search expects."""

HEAD_START = 0.25
"""Seconds of the search depth first before walks begin: cliques, colourings, warehouses and satisfiability it closes in
a tenth to a half of a second, and walks in three to nine times that or not at all."""

NEAR_SECONDS = 2.0
"""For so long at most the search depth first goes on alone, while that is all that it is expected to take. What it
expects after a tenth of a second is right within a third on most families of made problems."""

PROMISING_SHARE, EQUAL_SHARE, MOST_SHARE = 0.5, 1.0, 8.0
"""Depth first takes so many times what breadth first does: where only that one is expected to end soon; where neither
is; and where depth first is, whose reckoning is the better one, or breadth first is hopeless."""

BESIDE_DEPTH = 0.1
"""Where depth first is expected to end soon, elimination has to be worth it in this part of what all has taken: where
that expectation is wrong, as it is with hard constraints at times, an attempt takes ten times as long."""

DEPTH_SECONDS = 8.0
"""A search depth first that expects so much more at most, or no more than all has taken so far, is expected to end
soon, and has so long beside what walks have."""

SUBPROBLEM_SECONDS = 1.0
"""Of the search depth first before subproblems begin, where it is not expected to end soon then."""

LEADING_SHARE, SUBPROBLEM_SHARE = 4.0, 0.25
"""Subproblems take so many times what the two searches do: where their bound is the best one known, and where not."""

DEPTH_FACTOR = 2.0
"""While both are open, they have so many times what everything else has taken: bounds at the root that have not closed
a problem in the time of a first attempt take long, and few problems need them."""

WORK_SHARE = 0.5
"""Of the memory for messages that rows may take while they work: there are no messages then, but memory that was freed
may not have been given back."""

DEPTH_MEMORY = 0.25
"""Of that, for the states of a search depth first."""

HELD_SHARE = 0.125
"""Of the memory for messages: a walk that holds more is given up when messages are to be made."""


class BeamSearchScheduler:
    """The search by rows of one min-sum problem, in rounds.

    Parameters
    ----------
    problem, options : what is solved. deadline : of the search. reduction : of the problem, where it is known.

    Attributes
    ----------
    order_seconds : that finding orders of the problem took: those of what is left take as long, and are not looked for
        before rows have had that time.
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
        """That rows have taken, and elimination of what is left before them."""
        parts = (self._search, self._depth, self._elimination, self._subproblems)
        return sum(part.seconds for part in parts if part is not None)

    def make_room(self, memory: int, share: float = HELD_SHARE) -> int:
        """Bytes that are left to messages, of so many, beside what rows hold.

        share : a walk that holds more than this part of it is given up.
        """
        search = self._search
        if search is None:
            return memory
        if search.held > share * memory:
            search.give_up_walk()
        return memory - search.held

    def load(self, is_opening: bool = False) -> None:
        """Have the tables laid out and compiled loops loaded, which is no part of the time.

        is_opening : those of walks are not needed yet.
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
        """Search depth first for a moment, longer while that is expected to end it soon; the gap counts as in first.

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
        """Say what rows have done, where there were any."""
        if self._elimination is not None:
            self._elimination.tell(statistics)
        statistics.bounds = "; ".join(filter(None, (self.summary, statistics.bounds)))
        if self._search is not None:
            statistics.total_rows += self._search.rows
            statistics.largest_rows = max(statistics.largest_rows, self._search.largest)
        if self._depth is not None:
            statistics.total_rows += self._depth.nodes
        if self._subproblems is not None:
            statistics.total_rows += self._subproblems.nodes

    @property
    def summary(self) -> str:
        """What rows and their bounds did; empty where there were none."""
        breadth = "" if self._search is None or not self._search.rows else self._search.summary
        depth = "" if self._depth is None or not self._depth.nodes else self._depth.summary
        own = "" if self._subproblems is None or not self._subproblems.nodes else self._subproblems.summary
        return "; ".join(filter(None, (breadth, depth, own)))

    @property
    def forecast_summary(self) -> str:
        """What the rows tried so far say about those to come."""
        search = self._search
        if search is None or not search.rows:
            return ""
        shown = (
            f"of {search.rows:,} tried {search.ruled_out / search.rows:.0%} were ruled out by them, "
            f"{1e6 * search.walking / search.rows:.0f} µs a row"
        )
        if search.is_hopeless:
            return f"{shown}, too few for what is left: what follows comes at once"
        if search.expected is None:
            return shown
        return (
            f"{shown}, {search.expected:.2g} s expected for all, a tenth of it or less once good assignments are known"
        )

    def first(
        self,
        known: SharedBounds,
        look: Callable[[], None],
        seconds: float = FIRST_SECONDS,
        more: float = PAYS_SECONDS,
    ) -> None:
        """Try for a moment, at most until the gap that is asked for is reached.

        Parameters
        ----------
        known : filled in. look : called now and then: for better assignments found elsewhere.
        seconds : for which it is tried. more : for so many more it goes on where it is promising.

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
        """Go on for as long as everything else has taken, longer where that is expected to end it; as :meth:`first`.

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
        """Seconds that everything else may take before rows go on."""
        if not self._is_open or self._form.is_packing or self._depth_is_over:
            return math.inf
        return max(LEAST_PATIENCE, self.seconds / DEPTH_FACTOR)

    @property
    def _depth_is_over(self) -> bool:
        return self._depth is None or self._depth.is_over

    @property
    def _walked(self) -> float:
        """Seconds without those of the search depth first and of subproblems."""
        return self.seconds - sum(part.seconds for part in (self._depth, self._subproblems) if part is not None)

    @property
    def _is_depth_near(self) -> bool:
        """Whether the search depth first goes on alone."""
        depth = self._depth
        return depth is not None and not depth.is_over and max(depth.expected, depth.seconds) <= NEAR_SECONDS

    @property
    def _is_depth_promising(self) -> bool:
        """Whether the search depth first is expected to end soon."""
        if self._depth is None or self._depth.is_over:
            return False
        taken = working_time() - self._begin_time
        return self._depth.expected - self._depth.seconds <= max(DEPTH_SECONDS, taken)

    @property
    def _is_promising(self) -> bool:
        """Whether the search breadth first is expected to end soon."""
        expected = None if self._search is None else self._search.expected
        return expected is not None and expected <= PROMISING_SECONDS

    def _is_behind(self, known: SharedBounds) -> bool:
        """Whether others have proven much more than rows have."""
        parts = (self._search, self._depth, self._subproblems)
        bounds = [part.lower for part in parts if part is not None and part.lower is not None]
        if not bounds or known.lower is None:
            return False
        own = max(bounds)
        return known.lower - own > BEHIND * (known.upper_bound - own)

    def _work(self, known: SharedBounds) -> None:
        """Go on for a slice, or eliminate what is left once that is not expected to take longer than all so far."""
        if self._depth is None and not self._begin(known):
            self._is_open = False  # the problem is none for rows
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
        """Whether subproblems go on now: not where a search is expected to end soon."""
        own, depth = self._subproblems, self._depth
        if own is None or own.is_over or depth is None or depth.is_over or depth.seconds < SUBPROBLEM_SECONDS:
            return False
        if self._is_depth_promising:
            return False
        is_leading = own.lower is not None and known.lower is not None and own.lower >= known.lower
        return own.seconds <= (LEADING_SHARE if is_leading else SUBPROBLEM_SHARE) * (self.seconds - own.seconds)

    @property
    def _depth_share(self) -> float:
        """Seconds of the search depth first for each one of walks."""
        breadth = self._search
        if breadth is None or breadth.is_over:
            return math.inf
        if breadth.is_hopeless or self._is_depth_promising:
            return MOST_SHARE
        return PROMISING_SHARE if self._is_promising else EQUAL_SHARE

    def _begin(self, known: SharedBounds) -> bool:
        """Make the searches; False where the problem is none for them."""
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
        """What costs nothing to remove, and what is left; None where the problem can't be written out."""
        return self._form.reduction
