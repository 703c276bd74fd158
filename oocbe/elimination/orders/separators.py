"""The primal graph of a list of scopes, and the separators of its elimination orders."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.kernels.cpu.orders.dissection import dissect
from oocbe.kernels.cpu.orders.graphs import graph_of_scopes, separators_of, summed
from oocbe.kernels.cpu.orders.greedy_order import linear_order
from oocbe.kernels.cpu.orders.sparse_order import sparse_order
from oocbe.kernels.cpu.orders.windows import improve_windows
from oocbe.model.results.numerals import format_bytes
from oocbe.model.settings.machine import available_memory
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag, looked

MOST_ROWS = 2.0**960
"""Maximum of predictions, so that their sums, ratios and bytes stay within float64."""

EDGE_BYTES = 16
"""Bytes for each neighbour of a variable during the computation of an order: growing lists are copied."""

RANK_LOGARITHM = 12.0
"""Logarithm of the factor between the scores of a separator's variables and of those that it separates."""

WINDOW_SIZES, WINDOWS, WINDOW_TRIALS = (16, 256), 8, 8
"""Variables of the smallest and of the largest windows; windows at a time on small graphs, and orders of each."""

NEVER = np.zeros(1, dtype=np.int64)
"""A flag that is never set."""


class Separators(NamedTuple):
    """Sets of variables, those of an order by elimination position.

    starts : int64 (sets + 1,). members : int32; set ``i`` is ``members[starts[i] : starts[i + 1]]``, of an order the
        one eliminated next at the front.
    """

    starts: NDArray[np.int64]
    members: NDArray[np.int32]

    @classmethod
    def of(cls, sets: Collection[Collection[int]]) -> Separators:
        """Separators from a collection of sets."""
        starts = np.zeros(len(sets) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, sets), dtype=np.int64, count=len(sets)), out=starts[1:])
        members = itertools.chain.from_iterable(sets)
        return cls(starts, np.fromiter(members, dtype=np.int32, count=int(starts[-1])))

    @property
    def width(self) -> int:
        """Members of the largest."""
        return int(np.diff(self.starts).max(initial=0))

    def listed(self) -> list[tuple[int, ...]]:
        """Each as a tuple."""
        variables = list(range(int(self.members.max(initial=-1)) + 1))  # so that each number is one object
        members = [variables[v] for v in self.members.tolist()]
        return [tuple(members[first:last]) for first, last in looked(itertools.pairwise(self.starts.tolist()))]


class Hurry(NamedTuple):
    """Flags, int64 (1,), that are set when the time for an order is over.

    hurry : the rest of the order is chosen by a faster method. give_up : the rest of the order is arbitrary.
    """

    hurry: NDArray[np.int64] = NEVER
    give_up: NDArray[np.int64] = NEVER


UNHURRIED = Hurry()
"""Flags that are never set."""


