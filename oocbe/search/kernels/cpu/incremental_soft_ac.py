"""Lower bounds for nodes, on the cost of all their completions, by incremental dual ascent.

**What it is.** The functions are conditioned on the node's decisions, and sequential dual ascent moves costs between
them and their variables (Kolmogorov 2006, *Convergent tree-reweighted message passing*, for pairs; Kolmogorov 2015, *A
new look at reweighted message passing*, SRMP, for larger scopes). A few passes start from the state of the node's
parent. The cost of the cheapest value of a variable is a cost of every completion and is added to the node's *bound*.
A value that lifts the bound to the cutoff is removed, which may empty other domains. Hard constraints are costs above
any threshold, so this also propagates them.

**Why it is valid.** Only costs move: a function loses what a variable gains (*equivalence-preserving transformations*;
Cooper, de Givry, Sanchez, Schiex, Zytnicki and Werner 2010, *Soft arc consistency revisited*). The sum of the bound,
the state and the reduced costs of the functions is the cost of every assignment, and reduced costs stay non-negative.
So the bound never exceeds that cost, after any sequence of moves. A node is its parent with fewer values: costs of its
completions are unchanged, so the parent's moves and bound stay valid. Numbers are integers in fixed point. Each cost is
rounded down once and capped at the threshold, and no later step rounds: rounding down only lowers costs, and a cost at
the threshold excludes an assignment by itself. For sums of floats the threshold is raised by the maximum rounding
error.

**What it costs.** Only *stale* uses are visited. A use of a variable in a function is stale if the function may have
more spare cost for the variable than at the last visit, because another variable lost a value or moved costs into it.
Uses of removed values are not marked: their shares are meaningless. A function that has become a *sum* over two open
variables, such as a satisfied clause, or a cost of values that are gone, passes no cost from one to the other: it is
given none, which leaves more for the others, and it does not count for branching. With this, Max-3-SAT took half of the
nodes.

**Related work.** This is called *soft arc consistency*: costs are moved until no single move raises the bound (EDAC: de
Givry, Heras, Zytnicki and Larrosa 2005, *Existential arc consistency: getting closer to full arc consistency in
weighted CSPs*), or no sequence of zero-cost moves does (VAC: Cooper et al. 2010). Fixed points of dual ascent are
equivalent to the latter (Werner 2007, *A linear programming approach to max-sum problem*: both solve the dual of the
local polytope up to such fixed points). AND/OR search uses *mini-bucket heuristics* (Kask and Dechter 2001, *A general
scheme for automatic generation of search heuristics from specification dependencies*; Marinescu and Dechter 2009,
*AND/OR branch-and-bound search for combinatorial optimization in graphical models*): tables computed once and read at
each node. They are cheap and join many variables, but ignore values removed at the node.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation
from oocbe.kernels.cpu.projection import MOST_MOVED, REMOVED, project_pair, project_table, project_triple
from oocbe.search.kernels.cpu.node_state import (
    ARITY,
    FUNCTION,
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
    note_sum,
)

MOST_PASSES = 16
"""Maximum number of passes of one node, even while values are removed."""

NO_ROW = np.int64(1 << 40)
"""A cost above any sum of costs and shares, in 64 bits."""

LAST_COST = np.int32(REMOVED - 1)
"""Maximum cost of a value that is not removed."""


@inline
def _project_tie(network: Any, node: Any, i: Any, size: Any) -> Any:
    """:func:`project_pair` for a tie, in time linear in the domain sizes: its table has two distinct rows and
    columns."""
    near, state, least, tables = node.near, node.state, node.least, network.tables
    start, message = np.uint64(near[i, OTHER + PLACE]), np.uint64(near[i, OTHER + MESSAGE])
    value, others, size = np.uint64(near[i, TIED_VALUE]), np.uint64(near[i, OTHER + SIZE]), np.uint64(size)
    within, outside = REMOVED, REMOVED
    if near[i, TIE] == MEMBER:
        for b in range(others):
            if state[start + b] != REMOVED:
                rest = np.int32(-state[message + b])
                within = rest if b == value else within
                outside = outside if b == value else min(outside, rest)
        cell = np.uint64(near[i, TABLE]) + value * size
        for a in range(size):
            least[a] = within if tables[cell + a] == 0 else outside
        return
    cell = np.uint64(near[i, TABLE]) + value
    for b in range(others):
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
def _project_triple(network: Any, node: Any, i: Any, start: Any, size: Any) -> Any:
    """:func:`project_triple` for a use."""
    near = node.near
    project_triple(
        network.tables,
        near[i, TABLE],
        node.state,
        start,
        size,
        near[i, OWN_STEP],
        near[i, OTHER + PLACE],
        near[i, OTHER + MESSAGE],
        near[i, OTHER + SIZE],
        near[i, OTHER + STEP],
        near[i, THIRD + PLACE],
        near[i, THIRD + MESSAGE],
        near[i, THIRD + SIZE],
        near[i, THIRD + STEP],
        node.least,
    )


@inline
def _project_small_triple(network: Any, node: Any, i: Any) -> Any:
    """:func:`_project_triple` for three variables with two values each, unrolled."""
    near, state, tables = node.near, node.state, network.tables
    start_b, message_b = np.uint64(near[i, OTHER + PLACE]), np.uint64(near[i, OTHER + MESSAGE])
    start_c, message_c = np.uint64(near[i, THIRD + PLACE]), np.uint64(near[i, THIRD + MESSAGE])
    step_b, step_c, one = np.uint64(near[i, OTHER + STEP]), np.uint64(near[i, THIRD + STEP]), np.uint64(1)
    # A removed value adds NO_ROW, which excludes its tuples.
    b_0 = -np.int64(state[message_b]) if state[start_b] != REMOVED else NO_ROW
    b_1 = -np.int64(state[message_b + one]) if state[start_b + one] != REMOVED else NO_ROW
    c_0 = -np.int64(state[message_c]) if state[start_c] != REMOVED else NO_ROW
    c_1 = -np.int64(state[message_c + one]) if state[start_c + one] != REMOVED else NO_ROW
    cell, limit = np.uint64(near[i, TABLE]), np.int64(REMOVED)
    for a in range(2):
        with_0 = min(tables[cell] + b_0, tables[cell + step_b] + b_1) + c_0
        with_1 = min(tables[cell + step_c] + b_0, tables[cell + step_b + step_c] + b_1) + c_1
        node.least[a] = min(limit, min(with_0, with_1))
        cell += np.uint64(near[i, OWN_STEP])


@inline
def _mark_others(network: Any, node: Any, i: Any, further: Any) -> Any:
    """Mark the other uses of a function as stale, and raise the reach of their variables to ``further``."""
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
    use, f = near[i, USE], near[i, FUNCTION]
    for other in range(network.function_start[f], network.function_start[f + 1]):
        if other != use:
            mark_dirty(node, other, 1)
            w = network.variable[other]
            node.reach[w] = max(node.reach[w], further)


@without_allocation
def remove(network: Any, node: Any, v: Any, a: Any, radius: Any) -> Any:
    """Remove a value and all tuples with it."""
    keep_values(network, node, v)
    node.state[network.value_start[v] + a] = REMOVED
    node.left[v] -= 1
    propagate_removal(network, node, v, 1, radius)


@without_allocation
def propagate_removal(network: Any, node: Any, v: Any, values: Any, radius: Any) -> Any:
    """Propagate the loss of ``values`` values of a variable to its neighbours."""
    node.counts[REMOVALS] += values
    for i in range(network.use_start[v], network.use_start[v + 1]):
        _mark_others(network, node, i, radius)
    if node.left[v] == 1:
        close(network, node, v, -1)
    for i in range(network.use_start[v], network.use_start[v + 1]):
        note_sum(network, node, node.near[i, FUNCTION])


@inline
def _take_two(network: Any, node: Any, i: Any, v: Any, start: Any) -> Any:
    """:func:`_take` for a variable with two values."""
    state, message, start = node.state, np.uint64(node.near[i, MESSAGE_PLACE]), np.uint64(start)
    message_1, start_1 = message + np.uint64(1), start + np.uint64(1)
    least_0, least_1 = np.int64(node.least[0]), np.int64(node.least[1])
    cost_0, cost_1 = np.int64(state[start]), np.int64(state[start_1])
    taken_0, taken_1 = np.int64(state[message]), np.int64(state[message_1])
    none = np.int64(0)
    more_0 = none if cost_0 == REMOVED else min(least_0 - taken_0, min(LAST_COST - cost_0, MOST_MOVED - taken_0))
    more_1 = none if cost_1 == REMOVED else min(least_1 - taken_1, min(LAST_COST - cost_1, MOST_MOVED - taken_1))
    is_none_0, is_none_1 = least_0 == REMOVED and cost_0 != REMOVED, least_1 == REMOVED and cost_1 != REMOVED
    if more_0 <= 0 and more_1 <= 0 and not is_none_0 and not is_none_1:
        return
    keep_values(network, node, v)
    keep_message(node, node.near[i, USE], node.near[i, MESSAGE_PLACE], 2)
    more_0, more_1 = max(none, more_0), max(none, more_1)
    state[message], state[message_1] = taken_0 + more_0, taken_1 + more_1
    # No tuple: removed in :func:`collect`.
    state[start] = LAST_COST if is_none_0 else cost_0 + more_0
    state[start_1] = LAST_COST if is_none_1 else cost_1 + more_1


@inline
def _take(network: Any, node: Any, i: Any, v: Any, start: Any, size: Any) -> Any:
    """Move the spare cost of a function to each value of one of its variables, by ``node.least``."""
    state, least, first, length = node.state, node.least, node.near[i, MESSAGE_PLACE], size
    message, start, size = np.uint64(first), np.uint64(start), np.uint64(size)
    most = np.int32(0)
    for a in range(size):
        spare = np.int32(least[a] - state[message + a])
        most = max(most, np.int32(0) if state[start + a] == REMOVED else spare)
    if most == 0:
        return
    keep_values(network, node, v)
    keep_message(node, node.near[i, USE], first, length)
    for a in range(size):
        cost, taken = state[start + a], state[message + a]
        more = min(np.int32(least[a] - taken), np.int32(LAST_COST - cost), np.int32(MOST_MOVED - taken))
        more = max(more, np.int32(0))
        more = np.int32(0) if cost == REMOVED else more
        state[message + a] = taken + more
        cost = np.int32(cost + more)
        # No tuple: removed in :func:`collect`.
        state[start + a] = LAST_COST if least[a] == REMOVED and cost != REMOVED else cost


@without_allocation
def collect(network: Any, node: Any, v: Any, bound: Any, need: Any, radius: Any) -> Any:
    """Move all spare cost of a variable's functions to its values; returns the new bound, at most ``need``.

    Values whose cost then reaches ``need`` are removed. A variable whose cheapest value costs half of ``need`` or more
    has a conflict.
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
            place, own = node.near[i, OTHER + PLACE], node.near[i, OTHER + MESSAGE]
            others, table = node.near[i, OTHER + SIZE], node.near[i, TABLE]
            project_pair(network.tables, table, state, place, own, others, size, node.least)
        elif arity == 3 and size == 2 and node.near[i, OTHER + SIZE] == 2 and node.near[i, THIRD + SIZE] == 2:
            _project_small_triple(network, node, i)
        elif arity == 3:
            _project_triple(network, node, i, start, size)
        else:
            f = node.near[i, FUNCTION]
            project_table(network, f, use - network.function_start[f], state, node.least, node.digits)
        if size == 2:
            _take_two(network, node, i, v, start)
        else:
            _take(network, node, i, v, start, size)
    low, first, length = REMOVED, np.uint64(start), np.uint64(size)
    for a in range(length):
        low = min(low, state[first + a])
    bound += low
    if bound >= need or low == REMOVED:
        # Small costs of many variables reach ``need`` at any of them; with these Max-2-SAT took four times the nodes.
        node.failures[v] += 2 * low >= need
        return need
    if low > 0:
        keep_values(network, node, v)
        for a in range(length):
            cost = state[first + a]
            state[first + a] = cost if cost == REMOVED else np.int32(cost - low)
    before = node.left[v]
    for a in range(length):
        if state[first + a] != REMOVED and state[first + a] + bound >= need:
            if node.left[v] == before:
                keep_values(network, node, v)
            state[first + a] = REMOVED
            node.left[v] -= 1
    if node.left[v] < before:
        propagate_removal(network, node, v, before - node.left[v], radius)
    return bound


