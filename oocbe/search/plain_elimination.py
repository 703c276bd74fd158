"""Elimination without bounds, for problems that bounds do not close.

Bounds settle some problems at once and leave a wide gap on others (costs over dense networks, logarithms of
probabilities); which case applies is unpredictable. So bounded search pauses at times for an attempt at plain
elimination: first after a share of the estimated elimination time. An attempt may take a few times the estimate. After
that it is given up, the other solvers continue for about as long as the attempt took, and the next limit is longer by a
factor. The total time is a few times that of the better method, however wrong the estimate is (as for
restarts: Luby, Sinclair, Zuckerman, *Optimal Speedup of Las Vegas Algorithms*, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from oocbe.elimination.buckets.forms import expected_work, supported_representations
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.orders.elimination_speed import CPU_SPEED, EliminationSpeed, order_cell_work
from oocbe.elimination.orders.order import CRITERIA, heuristic, is_order_file, longest_search, search_orders
from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.runs.durability import read_choices
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Semiring
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import SubSolver

LEAST_PATIENCE = 1.0
"""Minimum time of bounded search, in seconds. It settles most photograph problems."""

PATIENCE_SHARE, LONG_ELIMINATION = 0.25, 40.0
"""Time of bounded search relative to the estimated elimination time, and the cap on that estimate, in seconds. The cap
applies up to :data:`REACH`."""

REACH = 120.0
"""Estimated elimination time, in seconds, above which the cap no longer applies."""

BEYOND_REACH = 2000.0
"""Estimated elimination time, in seconds, beyond which no attempt is made: large estimates are the least reliable, and
the messages fill the disk."""

FIRST_ALLOWANCE, LEAST_ALLOWANCE, LATER_ALLOWANCE = 8.0, 16.0, 4.0
"""Time limits of attempts: the first gets this multiple of the estimate plus so many seconds (giving up slightly early
costs more than a hopeless attempt); each later one this multiple of the previous limit."""

LIMIT_PART = 0.85
"""Share of the remaining time limit available to an attempt; bounds get the rest."""


class PlainElimination(SubSolver):
    """Attempts at elimination without bounds.

    Parameters
    ----------
    problem, semiring, options : the problem and its settings. known : as of the search. deadline : of the solve.
    eliminate : eliminates along one of several orders; raises TimeLimitError when its deadline comes.
    speed : of elimination on this machine. graph : returns a cached primal graph of the problem.

    Attributes
    ----------
    keep : called with the state for :meth:`resume` before an attempt, and with None after it.
    result : of the completed attempt; None before. given_up_seconds : time of the other attempts.
    order_seconds : time of their order search.
    """

    def __init__(
        self,
        problem: Problem,
        semiring: Semiring,
        options: SolveOptions,
        known: SharedBounds,
        deadline: Deadline,
        eliminate: Callable[[list[OrderChoice], Deadline], Result],
        speed: EliminationSpeed = CPU_SPEED,
        graph: Callable[[], PrimalGraph] | None = None,
    ) -> None:
        super().__init__(known)
        self._problem, self._semiring, self._options, self._deadline = problem, semiring, options, deadline
        self._eliminate, self._speed, self._graph_of = eliminate, speed, graph
        self._choices: list[OrderChoice] = []
        self._allowance = self._wait = 0.0
        self.keep: Callable[[dict[str, Any] | None], None] = lambda _: None
        self.result: Result | None = None
        self.given_up_seconds = self.order_seconds = 0.0
        # Row predictions ignore consumptions carried in rows.
        self.is_over = options.bounds != "auto" or bool(carried_in_rows(problem))

    @property
    def cost(self) -> float:
        """A quarter of the estimated seconds of the first attempt; later ones start after as long as all before."""
        return self._wait

    def root_seconds(self, seconds: float) -> float:
        """Time limit of the first bound, at most ``seconds``."""
        if self.is_over:
            return seconds
        expected = self._complete_seconds
        if LEAST_PATIENCE < _patience(expected) < math.inf:
            expected = min(expected, self._expected(self._greedy_choices))
        return min(seconds, max(LEAST_PATIENCE, _patience(expected)))

    @property
    def likely_order(self) -> OrderChoice | None:
        """The best order found so far; None before a search, or if all orders are out of reach."""
        choices: list[OrderChoice] = self._choices or self.__dict__.get("_greedy_choices", [])
        return choices[0] if choices else None

    def resume(self, content: dict[str, Any]) -> bool:
        """Continue the attempt of a killed earlier run; returns whether it has solved the problem."""
        self._choices = read_choices(content["orders"], len(self._problem.variables))
        self._allowance = content["allowance"]
        self._try()
        return self.result is not None

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Find orders, or make an attempt along them."""
        if not self._choices:
            self._expect()
            return
        self.keep({"orders": [asdict(choice) for choice in self._choices], "allowance": self._allowance})
        self._try()
        self.keep(None)

    def _try(self) -> None:
        """Eliminate within the time limit, and extend that of the next attempt."""
        left = LIMIT_PART * self._deadline.remaining
        begin = working_time()
        try:
            with Deadline(min(self._allowance, left)) as deadline:
                result = self._eliminate(self._choices, deadline)
            if result.linear_constraints != "relaxed":
                self.result = result
            self.is_over = True
        except TimeLimitError:
            self._deadline.check()
        except ResourceError:
            self.is_over = True
        if self.result is None:
            self.given_up_seconds += working_time() - begin
        self._wait = 0.0
        self._allowance *= LATER_ALLOWANCE

    @cached_property
    def _graph(self) -> PrimalGraph:
        return PrimalGraph(self._problem) if self._graph_of is None else self._graph_of()

    @cached_property
    def _tables(self) -> str:
        """The form of messages, as for :func:`oocbe.elimination.buckets.forms.supported_representations`."""
        dtype = value_dtype(self._problem, self._semiring)
        return supported_representations(self._problem, self._semiring, dtype, self._options.tables)

    @cached_property
    def _complete_seconds(self) -> float:
        """Estimated seconds of elimination with dense tables only, which needs no row counts."""
        if self._tables == INCOMPLETE or is_order_file(self._options.order):
            return math.inf
        graph = self._graph
        names = CRITERIA if self._options.order == "auto" else [self._options.order]
        orders = [heuristic(name, self._options.order_seconds)(graph, self._options.seed) for name in names]
        return min(float(graph.cells_along(o).sum()) for o in orders) / self._speed.cells

    @cached_property
    def _greedy_choices(self) -> list[OrderChoice]:
        """Orders from the heuristics alone, best first; empty if all are out of reach."""
        most_work = BEYOND_REACH * self._speed.rows
        search = (self._problem, self._options.order, 0.0, self._options.seed, most_work, self._cell_work)
        return search_orders(*search, graph=self._graph)

    @property
    def _cell_work(self) -> float:
        return math.inf if self._tables == INCOMPLETE else 1 / self._speed.cells_a_row

    def _expected(self, choices: list[OrderChoice]) -> float:
        """Estimated seconds of elimination along the best of ``choices``."""
        if not choices:
            return math.inf
        best, problem, speed = choices[0], self._problem, self._speed
        dtype = value_dtype(problem, self._semiring)
        predicted = (best.order, best.separators, best.predicted_rows, dtype, self._tables)
        return expected_work(problem.sizes, *predicted, self._options.memory_limit, speed.cells_a_row) / speed.rows

    def _expect(self) -> None:
        """Find orders; set the start and the time limit of the first attempt."""
        options, left, begin = self._options, self._deadline.remaining, working_time()
        found = self._greedy_choices
        expected = self._expected(found)
        if LEAST_PATIENCE < expected <= BEYOND_REACH:
            seconds = min(options.order_seconds, left)
            longest = min(longest_search(options.order_seconds, left), PATIENCE_SHARE * expected)
            search = (self._problem, options.order, seconds, options.seed)
            cell_work = order_cell_work(self._speed, self._tables)
            found = search_orders(*search, cell_work=cell_work, longest=longest, graph=self._graph)
            expected = self._expected(found)
        self.is_over = expected > BEYOND_REACH
        self._choices = found
        self._wait = _patience(expected)
        self._allowance = FIRST_ALLOWANCE * expected + LEAST_ALLOWANCE
        self.order_seconds = working_time() - begin


def _patience(expected: float) -> float:
    """Seconds of bounded search before an attempt with this estimate."""
    return PATIENCE_SHARE * (min(expected, LONG_ELIMINATION) if expected <= REACH else expected)
