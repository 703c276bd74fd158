"""Complete tables of logarithms: addition of a small table to a large one, and power sums of a large table's cells.

The cells of a small table that match those of a large one are listed as *bases* (a start for each block of adjacent
cells of the large table) and *inner* positions, the same in all blocks: the large table's cell ``b * len(inner) + i``
matches the small one's cell ``bases[b] + inner[i]``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit


@jit
def add_logarithms(
    target: NDArray[Any], part: NDArray[Any], bases: NDArray[Any], inner: NDArray[Any], factor: float
) -> None:
    """Add a multiple of a small table to a large one in place; where either is -inf, the result is -inf.

    target : float64 (cells,), below inf. part : float64 (cells of the small table,), below inf.
    bases, inner : int64, see the module. factor : of the part.
    """
    count = len(inner)
    for b in range(len(bases)):
        place, base = b * count, bases[b]
        for i in range(count):
            more = part[base + inner[i]]
            target[place + i] += -math.inf if more == -math.inf else factor * more


@jit
def power_sums(
    out: NDArray[Any],
    peaks: NDArray[Any],
    table: NDArray[Any],
    bases: NDArray[Any],
    inner: NDArray[Any],
    weight: float,
    flag: NDArray[Any],
) -> None:
    """Logarithms of power sums of a large table's cells: w log sum exp(x / w); the maximum where w is 0.

    A negative weight gives -inf where a cell is -inf. The result is unfinished where the flag is set.

    out : float64 (cells of the small table,), overwritten. peaks : like ``out``, working space.
    table : float64 (cells,), below inf. bases, inner : int64, see the module. weight : w.
    flag : int64 (1,), of the deadline.
    """
    count = len(inner)
    sign = -1.0 if weight < 0 else 1.0
    peaks[:] = -math.inf
    for b in range(len(bases)):
        place, base = b * count, bases[b]
        for i in range(count):
            own = base + inner[i]
            peaks[own] = max(peaks[own], sign * table[place + i])
    if weight == 0.0:
        out[:] = peaks
        return
    out[:] = 0.0
    scale = 1.0 / abs(weight)
    for b in range(len(bases)):
        if flag[0]:
            return
        place, base = b * count, bases[b]
        for i in range(count):
            own = base + inner[i]
            if -math.inf < peaks[own] < math.inf:
                out[own] += math.exp((sign * table[place + i] - peaks[own]) * scale)
    for own in range(len(out)):
        peak = peaks[own]
        if peak == -math.inf or peak == math.inf:
            out[own] = -math.inf
        else:
            out[own] = sign * peak + weight * math.log(out[own])


@jit
def send_beliefs(
    cells: NDArray[Any],
    starts: NDArray[Any],
    edges: NDArray[Any],
    walks: NDArray[Any],
    positions: NDArray[Any],
    backward: bool,
    damping: float,
    stop: NDArray[Any],
) -> tuple[float, float]:
    """Send beliefs along edges, one after the other, until the flag is set.

    A separator becomes the marginal of its sender; the receiver is multiplied by the new separator divided by the old
    one. The separator, and the receiver unless it becomes 0, are normalised to a sum of 1. Cells of 0 stay 0.

    cells : float64, logarithms of all tables, of separators with a sum of 1; updated. starts : int64 (tables + 1,).
    edges : int64 (edges, 5): tables of the separator and of both ends, and the walks of the separator in each.
    walks : int64 (walks, 3): where its bases and its inner ones begin in ``positions``, int64, and where these end.
    backward : from the last edge to the first, and each from its second end. damping : share of the old separator.
    stop : int64 (1,), the deadline's flag.
    Returns the largest change of a share of a separator, and the logarithm of the receivers' divisors.
    """
    change, total = 0.0, 0.0
    for e in range(len(edges)):
        if stop[0] != 0:
            break
        edge = edges[len(edges) - 1 - e if backward else e]
        sender, receiver = (2, 1) if backward else (1, 2)
        own, more = _send(
            cells[starts[edge[0]] : starts[edge[0] + 1]],
            cells[starts[edge[sender]] : starts[edge[sender] + 1]],
            positions[walks[edge[sender + 2], 0] : walks[edge[sender + 2], 1]],
            positions[walks[edge[sender + 2], 1] : walks[edge[sender + 2], 2]],
            cells[starts[edge[receiver]] : starts[edge[receiver] + 1]],
            positions[walks[edge[receiver + 2], 0] : walks[edge[receiver + 2], 1]],
            positions[walks[edge[receiver + 2], 1] : walks[edge[receiver + 2], 2]],
            damping,
            stop,
        )
        change, total = max(change, own), total + more
    return change, total


@helper
def _send(
    edge: NDArray[Any],
    sender: NDArray[Any],
    sender_bases: NDArray[Any],
    sender_inner: NDArray[Any],
    receiver: NDArray[Any],
    receiver_bases: NDArray[Any],
    receiver_inner: NDArray[Any],
    damping: float,
    stop: NDArray[Any],
) -> tuple[float, float]:
    """Send a belief along an edge; nothing is changed where the flag is set. Returns as :func:`send_beliefs`."""
    made, peaks, shift = np.empty_like(edge), np.empty_like(edge), np.empty_like(edge)
    power_sums(made, peaks, sender, sender_bases, sender_inner, 1.0, stop)
    if stop[0] != 0:
        return 0.0, 0.0
    for step in range(2):
        total = _log_total(made)
        if total == -math.inf:  # the sender has become 0
            return 0.0, 0.0
        for i in range(len(made)):
            if edge[i] == -math.inf:
                made[i] = -math.inf
            else:
                made[i] -= total
                if step == 0 and damping > 0.0 and made[i] > -math.inf:
                    made[i] += damping * (edge[i] - made[i])
    change = 0.0
    for i in range(len(made)):
        shift[i] = -math.inf if edge[i] == -math.inf else made[i] - edge[i]
        change = max(change, abs(math.exp(made[i]) - math.exp(edge[i])))
        edge[i] = made[i]
    add_logarithms(receiver, shift, receiver_bases, receiver_inner, 1.0)
    total = _log_total(receiver)
    if total == -math.inf:
        return change, 0.0
    for i in range(len(receiver)):
        receiver[i] -= total
    return change, total


@helper
def _log_total(table: NDArray[Any]) -> float:
    """Logarithm of the sum of a table's cells."""
    peak = -math.inf
    for x in table:
        peak = max(peak, x)
    if peak == -math.inf:
        return peak
    total = 0.0
    for x in table:
        total += math.exp(x - peak)
    return peak + math.log(total)
