"""The exact number of feasible assignments, of any size.

One forward pass in integers. A message's counts have as many *limbs* (:mod:`oocbe.tables.limbs`) as its greatest one
may need: the greatest counts of a bucket's tables give an upper bound before they are joined. Most messages have counts
that fit int64 and are joined like any others, by the fastest method; the others are joined as rows. Joined messages are
not needed again, and are deleted if memory is short.

Rows may carry their consumption of linear constraints. A row then also sums over all ways to share its consumption
among the messages of its bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.api.tasks.result import finished
from oocbe.api.tasks.tables import compute_tables
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward, ForwardPass
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.preparation.hard_part import hard_part
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import COUNTING
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.limbs import limbs_for

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


class _CountMaker(MessageMaker):
    """Messages of exact counts, in as many limbs as they need."""

    def check_range(self, bucket: Bucket) -> None:
        """No check: counts have as many limbs as they need."""

    def limbs(self, bucket: Bucket) -> int:
        """Limbs for the product of the greatest joined counts, times the domain size of the variable and the ways to
        share a consumption among the messages: that of each but one may be any of its rows'."""
        prepared, messages = self._prepared, bucket.messages
        bound = prepared.problem.sizes[bucket.variable] * math.prod(m.largest_magnitude() for m in messages)
        if prepared.consumption is not None:
            amounts = math.prod(limit + 1 for limit in prepared.consumption.limits)
            bound *= math.prod(sorted(min(amounts, m.rows) for m in messages)[:-1])
        return limbs_for(bound)


class _CountForward(Forward):
    """The forward pass of counting."""

    maker = _CountMaker

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None, may_forget: bool = True) -> ForwardPass:
        """Eliminate every variable; joined messages may be deleted. Otherwise as in the base class."""
        self._store.forgets = _forget
        return super().run(bucket_done, may_forget=False)


def _forget(message: Message) -> bool:
    """Delete a joined message."""
    message.forget()
    return True


def count(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The number of feasible assignments.

    Raises
    ------
    UnsupportedError : see :func:`oocbe.api.tasks.tables.compute_tables`, and an upper bound that sums can reach.
    """
    counted = replace(hard_part(problem), semiring=COUNTING)
    with compute_tables(counted, options, observer, carries=True, forward=_CountForward) as tables:
        value = tables.outcome.value
    if value is None:
        return finished("count", problem, tables, 0, status="infeasible")
    assert isinstance(value, int)
    return finished("count", problem, tables, value, dtype=tables.prepared.dtype.name)
