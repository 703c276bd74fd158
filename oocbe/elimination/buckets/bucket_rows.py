"""Rows of one bucket: its combined value for given values of its separator and each value of its variable.

The forward pass does not keep joins. Backward tasks need them again, but only for the rows they reach. This module
evaluates those rows by lookups in the bucket's functions, constraints and messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.engine.factors import FactorPool, PackedFactor
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.execution.sources import ChunkCache, SortedRows
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import bits_for

CHUNK_ROWS = 1 << 16
"""Separator rows evaluated at a time, so that a bucket's work arrays take tens of megabytes."""


@dataclass(frozen=True)
class Evaluated:
    """Rows of a bucket.

    values : (rows, domain size), combined values; meaningless where not feasible.
    feasible : bool (rows, domain size).
    places : for each received message int64 (rows, domain size), the row found, or -1.
    """

    values: NDArray[Any]
    feasible: NDArray[np.bool_]
    places: list[NDArray[np.int64]]


class BucketRows:
    """Evaluates rows of a finished pass's bucket; ``cache``: of chunks on disk, read where rows are; None: small."""

    def __init__(self, prepared: Prepared, bucket: Bucket, cache: ChunkCache | None = None) -> None:
        self._prepared = prepared
        self._bucket = bucket
        cache = cache or ChunkCache(tuning().buffered_bytes)
        self._tables: list[SortedRows] = [m.sorted_rows(cache) for m in bucket.messages]
        self._dtype = np.dtype(np.int64 if prepared.dtype.kind == "i" else np.float64)

    def evaluate(self, columns: Mapping[int, NDArray[np.int64]], rows: int) -> Evaluated:
        """Values for each value of the bucket's variable; ``columns``: int64 (rows,) of each separator variable."""
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
                found, entries = table.look_up(table.layout.pack(tuples))
                feasible[wanted[found < 0], x] = False
                wanted, found = wanted[found >= 0], found[found >= 0]
                places[m][wanted, x] = found
                entries = entries.astype(self._dtype)
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


class SeparatorRows:
    """Rows of a bucket's message; one without columns for None. ``cache``: for chunks on disk."""

    def __init__(self, message: Message | None, cache: ChunkCache) -> None:
        self._scope = () if message is None else message.scope
        self._rows = None if message is None else message.sorted_rows(cache)

    def columns(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """For each variable int64 (rows,), its values in some rows, which ascend."""
        if self._rows is None:
            return {}
        tuples = self._rows.layout.unpack(self._rows.keys_at(rows))
        return {v: np.ascontiguousarray(tuples[:, place]) for place, v in enumerate(self._scope)}
