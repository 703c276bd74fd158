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

Costs are shifted between the mini-buckets of a bucket in complete tables
(:mod:`oocbe.bounds.mini_buckets.mini_buckets_complete`): in rows, of which many are missing, shifts lowered bounds as
often as they raised them.

A mini-bucket's *size* is the total number of variables of its factors, including the eliminated one: the limit z of
Fioretto et al. (2018), algorithm 2, line 3. (Their example 4 counts the message's variables instead, one fewer.) A
factor with more than z variables is a mini-bucket of its own.

* *By scope* (Dechter and Rish 2003): each factor, largest scope first, joins the first mini-bucket that stays within z.
* *By content* (greedy merging, after Rollon and Dechter 2010): the two mini-buckets with the largest loss from separate
  elimination are merged. The loss of a pair is the mean, over sampled assignments of the other variables, of the
  joint minimum over the variable minus the sum of the two separate minima.

In both, a factor whose scope an existing mini-bucket contains joins it at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.buckets import Bucket, BucketRows, fill_buckets
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.factors import PackedFactor, elements_of, members_of
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.runtime.deadline import looked
from oocbe.tables.complete import CompleteTable
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table

PARTITIONS = ("scope", "content")
"""Methods of division: by scope size, or by sampled loss."""

SAMPLES = 128
"""Sampled assignments per bucket: enough to rank losses, in a fraction of a millisecond."""

LEAST_GAIN = 1e-12
"""Minimum loss relative to the range of values: smaller sampled losses are rounding, and scopes decide instead."""


@dataclass
class FactorGroup:
    """A mini-bucket, or a single factor to be assigned to one; ``members``: variables as a bit set."""

    members: int
    functions: list[PackedFactor] = field(default_factory=list)
    constraints: list[PackedFactor] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def take(self, other: FactorGroup) -> None:
        """Add all factors of another group."""
        self.members |= other.members
        self.functions += other.functions
        self.constraints += other.constraints
        self.messages += other.messages


def parts_of(bucket: Bucket) -> list[FactorGroup]:
    """The factors of a bucket, one a group."""
    parts = [FactorGroup(members_of(m.scope), messages=[m]) for m in bucket.messages]
    parts += [FactorGroup(f.members, functions=[f]) for f in bucket.functions]
    return parts + [FactorGroup(c.members, constraints=[c]) for c in bucket.constraints]


def by_scope(parts: Sequence[FactorGroup], z: int) -> list[FactorGroup]:
    """Mini-buckets of at most ``z`` variables, by scope size (see the module)."""
    made: list[FactorGroup] = []
    for part in sorted(parts, key=lambda p: -p.members.bit_count()):
        home = next((m for m in made if part.members & ~m.members == 0), None)
        if home is None:
            home = next((m for m in made if (m.members | part.members).bit_count() <= z), None)
        if home is None:
            home = FactorGroup(part.members)
            made.append(home)
        home.take(part)
    return made


def by_content(parts: Sequence[FactorGroup], z: int, prepared: Prepared, variable: int, seed: int) -> list[FactorGroup]:
    """Mini-buckets of at most ``z`` variables, merged by largest loss of separate elimination (see the module)."""
    made = by_scope(parts, 0)  # each factor joins one that covers it
    if not any((a.members | b.members).bit_count() <= z for i, a in enumerate(made) for b in made[:i]):
        return made
    costs = np.stack(_sampled_costs(made, prepared, variable, seed))
    count = len(made)
    gains = np.full((count, count), -np.inf)
    sizes = np.zeros((count, count), dtype=np.int64)

    def rate(i: int) -> None:
        """Gain of a merge of a mini-bucket with each of the others; -inf if not allowed."""
        gains[i] = gains[:, i] = -np.inf
        for j, other in enumerate(made):
            sizes[i, j] = sizes[j, i] = (made[i].members | other.members).bit_count()
        allowed = [j for j in range(count) if j != i and made[j].members and sizes[i, j] <= z]
        if allowed:
            together = (costs[allowed] + costs[i]).min(axis=2)
            found = (together - costs[allowed].min(axis=2) - costs[i].min(axis=1)).mean(axis=1)
            gains[i, allowed] = gains[allowed, i] = np.where(found < LEAST_GAIN, 0.0, found)

    for i in range(count):
        rate(i)
    while (best := gains.max()) > -np.inf:
        _, i, j = min((sizes[i, j], i, j) for i, j in np.argwhere(gains == best).tolist())
        made[i].take(made[j])
        costs[i] += costs[j]
        made[j] = FactorGroup(0)
        gains[j] = gains[:, j] = -np.inf
        rate(i)
    return [m for m in made if m.members]


def _sampled_costs(
    parts: Sequence[FactorGroup], prepared: Prepared, variable: int, seed: int
) -> list[NDArray[np.float64]]:
    """Costs of each part, (samples, domain size), in units of the total range; infeasible cells cost 2."""
    generator = np.random.default_rng([seed, variable])
    everything = 0
    for part in parts:
        everything |= part.members
    sizes = prepared.problem.sizes
    columns = {v: generator.integers(0, sizes[v], size=SAMPLES) for v in elements_of(everything)}
    values: list[NDArray[np.float64]] = []
    feasible: list[NDArray[np.bool_]] = []
    for part in parts:
        rows = BucketRows(prepared, Bucket(variable, (), part.functions, part.constraints, part.messages))
        evaluated = rows.evaluate(columns, SAMPLES)
        values.append(evaluated.values.astype(np.float64))
        feasible.append(evaluated.feasible)
    known = [v[f] for v, f in zip(values, feasible, strict=True) if f.any()]
    low = min((float(k.min()) for k in known), default=0.0)
    span = max((float(k.max()) for k in known), default=0.0) - low or 1.0
    return [np.where(f, (v - low) / span, 2.0) for v, f in zip(values, feasible, strict=True)]


@dataclass(frozen=True)
class MiniBucketShape:
    """Messages of mini-bucket elimination, predicted from scopes alone.

    separators : of every message, as a bit set; without empty ones. variables : eliminated one of each.
    split : buckets with more than one mini-bucket.
    """

    separators: list[int]
    variables: list[int]
    split: int


def shape_of(scopes: Sequence[tuple[int, ...]], order: Sequence[int], z: int) -> MiniBucketShape:
    """Simulate partition by scope for factors with the given scopes."""
    position = {v: place for place, v in enumerate(order)}
    waiting: list[list[FactorGroup]] = [[] for _ in order]

    def send(members: int) -> None:
        waiting[min(position[v] for v in elements_of(members))].append(FactorGroup(members))

    for scope in looked(scopes):
        if scope:
            send(members_of(scope))
    separators: list[int] = []
    variables: list[int] = []
    split = 0
    for place, v in enumerate(looked(order)):
        made = by_scope(waiting[place], z)
        split += len(made) > 1
        for part in made:
            separator = part.members & ~(1 << v)
            if separator:
                variables.append(v)
                separators.append(separator)
                send(separator)
        waiting[place] = []
    return MiniBucketShape(separators, variables, split)


def largest_fitting(
    scopes: Sequence[tuple[int, ...]],
    order: Sequence[int],
    width: int,
    budget: int,
    bytes_of: Callable[[MiniBucketShape], float],
) -> int:
    """The largest z, at least the size of the largest scope, with predicted bytes within a budget.

    width : induced width of the order; beyond ``width + 1`` no bucket is split. bytes_of : predicts a shape's bytes.
    """
    best = max([1, *map(len, scopes)])
    for z in range(best, max(best, width + 1) + 1):
        shape = shape_of(scopes, order, z)
        if bytes_of(shape) > budget:
            break
        best = z
        if not shape.split:
            break
    return best


ULP = 2.0**-52
"""Upper bound on the rounding error of a float64 sum, relative to the sum of its terms' magnitudes."""


@dataclass
class MiniBucketPass:
    """Outcome of the forward pass with mini-buckets.

    buckets : one a variable, in elimination order, with all their factors (up to the first one proven infeasible).
    bound : lower bound on the optimum, rounded down by the error bound of floating-point sums; None if infeasible.
    value : the bound before rounding. split : number of divided buckets. mini_buckets : total number of mini-buckets.
    width : variables of the largest message. largest_rows, total_rows : rows of the largest message, and of all.
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

    prepared : the problem, without carried consumption in its rows.
    z : maximum number of variables of a mini-bucket, including the eliminated one.
    store : of the messages. engine : computes the mini-buckets.
    partition : ``scope`` or ``content``. seed : of the samples of the latter.
    tables : form of the messages (:mod:`oocbe.elimination.buckets.message`); with ``content`` all are incomplete.
    """

    def __init__(
        self,
        prepared: Prepared,
        z: int,
        store: MessageStore,
        engine: BucketEngine,
        partition: str = "scope",
        seed: int = 0,
        tables: str = INCOMPLETE,
    ) -> None:
        self._prepared, self._z, self._store = prepared, z, store
        self._by_content = partition == "content"
        self._seed = seed
        form = INCOMPLETE if self._by_content else tables
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
        engine's deadline came.
        """
        prepared = self._prepared
        buckets = fill_buckets(prepared, self._store)
        total: int | float = prepared.constant
        done = MiniBucketPass([*buckets], None)
        if prepared.is_infeasible:
            return done
        for number, bucket in enumerate(done.buckets):
            minis = [Bucket(bucket.variable, (), p.functions, p.constraints, p.messages) for p in self._divide(bucket)]
            done.mini_buckets += len(minis)
            done.split += len(minis) > 1
            tables = self._messages(minis)
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
        parts = parts_of(bucket)
        if self._by_content:
            return by_content(parts, self._z, self._prepared, bucket.variable, self._seed)
        return by_scope(parts, self._z)

    def _messages(self, minis: list[Bucket]) -> Sequence[Table | CompleteTable]:
        """Messages of the mini-buckets of one bucket, whose separators are set."""
        if not self._is_exact:
            magnitude = sum(self._magnitude(mini) for mini in minis)
            self._error += sum(len(m.functions) + len(m.messages) + 1 for m in minis) * ULP * magnitude
        return [self._forward.cheapest_message(mini, self._nothing) for mini in minis]

    def _magnitude(self, mini: Bucket) -> float:
        """Bound on the absolute value of every sum of floats in a mini-bucket; 0 for integers, which need none."""
        if self._is_exact:
            return 0
        entries = self._prepared.functions.entries
        bound: float = 0
        for f in mini.functions:
            bound += _magnitude_of(entries[f.offset : f.offset + (1 << f.bits)])
        for m in mini.messages:
            known = self._bounds.get(id(m))
            bound += _magnitude_of(to_host(m.table()).values) if known is None else known
        return bound


def _magnitude_of(values: NDArray[Any]) -> float:
    """Largest absolute value."""
    return float(np.abs(values).max(initial=0))
