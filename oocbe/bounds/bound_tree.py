"""A tree of bounds: depth-first search with dual ascent, whose nodes keep what their bounds are sums of.

The ascent is that of :mod:`oocbe.bounds.bounds`; forbidden tuples cost a little more than a limit, so that
every conclusion is a bound. A node removes the values whose reduced cost is too great, and ascends again without them.
Then it splits the values of a variable: in halves where they are many, as one bound excludes a half, otherwise into the
cheapest one and the others. Branching is *strong*: the parts of some variables are tried. The trees are small, as those
who check a proof pay for each node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import Row
from oocbe.bounds.kernels.cpu.dual_ascent import least_of_functions, lower_shares, sweep
from oocbe.bounds.row_tables import network_of
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import check_deadline, current_flag, looked, suppressed_limit

SCALE = 1 << 8
"""Shares are multiples of ``1 / SCALE``, or of a smaller unit where linear constraints take part."""

NEVER = np.iinfo(np.int64).max
"""Cost of a forbidden tuple."""

MOST_NUMBERS = 40_000_000
"""Shares of all nodes of a search at most, 8 bytes each."""

NUMBERS = 1000
"""A node counts as so many shares at least: searches of small problems have an end, too."""

PASSES = 30
"""Passes of the ascent of a node at most."""

LITTLE = 0.01
"""Gain of a pass, relative to what is missing, below which the ascent of a node ends."""

CANDIDATES = 6
"""Variables whose parts are tried before one is chosen."""

MOST_TRIED = 8
"""Values of a variable at most of which the cheapest one is a part of its own."""

MOST_TUPLES = 20_000
"""Tuples of functions at most in a linear program."""

TUPLES_A_SECOND = 4_000
"""Tuples at most for each second that is left: a program of 14,000 takes 6 seconds, and nothing ends it."""

DEEPEST = 200
"""Decisions of a node at most."""

LEFT_OUT = (6, 9)
"""Changes of shares up to ``limit >> n`` are left out, with the first n for which the bound suffices."""


class BoundNode(NamedTuple):
    """A node of the search: int64 arrays in units of ``1 / SCALE``.

    shares : of each use and value, what a function passes to the value. least : cost left in each function.
    low : least cost of each variable's values. reduced : of each value, above ``low``; below 0 for removed values only.
    factors : multipliers of the linear constraints. bound : the sum of ``least`` and ``low``, less what is multiplied.
    """

    shares: NDArray[np.int64]
    least: NDArray[np.int64]
    low: NDArray[np.int64]
    reduced: NDArray[np.int64]
    factors: NDArray[np.int64]
    bound: int


class BoundTree(NamedTuple):
    """A node and its children.

    steps : bounds, each with the values that are removed by it; at a leaf, the last one exceeds the limit. parts : a
    part of the values that are left of a variable, and the others, by number among all values; none at a leaf.
    children : without the second part, and without the first.
    """

    steps: list[tuple[BoundNode, list[int]]]
    parts: tuple[list[int], ...] = ()
    children: tuple[BoundTree, ...] = ()


class BoundSearch:
    """A search for a tree whose leaves have bounds above a limit.

    sizes : of the variables. costs : int64, of all values. tables : scopes and int64 costs of functions over several
    variables, at least 0. rows : linear constraints. scale : units of a cost. barred : values that are excluded.
    limit : of the sum of costs. end : as of :func:`oocbe.runtime.compilation.working_time`. memory : bytes of nodes.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        costs: NDArray[np.int64],
        tables: Sequence[tuple[tuple[int, ...], NDArray[np.int64]]],
        rows: Sequence[Row],
        scale: int,
        barred: Sequence[int],
        limit: int,
        end: float,
        memory: float,
    ) -> None:
        self._rows, self._scale, self._first, self._limit = rows, scale, starts_of(sizes), scale * limit
        self._takes = np.zeros((len(rows), len(costs)), dtype=np.int64)
        for own, row in zip(self._takes, rows, strict=True):
            own[row.literals] = row.coefficients
        self._room = np.array([row.right_hand_side for row in rows], dtype=np.int64)
        self._owner = np.repeat(np.arange(len(sizes)), np.diff(self._first))
        self._end, self._left = end, min(MOST_NUMBERS, memory / 8)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *(table.ravel() for _, table in tables)])
        self._exact = np.where(flat == NEVER, NEVER, flat * self._scale)
        scopes = [scope for scope, _ in tables]
        starts = np.repeat(starts_of([table.size for _, table in tables])[:-1], [len(scope) for scope in scopes])
        capped = np.minimum(self._exact, self._scale * (limit + 1)).astype(np.float64)
        self._network = network_of(scopes, sizes, starts, capped)
        values = [np.arange(*self._first[v : v + 2]) for v in self._network.variable]
        self._value = np.concatenate([np.zeros(0, dtype=np.int64), *values])
        self._weight = np.bincount(self._network.variable, minlength=len(sizes))
        self._tables = tables
        self._costs, self._barred = self._scale * costs, np.zeros(len(costs), dtype=np.uint8)
        self._barred[list(barred)] = 1

    def tree(self) -> tuple[BoundNode, BoundTree | None]:
        """The root, and its tree; None where the search reached a limit."""
        node = self._node(np.zeros(len(self._value), dtype=np.int64), self._barred, self._first_factors())
        root = self._settled(self._ascend(node, self._barred, PASSES), self._barred, node)
        tree = None
        with suppressed_limit():
            tree = self._below(root, node, self._barred, 0)
        return root, tree

    def _below(self, start: BoundNode, before: BoundNode, removed: NDArray[np.uint8], depth: int) -> BoundTree | None:
        """The tree below a node; before : the latest one among the steps."""
        node, steps, values = start, list[tuple[BoundNode, list[int]]](), [-1]
        while values:
            check_deadline()
            node = self._ascend(node, removed, PASSES)
            dear = (node.bound <= self._limit) & (removed == 0) & (node.bound + node.reduced > self._limit)
            values = np.flatnonzero(dear).tolist()
            if values or node.bound > self._limit:
                before = self._sparse(node, removed, before, values)
                steps.append((before, values))
                removed, self._left = removed | dear, self._left - max(NUMBERS, len(node.shares))
        if node.bound > self._limit:
            return BoundTree(steps)
        if self._left < 0 or depth >= DEEPEST or working_time() > self._end:
            return None
        parts, children = self._chosen(node, removed), list[BoundTree]()
        for part in parts[::-1]:
            found = self._below(node, before, self._without(removed, part), depth + 1)
            if found is None:
                return None
            self._weight[np.searchsorted(self._first, part[0], side="right") - 1] += not found.parts
            children.append(found)
        return BoundTree(steps, parts, tuple(children)) if parts else None

    def _without(self, removed: NDArray[np.uint8], values: list[int]) -> NDArray[np.uint8]:
        made = removed.copy()
        made[values] = 1
        return made

    def _parts(self, node: BoundNode, removed: NDArray[np.uint8], v: int) -> tuple[list[int], list[int]]:
        """Two parts of a variable's values that are left."""
        begin, end = self._first[v : v + 2]
        left = begin + np.flatnonzero(removed[begin:end] == 0)
        is_first = left == left[np.argmin(node.reduced[left])]
        if len(left) > MOST_TRIED:
            is_first = left <= (left[0] + left[-1]) // 2
        return left[is_first].tolist(), left[~is_first].tolist()

    def _chosen(self, node: BoundNode, removed: NDArray[np.uint8]) -> tuple[list[int], ...]:
        """The parts with the least estimate of the children's trees; none if each variable has one value."""
        missing, best, least = self._limit + 1 - node.bound, tuple[list[int], ...](), math.inf
        left = np.add.reduceat(removed == 0, self._first[:-1], dtype=np.int64)
        order = np.argsort(left / (self._weight + 1), kind="stable")
        for v in order[left[order] > 1][:CANDIDATES].tolist():
            if best and working_time() > self._end:
                break
            parts, estimate = self._parts(node, removed, v), 0.0
            for part in looked(parts):
                gap = (self._limit + 1 - self._ascend(node, self._without(removed, part), 1).bound) / missing
                estimate += math.expm1(5 * max(0.0, min(1.0, gap)))
            if estimate < least:
                best, least = parts, estimate
        return best

    def _ascend(self, given: BoundNode, removed: NDArray[np.uint8], passes: int) -> BoundNode:
        """Continue the dual ascent from a node, with more values removed."""
        shares, network, stop = given.shares.astype(np.float64), self._network, current_flag()
        gone, best, factors = removed.copy(), list[BoundNode](), given.factors
        left = self._costs + factors @ self._takes + np.bincount(self._value, shares, len(removed))
        for _ in range(passes):
            sweep(network, True, shares, gone, left, True, stop)
            sweep(network, False, shares, gone, left, True, stop)
            ended, rest = shares.copy(), left.copy()
            sweep(network, True, ended, gone, rest, False, stop)
            if self._rows:
                left -= factors @ self._takes
                factors = self._multipliers(rest - factors @ self._takes, removed, self._owner)
                left += factors @ self._takes
            found = self._node(np.rint(ended).astype(np.int64), removed, factors)
            before, best = best, sorted([*best, found], key=lambda node: node.bound)[-1:]
            if best[0].bound > self._limit:
                break
            if before and found.bound - before[0].bound < LITTLE * (self._limit + 1 - before[0].bound):
                break
        return best[0]

    def _first_factors(self) -> NDArray[np.int64]:
        """Multipliers of the linear constraints, by a linear program with a value for each dear tuple of a function."""
        rows, paid = list[Row](), list[int]()
        most = min(MOST_TUPLES, TUPLES_A_SECOND * max(1.0, self._end - working_time()))
        if not self._rows or sum(table.size for _, table in self._tables) > most:
            return np.zeros_like(self._room)
        for scope, table in self._tables:
            for cell in np.argwhere(table > 0).tolist():
                literals, signs = [int(self._first[v]) + a for v, a in zip(scope, cell, strict=True)], [1] * len(cell)
                if table[*cell] != NEVER:
                    literals, signs = [*literals, len(self._costs) + 2 * len(paid) + 1], [*signs, -1]
                    paid.append(self._scale * int(table[*cell]))
                rows.append(Row(np.array(literals), np.array(signs), len(cell) - 1))
        more = np.array([[0, cost] for cost in paid], dtype=np.int64).ravel()
        costs, own = np.concatenate([self._costs, more]), np.arange(len(more)) // 2 + len(self._first) - 1
        removed = np.concatenate([self._barred, np.zeros(len(more), dtype=np.uint8)])
        return self._multipliers(costs.astype(np.float64), removed, np.concatenate([self._owner, own]), rows)

    def _multipliers(
        self, costs: NDArray[np.float64], removed: NDArray[np.uint8], owner: NDArray[np.int64], more: Sequence[Row] = ()
    ) -> NDArray[np.int64]:
        """Multipliers of the linear constraints, by a linear program over some costs of the values that are left.

        owner : variable of each value. more : further rows of the linear program.
        """
        from oocbe.bounds.linear_program import LinearProgram  # loading the solver of linear programs takes a while

        count, most, kept = len(self._rows), self._limit + self._scale, np.flatnonzero(removed == 0)
        found, (known, default) = np.zeros(count), np.unique(owner[kept], return_index=True)
        if len(known) == owner.max(initial=-1) + 1:
            program = LinearProgram(costs, owner, kept[default], removed)
            if program.add(self._rows) < count:
                return found.astype(np.int64)  # a number is beyond the solver's range
            program.add(more)
            found = (program.multipliers() if program.solve(math.inf) else program.contradiction(math.inf))[:count]
            if program.is_infeasible:
                found *= most / max(float(found.max()), LITTLE)
        return np.minimum(np.rint(found), most).astype(np.int64)

    def _node(self, shares: NDArray[np.int64], removed: NDArray[np.uint8], factors: NDArray[np.int64]) -> BoundNode:
        least = np.empty(len(self._network.function_start) - 1, dtype=np.int64)
        least_of_functions(self._network, self._exact, shares, removed, NEVER, least)
        least[least == NEVER] = self._limit + self._scale  # no tuple is left
        totals = self._costs + factors @ self._takes
        np.add.at(totals, self._value, shares)
        low = np.minimum.reduceat(np.where(removed == 0, totals, NEVER), self._first[:-1])
        low[low == NEVER] = self._limit + self._scale  # no value is left
        bound = int(least.sum() + low.sum() - factors @ self._room)
        return BoundNode(shares, least, low, totals - low[self._owner], factors, bound)

    def _sparse(self, node: BoundNode, removed: NDArray[np.uint8], before: BoundNode, values: list[int]) -> BoundNode:
        """A node that excludes the same values, or reaches the limit, with few changes of the one before."""
        change = np.abs(node.shares - before.shares)
        for n in LEFT_OUT:
            some = np.where(change > self._limit >> n, node.shares, before.shares)
            found = self._settled(node._replace(shares=some), removed, before)
            if found.bound + min(found.reduced[values], default=0) > self._limit:
                return found
        return self._settled(node, removed, before)

    def _settled(self, node: BoundNode, removed: NDArray[np.uint8], before: BoundNode) -> BoundNode:
        """A node whose tuples with removed values cost their function's least at least: these values' shares are those
        before, or less, by one amount for all functions."""
        is_out = removed[self._value] == 1
        shares = np.where(is_out, before.shares, node.shares)
        least = self._node(shares, removed, node.factors).least
        lower_shares(self._network, self._exact, least, removed, np.zeros_like(removed), NEVER, shares)
        lowered = np.zeros_like(self._costs)
        np.minimum.at(lowered, self._value, np.where(is_out, shares - before.shares, 0))
        return self._node(np.where(is_out, before.shares + lowered[self._value], shares), removed, node.factors)
