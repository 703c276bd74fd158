"""Elimination of a variable from dense functions, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

BLOCK_CELLS = 64
"""Least number of cells of a block, where there are so many: loops over a block take more time than those around it."""


@jit
def eliminate_variable(
    values: Any, permitted: Any, starts: Any, strides: Any, sizes: Any, worst: Any, best: Any, is_left: Any, choice: Any
) -> None:
    """Add up functions and minimise over the variable on the first axis; ties go to the first value.

    values, permitted : int64 or float64, and bool: cells of all functions, one function after the other.
    starts : int64 (functions + 1,), start of each. strides : int64 (functions, axes), 0 along absent axes.
    sizes : int64 (axes,). worst : (1,) of the values' type, above all sums.
    best, is_left, choice : (cells,) of the result, over all axes but the first, the last one fastest; written: least
        sum (0 if all are forbidden), whether a value is permitted, and the best value.
    """
    functions, axes = strides.shape
    outer, block = axes, 1  # cells of a block differ along the axes from ``outer`` on
    while outer > 1 and block < BLOCK_CELLS:
        outer -= 1
        block *= sizes[outer]
    offsets = np.zeros((functions, block), dtype=np.int64)
    is_run, forbids = np.ones(functions, dtype=np.bool_), np.zeros(functions, dtype=np.bool_)
    for f in range(functions):
        step = 1
        for axis in range(axes - 1, outer - 1, -1):
            for cell in range(block):
                offsets[f, cell] += cell // step % sizes[axis] * strides[f, axis]
            step *= sizes[axis]
        for cell in range(block):
            is_run[f] &= offsets[f, cell] == cell
        for cell in range(starts[f], starts[f + 1]):
            forbids[f] |= not permitted[cell]
    place, digits = starts[:-1].copy(), np.zeros(axes, dtype=np.int64)
    totals = np.zeros(block, dtype=values.dtype)
    for begin in range(0, len(best), block):
        least, first, left = best[begin : begin + block], choice[begin : begin + block], is_left[begin : begin + block]
        least[:], first[:] = worst[0], 0
        for a in range(sizes[0]):
            totals[:] = 0
            for f in range(functions):
                here, offset = place[f] + a * strides[f, 0], offsets[f]
                if offset[-1] == 0:
                    for cell in range(block):
                        totals[cell] += values[here]
                elif is_run[f]:
                    own = values[here : here + block]
                    for cell in range(block):
                        totals[cell] += own[cell]
                else:
                    for cell in range(block):
                        totals[cell] += values[here + offset[cell]]
            for f in range(functions):
                if forbids[f]:
                    here = place[f] + a * strides[f, 0]
                    for cell in range(block):
                        if not permitted[here + offsets[f, cell]]:
                            totals[cell] = worst[0]
            for cell in range(block):  # without branches: most loops over cells become vector instructions
                is_less = totals[cell] < least[cell]
                least[cell] = totals[cell] if is_less else least[cell]
                first[cell] = a if is_less else first[cell]
        for cell in range(block):
            left[cell] = least[cell] < worst[0]
            least[cell] = least[cell] if left[cell] else 0
        axis = outer - 1
        while axis > 0:
            digits[axis] += 1
            for f in range(functions):
                place[f] += strides[f, axis]
            if digits[axis] < sizes[axis]:
                break
            digits[axis] = 0
            for f in range(functions):
                place[f] -= strides[f, axis] * sizes[axis]
            axis -= 1


@jit
def drop_unneeded(
    values: Any,
    permitted: Any,
    begins: Any,
    outers: Any,
    firsts: Any,
    takes_more: Any,
    matrices: Any,
    starts: Any,
    limit: Any,
    is_left: Any,
    stop: Any,
) -> None:
    """Clear the flags of values that no optimal assignment needs, of variables with their functions.

    values, permitted : int64 or float64, and bool: cells of all functions, one function after the other; a function
        over several of the variables is listed with each. begins : int64 (functions + 1,), first cell of each.
    outers : int64 (functions,), assignments of the axes before the variable's.
    firsts : int64 (variables + 1,), the first function of each. starts : int64 (variables + 1,), its first flag.
    takes_more, matrices : bool, and int64 (variables + 1,), where each variable's begin: whether b takes more of some
        linear constraint than a, at [a, b]; of some variables only.
    limit : (1,) of the values' type: b replaces a if its losses add up to less, or if no function has a loss. The loss
        in a function is the largest difference over the cells that permit a.
    is_left : bool (flags,), set; the flags of forbidden values are cleared, too.
    stop : the flag that ends it early; the values of further variables stay.
    """
    for v in range(len(firsts) - 1):
        if stop[0] != 0:
            return
        flags, size = starts[v], starts[v + 1] - starts[v]
        losses = np.zeros((size, size), dtype=values.dtype)
        blocked, costs_more = np.zeros((size, size), dtype=np.bool_), np.zeros((size, size), dtype=np.bool_)
        for place in range(matrices[v + 1] - matrices[v]):
            blocked[place // size, place % size] = takes_more[matrices[v] + place]
        for f in range(firsts[v], firsts[v + 1]):
            inner = (begins[f + 1] - begins[f]) // (outers[f] * size)
            for a in range(size):
                has_any = False
                for outer in range(outers[f]):
                    here = begins[f] + (outer * size + a) * inner
                    for cell in range(here, here + inner):
                        has_any |= permitted[cell]
                if not has_any:
                    is_left[flags + a] = False
                    continue
                for b in range(size):
                    if a == b or blocked[a, b]:
                        continue
                    is_first = True
                    worst = losses[a, b]  # of their type; the first cell overwrites it
                    for outer in range(outers[f]):
                        here = begins[f] + (outer * size + a) * inner
                        other = here + (b - a) * inner
                        for cell in range(inner):
                            if not permitted[here + cell]:
                                continue
                            if not permitted[other + cell]:
                                blocked[a, b] = True
                                break
                            loss = values[other + cell] - values[here + cell]
                            if is_first or loss > worst:
                                worst, is_first = loss, False
                        if blocked[a, b]:
                            break
                    losses[a, b] += worst
                    costs_more[a, b] |= worst > 0
        for a in range(size):
            for b in range(size):
                is_worse = blocked[a, b] or (losses[a, b] >= limit[0] and costs_more[a, b])
                if a != b and is_left[flags + a] and is_left[flags + b] and not is_worse:
                    is_left[flags + a] = False


@jit
def mark_divisible(values: Any, permitted: Any, begins: Any, sizes: Any, axes: Any, is_marked: Any) -> None:
    """Mark functions that do not depend on a variable, or in which the costs of two variables add up.

    values, permitted, begins : as for :func:`drop_unneeded`. sizes : int64, of all functions' axes, end to end, the
    last axis of a function fastest. axes : int64 (functions + 1,), first axis of each. is_marked : bool (functions,).
    """
    for f in range(len(begins) - 1):
        end, outer_step = begins[f + 1], begins[f + 1] - begins[f]
        for i in range(axes[f], axes[f + 1]):
            step = inner_step = outer_step // sizes[i]
            is_idle = True
            for cell in range(begins[f], end):
                first = cell - (cell - begins[f]) // step % sizes[i] * step
                if values[cell] != values[first] or permitted[cell] != permitted[first]:
                    is_idle = False
                    break
            for j in range(i + 1, axes[f + 1]):
                inner_step //= sizes[j]
                adds_up = not is_idle
                for cell in range(begins[f], end if adds_up else begins[f]):
                    place = cell - begins[f]
                    own, other = place // step % sizes[i] * step, place // inner_step % sizes[j] * inner_step
                    gain = values[cell] - values[cell - other]
                    if gain != values[cell - own] - values[cell - own - other]:
                        adds_up = False
                        break
                is_marked[f] |= adds_up
            is_marked[f] |= is_idle
            outer_step = step
