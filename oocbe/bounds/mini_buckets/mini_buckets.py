"""Mini-bucket elimination MBE(z): a bound on the optimum if exact elimination does not fit (Dechter and Rish 2003).

A bucket over too many variables is divided into mini-buckets of at most z variables, and its variable is eliminated
from each separately::

    min_x (f(x, a) + g(x, b))   is at least   min_x f(x, a) + min_x g(x, b)

Each mini-bucket sends its message to the bucket of its first variable. The sum of the last messages is a lower bound on
the optimum; it is exact if no bucket was divided, so for z above the induced width. The number of rows is at most that
of the assignments of z variables, and usually far smaller: messages are incomplete tables, and every mini-bucket
applies all hard constraints over its variables, from any bucket. So bounds are better than those of complete tables.

All computations are in min-sum; other semirings are converted first
(:mod:`oocbe.bounds.mini_buckets.mini_buckets_bound`). The engine of exact elimination joins the buckets, on either
backend, with messages on disk when memory is short.

Cost shifting is max-marginal matching (Ihler, Flerova, Dechter and Otten 2012). Each mini-bucket eliminates its own
copy of the bucket's variable; the bound improves as the copies agree. So before elimination, functions over the
variables common to all mini-buckets are added to some and subtracted from others. Their sum is zero, and the
mini-buckets' min-marginals over the common variables become equal. The problem is unchanged; the bound often rises.
Integers stay integers: the remainder of a mean is distributed over the first mini-buckets, one each.

If one mini-bucket has no row for an assignment of the common variables, all rows with that assignment are dropped.

The engine joins and eliminates in one step and never stores the join, but shifting needs it. So elimination runs on a
problem in which every variable v has a *copy* v', next to it in the order and equal to it by a constraint. Elimination
of v from a mini-bucket with this constraint gives the join over v', which is eliminated afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.operators import maximise
from oocbe.bounds.mini_buckets.mini_buckets_partition import FactorGroup, by_content, by_scope, parts_of
from oocbe.elimination.buckets.buckets import Bucket, fill_buckets
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.engine.factors import LOOKUP_BITS, FactorPool, PackedFactor
from oocbe.elimination.preparation.prepare import Prepared, ScopedTable, prepare
from oocbe.elimination.preparation.ranges import INT64_LIMIT, largest_magnitude
from oocbe.errors import ValueRangeError
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import bits_for
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table

MATCHED_BITS = 20
"""Maximum bits of the common variables: their marginals are dense arrays of at most a million entries."""


def with_copies(problem: Problem, order: Sequence[int]) -> Prepared:
    """A min-sum problem prepared for an order, with a copy n + v of every variable v (of n) right after it.

    Variables with too many values for a packed constraint have a copy without a constraint: they are not matched.
    Integers are int64, since shifted values may leave the range of the problem's own sums.
    """
    count = len(problem.variables)
    names = {v.name for v in problem.variables}
    copies: list[Variable] = []
    equal: list[Constraint] = []
    for number, v in enumerate(problem.variables):
        name = v.name + "'"
        while name in names:
            name += "'"
        names.add(name)
        copies.append(Variable(name, v.size))
        if 2 * bits_for(v.size) <= LOOKUP_BITS:
            values = np.arange(v.size)
            equal.append(Constraint((number, count + number), np.column_stack([values, values]), allowed=True))
    variables, constraints = (*problem.variables, *copies), (*problem.constraints, *equal)
    doubled = replace(problem, variables=variables, constraints=constraints)
    prepared = prepare(doubled, MIN_SUM, [w for v in order for w in (v, count + v)], carries=False)
    if prepared.dtype.kind == "i":
        prepared.dtype = np.dtype(np.int64)
        prepared.functions = FactorPool(prepared.functions.factors, prepared.functions.entries.astype(np.int64))
        prepared.tables = [ScopedTable(t.scope, _as_int64(t.table)) for t in prepared.tables]
    return prepared


def _as_int64(table: Table) -> Table:
    return Table(table.layout, table.keys, table.values.astype(np.int64), table.semiring, table.is_sorted)


def match(tables: Sequence[Table], copy: str) -> list[Table]:
    """The joined mini-buckets of a bucket after cost shifting (see the module).

    tables : in host memory, at least two; all scopes contain the variable named ``copy``.
    """
    shared = _shared_names(tables, copy)
    bits = sum(bits_for(tables[0].layout.sizes[tables[0].layout.place(name)]) for name in shared)
    codes = [_codes(t, shared) for t in tables]
    marginals: list[NDArray[Any]] = []
    possible = np.ones(1 << bits, dtype=np.bool_)
    for t, own in zip(tables, codes, strict=True):
        there = np.zeros(1 << bits, dtype=np.bool_)
        there[own] = True
        possible &= there
        first = np.zeros(1 << bits, dtype=t.values.dtype)
        first[own] = t.values  # any row of each group, so that no dtype needs an infinity
        np.minimum.at(first, own, t.values)
        marginals.append(first)
    shifts = _shifts(np.stack(marginals)[:, possible])
    matched = []
    for t, own, shift in zip(tables, codes, shifts, strict=True):
        keep = possible[own]
        spread = np.zeros(1 << bits, dtype=t.values.dtype)
        spread[possible] = shift
        values = t.values[keep] + spread[own[keep]]
        keys = np.ascontiguousarray(t.keys[:, keep])
        matched.append(Table(t.layout, keys, values, t.semiring, t.is_sorted))
    return matched


def _shared_names(tables: Sequence[Table], copy: str) -> list[str]:
    """Variables in all scopes, the copy first, limited to :data:`MATCHED_BITS`."""
    shared, bits = [copy], bits_for(tables[0].layout.sizes[tables[0].layout.place(copy)])
    for name, size in zip(tables[0].layout.scope, tables[0].layout.sizes, strict=True):
        if name == copy or any(name not in t.layout for t in tables[1:]):
            continue
        if bits + bits_for(size) > MATCHED_BITS:
            break
        shared.append(name)
        bits += bits_for(size)
    return shared


def _codes(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Values of some variables in each row, packed from bit 0 on."""
    codes: NDArray[np.int64] = np.zeros(table.rows, dtype=np.int64)
    place = 0
    for name in names:
        f = table.layout.field(name)
        codes |= ((table.keys[f.word] >> np.uint64(f.shift)) & np.uint64(f.mask)).astype(np.int64) << place
        place += f.bits
    return codes


