"""Rows of one clique piece by piece: their numbers in dense tables, and draws.

A piece's maps give, for each of its rows, the row of each *edge* (a child's message, or the evidence of a variable),
and ``up`` the row of the clique's separator. The sums of pieces are in :mod:`oocbe.junction_trees.kernels.cpu.sweeps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

STRIDE = 1 << 14
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
        if row % STRIDE == 0 and stop[0] != 0:
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
        if row % STRIDE == 0 and stop[0] != 0:
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
