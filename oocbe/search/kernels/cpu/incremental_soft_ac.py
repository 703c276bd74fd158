"""Dual ascent for a node that differs little from the one before it: only what is *stale* is looked at.

A use of a variable in a function is stale where the function may have more to spare for the variable than when that was
taken last, as another variable has lost a value or handed something on. States, bounds and what moves between them are
those of :mod:`oocbe.bounds.kernels.cpu.row_ascent`, but a use of a value that is removed is not marked: what was taken
for it stands for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation
from oocbe.kernels.cpu.projection import MOST_MOVED, REMOVED, project_table
from oocbe.search.kernels.cpu.node_state import (
    ARITY,
    MEMBER,
    MESSAGE,
    MESSAGE_PLACE,
    OTHER,
    OWN_STEP,
    PLACE,
    REMOVALS,
    SIZE,
    STEP,
    TABLE,
    THIRD,
    TIE,
    TIED_VALUE,
    USE,
    USE_OF,
    VARIABLE,
    close,
    keep_message,
    keep_values,
    mark_dirty,
)

MOST_PASSES = 16
"""Of one node, however many values go."""

NO_ROW = np.int64(1 << 40)
"""More than any sum of costs and of what has been moved, in 64 bits."""

LAST_COST = np.int32(REMOVED - 1)
"""The most that a value can cost which is not removed."""


@inline
def _project_pair(network: Any, node: Any, i: Any, size: Any) -> Any:
    """Least cost of a function over two variables for each value of one, before what that one has taken."""
    near, state, least, tables = node.near, node.state, node.least, network.tables
    start, message, cell = near[i, OTHER + PLACE], near[i, OTHER + MESSAGE], near[i, TABLE]
    if size == 2:  # two numbers, and no loop over them
        one, two = np.int64(REMOVED), np.int64(REMOVED)
        for b in range(near[i, OTHER + SIZE]):
            if state[start + b] != REMOVED:
                taken = state[message + b]
                one = min(one, tables[cell] - taken)
                two = min(two, tables[cell + 1] - taken)
            cell += 2
        least[0], least[1] = one, two
        return
    for a in range(size):
        least[a] = REMOVED
    for b in range(near[i, OTHER + SIZE]):
        if state[start + b] != REMOVED:
            taken = state[message + b]
            for a in range(size):
                least[a] = min(least[a], np.int32(tables[cell + a] - taken))
        cell += size


@inline
def _project_tie(network: Any, node: Any, i: Any, size: Any) -> Any:
    """The same of a tie, of whose table each row and column is one of two: time that grows with both sizes only."""
    near, state, least, tables = node.near, node.state, node.least, network.tables
    start, message, value = near[i, OTHER + PLACE], near[i, OTHER + MESSAGE], near[i, TIED_VALUE]
    within, outside = REMOVED, REMOVED
    if near[i, TIE] == MEMBER:
        for b in range(near[i, OTHER + SIZE]):
            if state[start + b] != REMOVED:
                rest = np.int32(-state[message + b])
                within = rest if b == value else within
                outside = outside if b == value else min(outside, rest)
        cell = near[i, TABLE] + value * size
        for a in range(size):
            least[a] = within if tables[cell + a] == 0 else outside
        return
    cell = near[i, TABLE] + value
    for b in range(near[i, OTHER + SIZE]):
        if state[start + b] != REMOVED:
            rest = np.int32(-state[message + b])
            if tables[cell] == 0:
                within = min(within, rest)
            else:
                outside = min(outside, rest)
        cell += size
    for a in range(size):
        least[a] = within if a == value else outside


@inline
def _project_triple(network: Any, node: Any, i: Any, size: Any) -> Any:
    """The same of a function over three variables."""
    near, state, least, tables = node.near, node.state, node.least, network.tables
    start_b, message_b, step_b = near[i, OTHER + PLACE], near[i, OTHER + MESSAGE], near[i, OTHER + STEP]
    start_c, message_c, step_c = near[i, THIRD + PLACE], near[i, THIRD + MESSAGE], near[i, THIRD + STEP]
    step = near[i, OWN_STEP]
    for a in range(size):
        least[a] = REMOVED
    cell_b = near[i, TABLE]
    for b in range(near[i, OTHER + SIZE]):
        if state[start_b + b] != REMOVED:
            taken_b, cell_c = state[message_b + b], cell_b
            for c in range(near[i, THIRD + SIZE]):
                if state[start_c + c] != REMOVED:
                    taken, cell = np.int32(taken_b + state[message_c + c]), cell_c
                    for a in range(size):
                        least[a] = min(least[a], np.int32(tables[cell] - taken))
                        cell += step
                cell_c += step_c
        cell_b += step_b


@inline
def _project_small_triple(network: Any, node: Any, i: Any) -> Any:
    """The same where all three have two values: eight numbers, and no loop over them."""
    near, state, tables = node.near, node.state, network.tables
    start_b, message_b, step_b = near[i, OTHER + PLACE], near[i, OTHER + MESSAGE], near[i, OTHER + STEP]
    start_c, message_c, step_c = near[i, THIRD + PLACE], near[i, THIRD + MESSAGE], near[i, THIRD + STEP]
    # What a value that is removed adds makes a row none.
    b_0 = -np.int64(state[message_b]) if state[start_b] != REMOVED else NO_ROW
    b_1 = -np.int64(state[message_b + 1]) if state[start_b + 1] != REMOVED else NO_ROW
    c_0 = -np.int64(state[message_c]) if state[start_c] != REMOVED else NO_ROW
    c_1 = -np.int64(state[message_c + 1]) if state[start_c + 1] != REMOVED else NO_ROW
    cell, limit = near[i, TABLE], np.int64(REMOVED)
    for a in range(2):
        with_0 = min(tables[cell] + b_0, tables[cell + step_b] + b_1) + c_0
        with_1 = min(tables[cell + step_c] + b_0, tables[cell + step_b + step_c] + b_1) + c_1
        node.least[a] = min(limit, min(with_0, with_1))
        cell += near[i, OWN_STEP]


@inline
def _mark_others(network: Any, node: Any, i: Any, further: Any) -> Any:
    """The other uses of a function are stale, and their variables' reach becomes so much at least."""
    near, arity = node.near, node.near[i, ARITY]
    if arity <= 3:
        mark_dirty(node, near[i, OTHER + USE_OF], 1)
        w = near[i, OTHER + VARIABLE]
        node.reach[w] = max(node.reach[w], further)
        if arity == 3:
            mark_dirty(node, near[i, THIRD + USE_OF], 1)
            w = near[i, THIRD + VARIABLE]
            node.reach[w] = max(node.reach[w], further)
        return
    use = near[i, USE]
    f = network.function[use]
    for other in range(network.function_start[f], network.function_start[f + 1]):
        if other != use:
            mark_dirty(node, other, 1)
            w = network.variable[other]
            node.reach[w] = max(node.reach[w], further)


