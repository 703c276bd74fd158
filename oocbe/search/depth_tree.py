"""The search tree of one thread, and the threads of a depth-first search over one heap of open nodes.

A tree has one state, the decisions, and the data to undo each of them. Its owner searches a node of the whole problem
(:class:`Worker`) or a neighbourhood of an assignment (:mod:`oocbe.search.neighbourhoods`).

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

from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.cpu.projection import BLOCK, REMOVED
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, check_deadline, looked
from oocbe.search.kernels.cpu.depth_first import (
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
    MOST_ROUNDS,
    NODES,
    Linear,
    Search,
    opposite,
    restore,
    search_depth_first,
)
from oocbe.search.kernels.cpu.node_state import SearchNode, near_uses

PASSES, RADIUS = 4, 3
"""Ascent passes per node, and radius of the passes, in functions, around a variable that loses values. Half the passes
take 1.5 times the nodes and 1.1 times the time, in the geometric mean of 21 problems; 6 passes take 1.2 times the
time."""

NEED_BITS = 26
"""The distance between the sum of all minima and the threshold is below 2**26 in fixed point: sums fit 32 bits."""

CALL_WORK = 1 << 24
"""Maximum number of cells visited in one compiled call at the root without linear constraints: some hundredths of a
second. Signals and limits are checked between calls."""

ROOT_PASSES, LITTLE, MOST_CALLS = 10, 0.01, 40
"""Ascent passes per call at the root; minimum progress of a call relative to the bound; maximum number of calls."""

ROOT_ROUNDS = 64
"""Maximum number of root rounds, each with updates of the multipliers of linear constraints and ascent passes."""

ROOT_WORK, MULTIPLIER_WORK = 1 << 26, 8
"""Maximum coefficients and cells visited in all root rounds (one compiled call of some tenths of a second), and visits
of a coefficient per multiplier."""

FIRST_ROOM = 4
"""Initial capacity of the undo arrays, as a multiple of the maximum change of one node; doubled when exceeded."""

KEPT_ARRAYS = ("kept", "parts", "flips")
"""Fields of a node whose arrays are enlarged on demand."""

PRICED_BITS = 32
"""Bits of the sum of the largest coefficients of a constraint that are multiplied by multipliers of 30 bits."""

MULTIPLIER_BITS = 4
"""Resolution of multipliers: steps of 2 ** -MULTIPLIER_BITS in the charge of the largest coefficient."""

READ_ONLY = ("near", "weight", "margin")
"""Fields of a node that no loop writes; all trees share them."""


class Root:
    """The root of search trees below one threshold; :meth:`ascend` raises its bound.

    tables : of the problem. threshold : only assignments with a value strictly below it count; finite.
    scale : of costs; its cap for a lower threshold is the cutoff below that.
    network : the functions over two or more variables, in fixed point.
    need : cutoff; a node whose bound reaches it is pruned. state, bound : of the root.
    first : int32, the state before the ascent. stale : uint8 (uses,), stale uses of the state.
    Raises TimeLimitError: the deadline of the enclosing block came.
    """

    def __init__(self, tables: ScopeTables, threshold: int | float) -> None:
        self.tables, self.threshold = tables, threshold
        room = NEED_BITS if tables.is_integral else NEED_BITS + 1
        self.scale = ScaledCosts.within(tables, tables.distance_below(threshold), np.dtype(np.int32), room)
        self.need = self.scale.cap
        self.bound = self.need if self.need <= 0 or tables.is_impossible else 0
        layout = tables.layout
        check_deadline()
        costs, single = self.scale.down(layout.above, layout.permitted), len(layout.value)
        self.network = layout.network._replace(tables=costs[single:])
        self.state = np.zeros(layout.length, dtype=np.int32)
        self.state[layout.value] = costs[:single]
        self.first = self.state
        self.stale = np.ones(len(self.network.function), dtype=np.uint8)

    def ascend(self, linear: Linear, node: SearchNode) -> None:
        """Raise the bound by passes over all variables until progress ends, then by linear constraints, too.

        node : any node of the network, overwritten.

        Raises TimeLimitError: the deadline of the enclosing block came.
        """
        work = self.tables.pass_work
        passes = max(1, min(ROOT_PASSES, int(CALL_WORK / max(1, work))))
        none = linear._replace(capacity=linear.capacity[:0])
        for _ in range(MOST_CALLS):
            if self.bound >= self.need:
                return
            check_deadline()
            before = self.bound
            self._restore(none, node, passes, 0)
            if self.bound - before <= LITTLE * self.bound:
                break
        rounds = max(1, min(ROOT_ROUNDS, ROOT_WORK // max(1, MULTIPLIER_WORK * len(linear.coefficient) + int(work))))
        self._restore(linear, node, PASSES, rounds)

    def _restore(self, linear: Linear, node: SearchNode, passes: int, rounds: int) -> None:
        node.state[:], node.stale[:] = self.state, self.stale
        beside = (linear, node, self.bound, self.need, passes, RADIUS, rounds)
        self.bound = int(restore(self.network, *beside, np.zeros((0, AFTER + 1), dtype=np.int64)))
        self.state, self.stale = node.state.copy(), node.stale.copy()

    def nearest(self) -> list[int]:
        """The cheapest value of one variable after another, beside the values before it, by the functions over two
        variables (Kolmogorov 2006)."""
        network, state, start = self.network, self.state.astype(np.int64), self.network.value_start
        uses, owner = network.uses, np.repeat(np.arange(len(start) - 1), np.diff(network.use_start))
        first, end = network.function_start[network.function[uses]], network.function_start[network.function[uses] + 1]
        other = network.variable[np.minimum(2 * first + 1 - uses, end - 1)]
        is_before = (end - first == 2) & (other < owner)
        uses, other, ends = uses[is_before], other[is_before], np.searchsorted(owner[is_before], np.arange(len(start)))
        table, message, chosen = network.table_start[uses], network.message_start[uses], np.zeros_like(start[1:])
        for v in looked(range(len(chosen))):
            values, own = np.arange(start[v + 1] - start[v]), slice(ends[v], ends[v + 1])
            cells = table[own] + len(values) * chosen[other[own]]
            beside = network.tables[cells[:, None] + values] - state[message[own, None] + values]
            chosen[v] = (state[start[v] : start[v + 1]] + beside.sum(axis=0)).argmin()
        return [*map(int, chosen)]

    @property
    def distance(self) -> float:
        """Distance of the bound from the cutoff, in costs."""
        return math.ldexp(self.need - self.bound, -self.scale.bits)

    def unscale(self, bound: int) -> int | float:
        """The least value of an assignment with this bound; the threshold if none is below it."""
        return min(self.scale.unscale(bound), self.threshold)


class SearchTree:
    """The search tree of one thread.

    tables, linear : the problem. root : of the tree, until :meth:`begin` sets another.
    blank : a node as of :func:`blank_node`. pace, failures : seconds per node, and float64 (variables,) conflict
        weights, initially.
    node, search, root, pace : current values.
    """

    def __init__(
        self,
        tables: ScopeTables,
        linear: Linear,
        root: Root,
        blank: SearchNode,
        pace: float,
        failures: NDArray[np.float64] | None = None,
    ) -> None:
        self._tables, self._linear, self.root, self.pace = tables, linear, root, pace
        self.node = with_room(blank)
        self.node.failures[:] = 0.0 if failures is None else failures
        sizes = tables.problem.sizes
        decisions = sum(sizes) + len(sizes) + 1  # maximum, as each removes a value
        self.search = Search(
            bounds=np.zeros(decisions, dtype=np.int64),
            trail=np.zeros((decisions, AFTER + 1), dtype=np.int64),
            mark=np.zeros((decisions, 3), dtype=np.int64),
            wanted=np.full(len(sizes), -1, dtype=np.int64),
            counts=np.array([0, 0, -1, 0], dtype=np.int64),
        )

    def work(self, until: float, deadline: Deadline) -> None:
        """Search until a time of :func:`~oocbe.runtime.compilation.working_time`, at least one step."""
        raise NotImplementedError

    def begin(self, root: Root, path: NDArray[np.int64], upper: int | float) -> bool:
        """Make the node of a path of decisions below a root the first of the tree; returns whether assignments below it
        may cost less than ``upper``."""
        node, search, self.root = self.node, self.search, root
        need = root.scale.cap_for(upper)
        if root.bound >= need:
            return False
        node.state[:], node.stale[:] = root.state, root.stale
        beside = (self._linear, node, root.bound, need, PASSES, RADIUS, MOST_ROUNDS)
        bound = int(restore(root.network, *beside, path))
        search.bounds[0], search.mark[0] = bound, (len(path), 0, 0)
        search.trail[: len(path)] = path
        search.counts[DEPTH], search.counts[LAST] = 0, -1
        return bound < need

    def go_on(self, upper: int | float, seconds: float, most_ends: int, is_refuted: bool) -> tuple[int, int]:
        """Continue the search for assignments below ``upper``, in one compiled call.

        seconds : time limit (at least one node), estimated from the pace. most_ends : maximum number of path ends.
        is_refuted : whether the current deepest node is finished.
        Returns status, nodes : reason of the end, see :data:`~oocbe.search.kernels.cpu.depth_first.EXHAUSTED`; number
        of new nodes.
        """
        root, counts = self.root, self.search.counts
        begin, before = working_time(), int(counts[NODES])
        most = max(1, int(seconds / self.pace))
        beside = (root.scale.cap_for(upper), PASSES, RADIUS, most, most_ends, is_refuted)
        status = int(search_depth_first(root.network, self._linear, self.node, self.search, *beside))
        made = int(counts[NODES]) - before
        if made:
            self.pace = (working_time() - begin) / made
        return status, made

    def leaf(self) -> tuple[int | float | None, NDArray[np.int64]]:
        """Value and assignment, int64 (variables,), of a node with one remaining value for each variable; the value is
        None if the assignment is forbidden or the value is not finite."""
        start = self.root.network.value_start
        values = np.flatnonzero(self.node.state[: start[-1]] != REMOVED) - start[:-1]
        value = self._tables.evaluate(tuple(values.tolist()))
        return (value if value is not None and math.isfinite(value) else None), values

    def grow(self) -> None:
        """Double the capacity of the undo arrays."""
        self.node = self.node._replace(**{name: np.concatenate([getattr(self.node, name)] * 2) for name in KEPT_ARRAYS})


def blank_node(root: Root, weight: NDArray[np.int64]) -> SearchNode:
    """A node with empty undo arrays. weight : int64 (functions,)."""
    network = root.network
    variables, functions, uses = len(network.value_start) - 1, len(network.function_start) - 1, len(network.function)
    sizes = np.diff(network.value_start)
    return SearchNode(
        near=near_uses(network, np.int32(root.need)),
        state=root.state.copy(),
        stale=np.ones(uses, dtype=np.uint8),
        left=np.ones(variables, dtype=np.int64),
        open_of=np.zeros(functions, dtype=np.int64),
        is_sum=np.zeros(functions, dtype=np.uint8),
        tied=np.zeros(variables, dtype=np.int64),
        weight=weight,
        reach=np.zeros(variables, dtype=np.uint8),
        failures=np.zeros(variables),
        margin=margins(root),
        least=np.zeros(sizes.max(initial=1), dtype=np.int32),
        share=np.zeros(sizes.max(initial=1), dtype=np.int32),
        digits=np.zeros((5, max(BLOCK, np.diff(network.function_start).max(initial=1) + 1)), dtype=np.int64),
        ahead=np.zeros(np.diff(network.use_start).max(initial=1), dtype=np.bool_),
        saved_values=np.zeros(variables, dtype=np.int64),
        saved_message=np.zeros(uses, dtype=np.int64),
        saved_stale=np.zeros(uses, dtype=np.int64),
        saved_number=np.zeros(len(root.tables.linear), dtype=np.int64),
        kept=np.empty(0, dtype=np.int32),
        parts=np.empty((0, 3), dtype=np.int64),
        flips=np.empty(functions, dtype=np.int64),
        counts=np.zeros(5, dtype=np.int64),
    )


def margins(root: Root) -> NDArray[np.int64]:
    """The margins of substitutions of a node: costs rounded down differ from the true ones by less than one unit."""
    tables, network = root.tables, root.network
    is_exact = tables.is_integral and root.scale.bits >= 0
    margin = np.zeros(len(tables.problem.sizes), dtype=np.int64) if is_exact else 1 + np.diff(network.use_start)
    arity = np.diff(network.function_start)
    margin[network.variable[arity[network.function] > 3]] = -1  # losses would take long
    margin[[v for c in tables.linear for v in c.scope]] = -1  # the consumption may rise
    return margin


def with_room(blank: SearchNode) -> SearchNode:
    """A node with its own arrays, with the initial capacity of the undo arrays."""
    copies = {name: getattr(blank, name).copy() for name in SearchNode._fields if name not in READ_ONLY}
    parts = len(blank.left) + len(blank.stale) + len(blank.saved_number)
    rooms = {"kept": (len(blank.state),), "parts": (parts, 3), "flips": (len(blank.stale) + len(blank.open_of),)}
    for name, (length, *others) in rooms.items():
        copies[name] = np.empty((FIRST_ROOM * length, *others), dtype=copies[name].dtype)
    return blank._replace(**copies)


def first_bytes(blank: SearchNode) -> int:
    """Initial size of a node's undo arrays, in bytes."""
    parts = len(blank.left) + len(blank.stale) + len(blank.saved_number)
    return FIRST_ROOM * (4 * len(blank.state) + 24 * parts + 8 * (len(blank.stale) + len(blank.open_of)))


