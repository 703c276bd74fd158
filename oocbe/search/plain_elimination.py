"""Elimination without bounds as a way out where bounds do not close.

Bounds settle some problems at once and come nowhere near on others (costs over dense networks, logarithms of
probabilities), and which of the two it will be can't be told beforehand. So a search with bounds stops now and then to
try elimination without them: first when it has taken a part of what elimination is expected to take. An attempt is
allowed a few times that. Where it does not end by then it is given up, the search goes on for as long as the attempt
took, and the next attempt is allowed longer by a factor. Both ways together take a few times what the better one takes
alone, however wrong the expectation is (as for restarts: Luby, Sinclair, Zuckerman, *Optimal Speedup of Las Vegas
Algorithms*, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from oocbe.elimination.buckets.forms import expected_work, supported_representations
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.orders.elimination_speed import CPU_SPEED, EliminationSpeed, order_cell_work
from oocbe.elimination.orders.order import CRITERIA, HEURISTICS, is_order_file, longest_search, search_orders
from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.linear import carried_in_rows
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.runs.durability import read_choices
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Semiring
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline

LEAST_PATIENCE = 1.0
"""Seconds that bounds have in any case: what settles most photograph problems."""

PATIENCE_SHARE, LONG_ELIMINATION = 0.25, 40.0
"""Bounds have this part of what elimination is expected to take, or of so many seconds where it would take longer and
is not out of reach."""

REACH = 120.0
"""Seconds of elimination beyond which bounds have their whole part of it."""

BEYOND_REACH = 2000.0
"""Seconds of elimination that are not tried at all: expectations are least to be trusted where they are large, and its
messages fill the disk."""

FIRST_ALLOWANCE, LEAST_ALLOWANCE, LATER_ALLOWANCE = 8.0, 16.0, 4.0
"""The first attempt is allowed so many times what is expected and so many seconds more (one that is given up a little
early costs more than a hopeless one), each later one so many times what the one before was allowed."""

LIMIT_PART = 0.85
"""Part of what is left of a time limit that an attempt may have: bounds have the rest."""


class PlainElimination:
    """When to try elimination without bounds, and what comes of it.

    Parameters
    ----------
    problem, semiring, options : what is solved. deadline : of the solve.
    eliminate : eliminates along one of several orders; raises TimeLimitError when its deadline comes.
    speed : of elimination here. graph : makes the problem's graph, where somebody keeps that.

    Attributes
    ----------
    result : of the attempt that ended; None before. given_up_seconds : that the others took.
    order_seconds : that orders for them took.
    """

    def __init__(
        self,
        problem: Problem,
        semiring: Semiring,
        options: SolveOptions,
        deadline: Deadline,
        eliminate: Callable[[list[OrderChoice], Deadline], Result],
        speed: EliminationSpeed = CPU_SPEED,
        graph: Callable[[], PrimalGraph] | None = None,
    ) -> None:
        self._problem, self._semiring, self._options, self._deadline = problem, semiring, options, deadline
        self._eliminate, self._speed, self._graph_of = eliminate, speed, graph
        self._begin = working_time()
        self._attempted = 0.0
        self._choices: list[OrderChoice] = []
        self._due = LEAST_PATIENCE
        self._allowance = 0.0
        self.result: Result | None = None
        self.given_up_seconds = self.order_seconds = 0.0
        # Predicted rows know nothing of the consumptions that rows carry.
        self._is_open = options.bounds == "auto" and not carried_in_rows(problem)

    def root_seconds(self, seconds: float) -> float:
        """How many of so many seconds the first bound may take."""
        if not self._is_open:
            return seconds
        expected = self._complete_seconds
        if LEAST_PATIENCE < _patience(expected) < math.inf:
            expected = min(expected, self._expected(self._greedy_choices))
        return min(seconds, max(LEAST_PATIENCE, _patience(expected)))

    @property
    def likely_order(self) -> OrderChoice | None:
        """The best order that was found so far; None where none was looked for, or all are out of reach."""
        choices: list[OrderChoice] = self._choices or self.__dict__.get("_greedy_choices", [])
        return choices[0] if choices else None

    @property
    def patience(self) -> float:
        """Seconds for which bounds may go on before the next attempt is due."""
        return max(0.0, self._due - self._bounded_seconds) if self._is_open else math.inf

    def try_where_due(self, keep: Callable[[dict[str, Any] | None], None]) -> bool:
        """Try elimination without bounds where that is due; whether it has solved the problem.

        keep : told before an attempt what :meth:`resume` needs to go on with it, and None after it.
        """
        if self.patience == 0 and not self._choices:
            self._expect()
        if self.patience > 0:
            return False
        keep({"orders": [asdict(choice) for choice in self._choices], "allowance": self._allowance})
        self._try()
        keep(None)
        return self.result is not None

    def resume(self, content: dict[str, Any]) -> bool:
        """Go on with the attempt that a run before this one was killed in; whether it has solved the problem."""
        self._choices = read_choices(content["orders"], len(self._problem.variables))
        self._allowance = content["allowance"]
        self._try()
        return self.result is not None

    def _try(self) -> None:
        """Eliminate for as long as is allowed, and settle when to do it again."""
        left = LIMIT_PART * self._deadline.remaining
        begin = working_time()
        try:
            with Deadline(min(self._allowance, left)) as deadline:
                result = self._eliminate(self._choices, deadline)
            if result.linear_constraints == "relaxed":
                self._is_open = False
            else:
                self.result = result
        except TimeLimitError:
            self._deadline.check()
        except ResourceError:
            self._is_open = False
        taken = working_time() - begin
        self._attempted += taken
        if self.result is None:
            self.given_up_seconds += taken
        self._due = self._bounded_seconds + taken
        self._allowance *= LATER_ALLOWANCE

    @property
    def _bounded_seconds(self) -> float:
        return working_time() - self._begin - self._attempted

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
        """What elimination would take with complete tables only: that is known without counting any rows."""
        if self._tables == INCOMPLETE or is_order_file(self._options.order):
            return math.inf
        graph = self._graph
        names = CRITERIA if self._options.order == "auto" else [self._options.order]
        orders = [HEURISTICS[name](graph, self._options.seed) for name in names]
        return min(float(graph.cells_along(o).sum()) for o in orders) / self._speed.cells

    @cached_property
    def _greedy_choices(self) -> list[OrderChoice]:
        """Orders without a search for better ones, the best first; none where all are out of reach."""
        most_work = BEYOND_REACH * self._speed.rows
        search = (self._problem, self._options.order, 0.0, self._options.seed, most_work, self._cell_work)
        return search_orders(*search, graph=self._graph)

    @property
    def _cell_work(self) -> float:
        return math.inf if self._tables == INCOMPLETE else 1 / self._speed.cells_a_row

    def _expected(self, choices: list[OrderChoice]) -> float:
        """Seconds that elimination is expected to take along the best of some orders."""
        if not choices:
            return math.inf
        best, problem, speed = choices[0], self._problem, self._speed
        dtype = value_dtype(problem, self._semiring)
        predicted = (best.order, best.separators, best.predicted_rows, dtype, self._tables)
        return expected_work(problem.sizes, *predicted, self._options.memory_limit, speed.cells_a_row) / speed.rows

    def _expect(self) -> None:
        """Find orders, and with them when the first attempt is due and how long it may take."""
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
        self._is_open = expected <= BEYOND_REACH
        self._choices = found
        self._due = max(self._due, _patience(expected))
        self._allowance = FIRST_ALLOWANCE * expected + LEAST_ALLOWANCE
        self.order_seconds = working_time() - begin


def _patience(expected: float) -> float:
    """Seconds that bounds have before elimination that is expected to take so many is tried."""
    return PATIENCE_SHARE * (min(expected, LONG_ELIMINATION) if expected <= REACH else expected)
