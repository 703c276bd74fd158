"""One thread of a depth-first search: it takes an open node, searches below it, and returns the remaining open nodes.

Each worker has its own state and tree. Shared data (:class:`Shared`) is changed under one lock, which is never held
during a compiled loop. Workers report nothing outside the search: its owner reports their results when no worker runs.

A node is *open* while some assignments below it are not settled. It is either on a heap, or held by a worker. Three
atomic steps move it (callers hold the search's lock):

- :meth:`OpenNodes.take`: from the heap to a worker;
- :meth:`OpenNodes.put_back`: a worker's node is replaced by the open nodes below it, on the heap;
- :meth:`OpenNodes.settle`: a worker's node is removed, as nothing below it is open.

So every unsettled assignment is below a node on the heap or of a worker at any time, and costs at least the least bound
of all these nodes, :attr:`OpenNodes.least`. A worker's improvements of its node's bound count only after
:meth:`OpenNodes.put_back`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from threading import Condition
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.row_tables import ScopeTables
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.depth_tree import Root, Tree, kept_bytes
from oocbe.search.kernels.cpu.depth_first import (
    AFTER,
    BEFORE,
    DECISION,
    DEPTH,
    ENDS,
    EXHAUSTED,
    FULL,
    IS_NOT,
    LEAF,
    opposite,
)
from oocbe.search.kernels.cpu.linear_bounds import Linear
from oocbe.search.kernels.cpu.node_state import SearchNode


class Path(NamedTuple):
    """The decisions from the root to a node.

    trail : int64 (decisions, 5), see :data:`~oocbe.search.kernels.cpu.depth_first.VARIABLE`; shared with other paths,
        read-only. length : number of leading decisions of the path.
    is_opposite : whether the last decision is replaced by its complement.
    """

    trail: NDArray[np.int64]
    length: int
    is_opposite: bool

    @property
    def decisions(self) -> NDArray[np.int64]:
        """The decisions as a new array: int64 (decisions, 5)."""
        made = self.trail[: self.length].copy()
        if self.is_opposite:
            last = made[-1]
            last[DECISION], last[AFTER] = opposite(last[DECISION]), last[BEFORE] - last[AFTER]
        return made


ROOT = Path(np.zeros((0, AFTER + 1), dtype=np.int64), 0, False)
"""The path of the root."""


class OpenNode(NamedTuple):
    """An open node, in heap order.

    low : lower bound of assignments below it. depth : negated number of decided values; deeper nodes come first.
    number : unique. part : share of the whole tree. path : from the root.
    """

    low: int | float
    depth: int
    number: int
    part: float
    path: Path


class OpenNodes:
    """The nodes on the heap and those of workers; initially, the root is on the heap.

    Attributes
    ----------
    heap : of nodes, least first. at_work : node of each worker, by the worker's number.
    """

    def __init__(self) -> None:
        self.heap: list[OpenNode] = [OpenNode(-math.inf, 0, 0, 1.0, ROOT)]
        self.at_work: dict[int, OpenNode] = {}
        self._pushed = 0
        self._ahead = 1.0

    def take(self, worker: int) -> OpenNode:
        """Assign the open node with the least bound (the deepest on ties) to an idle worker."""
        assert worker not in self.at_work
        node = self.heap[0]
        self.at_work[worker] = node
        heapq.heappop(self.heap)
        self._ahead -= node.part
        return node

    def put_back(self, worker: int, left: Iterable[tuple[int | float, int, float, Path]]) -> None:
        """Replace a worker's node by the open nodes below it: bound, depth, part and path of each."""
        low = self.at_work[worker].low
        for bound, depth, part, path in left:
            self._pushed += 1
            self._ahead += part
            heapq.heappush(self.heap, OpenNode(max(low, bound), depth, self._pushed, part, path))
        del self.at_work[worker]

    def settle(self, worker: int) -> None:
        """Close a worker's node."""
        del self.at_work[worker]

    @property
    def is_empty(self) -> bool:
        """Whether no node is open, on the heap or at work."""
        return not self.heap and not self.at_work

    @property
    def least(self) -> int | float:
        """Lower bound on all open assignments; infinite if none is open."""
        nodes = [*self.heap[:1], *self.at_work.values()]
        return min((node.low for node in nodes), default=math.inf)

    @property
    def behind(self) -> float:
        """Share of the whole tree that is settled, if all values of a variable count equally."""
        return 1.0 - self._ahead - sum(node.part for node in self.at_work.values())


