"""Dual ascent for one row at a time, in 32-bit integers; see :mod:`oocbe.bounds.row_ascent`.

A row's state is that of :mod:`oocbe.kernels.cpu.projection`. Equivalence-preserving moves keep the sum of the row's
*bound*, its state, and the reduced costs of the functions equal to the cost of every assignment, and reduced costs stay
non-negative. So the bound is valid after any sequence of moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.projection import MOST_MOVED, REMOVED, project_pair, project_table

SHIFT = 32
"""Bits of fractions: shares of costs are products with a fraction of 2**32."""


class Level(NamedTuple):
    """Data shared by all rows over the same variables.

    Attributes
    ----------
    order : int64 (open variables,), unassigned variables in the order of a pass.
    ahead, behind : uint8 (uses,), whether the function has a later, or an earlier, open variable.
    fraction : int64 (variables,), part of its cost that a variable passes to each function, in 2**-32.
    """

    order: Any
    ahead: Any
    behind: Any
    fraction: Any


@helper
def _remove(network: Any, v: Any, a: Any, state: Any, reach: Any, radius: Any) -> Any:
    """Remove a value and all tuples with it."""
    state[network.value_start[v] + a] = REMOVED
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        state[network.message_start[use] + a] = -REMOVED
        f = network.function[use]
        for other in range(network.function_start[f], network.function_start[f + 1]):
            if other != use:
                reach[network.variable[other]] = radius


@helper
def _collect(
    network: Any, v: Any, state: Any, bound: Any, need: Any, reach: Any, radius: Any, least: Any, work: Any
) -> Any:
    """Move all spare cost of a variable's functions to its values; returns the new bound, at most ``need``.

    Values whose cost then reaches ``need`` are removed.
    """
    start = network.value_start[v]
    size = network.value_start[v + 1] - start
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        f = network.function[use]
        begin = network.function_start[f]
        if network.function_start[f + 1] - begin == 2:
            other = 2 * begin + 1 - use
            w, own = network.variable[other], network.message_start[other]
            place, table = network.value_start[w], network.table_start[use]
            others = network.value_start[w + 1] - place
            project_pair(network.tables, table, state, place, own, others, size, least)
        else:
            project_table(network, f, use - begin, state, least, work)
        message = network.message_start[use]
        for a in range(size):
            cost = state[start + a]
            if cost == REMOVED:
                continue
            taken = state[message + a]
            if least[a] == REMOVED:
                state[start + a] = REMOVED - 1  # no tuple: removed below
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
                _remove(network, v, a, state, reach, radius)
            elif low > 0:
                state[start + a] = cost - low
    return bound


@helper
def _hand_on(network: Any, v: Any, fraction: Any, ahead: Any, state: Any, reach: Any) -> Any:
    """Pass equal parts of a variable's costs to functions with variables further along the pass."""
    start = network.value_start[v]
    size = network.value_start[v + 1] - start
    is_any = False
    for a in range(size):
        cost = state[start + a]
        share = 0 if cost == REMOVED else (cost * fraction) >> SHIFT
        if share == 0:
            continue
        is_any = True
        for i in range(network.use_start[v], network.use_start[v + 1]):
            use = network.uses[i]
            if ahead[use]:
                message = network.message_start[use] + a
                part = min(share, state[message] + MOST_MOVED)
                state[message] -= part
                state[start + a] -= part
    further = reach[v] - 1
    if not is_any or further == 0:
        return
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        if ahead[use]:
            f = network.function[use]
            for other in range(network.function_start[f], network.function_start[f + 1]):
                if other != use:
                    w = network.variable[other]
                    reach[w] = max(reach[w], further)


@helper
def _ascend(
    network: Any,
    level: Any,
    state: Any,
    bound: Any,
    need: Any,
    passes: Any,
    reach: Any,
    radius: Any,
    least: Any,
    work: Any,
) -> Any:
    """Pass forward and backward over the open variables within reach; returns the bound, at most ``need``.

    passes : maximum number; the last one is backward. From the second on, a pass without a gain ends them.
    """
    count = len(level.order)
    for number in range(passes):
        is_backward = (passes - number) % 2 == 1
        reached = level.behind if is_backward else level.ahead
        before = bound
        for i in range(count):
            v = level.order[count - 1 - i] if is_backward else level.order[i]
            if reach[v]:
                bound = _collect(network, v, state, bound, need, reach, radius, least, work)
                if bound >= need:
                    return need
                _hand_on(network, v, level.fraction[v], reached, state, reach)
        if number >= 1 and bound == before:
            break
    return bound


