"""A depth-first search beside the one by rows, for problems in which few rows are equal and good orders differ.

Walks over rows (:mod:`oocbe.elimination.search.row_search`) go breadth first, along one order for all rows, and merge
those that agree on a separator. Where hard constraints or dense costs leave no separator to speak of, nothing merges,
and what counts is to fail early: here each node decides the variable that has the fewest values for what its functions
cost, and for how often conflicts have ended at it (Boussemart, Hemery, Lecoutre and Sais 2004, *Boosting systematic
search by weighting constraints*), or the one of the last conflict (Lecoutre, Sais, Tabary and Vidal 2009, *Reasoning
from last conflict(s) in constraint programming*). A variable of many values is decided by halves of them first
(*domain splitting*): one bound rules out a half, where values one by one would take a node each. Bounds of nodes are
those of rows.

Early decisions are the worst, and a search that goes deep below a bad one does not come back. So it pauses after some
paths have ended, its open nodes go to a heap, and the one with the least bound goes on, the deepest of equal ones
(*hybrid best-first search*: Allouche, de Givry, Katsirelos, Schiex and Zytnicki 2015, *Anytime hybrid best-first search
with tree decomposition for weighted CSP*). Ends of paths are counted, not nodes, as assignments are at the ends. The
least bound of all open nodes bounds the optimum.
"""

from __future__ import annotations

import heapq
import math
import sys
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.search.knowledge import Knowledge
from oocbe.elimination.search.row_search import ascend_root
from oocbe.errors import OocbeError, TimeLimitError
from oocbe.kernels.cpu.pruning.depth_first import (
    AFTER,
    BEFORE,
    DECISION,
    DEPTH,
    ENDS,
    EXHAUSTED,
    FULL,
    IS_NOT,
    LAST,
    LEAF,
    NODES,
    WEIGHT_BITS,
    Search,
    opposite,
    restore,
    search_depth_first,
)
from oocbe.kernels.cpu.pruning.linear_bounds import MOST_ROUNDS
from oocbe.kernels.cpu.pruning.node_state import Node, near_uses
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.pruning.incumbent import find_incumbent
from oocbe.pruning.linear_parts import laid_out
from oocbe.pruning.row_ascent import RowAscent
from oocbe.pruning.row_reduction import Reduction
from oocbe.pruning.row_tables import Tables
from oocbe.settings.option_values import Gap
from oocbe.system.compilation import working_time
from oocbe.system.deadline import Deadline

PASSES, RADIUS = 2, 2
"""Passes for each node, and how many functions away from a variable that loses values others are passed over."""

ROOT_ROUNDS = 64
"""Of multipliers of linear constraints and passes at the root, at most."""

ROOT_WORK, MULTIPLIER_WORK = 1 << 26, 8
"""Coefficients and cells looked at in all of these, at most: some tenths of a second, as it is one compiled call; and
how often a coefficient is looked at for a multiplier."""

FIRST_NODES = 64
"""Made in the first compiled call; later ones by the pace, for :data:`CALL_SECONDS`."""

LOOK_SECONDS, LOOK_ITERATIONS = 0.2, 5000
"""Of a search for an assignment where none is known: the more is ruled out at the root."""

CALL_SECONDS = 0.02
"""Of a compiled call: signals, limits and assignments found elsewhere are looked at after it."""

FIRST_PAUSE, LONGEST_PAUSE = 32, 1 << 14
"""Ends of paths after which another open node goes on: at first, and at most."""

MOST_RESTORED, LEAST_RESTORED = 0.1, 0.05
"""Nodes made again are kept between these parts of all, by longer and shorter pauses."""

MOST_OPEN = 1 << 18
"""Open nodes at a time: beyond them the search goes on where it is."""

FIRST_ROOM = 4
"""Times what one node can change at most can be kept at first; twice as much each time that it is too little."""


