"""Rows of one bucket: its combined value for given values of its separator and each value of its variable.

The forward pass joins a bucket and forgets the join. A task that goes back over the tables needs it again, but only for
rows that it has reached: these are evaluated here, by lookups in the bucket's functions, constraints and messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets import Bucket
from oocbe.elimination.messages import Message
from oocbe.elimination.prepare import Prepared
from oocbe.kernels.cpu.search import find_rows
from oocbe.operators.bucket_engine import to_host
from oocbe.operators.factors import FactorPool, PackedFactor
from oocbe.semiring import Combination
from oocbe.tables.layout import bits_for
from oocbe.tables.table import Table

CHUNK_ROWS = 1 << 16
"""Separator rows evaluated at a time: the work arrays of a bucket then stay in tens of megabytes."""


@dataclass(frozen=True)
class Evaluated:
    """Rows of a bucket.

    Attributes
    ----------
    values : (rows, domain size), combined values; meaningless where not feasible.
    feasible : bool (rows, domain size).
    places : for each message received int64 (rows, domain size), the row that was looked up, or -1.
    """

    values: NDArray[Any]
    feasible: NDArray[np.bool_]
    places: list[NDArray[np.int64]]


class BucketRows:
    """Evaluates rows of a bucket of a finished forward pass."""

    def __init__(self, prepared: Prepared, bucket: Bucket) -> None:
        self._prepared = prepared
        self._bucket = bucket
        self._tables: list[Table] = [to_host(m.table()) for m in bucket.messages]
        self._dtype = np.dtype(np.int64 if prepared.dtype.kind == "i" else np.float64)

    def evaluate(self, columns: Mapping[int, NDArray[np.int64]], rows: int) -> Evaluated:
        """Values for each value of the bucket's variable.

        Parameters
        ----------
        columns : for each variable of the separator (others are ignored) int64 (rows,), its values.
        """
        prepared, bucket = self._prepared, self._bucket
        adds = prepared.semiring.combination is Combination.ADD
        size = prepared.problem.sizes[bucket.variable]
        values = np.full((rows, size), prepared.semiring.one, dtype=self._dtype)
        feasible = np.ones((rows, size), dtype=np.bool_)
        places = [np.full((rows, size), -1, dtype=np.int64) for _ in self._tables]
        for x in range(size):
            chosen = {**columns, bucket.variable: np.full(rows, x, dtype=np.int64)}
            for c in bucket.constraints:
                feasible[:, x] &= self._entries(prepared.constraints, c, chosen) != 0
            for f in bucket.functions:
                entries = self._entries(prepared.functions, f, chosen)
                values[:, x] = values[:, x] + entries if adds else values[:, x] * entries
            for m, (message, table) in enumerate(zip(bucket.messages, self._tables, strict=True)):
                wanted = np.flatnonzero(feasible[:, x])
                tuples = np.stack([chosen[v][wanted] for v in message.scope], axis=1)
                found = np.empty(len(wanted), dtype=np.int64)
                find_rows(table.keys, table.layout.pack(tuples), found)
                feasible[wanted[found < 0], x] = False
                wanted, found = wanted[found >= 0], found[found >= 0]
                places[m][wanted, x] = found
                entries = table.values[found].astype(self._dtype)
                values[wanted, x] = values[wanted, x] + entries if adds else values[wanted, x] * entries
        return Evaluated(values, feasible, places)

    def _entries(self, pool: FactorPool, factor: PackedFactor, chosen: Mapping[int, NDArray[np.int64]]) -> NDArray[Any]:
        sizes = self._prepared.problem.sizes
        index: NDArray[np.int64] = np.zeros(len(chosen[factor.scope[0]]), dtype=np.int64)
        shift = 0
        for v in factor.scope:
            index |= chosen[v] << shift
            shift += bits_for(sizes[v])
        return pool.entries[factor.offset + index]


def separator_columns(
    message: Message | None, reached: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.int64], dict[int, NDArray[np.int64]]]]:
    """Rows of a bucket's own message that are reached, in pieces: their numbers, and their values by variable.

    ``message`` is None for a bucket without a separator: it has one row without columns.
    """
    if message is None:
        yield np.flatnonzero(reached), {}
        return
    table = to_host(message.table())
    rows = np.flatnonzero(reached)
    for first in range(0, len(rows), CHUNK_ROWS):
        piece = rows[first : first + CHUNK_ROWS]
        tuples = table.layout.unpack(np.ascontiguousarray(table.keys[:, piece]))
        yield piece, {v: np.ascontiguousarray(tuples[:, place]) for place, v in enumerate(message.scope)}
