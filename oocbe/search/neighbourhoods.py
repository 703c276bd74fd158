"""Neighbourhood search: most variables keep the values of a good assignment, and a depth-first search sets the others.

If root bounds are weak, a search of the whole problem takes poor early decisions and revises them slowly. With most
variables fixed, the same bounds are strong. So a few connected variables are set free, more if nothing better is found,
and each such *neighbourhood* of the assignment is searched below the incumbent, completely or up to a node limit
(*large neighbourhood search*: Shaw 1998, *Using constraint programming and local search methods to solve vehicle
routing problems*; with neighbourhoods that grow: Loudni and Boizumault 2003, *Solving constraint optimization problems
in anytime contexts*, after Mladenović and Hansen 1997, *Variable neighborhood search*).

If the largest neighbourhoods contain no improvement, many variables of the incumbent get random values, and the
resulting assignment is improved in turn. It is initially worse than the incumbent, so neighbourhoods have a root of
their own (:class:`Neighbourhoods`), below a threshold as far above the incumbent as that is above the proven bound.

Neighbourhoods prove nothing. Their assignments lower the cutoff of the main search and all other solvers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import threads_at_hand
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import BESIDE_SECONDS, Root, SearchTree, Shared, blank_node, first_bytes, kept_bytes
from oocbe.search.kernels.cpu.depth_first import AFTER, BEFORE, DECISION, FULL, IS, LEAF, NODES, PAUSED, VALUE, VARIABLE
from oocbe.search.kernels.cpu.node_state import SearchNode
from oocbe.search.subsolver import SharedBounds, SubSolver

LEAST_BITS, MOST_BITS, MORE_BITS = 22.0, 66.0, 5.5
"""Initial and maximum size of a neighbourhood, and growth per step, in bits (log2 of the number of assignments of its
free variables): 4 to 12 variables of 44 values."""

TRIES = 10
"""Number of neighbourhoods of one size without an improvement before larger ones are tried."""

MOST_NODES = 200
"""Node limit of the search of one neighbourhood."""

LEAST_SHAKEN = 1 / 3
"""Minimum share of variables with random values in a perturbation."""

MOST_LOOKED_AT = 64
"""Maximum number of functions of a variable, and of variables of a function, as candidates for the next free ones."""

NARROWER = 0.9
"""A new root is computed once the proven bound's distance to the threshold is below this share of the old."""


