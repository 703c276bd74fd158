"""The nonzero rows of a clique: a trie join of the tables that the clique covers.

Every table has its rows sorted by one order of the variables, the last one eliminated most significant. A table is a
*trie* with a node for each prefix of its rows, and an array of children by value. A clique's variables are assigned in
that order; each table with the variable descends by one node, and if one of them has no such child, the assignment is
pruned (Veldhuizen 2014: leapfrog triejoin, here with arrays of children, which cost less than searches because domains
are small). Leaves are numbered like rows, so that each table's node at the end of an assignment is the number of its
row: the join yields the row maps of messages.

A variable's values, and a table's row numbers, are written as one run for all rows of a node; only those of the last
variable are written row by row.

The separator's variables are eliminated after all others of the clique, so that they are assigned first. The rows of
one separator row are therefore neighbours, in the order of separator rows.

Rows on disk come piece by piece. A piece's maps give, for each of its rows, the row of each *edge* (a child's message,
or the evidence of a variable), and ``up`` the row of the clique's separator. The sums of pieces are in
:mod:`oocbe.junction_trees.kernels.cpu.sweeps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

COMPLETE = -2
"""Marks a level without a children array: the table is dense, and a child's number follows from that of its parent."""

STRIDE = 1 << 16
"""Assignments of all variables but the last between two checks of the stop flag."""

FIRST_ROWS = 1 << 25
"""Initial capacity in rows, limited by the clique's cells. It is large because untouched pages take no memory, and
moving rows takes as long as finding them."""

BLOCK = 1 << 18
"""Rows moved to longer arrays between two checks of the stop flag: tens of millions of rows take seconds."""


@jit
def trie_children(values: Any, sizes: Any) -> Any:
    """Children of all nodes of a table's trie, concatenated by level, and where levels begin.

    values : unsigned (variables, rows), rows sorted with the first variable most significant, each once.
    sizes : int64 (variables,), of the domains.
    Returns children : int32, for each node of a level one per value of the level's variable; -1: no such child. Nodes
        of a level, and so the leaves, are numbered in the order of rows.
    starts : int64 (variables + 1,), where each level's begin.
    """
    depth, rows = values.shape
    starts = np.zeros(depth + 1, dtype=np.int64)
    change = np.empty(rows, dtype=np.int64)  # first level at which a row differs from the one before
    nodes = np.zeros(depth + 1, dtype=np.int64)
    for row in range(rows):
        level = 0
        if row:
            while values[level, row] == values[level, row - 1]:
                level += 1
        change[row] = level
        for below in range(level, depth):
            nodes[below + 1] += 1
    nodes[0] = 1
    for level in range(depth):
        starts[level + 1] = starts[level] + nodes[level] * sizes[level]
    children = np.full(starts[depth], -1, dtype=np.int32)
    here = np.full(depth + 1, -1, dtype=np.int64)
    here[0] = 0
    for row in range(rows):
        for level in range(change[row], depth):
            here[level + 1] += 1
            children[starts[level] + here[level] * sizes[level] + values[level, row]] = here[level + 1]
    return children, starts


@helper
def _moved(old: Any, used: Any, capacity: Any, stop: Any) -> Any:
    """The first ``used`` columns in an array of ``capacity`` columns; incomplete if the stop flag is set."""
    moved = np.empty((old.shape[0], capacity), dtype=old.dtype)
    for begin in range(0, used, BLOCK):
        if stop[0] != 0:
            break
        end = min(begin + BLOCK, used)
        for i in range(old.shape[0]):
            for row in range(begin, end):
                moved[i, row] = old[i, row]
    return moved


@jit
def keep_groups(old: Any, groups: Any, kept: Any, rows: Any, stop: Any) -> Any:
    """The columns of some groups, concatenated; incomplete if the stop flag is set.

    old : (lines, columns). groups : int64 (groups + 1,), where the columns of each group begin.
    kept : bool (groups,). rows : columns of the groups that are kept. stop : int64 (1,), the flag.
    """
    new = np.empty((old.shape[0], rows), dtype=old.dtype)
    for i in range(old.shape[0]):
        place = 0
        for g in range(len(kept)):
            if g % STRIDE == 0 and stop[0] != 0:
                break
            if kept[g]:
                for row in range(groups[g], groups[g + 1]):
                    new[i, place] = old[i, row]
                    place += 1
    return new