@without_allocation
def remove(network: Any, node: Any, v: Any, a: Any, radius: Any) -> Any:
    """Rule out a value: no row of any function with it counts any more."""
    keep_values(network, node, v)
    node.state[network.value_start[v] + a] = REMOVED
    node.left[v] -= 1
    propagate_removal(network, node, v, 1, radius)


@without_allocation
def propagate_removal(network: Any, node: Any, v: Any, values: Any, radius: Any) -> Any:
    """Tell the neighbours of a variable that so many of its values have gone."""
    node.counts[REMOVALS] += values
    for i in range(network.use_start[v], network.use_start[v + 1]):
        _mark_others(network, node, i, radius)
    if node.left[v] == 1:
        close(network, node, v, -1)


@inline
def _take_two(network: Any, node: Any, i: Any, v: Any, start: Any) -> Any:
    """As :func:`_take`, of a variable with two values."""
    state, message = node.state, node.near[i, MESSAGE_PLACE]
    least_0, least_1 = np.int64(node.least[0]), np.int64(node.least[1])
    cost_0, cost_1 = np.int64(state[start]), np.int64(state[start + 1])
    taken_0, taken_1 = np.int64(state[message]), np.int64(state[message + 1])
    none = np.int64(0)
    more_0 = none if cost_0 == REMOVED else min(least_0 - taken_0, min(LAST_COST - cost_0, MOST_MOVED - taken_0))
    more_1 = none if cost_1 == REMOVED else min(least_1 - taken_1, min(LAST_COST - cost_1, MOST_MOVED - taken_1))
    is_none_0, is_none_1 = least_0 == REMOVED and cost_0 != REMOVED, least_1 == REMOVED and cost_1 != REMOVED
    if more_0 <= 0 and more_1 <= 0 and not is_none_0 and not is_none_1:
        return
    keep_values(network, node, v)
    keep_message(node, node.near[i, USE], message, 2)
    more_0, more_1 = max(none, more_0), max(none, more_1)
    state[message], state[message + 1] = taken_0 + more_0, taken_1 + more_1
    # No row: it is removed by whoever collects.
    state[start] = LAST_COST if is_none_0 else cost_0 + more_0
    state[start + 1] = LAST_COST if is_none_1 else cost_1 + more_1


