"""One thread of a depth-first search: it takes an open node, searches below it, and puts back what is left.

Each worker has a state and a tree of its own; what all share (:class:`Shared`) is changed under one lock, which is
never held while a compiled loop runs. A worker calls nobody outside the search: what it finds is told by whoever made
it go on, once no other is at work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.search.open_nodes import OpenNodes, Path
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
    Search,
    opposite,
    restore,
    search_depth_first,
)
from oocbe.kernels.cpu.pruning.linear_bounds import MOST_ROUNDS, Linear
from oocbe.kernels.cpu.pruning.node_state import Node, near_uses
from oocbe.pruning.row_ascent import RowAscent
from oocbe.pruning.row_tables import Tables
from oocbe.system.compilation import working_time
from oocbe.system.deadline import Deadline

PASSES, RADIUS = 2, 2
"""Passes for each node, and how many functions away from a variable that loses values others are passed over."""

FIRST_NODES = 64
"""Made in the first compiled call; later ones by the pace, for so many seconds."""

CALL_SECONDS = 0.02
"""Of a compiled call: signals, limits and assignments found elsewhere are looked at after it."""

BESIDE_SECONDS, SHARING_SECONDS = 0.005, 0.001
"""Of a compiled call beside those of other threads, and where one of these waits for a node: less than what a call
takes beside its nodes, a twentieth of a millisecond, is not felt."""

FIRST_PAUSE, LONGEST_PAUSE = 32, 1 << 14
"""Ends of paths after which another open node goes on: at first, and at most."""

MOST_RESTORED, LEAST_RESTORED = 0.1, 0.05
"""Nodes made again are kept between these parts of all, by longer and shorter pauses."""

MOST_OPEN = 1 << 18
"""Open nodes at a time: beyond them the search goes on where it is."""

FIRST_ROOM = 4
"""Times what one node can change at most can be kept at first; twice as much each time that it is too little."""

KEPT_ARRAYS = ("kept", "parts", "flips")
"""Of a node: what grows."""

READ_ONLY = ("near", "weight")
"""Of a node: what no loop writes to, so that all workers have the same."""


class Shared:
    """What all workers of one search share.

    Parameters
    ----------
    tables, linear : what is searched. memory : bytes that states may take. upper : as below.

    Attributes
    ----------
    changed : the lock under which all that follows is changed while several workers are at work; told of open nodes.
    open : the open nodes. root : an ascent at the root, with the state and the bound from which nodes are made.
    stale : uint8 (uses,), what is stale in that state.
    upper : only assignments with a value below it are of interest. found : the last one that lowered it, and its value;
        None once it is told. wanted : int64 (variables,), the values of the last one that was found; -1: none was.
    nodes, restored : made, and made again. pause : ends of paths until another node goes on.
    kept_bytes : that all workers keep. waiting : workers that have no node. is_stopped : whether all are to return.
    """

    def __init__(self, tables: Tables, linear: Linear, memory: int, upper: int | float, root: RowAscent) -> None:
        self.tables, self.linear, self.memory = tables, linear, memory
        self.changed = Condition()
        self.open = OpenNodes()
        self.root = root
        self.stale: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self.upper = upper
        self.found: tuple[int | float, tuple[int, ...]] | None = None
        self.wanted = np.full(len(tables.problem.sizes), -1, dtype=np.int64)
        self.nodes = self.restored = self.kept_bytes = self.waiting = 0
        self.pause = FIRST_PAUSE
        self.is_stopped = False


class Worker:
    """One thread's part of a search.

    Parameters
    ----------
    shared : by all of them. number : of this one. blank : a node as of :func:`blank_node`.
    pace, failures : seconds for a node, and float64 (variables,) conflicts, as far as others know.

    Attributes
    ----------
    node, search, pace : its own. is_at_node : whether it has a node at work.
    is_refuted : whether the deepest node there is done with.
    """

    def __init__(
        self, shared: Shared, number: int, blank: Node, pace: float, failures: NDArray[np.float64] | None = None
    ) -> None:
        self.shared, self._number, self.pace = shared, number, pace
        self.node = with_room(blank)
        self.node.failures[:] = 0.0 if failures is None else failures
        sizes = shared.tables.problem.sizes
        decisions = sum(sizes) + len(sizes) + 1  # at most, as each removes a value
        self.search = Search(
            bounds=np.zeros(decisions, dtype=np.int64),
            trail=np.zeros((decisions, AFTER + 1), dtype=np.int64),
            mark=np.zeros((decisions, 3), dtype=np.int64),
            wanted=shared.wanted.copy(),
            counts=np.array([0, 0, -1, 0], dtype=np.int64),
        )
        shared.kept_bytes += kept_bytes(self.node)
        self._ascent = shared.root
        self._left = 0
        self.is_at_node = self.is_refuted = False

    def work(self, until: float, deadline: Deadline) -> None:
        """Search on beside other workers until a moment of :func:`~oocbe.system.compilation.working_time`."""
        shared = self.shared
        while not shared.is_stopped and not deadline.passed:
            left = until - working_time()
            if left <= 0.0:
                return
            if self.is_at_node:
                most = SHARING_SECONDS if shared.waiting else BESIDE_SECONDS
                self.search_on(min(left, most))
                if shared.waiting and self.is_at_node and self.search.counts[DEPTH] > 0:
                    self._put_back()
            elif not self.take() and not self._wait(left):
                return

    def _wait(self, seconds: float) -> bool:
        """Wait for a node that is put back; returns whether one was."""
        shared = self.shared
        with shared.changed:
            shared.waiting += 1
            try:
                shared.changed.wait_for(lambda: shared.open.heap or not shared.open.at_work, seconds)
            finally:
                shared.waiting -= 1
            return bool(shared.open.heap)

    def take(self) -> bool:
        """Take the open node with the least bound, and make its state again; returns whether there was one."""
        shared, node, search = self.shared, self.node, self.search
        with shared.changed:
            if not shared.open.heap:
                return False
            taken = shared.open.take(self._number)
            self._ascent, stale = shared.root, shared.stale
            upper, self._left = shared.upper, shared.pause
            search.wanted[:] = shared.wanted
        # Below another root than the one that the node was found under: its decisions are all that counts of it.
        ascent = self._ascent
        need = ascent.need_below(upper)
        path = taken.path.decisions
        bound = need
        if taken.low < upper and ascent.bound < need:
            node.state[:], node.stale[:] = ascent.state, stale
            beside = (shared.linear, node, ascent.bound, need, PASSES, RADIUS, MOST_ROUNDS)
            bound = int(restore(ascent.network, *beside, path))
            with shared.changed:
                shared.restored += 1 + len(path) // 4
        if bound >= need:
            self._settle()
            return True
        search.bounds[0], search.mark[0] = bound, (len(path), 0, 0)
        search.trail[: len(path)] = path
        search.counts[DEPTH], search.counts[LAST] = 0, -1
        self.is_at_node, self.is_refuted = True, False
        return True

    def search_on(self, seconds: float) -> None:
        """Search on from the node at work, in one compiled call of so many seconds at most."""
        shared, search = self.shared, self.search
        need = self._ascent.need_below(shared.upper)
        begin, before, ends = working_time(), int(search.counts[NODES]), int(search.counts[ENDS])
        most = max(1, int(seconds / self.pace))
        beside = (need, PASSES, RADIUS, most, self._left, self.is_refuted)
        status = search_depth_first(self._ascent.network, shared.linear, self.node, search, *beside)
        made = int(search.counts[NODES]) - before
        with shared.changed:
            shared.nodes += made
        self._left -= int(search.counts[ENDS]) - ends
        if made:
            self.pace = (working_time() - begin) / made
        self.is_refuted = False
        if status == EXHAUSTED:
            self._settle()
        elif status == LEAF:
            self._leaf()
            self.is_refuted = True
        elif status == FULL and self._has_grown():
            pass
        elif status == FULL or (self._left <= 0 and len(shared.open.heap) < MOST_OPEN):
            self._put_back()
        elif self._left <= 0:
            self._left = shared.pause

    def _settle(self) -> None:
        """Nothing is open below the node at work."""
        self.is_at_node = False
        with self.shared.changed:
            self.shared.open.settle(self._number)
            self.shared.changed.notify_all()

    def _has_grown(self) -> bool:
        """Take twice as much room for what nodes change, where there is memory for it."""
        shared, more = self.shared, kept_bytes(self.node)
        with shared.changed:
            if shared.kept_bytes + more > shared.memory:
                return False
            shared.kept_bytes += more
        self.node = self.node._replace(**{name: _twice(getattr(self.node, name)) for name in KEPT_ARRAYS})
        return True

    def _leaf(self) -> None:
        """Take the assignment at the node at work, where it is better than what is known."""
        shared = self.shared
        values = np.zeros((1, len(self.search.wanted)), dtype=np.int64)
        self._ascent.assign(self.node.state[None], np.arange(values.shape[1]), values)
        assignment = tuple(values[0].tolist())
        value = shared.tables.evaluate(assignment)
        with shared.changed:
            if value is not None and value < shared.upper and math.isfinite(value):
                shared.upper, shared.found = value, (value, assignment)
                shared.wanted[:] = self.search.wanted[:] = values[0]

    def put_back(self) -> None:
        """Put all open nodes of the tree at work on the heap, where there are any."""
        if self.is_at_node:
            self._put_back()

    def _put_back(self) -> None:
        shared = self.shared
        self.is_at_node = False
        with shared.changed:
            shared.open.put_back(self._number, self._open_nodes())
            if shared.restored > MOST_RESTORED * shared.nodes:
                shared.pause = min(2 * shared.pause, LONGEST_PAUSE)
            elif shared.restored < LEAST_RESTORED * shared.nodes and shared.pause > FIRST_PAUSE:
                shared.pause //= 2
            shared.changed.notify_all()

    def _open_nodes(self) -> Iterator[tuple[int | float, int, float, Path]]:
        """Of each open node of the tree at work its bound, minus the values decided for, its part, and its path."""
        search = self.search
        depth = int(search.counts[DEPTH])
        marks = search.mark[: depth + 1, 0].tolist()
        trail = search.trail[: marks[depth]].copy()
        parts = np.cumprod(np.append(1.0, trail[:, AFTER] / trail[:, BEFORE])).tolist()
        decided = np.cumsum(np.append(0, trail[:, DECISION] != IS_NOT)).tolist()
        for place, length in enumerate(marks):
            low = self._ascent.in_costs(int(search.bounds[place]))
            if low >= self.shared.upper:
                continue
            if place == depth:
                yield low, -decided[length], parts[length], Path(trail, length, False)
            else:
                last = trail[length]
                part = parts[length] * float((last[BEFORE] - last[AFTER]) / last[BEFORE])
                positive = int(opposite(last[DECISION]) != IS_NOT)
                yield low, -decided[length] - positive, part, Path(trail, length + 1, True)


def blank_node(ascent: RowAscent, weight: NDArray[np.int64]) -> Node:
    """A node without room for what is kept. weight : int64 (functions,)."""
    network = ascent.network
    variables, functions, uses = len(network.value_start) - 1, len(network.function_start) - 1, len(network.function)
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
        saved_number=np.zeros(len(ascent.tables.linear), dtype=np.int64),
        kept=np.empty(0, dtype=np.int32),
        parts=np.empty((0, 3), dtype=np.int64),
        flips=np.empty(0, dtype=np.int64),
        counts=np.zeros(5, dtype=np.int64),
    )


def with_room(blank: Node) -> Node:
    """A node with arrays of its own, and room for any row."""
    copies = {name: getattr(blank, name).copy() for name in Node._fields if name not in READ_ONLY}
    parts = len(blank.left) + len(blank.stale) + len(blank.saved_number)
    rooms = {"kept": (len(blank.state),), "parts": (parts, 3), "flips": (len(blank.stale),)}
    for name, (length, *others) in rooms.items():
        copies[name] = np.empty((FIRST_ROOM * length, *others), dtype=copies[name].dtype)
    return blank._replace(**copies)


def first_bytes(blank: Node) -> int:
    """What a node keeps at first."""
    parts = len(blank.left) + len(blank.stale) + len(blank.saved_number)
    return FIRST_ROOM * (4 * len(blank.state) + 24 * parts + 8 * len(blank.stale))


def kept_bytes(node: Node) -> int:
    """Bytes for what nodes before it were."""
    return sum(int(getattr(node, name).nbytes) for name in KEPT_ARRAYS)


def _twice(array: NDArray[Any]) -> NDArray[Any]:
    """An array with as much room again."""
    return np.concatenate([array, np.empty_like(array)])