class DepthSearch:
    """One search of what reduction has left of a min-sum problem.

    Parameters
    ----------
    reduction : what is searched, and the way back. known : filled in. memory : bytes that states may take.

    Attributes
    ----------
    nodes : made. seconds : taken. is_over : whether there is nothing more to do.
    lower : bound on the optimum that it has shown by itself, where it has.
    """

    def __init__(self, reduction: Reduction, known: Knowledge, memory: int) -> None:
        self._reduction, self._tables, self._known, self._memory = reduction, reduction.tables, known, memory
        self.nodes = 0
        self.seconds = 0.0
        self.is_over = False
        self.lower: int | float | None = None
        self._work_begin, self._begin_seconds, self._ahead, self._at_work = 0.0, 0.0, 1.0, 0.0
        self._ascent: RowAscent | None = None
        self._search: Search | None = None
        self._node: Node | None = None
        self._linear = laid_out(self._tables)
        self._stale: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self._base: NDArray[np.int64] = np.zeros((0, AFTER + 1), dtype=np.int64)
        self._heap: list[tuple[int | float, int, int, Any]] = []
        self._pushed = self._restored = 0
        self._pause, self._left = FIRST_PAUSE, FIRST_PAUSE
        self._pace = CALL_SECONDS / FIRST_NODES
        self._least: int | float = -math.inf
        self._is_at_node = self._is_refuted = False

    def work(self, seconds: float, deadline: Deadline) -> None:
        """Go on for so many seconds, a compiled call at least.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        begin = self._work_begin = working_time()
        try:
            while not self.is_over:
                deadline.check()
                self._step()
                if working_time() - begin >= seconds:
                    break
        except MemoryError:
            self.is_over = True
        finally:
            self.seconds += working_time() - begin

    @property
    def expected(self) -> float:
        """Seconds from the root to the end, reckoned from the part of the tree that is behind it, each value of a
        variable being as much as another; infinite before the first part."""
        behind = 1.0 - self._ahead - self._is_at_node * self._at_work
        return (self.seconds - self._begin_seconds) / behind if behind > 0.0 else math.inf

    @property
    def sentence(self) -> str:
        """What it did, for a result."""
        return f"depth-first search: {self.nodes:,} nodes in {self.seconds:.3g} s, over {self._reduction.sentence}"

    def _step(self) -> None:
        """One compiled call, or what comes between two."""
        known = self._known
        if known.is_closed:
            self.is_over = True
        elif self._search is None:
            self._begin()
        elif self._is_at_node:
            self._search_on()
        elif self._heap:
            self._go_on_elsewhere()
        else:
            known.raise_lower(known.upper_bound, "depth-first search")
            self.is_over = True

    def _begin(self) -> None:
        """Lay out the root, below an assignment wherever one can be had."""
        known = self._known
        if known.value is None:
            found = None
            try:
                found = find_incumbent(known.problem, LOOK_SECONDS, iterations=LOOK_ITERATIONS)
            except TimeLimitError:
                raise
            except OocbeError:
                pass  # not every problem has such a search
            if found is not None:
                known.offer(found.value, found.assignment, found.method)
        self._root()
        assert self._node is not None
        if _kept_bytes(self._node) > self._memory:
            self.is_over = True
            return
        sizes = self._tables.problem.sizes
        count = len(sizes)
        decisions = sum(sizes) + count + 1  # at most, as each removes a value
        self._search = Search(
            bounds=np.zeros(decisions, dtype=np.int64),
            trail=np.zeros((decisions, AFTER + 1), dtype=np.int64),
            mark=np.zeros((decisions, 3), dtype=np.int64),
            wanted=np.full(count, -1, dtype=np.int64),
            counts=np.array([0, 0, -1, 0], dtype=np.int64),
        )
        heapq.heappush(self._heap, (-math.inf, 0, 0, self._base))
        self._begin_seconds = self.seconds + working_time() - self._work_begin

    def _root(self) -> None:
        """An ascent below the incumbent, as far as passes over all variables bring it."""
        known = self._known
        self._ascent = ascent = RowAscent(self._tables, known.upper_bound)
        for _ in ascend_root(ascent):
            pass
        node = self._node
        if node is None:
            self._node = node = _node_of(ascent, self._weights())
        node.state[:], node.stale[:] = ascent.state, 1
        failures = node.failures.copy()
        work = MULTIPLIER_WORK * len(self._linear.coefficient) + int(self._tables.pass_work)
        rounds = max(1, min(ROOT_ROUNDS, ROOT_WORK // max(1, work)))
        ascent.bound = self._restored_bound(ascent, rounds, self._base)
        node.failures[:] = failures  # those at the root are no conflicts of decisions
        ascent.state, self._stale = node.state.copy(), node.stale.copy()
        self._raise(ascent.in_costs(ascent.bound), "dual ascent")

    def _restored_bound(self, ascent: RowAscent, rounds: int, path: NDArray[np.int64]) -> int:
        """Make the state of a node again; returns its bound."""
        beside = (self._linear, self._node, ascent.bound, ascent.need, PASSES, RADIUS, rounds)
        return int(restore(ascent.network, *beside, path))

    def _weights(self) -> NDArray[np.int64]:
        """What speaks for deciding the variables of each function early: what it costs on average."""
        most = max(float(self._known.upper_bound - self._tables.least), sys.float_info.min)
        above = self._tables.weights(most)[[len(part.scope) > 1 for part in self._tables.parts]]
        mean = (float(above.mean()) if len(above) else 0.0) or 1.0
        return np.rint(above * ((1 << WEIGHT_BITS) / mean)).astype(np.int64)

    def _raise(self, lower: int | float, why: str) -> None:
        """Report a bound on the optimum."""
        if self.lower is None or lower > self.lower:
            self.lower = lower
        self._known.raise_lower(lower, why)

    def _go_on_elsewhere(self) -> None:
        """Take the open node with the least bound, and make its state again."""
        search, node, ascent, known = self._search, self._node, self._ascent, self._known
        assert search is not None and node is not None and ascent is not None
        low, _, _, path = heapq.heappop(self._heap)
        self._least = low
        if low > -math.inf:
            self._raise(low, "depth-first search")
        self._at_work = _part(path)
        self._ahead -= self._at_work
        if low >= known.upper_bound:
            return
        if known.upper_bound < ascent.threshold:
            self._root()
            ascent = self._ascent
            assert ascent is not None
        if ascent.bound >= ascent.need:
            return
        node.state[:], node.stale[:] = ascent.state, self._stale
        bound = self._restored_bound(ascent, MOST_ROUNDS, path)
        self._restored += 1 + len(path) // 4
        if bound >= ascent.need:
            return
        search.bounds[0], search.mark[0] = bound, (len(path), 0, 0)
        search.trail[: len(path)] = path
        search.counts[DEPTH], search.counts[LAST] = 0, -1
        self._is_at_node, self._is_refuted = True, False
        self._left = self._pause

    def _search_on(self) -> None:
        """Search on from the node at work."""
        search, node, ascent, known = self._search, self._node, self._ascent, self._known
        assert search is not None and node is not None and ascent is not None
        need = ascent.need_below(known.upper_bound)
        nodes = max(1, int(CALL_SECONDS / self._pace))
        begin, before, ends = working_time(), int(search.counts[NODES]), int(search.counts[ENDS])
        status = search_depth_first(
            ascent.network, self._linear, node, search, need, PASSES, RADIUS, nodes, self._left, self._is_refuted
        )
        made = int(search.counts[NODES]) - before
        self.nodes += made
        self._left -= int(search.counts[ENDS]) - ends
        if made:
            self._pace = (working_time() - begin) / made
        self._is_refuted = False
        if status == EXHAUSTED:
            self._is_at_node = False
        elif status == LEAF:
            self._leaf()
            self._is_refuted = True
        elif status == FULL and 2 * _kept_bytes(node) <= self._memory:
            self._node = node._replace(**{name: _twice(getattr(node, name)) for name in KEPT_ARRAYS})
        elif status == FULL or (self._left <= 0 and len(self._heap) < MOST_OPEN):
            self._put_back()
        elif self._left <= 0:
            self._left = self._pause

    def _leaf(self) -> None:
        """Take the assignment at the node at work, where it is better than what is known."""
        search, node, ascent, known = self._search, self._node, self._ascent, self._known
        assert search is not None and node is not None and ascent is not None
        values = np.zeros((1, len(search.wanted)), dtype=np.int64)
        ascent.assign(node.state[None], np.arange(len(search.wanted)), values)
        assignment = tuple(values[0].tolist())
        value = self._tables.evaluate(assignment)
        if value is not None and value < known.upper_bound:
            known.offer(value, self._reduction.complete(assignment), "depth-first search")
            search.wanted[:] = values[0]

    def _put_back(self) -> None:
        """Put all open nodes of the tree at work on the heap."""
        search, ascent = self._search, self._ascent
        assert search is not None and ascent is not None
        depth = int(search.counts[DEPTH])
        for place in range(depth + 1):
            length = int(search.mark[place, 0])
            path = search.trail[: length + (place < depth)].copy()
            if place < depth:
                last = path[-1]
                last[DECISION], last[AFTER] = opposite(last[DECISION]), last[BEFORE] - last[AFTER]
            low = max(self._least, ascent.in_costs(int(search.bounds[place])))
            if low < self._known.upper_bound:
                self._pushed += 1
                self._ahead += _part(path)
                heapq.heappush(self._heap, (low, -int((path[:, DECISION] != IS_NOT).sum()), self._pushed, path))
        self._is_at_node = False
        if self._restored > MOST_RESTORED * self.nodes:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        elif self._restored < LEAST_RESTORED * self.nodes and self._pause > FIRST_PAUSE:
            self._pause //= 2


KEPT_ARRAYS = ("kept", "parts", "flips")
"""Of a node: what grows."""


def _node_of(ascent: RowAscent, weight: NDArray[np.int64]) -> Node:
    """A node with room for any row of a problem. weight : int64 (functions,)."""
    network = ascent.network
    variables, functions, uses = len(network.value_start) - 1, len(network.function_start) - 1, len(network.function)
    linear = len(ascent.tables.linear)
    sizes = np.diff(network.value_start)
    return Node(
        near=near_uses(network, np.int32(ascent.need)),
        state=ascent.state.copy(),
        stale=np.ones(uses, dtype=np.uint8),
        left=np.ones(variables, dtype=np.int64),
        open_of=np.zeros(functions, dtype=np.int64),
        tied=np.zeros(variables, dtype=np.int64),
        weight=weight,
        reach=np.zeros(variables, dtype=np.uint8),
        failures=np.zeros(variables),
        least=np.zeros(sizes.max(initial=1), dtype=np.int32),
        share=np.zeros(sizes.max(initial=1), dtype=np.int32),
        digits=np.zeros((3, np.diff(network.function_start).max(initial=1)), dtype=np.int64),
        ahead=np.zeros(np.diff(network.use_start).max(initial=1), dtype=np.bool_),
        saved_values=np.zeros(variables, dtype=np.int64),
        saved_message=np.zeros(uses, dtype=np.int64),
        saved_stale=np.zeros(uses, dtype=np.int64),
        saved_number=np.zeros(linear, dtype=np.int64),
        kept=np.empty(FIRST_ROOM * len(ascent.state), dtype=np.int32),
        parts=np.empty((FIRST_ROOM * (variables + uses + linear), 3), dtype=np.int64),
        flips=np.empty(FIRST_ROOM * uses, dtype=np.int64),
        counts=np.zeros(5, dtype=np.int64),
    )


def _kept_bytes(node: Node) -> int:
    return sum(int(getattr(node, name).nbytes) for name in KEPT_ARRAYS)


def _twice(array: NDArray[Any]) -> NDArray[Any]:
    """An array with as much room again."""
    return np.concatenate([array, np.empty_like(array)])


def _part(path: NDArray[np.int64]) -> float:
    """The part of the whole tree below some decisions, each value left to a variable being as much as another."""
    return float((path[:, AFTER] / path[:, BEFORE]).prod())


def load_loops() -> None:
    """Load the compiled loops, or compile them: a problem whose root closes nothing needs them all."""
    variables = tuple(Variable(name, 2) for name in "abc")
    differ = [Function.from_array(pair, [[1, 0], [0, 1]]) for pair in combinations(range(3), 2)]
    problem = Problem(variables, tuple(differ))
    tables = Tables.of(problem)
    assert tables is not None
    known = Knowledge(problem, Gap(), lambda *_: None)
    known.offer(3, (0, 0, 0), "any assignment")
    search = DepthSearch(Reduction(tables, (0, 1, 2), (), problem.sizes), known, 1 << 20)
    search.work(math.inf, Deadline())
