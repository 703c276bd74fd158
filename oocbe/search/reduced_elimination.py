"""Elimination of the reduced problem, if its estimated time is below the elapsed search time.

Reduction (:mod:`oocbe.bounds.row_reduction`) can remove most of a problem: of a pedigree with 920 variables 147 are
left, and tables over them have a million cells instead of 2**83. So orders of the reduced problem are computed by the
greedy heuristics, in milliseconds. The attempt starts when twice its estimated time has been spent on the search, and
is given up after several times the estimate: the total is a few times that of the better method.

The optimum of the reduced problem is that of the whole; postsolve completes its assignment.
"""

from __future__ import annotations

import math
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
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.search_statistics import Statistics
from oocbe.search.shared_bounds import SharedBounds

AT_ONCE = 0.05
"""Estimated elimination time, in seconds, up to which the attempt starts at once. The searches start as slowly."""

MOST_SECONDS = 100.0
"""Estimated elimination time, in seconds, above which orders are discarded: the main search handles such problems."""

ORDER_SECONDS, LONG = 0.25, 0.5
"""Time limit of the order search, and the estimate of the greedy orders above which it is made, in seconds."""

DUE = 2.0
"""The attempt starts when this multiple of its estimate has been spent on the search: longer attempts are common."""

ALLOWANCE, LEAST_ALLOWANCE = 8.0, 1.0
"""Time limit of an attempt: this multiple of the estimate plus so many seconds. Two generated pedigrees took three and
nine times their estimates."""


class ReducedElimination:
    """One attempt at elimination of a reduced problem.

    Parameters
    ----------
    reduction : of the problem. options : of the solve.

    Attributes
    ----------
    is_open : whether an attempt is still possible. Not if a run stores messages for resumption (only elimination of the
        whole problem can be resumed), or if the reduced problem takes too much memory. seconds : time spent.
    """

    def __init__(self, reduction: Reduction, options: SolveOptions) -> None:
        self._reduction, self._options = reduction, options
        is_small = reduction.tables.listed_bytes <= LISTED_SHARE * message_memory(options)
        self.is_open = options.workdir is None and not reduction.tables.is_impossible and is_small
        self.seconds = 0.0
        self._winner: RaceWinner | None = None

    def is_due(self, spent: float) -> bool:
        """Whether the attempt is due after so many seconds of search."""
        if not self.is_open:
            return False
        if self._quick and self._quick_seconds > max(LONG, spent / DUE) and spent < DUE * ORDER_SECONDS:
            return False  # a longer order search would dominate an easy solve
        if self.expected == math.inf:
            self.is_open = False
            del self._problem  # its tuples take several times the memory of the tables
        return self.is_open and self.expected <= max(AT_ONCE, spent / DUE)

    def run(self, known: SharedBounds, memory: int, deadline: Deadline) -> None:
        """Eliminate within the time allowance if all messages fit in memory, and report the result.

        memory : limit of the messages, in bytes.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        begin = working_time()
        self.is_open = False
        if sum(self._choices[0].predicted_rows) * value_dtype(self._problem, MIN_SUM).itemsize > memory:
            return  # the estimate does not cover messages on disk
        try:
            with Deadline(ALLOWANCE * self.expected + LEAST_ALLOWANCE) as allowed:
                self._eliminate(known, memory, allowed)
        except TimeLimitError:
            deadline.check()
        except (ResourceError, MemoryError):
            pass  # the memory may suffice for other solvers
        finally:
            self.seconds += working_time() - begin

    def tell(self, statistics: Statistics) -> None:
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
    def expected(self) -> float:
        """Estimated seconds of elimination along the best order; infinite if out of reach."""
        return self._seconds(self._choices[0]) if self._choices else math.inf

    @cached_property
    def _problem(self) -> Problem:
        return self._reduction.tables.as_problem()

    @cached_property
    def _choices(self) -> list[OrderChoice]:
        """Orders, best first; empty if all are out of reach."""
        if self._quick and self._quick_seconds > LONG:
            return self._searched(min(ORDER_SECONDS, self._options.order_seconds))
        return self._quick

    @cached_property
    def _quick_seconds(self) -> float:
        """Estimated seconds along the best greedy order; cached, as the estimate takes a tenth of a second for
        thousands of buckets."""
        return self._seconds(self._quick[0])

    @cached_property
    def _quick(self) -> list[OrderChoice]:
        """Orders of the greedy heuristics alone."""
        return self._searched(0.0)

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

    def _eliminate(self, known: SharedBounds, memory: int, deadline: Deadline) -> None:
        options = self._options
        run = Run(self._problem, options)
        run.set_memory(memory)
        engine = engine_for(options, deadline)
        race = Race(self._problem, MIN_SUM, self._choices[:1], options.dominance, run, engine, tables=options.tables)
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
