"""How a bucket of complete tables is divided into mini-buckets: those are joined first whose division would lose most.

Which functions meet decides how good a bound of mini-buckets is, far more than how many variables they may have: a
larger z that joins the wrong ones has a worse bound than a smaller one. What is lost where two tables eliminate their
variable separately is, for an assignment of all their other variables,

    min_x (f + g) - min_x f - min_x g,

which is never negative (Rollon and Dechter 2010, *New mini-bucket partitioning heuristics*). It counts where both are
cheap, as the optimum lies there and as a bound prunes there. So it is sampled: assignments of f's variables are drawn
with probabilities that fall exponentially with their cost, and those of g that agree with them likewise. Where nothing
is lost, tables with most variables in common are joined, since that costs least room.
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
"""Assignments at which two tables are compared: enough to rank losses, and some tenths of a millisecond."""

CANDIDATES = 4
"""Assignments drawn uniformly for each that is kept: a few give cheap ones a lead without a pass over the table."""

NEVER = 20.0
"""What is forbidden counts as that many temperatures: much, but comparable."""

RELEVANCE = 4.0
"""Losses are weighed by the exponential of minus the cost over so many temperatures."""

COMMON = 1e-3
"""What a common variable counts beside a loss, in temperatures: it breaks ties."""


@dataclass
class Cluster:
    """A mini-bucket, a node of the join graph.

    Attributes
    ----------
    variable : that is eliminated. members : its variables as a bit set. table : its costs.
    parts : numbers of the functions given to it. children : places of the clusters whose messages it receives.
    parent : place of the one that gets its own; None where its message has no variables.
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
    sizes : of domains. position : of each variable in the order. z : most variables of a mini-bucket.
    cap : of costs. temperature : a cost that counts as one unit. seed : of the samples.
    by_content : whether losses are sampled; else the largest tables are joined first, each with the first that it fits.
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
        """Mini-buckets of the bucket of a variable, which all that it received has.

        Parameters
        ----------
        received : its functions and messages, one a cluster; their tables are not changed.
        room : cells of a new table at most.
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
        """One cluster with all that some have, in a table of its own."""
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
        """The two that are best joined; None where no two may be."""
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
        """What is lost where two tables eliminate a variable separately, in temperatures."""
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
