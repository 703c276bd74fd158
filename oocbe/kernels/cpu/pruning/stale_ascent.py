"""Dual ascent for a node that differs little from the one before it: only what is *stale* is looked at.

A use of a variable in a function is stale where the function may have more to spare for the variable than when that was
taken last, as another variable has lost a value or handed something on. States, bounds and what moves between them are
those of :mod:`oocbe.kernels.cpu.pruning.row_ascent`, but a use of a value that is removed is not marked: what was taken
for it stands for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import without_allocation
from oocbe.kernels.cpu.pruning.node_state import REMOVALS, close, keep_message, keep_values, mark_stale
from oocbe.kernels.cpu.pruning.row_ascent import MOST_MOVED, REMOVED, project_pair, project_table

MOST_PASSES = 16
"""Of one node, however many values go."""

LAST_COST = np.int32(REMOVED - 1)
"""The most that a value can cost which is not removed."""


@without_allocation
def _project_triple(network: Any, f: Any, axis: Any, state: Any, least: Any) -> Any:
    """Least cost of a function over three variables for each value of one, before what that one has taken."""
    first = network.function_start[f]
    u, v, w = network.variable[first], network.variable[first + 1], network.variable[first + 2]
    start_u, start_v, start_w = network.value_start[u], network.value_start[v], network.value_start[w]
    size_u, size_v = network.value_start[u + 1] - start_u, network.value_start[v + 1] - start_v
    size_w = network.value_start[w + 1] - start_w
    message_u, message_v = network.message_start[first], network.message_start[first + 1]
    message_w = network.message_start[first + 2]
    for a in range(size_u if axis == 0 else size_v if axis == 1 else size_w):
        least[a] = REMOVED
    cell = network.table_start[first]
    for a in range(size_u):
        if state[start_u + a] == REMOVED:
            cell += size_v * size_w
            continue
        taken_a = np.int32(0) if axis == 0 else state[message_u + a]
        for b in range(size_v):
            if state[start_v + b] == REMOVED:
                cell += size_w
                continue
            taken = taken_a + (np.int32(0) if axis == 1 else state[message_v + b])
            if axis == 2:
                for c in range(size_w):
                    least[c] = min(least[c], np.int32(network.tables[cell + c] - taken))
            else:
                best = REMOVED
                for c in range(size_w):
                    if state[start_w + c] != REMOVED:
                        best = min(best, np.int32(network.tables[cell + c] - state[message_w + c]))
                if best < REMOVED:
                    place = a if axis == 0 else b
                    least[place] = min(least[place], np.int32(best - taken))
            cell += size_w


@without_allocation
def remove(network: Any, node: Any, v: Any, a: Any, radius: Any) -> Any:
    """Rule out a value: no row of any function with it counts any more."""
    keep_values(network, node, v)
    node.state[network.value_start[v] + a] = REMOVED
    node.left[v] -= 1
    node.counts[REMOVALS] += 1
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        f = network.function[use]
        for other in range(network.function_start[f], network.function_start[f + 1]):
            if other != use:
                mark_stale(node, other, 1)
                node.reach[network.variable[other]] = radius
    if node.left[v] == 1:
        close(network, node, v, -1)


@without_allocation
def _take(network: Any, node: Any, use: Any, start: Any, size: Any) -> Any:
    """Take out of a function what it can spare for each value of one of its variables, as ``node.least`` says."""
    state, least = node.state, node.least
    message = network.message_start[use]
    most = np.int32(0)
    for a in range(size):
        spare = np.int32(least[a] - state[message + a])
        most = max(most, np.int32(0) if state[start + a] == REMOVED else spare)
    if most == 0:
        return
    keep_values(network, node, network.variable[use])
    keep_message(network, node, use, size)
    for a in range(size):
        cost, taken = state[start + a], state[message + a]
        more = min(np.int32(least[a] - taken), np.int32(LAST_COST - cost), np.int32(MOST_MOVED - taken))
        more = max(more, np.int32(0))
        more = np.int32(0) if cost == REMOVED else more
        state[message + a] = taken + more
        cost = np.int32(cost + more)
        # No row: it is removed by whoever collects.
        state[start + a] = LAST_COST if least[a] == REMOVED and cost != REMOVED else cost


@without_allocation
def collect(network: Any, node: Any, v: Any, bound: Any, need: Any, radius: Any) -> Any:
    """Take out of the functions of a variable all that they can spare; returns the new bound, ``need`` where it is.

    Values that cost too much then are removed.
    """
    state = node.state
    start = network.value_start[v]
    size = network.value_start[v + 1] - start
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        if not node.stale[use]:
            continue
        mark_stale(node, use, 0)
        f = network.function[use]
        begin = network.function_start[f]
        arity = network.function_start[f + 1] - begin
        if arity == 2:
            project_pair(network, use, 2 * begin + 1 - use, state, size, node.least)
        elif arity == 3:
            _project_triple(network, f, use - begin, state, node.least)
        else:
            project_table(network, f, use - begin, state, node.least, node.digits)
        _take(network, node, use, start, size)
    low = REMOVED
    for a in range(size):
        low = min(low, state[start + a])
    bound += low
    if bound >= need or low == REMOVED:
        return need
    for a in range(size):
        cost = state[start + a]
        if cost != REMOVED:
            if cost - low + bound >= need:
                remove(network, node, v, a, radius)
            elif low > 0:
                keep_values(network, node, v)
                state[start + a] = cost - low
    return bound


@without_allocation
def _hand_on_open(network: Any, node: Any, v: Any, is_forward: Any, further: Any) -> Any:
    """Give equal parts of a variable's costs to the functions with an open variable that comes later in this pass.

    further : what their variables' reach becomes at least.
    """
    state, left, ahead, share = node.state, node.left, node.ahead, node.share
    start, first = network.value_start[v], network.use_start[v]
    size = network.value_start[v + 1] - start
    most = np.int32(0)
    for a in range(size):
        share[a] = np.int32(0) if state[start + a] == REMOVED else state[start + a]
        most = max(most, share[a])
    if most == 0:
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
    parts = np.int32(max(before, after))
    if (after if is_forward else before) == 0 or most < parts:
        return
    for a in range(size):
        share[a] //= parts
    keep_values(network, node, v)
    for i in range(first, network.use_start[v + 1]):
        if not ahead[i - first]:
            continue
        use = network.uses[i]
        message = network.message_start[use]
        keep_message(network, node, use, size)
        for a in range(size):
            # Nothing of a value that is gone, whose message may say so.
            part = min(share[a], max(np.int32(0), np.int32(state[message + a] + MOST_MOVED)))
            state[message + a] -= part
            state[start + a] -= part
        f = network.function[use]
        for other in range(network.function_start[f], network.function_start[f + 1]):
            mark_stale(node, other, 1)
            w = network.variable[other]
            if w != v:
                node.reach[w] = max(node.reach[w], further)


@without_allocation
def ascend_open(network: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any) -> Any:
    """Pass forward and backward over the variables within reach; returns the bound, at most ``need``.

    passes : so many at least, unless one brings nothing; more while values go. The variable at which the bound comes to
    ``need`` has one failure more then.
    """
    reach, left = node.reach, node.left
    count = len(left)
    number = 0
    while True:
        before, removals = bound, node.counts[REMOVALS]
        is_forward = number % 2 == 0
        if number > 0:
            for v in range(count):
                reach[v] = min(reach[v], 1)
        for i in range(count):
            v = i if is_forward else count - 1 - i
            if reach[v] == 0 or left[v] == 1:
                continue
            further = reach[v] - 1
            bound = collect(network, node, v, bound, need, radius)
            if bound >= need:
                node.failures[v] += 1
                return need
            _hand_on_open(network, node, v, is_forward, further)
        number += 1
        is_settled = node.counts[REMOVALS] == removals
        if number >= passes and (is_settled or number >= MOST_PASSES):
            return bound
        if number >= 2 and bound == before and is_settled:
            return bound
