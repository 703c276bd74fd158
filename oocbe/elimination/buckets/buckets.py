"""Buckets: the factors of each variable, the messages it receives, and the values of single rows.

The forward pass does not keep joins. Backward tasks need them again, but only for the rows they reach. Those are
evaluated by lookups in the bucket's functions, constraints and messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.factors import FactorPool, PackedFactor, elements_of, members_of
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.errors import CorruptDataError
from oocbe.execution.sources import ChunkCache, SortedRows
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import bits_for


@dataclass
class Bucket:
    """The contents of one bucket, kept for the backward pass.

    variable : the variable eliminated.
    separator : scope of the message sent, the variable eliminated next at the front.
    functions, constraints : packed factors whose first variable (in elimination order) is the bucket's.
    messages : received from earlier buckets, and factors too large to be packed.
    sent : the message sent; None if it has no variables, and before it is computed.
    """

    variable: int
    separator: tuple[int, ...] = ()
    functions: list[PackedFactor] = field(default_factory=list)
    constraints: list[PackedFactor] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    sent: Message | None = None

    def scope_members(self) -> int:
        """All variables of the bucket as a bit set (bit v for variable v)."""
        members = 1 << self.variable
        for part in (*self.functions, *self.constraints):
            members |= part.members
        for message in self.messages:
            members |= members_of(message.scope)
        return members


def fill_buckets(prepared: Prepared, store: MessageStore) -> list[Bucket]:
    """Buckets in elimination order, with the problem's own factors."""
    buckets = [Bucket(v) for v in prepared.order]
    for f in prepared.functions.factors:
        buckets[prepared.position[f.scope[0]]].functions.append(f)
    for c in prepared.constraints.factors:
        buckets[prepared.position[c.scope[0]]].constraints.append(c)
    for t in prepared.tables:
        buckets[prepared.position[t.scope[0]]].messages.append(store.add(t.scope, t.table, is_filtered=False))
    return buckets


def entries_over(
    pool: FactorPool, factor: PackedFactor, sizes: Sequence[int], chosen: Mapping[int, Any], axes: Sequence[int]
) -> Any:
    """Entries of a packed factor for all assignments of ``axes``, the other variables fixed.

    chosen : value index of each other variable, or those of many rows, int64 (rows,), if ``axes`` is empty.
    Returns an array with an axis for each of ``axes``, of length 1 if the factor does not depend on it; a scalar, or
    (rows,), if ``axes`` is empty.
    """
    place, shift = factor.offset, 0
    spread: NDArray[np.int64] | None = None
    for v in factor.scope:
        if v in axes:
            shape = [1] * len(axes)
            shape[axes.index(v)] = sizes[v]
            along = (np.arange(sizes[v]) << shift).reshape(shape)
            spread = along if spread is None else spread + along
        else:
            place = place + (chosen[v] << shift)
        shift += bits_for(sizes[v])
    if spread is None:
        return pool.entries[place] if not axes else pool.entries[place].reshape((1,) * len(axes))
    return pool.entries[place + spread]


@contextmanager
def reading(prepared: Prepared, bucket: Bucket) -> Iterator[None]:
    """Within the block, errors about damaged tables also name the bucket that made the message."""
    try:
        yield
    except CorruptDataError as error:
        name = prepared.problem.variables[bucket.variable].name
        raise CorruptDataError(f"{prepared.problem.name}, a message to the bucket of {name}: {error}") from None


