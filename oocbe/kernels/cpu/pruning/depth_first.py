"""Depth-first search over rows that each have a bound of their own; see :mod:`oocbe.elimination.search.depth_search`.

A node is a row: values left to variables, and a state with a bound (:mod:`oocbe.kernels.cpu.pruning.row_ascent`). It
branches on one value of one variable: first the variable has it, then it does not, which is told to the node's own
state. There is one state, and what leads back from a node to the one before
(:mod:`oocbe.kernels.cpu.pruning.node_state`), with note of what is stale in it
(:mod:`oocbe.kernels.cpu.pruning.stale_ascent`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import jit, without_allocation
from oocbe.kernels.cpu.pruning.node_state import FLIPS, PARTS, begin_node, begin_root, go_back, has_room
from oocbe.kernels.cpu.pruning.row_ascent import REMOVED
from oocbe.kernels.cpu.pruning.stale_ascent import ascend_open, collect, remove

EXHAUSTED, LEAF, PAUSED, FULL = 0, 1, 2, 3
"""How :func:`search_depth_first` ends: nothing is left; at a node that leaves one value to each variable; after so many
nodes or ends of paths; where there is no room to keep what another node would change."""

DEPTH, NODES, LAST, ENDS = 0, 1, 2, 3
"""Places of what is counted: the node's depth, nodes made, the variable of the last conflict or -1, and how often a
path has ended, at a leaf or where a decision was ruled out."""

WEIGHT_BITS = 20
"""Weights of functions are counted in 2**-20 of a failure."""


class Search(NamedTuple):
    """What a search writes to beside its node.

    Attributes
    ----------
    bounds : int64 (depths,).
    trail : int64 (most decisions, 4): variable, value, 1 where the variable has it, 0 where not, and how many values
        the variable had left.
    mark : int64 (depths, 3), decisions that led to the node at each depth, and parts and flips kept before it.
    wanted : int64 (variables,), the value to try first; -1: the cheapest one.
    counts : int64 (4,), see :data:`DEPTH`.
    """

    bounds: Any
    trail: Any
    mark: Any
    wanted: Any
    counts: Any


@without_allocation
def _choose(node: Any, last: Any) -> Any:
    """The variable to decide next; -1 where all are: the one of the last conflict, or the one with the fewest values
    for what speaks for it."""
    left, tied, failures = node.left, node.tied, node.failures
    if last >= 0 and left[last] > 1:
        return last
    best, chosen = np.inf, -1
    for v in range(len(left)):
        if left[v] > 1:
            score = left[v] / (failures[v] + tied[v] / (1 << WEIGHT_BITS) + 1e-9)
            if score < best:
                best, chosen = score, v
    return chosen


@without_allocation
def _value(network: Any, state: Any, v: Any, wanted: Any) -> Any:
    """The value to try first: the one that is wanted, where it is left; else the cheapest."""
    start = network.value_start[v]
    if wanted >= 0 and state[start + wanted] != REMOVED:
        return wanted
    best = 0
    for a in range(1, network.value_start[v + 1] - start):
        if state[start + a] < state[start + best]:
            best = a
    return best


@without_allocation
def _leave_one(network: Any, node: Any, v: Any, value: Any, radius: Any) -> Any:
    """Remove all values of a variable but one."""
    start = network.value_start[v]
    for a in range(network.value_start[v + 1] - start):
        if a != value and node.state[start + a] != REMOVED:
            remove(network, node, v, a, radius)


@jit
def search_depth_first(
    network: Any,
    node: Any,
    search: Any,
    need: Any,
    passes: Any,
    radius: Any,
    most_nodes: Any,
    most_ends: Any,
    done: Any,
) -> Any:
    """Go on from the node at the depth that ``search.counts`` says; returns how it ends, see :data:`EXHAUSTED`.

    Parameters
    ----------
    need : nodes whose bound reaches it go. passes, radius : as of
        :func:`~oocbe.kernels.cpu.pruning.row_ascent.bound_rows`.
    most_nodes : made at most in this call, one more at times. most_ends : of paths in this call, after which it pauses.
    done : whether the node is done with, as a leaf is whose value is known.
    """
    return _search(network, node, search, need, passes, radius, most_nodes, most_ends, done)


@without_allocation
def _search(
    network: Any,
    node: Any,
    search: Any,
    need: Any,
    passes: Any,
    radius: Any,
    most_nodes: Any,
    most_ends: Any,
    done: Any,
) -> Any:
    counts, trail, mark, bounds = search.counts, search.trail, search.mark, search.bounds
    nodes, last_end = 0, counts[ENDS] + most_ends
    while True:
        depth = counts[DEPTH]
        if not done:
            if nodes >= most_nodes or counts[ENDS] >= last_end:
                return PAUSED
            v = _choose(node, counts[LAST])
            if v < 0:
                counts[ENDS] += 1
                return LEAF
            if not has_room(node):
                return FULL
            a = _value(network, node.state, v, search.wanted[v])
            values = node.left[v]
            mark[depth + 1, 1], mark[depth + 1, 2] = node.counts[PARTS], node.counts[FLIPS]
            begin_node(node)
            node.reach[:] = 0
            nodes += 1
            counts[NODES] += 1
            _leave_one(network, node, v, a, radius)
            bound = collect(network, node, v, bounds[depth], need, radius)
            if bound < need:
                bound = ascend_open(network, node, bound, need, passes, radius)
            else:
                node.failures[v] += 1
            place = mark[depth, 0]
            trail[place, 0], trail[place, 1], trail[place, 2], trail[place, 3] = v, a, 1, values
            mark[depth + 1, 0] = place + 1
            bounds[depth + 1] = bound
            counts[DEPTH] = depth + 1
            if bound < need:
                continue
            counts[LAST] = v
            counts[ENDS] += 1
        # The node is done with: the one before it goes on without the value that it had decided.
        done = True
        while done:
            depth = counts[DEPTH] - 1
            if depth < 0:
                return EXHAUSTED
            # What the child changed is free again: there is room for what this node changes.
            go_back(network, node, mark[depth + 1, 1], mark[depth + 1, 2])
            counts[DEPTH] = depth
            if bounds[depth] >= need:
                continue
            place = mark[depth, 0]
            v, a = trail[place, 0], trail[place, 1]
            trail[place, 2] = 0
            mark[depth, 0] = place + 1
            begin_node(node)
            node.reach[:] = 0
            nodes += 1
            counts[NODES] += 1
            remove(network, node, v, a, radius)
            node.reach[v] = radius
            bound = collect(network, node, v, bounds[depth], need, radius)
            if bound < need:
                bound = ascend_open(network, node, bound, need, passes, radius)
            bounds[depth] = bound
            done = bound >= need


@jit
def restore(network: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any, trail: Any) -> Any:
    """Make the state of a node from that of the root, by all its decisions; returns its bound, at most ``need``.

    Parameters
    ----------
    node : with the root's state and what is stale in that. bound : of the root.
    trail : int64 (decisions, 4). Without any, all that is stale is looked at.
    """
    return _restore(network, node, bound, need, passes, radius, trail)


@without_allocation
def _restore(network: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any, trail: Any) -> Any:
    begin_root(network, node)
    node.reach[:] = 0 if len(trail) else 1
    for i in range(len(trail)):
        v, value = trail[i, 0], trail[i, 1]
        node.reach[v] = radius
        is_left = node.state[network.value_start[v] + value] != REMOVED
        if trail[i, 2] == 0:
            if is_left:
                remove(network, node, v, value, radius)
        elif not is_left:
            return need
        else:
            _leave_one(network, node, v, value, radius)
    for v in range(len(node.left)):  # those that have one value are passed over once, others in the ascent
        if node.reach[v]:
            bound = collect(network, node, v, bound, need, radius)
            if bound >= need:
                return need
    return ascend_open(network, node, bound, need, passes, radius)