@inline
def _worst_losses(network: Any, node: Any, i: Any, best: Any, size: Any, need: Any) -> Any:
    """Write to ``node.least`` the largest increase of a function's cost, over all remaining values of its other
    variables, if ``best`` replaces each value; tuples that cost ``need`` before do not count."""
    near, state, least, tables = node.near, node.state, node.least, network.tables
    best, size, cell = np.uint64(best), np.uint64(size), np.uint64(near[i, TABLE])
    start_b, step_b = np.uint64(near[i, OTHER + PLACE]), np.uint64(near[i, OTHER + STEP])
    for a in range(size):
        least[a] = -REMOVED
    if near[i, ARITY] == 2:
        for b in range(np.uint64(near[i, OTHER + SIZE])):
            if state[start_b + b] != REMOVED:
                cost = tables[cell + best]
                for a in range(size):
                    loss = np.int32(cost - tables[cell + a]) if tables[cell + a] < need else -REMOVED
                    least[a] = max(least[a], loss)
            cell += size
        return
    start_c, size_c = np.uint64(near[i, THIRD + PLACE]), np.uint64(near[i, THIRD + SIZE])
    step_c, step = np.uint64(near[i, THIRD + STEP]), np.uint64(near[i, OWN_STEP])
    for b in range(np.uint64(near[i, OTHER + SIZE])):
        if state[start_b + b] != REMOVED:
            for c in range(size_c):
                if state[start_c + c] != REMOVED:
                    place = cell + c * step_c
                    cost = tables[place + best * step]
                    for a in range(size):
                        own = tables[place + a * step]
                        least[a] = max(least[a], np.int32(cost - own) if own < need else -REMOVED)
        cell += step_b


