"""Elimination of the reduced problem, if its estimated time is below the elapsed search time.

Reduction (:mod:`oocbe.bounds.row_reduction`) can remove most of a problem: of a pedigree with 920 variables 147 are
left, and tables over them have a million cells instead of 2**83. So orders of the reduced problem are computed by the
greedy heuristics, in milliseconds. The attempt starts when about its estimated time has been spent on the search, and
is given up after several times the estimate: the total is a few times that of the better method.

The optimum of the reduced problem is that of the whole; postsolve completes its assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from oocbe.bounds.row_reduction import Reduction
from oocbe.bounds.row_tables import LISTED_SHARE
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forms import expected_work, supported_representations
from oocbe.elimination.buckets.resources import engine_for, message_memory
from oocbe.elimination.orders.elimination_speed import speed_of
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.race import Race, RaceWinner
from oocbe.elimination.runs.durability import Run
from oocbe.errors import ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import SubSolver

MOST_SECONDS = 100.0
"""Estimated elimination time, in seconds, above which orders are discarded: the main search handles such problems."""

ORDER_SECONDS, LONG = 0.25, 0.5
"""Time limit of the order search, and the estimate of the greedy orders above which it is made, in seconds."""

ALLOWANCE, LEAST_ALLOWANCE = 8.0, 1.0
"""Time limit of an attempt: this multiple of the estimate plus so many seconds. Two generated pedigrees took three and
nine times their estimates."""


class ReducedElimination(SubSolver):
    """One attempt at elimination of a reduced problem.

    There is none if a run stores messages for resumption (only elimination of the whole problem can be resumed), or if
    the reduced problem takes too much memory.

    Parameters
    ----------
    reduction : of the problem. options : of the solve. known : updated.
    room : returns the limit of the messages, in bytes.
    """

    def __init__(
        self, reduction: Reduction, options: SolveOptions, known: SharedBounds, room: Callable[[], int]
    ) -> None:
        super().__init__(known)
        self._reduction, self._options, self._room = reduction, options, room
        is_small = reduction.tables.listed_bytes <= LISTED_SHARE * message_memory(options)
        self.is_over = options.workdir is not None or reduction.tables.is_impossible or not is_small
        self._choices: list[OrderChoice] | None = None
        self._estimate, self._is_searched = 0.0, False
        self._winner: RaceWinner | None = None

    @property
    def cost(self) -> float:
        """Estimated seconds of the next step: greedy orders, an order search if these are slow, elimination."""
        return ORDER_SECONDS if self._is_search_next else self._estimate

    @property
    def _is_search_next(self) -> bool:
        return not self._is_searched and self._estimate > LONG

    def _step(self, seconds: float, deadline: Deadline) -> None:
        if self._choices is None or self._is_search_next:
            self._is_searched = self._choices is not None
            self._choices = self._searched(min(ORDER_SECONDS, self._options.order_seconds) * self._is_searched)
            if self._choices:
                self._estimate = self._seconds(self._choices[0])
                return
            del self._problem  # its tuples take several times the memory of the tables
        else:
            self._attempt(self._choices[0], deadline)
        self.is_over = True

    def _attempt(self, choice: OrderChoice, deadline: Deadline) -> None:
        """Eliminate within the time allowance if all messages fit in memory, and report the result."""
        memory = self._room()
        if sum(choice.predicted_rows) * value_dtype(self._problem, MIN_SUM).itemsize > memory:
            return  # the estimate does not cover messages on disk
        try:
            with Deadline(ALLOWANCE * self._estimate + LEAST_ALLOWANCE) as allowed:
                self._eliminate(choice, memory, allowed)
        except TimeLimitError:
            deadline.check()
        except ResourceError:
            pass  # the memory may suffice for other solvers

    def report(self, statistics: Statistics) -> None:
        """Add its summary to ``statistics`` if it has ended."""
        if self._winner is None:
            return
        outcome = self._winner.outcome
        sentence = f"what reduction left was eliminated, {self._reduction.summary}"
        statistics.bounds = "; ".join(filter(None, (statistics.bounds, sentence)))
        statistics.width = outcome.width
        statistics.total_rows += outcome.total_rows
        statistics.largest_rows = max(statistics.largest_rows, outcome.largest_rows)

    @cached_property
    def _problem(self) -> Problem:
        return self._reduction.tables.as_problem()

    def _searched(self, seconds: float) -> list[OrderChoice]:
        speed = speed_of(self._options.backend)
        limits = (MOST_SECONDS * speed.rows, 1 / speed.cells_a_row)
        return search_orders(self._problem, "auto", seconds, self._options.seed, *limits)

    def _seconds(self, choice: OrderChoice) -> float:
        speed, dtype = speed_of(self._options.backend), value_dtype(self._problem, MIN_SUM)
        tables = supported_representations(self._problem, MIN_SUM, dtype, self._options.tables)
        predicted = (choice.order, choice.separators, choice.predicted_rows, dtype, tables)
        limits = (self._options.memory_limit, speed.cells_a_row)
        return expected_work(self._problem.sizes, *predicted, *limits) / speed.rows

    def _eliminate(self, choice: OrderChoice, memory: int, deadline: Deadline) -> None:
        known, options = self._known, self._options
        run = Run(self._problem, options)
        run.set_memory(memory)
        engine = engine_for(options, deadline)
        race = Race(self._problem, MIN_SUM, [choice], options.dominance, run, engine, tables=options.tables)
        for attempt in race.rounds():
            with attempt:
                attempt.outcome = attempt.forward.run(may_forget=True)
        winner = race.winner
        assert winner is not None
        with winner.store:
            outcome, why = winner.outcome, "elimination of what reduction left"
            if outcome.value is None:
                known.raise_lower(known.upper_bound, why)
            else:
                rest = backward_pass(winner.prepared, outcome.buckets, outcome.recomputation, deadline)
                known.offer(outcome.value, self._reduction.complete(rest), why)
                known.raise_lower(outcome.value, why)
        self._winner = winner