def _shifts(marginals: NDArray[Any]) -> NDArray[Any]:
    """Shift of each mini-bucket (tables, assignments): the sum is zero, and all marginals become their mean."""
    tables = len(marginals)
    if marginals.dtype.kind == "i":
        total = marginals.sum(axis=0)
        target = np.broadcast_to(total // tables, marginals.shape).copy()
        target += np.arange(tables)[:, None] < total % tables
        shifts: NDArray[Any] = target - marginals
    else:
        shifts = marginals.mean(axis=0) - marginals
    return shifts


ULP = 2.0**-52
"""Upper bound on the rounding error of a float64 sum, relative to the sum of its terms' magnitudes."""


@dataclass
class MiniBucketPass:
    """Outcome of the forward pass with mini-buckets.

    buckets : one a variable, in elimination order, with all their factors (up to the first one proven infeasible).
    bound : lower bound on the optimum, rounded down by the error bound of floating-point sums; None if infeasible.
    value : the bound before rounding.
    split : number of divided buckets. mini_buckets : total number of mini-buckets.
    width : variables of the largest message.
    largest_rows, total_rows : rows of the largest message, and of all.
    """

    buckets: list[Bucket]
    bound: int | float | None
    value: int | float | None = None
    split: int = 0
    mini_buckets: int = 0
    width: int = 0
    largest_rows: int = 0
    total_rows: int = 0


class MiniBuckets:
    """The forward pass with mini-buckets over a prepared min-sum problem.

    prepared : the problem, without carried consumption in its rows; with ``shifting``, from :func:`with_copies`.
    z : maximum number of variables of a mini-bucket, including the eliminated one.
    store : of the messages. engine : computes the mini-buckets.
    partition : ``scope`` or ``content``. seed : of the samples of the latter.
    shifting : whether costs are shifted between the mini-buckets of a bucket.
    tables : form of the messages (:mod:`oocbe.elimination.buckets.forms`); with ``content`` or shifting all are
        incomplete.
    """

    def __init__(
        self,
        prepared: Prepared,
        z: int,
        store: MessageStore,
        engine: BucketEngine,
        partition: str = "scope",
        shifting: bool = False,
        seed: int = 0,
        tables: str = INCOMPLETE,
    ) -> None:
        self._prepared = prepared
        self._variables = len(prepared.problem.variables) // (2 if shifting else 1)
        self._z = z
        self._store = store
        self._engine = engine
        self._by_content = partition == "content"
        self._shifting = shifting
        self._seed = seed
        form = INCOMPLETE if shifting or self._by_content else tables
        self._forward = Forward(prepared, dominance=False, store=store, engine=engine, tables=form)
        self._bounds: dict[int, float] = {}
        self._nothing = np.zeros(len(prepared.problem.variables), dtype=np.uint8)
        self._is_exact = prepared.dtype.kind == "i"
        functions = prepared.problem.functions
        terms = [abs(prepared.problem.constant), *(_magnitude_of(f.values) for f in functions)]
        # Constants are added up before elimination, and values may be rounded logarithms.
        self._error = (len(functions) + 2) * ULP * sum(terms)

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None) -> MiniBucketPass:
        """Eliminate every variable; ``bucket_done`` is called with a bucket's number (from 1), and rows and bytes sent.

        Raises ResourceError: a message would not fit the memory limit, or the disk is full; TimeLimitError: the
        engine's deadline came; ValueRangeError: shifted integers could leave the range of int64.
        """
        prepared = self._prepared
        buckets = fill_buckets(prepared, self._store)
        total: int | float = prepared.constant
        done = MiniBucketPass([b for b in buckets if b.variable < self._variables], None)
        if prepared.is_infeasible:
            return done
        for number, bucket in enumerate(done.buckets):
            equal = [c for c in bucket.constraints if c.members >> self._variables]
            bucket.constraints = [c for c in bucket.constraints if not c.members >> self._variables]
            parts = self._divide(bucket)
            minis = [Bucket(bucket.variable, (), p.functions, p.constraints, p.messages) for p in parts]
            done.mini_buckets += len(minis)
            done.split += len(minis) > 1
            tables = self._messages(minis, equal)
            if any(t.rows == 0 for t in tables):
                del done.buckets[number + 1 :]
                return done
            for mini, table in zip(minis, tables, strict=True):
                done.largest_rows = max(done.largest_rows, table.rows)
                done.width = max(done.width, len(mini.separator))
                if mini.separator:
                    target = buckets[prepared.position[mini.separator[0]]]
                    message = self._store.add(mini.separator, table)
                    self._bounds[id(message)] = self._magnitude(mini)
                    target.messages.append(message)
                else:
                    total = total + prepared.semiring.reduce(to_host(table).values).item()
            for received in bucket.messages:
                self._store.joined(received)
            rows = sum(t.rows for t in tables)
            done.total_rows += rows
            if bucket_done is not None:
                bucket_done(number + 1, rows, sum(t.nbytes for t in tables))
        done.value = total
        done.bound = total if self._is_exact else total - self._error - abs(total) * ULP * len(done.buckets)
        return done

    def _divide(self, bucket: Bucket) -> list[FactorGroup]:
        parts = parts_of(bucket, bucket.constraints)
        if self._by_content:
            return by_content(parts, self._z, self._prepared, bucket.variable, self._seed)
        return by_scope(parts, self._z)

    def _messages(self, minis: list[Bucket], equal: list[PackedFactor]) -> Sequence[Table | CompleteTable]:
        """Messages of the mini-buckets of one bucket, whose separators are set; fewer if one message has no rows."""
        magnitude = sum(self._magnitude(mini) for mini in minis)
        if not self._is_exact:
            self._error += sum(len(m.functions) + len(m.messages) + 1 for m in minis) * ULP * magnitude
        if not self._shifting or len(minis) < 2 or not equal:
            return [self._forward.cheapest_message(mini, self._nothing) for mini in minis]
        if self._is_exact and 2 * magnitude * len(minis) > INT64_LIMIT:
            name = self._prepared.problem.variables[minis[0].variable].name
            raise ValueRangeError(
                f"{self._prepared.problem.name}, bucket of {name}: shifted costs can reach {magnitude:.3g}, beyond "
                "64-bit integers; scale the costs down, or leave cost shifting out"
            )
        self._error += 0.0 if self._is_exact else 4 * len(minis) * ULP * magnitude
        return self._shifted(minis, equal)

    def _shifted(self, minis: list[Bucket], equal: list[PackedFactor]) -> list[Table]:
        """Join each mini-bucket, shift values between them, and eliminate the variable's copy; as :meth:`_messages`."""
        joined: list[Table] = []
        for mini in minis:
            mini.constraints = [*mini.constraints, *equal]
            with self._store.holding(sum(t.nbytes for t in joined)):
                table = to_host(self._forward.message(mini, self._nothing))
            mini.separator = mini.separator[1:]
            if table.rows == 0:
                return [table]
            joined.append(table)
        copy = joined[0].layout.scope[0]
        matched = match(joined, copy)
        empty = [t for t in matched if t.rows == 0]
        return empty or [maximise(t, copy, backend="cpu") for t in matched]

    def _magnitude(self, mini: Bucket) -> float:
        """Bound on the absolute value of every sum in a mini-bucket; 0 if it is not needed.

        With shifting the actual values are read: bounds summed from bucket to bucket would soon be far too large.
        """
        if self._is_exact and not self._shifting:
            return 0
        entries = self._prepared.functions.entries
        bound: float = 0
        for f in mini.functions:
            bound += _magnitude_of(entries[f.offset : f.offset + (1 << f.bits)])
        for m in mini.messages:
            known = None if self._shifting else self._bounds.get(id(m))
            bound += _magnitude_of(to_host(m.table()).values) if known is None else known
        return bound


def _magnitude_of(values: NDArray[Any]) -> float:
    """Largest absolute value; exact for integers."""
    return largest_magnitude(values) if values.dtype.kind == "i" else float(np.abs(values).max(initial=0.0))