@jit
def walk(
    sizes: Any,
    separator: Any,
    step_start: Any,
    step_table: Any,
    step_depth: Any,
    step_children: Any,
    children: Any,
    depths: Any,
    listed: Any,
    kind: Any,
    room: Any,
    most: Any,
    stop: Any,
) -> Any:
    """All assignments of a clique's variables with a row in every table, in order.

    sizes : int64 (variables,), of the clique's domains, in order of assignment.
    separator : number of the separator's variables, which are the first.
    step_start : int64 (variables + 1,), where each variable's steps begin; in a step, one table descends by one node.
    step_table, step_depth : int64 (steps,), the table, and its depth before the step.
    step_children : int64 (steps,), where the children of its level begin in ``children``, or :data:`COMPLETE`.
    children : int32, of all tables. depths : int64 (tables,), variables of each.
    listed : int64 (listed,), tables whose row numbers are returned. kind : empty array of the dtype of returned values.
    room : initial capacity in rows, limited by the number of possible rows.
    most : limit of rows, after which the walk stops. stop : int64 (1,); the walk stops when it is not 0.
    Returns values : (variables, rows) of the dtype of ``kind``.
    numbers : int32 (listed, rows), the number of the row of each listed table.
    groups : int64 (separator's rows + 1,), where the rows of each begin. finished : False if the walk stopped early.
    """
    width, tables = len(sizes), len(depths)
    cells: Any = 1.0
    longest: Any = 1
    for level in range(width):
        cells *= sizes[level]
        longest = max(longest, sizes[level])
    capacity: Any = max(np.int64(min(cells, most, room)), 2 * longest)
    values = np.empty((width, capacity), dtype=kind.dtype)
    numbers = np.empty((len(listed), capacity), dtype=np.int32)
    groups = np.empty((1, capacity + 1), dtype=np.int64)
    if width == 0:
        groups[0, 0] = 0
        groups[0, 1] = 1
        return values[:, :1].copy(), np.zeros((len(listed), 1), dtype=np.int32), groups[0, :2].copy(), True
    last = width - 1
    first_step, last_step = step_start[last], step_start[last + 1]
    place = np.full(tables + 1, -1, dtype=np.int64)  # in the list, of each table
    for i in range(len(listed)):
        place[listed[i]] = i
    # Of each variable: the listed tables that have it last, whose row is known there.
    ending_start = np.zeros(width + 1, dtype=np.int64)
    ending = np.empty(len(listed), dtype=np.int64)
    count = 0
    for level in range(width):
        for step in range(step_start[level], step_start[level + 1]):
            t = step_table[step]
            if place[t] >= 0 and step_depth[step] + 1 == depths[t]:
                ending[count] = place[t]
                count += 1
        ending_start[level + 1] = count
    for i in range(len(listed)):
        if depths[listed[i]] == 0:
            numbers[i] = 0
    rows = 0
    count = 0
    prefix = 0  # changes with each assignment of the separator
    grouped = -1  # the one whose group has begun
    nodes = np.zeros((tables, width + 1), dtype=np.int64)
    begins = np.empty(len(step_table) + 1, dtype=np.int64)  # of each step: where children of its table's node begin
    hit = np.empty(longest, dtype=np.int64)  # values of the last variable that every table has a row for
    value = np.full(width, -1, dtype=np.int64)
    first_row = np.zeros(width, dtype=np.int64)  # of each variable's value
    level = 0
    tried = 0
    while level >= 0:
        if value[level] < 0:
            for step in range(step_start[level], step_start[level + 1]):
                begins[step] = nodes[step_table[step], step_depth[step]] * sizes[level]
                if step_children[step] >= 0:
                    begins[step] += step_children[step]
        if level < last:
            begin = first_row[level]
            if value[level] >= 0 and begin < rows:
                values[level, begin:rows] = value[level]
                for e in range(ending_start[level], ending_start[level + 1]):
                    t = listed[ending[e]]
                    numbers[ending[e], begin:rows] = nodes[t, depths[t]]
            first_row[level] = rows
            value[level] += 1
            if value[level] == sizes[level]:
                value[level] = -1
                level -= 1
                continue
            if level < separator:
                prefix += 1
            fits = True
            for step in range(step_start[level], step_start[level + 1]):
                child = begins[step] + value[level]
                if step_children[step] >= 0:
                    child = np.int64(children[child])
                    if child < 0:
                        fits = False
                        break
                nodes[step_table[step], step_depth[step] + 1] = child
            if fits:
                level += 1
            continue
        tried += 1
        if tried % STRIDE == 0 and stop[0] != 0:
            return values[:, :0].copy(), numbers[:, :0].copy(), groups[0, :1].copy(), False
        if rows + sizes[last] > capacity:
            if rows >= most:
                return values[:, :0].copy(), numbers[:, :0].copy(), groups[0, :1].copy(), False
            capacity *= 2
            values = _moved(values, rows, capacity, stop)
            numbers = _moved(numbers, rows, capacity, stop)
            groups = _moved(groups, count, capacity + 1, stop)
            if stop[0] != 0:
                return values[:, :0].copy(), numbers[:, :0].copy(), groups[0, :1].copy(), False
            for i in range(len(listed)):
                if depths[listed[i]] == 0:
                    numbers[i] = 0
        hits = sizes[last]
        for x in range(hits):
            hit[x] = x
        for step in range(first_step, last_step):
            if step_children[step] >= 0:
                left = 0
                for k in range(hits):
                    if children[begins[step] + hit[k]] >= 0:
                        hit[left] = hit[k]
                        left += 1
                hits = left
        if hits:
            if prefix != grouped or separator == width:
                for k in range(hits if separator == width else 1):
                    groups[0, count] = rows + k
                    count += 1
                grouped = prefix
            for k in range(hits):
                values[last, rows + k] = hit[k]
            for step in range(first_step, last_step):
                i = place[step_table[step]]
                if i >= 0:
                    for k in range(hits):
                        child = begins[step] + hit[k]
                        numbers[i, rows + k] = children[child] if step_children[step] >= 0 else child
            rows += hits
        level -= 1
    groups[0, count] = rows
    if rows < capacity:
        values = _moved(values, rows, rows, stop)
        numbers = _moved(numbers, rows, rows, stop)
    if rows > most or stop[0] != 0:
        return values[:, :0].copy(), numbers[:, :0].copy(), groups[0, :1].copy(), False
    return values, numbers, groups[0, : count + 1].copy(), True