def least_connected(ends: NDArray[Any], others: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The least vertex of each vertex's connected component, int64 (count,).

    ends, others : integers (edges,), both vertices of each edge, in any direction.
    """
    label = np.arange(count)
    while True:
        before = label.copy()
        least = np.minimum(before[ends], before[others])
        for side in (ends, others):
            np.minimum.at(label, before[side], least)
        label = label[label]
        if (label == before).all():
            return label


class ScopeGraph:
    """Variables as vertices, an edge where two share a scope.

    name : of the problem, for errors. scopes : of variables. sizes : of their domains, int64 as an attribute.
    starts, neighbours : int64 and int32, the neighbours of each variable (:mod:`oocbe.kernels.cpu.orders.graphs`).
    weights : float64, bits of a domain.
    Raises ResourceError: memory does not suffice for the edges; TimeLimitError: the deadline of the block passed.
    """

    def __init__(self, name: str, scopes: Collection[Collection[int]], sizes: Sequence[int]) -> None:
        self.name = name
        self.sizes = np.array(sizes, dtype=np.int64)
        self.weights = np.log2(np.maximum(1, self.sizes))
        count, memory = len(self.sizes), available_memory()
        check_deadline()
        most = memory // EDGE_BYTES
        self.starts, self.neighbours, is_whole = graph_of_scopes(*Separators.of(scopes), count, most, current_flag())
        check_deadline()
        if not is_whole or EDGE_BYTES * (count + len(self.neighbours)) > memory:
            raise ResourceError(
                f"{name}: the graph of {count:,} variables, an edge where two of them share a scope, has more edges "
                f"than the {format_bytes(memory)} of memory here hold; functions over fewer variables make fewer"
            )

    @cached_property
    def adjacency(self) -> NDArray[np.uint64]:
        """The edges as bit sets, uint64 (variables, words); for graphs of some thousand variables."""
        count = len(self.sizes)
        words = (count + 63) // 64
        edges = np.zeros((count, 64 * words), dtype=np.bool_)
        edges[np.repeat(np.arange(count), np.diff(self.starts)), self.neighbours] = True
        return np.packbits(edges, axis=1, bitorder="little").view(np.uint64)

    @property
    def is_large(self) -> bool:
        """Whether lists of neighbours are faster than bit sets."""
        return len(self.sizes) > tuning().bitset_variables

    def greedy_order(
        self,
        criterion: int,
        seed: int,
        most: float = math.inf,
        factors: NDArray[np.float64] | None = None,
        flags: Hurry = UNHURRIED,
        floor: float = 0.0,
    ) -> tuple[NDArray[np.int64], float]:
        """A greedy order and the assignments of its separators (:mod:`oocbe.kernels.cpu.orders.greedy_order`).

        most : once the assignments exceed it, the rest of the order is arbitrary. floor : see
            :func:`oocbe.kernels.cpu.orders.sparse_order.sparse_order`; only for graphs as lists.
        """
        factors = np.ones(len(self.sizes)) if factors is None else factors
        order: NDArray[np.int64]
        if not self.is_large and floor == 0:
            limits = (most, flags.hurry, current_flag())
            order, cells = greedy.greedy_order(self.adjacency.copy(), self.weights, criterion, seed, factors, *limits)
        else:
            graph = (self.starts, self.neighbours, self.weights)
            edges = max(len(self.neighbours), min(tuning().most_fill, available_memory() // EDGE_BYTES))
            order, cells = sparse_order(*graph, criterion, seed, factors, most, edges, floor, *flags, current_flag())
        check_deadline()
        return order, float(cells)

    def linear_order(self, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED) -> NDArray[np.int64]:
        """The narrowest of some linear orders (:mod:`oocbe.kernels.cpu.orders.greedy_order`); ``most`` as above."""
        graph, limits = (self.starts, self.neighbours, self.weights), (flags.hurry, current_flag())
        best, *least = linear_order(*graph, seed, math.log2(most), *limits)
        for sweep in range(1, tuning().linear_sweeps):
            if flags.hurry[0] != 0:
                break
            order, *bits = linear_order(*graph, seed + sweep, min(math.log2(most), least[0]), *limits)
            best, least = (order, bits) if bits < least else (best, least)
        check_deadline()
        return np.asarray(best)

    def dissected_order(self, seed: int, most: float = math.inf, flags: Hurry = UNHURRIED) -> NDArray[np.int64]:
        """A nested dissection (:mod:`oocbe.kernels.cpu.orders.dissection`) with parts and separators by min-fill; by
        min-degree on large graphs, where it is as narrow, and min-fill takes twice as long as the dissection."""
        leaf, pairs = np.exp2(np.random.default_rng(seed).uniform((2, 2), (7, 5))).astype(np.int64).tolist()
        ranks = dissect(self.starts, self.neighbours, leaf, pairs, seed, flags.hurry, current_flag())
        check_deadline()
        criterion = greedy.MIN_DEGREE if self.is_large else greedy.MIN_FILL
        return self.greedy_order(criterion, seed, most, np.exp(RANK_LOGARITHM * ranks), flags)[0]

    def improved_order(
        self, order: NDArray[np.int64], heat: NDArray[np.float64], seed: int, flags: Hurry = UNHURRIED
    ) -> NDArray[np.int64]:
        """The order with some windows ordered anew; ``heat``: float64 (variables,), cost of each message."""
        smallest, largest = WINDOW_SIZES
        most = max(smallest, min(largest, len(order)))
        size = int(smallest * (most / smallest) ** np.random.default_rng(seed).random())
        count = max(1, min(WINDOWS, len(order) // size), len(order) // size // WINDOWS)
        plan = (order, *self.separators(order))
        graph, limits = (self.starts, self.neighbours, self.weights), (size, count, WINDOW_TRIALS)
        found: NDArray[np.int64]
        found, _ = improve_windows(graph, plan, heat, limits, seed, flags.hurry, current_flag())
        check_deadline()
        return found

    @property
    def most_members(self) -> int:
        """Limit of the members of all separators of an order."""
        return max(tuning().most_members, len(self.neighbours))

    def separators(self, order: NDArray[np.int64]) -> Separators:
        """Separator of each bucket; ResourceError beyond :attr:`most_members`, TimeLimitError at the deadline."""
        starts, members, is_whole = separators_of(
            self.starts, self.neighbours, order, self.most_members, current_flag()
        )
        check_deadline()
        if not is_whole:
            raise ResourceError(
                f"{self.name}: along the elimination orders found, the messages of {len(self.sizes):,} variables have "
                f"scopes of more than {self.most_members:,} variables together, some of "
                f"{int(np.diff(starts).max(initial=0)):,} and more; elimination is out of reach. A longer search for "
                "orders (--order-seconds) may find better ones"
            )
        return Separators(starts, members)

    def is_optimal(self, order: NDArray[np.int64]) -> bool:
        """Whether no order is narrower: this one adds no edge, or its width is at most 2."""
        sets = self.separators(order)
        return 2 * len(sets.members) == len(self.neighbours) or sets.width <= 2

    def joined_cells(self, order: NDArray[np.int64], separators: Separators) -> NDArray[np.float64]:
        """Assignments of each bucket's variables, including the eliminated one, by elimination position."""
        bits = summed(*separators, self.weights) + self.weights[order]
        cells: NDArray[np.float64] = np.exp2(np.minimum(bits, np.log2(MOST_ROWS)))
        return cells

    def cells_along(self, order: NDArray[np.int64]) -> NDArray[np.float64]:
        """:meth:`joined_cells` of an order; infinite if it exceeds the limit of :meth:`separators`."""
        try:
            return self.joined_cells(order, self.separators(order))
        except ResourceError:
            return np.full(len(order), np.inf)
