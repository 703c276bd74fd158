"""Cost functions in 32-bit fixed point and their projections onto one variable, the basis of all dual ascents.

A *state* is one int32 vector: the unary costs of the variables' values (at least 0), then the shares that each use of a
variable has moved out of its function, value by value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation

REMOVED = np.int32(1 << 29)
"""Cost of a value in no completion below the threshold; the shares of its uses are minus this."""

MOST_MOVED = np.int32(1 << 28)
"""Maximum cost moved into or out of a function for one value: sums stay within 32 bits."""


class AscentNetwork(NamedTuple):
    """Functions laid out for the ascent. A *use* is a variable's position in a function; uses are ordered by function.

    value_start : int64 (variables + 1,), start of a variable's values in a state.
    use_start, uses : CSR, the uses of each variable.
    function_start : int64 (functions + 1,), the uses of each function. function, variable : int64 (uses,), of each use.
    message_start : int64 (uses,), start of a use's part of a state.
    table_start : int64 (uses,), start of the function's table in ``tables``: for two variables one table for each use,
        with the use's own variable fastest; for more, the same one, with the last variable fastest.
    tables : int32, at least 0.
    """

    value_start: Any
    use_start: Any
    uses: Any
    function_start: Any
    function: Any
    variable: Any
    message_start: Any
    table_start: Any
    tables: Any


@inline
def project_pair(
    tables: Any, cell: Any, state: Any, start: Any, message: Any, others: Any, size: Any, least: Any
) -> Any:
    """Least cost of a function over two variables for each value of one, before the share of that variable.

    cell : start of the table in which the ``size`` values of that variable are fastest. start, message : start of the
    ``others`` values of the other variable in the state, and of the part of its use. Places are unsigned: loops over
    signed ones, which might count from the end, are not vectorised.
    """
    cell, start, message = np.uint64(cell), np.uint64(start), np.uint64(message)
    others, size = np.uint64(others), np.uint64(size)
    if size == 2:  # unrolled
        one, two = REMOVED, REMOVED
        for b in range(others):
            if state[start + b] != REMOVED:
                taken = state[message + b]
                one = min(one, np.int32(tables[cell] - taken))
                two = min(two, np.int32(tables[cell + np.uint64(1)] - taken))
            cell += size
        least[0], least[1] = one, two
        return
    for a in range(size):
        least[a] = REMOVED
    for b in range(others):
        if state[start + b] != REMOVED:
            taken = state[message + b]
            for a in range(size):
                least[a] = min(least[a], np.int32(tables[cell + a] - taken))
        cell += size


@without_allocation
def project_triple(
    tables: Any,
    cell: Any,
    state: Any,
    start: Any,
    size: Any,
    step: Any,
    start_b: Any,
    message_b: Any,
    size_b: Any,
    step_b: Any,
    start_c: Any,
    message_c: Any,
    size_c: Any,
    step_c: Any,
    least: Any,
) -> Any:
    """:func:`project_pair` for a function over three variables.

    cell : start of the table. start, size, step : of the variable: its values in the state, their number, their stride
        in the table. The same of the others, b and c, with the parts of their uses; the values of c are fastest, unless
        those of the variable are.
    """
    cell, start, size, step = np.uint64(cell), np.uint64(start), np.uint64(size), np.uint64(step)
    start_b, message_b, size_b, step_b = np.uint64(start_b), np.uint64(message_b), np.uint64(size_b), np.uint64(step_b)
    start_c, message_c, size_c, step_c = np.uint64(start_c), np.uint64(message_c), np.uint64(size_c), np.uint64(step_c)
    for a in range(size):
        least[a] = REMOVED
    if step == np.uint64(1):
        for b in range(size_b):
            if state[start_b + b] != REMOVED:
                for c in range(size_c):
                    if state[start_c + c] != REMOVED:
                        taken = np.int32(state[message_b + b] + state[message_c + c])
                        place = cell + b * step_b + c * step_c
                        for a in range(size):
                            least[a] = min(least[a], np.int32(tables[place + a] - taken))
        return
    for a in range(size):
        if state[start + a] != REMOVED:
            low = REMOVED
            for b in range(size_b):
                if state[start_b + b] != REMOVED:
                    taken, place = state[message_b + b], cell + a * step + b * step_b
                    for c in range(size_c):
                        taken_c = state[message_c + c] if state[start_c + c] != REMOVED else -REMOVED
                        low = min(low, np.int32(tables[place + c] - taken_c - taken))
            least[a] = low


@without_allocation
def project_table(network: Any, f: Any, axis: Any, state: Any, least: Any, work: Any) -> Any:
    """A function's least cost for each value of one variable, before its share; ``work``: int64 (3, places)."""
    begin = network.function_start[f]
    arity = network.function_start[f + 1] - begin
    own = network.variable[begin + axis]
    own_start = network.value_start[own]
    size, table = network.value_start[own + 1] - own_start, network.table_start[begin]
    if arity == 3:
        b, c = begin + (axis == 0), begin + 2 - (axis == 2)
        start_b, start_c = network.value_start[network.variable[b]], network.value_start[network.variable[c]]
        size_b = network.value_start[network.variable[b] + 1] - start_b
        size_c = network.value_start[network.variable[c] + 1] - start_c
        step = 1 if axis == 2 else size_c if axis == 1 else size_b * size_c
        step_b, step_c = (size_c if axis == 0 else size * size_c), (size if axis == 2 else 1)
        message_b, message_c = network.message_start[b], network.message_start[c]
        beside = (start_b, message_b, size_b, step_b, start_c, message_c, size_c, step_c, least)
        project_triple(network.tables, table, state, own_start, size, step, *beside)
        return
    for a in range(size):
        least[a] = REMOVED
    digit, cost, cell = work[0], work[1], work[2]
    place = 0
    digit[0] = 0
    cost[0] = 0
    cell[0] = 0
    while place >= 0:
        use = begin + place
        v = network.variable[use]
        d = digit[place]
        if d == network.value_start[v + 1] - network.value_start[v]:
            place -= 1
            continue
        digit[place] = d + 1
        here = cost[place]
        if state[network.value_start[v] + d] == REMOVED:
            continue
        if place != axis:
            here -= state[network.message_start[use] + d]
        if place == arity - 1:
            here += network.tables[table + cell[place] + d]
            a = digit[axis] - 1
            if here < least[a]:
                least[a] = here
        else:
            after = network.variable[use + 1]
            place += 1
            digit[place] = 0
            cost[place] = here
            cell[place] = (cell[place - 1] + d) * (network.value_start[after + 1] - network.value_start[after])
