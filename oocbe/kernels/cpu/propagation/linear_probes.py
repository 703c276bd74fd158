"""Assignments v = a of a linear system, each propagated by itself from the same bounds: probing.

A probe touches few rows. So rows wait in a queue, those of the variables that have changed, and what has changed is put
back behind each probe; nothing is looked at but what a probe reaches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.propagation.linear_rows import LANES, Changes, Found, propagate_row


class Probes(NamedTuple):
    """Assignments, and what they lead to.

    variables, values : int64 and float64 (probes,). failed : uint8 (probes,), written: 1 for contradictions.
    implied : uint32 (2, variables, words), a bit a probe, all zero before: it fixes an integer variable that had other
    values before at its lower (0) or upper (1) bound of before. No probe that failed has any. No words: not asked for.
    """

    variables: Any
    values: Any
    failed: Any
    implied: Any


@jit
def propagate_probes(
    rows: Any, lower: Any, upper: Any, probes: Any, first: Any, last: Any, rounding: Any, most: Any, stop: Any
) -> Any:
    """Propagate the probes from ``first`` to ``last``; returns the entries of rows that were looked at.

    Parameters
    ----------
    rows : :class:`~oocbe.kernels.cpu.propagation.linear_rows.LinearRows`. lower, upper : float64 (variables,), a
        fixpoint that all probes begin with; not changed.
    probes : :class:`Probes`; calls with ranges that begin at multiples of 32 may run beside one another.
    rounding : as for rounds. most : times that rows are propagated in a probe at most; what it found until then holds.
    stop : the flag that ends the loop early; nothing is said of later probes then.
    """
    row_count, variables = len(rows.row_lower), len(lower)
    low, high = lower.copy(), upper.copy()
    queue, is_queued = np.empty(row_count + 1, dtype=np.int64), np.zeros(row_count, dtype=np.uint8)
    touched, stamps = np.empty(variables, dtype=np.int64), np.full(variables, -1, dtype=np.int64)
    longest = 0
    for row in range(row_count):
        longest = max(longest, rows.starts[row + 1] - rows.starts[row])
    changes = Changes(
        np.zeros(1, dtype=np.int64), np.empty(longest, dtype=np.int64), np.empty(longest), np.empty(longest)
    )
    found = Found(np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    sums = np.empty((4, LANES))
    entries = 0
    for probe in range(first, last):
        if stop[0] != 0:
            break
        v, value = probes.variables[probe], probes.values[probe]
        low[v] = high[v] = value
        touched[0], stamps[v] = v, probe
        count, begin, end, left = 1, 0, 0, most
        found.row[0], found.variable[0] = -1, -1
        for place in range(rows.row_starts[v], rows.row_starts[v + 1]):
            queue[end] = rows.rows_of[place]
            is_queued[rows.rows_of[place]] = 1
            end += 1
        while begin != end and found.row[0] < 0 and left > 0 and stop[0] == 0:
            row = queue[begin]
            begin = begin + 1 if begin < row_count else 0
            is_queued[row] = 0
            left -= 1
            entries += rows.starts[row + 1] - rows.starts[row]
            propagate_row(rows, row, low, high, low, high, rounding, found, changes, sums)
            one_sided = np.isinf(rows.row_lower[row]) or np.isinf(rows.row_upper[row])
            for change in range(changes.count[0]):
                changed = changes.variables[change]
                if stamps[changed] != probe:
                    stamps[changed] = probe
                    touched[count] = changed
                    count += 1
                for place in range(rows.row_starts[changed], rows.row_starts[changed + 1]):
                    other = rows.rows_of[place]
                    # What one side of a row tightens is not what it reads.
                    if is_queued[other] == 0 and not (one_sided and other == row):
                        is_queued[other] = 1
                        queue[end] = other
                        end = end + 1 if end < row_count else 0
        probes.failed[probe] = found.row[0] >= 0
        while begin != end:
            is_queued[queue[begin]] = 0
            begin = begin + 1 if begin < row_count else 0
        word, bit = probe >> 5, np.uint32(1 << (probe & 31))
        is_told = found.row[0] < 0 and word < probes.implied.shape[2]
        for place in range(count):
            w = touched[place]
            if is_told and rows.integral[w] != 0 and low[w] == high[w] and lower[w] < upper[w] and w != v:
                if low[w] == lower[w]:
                    probes.implied[0, w, word] |= bit
                elif low[w] == upper[w]:
                    probes.implied[1, w, word] |= bit
            low[w], high[w] = lower[w], upper[w]
    return entries