class Neighbourhoods(SubSolver):
    """Neighbourhood searches of one problem, one a thread, from and for the assignments of the main ``search``."""

    def __init__(self, search: DepthSearch, known: SharedBounds) -> None:
        super().__init__(known)
        self._main = search
        self._root: Root | None = None
        self._blank: SearchNode | None = None
        self._searches: list[Neighbourhood] = []

    @property
    def is_available(self) -> bool:
        """Whether the main search is open and has an assignment."""
        shared = self._main.shared
        is_open = not (self.is_over or self._main.is_over)
        return is_open and shared is not None and bool((shared.wanted >= 0).any())

    @property
    def nodes(self) -> int:  # type: ignore[override]
        """Nodes created so far by all threads."""
        return sum(int(one.search.counts[NODES]) for one in self._searches)

    @property
    def summary(self) -> str:
        """Summary for the result."""
        return f"{sum(one.tried for one in self._searches):,} neighbourhoods in {self.seconds:.3g} s"

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run all threads; without memory for a single one the solver is over."""
        known, main = self._known, self._main
        if known.is_closed:
            self.is_over = True
            return
        main.take_in()
        searches = self.prepared(threads_at_hand())
        self.is_over = not searches
        main.run_all(searches, max(seconds, BESIDE_SECONDS), deadline)

    def prepared(self, threads: int) -> list[Neighbourhood]:
        """The searches for ``threads`` threads, fewer if memory is short, below a threshold near the incumbent.

        Raises TimeLimitError: the deadline of the enclosing block came.
        """
        shared = self._main.shared
        assert shared is not None
        lower = shared.tables.least if self._known.lower is None else self._known.lower
        threshold = shared.upper + max(shared.upper - lower, 0)
        threshold = threshold if math.isfinite(threshold) else shared.upper
        if self._searches and self._searches[0].shared is not shared:  # the main search began anew
            self._root, self._blank, self._searches = None, None, []
        root = self._root
        if root is None or threshold - lower < NARROWER * (root.threshold - lower):
            root = Root(shared.tables, threshold)
            if self._blank is None:
                self._blank = blank_node(root, self._main.weights())
            root.ascend(shared.linear, self._blank)
            self._root = root
        assert self._blank is not None
        searches = self._searches
        while len(searches) < threads and shared.take_room(first_bytes(self._blank)):
            searches.append(Neighbourhood(shared, len(searches), root, self._blank, self._main.pace))
        for search in searches:
            search.next_root = root
        return searches[:threads]


class Neighbourhood(SearchTree):
    """The neighbourhood search of one thread.

    shared : data of the main search. number : of this search, the seed of its random choices.
    root, blank, pace : as of :class:`~oocbe.search.depth_tree.SearchTree`.
    next_root : of later neighbourhoods. tried : number of neighbourhoods searched.
    """

    def __init__(self, shared: Shared, number: int, root: Root, blank: SearchNode, pace: float) -> None:
        super().__init__(shared.tables, shared.linear, root, blank, pace)
        self.shared, self.next_root = shared, root
        self._random = np.random.default_rng(number)
        self._bits_of = np.log2(np.maximum(np.array(shared.tables.problem.sizes, dtype=np.float64), 1.0))
        self._values = shared.wanted.copy()
        self._worth: int | float = shared.upper
        self._bits, self._failures = LEAST_BITS, 0
        self._upper: int | float = shared.upper
        self._nodes_left = 0
        self._is_open = self._is_away = self._is_shaken = self._is_refuted = self._is_better = False
        self.tried = 0

    def work(self, until: float, deadline: Deadline) -> None:
        """Search until a time of :func:`~oocbe.runtime.compilation.working_time`, at least one step."""
        while not self.shared.is_stopped and not deadline.passed:
            if self._is_open:
                self._search_on(min(max(until - working_time(), 0.0), BESIDE_SECONDS))
            else:
                self._open()
            if working_time() >= until:
                return

    def _open(self) -> None:
        """Set variables free: those of the next neighbourhood, or a large share if no larger neighbourhood is left."""
        shared = self.shared
        self._is_shaken = self._bits > MOST_BITS
        if self._is_shaken or not self._is_away:
            with shared.changed:
                if shared.upper < self._worth:
                    self._bits, self._failures, self._is_shaken = LEAST_BITS, 0, False
                self._values[:], self._worth = shared.wanted, shared.upper
            self._is_away = False
        count = len(self._values)
        self.search.wanted[:] = -1
        self._upper = self._worth
        if self._is_shaken:
            free = self._near(int(self._random.integers(max(1, int(LEAST_SHAKEN * count)), count + 1)), math.inf)
            self.search.wanted[:] = self._random.integers(np.array(shared.tables.problem.sizes))
            self._upper = self.next_root.threshold
        else:
            free = self._near(count, self._bits)
        fixed = np.flatnonzero(~free & (self._values >= 0))
        path = np.zeros((len(fixed), AFTER + 1), dtype=np.int64)
        path[:, VARIABLE], path[:, VALUE], path[:, DECISION] = fixed, self._values[fixed], IS
        path[:, BEFORE], path[:, AFTER] = 2, 1
        self.tried += 1
        self._nodes_left, self._is_refuted, self._is_better = MOST_NODES, False, False
        self._is_open = self.begin(self.next_root, path, self._upper)
        if not self._is_open:
            self._close()

    def _near(self, most: int, bits: float) -> NDArray[np.bool_]:
        """Bool (variables,), a random connected set: at most ``most`` variables, with a total domain size of ``bits``
        bits."""
        network, count = self.root.network, len(self._bits_of)
        free = np.zeros(count, dtype=bool)
        if bits == math.inf and most > count // 2:  # adjacency does not matter
            free[self._random.permutation(count)[:most]] = True
            return free
        others = iter(self._random.permutation(count).tolist())
        frontier: list[int] = []
        left = most
        while left > 0 and bits > 0.0 and not self.shared.is_stopped:
            if frontier:
                place = int(self._random.integers(len(frontier)))
                frontier[place], frontier[-1] = frontier[-1], frontier[place]
                v = frontier.pop()
            else:
                v = next((v for v in others if not free[v]), -1)
                if v < 0:
                    break
            if free[v]:
                continue
            free[v] = True
            left, bits = left - 1, bits - float(self._bits_of[v])
            uses = network.uses[network.use_start[v] : network.use_start[v + 1]]
            for f in self._random.permutation(network.function[uses])[:MOST_LOOKED_AT].tolist():
                begin, end = int(network.function_start[f]), int(network.function_start[f + 1])
                frontier += network.variable[begin : min(end, begin + MOST_LOOKED_AT)].tolist()
        return free

    def _search_on(self, seconds: float) -> None:
        """Continue in the open neighbourhood, in one compiled call with a time limit in seconds."""
        most = min(seconds, self._nodes_left * self.pace)
        status, made = self.go_on(self._upper, most, 1 << 40, self._is_refuted)
        self._nodes_left -= max(made, 1)
        self._is_refuted = status == LEAF
        if status == LEAF:
            self._leaf()
        elif status == FULL and self.shared.take_room(kept_bytes(self.node)):
            self.grow()
        elif status != PAUSED:
            self._is_open = False
        self._is_open = self._is_open and self._nodes_left > 0
        if not self._is_open:
            self._close()

    def _leaf(self) -> None:
        """Take the assignment of the leaf if it is below the threshold."""
        value, assignment = self.leaf()
        if value is None or value >= self._upper:
            return
        self._values[:], self._worth, self._upper, self._is_better = assignment, value, value, True
        self.shared.find(value, assignment)
        if self._is_shaken:
            self._nodes_left, self._is_away = 0, True

    def _close(self) -> None:
        """Choose the size of the next neighbourhood."""
        self._failures += not self._is_better
        if self._is_better or self._is_shaken:
            self._bits, self._failures = LEAST_BITS, 0
        elif self._failures >= TRIES:
            self._bits, self._failures = self._bits + MORE_BITS, 0
