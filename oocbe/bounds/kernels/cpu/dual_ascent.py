"""Sequential dual ascent on the local polytope of functions of any arity; see :mod:`oocbe.bounds.local_polytope`."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit


@helper
def least_of_values(
    f: Any,
    axis: Any,
    cells: Any,
    cell_start: Any,
    use_start: Any,
    use_size: Any,
    offset: Any,
    shares: Any,
    literal: Any,
    removed: Any,
    least: Any,
) -> Any:
    """Least reduced cost of a function for each value of one of its variables; infinite if no tuple has the value.

    Parameters
    ----------
    f, axis : the function, and the position of the variable in its scope.
    cells, cell_start : float64 or int64, dense costs of all functions, the last variable fastest; start of each.
    use_start : CSR, uses of each function; use_size, offset : domain size, and start of a use's entries in ``shares``.
    shares : cost moved out of the function by each use, per value. Reduced cost = cell - sum of shares.
    literal : int64 (uses,), start of the values of the use's variable in ``removed``.
    removed : uint8, 1 for removed values; tuples with them are skipped.
    least : float64 or int64 (more than the domain size,), overwritten. Its last entry is the value of infinity, the
        largest number of an integer dtype.
    """
    begin, end = use_start[f], use_start[f + 1]
    arity = end - begin
    infinity = least[len(least) - 1]
    for a in range(use_size[begin + axis]):
        least[a] = infinity
    digits = np.zeros(arity, dtype=np.int64)
    for cell in range(cell_start[f], cell_start[f + 1]):
        cost = cells[cell]
        if cost < infinity:
            counts = True
            for place in range(arity):
                use = begin + place
                if removed[literal[use] + digits[place]]:
                    counts = False
                    break
                cost -= shares[offset[use] + digits[place]]
            if counts and cost < least[digits[axis]]:
                least[digits[axis]] = cost
        place = arity - 1
        while place >= 0:
            digits[place] += 1
            if digits[place] < use_size[begin + place]:
                break
            digits[place] = 0
            place -= 1


@jit
def sweep(
    order: Any,
    rank: Any,
    variable_start: Any,
    variable_use: Any,
    function_of: Any,
    cells: Any,
    cell_start: Any,
    use_start: Any,
    use_variable: Any,
    use_size: Any,
    offset: Any,
    shares: Any,
    literal: Any,
    removed: Any,
    costs: Any,
    hand_on: Any,
    stop: Any,
) -> Any:
    """One pass over the variables: each takes all spare cost of its functions, then passes it to functions ahead.

    Parameters
    ----------
    order, rank : int64 (variables,), the visiting order, and the position of each variable in it.
    variable_start, variable_use : CSR, the uses of each variable. function_of : int64 (uses,).
    cells, cell_start, use_start, use_size, offset : as for :func:`least_of_values`. use_variable : int64 (uses,).
    shares : float64, updated. literal : as there. removed : as there, updated: values without a tuple in a function.
    costs : float64 (values,), updated: sums of a value's shares and its own cost.
    hand_on : if False, the costs stay with the variables.
    stop : int64 (1,), read before each variable: a nonzero value ends the pass.
    """
    largest = 1
    for use in range(len(use_size)):
        largest = max(largest, use_size[use])
    least = np.empty(largest + 1)
    least[largest] = np.inf
    for position in range(len(order)):
        v = order[position]
        if stop[0] != 0:
            return
        if variable_start[v] == variable_start[v + 1]:
            continue
        begin = literal[variable_use[variable_start[v]]]
        size = use_size[variable_use[variable_start[v]]]
        ahead, behind = 0, 0
        for i in range(variable_start[v], variable_start[v + 1]):
            use = variable_use[i]
            f = function_of[use]
            axis = use - use_start[f]
            least_of_values(f, axis, cells, cell_start, use_start, use_size, offset, shares, literal, removed, least)
            for value in range(size):
                if least[value] == np.inf:
                    removed[begin + value] = 1
                else:
                    costs[begin + value] += least[value]
                    shares[offset[use] + value] += least[value]
            is_last, is_first = True, True
            for other in range(use_start[f], use_start[f + 1]):
                if rank[use_variable[other]] > rank[v]:
                    is_last = False
                elif rank[use_variable[other]] < rank[v]:
                    is_first = False
            ahead += not is_last
            behind += not is_first
        if ahead == 0 or not hand_on:
            continue
        weight = 1.0 / max(ahead, behind)
        for i in range(variable_start[v], variable_start[v + 1]):
            use = variable_use[i]
            f = function_of[use]
            is_last = True
            for other in range(use_start[f], use_start[f + 1]):
                if rank[use_variable[other]] > rank[v]:
                    is_last = False
            if is_last:
                continue
            # Equal parts of the costs before the distribution: costs are lowered at the end.
            for value in range(size):
                shares[offset[use] + value] -= weight * costs[begin + value]
        for value in range(begin, begin + size):
            costs[value] *= 1.0 - ahead * weight


@jit
def least_of_functions(
    cells: Any,
    cell_start: Any,
    use_start: Any,
    use_size: Any,
    offset: Any,
    shares: Any,
    literal: Any,
    removed: Any,
    infinity: Any,
    least: Any,
) -> Any:
    """Least reduced cost of each function, ``infinity`` if it has no tuple; types as for :func:`least_of_values`."""
    largest = 1
    for use in range(len(use_size)):
        largest = max(largest, use_size[use])
    values = np.empty(largest + 1, dtype=least.dtype)
    values[largest] = infinity
    for f in range(len(least)):
        least_of_values(f, 0, cells, cell_start, use_start, use_size, offset, shares, literal, removed, values)
        least[f] = infinity
        for value in range(use_size[use_start[f]]):
            least[f] = min(least[f], values[value])
