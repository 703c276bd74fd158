"""The current node of a depth-first search: one state with undo data.

A node differs little from its parent, so all nodes share one state: a part is saved before its first change at a node,
and backtracking restores the saved parts. A *part* is the costs of the values of one variable, the shares of one use of
a variable (:mod:`oocbe.kernels.cpu.projection`), or the multiplier of a linear constraint
(:mod:`oocbe.search.kernels.cpu.linear_bounds`).

Data derived from the remaining values (their numbers, functions with open variables) is updated with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit, without_allocation
from oocbe.kernels.cpu.projection import REMOVED

NUMBER, KEPT, PARTS, FLIPS, REMOVALS = 0, 1, 2, 3, 4
"""Indices of ``counts``: the node's unique number; lengths of saved states, parts and flips; total number of removed
values over all nodes."""

USE, MESSAGE_PLACE, TABLE, ARITY, OWN_STEP, OTHER, THIRD, TIE, TIED_VALUE = 0, 1, 2, 3, 4, 5, 11, 17, 18
FUNCTION, COLUMNS = 19, 20
"""Columns of ``near`` for a use: itself; start of its part of a state; start of its function's table; number of the
function's variables; stride of the use's own values; then the columns of the other variable, and of a second one; the
use's role in a tie; and its function."""

MEMBER, SELECTOR = 1, 2
"""Roles in a *tie*: a function that only states that one variable, the member, has a value of a certain set exactly if
another, the selector, has a certain value, the tied value."""

USE_OF, VARIABLE, PLACE, SIZE, MESSAGE, STEP = 0, 1, 2, 3, 4, 5
"""Columns of another variable: its use; itself; start of its values in a state; domain size; start of its use's part;
stride of its values."""


class SearchNode(NamedTuple):
    """The current node.

    near : int32 (uses, 20), in the order of the network's ``uses``, see :data:`USE` and :data:`USE_OF`; columns of
        other variables are empty for functions over more than three.
    state : int32 (state,). stale : uint8 (uses,), 1 where a use is.
    left : int64 (variables,), number of remaining values. open_of : int64 (functions,), number of open variables.
    is_sum : uint8 (functions,), 1 where a function over two open variables is a sum of functions of one each.
    tied : int64 (variables,), total weight of the functions that are no sums, with another open variable.
    weight : int64 (functions,).
    reach : uint8 (variables,), distance in functions up to which changes at each variable are propagated.
    failures : float64 (variables,), number of conflicts at each: its cheapest value alone costs half of
        ``need`` or more.
    margin : int64 (variables,), minimum gain of a substitution of one value for another, for rounding errors; -1: no
        substitutions.
    least, share : int32 (most values,), digits : int64 (3, most places of a function), ahead : bool (most uses of a
        variable,): overwritten.
    saved_values, saved_message, saved_stale, saved_number : int64 (variables,), (uses,), (uses,), (linear
        constraints,), the number of the node at which a part was last saved.
    kept : int32, concatenated saved parts. parts : int64 (parts, 3), start and length of each, and the variable if it
        holds costs of values, or -1. flips : int64, twice the use, plus 1 if it was stale; or -1 - the function that
        became a sum.
    counts : int64 (5,), see :data:`NUMBER`.
    """

    near: Any
    state: Any
    stale: Any
    left: Any
    open_of: Any
    is_sum: Any
    tied: Any
    weight: Any
    reach: Any
    failures: Any
    margin: Any
    least: Any
    share: Any
    digits: Any
    ahead: Any
    saved_values: Any
    saved_message: Any
    saved_stale: Any
    saved_number: Any
    kept: Any
    parts: Any
    flips: Any
    counts: Any


@helper
def _is_row(tables: Any, one: Any, other: Any, size: Any, need: Any) -> Any:
    """1 if two rows of a table are equal, -1 if complementary, where all costs are 0 or ``need``; otherwise 0."""
    equal, opposite = True, True
    for a in range(size):
        cost = tables[one + a]
        equal &= tables[other + a] == cost
        opposite &= tables[other + a] == need - cost
        if cost != 0 and cost != need:
            return 0
    return 1 if equal else -1 if opposite else 0


@helper
def _tied_value(tables: Any, start: Any, size: Any, rows: Any, need: Any) -> Any:
    """The one row of a table that is complementary to all others, which are equal; -1 if there is none."""
    if size < 3 or rows < 3:  # the table is as fast
        return -1
    is_first = _is_row(tables, start, start + size, size, need) + _is_row(tables, start, start + 2 * size, size, need)
    base = start + size if is_first == -2 else start
    found = -1
    for row in range(rows):
        kind = _is_row(tables, base, start + row * size, size, need)
        if kind == 0 or (kind < 0 and found >= 0):
            return -1
        if kind < 0:
            found = row
    return found


