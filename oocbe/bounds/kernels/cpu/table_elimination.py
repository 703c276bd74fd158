"""Elimination of a variable from dense functions, cell by cell.

Most have a few dozen cells: a better memory layout costs more time than the loop itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit


@jit
def eliminate_variable(
    values: Any, permitted: Any, starts: Any, strides: Any, sizes: Any, best: Any, is_left: Any, choice: Any
) -> None:
    """Add up functions and minimise over the variable on the first axis; ties go to the first value.

    values, permitted : int64 or float64, and bool: cells of all functions, one function after the other.
    starts : int64 (functions,), start of each. strides : int64 (functions, axes), 0 along absent axes.
    sizes : int64 (axes,). best, is_left, choice : (cells,) of the result, over all axes but the first, the last one
        fastest; written: least sum (0 if all are forbidden), whether a value is permitted, and the best value.
    """
    functions, axes = strides.shape
    place, digits = starts.copy(), np.zeros(axes, dtype=np.int64)
    for cell in range(len(best)):
        best[cell], is_left[cell], choice[cell] = 0, False, 0
        for a in range(sizes[0]):
            total = best[cell] * 0  # of the result's type
            is_permitted = True
            for f in range(functions):
                here = place[f] + a * strides[f, 0]
                if not permitted[here]:
                    is_permitted = False
                    break
                total += values[here]
            if is_permitted and (not is_left[cell] or total < best[cell]):
                best[cell], is_left[cell], choice[cell] = total, True, a
        axis = axes - 1
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
def add_worst_losses(values: Any, permitted: Any, losses: Any, blocked: Any, costs_more: Any) -> Any:
    """Add one function's worst-case loss to that of each substitution.

    values : int64 or float64 (size, cells), a row for each of the variable's values. permitted : bool, of that shape.
    losses : (size, size) of the values' dtype; entry [a, b], b in place of a, grows by the largest difference over the
        cells that permit a. Unchanged if no cell does.
    blocked : bool (size, size), set if a cell permits a and not b. costs_more : bool, set if the largest difference is
        positive.
    """
    size, cells = values.shape
    for a in range(size):
        for b in range(size):
            if a == b or blocked[a, b]:
                continue
            is_any = False
            worst = losses[a, b]  # of their dtype; the first cell overwrites it
            for cell in range(cells):
                if not permitted[a, cell]:
                    continue
                if not permitted[b, cell]:
                    blocked[a, b] = True
                    break
                loss = values[b, cell] - values[a, cell]
                if not is_any or loss > worst:
                    worst = loss
                    is_any = True
            if is_any:
                losses[a, b] += worst
                if worst > 0:
                    costs_more[a, b] = True
