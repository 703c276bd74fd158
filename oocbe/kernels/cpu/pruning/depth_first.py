"""Depth-first search over rows that each have a bound of their own; see :mod:`oocbe.elimination.search.depth_search`.

A node is a row: values left to variables, and a state with a bound (:mod:`oocbe.kernels.cpu.pruning.row_ascent`). It
branches on one value of one variable: first the variable has it, then it does not, which is told to the node's own
state. So there are never more states than variables decided.

Nodes differ little from those before them, so each keeps note of what is *stale*: the uses of variables in functions
that may have more to spare for them than when it was taken last, as another variable has lost a value or handed
something on. All others need not be looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.pruning.row_ascent import MOST_MOVED, REMOVED, _project_pair, _project_table, _scratch

EXHAUSTED, LEAF, PAUSED, FULL = 0, 1, 2, 3
"""How :func:`search_depth_first` ends: nothing is left; at a node that leaves one value to each variable; after so many
nodes; where there is no state left for another decision."""

DEPTH, NODES, LAST = 0, 1, 2
"""Places of what is counted: the node's depth, nodes made, the variable of the last conflict or -1."""

MOST_PASSES = 16
"""Of one node, however many values go."""


class Search(NamedTuple):
    """What a search writes to.

    Attributes
    ----------
    states : int32 (depths, state). stale : uint8 (depths, uses), 1 where a use is. bounds : int64 (depths,).
    trail : int64 (most decisions, 3): variable, value, and 1 where the variable has it, 0 where not.
    mark : int64 (depths,), decisions that led to the node at each depth.
    weight : float64 (functions,), what speaks for deciding the function's variables early.
    failures : float64 (variables,), conflicts that ended at each.
    wanted : int64 (variables,), the value to try first; -1: the cheapest one.
    counts : int64 (3,), see :data:`DEPTH`.
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


@jit
def _project_triple(network: Any, f: Any, axis: Any, state: Any, least: Any) -> Any:
    """Least cost of a function over three variables for each value of one, before what that one has taken."""
    first = network.function_start[f]
    u, v, w = network.variable[first], network.variable[first + 1], network.variable[first + 2]
    sizes = (
        network.value_start[u + 1] - network.value_start[u],
        network.value_start[v + 1] - network.value_start[v],
        network.value_start[w + 1] - network.value_start[w],
    )
    for a in range(sizes[axis]):
        least[a] = REMOVED
    cell = network.table_start[first]
    for a in range(sizes[0]):
        taken_a = np.int32(0) if axis == 0 else state[network.message_start[first] + a]
        if taken_a == -REMOVED or state[network.value_start[u] + a] == REMOVED:
            cell += sizes[1] * sizes[2]
            continue
        for b in range(sizes[1]):
            taken_b = np.int32(0) if axis == 1 else state[network.message_start[first + 1] + b]
            if taken_b == -REMOVED or state[network.value_start[v] + b] == REMOVED:
                cell += sizes[2]
                continue
            taken = taken_a + taken_b
            if axis == 2:
                for c in range(sizes[2]):
                    least[c] = min(least[c], np.int32(network.tables[cell + c] - taken))
            else:
                best = REMOVED
                for c in range(sizes[2]):
                    taken_c = state[network.message_start[first + 2] + c]
                    if taken_c != -REMOVED:
                        best = min(best, np.int32(network.tables[cell + c] - taken_c))
                if best < REMOVED:
                    place = a if axis == 0 else b
                    least[place] = min(least[place], np.int32(best - taken))
            cell += sizes[2]


@jit
def _remove(network: Any, v: Any, a: Any, state: Any, stale: Any, reach: Any, radius: Any) -> Any:
    """Rule out a value: no row of any function with it counts any more."""
    state[network.value_start[v] + a] = REMOVED
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        state[network.message_start[use] + a] = -REMOVED
        f = network.function[use]
        for other in range(network.function_start[f], network.function_start[f + 1]):
            if other != use:
                stale[other] = 1
                reach[network.variable[other]] = radius


@jit
def _collect(
    network: Any, v: Any, state: Any, stale: Any, bound: Any, need: Any, reach: Any, radius: Any, least: Any, work: Any
) -> Any:
    """Take out of the functions of a variable all that they can spare; returns the new bound, ``need`` where it is.

    Values that cost too much then are removed.
    """
    start = network.value_start[v]
    size = network.value_start[v + 1] - start
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        if not stale[use]:
            continue
        stale[use] = 0
        f = network.function[use]
        begin = network.function_start[f]
        arity = network.function_start[f + 1] - begin
        if arity == 2:
            other = 2 * begin + 1 - use
            w = network.variable[other]
            _project_pair(
                network.tables,
                network.table_start[use],
                state,
                network.message_start[other],
                network.value_start[w + 1] - network.value_start[w],
                size,
                least,
            )
        elif arity == 3:
            _project_triple(network, f, use - begin, state, least)
        else:
            _project_table(network, f, use - begin, state, least, work)
        message = network.message_start[use]
        for a in range(size):
            cost = state[start + a]
            if cost == REMOVED:
                continue
            taken = state[message + a]
            if least[a] == REMOVED:
                state[start + a] = REMOVED - 1  # no row: it is removed below
                continue
            more = min(least[a] - taken, REMOVED - 1 - cost, MOST_MOVED - taken)
            if more > 0:
                state[start + a] = cost + more
                state[message + a] = taken + more
    low = np.int64(REMOVED)
    for a in range(size):
        low = min(low, state[start + a])
    bound += low
    if bound >= need or low == REMOVED:
        return need
    for a in range(size):
        cost = state[start + a]
        if cost != REMOVED:
            if cost - low + bound >= need:
                _remove(network, v, a, state, stale, reach, radius)
            elif low > 0:
                state[start + a] = cost - low
    return bound


@jit
def _count_left(network: Any, state: Any, left: Any) -> Any:
    """Count the values left to each variable."""
    for v in range(len(left)):
        count = 0
        for place in range(network.value_start[v], network.value_start[v + 1]):
            count += state[place] != REMOVED
        left[v] = count


@jit
def _hand_on_open(
    network: Any, v: Any, is_forward: Any, state: Any, stale: Any, reach: Any, further: Any, left: Any, ahead: Any
) -> Any:
    """Give equal parts of a variable's costs to the functions with an open variable that comes later in this pass.

    further : what their variables' reach becomes at least. ahead : bool (most uses of a variable,), overwritten.
    """
    start, end = network.value_start[v], network.value_start[v + 1]
    first = network.use_start[v]
    least = REMOVED
    for place in range(start, end):
        if state[place] > 0:
            least = min(least, state[place])
    if least == REMOVED:
        return  # nothing to give
    before, after = 0, 0
    for i in range(first, network.use_start[v + 1]):
        f = network.function[network.uses[i]]
        is_before, is_after = False, False
        for other in range(network.function_start[f], network.function_start[f + 1]):
            w = network.variable[other]
            if left[w] > 1:
                is_before |= w < v
                is_after |= w > v
        ahead[i - first] = is_after if is_forward else is_before
        before += is_before
        after += is_after
    parts = max(before, after)
    for i in range(first, network.use_start[v + 1]):
        if not ahead[i - first]:
            continue
        use = network.uses[i]
        message = network.message_start[use]
        for a in range(end - start):
            cost = state[start + a]
            if 0 < cost < REMOVED:
                part = min(cost // parts, state[message + a] + MOST_MOVED)
                state[message + a] -= part
                state[start + a] -= part
        parts -= 1  # of what is left, the same part each
        f = network.function[use]
        for other in range(network.function_start[f], network.function_start[f + 1]):
            stale[other] = 1
            w = network.variable[other]
            if w != v:
                reach[w] = max(reach[w], further)


@jit
def _ascend_open(
    network: Any,
    state: Any,
    stale: Any,
    bound: Any,
    need: Any,
    passes: Any,
    reach: Any,
    radius: Any,
    left: Any,
    least: Any,
    work: Any,
    ahead: Any,
    failures: Any,
) -> Any:
    """Pass forward and backward over the variables within reach; returns the bound, at most ``need``.

    passes : so many at least, unless one brings nothing; more while values go. left : of each variable at the begin.
    failures : of the variable at which the bound comes to ``need``, grows by one.
    """
    count = len(left)
    number = 0
    while True:
        before = bound
        is_forward = number % 2 == 0
        if number > 0:
            for v in range(count):
                reach[v] = min(reach[v], 1)
        for i in range(count):
            v = i if is_forward else count - 1 - i
            if reach[v] == 0 or left[v] == 1:
                continue
            further = reach[v] - 1
            bound = _collect(network, v, state, stale, bound, need, reach, radius, least, work)
            if bound >= need:
                failures[v] += 1
                return need
            _hand_on_open(network, v, is_forward, state, stale, reach, further, left, ahead)
        number += 1
        is_settled = True
        for v in range(count):
            is_settled &= reach[v] < radius
        if number >= passes and (is_settled or number >= MOST_PASSES):
            return bound
        if number >= 2 and bound == before and is_settled:
            return bound


@jit
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


@jit
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
    network: Any, search: Any, need: Any, passes: Any, radius: Any, most_nodes: Any, is_refuted: Any
) -> Any:
    """Go on from the node at the depth that ``search.counts`` says; returns how it ends, see :data:`EXHAUSTED`.

    Parameters
    ----------
    need : nodes whose bound reaches it go. passes, radius : as of
        :func:`~oocbe.kernels.cpu.pruning.row_ascent.bound_rows`.
    most_nodes : made at most in this call, one more at times.
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
    nodes = 0
    while True:
        depth = counts[DEPTH]
        state = search.states[depth]
        if not is_refuted:
            if nodes >= most_nodes:
                return PAUSED
            _count_left(network, state, left)
            v = _choose(network, state, left, search.weight, search.failures, counts[LAST])
            if v < 0:
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
                    _remove(network, v, b, child, stale, reach, radius)
            bound = _collect(network, v, child, stale, bounds[depth], need, reach, radius, least, work)
            left[v] = 1
            if bound < need:
                bound = _ascend_open(
                    network, child, stale, bound, need, passes, reach, radius, left, least, work, ahead, search.failures
                )
            else:
                search.failures[v] += 1
            place = mark[depth]
            trail[place, 0], trail[place, 1], trail[place, 2] = v, a, 1
            mark[depth + 1] = place + 1
            bounds[depth + 1] = bound
            counts[DEPTH] = depth + 1
            if bound < need:
                continue
            counts[LAST] = v
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
            _remove(network, v, a, state, stale, reach, radius)
            _count_left(network, state, left)
            reach[v] = radius
            bound = _collect(network, v, state, stale, bounds[depth], need, reach, radius, least, work)
            if bound < need:
                bound = _ascend_open(
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
    trail : int64 (decisions, 3). Without any, all that is stale is looked at.
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
                _remove(network, v, value, state, stale, reach, radius)
            continue
        if state[start + value] == REMOVED:
            return need
        for a in range(network.value_start[v + 1] - start):
            if a != value and state[start + a] != REMOVED:
                _remove(network, v, a, state, stale, reach, radius)
    for v in range(count):  # those that have one value are passed over once, others in the ascent
        if reach[v]:
            bound = _collect(network, v, state, stale, bound, need, reach, radius, least, work)
            if bound >= need:
                return need
    _count_left(network, state, left)
    return _ascend_open(network, state, stale, bound, need, passes, reach, radius, left, least, work, ahead, failures)
