"""Cost functions in 32-bit fixed point and their projections onto one variable, the basis of all dual ascents.

A *state* is one int32 vector: the unary costs of the variables' values (at least 0), then the shares that each use of a
variable has moved out of its function, value by value.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation

REMOVED = np.int32(1 << 29)
"""Cost of a value in no completion below the threshold; the shares of its uses are minus this."""

MOST_MOVED = np.int32(1 << 28)
"""Maximum cost moved into or out of a function for one value: sums stay within 32 bits."""

BLOCK, SPARSE, GONE = 64, 4, np.int64(-1 << 40)
"""Maximum number of cells of a block of a table; maximum number of its cells for each of those that remain; share of
removed values in a block: no cost of theirs is below :data:`REMOVED`."""


AscentNetwork = namedtuple(
    "AscentNetwork",
    "value_start use_start uses function_start function variable message_start table_start tables",
)
"""Functions laid out for the ascent. A *use* is a variable's position in a function; uses are ordered by function.

value_start : int64 (variables + 1,), start of a variable's values in a state.
use_start, uses : CSR, the uses of each variable.
function_start : int64 (functions + 1,), the uses of each function. function, variable : int64 (uses,), of each use.
message_start : int64 (uses,), start of a use's part of a state.
table_start : int64 (uses,), start of the function's table in ``tables``: for two variables one table for each use,
    with the use's own variable fastest; for more, the same one, with the last variable fastest.
tables : int32, at least 0.
"""


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
    """A function's least cost for each value of one variable, before its share.

    The cells of the last variables, a *block*, are visited by one vectorised loop for each assignment of the others.
    work : int64 (5, :data:`BLOCK` or more than places).
    """
    begin = network.function_start[f]
    arity = network.function_start[f + 1] - begin
    own = network.variable[begin + axis]
    own_start = network.value_start[own]
    size, table = network.value_start[own + 1] - own_start, network.table_start[begin]
    least[:size] = REMOVED
    digit, cost, cell, taken, low = work[0], work[1], work[2], work[3], work[4]
    outer, block, alive, step = arity, 1, 1, 0
    taken[0] = 0
    while outer > 0:
        v = network.variable[begin + outer - 1]
        start, count, left = network.value_start[v], network.value_start[v + 1] - network.value_start[v], 0
        for d in range(count):
            left += state[start + d] != REMOVED
        if block * count > BLOCK or block * count > SPARSE * alive * left:
            break
        outer -= 1
        message = network.message_start[begin + outer]
        step = block if outer == axis else step
        for d in range(count - 1, -1, -1):
            share = GONE if state[start + d] == REMOVED else 0 if outer == axis else state[message + d]
            for j in range(block):
                taken[d * block + j] = taken[j] + share
        block, alive = block * count, alive * left
    is_within = axis >= outer
    low[:block] = -GONE
    place, digit[0], cost[0], cell[0] = 0, 0, 0, 0
    while place >= 0:
        if place == outer:
            first, here, many = np.uint64(table + cell[place] * block), cost[place], np.uint64(block)
            if is_within:
                for j in range(many):
                    low[j] = min(low[j], here + network.tables[first + j])
            else:
                best = np.int64(least[digit[axis] - 1])
                for j in range(many):
                    best = min(best, here + network.tables[first + j] - taken[j])
                least[digit[axis] - 1] = best
            place -= 1
            continue
        v, d = network.variable[begin + place], digit[place]
        count = network.value_start[v + 1] - network.value_start[v]
        if d == count:
            place -= 1
            continue
        digit[place] = d + 1
        if state[network.value_start[v] + d] == REMOVED:
            continue
        here = cost[place] - (0 if place == axis else state[network.message_start[begin + place] + d])
        place += 1
        digit[place], cost[place], cell[place] = 0, here, cell[place - 1] * count + d
    if is_within:
        for begin in range(0, block, size * step):
            for a in range(size):
                for j in range(begin + a * step, begin + a * step + step):
                    least[a] = min(least[a], low[j] - taken[j])
