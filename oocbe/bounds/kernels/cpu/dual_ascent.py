"""Sequential dual ascent on the local polytope of functions of any arity; see :mod:`oocbe.bounds.bounds`.

The functions are those of a :class:`~oocbe.kernels.cpu.projection.AscentNetwork`, with tables in float64 or int64, in
which the last variable is fastest. A *share* is the cost that a use has moved out of its function for a value; the
reduced cost of a cell is its cost minus its shares. ``shares`` has the entry of each use and value at the place of a
state less the number of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit, without_allocation


@helper
def _scratch(network: Any) -> Any:
    """The largest domain size, and four numbers for each position of a function."""
    largest, places = 1, 1
    for v in range(len(network.value_start) - 1):
        largest = max(largest, network.value_start[v + 1] - network.value_start[v])
    for f in range(len(network.function_start) - 1):
        places = max(places, network.function_start[f + 1] - network.function_start[f])
    return largest, np.empty((4, places), dtype=np.int64)


@without_allocation
def least_of_values(
    network: Any, tables: Any, f: Any, axis: Any, shares: Any, removed: Any, least: Any, work: Any
) -> Any:
    """Least reduced cost of a function for each value of one of its variables; infinite if no tuple has the value.

    f, axis : the function, and the position of the variable in its scope.
    tables, shares : float64 or int64. removed : uint8 (values,), 1 for removed values; tuples with them are skipped.
    least : float64 or int64 (more than the domain size,), overwritten. Its last entry is the value of infinity, the
        largest number of an integer dtype. work : int64 (4, most places of a function), overwritten.
    """
    begin = network.function_start[f]
    arity = network.function_start[f + 1] - begin
    infinity, base = least[len(least) - 1], network.value_start[len(network.value_start) - 1]
    digit, size, value, share = work[0], work[1], work[2], work[3]
    for place in range(arity):
        v = network.variable[begin + place]
        digit[place] = 0
        value[place] = network.value_start[v]
        size[place] = network.value_start[v + 1] - value[place]
        share[place] = network.message_start[begin + place] - base
    for a in range(size[axis]):
        least[a] = infinity
    last, place = arity - 1, 0
    cell, values = np.uint64(network.table_start[begin]), np.uint64(size[last])
    first, first_share = np.uint64(value[last]), np.uint64(share[last])
    while place >= 0:
        outer, counts, low = shares[0] * 0, True, infinity  # the first of the shares' type
        for place in range(last):
            counts &= removed[value[place] + digit[place]] == 0
            outer += shares[share[place] + digit[place]]
        for d in range(values if counts else np.uint64(0)):
            cost = tables[cell + d]
            own = cost - outer - shares[first_share + d]
            own = infinity if cost == infinity or removed[first + d] else own
            if axis == last:
                least[d] = min(least[d], own)
            else:
                low = min(low, own)
        if axis != last:
            least[digit[axis]] = min(least[digit[axis]], low)
        cell += values
        place = last - 1
        while place >= 0:
            digit[place] += 1
            if digit[place] < size[place]:
                break
            digit[place] = 0
            place -= 1


@without_allocation
def _reaches(network: Any, f: Any, v: Any, is_forward: Any) -> Any:
    """Whether a function has a variable after ``v`` in a pass."""
    for other in range(network.function_start[f], network.function_start[f + 1]):
        w = network.variable[other]
        if (w > v) if is_forward else (w < v):
            return True
    return False


@jit
def sweep(network: Any, is_forward: Any, shares: Any, removed: Any, costs: Any, hand_on: Any, stop: Any) -> Any:
    """One pass over the variables: each takes all spare cost of its functions, then passes it to functions ahead.

    network : with tables in float64. is_forward : whether variables are visited as numbered, or in reverse.
    shares : float64, updated. removed : uint8 (values,), updated: values without a tuple in a function.
    costs : float64 (values,), updated: sums of a value's shares and its own cost.
    hand_on : if False, the costs stay with the variables.
    stop : int64 (1,), read before each variable: a nonzero value ends the pass.
    """
    largest, work = _scratch(network)
    least = np.full(largest + 1, np.inf)
    base = network.value_start[len(network.value_start) - 1]
    count = len(network.value_start) - 1
    for position in range(count):
        v = position if is_forward else count - 1 - position
        if stop[0] != 0:
            return
        if network.use_start[v] == network.use_start[v + 1]:
            continue
        begin = network.value_start[v]
        size = network.value_start[v + 1] - begin
        ahead, behind = 0, 0
        for i in range(network.use_start[v], network.use_start[v + 1]):
            use = network.uses[i]
            f = network.function[use]
            least_of_values(network, network.tables, f, use - network.function_start[f], shares, removed, least, work)
            for value in range(size):
                if least[value] == np.inf:
                    removed[begin + value] = 1
                else:
                    costs[begin + value] += least[value]
                    shares[network.message_start[use] - base + value] += least[value]
            ahead += _reaches(network, f, v, is_forward)
            behind += _reaches(network, f, v, not is_forward)
        if ahead == 0 or not hand_on:
            continue
        weight = 1.0 / max(ahead, behind)
        for i in range(network.use_start[v], network.use_start[v + 1]):
            use = network.uses[i]
            f = network.function[use]
            if not _reaches(network, f, v, is_forward):
                continue
            # Equal parts of the costs before the distribution: costs are lowered at the end.
            for value in range(size):
                shares[network.message_start[use] - base + value] -= weight * costs[begin + value]
        for value in range(begin, begin + size):
            costs[value] *= 1.0 - ahead * weight


@jit
def least_of_functions(network: Any, tables: Any, shares: Any, removed: Any, infinity: Any, least: Any) -> Any:
    """Least reduced cost of each function, ``infinity`` if it has no tuple; types as for :func:`least_of_values`."""
    largest, work = _scratch(network)
    values = np.full(largest + 1, infinity, dtype=least.dtype)
    for f in range(len(least)):
        least_of_values(network, tables, f, 0, shares, removed, values, work)
        v = network.variable[network.function_start[f]]
        least[f] = values[: network.value_start[v + 1] - network.value_start[v]].min()


@jit
def lower_shares(network: Any, tables: Any, least: Any, removed: Any, nothing: Any, infinity: Any, shares: Any) -> Any:
    """Lower the shares of removed values until their tuples cost ``least``, of each function, at least.

    Types are as for :func:`least_of_values`. nothing : uint8 (values,), of zeros.
    """
    largest, work = _scratch(network)
    values = np.full(largest + 1, infinity, dtype=least.dtype)
    base = network.value_start[len(network.value_start) - 1]
    for use in range(len(network.variable)):
        f, v = network.function[use], network.variable[use]
        least_of_values(network, tables, f, use - network.function_start[f], shares, nothing, values, work)
        for a in range(network.value_start[v + 1] - network.value_start[v]):
            if removed[network.value_start[v] + a] and values[a] < least[f]:
                shares[network.message_start[use] - base + a] += values[a] - least[f]