@jit
def near_uses(network: Any, need: Any) -> Any:
    """The array ``near`` of :class:`SearchNode`. need : cost of a forbidden tuple."""
    near = np.zeros((len(network.uses), COLUMNS), dtype=np.int32)
    place_of = np.empty(len(network.uses), dtype=np.int64)
    for i in range(len(network.uses)):
        place_of[network.uses[i]] = i
    for f in range(len(network.function_start) - 1):
        begin = network.function_start[f]
        if network.function_start[f + 1] - begin != 2:
            continue
        for member in range(begin + 1, begin - 1, -1):
            selector = 2 * begin + 1 - member
            v, w = network.variable[member], network.variable[selector]
            size = network.value_start[v + 1] - network.value_start[v]
            rows = network.value_start[w + 1] - network.value_start[w]
            value = _tied_value(network.tables, network.table_start[member], size, rows, need)
            if value >= 0:
                near[place_of[member], TIE], near[place_of[selector], TIE] = MEMBER, SELECTOR
                near[place_of[member], TIED_VALUE] = near[place_of[selector], TIED_VALUE] = value
    for i in range(len(network.uses)):
        use = network.uses[i]
        f = network.function[use]
        begin, end = network.function_start[f], network.function_start[f + 1]
        near[i, USE], near[i, MESSAGE_PLACE] = use, network.message_start[use]
        near[i, TABLE], near[i, ARITY], near[i, FUNCTION] = network.table_start[use], end - begin, f
        if end - begin > 3:
            continue
        step, column = 1, THIRD if end - begin == 3 else OTHER
        for other in range(end - 1, begin - 1, -1):
            v = network.variable[other]
            size = network.value_start[v + 1] - network.value_start[v]
            if other == use:
                near[i, OWN_STEP] = step
            else:
                near[i, column + USE_OF], near[i, column + VARIABLE] = other, v
                near[i, column + PLACE], near[i, column + SIZE] = network.value_start[v], size
                near[i, column + MESSAGE], near[i, column + STEP] = network.message_start[other], step
                column = OTHER
            step *= size
        if end - begin == 2:  # each of the two has a table of its own
            near[i, OWN_STEP] = 1
            near[i, OTHER + STEP] = step // near[i, OTHER + SIZE]
    return near


@without_allocation
def _keep(node: Any, place: Any, length: Any, v: Any) -> Any:
    """Save a part."""
    end, number = node.counts[KEPT], node.counts[PARTS]
    for i in range(np.uint64(length)):
        node.kept[np.uint64(end) + i] = node.state[np.uint64(place) + i]
    node.counts[KEPT] = end + length
    node.parts[number, 0], node.parts[number, 1], node.parts[number, 2] = place, length, v
    node.counts[PARTS] = number + 1


@without_allocation
def keep_values(network: Any, node: Any, v: Any) -> Any:
    """Save the costs of a variable's values before a change."""
    if node.saved_values[v] != node.counts[NUMBER]:
        node.saved_values[v] = node.counts[NUMBER]
        _keep(node, network.value_start[v], network.value_start[v + 1] - network.value_start[v], v)


@without_allocation
def keep_message(node: Any, use: Any, place: Any, length: Any) -> Any:
    """Save the shares of a use before a change. place : start in the state. length : domain size of its variable."""
    if node.saved_message[use] != node.counts[NUMBER]:
        node.saved_message[use] = node.counts[NUMBER]
        _keep(node, place, length, -1)


@without_allocation
def keep_number(node: Any, c: Any, place: Any) -> Any:
    """Save the multiplier of a linear constraint before a change. place : index in the state."""
    if node.saved_number[c] != node.counts[NUMBER]:
        node.saved_number[c] = node.counts[NUMBER]
        _keep(node, place, 1, -1)


@without_allocation
def mark_dirty(node: Any, use: Any, is_stale: Any) -> Any:
    """Set whether a use is stale."""
    if node.stale[use] == is_stale:
        return
    if node.saved_stale[use] != node.counts[NUMBER]:
        node.saved_stale[use] = node.counts[NUMBER]
        node.flips[node.counts[FLIPS]] = 2 * use + node.stale[use]
        node.counts[FLIPS] += 1
    node.stale[use] = is_stale


@without_allocation
def close(network: Any, node: Any, v: Any, sign: Any) -> Any:
    """Update derived data for a variable that now has a single value (sign -1), or is open again (1)."""
    for i in range(network.use_start[v], network.use_start[v + 1]):
        use = network.uses[i]
        f = network.function[use]
        node.open_of[f] += sign
        if node.is_sum[f]:
            continue
        for other in range(network.function_start[f], network.function_start[f + 1]):
            w = network.variable[other]
            if w == v:
                continue
            is_open = node.left[w] > 1
            # Open variables beside w change from none to v alone, or back.
            if node.open_of[f] - is_open == (0 if sign < 0 else 1):
                node.tied[w] += sign * node.weight[f]


