"""Attempts at elimination without bounds.

Bounds settle some problems at once and leave a wide gap on others (costs over dense networks, logarithms of
probabilities); which case applies is unpredictable. So the portfolio attempts elimination when the other solvers have
spent a time related to its estimate. An attempt may take a few times the estimate. After that it is given up, and the
next limit is longer by a factor. The total time is a few times that of the better method, however wrong the estimate is
(as for restarts: Luby, Sinclair, Zuckerman, *Optimal Speedup of Las Vegas Algorithms*, 1993).

The constants are in :class:`oocbe.model.settings.tuning.Tuning`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from oocbe.elimination.buckets.message import expected_work, supported_representations
from oocbe.elimination.orders.order import (
    CRITERIA,
    EliminationSpeed,
    OrderChoice,
    heuristic,
    is_order_file,
    longest_search,
    search_orders,
    speed_of,
)
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.runs.durability import read_choices
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Semiring
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.subsolver import SharedBounds, SubSolver

Eliminate = Callable[[list[OrderChoice], Deadline], Result | None]
"""Eliminates along one of several orders; raises TimeLimitError when its deadline comes. None: no result of its own."""


class EliminationAttempts(SubSolver):
    """Attempts at elimination of one problem.

    problem : returns the problem. semiring, options : its semiring and the settings. known : as of the search.
    eliminate : see :data:`Eliminate`. graph : returns a cached primal graph of the problem.
    is_possible : whether there is any attempt.
    keep : called with the state for :meth:`resume` before an attempt, and with None after it.
    result : of the completed attempt; None before. given_up_seconds : time of the other attempts.
    order_seconds : time of their order search.
    """

    def __init__(
        self,
        problem: Callable[[], Problem],
        semiring: Semiring,
        options: SolveOptions,
        known: SharedBounds,
        eliminate: Eliminate,
        graph: Callable[[], PrimalGraph] | None = None,
        is_possible: bool = True,
    ) -> None:
        super().__init__(known)
        self._problem_of, self._semiring, self._options = problem, semiring, options
        self._eliminate, self._graph_of = eliminate, graph
        self._choices: list[OrderChoice] = []
        self._search_seconds = self._estimate = self._allowance = self._foreseen = 0.0
        self.keep: Callable[[dict[str, Any] | None], None] = lambda _: None
        self.result: Result | None = None
        self.given_up_seconds = self.order_seconds = 0.0
        self.is_over, self._lacks_time = not is_possible, False

    @property
    def cost(self) -> float:
        """Estimated seconds of the next step: greedy orders, an order search if these are slow, or an attempt."""
        return self._search_seconds or self._estimate

    def root_seconds(self, seconds: float) -> float:
        """Time limit of a first bound that precedes the attempts, at most ``seconds``."""
        least, share = tuning().least_attempt_seconds, tuning().search_share
        if self.is_over:
            return seconds
        expected = self._complete_seconds
        if least < share * expected < math.inf:
            expected = min(expected, self._expected(self._greedy_choices))
        return min(seconds, max(least, share * expected))

    @property
    def likely_order(self) -> OrderChoice | None:
        """The best order found so far; None before a search, or if all orders are out of reach."""
        choices: list[OrderChoice] = self._choices or self.__dict__.get("_greedy_choices", [])
        return choices[0] if choices else None

    def resume(self, content: dict[str, Any], deadline: Deadline) -> bool:
        """Continue the attempt of a killed earlier run; returns whether it has solved the problem."""
        self._choices = read_choices(content["orders"], len(self._problem.variables))
        self._allowance = content["allowance"]
        self._try(deadline)
        return self.result is not None

    def reopen(self) -> None:
        """Make attempts possible again, under another deadline, for which the last one left too little time."""
        self.is_over &= not self._lacks_time
        self._lacks_time = False

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Find orders, or make an attempt along them, unless the time limit comes before its expected end.

        Better orders may be faster by a factor; an attempt takes longer than expected rather than less.
        """
        if self._foreseen > deadline.remaining * (tuning().attempt_allowance if self._search_seconds else 1.0):
            self._give_up()
            self._lacks_time = True
            return
        if not self._choices or self._search_seconds:
            begin = working_time()
            self._find_orders(deadline)
            self.order_seconds += working_time() - begin
            return
        self.keep({"orders": [asdict(choice) for choice in self._choices], "allowance": self._allowance})
        self._try(deadline)
        self.keep(None)

    def _try(self, deadline: Deadline) -> None:
        """Eliminate within the time limit, and extend that of the next attempt."""
        begin = working_time()
        try:
            with Deadline(min(self._allowance, (1 - tuning().search_share) * deadline.remaining)) as allowed:
                result = self._eliminate(self._choices, allowed)
            if result is not None and result.linear_constraints != "relaxed":
                self.result = result
            self.is_over = True
        except TimeLimitError:
            deadline.check()
        except ResourceError:  # the memory may suffice for other solvers
            self.is_over = True
        if self.result is None:
            self.given_up_seconds += working_time() - begin
        self._allowance *= tuning().margin
        self._estimate = self._allowance

    def _find_orders(self, deadline: Deadline) -> None:
        """Find orders by the heuristics; if these are slow, search for better ones the next time."""
        options, numbers = self._options, tuning()
        if self._search_seconds:
            seconds, self._search_seconds = self._search_seconds, 0.0
            search = (self._problem, options.order, min(options.order_seconds, seconds), options.seed)
            reach = numbers.attempt_reach_seconds * self._speed.rows
            self._choices = search_orders(*search, reach, self._cell_work, longest=seconds, graph=self._graph)
            self._estimate = self._expected(self._choices)
        else:
            self._choices = self._greedy_choices
            self._estimate = self._expected(self._choices)
            if numbers.least_attempt_seconds < self._estimate <= numbers.attempt_reach_seconds:
                longest = longest_search(options.order_seconds, deadline.remaining)
                self._search_seconds = min(longest, numbers.search_share * self._estimate)
        self._foreseen = self._estimate
        self._allowance = numbers.attempt_allowance * (self._estimate + numbers.least_attempt_seconds)
        if self._estimate > numbers.attempt_reach_seconds:
            self._give_up()

    def _give_up(self) -> None:
        """Make no further attempt."""
        self.is_over = True
        for name in ("_problem", "_graph"):  # tuples may take several times the memory of tables
            self.__dict__.pop(name, None)

    @property
    def _speed(self) -> EliminationSpeed:
        return speed_of(self._options.backend)

    @cached_property
    def _problem(self) -> Problem:
        return self._problem_of()

    @cached_property
    def _graph(self) -> PrimalGraph:
        return PrimalGraph(self._problem) if self._graph_of is None else self._graph_of()

    @cached_property
    def _tables(self) -> str:
        """The form of messages, as for :func:`oocbe.elimination.buckets.message.supported_representations`."""
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
        most_work = tuning().attempt_reach_seconds * self._speed.rows
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
