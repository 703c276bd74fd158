"""The exact number of optimal assignments.

An assignment is optimal if every bucket's value is the one stored in its message. A backward pass over the tables marks
the rows of optimal assignments, with all best values of the bucket's variable: the *ties*. A forward pass over the
marked rows computes the number of their completions below. It uses floating-point numbers if they are exact up to the
count, the largest number, and Python integers otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.result import finished
from oocbe.api.tasks.tables import Tables, compute_tables
from oocbe.api.tasks.top_down import descend, ties
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.bucket_rows import Evaluated
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.outcome import unscaled
from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.task_result import TaskResult
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.elimination.observer import Observer

EXACT = 2.0**52
"""Limit up to which sums and products of integers are exact in float64."""


@dataclass
class _Ties:
    """Optimal rows of a bucket's join: their row in the bucket's own message, and in each message received."""

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