@without_allocation
def _is_sum(network: Any, node: Any, f: Any) -> Any:
    """Whether a function over two open variables is a sum of functions of one each, over their remaining values."""
    state, tables = node.state, network.tables
    begin, end = network.function_start[f], network.function_start[f + 1]
    cell, step = network.table_start[end - 1], 1
    start, size, stride, own_start, own_size, own_stride = 0, 0, 0, 0, 0, 0
    for use in range(end - 1, begin - 1, -1):
        v = network.variable[use]
        first, values = network.value_start[v], network.value_start[v + 1] - network.value_start[v]
        if node.left[v] == 0:
            return False
        if node.left[v] == 1:
            a = 0
            while state[first + a] == REMOVED:
                a += 1
            cell += a * step
        elif own_size == 0:
            own_start, own_size, own_stride = first, values, step
        else:
            start, size, stride = first, values, step
        step *= values
    base = -1
    for a in range(size):
        if state[start + a] == REMOVED:
            continue
        row = cell + a * stride
        if base < 0:
            base = row
            continue
        more, is_first = np.int32(0), True
        for b in range(own_size):
            if state[own_start + b] != REMOVED:
                rise = np.int32(tables[row + b * own_stride] - tables[base + b * own_stride])
                if not is_first and rise != more:
                    return False
                more, is_first = rise, False
    return True


@without_allocation
def _weigh(network: Any, node: Any, f: Any, sign: Any) -> Any:
    """Add a function's weight, times ``sign``, to each of its variables beside an open one."""
    for use in range(network.function_start[f], network.function_start[f + 1]):
        v = network.variable[use]
        if node.open_of[f] > (node.left[v] > 1):
            node.tied[v] += sign * node.weight[f]


@without_allocation
def note_sum(network: Any, node: Any, f: Any) -> Any:
    """Note if a function is a sum from now on: no cost passes through it, and no decision matters to it."""
    if not node.is_sum[f] and node.open_of[f] == 2 and _is_sum(network, node, f):
        _weigh(network, node, f, -1)
        node.is_sum[f] = 1
        node.flips[node.counts[FLIPS]] = -1 - f
        node.counts[FLIPS] += 1


@without_allocation
def go_back(network: Any, node: Any, parts: Any, flips: Any) -> Any:
    """Restore all parts and flips saved after the first ``parts`` and ``flips``."""
    for number in range(node.counts[FLIPS] - 1, flips - 1, -1):
        flip = node.flips[number]
        if flip < 0:
            node.is_sum[-1 - flip] = 0
            _weigh(network, node, -1 - flip, 1)
        else:
            node.stale[flip >> 1] = flip & 1
    node.counts[FLIPS] = flips
    end = node.counts[KEPT]
    for number in range(node.counts[PARTS] - 1, parts - 1, -1):
        place, length, v = node.parts[number, 0], node.parts[number, 1], node.parts[number, 2]
        end -= length
        for i in range(np.uint64(length)):
            node.state[np.uint64(place) + i] = node.kept[np.uint64(end) + i]
        if v >= 0:
            count = 0
            for i in range(length):
                count += node.state[place + i] != REMOVED
            was_closed = node.left[v] <= 1
            node.left[v] = count
            if was_closed and count > 1:
                close(network, node, v, 1)
    node.counts[KEPT], node.counts[PARTS] = end, parts


@without_allocation
def has_room(node: Any) -> Any:
    """Whether the undo arrays can hold all changes of one node."""
    counts = node.counts
    return (
        counts[KEPT] + len(node.state) <= len(node.kept)
        and counts[PARTS] + len(node.left) + len(node.stale) + len(node.saved_number) <= len(node.parts)
        and counts[FLIPS] + len(node.stale) + len(node.open_of) <= len(node.flips)
    )


@without_allocation
def begin_node(node: Any) -> Any:
    """Start a new node: parts are saved at their next change."""
    node.counts[NUMBER] += 1


@without_allocation
def begin_root(network: Any, node: Any) -> Any:
    """Use the current state as a root, without undo data, and compute the derived data."""
    counts = node.counts
    counts[NUMBER] += 1
    counts[KEPT] = counts[PARTS] = counts[FLIPS] = 0
    node.saved_values[:] = counts[NUMBER]
    node.saved_message[:] = counts[NUMBER]
    node.saved_stale[:] = counts[NUMBER]
    node.saved_number[:] = counts[NUMBER]
    node.open_of[:] = 0
    node.is_sum[:] = 0
    node.tied[:] = 0
    node.left[:] = 1
    for v in range(len(node.left)):
        count = 0
        for place in range(network.value_start[v], network.value_start[v + 1]):
            count += node.state[place] != REMOVED
        node.left[v] = count
        if count > 1:
            close(network, node, v, 1)
    for f in range(len(node.open_of)):
        note_sum(network, node, f)
