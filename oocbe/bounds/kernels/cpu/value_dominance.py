"""Worst-case loss of the substitution of one value of a variable for another, function by function."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def add_worst_losses(values: Any, permitted: Any, losses: Any, blocked: Any, costs_more: Any) -> Any:
    """Add one function's worst-case loss to that of each substitution.

    Parameters
    ----------
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
