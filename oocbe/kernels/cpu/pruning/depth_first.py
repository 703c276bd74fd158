"""Depth-first search over rows that each have a bound of their own; see :mod:`oocbe.elimination.search.depth_search`.

A node is a row: values left to variables, and a state with a bound (:mod:`oocbe.kernels.cpu.pruning.row_ascent`). It
branches on one value of one variable: first the variable has it, then it does not, which is told to the node's own
state. So there are never more states than variables decided.

Each node keeps note of what is stale in its state (:mod:`oocbe.kernels.cpu.pruning.stale_ascent`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.pruning.row_ascent import REMOVED, _scratch
from oocbe.kernels.cpu.pruning.stale_ascent import ascend_open, collect, count_left, remove

EXHAUSTED, LEAF, PAUSED, FULL = 0, 1, 2, 3
"""How :func:`search_depth_first` ends: nothing is left; at a node that leaves one value to each variable; after so many
nodes or ends of paths; where there is no state left for another decision."""

DEPTH, NODES, LAST, ENDS = 0, 1, 2, 3
"""Places of what is counted: the node's depth, nodes made, the variable of the last conflict or -1, and how often a
path has ended, at a leaf or where a decision was ruled out."""


class Search(NamedTuple):
    """What a search writes to.

    Attributes
    ----------
    states : int32 (depths, state). stale : uint8 (depths, uses), 1 where a use is. bounds : int64 (depths,).
    trail : int64 (most decisions, 4): variable, value, 1 where the variable has it, 0 where not, and how many values
        the variable had left.
    mark : int64 (depths,), decisions that led to the node at each depth.
    weight : float64 (functions,), what speaks for deciding the function's variables early.
    failures : float64 (variables,), conflicts that ended at each.
    wanted : int64 (variables,), the value to try first; -1: the cheapest one.
    counts : int64 (4,), see :data:`DEPTH`.
    """

    states: Any
    stale: Any
    bounds: Any
    trail: Any
    mark: Any
    weight: Any
    failures: Any
    wanted: Any
    counts: Any


@helper
def _choose(network: Any, state: Any, left: Any, weight: Any, failures: Any, last: Any) -> Any:
    """The variable to decide next; -1 where all are: the one of the last conflict, or the one with the fewest values
    for what speaks for it."""
    if last >= 0 and left[last] > 1:
        return last
    best, chosen = np.inf, -1
    for v in range(len(left)):
        if left[v] == 1:
            continue
        total = failures[v] + 1e-9
        for i in range(network.use_start[v], network.use_start[v + 1]):
            f = network.function[network.uses[i]]
            for other in range(network.function_start[f], network.function_start[f + 1]):
                w = network.variable[other]
                if w != v and left[w] > 1:
                    total += weight[f]
                    break
        score = left[v] / total
        if score < best:
            best, chosen = score, v
    return chosen


@helper
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


@jit
def search_depth_first(
    network: Any, search: Any, need: Any, passes: Any, radius: Any, most_nodes: Any, most_ends: Any, is_refuted: Any
) -> Any:
    """Go on from the node at the depth that ``search.counts`` says; returns how it ends, see :data:`EXHAUSTED`.

    Parameters
    ----------
    need : nodes whose bound reaches it go. passes, radius : as of
        :func:`~oocbe.kernels.cpu.pruning.row_ascent.bound_rows`.
    most_nodes : made at most in this call, one more at times. most_ends : of paths in this call, after which it pauses.
    is_refuted : whether the node is done with, as a leaf is whose value is known.
    """
    least, work = _scratch(network)
    count = len(network.value_start) - 1
    left = np.empty(count, dtype=np.int64)
    reach = np.empty(count, dtype=np.uint8)
    most_uses = 1
    for v in range(count):
        most_uses = max(most_uses, network.use_start[v + 1] - network.use_start[v])
    ahead = np.empty(most_uses, dtype=np.bool_)
    counts, trail, mark, bounds = search.counts, search.trail, search.mark, search.bounds
    nodes, last_end = 0, counts[ENDS] + most_ends
    while True:
        depth = counts[DEPTH]
        state = search.states[depth]
        if not is_refuted:
            if nodes >= most_nodes or counts[ENDS] >= last_end:
                return PAUSED
            count_left(network, state, left)
            v = _choose(network, state, left, search.weight, search.failures, counts[LAST])
            if v < 0:
                counts[ENDS] += 1
                return LEAF
            if depth + 1 == len(search.states):
                return FULL
            a = _value(network, state, v, search.wanted[v])
            child = search.states[depth + 1]
            child[:] = state
            stale = search.stale[depth + 1]
            stale[:] = search.stale[depth]
            reach[:] = 0
            nodes += 1
            counts[NODES] += 1
            for b in range(network.value_start[v + 1] - network.value_start[v]):
                if b != a and child[network.value_start[v] + b] != REMOVED:
                    remove(network, v, b, child, stale, reach, radius)
            bound = collect(network, v, child, stale, bounds[depth], need, reach, radius, least, work)
            values, left[v] = left[v], 1
            if bound < need:
                bound = ascend_open(
                    network, child, stale, bound, need, passes, reach, radius, left, least, work, ahead, search.failures
                )
            else:
                search.failures[v] += 1
            place = mark[depth]
            trail[place, 0], trail[place, 1], trail[place, 2], trail[place, 3] = v, a, 1, values
            mark[depth + 1] = place + 1
            bounds[depth + 1] = bound
            counts[DEPTH] = depth + 1
            if bound < need:
                continue
            counts[LAST] = v
            counts[ENDS] += 1
        # The node is done with: the one before it goes on without the value that it had decided.
        is_refuted = True
        while is_refuted:
            if counts[DEPTH] == 0:
                return EXHAUSTED
            depth = counts[DEPTH] - 1
            counts[DEPTH] = depth
            if bounds[depth] >= need:
                continue
            place = mark[depth]
            v, a = trail[place, 0], trail[place, 1]
            trail[place, 2] = 0
            mark[depth] = place + 1
            state, stale = search.states[depth], search.stale[depth]
            reach[:] = 0
            nodes += 1
            counts[NODES] += 1
            remove(network, v, a, state, stale, reach, radius)
            count_left(network, state, left)
            reach[v] = radius
            bound = collect(network, v, state, stale, bounds[depth], need, reach, radius, least, work)
            if bound < need:
                bound = ascend_open(
                    network, state, stale, bound, need, passes, reach, radius, left, least, work, ahead, search.failures
                )
            bounds[depth] = bound
            is_refuted = bound >= need


@jit
def restore(
    network: Any,
    state: Any,
    stale: Any,
    bound: Any,
    need: Any,
    passes: Any,
    radius: Any,
    trail: Any,
    failures: Any,
) -> Any:
    """Make the state of a node from that of the root, by all its decisions; returns its bound, at most ``need``.

    Parameters
    ----------
    state : int32 (state,), of the root; overwritten. stale : uint8 (uses,), the same. bound : of the root.
    trail : int64 (decisions, 4). Without any, all that is stale is looked at.
    """
    least, work = _scratch(network)
    count = len(network.value_start) - 1
    left = np.empty(count, dtype=np.int64)
    reach = np.zeros(count, dtype=np.uint8)
    most_uses = 1
    for v in range(count):
        most_uses = max(most_uses, network.use_start[v + 1] - network.use_start[v])
    ahead = np.empty(most_uses, dtype=np.bool_)
    if len(trail) == 0:
        reach[:] = 1
    for i in range(len(trail)):
        v, value = trail[i, 0], trail[i, 1]
        start = network.value_start[v]
        reach[v] = radius
        if trail[i, 2] == 0:
            if state[start + value] != REMOVED:
                remove(network, v, value, state, stale, reach, radius)
            continue
        if state[start + value] == REMOVED:
            return need
        for a in range(network.value_start[v + 1] - start):
            if a != value and state[start + a] != REMOVED:
                remove(network, v, a, state, stale, reach, radius)
    for v in range(count):  # those that have one value are passed over once, others in the ascent
        if reach[v]:
            bound = collect(network, v, state, stale, bound, need, reach, radius, least, work)
            if bound >= need:
                return need
    count_left(network, state, left)
    return ascend_open(network, state, stale, bound, need, passes, reach, radius, left, least, work, ahead, failures)
