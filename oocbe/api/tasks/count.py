"""The exact number of feasible assignments, of any size.

One forward pass in integers. A message's counts have as many *limbs* (:mod:`oocbe.tables.limbs`) as its greatest one
may need: the greatest counts of a bucket's tables give an upper bound before they are joined. Most messages have counts
that fit int64 and are joined like any others, by the fastest method; the others are joined as rows. Joined messages are
not needed again, and are deleted if memory is short.

Rows that carry their consumption of linear constraints are counted by several passes
(:mod:`oocbe.api.tasks.count_by_residues`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.api.tasks.count_by_residues import count_by_residues
from oocbe.api.tasks.result import finished
from oocbe.api.tasks.tables import compute_tables
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward, ForwardPass
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.preparation.hard_part import hard_part
from oocbe.elimination.preparation.linear import carried_in_rows
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
        """Limbs for the product of the greatest joined counts, times the domain size of the variable."""
        greatest = math.prod(message.largest_magnitude() for message in bucket.messages)
        return limbs_for(greatest * self._prepared.problem.sizes[bucket.variable])


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
    LimitError, CorruptDataError : see :func:`oocbe.api.tasks.count_by_residues.count_by_residues`.
    """
    bare = hard_part(problem)
    passes = 1
    if carried_in_rows(bare):
        found = count_by_residues(bare, options, observer)
        tables, value, passes = found.tables, found.value, 1 + found.residues
    else:
        counted = replace(bare, semiring=COUNTING)
        with compute_tables(counted, options, observer, forward=_CountForward) as tables:
            outcome = tables.outcome.value
        assert outcome is None or isinstance(outcome, int)
        value = outcome or 0
    if tables.outcome.value is None:
        return finished("count", problem, tables, 0, status="infeasible")
    dtype = tables.prepared.dtype.name if passes == 1 else "int64"
    return finished("count", problem, tables, value, passes=passes, dtype=dtype)
