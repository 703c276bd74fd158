"""When a bounded search checks rows against mini-bucket tables, and how large the tables are.

A round of a race that some order wins needs no tables. Where all are given up, the most promising one runs again with
tables (:mod:`oocbe.bounds.mini_buckets.outside_tables`), larger the more rows messages may have, so that making
them takes about as long as joining a message; below the threshold, or below one nearer to what is proven. A sample of
rows shows whether they pay: where hardly any goes, none is made again, as thresholds only rise.
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
from oocbe.runtime.compilation import working_time
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

BUILD_SECONDS, BUILD_SHARE = 2.0, 0.25
"""Tables that take longer than both this many seconds and this share of the elapsed search are given up."""

SAMPLE_ROWS = 1 << 16
"""Number of rows looked up before the benefit is judged."""

LEAST_DROPPED = 0.02
"""Part of the rows looked up that must go: each goes through all joins that come, a look-up is a small part of one."""


Round = Callable[[Sequence[OrderChoice], RowPruner, int], RaceWinner | None]
"""A round of a race, of some orders, under a bound and a cap on rows; None where all were given up."""


class TableBounds:
    """Mini-bucket tables beside one search.

    Parameters
    ----------
    options : what is solved how. deadline : of the search.

    Attributes
    ----------
    looked_up, dropped : rows held against tables, and those of them that went. seconds : that making tables took.
    is_open : whether they pay, as far as is known.
    """

    def __init__(self, options: SolveOptions, deadline: Deadline) -> None:
        self.options, self.deadline = options, deadline
        self._begin = working_time()
        self.looked_up = self.dropped = 0
        self.seconds = 0.0
        self.is_open = options.bounds == "auto"
        self._part = 1.0
        self._below: TablesBelow | None = None

    def below(self, problem: Problem, threshold: int | float) -> TablesBelow | None:
        """Tables for what can be below a threshold, made for an order when it runs; None where they would not pay."""
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
    ) -> tuple[RaceWinner | None, int | float]:
        """Run an order with tables below a threshold, and where it is given up, below one half as far from what is
        proven; the winner, None where both were given up or tables do not pay, and its threshold.

        Parameters
        ----------
        scope : with a source. choice : the most promising order.
        lower : what is proven. cap : rows of a message at most. run : a round.
        """
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
                raise  # of a run that is resumed when there is space
            except ResourceError:
                winner = None  # others may do with the memory
            if winner is not None:
                self._part = min(1.0, 2 * part)
                return winner, limit
            self._part = part / 2
        return None, threshold

    @property
    def patience(self) -> float:
        """Time limit of the tables of one order, in seconds."""
        return max(BUILD_SECONDS, BUILD_SHARE * (working_time() - self._begin))

    def tell(self, statistics: Statistics) -> None:
        """Add the summary of the tables to ``statistics``, if any row was looked up."""
        if not self.looked_up:
            return
        sentence = f"mini-bucket tables dropped {self.dropped:,} of {self.looked_up:,} rows"
        statistics.bounds = "; ".join(filter(None, (statistics.bounds, sentence)))


class TablesBelow:
    """Tables for one problem and threshold (:class:`oocbe.elimination.row_pruning.pruner.OrderBounds`).

    Parameters
    ----------
    tables : of the search, which counts. problem, threshold : only what is below the threshold counts.
    """

    def __init__(self, tables: TableBounds, problem: Problem, threshold: int | float) -> None:
        self._tables, self.problem, self.threshold = tables, problem, threshold
        self._looked_up = self._dropped = 0

    def source(self, order: Sequence[int], cap: int | None) -> OutsideTables | None:
        """Tables for an order; None where they take too long or too much, or there is nothing to make them from."""
        tables, begin = self._tables, working_time()
        made = None
        try:
            with suppress(TimeLimitError, ResourceError, MemoryError), Deadline(tables.patience):
                if self._source is not None and self._source.root < self.threshold:
                    from oocbe.bounds.mini_buckets.outside_tables import OutsideTables  # an easy solve ends before

                    memory = int(MEMORY_SHARE * tables.options.memory_limit)
                    room = memory // (4 * max(1, len(order)))
                    cells = max(1, room if cap is None else min(cap // ROWS_A_CELL, room))
                    given = (self._source, self.threshold, order, cells, memory, tables.options.seed)
                    made = OutsideTables(self.problem, *given)
        finally:
            tables.seconds += working_time() - begin
        tables.deadline.check()
        tables.is_open = made is not None
        return made

    def count(self, rows: int, kept: int) -> bool:
        """Count rows that were looked up, and those of them that stayed; whether it pays."""
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
