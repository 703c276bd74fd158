"""Join graphs of complete tables of logarithms: weighted mini-buckets, and belief propagation between them.

Buckets are divided into mini-buckets, the *clusters*, so that no cluster has more cells than a limit, except those of
larger functions. A cluster sends its message to the cluster of its separator (a tree edge). The clusters of one bucket
form a chain, whose separators are the bucket's variable. The clusters that contain a variable are then a tree, so this
is a join graph (Dechter, Kask and Mateescu 2002, *Iterative join-graph propagation*). If no bucket is divided, it is a
junction tree, and all results are exact.

* **Bounds** (Liu and Ihler 2011, *Bounding the partition function using Hölder's inequality*): a forward pass in which
  each cluster eliminates its copy of the bucket's variable by a power sum, w log sum exp(x / w). Weights of a bucket
  add up to 1. Positive weights give an upper bound; one positive and otherwise negative weights give a lower bound.
  A maximised variable has the weight 0 in all clusters, which gives an upper bound. Before a divided bucket is
  eliminated, the marginals of its variable are equalised between its clusters.
* **Estimates**: beliefs (tables of clusters and of separators) are updated along the edges, forwards and backwards,
  as in a junction tree: a separator becomes the marginal of its sender, and the receiver is multiplied by the new
  separator divided by the old one. The product of all clusters divided by that of all separators never changes. At a
  fixed point, the sum of the logarithms of the clusters' totals, less that of the separators, is the Bethe
  approximation of the partition function on this graph (Yedidia, Freeman and Weiss 2005). With small clusters this is
  loopy belief propagation. A cell of 0 stays 0: zeros are propagated, and are exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.log_tables import add_logarithms, power_sums, send_beliefs
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import format_bytes
from oocbe.runtime.deadline import check_deadline, current_flag, looked

Logs = NDArray[np.float64]
"""Logarithms of a table's cells, float64 (cells,); the last variable of the scope changes fastest."""

BLOCK_CELLS = 1 << 11
"""Cells of a block of :class:`Traversal`, at least, if the table has as many: its positions take 16 KiB."""

LEAST = -1e300
"""Logarithm in place of -inf, where that would be subtracted from itself."""

CONVERGED = 1e-4
"""Largest change of a share of a separator in a converged round."""


@dataclass(frozen=True)
class Traversal:
    """Cells of a small table by those of a large one (:mod:`oocbe.bounds.kernels.cpu.log_tables`), and their number."""

    bases: NDArray[np.int64]
    inner: NDArray[np.int64]
    cells: int


class Program(NamedTuple):
    """Edges and the traversals of their ends, as :func:`~oocbe.bounds.kernels.cpu.log_tables.send_beliefs` has them."""

    edges: NDArray[np.int64]
    walks: NDArray[np.int64]
    positions: NDArray[np.int64]


@dataclass
class LogCluster:
    """A mini-bucket.

    variable : the eliminated one. scope : in elimination order, ``variable`` first.
    parent : index of the cluster that receives its message; None: no variable is left.
    belief : its table; in the beginning the sum of its functions.
    """

    variable: int
    scope: tuple[int, ...]
    parent: int | None = None
    belief: Logs = field(default_factory=lambda: np.empty(0), repr=False)


@dataclass
class Edge:
    """A separator between two clusters, the one eliminated first at ``start``; ``table`` : its belief."""

    start: int
    end: int
    scope: tuple[int, ...]
    table: Logs = field(default_factory=lambda: np.empty(0), repr=False)


