"""Division of a bucket of complete tables into mini-buckets: pairs with the largest loss are joined first.

The choice of functions for each mini-bucket influences the bound far more than the size limit: a larger z with badly
chosen functions gives a worse bound than a smaller one. The loss of separate elimination from two tables is, for an
assignment of all their other variables,

    min_x (f + g) - min_x f - min_x g,

which is never negative (Rollon and Dechter 2010, *New mini-bucket partitioning heuristics*). It matters where both
tables are cheap: the optimum lies there, and a bound prunes there. So it is sampled: assignments of f's variables are
drawn with probabilities that fall exponentially with their cost, then those of g's other variables likewise. If no
loss is sampled, the tables with the most common variables are joined, as the result is smallest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.cost_tables import CostTable, add, zeros
from oocbe.elimination.buckets.buckets import elements_of

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

    Attributes
    ----------
    variable : the eliminated one. members : its variables as a bit set. table : its costs.
    parts : numbers of its functions. children : indices of the clusters whose messages it receives.
    parent : index of the receiver of its message; None if the message has no variables.
    """

    variable: int
    members: int
    table: CostTable
    parts: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    parent: int | None = None

    @property
    def separator(self) -> tuple[int, ...]:
        """Variables of its message."""
        return tuple(v for v in self.table.scope if v != self.variable)


class Partition:
    """Divides buckets.

    Parameters
    ----------
    sizes : of domains. position : of each variable in the order. z : maximum number of variables of a mini-bucket.
    cap : of costs. temperature : unit of costs. seed : of the samples.
    by_content : whether losses are sampled; otherwise the largest tables are joined first, with the first that fits.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        position: Mapping[int, int],
        z: int,
        cap: int,
        temperature: float,
        seed: int,
        by_content: bool,
    ) -> None:
        self._sizes, self._position, self._z, self._cap = sizes, position, z, cap
        self._temperature, self._seed, self._by_content = temperature, seed, by_content

    def divide(self, variable: int, received: Sequence[Cluster], room: int) -> list[Cluster]:
        """Divide the bucket of a variable, which is in the scope of every received table, into mini-buckets.

        Parameters
        ----------
        received : functions and messages, one a cluster; their tables are not changed.
        room : maximum number of cells of a new table.
        """
        made: list[Cluster] = []
        for one in sorted(received, key=lambda c: -c.members.bit_count()):
            home = next((m for m in made if one.members & ~m.members == 0), None)
            if home is None:
                made.append(self.joined(variable, [one]))
            else:
                add(home.table, one.table, self._sizes, self._cap)
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
        scope = tuple(sorted(elements_of(members), key=self._position.__getitem__))
        table = zeros(scope, self._sizes, clusters[0].table.values.dtype)
        for c in clusters:
            add(table, c.table, self._sizes, self._cap)
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
                if union.bit_count() > self._z or self._cells(union) > room:
                    continue
                if self._by_content:
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
        return math.prod(self._sizes[v] for v in elements_of(members))

    def _loss(self, variable: int, one: CostTable, other: CostTable) -> float:
        """Sampled loss of separate elimination of a variable from two tables, in temperatures."""
        generator = np.random.default_rng([self._seed, variable, len(one.scope), len(other.scope)])
        sizes, count = self._sizes, CANDIDATES * SAMPLES
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
        self, variable: int, table: CostTable, columns: Mapping[int, NDArray[np.int64]], count: int
    ) -> NDArray[np.float64]:
        """Costs (values of the variable, assignments of the others), in temperatures."""
        places, step, own = np.zeros(count, dtype=np.int64), 1, 0
        for v in reversed(table.scope):
            if v == variable:
                own = step
            else:
                places += columns[v] * step
            step *= self._sizes[v]
        cells = np.arange(self._sizes[variable])[:, None] * own + places
        found: NDArray[np.float64] = np.minimum(table.values[cells] / self._temperature, NEVER)
        return found
