"""The open nodes of a multi-threaded search, and the lower bound that they give.

A node is *open* while not all assignments below it are settled. It is in one of two places: on a heap, or at work in a
thread. It moves by one of three steps, each of which is all that happens at a time (callers hold the search's lock):

- :meth:`OpenNodes.take`: from the heap to a worker;
- :meth:`OpenNodes.put_back`: a worker's node becomes those below it that are still open, on the heap;
- :meth:`OpenNodes.settle`: a worker's node is gone, as nothing below it is open.

So every assignment that isn't settled is below a node in one of the two places, whatever threads do meanwhile, and none
of them costs less than the least bound of all these nodes, :attr:`OpenNodes.least`. What a worker has found out about
the node at its hands does not count before it puts that back.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.search.kernels.cpu.depth_first import AFTER, BEFORE, DECISION, opposite


class Path(NamedTuple):
    """The decisions that lead from the root to a node.

    Attributes
    ----------
    trail : int64 (decisions, 5), see :data:`~oocbe.search.kernels.cpu.depth_first.VARIABLE`: others share it, and
        it is not changed. length : the first so many of them count.
    is_opposite : whether the last one of these is ruled out: what it leaves is not below the node, the opposite is.
    """

    trail: NDArray[np.int64]
    length: int
    is_opposite: bool

    @property
    def decisions(self) -> NDArray[np.int64]:
        """All of them, an array of its own: int64 (decisions, 5)."""
        made = self.trail[: self.length].copy()
        if self.is_opposite:
            last = made[-1]
            last[DECISION], last[AFTER] = opposite(last[DECISION]), last[BEFORE] - last[AFTER]
        return made


ROOT = Path(np.zeros((0, AFTER + 1), dtype=np.int64), 0, False)
"""Of the node without a decision."""


class OpenNode(NamedTuple):
    """An open node, as the heap orders them.

    Attributes
    ----------
    low : no assignment below it costs less. depth : less for deeper ones: minus the values decided for.
    number : differs from all others'. part : of the whole tree below it. path : from the root.
    """

    low: int | float
    depth: int
    number: int
    part: float
    path: Path


class OpenNodes:
    """Those on the heap and those at work; at first, the root is on the heap.

    Attributes
    ----------
    heap : of nodes, least first. at_work : by a worker's number, the node that it has taken.
    """

    def __init__(self) -> None:
        self.heap: list[OpenNode] = [OpenNode(-math.inf, 0, 0, 1.0, ROOT)]
        self.at_work: dict[int, OpenNode] = {}
        self._pushed = 0
        self._ahead = 1.0

    def take(self, worker: int) -> OpenNode:
        """Give a worker that has none the open node with the least bound, the deepest of equal ones."""
        assert worker not in self.at_work
        node = self.heap[0]
        self.at_work[worker] = node
        heapq.heappop(self.heap)
        self._ahead -= node.part
        return node

    def put_back(self, worker: int, left: Iterable[tuple[int | float, int, float, Path]]) -> None:
        """Put what is open below a worker's node on the heap: of each node its bound, depth, part and path."""
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
        """The part of the whole tree that is settled, each value left to a variable being as much as another."""
        return 1.0 - self._ahead - sum(node.part for node in self.at_work.values())