@without_allocation
def _remove_dominated(network: Any, node: Any, v: Any, need: Any, radius: Any) -> Any:
    """Remove the values of a variable for which its cheapest one can be substituted at no loss.

    After :func:`collect`, a substitution gains in no function, so the cost of a value beyond the cheapest one has to
    cover the losses in all functions. Few values get beyond the first function.
    """
    state, least, room, start = node.state, node.least, node.share, network.value_start[v]
    size = network.value_start[v + 1] - start
    best = 0
    for a in range(1, size):
        if state[start + a] < state[start + best]:
            best = a
    for a in range(size):
        cost = state[start + a]
        room[a] = -1 if a == best or cost == REMOVED else max(-1, cost - state[start + best] - node.margin[v])
    for i in range(network.use_start[v], network.use_start[v + 1]):
        _worst_losses(network, node, i, best, size, need)
        message, most = node.near[i, MESSAGE_PLACE], np.int32(-1)
        for a in range(size):
            if room[a] >= 0:
                loss = np.int64(least[a]) + state[message + a] - state[message + best]
                room[a] = max(-1, min(room[a] - loss, LAST_COST))
                most = max(most, room[a])
        if most < 0:
            return
    for a in range(size):
        if room[a] >= 0:
            remove(network, node, v, a, radius)


