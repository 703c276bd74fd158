"""Depth-first search over nodes that each have a bound of their own; see :mod:`oocbe.search.depth_search`.

A node is the remaining values of variables, and a state with a bound.
It branches on a decision about one variable (it has a value, or its value is in one half of the domain), and then on
the opposite decision, which is applied to the node's own state. There is one state, undo data for each node of the path
(:mod:`oocbe.search.kernels.cpu.node_state`), and a record of stale uses
(:mod:`oocbe.search.kernels.cpu.node_state`).

Linear constraints remove values at a node, and give Lagrangian bounds. A constraint limits the total consumption of
values to its capacity. For any *multiplier* of at least 0, each value is charged for its consumption and the charge of
the full capacity is refunded; this makes no permitted assignment more expensive (*Lagrangian relaxation*; Geoffrion
1974, *Lagrangean relaxation for integer programming*). Charges are unary costs, which dual ascent moves like all
others. The multiplier is part of the state; each node moves it to the maximum of the sum of the cheapest values, which
solves the linear program of the single constraint (for knapsacks among cost functions: Montalbano, de Givry and
Katsirelos 2022, *Multiple-choice knapsack constraint in graphical models*). Charges and refunds are rounded down; the
refund is at least the sum of the charges of any permitted assignment.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import borrowing, jit, without_allocation
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.search.kernels.cpu.node_state import (
    FLIPS,
    NUMBER,
    PARTS,
    REMOVALS,
    begin_root,
    collect,
    go_back,
    has_room,
    keep_number,
    keep_values,
    propagate_removal,
    remove,
    tighten_node,
)

LARGEST_MULTIPLIER = np.int64(1 << 30)
"""Maximum multiplier, in fixed point, see :class:`Linear`."""

MOST_STEPS = 24
"""Maximum number of interpolation steps for a multiplier: three to six are usual."""

MOST_ROUNDS = 16
"""Maximum number of rounds of multipliers and passes at a node other than the root."""

PROMISE = 16
"""Rounds continue at a node while this many rounds like the last one would raise the bound to ``need``. With 3 rounds
at each node knapsacks and nurses' shifts took 1.5 times as long, with 1 knapsacks took four times as many nodes."""


Linear = namedtuple("Linear", "start variable coefficient_start coefficient capacity priced refund bits place")
"""Linear constraints laid out for the search; an *entry* is a variable of a constraint.

start : int64 (constraints + 1,), the entries of each. variable : int64 (entries,).
coefficient_start : int64 (entries,), start of the coefficients of an entry's values in ``coefficient``.
coefficient : int64, at least 0. capacity : int64 (constraints,). priced, refund : the same in units of a power of
    two, rounded down, for products with multipliers: assignments within the capacity are within the refund. bits :
    int64 (constraints,), multipliers are in units of 2**-bits. place : int64 (constraints,), index of the
    multiplier in a state.
"""


@without_allocation
def _relaxed(network: Any, linear: Any, state: Any, c: Any, now: Any, tried: Any) -> Any:
    """Sum of cheapest values with the multiplier ``tried``, not ``now``, and their consumption beyond the capacity."""
    bits, capacity = linear.bits[c], linear.refund[c]
    total = ((now * capacity) >> bits) - ((tried * capacity) >> bits)
    beyond = -capacity
    for entry in range(linear.start[c], linear.start[c + 1]):
        v, first = linear.variable[entry], linear.coefficient_start[entry]
        start = network.value_start[v]
        low, taken = np.int64(1) << 60, np.int64(0)
        for a in range(network.value_start[v + 1] - start):
            cost = np.int64(state[start + a])
            if cost != REMOVED:
                coefficient = linear.priced[first + a]
                cost += ((tried * coefficient) >> bits) - ((now * coefficient) >> bits)
                if cost < low or (cost == low and coefficient < taken):
                    low, taken = cost, coefficient
        total += low
        beyond += taken
    return total, beyond


