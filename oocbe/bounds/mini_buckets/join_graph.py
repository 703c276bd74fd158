"""Cost shifting over the join graph of mini-buckets, in complete tables, in forward and backward passes.

A divided bucket eliminates a copy of its variable from each mini-bucket; the bound improves as the copies agree. Each
mini-bucket is a *cluster* with a complete table of costs over its variables. Costs move between clusters as functions
of their common variables: one is lowered by what the other is raised, so the sum is unchanged for every assignment.
All costs stay at least 0. The cost of the cheapest cell of a cluster is a cost of every assignment and is added to the
bound.

* *Forward*, along the elimination order: the clusters of a bucket first equalise their min-marginals over common
  variables (max-marginal matching; Ihler, Flerova, Dechter and Otten 2012, *Join-graph based cost-shifting schemes*).
  Then each sends its min-marginal over its separator to the bucket of its next variable, as in mini-bucket elimination.
  After this pass the bound is that of mini-buckets with cost shifting. In the first forward pass each bucket is divided
  after it has received its messages (:mod:`oocbe.bounds.mini_buckets.join_graph_partition`).
* *Backward*: each cluster returns an equal part of its min-marginal to each cluster that sent it a message, and the
  clusters of a bucket are matched again. So later gains reach divided clusters.

No step lowers the sum of the clusters' minima, so the bound never falls (block coordinate ascent; Kolmogorov 2015 has
the order of the steps). Rounding does not lower it either: of a marginal m, floor(m / parts) is given and
m - floor(m / parts) is kept, and both are monotone in m. A cell that reaches the *cap* together with the proven bound
belongs to no assignment that counts and stays there, so that hard constraints are propagated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_

import numpy as np

from oocbe.algebra.complete_tables.cost_tables import CostTable, add, least
from oocbe.bounds.mini_buckets.join_graph_partition import Cluster, Partition
from oocbe.bounds.scaled_costs import ScaledCosts
from oocbe.elimination.buckets.buckets import elements_of, members_of
from oocbe.errors import ResourceError
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.table import format_bytes


class JoinGraph:
    """The clusters of one problem, one order and one z, after the first forward pass.

    Parameters
    ----------
    costs : the problem's functions. order : of elimination. z : maximum number of variables of a cluster.
    memory : limit of all tables, in bytes.
    temperature : of the samples that guide the division of buckets, in units of the average maximum cost of a function
        with costs; None: buckets are divided by scope size. seed : of the samples.
    bucket_done : called in the first pass with each bucket's number (from 1), and cells and bytes of its messages.

    Attributes
    ----------
    sizes : of the domains. clusters : in elimination order. buckets : indices of each bucket's clusters.
    proven : lower bound of all assignments, in fixed point; at least ``costs.cap`` if none counts.

    Raises
    ------
    ResourceError : the tables do not fit. TimeLimitError : the deadline of the enclosing block came.
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
                    self._add(own.table, CostTable(receiver.separator, -given))
                    self._add(receiver.table, CostTable(receiver.separator, given))

    def cost(self, variable: int, assignment: dict[int, int]) -> int | None:
        """Cost of a variable's bucket, given values of it and of all later variables; None if they are forbidden."""
        own = self.buckets[self._position[variable]]
        costs = [self.clusters[number].table.at(assignment, self.sizes) for number in own]
        return None if max(costs, default=0) >= self._limit else sum(costs)

    def _build(self, seed: int, temperature: float | None, bucket_done: Callable[[int, int, int], None] | None) -> None:
        """Divide the buckets and make the first forward pass."""
        costs = self._costs
        waiting: list[list[Cluster]] = [[] for _ in self._order]
        forbidden: list[CostTable] = []
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
                forbidden.append(CostTable(table.scope, np.where(never, table.values, 0)))
        unit = max(1.0, (temperature or 1.0) * costs.cap / max(1, charged))
        fixed = (self.sizes, self._position, self._z, costs.cap, unit, seed, temperature is not None)
        partition = Partition(*fixed)
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

    def _forbid(self, cluster: Cluster, forbidden: Sequence[CostTable]) -> None:
        """Apply forbidden tuples of functions to a cluster that contains all their variables."""
        for table in forbidden:
            if members_of(table.scope) & ~cluster.members == 0:
                self._add(cluster.table, table)

    def _sent(self, cluster: Cluster) -> CostTable | None:
        """Subtract a cluster's min-marginal over its separator from its table, and return it."""
        if self.is_closed:
            return None
        message = self._least(cluster, cluster.separator)
        self._add(cluster.table, CostTable(message.scope, -message.values))
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
        """Equalise the min-marginals of some clusters over their common variables."""
        if not self.is_closed:
            level([self.clusters[number] for number in bucket], self.sizes, self._costs.cap, self._limit)

    @property
    def _limit(self) -> int:
        """A cell with at least this cost belongs to no assignment that counts."""
        return max(1, self._costs.cap - self.proven)

    def _least(self, cluster: Cluster, scope: Sequence[int]) -> CostTable:
        check_deadline()
        return least(cluster.table, scope, self.sizes, self._costs.cap)

    def _add(self, target: CostTable, part: CostTable) -> None:
        check_deadline()
        add(target, part, self.sizes, self._costs.cap, self._limit)

    def _ordered(self, members: int) -> tuple[int, ...]:
        return tuple(sorted(elements_of(members), key=self._position.__getitem__))


def level(clusters: Sequence[Cluster], sizes: Sequence[int], cap: int, limit: int) -> None:
    """Equalise the min-marginals of some clusters over their common variables; their sum is unchanged.

    Parameters
    ----------
    clusters : tables are updated. sizes, cap, limit : as for :func:`oocbe.algebra.complete_tables.cost_tables.add`.

    Raises
    ------
    TimeLimitError : the deadline of the enclosing block came.
    """
    check_deadline()
    common = reduce(and_, (c.members for c in clusters))
    shared = tuple(v for v in clusters[0].table.scope if common >> v & 1)
    marginals = [least(c.table, shared, sizes, cap).values for c in clusters]
    never = np.maximum.reduce(marginals) >= limit
    total = np.sum(marginals, axis=0, dtype=np.int64)
    for place, (cluster, marginal) in enumerate(zip(clusters, marginals, strict=True)):
        change = np.where(never, cap, (total + place) // len(clusters) - marginal).astype(marginal.dtype)
        add(cluster.table, CostTable(shared, change), sizes, cap, limit)
