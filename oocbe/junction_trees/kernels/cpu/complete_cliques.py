"""The product of a clique's tables, marginalised to several scopes in one pass, without storing the joined cells.

An inner loop runs over about a hundred assignments of the clique's first variables. In it, a table is constant, has
consecutive cells, or has cells that are read through a list of offsets. The constant tables are multiplied first: if
their product is 0, the inner loop is skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.native import array_at

ONE, NEIGHBOURS, LISTED = range(3)
"""Layout of a table's cells along the inner loop: constant, consecutive, or listed offsets."""

INNER_CELLS = 128
"""Minimum number of assignments of the inner variables, if the clique has as many."""


@helper
def _offsets(strides: Any, sizes: Any, inner: Any, run: Any) -> Any:
    """Offsets of the cells of each table along the inner loop, int64 (tables, run), and its kind of layout."""
    tables = len(strides)
    found = np.zeros((tables, run), dtype=np.int64)
    kinds = np.empty(tables, dtype=np.int64)
    for t in range(tables):
        done = 1  # assignments of the previous variables; each value of the next one repeats them, moved by its stride
        for axis in range(inner):
            stride = strides[t, axis]
            for i in range(done, done * sizes[axis]):
                found[t, i] = found[t, i - done] + stride
            done *= sizes[axis]
        is_one, is_next = True, True
        for i in range(run):
            is_one = is_one and found[t, i] == 0
            is_next = is_next and found[t, i] == i
        kinds[t] = ONE if is_one else NEIGHBOURS if is_next else LISTED
    return found, kinds


@helper
def _join(source: Any, kind: Any, offsets: Any, joined: Any) -> None:
    """Multiply by the cells of one table."""
    if kind == NEIGHBOURS:
        for i in range(len(joined)):
            joined[i] *= source[i]
    else:
        for i in range(len(joined)):
            joined[i] *= source[offsets[i]]


@helper
def _sum(joined: Any) -> Any:
    """The sum of all cells, as four interleaved partial sums."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    i = 0
    while i + 4 <= len(joined):
        a += joined[i]
        b += joined[i + 1]
        c += joined[i + 2]
        d += joined[i + 3]
        i += 4
    while i < len(joined):
        a += joined[i]
        i += 1
    return (a + b) + (c + d)


@jit
def add_up_products(
    addresses: Any, strides: Any, sizes: Any, out_begins: Any, out_strides: Any, first: Any, last: Any, stop: Any
) -> Any:
    """Join dense tables and sum the joined cells.

    addresses : int64 (tables, 2), address and length of each one's cells, float64.
    strides : int64 (tables, variables), elements between neighbours along each variable of the clique, 0 where a table
        does not have it. sizes : int64 (variables,), of the domains, one variable at least.
    out_begins : int64 (results + 1,), where the cells of each result begin, and where all end. out_strides : int64
        (results, variables), as ``strides``.
    first, last : range of runs of the inner loop; negative ``last``: to the end.
    stop : int64 (1,); the pass ends when it is not 0.
    Returns float64, cells of all results.
    """
    tables, axes = strides.shape
    results = len(out_strides)
    out = np.zeros(out_begins[results])
    run, inner = 1, 0
    while inner < axes and run < INNER_CELLS:
        run *= sizes[inner]
        inner += 1
    runs = 1
    for axis in range(inner, axes):
        runs *= sizes[axis]
    offsets, kinds = _offsets(strides, sizes, inner, run)
    out_offsets, out_kinds = _offsets(out_strides, sizes, inner, run)
    base, place = np.zeros(tables, dtype=np.int64), out_begins[:results].copy()
    digits = np.zeros(axes, dtype=np.int64)
    rest = first
    for axis in range(inner, axes):
        digits[axis] = rest % sizes[axis]
        rest //= sizes[axis]
        for t in range(tables):
            base[t] += digits[axis] * strides[t, axis]
        for r in range(results):
            place[r] += digits[axis] * out_strides[r, axis]
    joined = np.empty(run)
    for _ in range(first, runs if last < 0 else last):
        if stop[0] != 0:
            break
        common = 1.0
        for t in range(tables):
            if kinds[t] == ONE:
                common *= array_at(addresses[t, 0], base[t], 1, joined)[0]
        if common != 0.0:
            for i in range(run):
                joined[i] = common
            for t in range(tables):
                if kinds[t] != ONE:
                    source = array_at(addresses[t, 0], base[t], addresses[t, 1] - base[t], joined)
                    _join(source, kinds[t], offsets[t], joined)
            total, is_known = 0.0, False
            for r in range(results):
                target = place[r]
                if out_kinds[r] == ONE:
                    if not is_known:
                        total, is_known = _sum(joined), True
                    out[target] += total
                elif out_kinds[r] == NEIGHBOURS:
                    for i in range(run):
                        out[target + i] += joined[i]
                else:
                    for i in range(run):
                        out[target + out_offsets[r, i]] += joined[i]
        for axis in range(inner, axes):  # the next run: count up, carry over
            digits[axis] += 1
            for t in range(tables):
                base[t] += strides[t, axis]
            for r in range(results):
                place[r] += out_strides[r, axis]
            if digits[axis] < sizes[axis]:
                break
            digits[axis] = 0
            for t in range(tables):
                base[t] -= strides[t, axis] * sizes[axis]
            for r in range(results):
                place[r] -= out_strides[r, axis] * sizes[axis]
    return out


@jit
def weight_ends(values: Any) -> Any:
    """The least number above 0 of weights, float64 (cells,), infinite if there is none, and the greatest."""
    least, greatest = np.inf, 0.0
    for i in range(len(values)):
        if 0.0 < values[i] < least:
            least = values[i]
        greatest = max(greatest, values[i])
    return least, greatest


def inner_cells(sizes: Any) -> int:
    """Assignments of the inner loop of a clique of such sizes."""
    run = 1
    for size in sizes:
        if run >= INNER_CELLS:
            break
        run *= size
    return run