class LogJoinGraph:
    """The join graph of one problem, one order and one limit of cells.

    problem : of the log-sum-exp semiring, without linear constraints.
    order : of elimination, of all variables. most_cells : of a cluster. memory : limit of all tables, in bytes.
    maximised : variables whose maximum is taken, for :meth:`bound`. clusters, edges : see the module.
    Raises ResourceError: the tables do not fit; TimeLimitError: the deadline of the enclosing block came.
    """

    def __init__(
        self, problem: Problem, order: Sequence[int], most_cells: int, memory: int, maximised: Collection[int] = ()
    ) -> None:
        if problem.linear_constraints:
            raise UnsupportedError(f"{problem.name}: linear constraints have no table of a join graph")
        self.sizes, self.maximised = problem.sizes, frozenset(maximised)
        self.clusters: list[LogCluster] = []
        self.edges: list[Edge] = []
        self._position = {v: place for place, v in enumerate(order)}
        self._buckets: list[list[int]] = []
        self._constant = float(problem.constant)
        self._made_walk = cache(self._traversal)  # many tables have the same sizes
        homes = self._divide(scopes_of(problem), order, most_cells, memory)
        scopes = [c.scope for c in self.clusters] + [edge.scope for edge in self.edges]
        self._starts = np.cumsum([0, *(math.prod(self.sizes[v] for v in scope) for scope in scopes)])
        self._cells = np.zeros(self._starts[-1])
        tables = [self._cells[low:high] for low, high in pairwise(self._starts.tolist())]
        for own, table in zip(self.clusters, tables, strict=False):
            own.belief = table
        for edge, table in zip(self.edges, tables[len(self.clusters) :], strict=True):
            edge.table = table
            table -= math.log(len(table))
            self._constant -= math.log(len(table))
        for home, (scope, table) in zip(homes, self._tables(problem), strict=True):
            if home is None:
                self._constant += float(table[0])
            else:
                own = self.clusters[home]
                self._add(own.belief, own.scope, table, scope)

    @property
    def is_divided(self) -> bool:
        """Whether a bucket has several clusters, so that results are no longer exact."""
        return any(len(bucket) > 1 for bucket in self._buckets)

    @property
    def largest(self) -> int:
        """Cells of the largest cluster."""
        return max((len(c.belief) for c in self.clusters), default=1)

    def bound(self, is_upper: bool = True) -> float:
        """Bound of the logarithm of the sum (and maximum) from above or below, from the current beliefs.

        -inf as an upper bound: every weight is 0. Errors as for the class. A lower bound needs no maximised variables.
        """
        return self._forward(is_upper)[0]

    def best_values(self) -> tuple[float, dict[int, int]]:
        """The upper bound, and greedy values of the maximised variables, which must be last in the order."""
        bound, tables = self._forward(True, is_kept=True)
        chosen: dict[int, int] = {}
        if bound == -math.inf:
            return bound, chosen
        for bucket in reversed(self._buckets):
            v = self.clusters[bucket[0]].variable if bucket else None
            if v is None or v not in self.maximised:
                continue
            score = np.zeros(self.sizes[v])
            for c in bucket:
                scope = self.clusters[c].scope
                shape = [self.sizes[u] for u in scope]
                place: tuple[Any, ...] = (slice(None), *(chosen[u] for u in scope[1:]))
                score += tables[c].reshape(shape)[place]
            chosen[v] = int(score.argmax())
        return bound, chosen

    def propagate(self, rounds: int, damping: float = 0.0) -> float:
        """Propagate beliefs for some rounds, or until they converge; returns the largest change of the last round.

        damping : share of the old separator in a new one, by logarithms; no effect on a tree: one round is exact.
        """
        damping = float(damping) if self.is_divided else 0.0
        if any(float(c.belief.max()) == -math.inf for c in self.clusters):
            return 0.0
        change = math.inf
        for _ in range(rounds):
            change = 0.0
            for backward in (False, True):
                sent = send_beliefs(self._cells, self._starts, *self._program, backward, damping, current_flag())
                change, self._constant = max(change, float(sent[0])), self._constant + float(sent[1])
                check_deadline()
            if change < CONVERGED or not self.is_divided:
                return change
        return change

    @cached_property
    def _program(self) -> Program:
        numbers: dict[int, int] = {}
        found: list[Traversal] = []
        edges = np.empty((len(self.edges), 5), dtype=np.int64)
        for place, edge in enumerate(looked(self.edges)):
            edges[place, :3] = len(self.clusters) + place, edge.start, edge.end
            for end, column in ((edge.start, 3), (edge.end, 4)):
                walk = self._walk(self.clusters[end].scope, edge.scope)
                edges[place, column] = numbers.setdefault(id(walk), len(found))
                if edges[place, column] == len(found):
                    found.append(walk)
        parts = [part for walk in found for part in (walk.bases, walk.inner)]
        ends = np.cumsum([0, *map(len, parts)])
        walks = np.stack((ends[:-1:2], ends[1::2], ends[2::2]), axis=1)
        return Program(edges, walks, np.concatenate([np.empty(0, dtype=np.int64), *parts]))

    @property
    def estimate(self) -> float:
        """Bethe approximation of the logarithm of the sum, from the current beliefs; exact on a tree."""
        totals = [self._total(c.belief) for c in self.clusters]
        if -math.inf in totals:
            return -math.inf
        return self._constant + math.fsum(totals) - math.fsum(self._total(e.table) for e in self.edges)

    def marginals(self) -> list[Logs]:
        """Shares of each variable's values in the current beliefs, float64 (domain size,): geometric means of those of
        its bucket's clusters; uniform for a variable without a cluster."""
        found = [np.full(size, 1.0 / size) for size in self.sizes]
        for bucket in self._buckets:
            if not bucket:
                continue
            v = self.clusters[bucket[0]].variable
            shares = [self._reduced(self.clusters[c].belief, self.clusters[c].scope, (v,), 1.0) for c in bucket]
            mean = np.mean([s - max(self._total(s), LEAST) for s in shares], axis=0)
            total = self._total(mean)
            if total > -math.inf:
                found[v] = np.exp(mean - total)
        return found

    def _forward(self, is_upper: bool, is_kept: bool = False) -> tuple[float, dict[int, Logs]]:
        """The bound, and where they are to be kept, the tables of maximised clusters before their elimination."""
        waiting: dict[int, list[tuple[Logs, tuple[int, ...]]]] = {}
        kept: dict[int, Logs] = {}
        bound = self._constant
        for bucket in self._buckets:
            tables = {c: self._ready(c, waiting.pop(c, [])) for c in bucket}
            weights = self._weights(bucket, is_upper)
            if len(bucket) > 1 and is_upper:
                self._equalise(tables, weights)
            for (c, table), weight in zip(tables.items(), weights, strict=True):
                own = self.clusters[c]
                message = self._reduced(table, own.scope, own.scope[1:], weight)
                if own.parent is None:
                    bound += float(message[0])
                else:
                    waiting.setdefault(own.parent, []).append((message, own.scope[1:]))
                if is_kept and own.variable in self.maximised:
                    kept[c] = table
        return bound, kept

    def _ready(self, number: int, messages: Sequence[tuple[Logs, tuple[int, ...]]]) -> Logs:
        """A cluster's share of the product, with its messages: its belief by those of the edges that start there."""
        check_deadline()
        own = self.clusters[number]
        table = own.belief.copy()
        for edge in self._starting[number]:
            self._add(table, own.scope, edge.table, edge.scope, -1.0)
        for message, scope in messages:
            self._add(table, own.scope, message, scope)
        return table

    def _weights(self, bucket: list[int], is_upper: bool) -> list[float]:
        count = len(bucket)
        if not bucket or self.clusters[bucket[0]].variable in self.maximised:
            return [0.0] * count
        return [1.0 / count] * count if is_upper else [float(count), *([-1.0] * (count - 1))]

    def _equalise(self, tables: dict[int, Logs], weights: list[float]) -> None:
        """Make the power marginals of a bucket's variable equal in all its clusters; their product is unchanged."""
        scopes = [self.clusters[c].scope for c in tables]
        v = (scopes[0][0],)
        triples = zip(tables.values(), scopes, weights, strict=True)
        found = [self._reduced(table, scope, v, weight) for table, scope, weight in triples]
        mean = np.mean(found, axis=0)
        for table, scope, own in zip(tables.values(), scopes, found, strict=True):
            shift = np.full(len(mean), -math.inf)
            np.subtract(mean, own, out=shift, where=mean > -math.inf)
            self._add(table, scope, shift, v)

    def _total(self, table: Logs) -> float:
        peak = float(table.max(initial=-math.inf))
        return peak if peak == -math.inf else peak + math.log(float(np.exp(table - peak).sum()))

    def _reduced(self, table: Logs, scope: tuple[int, ...], left: tuple[int, ...], weight: float) -> Logs:
        walk = self._walk(scope, left)
        out, peaks = np.empty(walk.cells), np.empty(walk.cells)
        power_sums(out, peaks, table, walk.bases, walk.inner, weight, current_flag())
        check_deadline()
        return out

    def _add(self, target: Logs, scope: tuple[int, ...], part: Logs, own: tuple[int, ...], factor: float = 1.0) -> None:
        walk = self._walk(scope, own)
        add_logarithms(target, part, walk.bases, walk.inner, factor)

    def _walk(self, large: tuple[int, ...], small: tuple[int, ...]) -> Traversal:
        return self._made_walk(tuple(self.sizes[v] for v in large), tuple(large.index(v) for v in small))

    @staticmethod
    def _traversal(sizes: tuple[int, ...], axes: tuple[int, ...]) -> Traversal:
        """Of a table of these sizes, and one over some of its axes."""
        steps, step = [0] * len(sizes), 1
        for axis in reversed(axes):
            steps[axis] = step
            step *= sizes[axis]
        inner = bases = np.zeros(1, dtype=np.int64)
        for size, own in zip(reversed(sizes), reversed(steps), strict=True):
            along = np.arange(size, dtype=np.int64)[:, None] * own
            if len(inner) < BLOCK_CELLS:
                inner = (along + inner).ravel()
            else:
                bases = (along + bases).ravel()
        return Traversal(bases, inner, step)

    def _tables(self, problem: Problem) -> Iterator[tuple[tuple[int, ...], Logs]]:
        """Each function and constraint, with its scope in elimination order."""
        parts: list[Function | Constraint] = [*problem.functions, *problem.constraints]
        for part in looked(parts):
            if isinstance(part, Function):
                values, feasible = part.to_array(self.sizes)
                dense = np.where(feasible, values, -math.inf)
            else:
                dense = np.where(part.to_array(self.sizes), 0.0, -math.inf)
            axes = sorted(range(len(part.scope)), key=lambda a: self._position[part.scope[a]])
            yield tuple(part.scope[a] for a in axes), np.ascontiguousarray(dense.transpose(axes), np.float64).ravel()

    def _divide(
        self, scopes: Sequence[tuple[int, ...]], order: Sequence[int], most_cells: int, memory: int
    ) -> list[int | None]:
        """Make clusters and edges; returns the cluster of each function, None without variables."""
        waiting: list[list[tuple[frozenset[int], int, bool]]] = [[] for _ in order]
        homes: list[int | None] = [None] * len(scopes)

        def wait(scope: frozenset[int], number: int, is_message: bool) -> None:
            waiting[min(self._position[v] for v in scope)].append((scope, number, is_message))

        def cells(scope: frozenset[int]) -> int:
            return math.prod(self.sizes[v] for v in scope)

        for number, scope in enumerate(scopes):
            if scope:
                wait(frozenset(scope), number, False)
        room = memory // 8
        for place, v in enumerate(looked(order)):
            made: list[tuple[frozenset[int], int, list[tuple[int, bool]]]] = []
            for members, number, is_message in sorted(waiting[place], key=lambda w: -cells(w[0])):
                fitting = [
                    (len(more), i) for i, (own, size, _) in enumerate(made)
                    if not (more := members - own) or size * cells(more) <= most_cells
                ]  # fmt: skip
                if fitting:
                    own, size, parts = made[(i := min(fitting)[1])]
                    made[i] = (own | members, size * cells(members - own), [*parts, (number, is_message)])
                else:
                    made.append((members, cells(members), [(number, is_message)]))
            waiting[place] = []
            first = len(self.clusters)
            self._buckets.append(list(range(first, first + len(made))))
            for own, size, parts in made:
                room -= size
                if room < 0:
                    raise ResourceError(
                        f"join graph with clusters of {most_cells:,} cells: its tables do not fit the limit of "
                        f"{format_bytes(memory)}"
                    )
                here = len(self.clusters)
                for number, is_message in parts:
                    if is_message:
                        self.clusters[number].parent = here
                        self._connect(number, here, self.clusters[number].scope[1:])
                    else:
                        homes[number] = here
                ordered = tuple(sorted(own, key=self._position.__getitem__))
                self.clusters.append(LogCluster(v, ordered))
                if here > first:
                    self._connect(here - 1, here, (v,))
                if len(own) > 1:
                    wait(own - {v}, here, True)
            # A variable without a cluster is a factor of its domain's size; a maximised one is free.
            if not made and v not in self.maximised:
                self._constant += math.log(self.sizes[v])
        self.edges.sort(key=lambda e: (e.start, e.end))
        self._starting: list[list[Edge]] = [[] for _ in self.clusters]
        for edge in self.edges:
            self._starting[edge.start].append(edge)
        return homes

    def _connect(self, start: int, end: int, scope: tuple[int, ...]) -> None:
        self.edges.append(Edge(start, end, scope))
