"""The backward pass over the tables: global weights of rows, from the root of the bucket tree down.

A message has, for every row of its separator, the sum over the variables eliminated below it. In the backward pass,
each row of a bucket's own message receives a weight for all variables *outside*; the bucket's join splits it among the
values of its variable and passes it to the rows of the joined messages. Weights that are conditional probabilities give
marginals without division (downwards the tree is a directed model, as for sampling), gaps to the best value give
min-marginals, and truth values the rows that occur in an optimal assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.api.tasks.row_weights import RowWeights
from oocbe.api.tasks.tables import Tables
from oocbe.elimination.buckets.bucket_rows import CHUNK_ROWS, BucketRows, Evaluated, SeparatorRows
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.errors import CorruptDataError
from oocbe.execution.sources import ChunkCache
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.tuning import tuning

Share = Callable[[Bucket, NDArray[np.int64], NDArray[Any], Evaluated], NDArray[Any]]
"""Called with a bucket, row numbers of its own message, their weights and their evaluation; returns the weight of each
row and value (rows, domain size). Infeasible ones have the same ``nothing`` as unreached ones."""


def descend(tables: Tables, start: Any, nothing: Any, reduce: np.ufunc, share: Share) -> None:
    """Visit every bucket from the root down.

    Parameters
    ----------
    start : weight of the single row of a bucket without a separator. nothing : weight of an unreached row.
    reduce : combines the weights of one row, such as ``np.add``; ``nothing`` is its neutral element.
    share : splits the weights of a bucket's rows; see :data:`Share`.
    """
    dtype = np.asarray(start).dtype
    store = tables.store
    store.free_device_memory()
    numbers = tuning()
    store.make_room(int(store.memory_limit * numbers.descent_free_share))
    most = int(store.memory_limit * numbers.descent_weights_share)
    cache = ChunkCache(int(store.memory_limit * numbers.descent_cache_share))

    def fresh(rows: int) -> RowWeights:
        return RowWeights(rows, nothing, dtype, most, store.budget)

    weights: dict[int, RowWeights] = {}
    for bucket in reversed(tables.outcome.buckets):
        own = bucket.sent
        mine = fresh(1) if own is None else weights.pop(id(own))
        if own is None:
            mine.add(reduce, np.zeros(1, dtype=np.int64), np.array([start], dtype=dtype))
        handed = [fresh(m.rows) if m.is_filtered else None for m in bucket.messages]
        mine_and_theirs = bucket.messages if own is None else [own, *bucket.messages]
        store.list_rows([m for m in mine_and_theirs if m.is_filtered and m.listed_bytes > most])
        rows, separator = BucketRows(tables.prepared, bucket, cache), SeparatorRows(own, cache)
        for piece, weight in _reached(mine, nothing):
            tables.deadline.check()
            evaluated = rows.evaluate(separator.columns(piece), len(piece))
            if not evaluated.feasible.any(axis=1).all():
                raise _changed(tables, bucket)
            shares = share(bucket, piece, weight, evaluated)
            reached = shares != nothing
            for target, places in zip(handed, evaluated.places, strict=True):
                if target is not None:
                    target.add(reduce, places[reached], shares[reached])
        mine.close()
        for message, target in zip(bucket.messages, handed, strict=True):
            if target is not None:
                weights[id(message)] = target


def _reached(weights: RowWeights, nothing: Any) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Numbers and weights of the reached rows, in pieces."""
    for start, block in weights.blocks():
        rows = np.flatnonzero(block != nothing)
        for first in range(0, len(rows), CHUNK_ROWS):
            piece = rows[first : first + CHUNK_ROWS]
            yield start + piece, block[piece]


def gaps(tables: Tables, evaluated: Evaluated) -> NDArray[Any]:
    """Gap of each value to the best one of its row, never negative; infeasible ones are not masked.

    In product semirings it is a difference of logarithms.
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


def multiplies_integers(prepared: Prepared) -> bool:
    """Whether values are products of integers, which are compared exactly, unlike their logarithms."""
    return prepared.dtype.kind == "i" and prepared.semiring.combination is Combination.MULTIPLY


def best_products(evaluated: Evaluated) -> NDArray[np.int64]:
    """The largest feasible value of each row, (rows, 1), of products of integers; none of them is negative."""
    best: NDArray[np.int64] = np.where(evaluated.feasible, evaluated.values, 0).max(axis=1)
    return best[:, None]


def ties(tables: Tables, evaluated: Evaluated, margin: float) -> NDArray[np.bool_]:
    """Mask of the values equal to the best one of their row: integers exactly, other numbers up to a margin of gaps."""
    if multiplies_integers(tables.prepared):
        best: NDArray[np.bool_] = evaluated.values == best_products(evaluated)
    else:
        best = gaps(tables, evaluated) <= margin
    return evaluated.feasible & best


def _changed(tables: Tables, bucket: Bucket) -> CorruptDataError:
    problem = tables.prepared.problem
    return CorruptDataError(
        f"{problem.name}, bucket of {problem.variables[bucket.variable].name}: no value extends a row of its message; "
        "a message has changed since it was made"
    )