class ConstraintIndex:
    """A problem's packed constraints by their variables, of which there are so many."""

    def __init__(self, constraints: FactorPool, variables: int) -> None:
        self._of: list[list[PackedFactor]] = [[] for _ in range(variables)]
        for c in constraints.factors:
            for v in c.scope:
                self._of[v].append(c)
        self._filed: list[list[PackedFactor]] = [[] for _ in range(variables)]
        for c in constraints.factors:
            self._filed[min(c.scope, key=lambda v: len(self._of[v]))].append(c)

    def covered_by(self, bucket: Bucket) -> list[PackedFactor]:
        """Constraints over the bucket's variables that no received message enforces.

        A constraint covered by a message's scope was applied when that message was computed. The result therefore
        contains the constraints that have, for every message, a variable outside its scope; in particular, one outside
        the largest scope. The problem's own tables come from no join and enforce only themselves.
        """
        members = members_of(bucket.separator) | 1 << bucket.variable
        scopes = [members_of(m.scope) for m in bucket.messages if m.is_filtered]
        fresh = members & ~max(scopes, key=int.bit_count, default=0)
        # If thousands of constraints share a variable, those of the bucket are found by their other variables.
        near = [self._of[v] for v in elements_of(fresh)]
        filed = [self._filed[v] for v in elements_of(members)]
        fewest = min(near, filed, key=lambda lists: sum(map(len, lists)))
        found: dict[int, PackedFactor] = {}
        for c in chain.from_iterable(fewest):
            if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                found[c.offset] = c
        return list(found.values())


CHUNK_ROWS, CHUNK_CELLS = 1 << 16, 1 << 21
"""Separator rows evaluated at a time, and their number times that of values, at most: arrays of tens of megabytes."""

BLOCK_CELLS = 1 << 17
"""Rows times values joined at a time: few calls of NumPy for large domains, and columns that fit the cache."""


@dataclass(frozen=True)
class Evaluated:
    """Rows of a bucket.

    values : (rows, domain size), combined values; meaningless where not feasible. feasible : bool (rows, domain size).
    places : for each received message int64 (rows, domain size), the row found, or -1.
    """

    values: NDArray[Any]
    feasible: NDArray[np.bool_]
    places: list[NDArray[np.int64]]


class BucketRows:
    """Evaluates rows of a finished pass's bucket; ``cache``: of chunks on disk, read where rows are; None: small."""

    def __init__(self, prepared: Prepared, bucket: Bucket, cache: ChunkCache | None = None) -> None:
        self._prepared, self._bucket = prepared, bucket
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
        step = max(1, BLOCK_CELLS // max(rows, 1))
        for first in range(0, size, step):
            some = np.arange(first, min(first + step, size))
            chosen = {v: np.repeat(column, len(some)) for v, column in columns.items()}
            chosen[bucket.variable] = np.tile(some, rows)
            total = np.full(rows * len(some), prepared.semiring.one, dtype=self._dtype)
            permitted = np.ones(len(total), dtype=np.bool_)
            for c in bucket.constraints:
                permitted &= entries_over(prepared.constraints, c, prepared.problem.sizes, chosen, ()) != 0
            for f in bucket.functions:
                entries = entries_over(prepared.functions, f, prepared.problem.sizes, chosen, ())
                total = total + entries if adds else total * entries
            for found_at, message, table in zip(places, bucket.messages, self._tables, strict=True):
                wanted = np.flatnonzero(permitted)
                tuples = np.stack([chosen[v][wanted] for v in message.scope], axis=1)
                found, entries = table.look_up(table.layout.pack(tuples))
                permitted[wanted[found < 0]] = False
                wanted, found = wanted[found >= 0], found[found >= 0]
                found_at[wanted // len(some), first + wanted % len(some)] = found
                entries = entries.astype(self._dtype)
                total[wanted] = total[wanted] + entries if adds else total[wanted] * entries
            values[:, some], feasible[:, some] = total.reshape(rows, -1), permitted.reshape(rows, -1)
        return Evaluated(values, feasible, places)


def columns_of(message: Message, table: SortedRows, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """For each variable of a message int64 (rows,), its values in some rows of its table, which ascend."""
    tuples = table.layout.unpack(table.keys_at(rows))
    return {v: np.ascontiguousarray(tuples[:, place]) for place, v in enumerate(message.scope)}