@inline
def _hand_on_open(network: Any, node: Any, v: Any, is_forward: Any, further: Any) -> Any:
    """Pass equal parts of a variable's costs to functions with an open variable further along this pass.

    further : new minimum reach of their variables.
    """
    state, left, ahead, share = node.state, node.left, node.ahead, node.share
    start, first = network.value_start[v], network.use_start[v]
    length = network.value_start[v + 1] - start
    most, start, size = np.int32(0), np.uint64(start), np.uint64(length)
    for a in range(size):
        share[a] = np.int32(0) if state[start + a] == REMOVED else state[start + a]
        most = max(most, share[a])
    if most == 0:
        return  # no cost to move
    before, after = 0, 0
    for i in range(first, network.use_start[v + 1]):
        is_before, is_after = False, False
        if node.is_sum[node.near[i, FUNCTION]]:
            pass  # whatever it is given stays in it
        elif node.near[i, ARITY] <= 3:
            w = node.near[i, OTHER + VARIABLE]
            is_before = left[w] > 1 and w < v
            is_after = left[w] > 1 and w > v
            if node.near[i, ARITY] == 3:
                w = node.near[i, THIRD + VARIABLE]
                is_before |= left[w] > 1 and w < v
                is_after |= left[w] > 1 and w > v
        else:
            f = node.near[i, FUNCTION]
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
        use, message = node.near[i, USE], np.uint64(node.near[i, MESSAGE_PLACE])
        keep_message(node, use, node.near[i, MESSAGE_PLACE], length)
        for a in range(size):
            # Zero for a removed value, whose message may hold the marker.
            part = min(share[a], max(np.int32(0), np.int32(state[message + a] + MOST_MOVED)))
            state[message + a] -= part
            state[start + a] -= part
        mark_dirty(node, use, 1)
        _mark_others(network, node, i, further)


@without_allocation
def tighten_node(network: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any) -> Any:
    """Pass forward and backward over the variables within reach; returns the bound, at most ``need``.

    passes : minimum number, unless one gains nothing; more while values are removed.
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
                return need
            if further + 1 == radius and node.margin[v] >= 0 and left[v] > 1:
                _remove_dominated(network, node, v, need, radius)
            _hand_on_open(network, node, v, is_forward, further)
        number += 1
        is_settled = node.counts[REMOVALS] == removals
        if number >= passes and (is_settled or number >= MOST_PASSES):
            return bound
        if number >= 2 and bound == before and is_settled:
            return bound
