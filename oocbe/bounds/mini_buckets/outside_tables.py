"""Mini-bucket tables as bounds on rows: lower bounds on the outside of a message, over several variables jointly.

An additive bound (:mod:`oocbe.bounds.estimators`) minimises over each variable separately. The *residual* of each
function is non-negative and does not contribute to it. Here residuals, and the reduced costs of single variables, are
joined and eliminated by mini-buckets *from the other side*: for each bucket of an elimination order, everything outside
its subtree is reduced to tables over variables of its separator. A row reads them with the bits of its key and adds
the entries to its additive bound, which never falls and often rises considerably.

The tree of buckets is traversed twice, as in a junction tree. Upwards, each bucket sends mini-bucket messages about its
subtree. Downwards, the outside of a bucket c consists of the outside of its parent p, the functions of p, and the
messages of its siblings; variables of p that are not in c's separator are eliminated from these, in mini-buckets with
cost shifting. So every table bounds functions outside c only, and every such function is in at most one table: the sum
of an additive bound and its tables is a valid bound. Costs are integers in fixed point, rounded down; an entry that
reaches the cap excludes all assignments below the threshold.

Dechter and Rish (2003) have the elimination. Kask and Dechter (2001, *A general scheme for automatic generation of
search heuristics from specification dependencies*) use mini-buckets as bounds in a search, which runs against the order
of elimination; dynamic programming here runs along it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.cost_tables import CostTable, add, least, zeros
from oocbe.bounds.estimators import AdditiveSource
from oocbe.bounds.mini_buckets.join_graph import level
from oocbe.bounds.mini_buckets.join_graph_partition import Cluster, Partition
from oocbe.elimination.buckets.buckets import elements_of, members_of
from oocbe.elimination.engine.bound_arrays import JointTable
from oocbe.elimination.preparation.prepare import scopes_of
from oocbe.elimination.row_pruning.row_bounds import RowBound, ValueGrid
from oocbe.errors import ResourceError
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.table import format_bytes

ROOM = 29
"""Limit of the cap, in bits: twice the cap fits 32 bits."""

LOOKUP_CELLS = 1 << 12
"""Maximum number of cells of a joined lookup table (16 KiB): fewer lookups a row."""

FEWER = 4
"""Divisor of the cells of a mini-bucket when tables do not fit."""

TEMPERATURE = 3.0
"""Temperature of sampled losses (:mod:`oocbe.bounds.mini_buckets.join_graph_partition`), in units of the mean maximum
residual."""


class OutsideTables:
    """A source of bounds: an additive source, and tables of its residuals.

    Parameters
    ----------
    problem : in min-sum, without linear constraints that bind. source : with residuals.
    upper_bound : only assignments with a value strictly below it count.
    order : of elimination. cells : maximum of a mini-bucket; it is lowered until the tables fit.
    memory : limit of all tables during construction, in bytes. seed : of the samples that guide the division.

    Attributes
    ----------
    nbytes : memory of the finished tables.

    Raises
    ------
    ResourceError : even the smallest tables do not fit.
    TimeLimitError : the deadline of the enclosing block came.
    """

    def __init__(
        self,
        problem: Problem,
        source: AdditiveSource,
        upper_bound: int | float,
        order: Sequence[int],
        cells: int,
        memory: int,
        seed: int = 0,
    ) -> None:
        assert source.residuals is not None
        self._source, self._cells, self._memory = source, cells, memory
        self.name, self.root, self.assignment = source.name, source.root, source.assignment
        self.nbytes, self._lookup_cells = 0, LOOKUP_CELLS
        self._sizes = problem.sizes
        self._order = tuple(order)
        self._position = {v: place for place, v in enumerate(order)}
        self._tables: dict[int, tuple[CostTable, ...]] = {}
        fixed, (root, reduced) = source.fixed_point, source.reduced_costs()
        if fixed.is_integral:
            need = int(ValueGrid.of(problem).largest_below(upper_bound)) * int(fixed.scale) + 1 - root
        else:
            # Values are at most the magnitude: a higher bound is redundant, and may overflow floats when scaled.
            most = min(upper_bound, max(2 * fixed.magnitude, sys.float_info.min))
            need = math.ceil(most * fixed.scale) - root + math.ceil(source.margin * fixed.scale) + 1
        if need <= 0:
            return
        self._shift = max(0, need.bit_length() - ROOM)
        self._cap = (need >> self._shift) + 1
        residuals = source.residuals()
        functions = [self._table(scope, costs) for scope, costs, _ in residuals]
        self._hard = {id(t) for t, (*_, is_hard) in zip(functions, residuals, strict=True) if is_hard}
        first = np.concatenate([[0], np.cumsum(problem.sizes)])
        costs = np.where(source.removed > 0, -1, reduced)
        self._own = [self._table((v,), costs[first[v] : first[v + 1]]) for v in range(len(problem.sizes))]
        largest = [int(t.values[t.values < self._cap].max(initial=0)) for t in functions]
        unit = TEMPERATURE * max(1.0, float(np.mean([x for x in largest if x] or [1])))
        self._partition = Partition(problem.sizes, self._position, len(order), self._cap, unit, seed, True)
        fixed_bytes, scopes = _bytes_of([*functions, *self._own]), scopes_of(problem)
        while not self._fill(functions, scopes, fixed_bytes):
            if self._cells == 1:
                raise ResourceError(
                    f"{problem.name}: mini-bucket tables of any size take more than {format_bytes(memory)}; "
                    "raise --memory"
                )
            self._cells = max(1, self._cells // FEWER)
            self._lookup_cells = min(self._lookup_cells, self._cells)
        del self._own, self._hard, self._partition  # only needed during construction
        self.nbytes = _bytes_of([t for tables in self._tables.values() for t in tables])

    @property
    def why(self) -> str:
        """Description for the plan."""
        return f"{self._source.why}; mini-bucket tables of {self._cells:,} cells bound what it leaves"

    def for_message(self, eliminated: int, separator: Sequence[int]) -> RowBound:
        """Bound the rows of a message; see :class:`oocbe.elimination.row_pruning.row_bounds.BoundSource`."""
        bound = self._source.for_message(eliminated, separator)
        tables = [t for t in self._tables.get(eliminated, ()) if set(t.scope) <= set(separator)]
        if not tables:
            return bound
        scale = bound.scale / self._source.fixed_point.scale
        unit = (1 << self._shift) * scale
        unit = int(unit) if self._source.fixed_point.is_integral else float(unit)
        return replace(
            bound,
            joint=tuple(JointTable(t.scope, tuple(self._sizes[v] for v in t.scope), t.values, unit) for t in tables),
        )

    def fixed_values(self, upper_bound: int | float) -> list[tuple[int, int]]:
        """Pairs (variable, value) in no assignment with a value below ``upper_bound``."""
        return self._source.fixed_values(upper_bound)

    def _table(self, scope: Sequence[int], costs: NDArray[np.int64]) -> CostTable:
        order = tuple(sorted(scope, key=self._position.__getitem__))
        scaled = np.where(costs < 0, self._cap, np.minimum(costs >> self._shift, self._cap))
        turned = scaled.transpose([tuple(scope).index(v) for v in order])
        return CostTable(order, np.ascontiguousarray(turned, dtype=np.int32).ravel())

    def _fill(self, functions: Sequence[CostTable], scopes: Sequence[Sequence[int]], used: int) -> bool:
        """Both passes over the tree of buckets, built from all scopes; returns whether the tables fit.

        used : bytes of the input tables.
        """
        self._tables.clear()
        count, position = len(self._order), self._position
        members = [1 << v for v in self._order]
        for scope in scopes:
            if scope:
                members[min(position[v] for v in scope)] |= members_of(scope)
        children: list[list[int]] = [[] for _ in range(count)]
        subtree = [1 << v for v in self._order]
        own: list[list[CostTable]] = [[] for _ in range(count)]
        for f in functions:
            own[position[f.scope[0]]].append(f)
        sent: list[list[CostTable]] = []
        for place, v in enumerate(self._order):
            check_deadline()
            separator = members[place] & ~(1 << v)
            pool = [*own[place], *(t for child in children[place] for t in sent[child])]
            made = self._without(pool, separator, used)
            if made is None:
                return False
            sent.append(made)
            used += _bytes_of(made, pool)
            if separator:
                parent = min(position[w] for w in elements_of(separator))
                children[parent].append(place)
                members[parent] |= separator
                subtree[parent] |= subtree[place]
        outside: list[list[CostTable]] = [[] for _ in range(count)]
        for place in reversed(range(count)):
            for child in children[place]:
                check_deadline()
                siblings = [t for other in children[place] if other != child for t in sent[other]]
                separator = members[child] & ~(1 << self._order[child])
                pool = [*outside[place], *own[place], *siblings]
                made = self._without(pool, separator, used)
                if made is None:
                    return False
                gathered = self._gathered(made)
                outside[child], self._tables[subtree[child]] = made, tuple(gathered)
                used += _bytes_of(made, pool) + _bytes_of(gathered, made)
                if used > self._memory:
                    return False
        return True

    def _without(self, tables: Sequence[CostTable], kept: int, used: int) -> list[CostTable] | None:
        """Tables over ``kept`` variables that bound the sum of some tables and of the costs of the other variables.

        None if they and the intermediate joins do not fit beside ``used`` bytes.
        """
        left = list(tables)
        gone = {v for t in left for v in t.scope if not kept >> v & 1}
        for v in sorted(gone, key=lambda v: (sum(v in t.scope for t in left), self._position[v])):
            received = [*(t for t in left if v in t.scope), self._own[v]]
            left = [t for t in left if v not in t.scope]
            made = self._partition.divide(v, [Cluster(v, members_of(t.scope), t) for t in received], self._cells)
            if used + _bytes_of(left, tables) + sum(c.table.values.nbytes for c in made) > self._memory:
                return None
            if len(made) > 1:
                level(made, self._sizes, self._cap, self._cap)
            for cluster in made:
                message = least(cluster.table, cluster.separator, self._sizes, self._cap)
                if message.values.any():
                    left.append(message)
        return left

    def _gathered(self, tables: Sequence[CostTable]) -> list[CostTable]:
        """Fewer tables with the same sum, for fewer lookups; zero tables are dropped.

        Hard constraints over the separator alone are left out: additive bounds leave out their terms, which are at most
        0 and would compensate the residuals.
        """
        tables = [t for t in tables if id(t) not in self._hard]
        groups: list[tuple[int, list[CostTable]]] = []
        for t in sorted(tables, key=lambda t: -len(t.values)):
            own = members_of(t.scope)
            for number, (members, group) in enumerate(groups):
                union = members | own
                if union == members or math.prod(self._sizes[v] for v in elements_of(union)) <= self._lookup_cells:
                    group.append(t)
                    groups[number] = (union, group)
                    break
            else:
                if t.values.any():
                    groups.append((own, [t]))
        made = []
        for members, group in groups:
            if len(group) == 1:
                made.append(group[0])
                continue
            table = zeros(sorted(elements_of(members), key=self._position.__getitem__), self._sizes, np.dtype(np.int32))
            for t in group:
                add(table, t, self._sizes, self._cap)
            made.append(table)
        return made


def _bytes_of(tables: Sequence[CostTable], besides: Sequence[CostTable] = ()) -> int:
    """Total bytes of the distinct tables that are not among ``besides``."""
    counted = {id(t) for t in besides}
    return sum(t.values.nbytes for t in {id(t): t for t in tables if id(t) not in counted}.values())
