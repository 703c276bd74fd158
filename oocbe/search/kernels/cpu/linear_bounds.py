"""Linear constraints at a node of a depth-first search: removal of values, and Lagrangian bounds.

A constraint limits the total consumption of values to its capacity. For any *multiplier* of at least 0, each value is
charged for its consumption and the charge of the full capacity is refunded; this makes no permitted assignment more
expensive (*Lagrangian relaxation*; Geoffrion 1974, *Lagrangean relaxation for integer programming*). Charges are unary
costs, which dual ascent moves like all others. The multiplier is part of the state; each node moves it to the maximum
of the sum of the cheapest values, which solves the linear program of the single constraint (for knapsacks among cost
functions: Montalbano, de Givry and Katsirelos 2022, *Multiple-choice knapsack constraint in graphical models*).
Charges and refunds are rounded down; the refund is at least the sum of the charges of any permitted assignment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import without_allocation
from oocbe.kernels.cpu.projection import REMOVED
from oocbe.search.kernels.cpu.incremental_soft_ac import collect, remove, tighten_node
from oocbe.search.kernels.cpu.node_state import REMOVALS, keep_number, keep_values

LARGEST_MULTIPLIER = np.int64(1 << 30)
"""Maximum multiplier, in fixed point, see :class:`Linear`."""

MOST_STEPS = 24
"""Maximum number of interpolation steps for a multiplier: three to six are usual."""

MOST_ROUNDS = 16
"""Maximum number of rounds of multipliers and passes at a node other than the root."""

PROMISE = 16
"""Rounds continue at a node while this many rounds like the last one would raise the bound to ``need``. With 3 rounds
at each node knapsacks and nurses' shifts took 1.5 times as long, with 1 knapsacks took four times as many nodes."""


class Linear(NamedTuple):
    """Linear constraints laid out for the search; an *entry* is a variable of a constraint.

    start : int64 (constraints + 1,), the entries of each. variable : int64 (entries,).
    coefficient_start : int64 (entries,), start of the coefficients of an entry's values in ``coefficient``.
    coefficient : int64, at least 0. capacity : int64 (constraints,). priced, refund : the same in units of a power of
        two, rounded down, for products with multipliers: assignments within the capacity are within the refund. bits :
        int64 (constraints,), multipliers are in units of 2**-bits. place : int64 (constraints,), index of the
        multiplier in a state.
    """

    start: Any
    variable: Any
    coefficient_start: Any
    coefficient: Any
    capacity: Any
    priced: Any
    refund: Any
    bits: Any
    place: Any


@without_allocation
def _relaxed(network: Any, linear: Any, state: Any, c: Any, now: Any, tried: Any) -> Any:
    """Sum of the cheapest values with the multiplier ``tried`` instead of ``now``, and their consumption beyond the
    capacity."""
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
    """As :func:`~oocbe.search.kernels.cpu.incremental_soft_ac.tighten_node`, with linear constraints.

    rounds : limit of rounds of multipliers and passes.
    """
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
