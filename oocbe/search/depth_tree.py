"""The search tree of one thread: one state, the decisions, and the data to undo each of them.

Its owner searches a node of the whole problem (:mod:`oocbe.search.depth_worker`) or a neighbourhood of an assignment
(:mod:`oocbe.search.neighbourhoods`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline, check_deadline
from oocbe.search.kernels.cpu.depth_first import AFTER, DEPTH, LAST, NODES, Search, restore, search_depth_first
from oocbe.search.kernels.cpu.linear_bounds import MOST_ROUNDS, Linear
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

    Parameters
    ----------
    tables : of the problem. threshold : only assignments with a value strictly below it count; finite.

    Attributes
    ----------
    scale : of costs; its cap for a lower threshold is the cutoff below that.
    network : the functions over two or more variables, in fixed point.
    need : cutoff; a node whose bound reaches it is pruned. state, bound : of the root.
    first : int32, the state before the ascent. stale : uint8 (uses,), stale uses of the state.

    Raises
    ------
    TimeLimitError : the deadline of the enclosing block came.
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

    @property
    def distance(self) -> float:
        """Distance of the bound from the cutoff, in costs."""
        return math.ldexp(self.need - self.bound, -self.scale.bits)

    def unscale(self, bound: int) -> int | float:
        """The least value of an assignment with this bound; the threshold if none is below it."""
        return min(self.scale.unscale(bound), self.threshold)


class Tree:
    """The search tree of one thread.

    Parameters
    ----------
    tables, linear : the problem. root : of the tree, until :meth:`begin` sets another.
    blank : a node as of :func:`blank_node`. pace, failures : seconds per node, and float64 (variables,) conflict
        weights, initially.

    Attributes
    ----------
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
        digits=np.zeros((3, np.diff(network.function_start).max(initial=1)), dtype=np.int64),
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
