"""Use of mini-bucket tables in a bounded search: when, and of which size.

A race that some order wins needs no tables. If all orders are given up, the most promising one runs again with tables
(:mod:`oocbe.bounds.mini_buckets.outside_tables`), below the threshold or one nearer to the proven bound. Their size
grows with the cap on rows, so that construction takes about as long as the join of a message. A sample of rows shows
whether they pay off: if hardly any row is dropped, no more tables are made, as thresholds only rise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from oocbe.bounds.estimators import AdditiveSource
from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.elimination.race import RaceWinner
from oocbe.elimination.row_pruning.pruner import RowPruner
from oocbe.errors import DiskError, ResourceError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.scope import Scope
from oocbe.search.search_statistics import Statistics

if TYPE_CHECKING:
    from oocbe.bounds.mini_buckets.outside_tables import OutsideTables

ROWS_A_CELL = 4
"""Rows of a message per cell of a mini-bucket. A cell is visited about five times; a row costs more."""

MEMORY_SHARE = 0.0625
"""Share of the memory limit for tables under construction. Elimination's messages take the rest."""

ASCENT_SECONDS = 0.5
"""Time limit, in seconds, of the additive bound from which tables are made."""

BUILD_SECONDS = 2.0
"""Minimum time limit of the construction of tables, in seconds."""

SAMPLE_ROWS = 1 << 16
"""Number of rows looked up before the benefit is judged."""

LEAST_DROPPED = 0.02
"""Minimum share of looked-up rows that must be dropped: each saves all later joins; a look-up costs a small part."""


Round = Callable[[Sequence[OrderChoice], RowPruner, int], RaceWinner | None]
"""A round of a race: orders, a bound and a cap on rows; None if all orders were given up."""


class TableBounds:
    """Mini-bucket tables beside one search.

    Parameters
    ----------
    options : of the solve. deadline : of the search.

    Attributes
    ----------
    looked_up, dropped : rows tested against tables, and rows dropped by them.
    is_open : whether tables pay off, as far as known. patience : time limit of the tables of one order, in seconds.
    """

    def __init__(self, options: SolveOptions, deadline: Deadline) -> None:
        self.options, self.deadline = options, deadline
        self.looked_up = self.dropped = 0
        self.patience = BUILD_SECONDS
        self.is_open = options.bounds == "auto"
        self._part = 1.0
        self._below: TablesBelow | None = None

    def below(self, problem: Problem, threshold: int | float) -> TablesBelow | None:
        """Tables for assignments below a threshold, built for an order when it runs; None if they would not pay off."""
        has_linear = any(c.can_bind for c in problem.linear_constraints)
        if not self.is_open or has_linear:
            return None
        if self._below is None or self._below.problem is not problem or self._below.threshold != threshold:
            self._below = TablesBelow(self, problem, threshold)
        return self._below

    def race(
        self,
        scope: Scope,
        choice: OrderChoice,
        lower: int | float | None,
        threshold: int | float,
        cap: int,
        run: Round,
        seconds: float,
    ) -> tuple[RaceWinner | None, int | float]:
        """Run an order with tables below a threshold; if it is given up, below one half as far from the proven bound.

        Returns the winner and its threshold; no winner if both runs were given up or tables do not pay off.

        Parameters
        ----------
        scope : with a source. choice : the most promising order.
        lower : the proven bound. cap : maximum rows of a message. run : runs a round.
        seconds : time limit of the tables of one order.
        """
        self.patience = max(BUILD_SECONDS, seconds)
        problem, source = scope.problem, scope.source
        assert source is not None
        for part in (self._part, self._part / 2):
            limit = threshold
            if part < 1 and lower is not None:
                # The distance alone is scaled: sums beyond 2**53 as floats could come out above the threshold.
                ahead = part * (threshold - lower)
                limit = min(threshold, lower + (math.ceil(ahead) if problem.is_integral else ahead))
            bounds = self.below(problem, limit)
            if bounds is None:
                break
            try:
                winner = run([choice], RowPruner(problem, source, limit, bounds), cap)
            except DiskError:
                raise  # the run can be resumed when there is space
            except ResourceError:
                winner = None  # the memory may suffice for other solvers
            if winner is not None:
                self._part = min(1.0, 2 * part)
                return winner, limit
            self._part = part / 2
        return None, threshold

    def report(self, statistics: Statistics) -> None:
        """Add the summary of the tables to ``statistics``, if any row was looked up."""
        if not self.looked_up:
            return
        sentence = f"mini-bucket tables dropped {self.dropped:,} of {self.looked_up:,} rows"
        statistics.bounds = "; ".join(filter(None, (statistics.bounds, sentence)))


class TablesBelow:
    """Tables for one problem and threshold (:class:`oocbe.elimination.row_pruning.pruner.OrderBounds`).

    Parameters
    ----------
    tables : of the search, for counts. problem, threshold : only assignments below the threshold count.
    """

    def __init__(self, tables: TableBounds, problem: Problem, threshold: int | float) -> None:
        self._tables, self.problem, self.threshold = tables, problem, threshold
        self._looked_up = self._dropped = 0

    def source(self, order: Sequence[int], cap: int | None) -> OutsideTables | None:
        """Tables for an order; None if they take too much time or memory, or there is no additive bound."""
        tables, made = self._tables, None
        with suppress(TimeLimitError, ResourceError, MemoryError), Deadline(tables.patience):
            if self._source is not None and self._source.root < self.threshold:
                from oocbe.bounds.mini_buckets.outside_tables import OutsideTables  # unused in easy solves

                memory = int(MEMORY_SHARE * tables.options.memory_limit)
                room = memory // (4 * max(1, len(order)))
                cells = max(1, room if cap is None else min(cap // ROWS_A_CELL, room))
                given = (self._source, self.threshold, order, cells, memory, tables.options.seed)
                made = OutsideTables(self.problem, *given)
        tables.deadline.check()
        tables.is_open = made is not None
        return made

    def count(self, rows: int, kept: int) -> bool:
        """Count looked-up rows and survivors; returns whether tables pay off."""
        self._looked_up += rows
        self._dropped += rows - kept
        self._tables.looked_up += rows
        self._tables.dropped += rows - kept
        pays = self._looked_up < SAMPLE_ROWS or self._dropped >= LEAST_DROPPED * self._looked_up
        self._tables.is_open = pays
        return pays

    @cached_property
    def _source(self) -> AdditiveSource | None:
        from oocbe.bounds.bounds import ascended_source

        return ascended_source(self.problem, ASCENT_SECONDS, self.threshold)
