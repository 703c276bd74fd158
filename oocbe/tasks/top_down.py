"""The pass back over the tables: what holds for the whole problem, row by row, from the root of the bucket tree down.

A message says, for every row of its separator, what the variables eliminated below it add up to. Going back, each row
of a bucket's own message receives a weight that speaks for all variables *outside*; the bucket's join splits it among
the values of its variable and hands it on to the rows of the messages that were joined. With conditional probabilities
that gives marginals without any division (downwards the tree is a directed model, as one would sample from it), with
gaps to the best value min-marginals, and with truth values the rows that occur in an optimal assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.bucket_rows import BucketRows, Evaluated, separator_columns
from oocbe.elimination.buckets import Bucket
from oocbe.errors import CorruptDataError
from oocbe.semiring import Combination, Marginalisation
from oocbe.tasks.tables import Tables

Share = Callable[[Bucket, NDArray[np.int64], NDArray[Any], Evaluated], NDArray[Any]]
"""Called with a bucket, row numbers of its own message, their weights and their evaluation; returns the weight of each
row and value (rows, domain size), whose nothing where infeasible is the same as where never reached."""


def descend(tables: Tables, start: Any, nothing: Any, reduce: np.ufunc, share: Share) -> None:
    """Visit every bucket from the root down.

    Parameters
    ----------
    start : weight of the single row of a bucket without a separator. nothing : weight of a row never reached.
    reduce : how weights that meet in one row are reduced, such as ``np.add``; ``nothing`` is its neutral element.
    share : splits the weights of a bucket's rows; see :data:`Share`.
    """
    buckets = tables.outcome.buckets
    dtype = np.asarray(start).dtype
    weights: dict[int, NDArray[Any]] = {}
    for bucket, own in reversed(list(zip(buckets, tables.sent(), strict=True))):
        mine = np.array([start], dtype=dtype) if own is None else weights.pop(id(own))
        handed = [np.full(m.rows, nothing, dtype=dtype) if m.is_filtered else None for m in bucket.messages]
        tables.deadline.check()
        rows = BucketRows(tables.prepared, bucket)
        for piece, columns in separator_columns(own, mine != nothing):
            evaluated = rows.evaluate(columns, len(piece))
            if not evaluated.feasible.any(axis=1).all():
                raise _changed(tables, bucket)
            shares = share(bucket, piece, mine[piece], evaluated)
            reached = shares != nothing
            for target, places in zip(handed, evaluated.places, strict=True):
                if target is not None:
                    reduce.at(target, places[reached], shares[reached])
        for message, target in zip(bucket.messages, handed, strict=True):
            if target is not None:
                weights[id(message)] = target


def gaps(tables: Tables, evaluated: Evaluated) -> NDArray[Any]:
    """How much worse each value is than the best one of its row, never negative; infeasible ones are not masked.

    In product semirings the difference of logarithms.
    """
    semiring = tables.prepared.semiring
    values, feasible = evaluated.values, evaluated.feasible
    if semiring.combination is Combination.MULTIPLY:
        with np.errstate(divide="ignore"):
            values = -np.log(np.where(feasible, values, 1).astype(np.float64))
    elif semiring.marginalisation is Marginalisation.MAX:
        values = -values
    worst = np.iinfo(np.int64).max if values.dtype.kind == "i" else np.inf
    best = np.where(feasible, values, worst).min(axis=1)
    found: NDArray[Any] = np.where(feasible, values - best[:, None], 0)
    return found


def _changed(tables: Tables, bucket: Bucket) -> CorruptDataError:
    problem = tables.prepared.problem
    return CorruptDataError(
        f"{problem.name}, bucket of {problem.variables[bucket.variable].name}: no value extends a row of its message; "
        "a message has changed since it was made"
    )