FIRST_NODES = 64
"""Number of nodes of the first compiled call. Later calls derive theirs from :data:`CALL_SECONDS` and the pace."""

CALL_SECONDS = 0.02
"""Duration of a compiled call, in seconds. Signals, limits and other solvers' incumbents are checked after it."""

BESIDE_SECONDS, SHARING_SECONDS = 0.005, 0.001
"""Duration of a compiled call, in seconds, beside other threads, and while one of them waits for a node. The overhead
of a call, 0.05 ms, is negligible against both."""

FIRST_PAUSE, LONGEST_PAUSE = 256, 1 << 14
"""Initial and maximum number of path ends before the search switches to another open node. With 32, toulbar2's file
of CELAR6-SUB0 took 6,073 nodes in place of 1,265, and CELAR6-SUB1-24 16,536 in place of 12,547."""

MOST_RESTORED, LEAST_RESTORED = 0.1, 0.05
"""Maximum and minimum share of restored nodes; longer and shorter pauses keep it in between."""

MOST_OPEN = 1 << 18
"""Maximum number of open nodes. Beyond it, the search does not switch nodes."""


class Shared:
    """Data shared by the workers of one search.

    Parameters
    ----------
    tables, linear : the problem. memory : limit of the states, in bytes. upper : as below.

    Attributes
    ----------
    changed : lock of all following attributes while several workers run; notified about open nodes.
    open : the open nodes. root : of the whole tree, below ``upper``.
    upper : only assignments below it count. found : the last improvement and its value, None once reported.
    wanted : int64 (variables,), values of the last improvement; -1: none.
    nodes, restored : number of nodes created, and restored. pause : path ends until another node continues.
    kept_bytes : of all workers. waiting : number of workers without a node. is_stopped : whether all workers must
        return.
    """

    def __init__(self, tables: ScopeTables, linear: Linear, memory: int, upper: int | float, root: Root) -> None:
        self.tables, self.linear, self.memory = tables, linear, memory
        self.changed = Condition()
        self.open = OpenNodes()
        self.root = root
        self.upper = upper
        self.found: tuple[int | float, tuple[int, ...]] | None = None
        self.wanted = np.full(len(tables.problem.sizes), -1, dtype=np.int64)
        self.nodes = self.restored = self.kept_bytes = self.waiting = 0
        self.pause = FIRST_PAUSE
        self.is_stopped = False

    def take_room(self, size: int) -> bool:
        """Reserve memory for one more tree; returns whether it was available."""
        with self.changed:
            if self.kept_bytes + size > self.memory:
                return False
            self.kept_bytes += size
        return True

    def find(self, value: int | float, assignment: NDArray[np.int64]) -> bool:
        """Offer an assignment, int64 (variables,); returns whether it improves on ``upper``."""
        with self.changed:
            if value >= self.upper:
                return False
            self.upper, self.found = value, (value, tuple(assignment.tolist()))
            self.wanted[:] = assignment
        return True


