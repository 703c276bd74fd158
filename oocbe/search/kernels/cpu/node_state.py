"""The current node of a depth-first search, one state with undo data, and its lower bound.

A node differs little from its parent, so all nodes share one state: a part is saved before its first change at a node,
and backtracking restores the saved parts. A *part* is the costs of the values of one variable, the shares of one use of
a variable (:mod:`oocbe.kernels.cpu.projection`), or the multiplier of a linear constraint
(:mod:`oocbe.search.kernels.cpu.depth_first`).

Data derived from the remaining values (their numbers, functions with open variables) is updated with them.

Lower bounds on the cost of all completions of a node come from incremental dual ascent (:func:`tighten_node`).

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

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, inline, jit, without_allocation
from oocbe.kernels.cpu.projection import MOST_MOVED, REMOVED, project_pair, project_table, project_triple

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


SearchNode = namedtuple(
    "SearchNode",
    "near state stale left open_of is_sum tied weight reach failures margin least share digits ahead saved_values "
    "saved_message saved_stale saved_number kept parts flips counts",
)
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
least, share : int32 (most values,), digits : int64 (5, places), for tables, ahead : bool (most uses of a
    variable,): overwritten.
saved_values, saved_message, saved_stale, saved_number : int64 (variables,), (uses,), (uses,), (linear
    constraints,), the number of the node at which a part was last saved.
kept : int32, concatenated saved parts. parts : int64 (parts, 3), start and length of each, and the variable if it
    holds costs of values, or -1. flips : int64, twice the use, plus 1 if it was stale; or -1 - the function that
    became a sum.
counts : int64 (5,), see :data:`NUMBER`.
"""


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


MOST_PASSES = 16
"""Maximum number of passes of one node, even while values are removed."""

NO_ROW = np.int64(1 << 40)
"""A cost above any sum of costs and shares, in 64 bits."""

LAST_COST = np.int32(REMOVED - 1)
"""Maximum cost of a value that is not removed."""


@inline
def _project_tie(network: Any, node: Any, i: Any, size: Any) -> Any:
    """:func:`project_pair` for a tie, a table of two distinct rows and columns, in time linear in the domain sizes."""
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
