"""The forward pass of bucket elimination (Dechter 1999): one message a bucket, in elimination order.

A bucket holds the factors whose first variable (in elimination order) is the bucket's, and the messages that earlier
buckets passed on. Joining them and eliminating the variable gives the bucket's message, which goes to the bucket of the
first variable of its own scope. A message without variables is a number and is combined with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.prepare import Prepared, ScopedTable
from oocbe.elimination.ranges import check_product
from oocbe.elimination.scaling import rescale
from oocbe.errors import ResourceError
from oocbe.operators.bucket_join import join_and_eliminate
from oocbe.operators.factors import PackedFactor
from oocbe.operators.join_program import BucketScope, ProgramBuilder
from oocbe.pruning.dominance import SubstitutionDominance, applies_to
from oocbe.semiring import Combination
from oocbe.tables.table import Table, format_bytes


@dataclass
class Bucket:
    """What one bucket held, kept for the backward pass.

    Attributes
    ----------
    variable : the variable eliminated.
    separator : scope of the message sent, the variable eliminated next at the front.
    functions, constraints : packed factors that belong to this bucket.
    tables : messages received, and factors too large to be packed.
    """

    variable: int
    separator: tuple[int, ...] = ()
    functions: list[PackedFactor] = field(default_factory=list)
    constraints: list[PackedFactor] = field(default_factory=list)
    tables: list[ScopedTable] = field(default_factory=list)


@dataclass
class ForwardPass:
    """Outcome of the forward pass.

    Attributes
    ----------
    buckets : in elimination order (up to the one that proved infeasibility).
    value : combined value of the problem, without scaling; None where it is infeasible.
    exponent : the value is to be multiplied by 2 ** exponent (always 0 where values are added).
    largest_rows, total_rows : rows of the largest message, and of all.
    width : the largest separator.
    """

    buckets: list[Bucket]
    value: int | float | None
    exponent: int = 0
    largest_rows: int = 0
    total_rows: int = 0
    width: int = 0


class Forward:
    """Runs the forward pass over a prepared problem.

    Parameters
    ----------
    prepared : the problem, packed for its order.
    dominance : whether to drop dominated rows (where the semiring allows it).
    memory_limit : bytes that all messages together may take.
    keep : called with each message about to be stored; returns what to keep in its place (such as a table on disk).
    block_rows : see :func:`oocbe.operators.bucket_join.join_and_eliminate`.
    """

    def __init__(
        self, prepared: Prepared, dominance: bool, memory_limit: int, block_rows: int | None = None
    ) -> None:
        self._prepared = prepared
        self._memory_limit = memory_limit
        self._block_rows = block_rows
        problem = prepared.problem
        self._program = ProgramBuilder(problem.sizes, prepared.constraints, prepared.functions, prepared.semiring)
        self._constraints_of: list[list[PackedFactor]] = [[] for _ in problem.variables]
        for c in prepared.constraints.factors:
            for v in c.scope:
                self._constraints_of[v].append(c)
        self._dominance = None
        if dominance and applies_to(prepared.semiring):
            opaque = [t.scope for t in prepared.tables]
            self._dominance = SubstitutionDominance(
                problem.sizes, prepared.semiring, prepared.constraints, prepared.functions, opaque
            )

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None) -> ForwardPass:
        """Eliminate every variable; ``bucket_done`` gets the bucket's number (from 1), rows and bytes.

        Raises
        ------
        ResourceError : a message would not fit the memory limit.
        ValueRangeError : a product of integers could leave the range of int64.
        """
        prepared = self._prepared
        buckets = self._fill_buckets()
        subtrees = [np.zeros(len(prepared.order), dtype=np.uint8) for _ in prepared.order]
        outcome = ForwardPass(buckets, prepared.constant)
        if prepared.is_infeasible:
            outcome.value = None
            return outcome
        used = 0
        for place, bucket in enumerate(buckets):
            subtree = subtrees[place]
            subtree[bucket.variable] = 1
            message = self._message(bucket, subtree, self._memory_limit - used)
            outcome.width = max(outcome.width, len(bucket.separator))
            outcome.total_rows += message.rows
            outcome.largest_rows = max(outcome.largest_rows, message.rows)
            if message.rows == 0:
                outcome.value = None
                del buckets[place + 1 :]
                return outcome
            message, exponent = rescale(message)
            outcome.exponent += exponent
            used += message.nbytes
            if bucket.separator:
                target = prepared.position[bucket.separator[0]]
                buckets[target].tables.append(ScopedTable(bucket.separator, message))
                subtrees[target] |= subtree
            else:
                self._absorb(outcome, message)
            subtrees[place] = np.empty(0, dtype=np.uint8)
            if bucket_done is not None:
                bucket_done(place + 1, message.rows, message.nbytes)
        return outcome

    def _fill_buckets(self) -> list[Bucket]:
        prepared = self._prepared
        buckets = [Bucket(v) for v in prepared.order]
        for f in prepared.functions.factors:
            buckets[prepared.position[f.scope[0]]].functions.append(f)
        for c in prepared.constraints.factors:
            buckets[prepared.position[c.scope[0]]].constraints.append(c)
        for t in prepared.tables:
            buckets[prepared.position[t.scope[0]]].tables.append(t)
        return buckets

    def _absorb(self, outcome: ForwardPass, message: Table) -> None:
        value = message.values[0].item()
        assert outcome.value is not None
        if self._prepared.semiring.combination is Combination.ADD:
            outcome.value = outcome.value + value
        else:
            check_product("the combination of independent parts", message.values.dtype, (outcome.value, value), 1)
            outcome.value = outcome.value * value

    def _message(self, bucket: Bucket, subtree: NDArray[np.uint8], bytes_left: int) -> Table:
        prepared = self._prepared
        members = 1 << bucket.variable
        for part in (*bucket.functions, *bucket.constraints):
            members |= part.members
        scopes = [_members(t.scope) for t in bucket.tables]
        for scope in scopes:
            members |= scope
        separator = sorted(_elements(members & ~(1 << bucket.variable)), key=prepared.position.__getitem__)
        bucket.separator = tuple(separator)
        layout = prepared.layout(bucket.separator)
        where = f"{prepared.problem.name}, bucket of {prepared.problem.variables[bucket.variable].name}"
        size = prepared.problem.sizes[bucket.variable]
        if prepared.semiring.combination is Combination.MULTIPLY:
            self._check_range(bucket, where, size)
        tables = [t.table for t in bucket.tables]
        rows = max((t.rows for t in tables), default=0)
        program = self._program.build(
            BucketScope(bucket.variable, size, bucket.separator, layout),
            [(t.scope, t.table.layout) for t in bucket.tables],
            self._covered(members, scopes, rows, tables),
            bucket.functions,
            rows,
        )
        row_bytes = 8 * layout.words + prepared.dtype.itemsize
        try:
            message = join_and_eliminate(
                program, layout, tables, prepared.semiring, prepared.dtype, bytes_left // row_bytes, self._block_rows
            )
        except ResourceError as error:
            raise ResourceError(
                f"{where}: {error}; limit {format_bytes(self._memory_limit)}, "
                f"{format_bytes(self._memory_limit - bytes_left)} already used. Raise --memory, or try another --order"
            ) from None
        if self._dominance is not None:
            message = self._dominance.drop_dominated(message, bucket.separator, subtree)
        return message

    def _covered(
        self, members: int, scopes: list[int], rows: int, tables: list[Table]
    ) -> list[PackedFactor]:
        """Constraints over the bucket's variables that no table enforces already.

        A constraint covered by a message's scope was applied when that message was made. So only those count that
        mention, for every table, a variable the table lacks: any of these mentions one that the largest table lacks.
        """
        largest = max(range(len(scopes)), key=lambda t: tables[t].rows) if scopes else -1
        fresh = members & ~scopes[largest] if scopes else members
        found: dict[int, PackedFactor] = {}
        for v in _elements(fresh):
            for c in self._constraints_of[v]:
                if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes):
                    found[c.offset] = c
        return list(found.values())

    def _check_range(self, bucket: Bucket, where: str, size: int) -> None:
        entries = self._prepared.functions.entries
        factors = [float(np.abs(t.table.values).max()) for t in bucket.tables if t.table.rows]
        factors += [float(np.abs(entries[f.offset : f.offset + (1 << f.bits)]).max()) for f in bucket.functions]
        check_product(where, self._prepared.dtype, factors, size)


def _members(scope: tuple[int, ...]) -> int:
    members = 0
    for v in scope:
        members |= 1 << v
    return members


def _elements(members: int) -> list[int]:
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found
