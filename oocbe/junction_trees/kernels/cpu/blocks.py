"""Input and output of a sweep over a block of cases: evidence, and probabilities of values."""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import jit


@jit
def enter_evidence(messages: Any, prior: Any, observed: Any, start: Any, nothing: Any, everything: Any) -> None:
    """Set a block's messages to those without evidence, and the rows of observed variables to their evidence.

    Parameters
    ----------
    messages : float64 (message rows, cases), written. prior : float64 (message rows,).
    observed : int64 (cases, observed variables), value indices, negative where a case does not observe a variable.
    start : int64 (observed variables, 2), where the rows of each variable's values begin and end.
    nothing, everything : the representations of the likelihoods 0 and 1.
    """
    rows, width = messages.shape
    for row in range(rows):
        for b in range(width):
            messages[row, b] = prior[row]
    for i in range(len(start)):
        for row in range(start[i, 0], start[i, 1]):
            for b in range(width):
                value = observed[b, i]
                messages[row, b] = everything if value < 0 or row - start[i, 0] == value else nothing


@jit
def take_shares(posteriors: Any, begin: Any, rows: Any, map_start: Any, maps: Any, out_start: Any, out: Any) -> None:
    """Sum probabilities of rows to probabilities of values, for each case of a block.

    Parameters
    ----------
    posteriors : float64 (message rows, cases).
    begin, rows : int64 (targets,), first row and number of rows of each target.
    map_start : int64 (targets,), where each one's map begins in ``maps``, int32: the value of each row; -1: rows are
        values.
    out_start : int64 (targets,), where the values of each begin in a row of ``out``, float64 (cases, values of all).
    """
    width = posteriors.shape[1]
    for t in range(len(begin)):
        for i in range(rows[t]):
            value = out_start[t] + (i if map_start[t] < 0 else maps[map_start[t] + i])
            for b in range(width):
                out[b, value] += posteriors[begin[t] + i, b]