@without_allocation
def _multiplier(network: Any, linear: Any, state: Any, c: Any) -> Any:
    """The multiplier with the maximum sum of the cheapest values, and the sum.

    The sum is concave and piecewise linear in the multiplier. Two multipliers bracket the maximum; the intersection of
    their tangent lines is tried next.
    """
    now = np.int64(state[linear.place[c]])
    best, best_total = now, np.int64(0)
    total, beyond = _relaxed(network, linear, state, c, now, now)
    best_total = total
    if beyond == 0 or (beyond < 0 and now == 0):
        return best, best_total
    low, low_total, low_beyond = now, total, beyond
    high, high_total, high_beyond = now, total, beyond
    if beyond > 0:
        step = max(now >> 3, np.int64(1) << 4)
        while high_beyond > 0 and high < LARGEST_MULTIPLIER:
            low, low_total, low_beyond = high, high_total, high_beyond
            high = min(high + step, LARGEST_MULTIPLIER)
            step *= 4
            high_total, high_beyond = _relaxed(network, linear, state, c, now, high)
            if high_total > best_total:
                best, best_total = high, high_total
    else:
        step = max(now >> 3, np.int64(1) << 4)
        while low_beyond < 0 and low > 0:
            high, high_total, high_beyond = low, low_total, low_beyond
            low = max(low - step, np.int64(0))
            step *= 4
            low_total, low_beyond = _relaxed(network, linear, state, c, now, low)
            if low_total > best_total:
                best, best_total = low, low_total
    scale = 1.0 / (np.int64(1) << linear.bits[c])
    for _ in range(MOST_STEPS):
        if low_beyond <= 0 or high_beyond >= 0 or high - low <= 1:
            break
        one, two = low_beyond * scale, high_beyond * scale
        middle = low + np.int64((high_total - low_total - two * (high - low)) / (one - two))
        middle = min(max(middle, low + 1), high - 1)
        total, beyond = _relaxed(network, linear, state, c, now, middle)
        if total > best_total:
            best, best_total = middle, total
        if beyond > 0:
            low, low_total, low_beyond = middle, total, beyond
        elif beyond < 0:
            high, high_total, high_beyond = middle, total, beyond
        else:
            break
    return best, best_total


@without_allocation
def _exclude(network: Any, linear: Any, node: Any, c: Any, bound: Any, need: Any, radius: Any) -> Any:
    """Remove the values that exceed the remaining capacity; returns the bound, at most ``need``."""
    state, left = node.state, linear.capacity[c]
    for entry in range(linear.start[c], linear.start[c + 1]):
        v, first = linear.variable[entry], linear.coefficient_start[entry]
        start, least = network.value_start[v], np.int64(1) << 60
        for a in range(network.value_start[v + 1] - start):
            if state[start + a] != REMOVED:
                least = min(least, linear.coefficient[first + a])
        left -= least
    if left < 0:
        return need
    for entry in range(linear.start[c], linear.start[c + 1]):
        v, first = linear.variable[entry], linear.coefficient_start[entry]
        if node.left[v] == 1:
            continue
        start, least = network.value_start[v], np.int64(1) << 60
        for a in range(network.value_start[v + 1] - start):
            if state[start + a] != REMOVED:
                least = min(least, linear.coefficient[first + a])
        before = node.left[v]
        for a in range(network.value_start[v + 1] - start):
            if state[start + a] != REMOVED and linear.coefficient[first + a] - least > left:
                remove(network, node, v, a, radius)
        if node.left[v] < before:
            node.reach[v] = radius
            bound = collect(network, node, v, bound, need, radius)
            if bound >= need:
                return need
    return bound


@without_allocation
def _charge(network: Any, linear: Any, node: Any, c: Any, bound: Any, need: Any, radius: Any) -> Any:
    """Move a constraint's multiplier to the maximum of the bound; returns the bound, at most ``need``."""
    state = node.state
    for entry in range(linear.start[c], linear.start[c + 1]):
        v = linear.variable[entry]
        if node.left[v] > 1:
            bound = collect(network, node, v, bound, need, radius)
            if bound >= need:
                return need
    best, total = _multiplier(network, linear, state, c)
    now = np.int64(state[linear.place[c]])
    if best == now or total <= 0:
        return bound
    bits = linear.bits[c]
    bound += total
    if bound >= need:
        return need
    keep_number(node, c, linear.place[c])
    state[linear.place[c]] = best
    for entry in range(linear.start[c], linear.start[c + 1]):
        v, first = linear.variable[entry], linear.coefficient_start[entry]
        start = network.value_start[v]
        size = network.value_start[v + 1] - start
        low = np.int64(1) << 60
        for a in range(size):
            if state[start + a] != REMOVED:
                coefficient = linear.priced[first + a]
                cost = state[start + a] + ((best * coefficient) >> bits) - ((now * coefficient) >> bits)
                low = min(low, cost)
        for a in range(size):
            if state[start + a] == REMOVED:
                continue
            coefficient = linear.priced[first + a]
            cost = state[start + a] + ((best * coefficient) >> bits) - ((now * coefficient) >> bits) - low
            if cost + bound >= need:
                remove(network, node, v, a, radius)
                node.reach[v] = radius
            elif cost != state[start + a]:
                keep_values(network, node, v)
                state[start + a] = cost
                node.reach[v] = max(node.reach[v], 1)
    return bound


