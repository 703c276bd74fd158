"""Dual ascent for a node that differs little from the one before it: only what is *stale* is looked at.

A use of a variable in a function is stale where the function may have more to spare for the variable than when that was
taken last, as another variable has lost a value or handed something on. States, bounds and what moves between them are
those of :mod:`oocbe.kernels.cpu.pruning.row_ascent`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.pruning.row_ascent import MOST_MOVED, REMOVED, _project_pair, _project_table

MOST_PASSES = 16
"""Of one node, however many values go."""


@helper
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


@helper
def remove(network: Any, v: Any, a: Any, state: Any, stale: Any, reach: Any, radius: Any) -> Any:
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
def collect(
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
                remove(network, v, a, state, stale, reach, radius)
            elif low > 0:
                state[start + a] = cost - low
    return bound


@helper
def count_left(network: Any, state: Any, left: Any) -> Any:
    """Count the values left to each variable."""
    for v in range(len(left)):
        count = 0
        for place in range(network.value_start[v], network.value_start[v + 1]):
            count += state[place] != REMOVED
        left[v] = count


@helper
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


@helper
def ascend_open(
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
            bound = collect(network, v, state, stale, bound, need, reach, radius, least, work)
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