PIECE_STRIDE = 1 << 14
"""Rows between two checks of the stop flag."""


@jit
def number_rows(first: Any, sizes: Any, strides: Any, out: Any, stop: Any) -> None:
    """For consecutive rows of a dense clique, the numbers of the matching rows of dense tables.

    first : number of the first row, the first variable most significant. sizes : int64 (variables,), of the clique.
    strides : int64 (tables, variables), of the row numbers of each table; 0: not its variable.
    out : int32 (tables, rows), written. stop : int64 (1,); the function returns early when it is not 0.
    """
    tables, rows = out.shape
    width = len(sizes)
    digits = np.zeros(width, dtype=np.int64)
    numbers = np.zeros(tables, dtype=np.int64)
    rest = first
    for level in range(width - 1, -1, -1):
        digits[level] = rest % sizes[level]
        rest //= sizes[level]
        for t in range(tables):
            numbers[t] += digits[level] * strides[t, level]
    for row in range(rows):
        if row % PIECE_STRIDE == 0 and stop[0] != 0:
            return
        for t in range(tables):
            out[t, row] = numbers[t]
        level = width - 1
        while level >= 0:
            digits[level] += 1
            for t in range(tables):
                numbers[t] += strides[t, level]
            if digits[level] < sizes[level]:
                break
            for t in range(tables):
                numbers[t] -= sizes[level] * strides[t, level]
            digits[level] = 0
            level -= 1


@jit
def draw_piece(
    weights: Any,
    up: Any,
    maps: Any,
    offsets: Any,
    incoming: Any,
    message: Any,
    wanted: Any,
    shares: Any,
    state: Any,
    sums: Any,
    picked: Any,
    stop: Any,
) -> None:
    """Rows drawn of each group (the rows of one row of the separator), in proportion to their weight.

    weights, incoming, message : logarithms, the last float64 (message rows,), from
        :func:`oocbe.junction_trees.kernels.cpu.sweeps.collect_piece`. maps : int32 (edges, rows). offsets : int64.
    wanted : int64 (draws,), the row of the separator of each, ascending. shares : float64 (draws,), uniform between 0
        and 1, ascending within a group: the draw takes the row at which the cumulative probability exceeds it.
    state : int64 (2,), the first draw without a row, and the group summed last; carried from piece to piece.
    sums : float64 (1,), the sum of that group's rows so far; carried likewise.
    picked : int64 (draws,), number of the row in this piece, written. Draws that the cumulative probability misses by
        rounding get the last row of their group.
    stop : int64 (1,); the function returns early when it is not 0.
    """
    for row in range(len(weights)):
        if row % PIECE_STRIDE == 0 and stop[0] != 0:
            return
        s = up[row]
        while state[0] < len(wanted) and wanted[state[0]] < s:
            state[0] += 1  # missed by rounding: the group's last row is already picked
        if state[0] == len(wanted):
            return
        if wanted[state[0]] != s:
            continue
        if state[1] != s:
            state[1] = s
            sums[0] = 0.0
        x = weights[row] - message[s]
        for e in range(len(maps)):
            x += incoming[offsets[e] + maps[e, row], 0]
        if x == -np.inf:
            continue
        sums[0] += np.exp(x)
        place = state[0]
        while place < len(wanted) and wanted[place] == s:
            picked[place] = row
            if shares[place] >= sums[0]:
                break
            place += 1
            state[0] = place