@without_allocation
def ascend_with_linear(
    network: Any, linear: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any, rounds: Any
) -> Any:
    """:func:`tighten_node` with linear constraints, in at most ``rounds`` of multipliers and passes."""
    for c in range(len(linear.capacity)):
        bound = _exclude(network, linear, node, c, bound, need, radius)
        if bound >= need:
            return need
    bound = tighten_node(network, node, bound, need, passes, radius)
    if len(linear.capacity) == 0:
        return bound
    for _ in range(rounds):
        if bound >= need:
            return need
        before, removals = bound, node.counts[REMOVALS]
        for c in range(len(linear.capacity)):
            bound = _exclude(network, linear, node, c, bound, need, radius)
            if bound >= need:
                return need
            bound = _charge(network, linear, node, c, bound, need, radius)
            if bound >= need:
                return need
        if bound == before and node.counts[REMOVALS] == removals:
            return bound
        bound = tighten_node(network, node, bound, need, passes, radius)
        if PROMISE * (bound - before) < need - bound and rounds <= MOST_ROUNDS:
            return bound
    return bound


EXHAUSTED, LEAF, PAUSED, FULL = 0, 1, 2, 3
"""Results of :func:`search_depth_first`: the tree is closed; at a node with one value for each variable; node or path
limit reached; undo arrays too small for another node."""

DEPTH, NODES, LAST, ENDS = 0, 1, 2, 3
"""Indices of ``counts``: the node's depth; nodes created; variable of the last conflict or -1; number of path ends, at
a leaf or a refuted decision."""

VARIABLE, VALUE, DECISION, BEFORE, AFTER = 0, 1, 2, 3, 4
"""Columns of a decision: variable and value, its kind, and the number of the variable's values before and after it."""

IS, IS_NOT, UP_TO, BEYOND = 1, 0, 2, 3
"""Kinds of decisions: the variable has the value, or not; its value is at most that one, or greater."""

MOST_TRIED = 8
"""Maximum domain size for branching on single values; for larger domains, which costs of neighbours rarely
distinguish, a decision excludes one half between the first and the last remaining value."""

WEIGHT_BITS = 20
"""Fraction bits of weights: functions' weights are in units of 2**-20 failures."""


Search = namedtuple("Search", "bounds trail mark wanted counts")
"""Arrays written by a search beside its node.

bounds : int64 (depths,). trail : int64 (most decisions, 5), see :data:`VARIABLE`.
mark : int64 (depths, 3), number of decisions on the path to each depth, and parts and flips kept before it.
wanted : int64 (variables,), preferred first value; -1: the cheapest one. counts : int64 (4,), see :data:`DEPTH`.
"""


@without_allocation
def _choose(node: Any, last: Any) -> Any:
    """The variable to branch on; -1 if all are decided: that of the last conflict, or the one with the fewest values
    relative to its weight."""
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
    """The value to try first: the preferred one if it remains; otherwise the cheapest."""
    start = network.value_start[v]
    if wanted >= 0 and state[start + wanted] != REMOVED:
        return wanted
    best = 0
    for a in range(1, network.value_start[v + 1] - start):
        if state[start + a] < state[start + best]:
            best = a
    return best


@without_allocation
def _middle(network: Any, state: Any, v: Any) -> Any:
    """The midpoint of the first and the last remaining value."""
    start, end = network.value_start[v], network.value_start[v + 1]
    first, last = start, end - 1
    while state[first] == REMOVED:
        first += 1
    while state[last] == REMOVED:
        last -= 1
    return (first + last) // 2 - start


@without_allocation
def _decide(network: Any, node: Any, v: Any, a: Any, decision: Any, radius: Any) -> Any:
    """Apply a decision: remove the values that it excludes."""
    start = network.value_start[v]
    before = node.left[v]
    for b in range(network.value_start[v + 1] - start):
        if node.state[start + b] != REMOVED and not (
            b == a if decision == IS else b != a if decision == IS_NOT else b <= a if decision == UP_TO else b > a
        ):
            if node.left[v] == before:
                keep_values(network, node, v)
            node.state[start + b] = REMOVED
            node.left[v] -= 1
    if node.left[v] < before:
        propagate_removal(network, node, v, before - node.left[v], radius)


@jit
def opposite(decision: Any) -> Any:
    """The complement of a decision."""
    return 1 - decision if decision <= IS else UP_TO + BEYOND - decision