class Worker(Tree):
    """The search of one thread.

    Parameters
    ----------
    shared : by all workers. number : of this worker. blank : a node as of :func:`blank_node`.
    pace, failures : seconds per node, and float64 (variables,) conflict weights, initially.

    Attributes
    ----------
    shared : as above. is_at_node : whether it has a current node.
    is_refuted : whether the current deepest node is finished.
    """

    def __init__(
        self, shared: Shared, number: int, blank: SearchNode, pace: float, failures: NDArray[np.float64] | None = None
    ) -> None:
        super().__init__(shared.tables, shared.linear, shared.root, blank, pace, failures)
        self.shared, self._number = shared, number
        self.search.wanted[:] = shared.wanted
        shared.kept_bytes += kept_bytes(self.node)
        self._left = 0
        self.is_at_node = self.is_refuted = False

    def work(self, until: float, deadline: Deadline) -> None:
        """Search beside other workers until a time of :func:`~oocbe.runtime.compilation.working_time`."""
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
        """Wait for a returned node; returns whether one came."""
        shared = self.shared
        with shared.changed:
            shared.waiting += 1
            try:
                shared.changed.wait_for(lambda: shared.open.heap or not shared.open.at_work, seconds)
            finally:
                shared.waiting -= 1
            return bool(shared.open.heap)

    def take(self) -> bool:
        """Take the open node with the least bound, and restore its state; returns whether there was one."""
        shared = self.shared
        with shared.changed:
            if not shared.open.heap:
                return False
            taken = shared.open.take(self._number)
            root, upper, self._left = shared.root, shared.upper, shared.pause
            self.search.wanted[:] = shared.wanted
        # The root may have changed since the node was created: only its decisions are kept.
        path = taken.path.decisions
        if taken.low < upper and root.bound < root.scale.cap_for(upper):
            with shared.changed:
                shared.restored += 1 + len(path) // 4
        self.is_at_node, self.is_refuted = taken.low < upper and self.begin(root, path, upper), False
        if not self.is_at_node:
            self._settle()
        return True

    def search_on(self, seconds: float) -> None:
        """Continue the search from the current node, in one compiled call with a time limit in seconds."""
        shared, counts = self.shared, self.search.counts
        ends = int(counts[ENDS])
        status, made = self.go_on(shared.upper, seconds, self._left, self.is_refuted)
        with shared.changed:
            shared.nodes += made
        self._left -= int(counts[ENDS]) - ends
        self.is_refuted = False
        if status == EXHAUSTED:
            self._settle()
        elif status == LEAF:
            self._leaf()
            self.is_refuted = True
        elif status == FULL and shared.take_room(kept_bytes(self.node)):
            self.grow()
        elif status == FULL or (self._left <= 0 and len(shared.open.heap) < MOST_OPEN):
            self._put_back()
        elif self._left <= 0:
            self._left = shared.pause

    def _settle(self) -> None:
        """Finish the current node: nothing below it is open."""
        self.is_at_node = False
        with self.shared.changed:
            self.shared.open.settle(self._number)
            self.shared.changed.notify_all()

    def _leaf(self) -> None:
        """Offer the assignment at the current node."""
        value, assignment = self.leaf()
        if value is not None and self.shared.find(value, assignment):
            self.search.wanted[:] = assignment

    def put_back(self) -> None:
        """Return all open nodes of the tree to the heap, if there are any."""
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
        """Bound, negated number of decided values, share of the tree, and path of each open node of the tree."""
        search = self.search
        depth = int(search.counts[DEPTH])
        marks = search.mark[: depth + 1, 0].tolist()
        trail = search.trail[: marks[depth]].copy()
        parts = np.cumprod(np.append(1.0, trail[:, AFTER] / trail[:, BEFORE])).tolist()
        decided = np.cumsum(np.append(0, trail[:, DECISION] != IS_NOT)).tolist()
        for place, length in enumerate(marks):
            low = self.root.unscale(int(search.bounds[place]))
            if low >= self.shared.upper:
                continue
            if place == depth:
                yield low, -decided[length], parts[length], Path(trail, length, False)
            else:
                last = trail[length]
                part = parts[length] * float((last[BEFORE] - last[AFTER]) / last[BEFORE])
                positive = int(opposite(last[DECISION]) != IS_NOT)
                yield low, -decided[length] - positive, part, Path(trail, length + 1, True)
