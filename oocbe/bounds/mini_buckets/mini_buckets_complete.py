"""Mini-buckets with cost shifting in complete tables: several divisions, the best one shifted to convergence.

Costs are shifted over the join graph of mini-buckets, in forward and backward passes. A divided bucket eliminates a
copy of its variable from each mini-bucket; the bound improves as the copies agree. Each mini-bucket is a *cluster* with
a complete table of costs over its variables. Costs move between clusters as functions of their common variables: one is
lowered by what the other is raised, so the sum is unchanged for every assignment. All costs stay at least 0. The cost
of the cheapest cell of a cluster is a cost of every assignment and is added to the bound.

* *Forward*, along the elimination order: the clusters of a bucket first equalise their min-marginals over common
  variables (max-marginal matching; Ihler, Flerova, Dechter and Otten 2012, *Join-graph based cost-shifting schemes*).
  Then each sends its min-marginal over its separator to the bucket of its next variable, as in mini-bucket elimination.
  After this pass the bound is that of mini-buckets with cost shifting. In the first forward pass each bucket is divided
  after it has received its messages (:class:`Partition`).
* *Backward*: each cluster returns an equal part of its min-marginal to each cluster that sent it a message, and the
  clusters of a bucket are matched again. So later gains reach divided clusters.

No step lowers the sum of the clusters' minima, so the bound never falls (block coordinate ascent; Kolmogorov 2015 has
the order of the steps). Rounding does not lower it either: of a marginal m, floor(m / parts) is given and
m - floor(m / parts) is kept, and both are monotone in m. A cell that reaches the *cap* together with the proven bound
belongs to no assignment that counts and stays there, so that hard constraints are propagated.

When a bucket is divided, pairs of tables with the largest loss are joined first. The choice of functions for each
mini-bucket influences the bound far more than the size limit: a larger z with badly chosen functions gives a worse
bound than a smaller one. The loss of separate elimination from two tables is, for an assignment of all their other
variables,

    min_x (f + g) - min_x f - min_x g,

which is never negative (Rollon and Dechter 2010, *New mini-bucket partitioning heuristics*). It matters where both
tables are cheap: the optimum lies there, and a bound prunes there. So it is sampled: assignments of f's variables are
drawn with probabilities that fall exponentially with their cost, then those of g's other variables likewise. If no
loss is sampled, the tables with the most common variables are joined, as the result is smallest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import CompleteCosts, add, least, zeros
from oocbe.bounds.mini_buckets.mini_buckets import MiniBucketPass, shape_of
from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.elimination.engine.factors import elements_of, members_of
from oocbe.errors import RequestedEndError, ResourceError, TimeLimitError
from oocbe.model.results.numerals import format_bytes
from oocbe.runtime.deadline import Deadline, check_deadline


class JoinGraph:
    """The clusters of one problem, one order and one z, after the first forward pass.

    costs : the problem's functions. order : of elimination. z : maximum number of variables of a cluster.
    memory : limit of all tables, in bytes.
    temperature : of the samples that guide the division of buckets, in units of the average maximum cost of a function
        with costs; None: buckets are divided by scope size. seed : of the samples.
    bucket_done : called in the first pass with each bucket's number (from 1), and cells and bytes of its messages.
    sizes : of the domains. clusters : in elimination order. buckets : indices of each bucket's clusters.
    proven : lower bound of all assignments, in fixed point; at least ``costs.cap`` if none counts.
    Raises ResourceError: the tables do not fit; TimeLimitError: the deadline of the enclosing block came.
    """

    def __init__(
        self,
        costs: ScaledCosts,
        order: Sequence[int],
        z: int,
        memory: int,
        seed: int = 0,
        temperature: float | None = None,
        bucket_done: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._costs, self._order, self._z = costs, order, z
        self.sizes = costs.tables.problem.sizes
        self._position = {v: place for place, v in enumerate(order)}
        self._memory = memory
        self.proven = 0 if costs.cap else 1
        self.clusters: list[Cluster] = []
        self.buckets: list[list[int]] = []
        if not self.is_closed:
            self._build(seed, temperature, bucket_done)

    @property
    def is_closed(self) -> bool:
        """Whether no assignment counts."""
        return self.proven >= self._costs.cap

    @property
    def is_divided(self) -> bool:
        """Whether some bucket has more than one cluster."""
        return any(len(bucket) > 1 for bucket in self.buckets)

    @property
    def bound(self) -> int | float:
        """Proven lower bound on the value of assignments that count; infinite if there are none."""
        return self._costs.unscale(self.proven)

    def forth(self) -> None:
        """Forward pass; errors as for the class."""
        for bucket in self.buckets:
            self._match(bucket)
            for number in bucket:
                cluster = self.clusters[number]
                message = self._sent(cluster)
                if message is not None and cluster.parent is not None:
                    self._add(self.clusters[cluster.parent].table, message)

    def back(self) -> None:
        """Backward pass; errors as for the class."""
        for bucket in reversed(self.buckets):
            self._match(bucket)
            for number in bucket:
                own = self.clusters[number]
                for parts, child in enumerate(own.children, start=2):
                    if self.is_closed:
                        return
                    receiver = self.clusters[child]
                    found = self._least(own, receiver.separator).values
                    given = np.where(found >= self._costs.cap, found, found // (len(own.children) + 3 - parts))
                    self._add(own.table, CompleteCosts(receiver.separator, -given))
                    self._add(receiver.table, CompleteCosts(receiver.separator, given))

    def costs(self, variable: int, assignment: dict[int, int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Costs of a variable's bucket, one for each of its values, given all later variables; which are feasible."""
        own, size = self.buckets[self._position[variable]], self.sizes[variable]
        cells: dict[int, int | NDArray[np.int64]] = {**assignment, variable: np.arange(size)}
        costs = [self.clusters[number].table.at(cells, self.sizes) for number in own]
        of_tables = np.array(costs, dtype=np.int64).reshape(len(own), size)
        feasible = np.asarray((of_tables < self._limit).all(axis=0))
        return of_tables.sum(axis=0), feasible

    def _build(self, seed: int, temperature: float | None, bucket_done: Callable[[int, int, int], None] | None) -> None:
        """Divide the buckets and make the first forward pass."""
        costs = self._costs
        waiting: list[list[Cluster]] = [[] for _ in self._order]
        forbidden: list[CompleteCosts] = []
        charged = 0
        for number, part in enumerate(costs.tables.parts):
            check_deadline()
            table = costs.table(part, self._ordered(members_of(part.scope)))
            waiting[self._position[table.scope[0]]].append(
                Cluster(table.scope[0], members_of(part.scope), table, [number])
            )
            never = table.values >= costs.cap
            charged += bool((table.values[~never] > 0).any())
            if never.any():
                forbidden.append(CompleteCosts(table.scope, np.where(never, table.values, 0)))
        unit = max(1.0, (temperature or 1.0) * costs.cap / max(1, charged))
        partition = Partition(self.sizes, self._position, self._z, costs.cap, unit, seed, temperature is not None)
        itemsize, used = costs.dtype.itemsize, 0
        for place, received in enumerate(waiting):
            check_deadline()
            self._check_room(received, used)
            made = partition.divide(self._order[place], received, max(0, self._memory - used) // itemsize)
            first = len(self.clusters)
            self.buckets.append(list(range(first, first + len(made))))
            self.clusters += made
            for number, cluster in enumerate(made, start=first):
                used += cluster.table.values.nbytes
                for child in cluster.children:
                    self.clusters[child].parent = number
                self._forbid(cluster, forbidden)
            self._match(self.buckets[-1])
            cells = 0
            for number, cluster in enumerate(made, start=first):
                message = self._sent(cluster)
                if message is None or not message.scope:
                    continue
                cells += len(message.values)
                target = waiting[self._position[message.scope[0]]]
                target.append(Cluster(message.scope[0], members_of(message.scope), message, [], [number]))
            waiting[place] = []
            if bucket_done is not None:
                bucket_done(place + 1, cells, cells * itemsize)

    def _check_room(self, received: Sequence[Cluster], used: int) -> None:
        needed = sum(c.table.values.nbytes for c in received)
        if used + needed > self._memory:
            raise ResourceError(
                f"{self._costs.tables.problem.name}: the tables of mini-buckets with z = {self._z} do not fit memory; "
                f"used {format_bytes(used)}, requested {format_bytes(needed)}, limit {format_bytes(self._memory)}. "
                "Lower --z, or raise --memory"
            )

    def _forbid(self, cluster: Cluster, forbidden: Sequence[CompleteCosts]) -> None:
        """Apply forbidden tuples of functions to a cluster that contains all their variables."""
        for table in forbidden:
            if members_of(table.scope) & ~cluster.members == 0:
                self._add(cluster.table, table)

    def _sent(self, cluster: Cluster) -> CompleteCosts | None:
        """Subtract a cluster's min-marginal over its separator from its table, and return it."""
        if self.is_closed:
            return None
        message = self._least(cluster, cluster.separator)
        self._add(cluster.table, CompleteCosts(message.scope, -message.values))
        if not cluster.separator:
            self.proven += int(message.values[0])  # after the subtraction, as it lowers the limit
        return message

    def _match(self, bucket: Sequence[int]) -> None:
        """Match the clusters of a bucket over the variables of all of them, then over those of neighbours."""
        if len(bucket) < 2:
            return
        self._level(bucket)
        if len(bucket) > 2:
            for pair in pairwise(bucket):
                self._level(pair)

    def _level(self, bucket: Sequence[int]) -> None:
        """Equalise the min-marginals of some clusters over their common variables; their sum is unchanged."""
        if self.is_closed:
            return
        check_deadline()
        clusters = [self.clusters[number] for number in bucket]
        common = reduce(and_, (c.members for c in clusters))
        shared = tuple(v for v in clusters[0].table.scope if common >> v & 1)
        marginals = [least(c.table, shared, self.sizes, self._costs.cap).values for c in clusters]
        never = np.maximum.reduce(marginals) >= self._limit
        total = np.sum(marginals, axis=0, dtype=np.int64)
        for place, (cluster, marginal) in enumerate(zip(clusters, marginals, strict=True)):
            change = np.where(never, self._costs.cap, (total + place) // len(clusters) - marginal)
            self._add(cluster.table, CompleteCosts(shared, change.astype(marginal.dtype)))

    @property
    def _limit(self) -> int:
        """A cell with at least this cost belongs to no assignment that counts."""
        return max(1, self._costs.cap - self.proven)

    def _least(self, cluster: Cluster, scope: Sequence[int]) -> CompleteCosts:
        check_deadline()
        return least(cluster.table, scope, self.sizes, self._costs.cap)

    def _add(self, target: CompleteCosts, part: CompleteCosts) -> None:
        check_deadline()
        add(target, part, self.sizes, self._costs.cap, self._limit)

    def _ordered(self, members: int) -> tuple[int, ...]:
        return tuple(sorted(elements_of(members), key=self._position.__getitem__))


SAMPLES = 256
"""Sampled assignments for a pair of tables: enough to rank losses, in some tenths of a millisecond."""

CANDIDATES = 4
"""Uniform draws for each sample: a few favour cheap assignments without a pass over the table."""

NEVER = 20.0
"""Cost of forbidden cells, in temperatures: large, but comparable."""

RELEVANCE = 4.0
"""Scale of loss weights, in temperatures: a loss is weighted by the exponential of minus cost / scale."""

COMMON = 1e-3
"""Gain of a common variable, in temperatures: it breaks ties between losses."""


@dataclass
class Cluster:
    """A mini-bucket, a node of the join graph.

    variable : the eliminated one. members : its variables as a bit set. table : its costs.
    parts : numbers of its functions. children : indices of the clusters whose messages it receives.
    parent : index of the receiver of its message; None if the message has no variables.
    """

    variable: int
    members: int
    table: CompleteCosts
    parts: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    parent: int | None = None

    @property
    def separator(self) -> tuple[int, ...]:
        """Variables of its message."""
        return tuple(v for v in self.table.scope if v != self.variable)


@dataclass(frozen=True)
class Partition:
    """Divides buckets.

    sizes : of domains. position : of each variable in the order. z : maximum number of variables of a mini-bucket.
    cap : of costs. temperature : unit of costs. seed : of the samples.
    by_content : whether losses are sampled; otherwise the largest tables are joined first, with the first that fits.
    """

    sizes: Sequence[int]
    position: Mapping[int, int]
    z: int
    cap: int
    temperature: float
    seed: int
    by_content: bool

    def divide(self, variable: int, received: Sequence[Cluster], room: int) -> list[Cluster]:
        """Divide the bucket of a variable, which is in the scope of every received table, into mini-buckets.

        received : functions and messages, one a cluster; their tables are not changed.
        room : maximum number of cells of a new table.
        """
        made: list[Cluster] = []
        for one in sorted(received, key=lambda c: -c.members.bit_count()):
            home = next((m for m in made if one.members & ~m.members == 0), None)
            if home is None:
                made.append(self.joined(variable, [one]))
            else:
                add(home.table, one.table, self.sizes, self.cap)
                home.parts += one.parts
                home.children += one.children
        gains: dict[tuple[int, int], float] = {}  # by members, which no two clusters share
        while (pair := self._best_pair(variable, made, gains, room)) is not None:
            made = [*(m for m in made if m is not pair[0] and m is not pair[1]), self.joined(variable, pair)]
        return made

    def joined(self, variable: int, clusters: Sequence[Cluster]) -> Cluster:
        """The union of some clusters, with a new table."""
        members = 0
        for c in clusters:
            members |= c.members
        scope = tuple(sorted(elements_of(members), key=self.position.__getitem__))
        table = zeros(scope, self.sizes, clusters[0].table.values.dtype)
        for c in clusters:
            add(table, c.table, self.sizes, self.cap)
        parts = [part for c in clusters for part in c.parts]
        return Cluster(variable, members, table, parts, [child for c in clusters for child in c.children])

    def _best_pair(
        self, variable: int, made: Sequence[Cluster], gains: dict[tuple[int, int], float], room: int
    ) -> tuple[Cluster, Cluster] | None:
        """The best pair to join; None if no pair is allowed."""
        best: tuple[Any, tuple[Cluster, Cluster]] | None = None
        for i, one in enumerate(made):
            for other in made[:i]:
                union = one.members | other.members
                if union.bit_count() > self.z or self._cells(union) > room:
                    continue
                if self.by_content:
                    key = (one.members, other.members)
                    if key not in gains:
                        common = (one.members & other.members).bit_count()
                        gains[key] = self._loss(variable, one.table, other.table) + COMMON * common
                    rank: Any = (gains[key], -union.bit_count())
                else:
                    rank = sorted((one.members.bit_count(), other.members.bit_count()), reverse=True)
                if best is None or rank > best[0]:
                    best = (rank, (other, one))
        return None if best is None else best[1]

    def _cells(self, members: int) -> int:
        return math.prod(self.sizes[v] for v in elements_of(members))

    def _loss(self, variable: int, one: CompleteCosts, other: CompleteCosts) -> float:
        """Sampled loss of separate elimination of a variable from two tables, in temperatures."""
        generator = np.random.default_rng([self.seed, variable, len(one.scope), len(other.scope)])
        sizes, count = self.sizes, CANDIDATES * SAMPLES
        columns = {v: generator.integers(0, sizes[v], count) for v in one.scope if v != variable}
        costs = self._costs(variable, one, columns, count)
        rank = costs.min(axis=0) - generator.gumbel(size=count)
        kept = np.argpartition(rank, SAMPLES - 1)[:SAMPLES]
        first = costs[:, kept]
        # Of each, some assignments of the other table's variables that agree with it.
        shape = (CANDIDATES, SAMPLES)
        others = {v: np.tile(columns[v][kept], CANDIDATES) for v in other.scope if v in columns}
        fresh = (v for v in other.scope if v != variable and v not in columns)
        others |= {v: generator.integers(0, sizes[v], count) for v in fresh}
        second = self._costs(variable, other, others, count).reshape(-1, *shape)
        chosen = (second.min(axis=0) - generator.gumbel(size=shape)).argmin(axis=0)
        second = second[:, chosen, np.arange(SAMPLES)]
        cheapest = first.min(axis=0), second.min(axis=0)
        separate = cheapest[0] + cheapest[1]
        lost = np.minimum((first + second).min(axis=0) - separate, NEVER)
        weights = np.exp((separate.min() - separate) / RELEVANCE)
        return float((weights * lost).sum() / weights.sum())

    def _costs(
        self, variable: int, table: CompleteCosts, columns: Mapping[int, NDArray[np.int64]], count: int
    ) -> NDArray[np.float64]:
        """Costs (values of the variable, assignments of the others), in temperatures."""
        places, step, own = np.zeros(count, dtype=np.int64), 1, 0
        for v in reversed(table.scope):
            if v == variable:
                own = step
            else:
                places += columns[v] * step
            step *= self.sizes[v]
        cells = np.arange(self.sizes[variable])[:, None] * own + places
        found: NDArray[np.float64] = np.minimum(table.values[cells] / self.temperature, NEVER)
        return found


TEMPERATURES = (10.0, 3.0)
"""Temperatures for sampled losses, tried in turn (:class:`JoinGraph`): the best
division is mostly luck, and all first passes together take less time than convergence."""

LITTLE = 0.05
"""Minimum gain of a pair of passes, as a share of the gain of all pairs so far; a smaller gain ends them."""

EXACT_CELLS = 1 << 22
"""Maximum total cells for 64-bit costs; these make bounds exact to nine digits."""

FRACTION_BITS = 4
"""Minimum fraction bits in 32-bit costs of integer problems: equal parts of costs are fractions."""

MEMORY_PART = 2
"""Divisor of the memory for one join graph: the best one so far is kept beside the current one."""


STEP, PATIENCE = 2, 2
"""Increment of z, and number of increments in a row without a gain before the search ends."""

LITTLE_OF_ALL = 0.02
"""Minimum gain of a z, as a share of the gain of all z over the first."""


@dataclass(frozen=True)
class CompletePass:
    """A join graph after cost shifting.

    graph : the join graph. dtype : of its costs. passes : pairs of passes. tried : number of divisions.
    is_cut_short : whether the time limit or a signal ended it; the bound proven by then is valid.
    """

    graph: JoinGraph
    dtype: np.dtype[Any]
    passes: int
    tried: int
    is_cut_short: bool

    @property
    def summary(self) -> str:
        """Summary for users."""
        return (
            f"complete tables of {self.dtype.name}; costs were shifted in {self.passes} passes forth and back over the "
            f"best of {self.tried} divisions{', until the time was up' if self.is_cut_short else ''}"
        )

    @property
    def done(self) -> MiniBucketPass:
        """Result of the forward pass of mini-buckets, without its buckets."""
        graph, bound = self.graph, self.graph.bound
        own = None if bound == math.inf else bound
        messages = [len(c.table.values) // graph.sizes[c.variable] for c in graph.clusters]
        return MiniBucketPass(
            [],
            own,
            own,
            split=sum(len(bucket) > 1 for bucket in graph.buckets),
            mini_buckets=len(graph.clusters),
            width=max((len(c.separator) for c in graph.clusters), default=0),
            largest_rows=max(messages, default=0),
            total_rows=sum(messages),
        )


def fits(tables: ScopeTables, order: Sequence[int], z: int, memory: int) -> bool:
    """Whether complete tables fit with division by scope size, and some bucket is divided."""
    cells, is_divided = _cells(tables, order, z)
    return is_divided and cells * np.dtype(np.int32).itemsize <= memory // MEMORY_PART


def _cells(tables: ScopeTables, order: Sequence[int], z: int) -> tuple[float, bool]:
    """Total cells of mini-buckets with division by scope size, and whether some bucket is divided."""
    shape = shape_of([part.scope for part in tables.parts], order, z)
    sizes = tables.problem.sizes
    cells = sum(
        sizes[v] * math.prod(float(sizes[w]) for w in elements_of(separator))
        for v, separator in zip(shape.variables, shape.separators, strict=True)
    )
    return cells, shape.split > 0


def shifted(
    tables: ScopeTables,
    order: Sequence[int],
    z: int,
    memory: int,
    seed: int,
    by_content: bool,
    deadline: Deadline,
    bucket_done: Callable[[int, int, int], None] | None = None,
) -> CompletePass:
    """Mini-buckets in complete tables, with costs shifted to convergence.

    tables, order, z, seed : of the problem. memory : limit of all tables, in bytes. by_content : method of division.
    bucket_done : as for :class:`JoinGraph`, for the first division.
    Raises ResourceError: the tables do not fit; TimeLimitError: the deadline came before the first pass was done.
    """
    cells, _ = _cells(tables, order, z)
    threshold = tables.problem.upper_bound
    costs = ScaledCosts.of(tables, threshold, np.dtype(np.int32))
    fits_wide = cells * np.dtype(np.int64).itemsize <= memory // MEMORY_PART
    if cells <= EXACT_CELLS or (fits_wide and tables.is_integral and costs.bits < FRACTION_BITS):
        costs = ScaledCosts.of(tables, threshold, np.dtype(np.int64))
    best: JoinGraph | None = None
    seconds, tried = 0.0, 0
    for temperature in TEMPERATURES if by_content else (None,):
        if best is not None and (best.is_closed or not best.is_divided or deadline.remaining < 2 * seconds):
            break
        begin = time.perf_counter()
        try:
            graph = JoinGraph(costs, order, z, memory // MEMORY_PART, seed, temperature, bucket_done)
        except (ResourceError, TimeLimitError):
            if best is None:
                raise
            break
        seconds, bucket_done, tried = time.perf_counter() - begin, None, tried + 1
        if best is None or graph.proven > best.proven:
            best = graph
    assert best is not None
    passes, is_cut_short = _shift(best, deadline)
    return CompletePass(best, costs.dtype, passes, tried, is_cut_short)


def best_of_rising(
    run: Callable[[int], tuple[float, float]], is_possible: Callable[[int], bool], least: int, deadline: Deadline
) -> int:
    """Run increasing z while the bound improves and memory and time suffice; returns the z with the best bound.

    run : maps z to its bound (larger is better) and run time in seconds. is_possible : whether z may be run.
    least : the first z; it is possible.
    Raises ResourceError, TimeLimitError: from ``run`` for the first z; for later ones they end the search.
    """
    bounds: dict[int, float] = {}
    z, idle, seconds = least, 0, 0.0
    while not bounds or (is_possible(z) and idle < PATIENCE and deadline.remaining > 2 ** (STEP + 1) * seconds):
        before = max(bounds.values(), default=-math.inf)
        try:
            bounds[z], seconds = run(z)
        except (ResourceError, TimeLimitError) as error:
            if not bounds or isinstance(error, RequestedEndError):
                raise
            break
        little = LITTLE_OF_ALL * (max(bounds.values()) - bounds[least])
        idle = 0 if bounds[z] > before + little or z == least else idle + 1
        z += STEP
    return max(bounds, key=lambda z: (bounds[z], -z))


def _shift(graph: JoinGraph, deadline: Deadline) -> tuple[int, bool]:
    """Pass backward and forward until gains are small, or the next passes may exceed the time limit.

    Returns the number of pairs of passes, and whether time ran out in one. ``graph.proven`` is valid at any moment of a
    pass: it is raised only after the costs have been subtracted from the cells.
    """
    passes, first, seconds = 0, graph.proven, 0.0
    while graph.is_divided and not graph.is_closed and deadline.remaining > 2 * seconds:
        begin, before = time.perf_counter(), graph.proven
        try:
            graph.back()
            graph.forth()
        except TimeLimitError:
            return passes, True
        passes += 1
        seconds = time.perf_counter() - begin
        if graph.proven - before <= LITTLE * (graph.proven - first):
            break
    return passes, False
