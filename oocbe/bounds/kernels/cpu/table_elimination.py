"""A variable eliminated from functions that are written out, cell by cell.

Most are of a few dozen cells, where laying anything out better takes longer than going through them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit


@jit
def eliminate_variable(
    values: Any, permitted: Any, starts: Any, strides: Any, sizes: Any, best: Any, is_left: Any, choice: Any
) -> None:
    """Add up functions and take the least over the values of the variable on the first axis, the first of equal ones.

    Parameters
    ----------
    values, permitted : int64 or float64, and bool: cells of all functions, one function after the other.
    starts : int64 (functions,), where each begins. strides : int64 (functions, axes), 0 along axes that it has not.
    sizes : int64 (axes,). best, is_left, choice : (cells,) of the result, whose axes are all but the first, the last
        one fastest; written: least sum, 0 where all is forbidden; whether anything is permitted; value that is best.
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