@borrowing
def search_depth_first(
    network: Any,
    linear: Any,
    node: Any,
    search: Any,
    need: Any,
    passes: Any,
    radius: Any,
    most_nodes: Any,
    most_ends: Any,
    done: Any,
) -> Any:
    """Continue from the node at depth ``search.counts[DEPTH]``; returns the reason of the end, see :data:`EXHAUSTED`.

    need : nodes with this bound are pruned. passes, radius : as of
        :func:`~oocbe.search.kernels.cpu.node_state.tighten_node`.
    most_nodes : limit of nodes in this call, exceeded by at most one. most_ends : limit of path ends in this call.
    done : whether the node is finished, such as a leaf with a known value.
    """
    counts, trail, mark, bounds = search.counts, search.trail, search.mark, search.bounds
    last_node, last_end = counts[NODES] + most_nodes, counts[ENDS] + most_ends
    rounds = np.int64(MOST_ROUNDS)  # a literal would be another type, and compiled apart
    while True:
        depth = counts[DEPTH]
        if not done:
            if counts[NODES] >= last_node or counts[ENDS] >= last_end:
                return PAUSED
            v = _choose(node, counts[LAST])
            if v < 0:
                counts[ENDS] += 1
                return LEAF
            if not has_room(node):
                return FULL
            bounds[depth] = collect(network, node, v, bounds[depth], need, radius)
            if node.left[v] == 1 and bounds[depth] < need:
                continue
            done = bounds[depth] >= need
            counts[ENDS] += done
        if not done:
            a = _value(network, node.state, v, search.wanted[v])
            decision, values = IS, node.left[v]
            if values > MOST_TRIED:
                middle = _middle(network, node.state, v)
                decision = UP_TO if a <= middle else BEYOND
                a = middle
            mark[depth + 1, 1], mark[depth + 1, 2] = node.counts[PARTS], node.counts[FLIPS]
            node.counts[NUMBER] += 1  # parts are saved at their next change
            node.reach[:] = 0
            counts[NODES] += 1
            _decide(network, node, v, a, decision, radius)
            node.reach[v] = radius
            bound = collect(network, node, v, bounds[depth], need, radius)
            if bound < need:
                bound = ascend_with_linear(network, linear, node, bound, need, passes, radius, rounds)
            place = mark[depth, 0]
            trail[place, VARIABLE], trail[place, VALUE], trail[place, DECISION] = v, a, decision
            trail[place, BEFORE], trail[place, AFTER] = values, node.left[v]
            mark[depth + 1, 0] = place + 1
            bounds[depth + 1] = bound
            counts[DEPTH] = depth + 1
            if bound < need:
                continue
            counts[LAST] = v
            counts[ENDS] += 1
        # The node is finished: its parent continues with the complement of its decision.
        done = True
        while done:
            depth = counts[DEPTH] - 1
            if depth < 0:
                return EXHAUSTED
            # The child's undo data is freed, which leaves room for that of this node.
            go_back(network, node, mark[depth + 1, 1], mark[depth + 1, 2])
            counts[DEPTH] = depth
            if bounds[depth] >= need:
                continue
            place = mark[depth, 0]
            v, a = trail[place, VARIABLE], trail[place, VALUE]
            decision = opposite(trail[place, DECISION])
            trail[place, DECISION], trail[place, AFTER] = decision, trail[place, BEFORE] - trail[place, AFTER]
            mark[depth, 0] = place + 1
            node.counts[NUMBER] += 1  # parts are saved at their next change
            node.reach[:] = 0
            counts[NODES] += 1
            _decide(network, node, v, a, decision, radius)
            node.reach[v] = radius
            bound = collect(network, node, v, bounds[depth], need, radius)
            if bound < need:
                bound = ascend_with_linear(network, linear, node, bound, need, passes, radius, rounds)
            bounds[depth] = bound
            done = bound >= need


@borrowing
def restore(
    network: Any, linear: Any, node: Any, bound: Any, need: Any, passes: Any, radius: Any, rounds: Any, trail: Any
) -> Any:
    """Restore the state of a node from the root's by its decisions; returns its bound, at most ``need``.

    node : with the root's state and stale uses. bound : of the root.
    rounds : limit of rounds of multipliers and passes.
    trail : int64 (decisions, 5). If empty, all stale uses are visited.
    """
    begin_root(network, node)
    node.reach[:] = 0 if len(trail) else 1
    for i in range(len(trail)):
        v = trail[i, VARIABLE]
        node.reach[v] = radius
        _decide(network, node, v, trail[i, VALUE], trail[i, DECISION], radius)
        if node.left[v] == 0:
            return need
    for v in range(len(node.left)):  # single values are visited once here, others in the ascent
        if node.reach[v]:
            bound = collect(network, node, v, bound, need, radius)
            if bound >= need:
                return need
    bound = ascend_with_linear(network, linear, node, bound, need, passes, radius, rounds)
    node.counts[FLIPS] = 0  # nothing goes back beyond this node
    return bound