@inline
def _take(network: Any, node: Any, i: Any, v: Any, start: Any, size: Any) -> Any:
    """Take out of a function what it can spare for each value of one of its variables, as ``node.least`` says."""
    state, least, message = node.state, node.least, node.near[i, MESSAGE_PLACE]
    most = np.int32(0)
    for a in range(size):
        spare = np.int32(least[a] - state[message + a])
        most = max(most, np.int32(0) if state[start + a] == REMOVED else spare)
    if most == 0:
        return
    keep_values(network, node, v)
    keep_message(node, node.near[i, USE], message, size)
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
        use, arity = node.near[i, USE], node.near[i, ARITY]
        if not node.stale[use]:
            continue
        mark_dirty(node, use, 0)
        if node.near[i, TIE]:
            _project_tie(network, node, i, size)
        elif arity == 2:
            _project_pair(network, node, i, size)
        elif arity == 3 and size == 2 and node.near[i, OTHER + SIZE] == 2 and node.near[i, THIRD + SIZE] == 2:
            _project_small_triple(network, node, i)
        elif arity == 3:
            _project_triple(network, node, i, size)
        else:
            f = network.function[use]
            project_table(network, f, use - network.function_start[f], state, node.least, node.digits)
        if size == 2:
            _take_two(network, node, i, v, start)
        else:
            _take(network, node, i, v, start, size)
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


@inline
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
        is_before, is_after = False, False
        if node.near[i, ARITY] <= 3:
            w = node.near[i, OTHER + VARIABLE]
            is_before = left[w] > 1 and w < v
            is_after = left[w] > 1 and w > v
            if node.near[i, ARITY] == 3:
                w = node.near[i, THIRD + VARIABLE]
                is_before |= left[w] > 1 and w < v
                is_after |= left[w] > 1 and w > v
        else:
            f = network.function[node.near[i, USE]]
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
        use, message = node.near[i, USE], node.near[i, MESSAGE_PLACE]
        keep_message(node, use, message, size)
        for a in range(size):
            # Nothing of a value that is gone, whose message may say so.
            part = min(share[a], max(np.int32(0), np.int32(state[message + a] + MOST_MOVED)))
            state[message + a] -= part
            state[start + a] -= part
        mark_dirty(node, use, 1)
        _mark_others(network, node, i, further)


@without_allocation
def tighten_node(network: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any) -> Any:
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
