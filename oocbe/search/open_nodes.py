"""The open nodes of a multi-threaded search, and their lower bound.

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
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.search.kernels.cpu.depth_first import AFTER, BEFORE, DECISION, opposite


class Path(NamedTuple):
    """The decisions from the root to a node.

    Attributes
    ----------
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

    Attributes
    ----------
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
