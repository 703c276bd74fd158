"""Remaining values of variables in the states of rows (:mod:`oocbe.bounds.kernels.cpu.row_ascent`)."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def count_left(value_start: Any, states: Any, gone: Any, variables: Any, together: Any, most: Any) -> Any:
    """Count the remaining values of variables in rows.

    Parameters
    ----------
    value_start : int64 (all variables + 1,). states : (rows, state). gone : marker of a removed value.
    variables : int64.
    together, most : int64 (variables,), zero; filled with the total over all rows, and the maximum of a row.
    """
    for row in range(len(states)):
        for i in range(len(variables)):
            v = variables[i]
            left = 0
            for place in range(value_start[v], value_start[v + 1]):
                if states[row, place] != gone:
                    left += 1
            together[i] += left
            most[i] = max(most[i], left)


@jit
def first_left(value_start: Any, states: Any, gone: Any, variables: Any, assignments: Any) -> Any:
    """Write the first remaining value of each listed variable into each row's assignment.

    Parameters
    ----------
    value_start, states, gone, variables : as for :func:`count_left`. assignments : integers (rows, all variables).
    """
    for row in range(len(states)):
        for i in range(len(variables)):
            v = variables[i]
            place = value_start[v]
            while place < value_start[v + 1] - 1 and states[row, place] == gone:
                place += 1
            assignments[row, v] = place - value_start[v]
