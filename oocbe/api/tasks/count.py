"""The exact numbers of feasible and of optimal assignments, of any size.

Feasible ones: one forward pass in integers. A message's counts have as many *limbs* (:mod:`oocbe.tables.limbs`) as its
greatest one may need: the greatest counts of a bucket's tables give an upper bound before they are joined. Most
messages have counts that fit int64 and are joined like any others, by the fastest method; the others are joined as
rows. Joined messages are not needed again, and are deleted if memory is short.

Clauses are preprocessed first, and counted by a search if elimination would take too many rows
(:mod:`oocbe.api.tasks.clause_count`).

Rows may carry their consumption of linear constraints. A row then also sums over all ways to share its consumption
among the messages of its bucket.

Optimal ones: every bucket's value is the one stored in its message. A backward pass over the tables marks the rows of
optimal assignments, with all best values of the bucket's variable: the *ties*. A forward pass over the marked rows
computes the number of their completions below. It uses floating-point numbers if they are exact up to the count, the
largest number, and Python integers otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.clause_count import count_clauses
from oocbe.api.tasks.questions import problem_of_task
from oocbe.api.tasks.result import finished
from oocbe.api.tasks.tables import Tables, compute_tables
from oocbe.api.tasks.top_down import descend, ties
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.bucket_rows import Evaluated
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward, ForwardPass
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.outcome import unscaled
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.limbs import limbs_for

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer


class CountMaker(MessageMaker):
    """Messages of exact counts, in as many limbs as they need."""

    def check_range(self, bucket: Bucket) -> None:
        """No check: counts have as many limbs as they need."""

    def limbs(self, bucket: Bucket) -> int:
        """Limbs for the product of the greatest joined counts, times the domain size of the variable and the ways to
        share a consumption among the messages: that of each but one may be any of its rows'."""
        prepared, messages = self._prepared, bucket.messages
        bound = prepared.problem.sizes[bucket.variable] * math.prod(max(1, m.largest_magnitude()) for m in messages)
        if prepared.consumption is not None:
            amounts = math.prod(limit + 1 for limit in prepared.consumption.limits)
            bound *= math.prod(sorted(min(amounts, m.rows) for m in messages)[:-1])
        # Counts of limbs that were written in pieces may be small, and are no plain numbers.
        return limbs_for(bound) or int(any(m.has_limbs for m in messages))


class CountForward(Forward):
    """The forward pass of counting."""

    maker: type[MessageMaker] = CountMaker

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None, may_forget: bool = True) -> ForwardPass:
        """Eliminate every variable; joined messages may be deleted. Otherwise as in the base class."""
        self._store.forgets = _forget
        return super().run(bucket_done, may_forget=False)


def _forget(message: Message) -> bool:
    message.forget()
    return True


def count(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The number of feasible assignments.

    Raises
    ------
    UnsupportedError : see :func:`oocbe.api.tasks.tables.compute_tables`, and an upper bound that sums can reach.
    """
    found = count_clauses(problem, options, lambda left, order: count_tables(left, options, observer, order))
    return found or count_tables(problem, options, observer)


def count_tables(
    problem: Problem, options: SolveOptions, observer: Observer | None = None, known: Sequence[int] = ()
) -> TaskResult:
    """The same by elimination; ``known`` : an order from an earlier search, in place of a long one."""
    counted = problem_of_task("count", problem)
    with compute_tables(counted, options, observer, carries=True, known=known, forward=CountForward) as tables:
        value = tables.outcome.value
    if value is None:
        return finished("count", problem, tables, 0, status="infeasible")
    assert isinstance(value, int)
    return finished("count", problem, tables, value, dtype=tables.prepared.dtype.name)


EXACT = 2.0**52
"""Limit up to which sums and products of integers are exact in float64."""


@dataclass
class _Ties:
    rows: list[NDArray[np.int64]]
    places: list[list[NDArray[np.int64]]]


def count_optimal(problem: Problem, options: SolveOptions, observer: Observer | None = None) -> TaskResult:
    """The number of optimal assignments.

    Floating-point values that differ by no more than rounding errors count as equal.

    Raises
    ------
    UnsupportedError : a semiring that does not select; else as for :func:`oocbe.api.tasks.tables.compute_tables`.
    """
    if not problem.semiring.selects:
        raise UnsupportedError(f"{problem.name}: the {problem.semiring} semiring has no optimal assignments")
    tables = compute_tables(problem, options, observer)
    margin = rounding_margin(problem) if problem.semiring.one == 0 else RELATIVE_MARGIN
    marked: dict[int, _Ties] = {}

    def share(bucket: Bucket, rows: NDArray[np.int64], _: NDArray[Any], evaluated: Evaluated) -> NDArray[Any]:
        tight = ties(tables, evaluated, margin)
        found = marked.setdefault(bucket.variable, _Ties([], []))
        found.rows.append(np.broadcast_to(rows[:, None], tight.shape)[tight])
        found.places.append([places[tight] for places in evaluated.places])
        return tight

    with tables:
        value, notes = unscaled(tables.outcome, problem.semiring)
        if value is None or not _counts(tables, problem, value):
            return finished("count-optimal", problem, tables, 0, status="infeasible")
        descend(tables, np.True_, np.False_, np.logical_or, share)
        with np.errstate(over="ignore"):  # an overflow exceeds EXACT
            ways = _ways(tables, marked, np.dtype(np.float64))
        if ways > EXACT:
            ways = _ways(tables, marked, np.dtype(object))
        return finished("count-optimal", problem, tables, int(ways), optimum=value, notes=notes)


def _counts(tables: Tables, problem: Problem, value: int | float) -> bool:
    """Whether the optimum is within the problem's bound; near the bound, the problem itself evaluates it."""
    bound = problem.upper_bound if problem.lower_bound is None else problem.lower_bound
    if bound is None:
        return True
    if abs(value - bound) > rounding_margin(problem):
        return (value < bound) == (problem.lower_bound is None)
    outcome = tables.outcome
    assignment = backward_pass(tables.prepared, outcome.buckets, outcome.recomputation, tables.deadline)
    return problem.evaluate(assignment) is not None


RELATIVE_MARGIN = 2.0**-40
"""Maximum relative difference of two products by rounding."""


def _ways(tables: Tables, marked: dict[int, _Ties], dtype: np.dtype[Any]) -> Any:
    """Number of completions of every marked row, from the first bucket on; returns the product over root buckets."""
    ways: dict[int, tuple[NDArray[np.int64], NDArray[Any]]] = {}
    total: Any = 1
    for bucket in tables.outcome.buckets:
        own = bucket.sent
        tables.deadline.check()
        found = marked[bucket.variable]
        rows = np.concatenate(found.rows)
        product = np.full(len(rows), 1, dtype=dtype)
        for m, message in enumerate(bucket.messages):
            if message.is_filtered:
                known, below = ways.pop(id(message))
                product = product * below[np.searchsorted(known, np.concatenate([p[m] for p in found.places]))]
        known, group = np.unique(rows, return_inverse=True)
        summed = np.full(len(known), 0, dtype=dtype)
        np.add.at(summed, group, product)
        if own is None:
            total = total * summed[0]
        else:
            ways[id(own)] = known, summed
    return total