def kept_bytes(node: SearchNode) -> int:
    """Size of a node's undo arrays, in bytes."""
    return sum(int(getattr(node, name).nbytes) for name in KEPT_ARRAYS)


def laid_out(tables: ScopeTables) -> Linear:
    """The linear constraints of a problem for its search."""
    constraints = tables.linear
    entries = [(v, own) for c in constraints for v, own in zip(c.scope, c.coefficients, strict=True)]
    none = np.zeros(0, dtype=np.int64)
    shift = [max(0, c.greatest.bit_length() - PRICED_BITS) for c in constraints]
    priced = [own >> less for c, less in zip(constraints, shift, strict=True) for own in c.coefficients]
    largest = [max(c.ends[1], default=0) >> less for c, less in zip(constraints, shift, strict=True)]
    return Linear(
        start=starts_of([len(c.scope) for c in constraints]),
        variable=np.array([v for v, _ in entries], dtype=np.int64),
        coefficient_start=starts_of([len(own) for _, own in entries])[:-1],
        coefficient=np.concatenate([none, *(own for _, own in entries)]),
        capacity=np.array([c.capacity for c in constraints], dtype=np.int64),
        priced=np.concatenate([none, *priced]),
        refund=np.array([c.capacity >> less for c, less in zip(constraints, shift, strict=True)], dtype=np.int64),
        bits=np.array([MULTIPLIER_BITS + most.bit_length() for most in largest], dtype=np.int64),
        place=tables.layout.length - len(constraints) + np.arange(len(constraints)),
    )


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

    tables, linear : the problem. memory : limit of the states, in bytes. upper : as below.
    changed : lock of all following attributes while several workers run; notified about open nodes.
    open : the open nodes. root : of the whole tree, below ``upper``.
    upper : only assignments below it count. found : the last improvement and its value, None once reported.
    wanted : int64 (variables,), values of the last improvement; -1: none.
    nodes, restored : number of nodes created, and restored. pause : path ends until another node continues.
    kept_bytes : of all workers. waiting : number without a node. is_stopped : whether all must return.
    """

    def __init__(self, tables: ScopeTables, linear: Linear, memory: int, upper: int | float, root: Root) -> None:
        self.tables, self.linear, self.memory = tables, linear, memory
        self.changed = Condition()
        self.open = OpenNodes()
        self.root, self.upper = root, upper
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


class Worker(SearchTree):
    """The search of one thread.

    shared : by all workers. number : of this worker. blank : a node as of :func:`blank_node`.
    pace, failures : seconds per node, and float64 (variables,) conflict weights, initially.
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