@helper
def _assign(
    network: Any,
    v: Any,
    value: Any,
    state: Any,
    bound: Any,
    need: Any,
    reach: Any,
    radius: Any,
    least: Any,
    work: Any,
) -> Any:
    """Assign a value to a variable; returns the new bound."""
    start = network.value_start[v]
    if state[start + value] == REMOVED:
        return need
    for a in range(network.value_start[v + 1] - start):
        if a != value and state[start + a] != REMOVED:
            _remove(network, v, a, state, reach, radius)
    return _collect(network, v, state, bound, need, reach, radius, least, work)


@jit
def scratch(network: Any) -> Any:
    """Scratch for the values of a variable, and four numbers for each position of a function."""
    largest, places = 1, 1
    for v in range(len(network.value_start) - 1):
        largest = max(largest, network.value_start[v + 1] - network.value_start[v])
    for f in range(len(network.function_start) - 1):
        places = max(places, network.function_start[f + 1] - network.function_start[f])
    return np.empty(largest, dtype=np.int32), np.empty((4, places), dtype=np.int64)


@jit
def ascend_all(network: Any, level: Any, state: Any, bound: Any, need: Any, passes: Any) -> Any:
    """Make ``passes`` passes over all open variables, changed or not; returns the bound, at most ``need``."""
    least, work = scratch(network)
    reach = np.full(len(network.value_start) - 1, 2, dtype=np.uint8)
    return _ascend(
        network, level, state, bound, need, passes, reach, np.int64(2), least, work
    )  # a literal would be another type


@jit
def bound_rows(
    network: Any,
    level: Any,
    v: Any,
    parents: Any,
    parent_bounds: Any,
    parent: Any,
    value: Any,
    need: Any,
    passes: Any,
    radius: Any,
    states: Any,
    bounds: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Bound rows ``begin`` to ``end``: each is a parent's row with a value of one more variable, ``v``.

    Parameters
    ----------
    level : of the variables open after the assignment. parents : int32 (parents, state). parent_bounds : int64
        (parents,).
    parent, value : int64 (rows,). need : rows with this bound are pruned.
    passes : maximum number of passes over changed variables; they end at ``need`` or without a gain.
    radius : at least 1, distance in functions up to which a loss of values causes variables to be visited.
    states : int32 (rows, state), written for surviving rows. bounds : int64 (rows,), written, ``need`` for pruned rows.
    """
    least, work = scratch(network)
    # Scratch in a core's cache: pruned rows touch no memory of ``states``, which then gets no pages.
    state = np.empty(parents.shape[1], dtype=np.int32)
    reach = np.empty(len(network.value_start) - 1, dtype=np.uint8)
    for row in range(begin, end):
        state[:] = parents[parent[row]]
        reach[:] = 0
        bound = _assign(network, v, value[row], state, parent_bounds[parent[row]], need, reach, radius, least, work)
        if bound < need:
            bound = _ascend(network, level, state, bound, need, passes, reach, radius, least, work)
        if bound < need:
            states[row] = state
        bounds[row] = bound


@jit
def count_left(value_start: Any, live: Any, variables: Any, together: Any, most: Any) -> Any:
    """Count the remaining values of variables in rows.

    Parameters
    ----------
    value_start : int64 (all variables + 1,). live : bool (rows, values), True for remaining values. variables : int64.
    together, most : int64 (variables,), zero; filled with the total over all rows, and the maximum of a row.
    """
    for row in range(len(live)):
        for i in range(len(variables)):
            v = variables[i]
            left = 0
            for place in range(value_start[v], value_start[v + 1]):
                left += live[row, place]
            together[i] += left
            most[i] = max(most[i], left)
