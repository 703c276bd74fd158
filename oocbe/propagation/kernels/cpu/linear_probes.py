"""Assignments v = a of a linear system, each propagated by itself from the same bounds: probing.

A probe touches few variables. So rows wait in a queue, those of the variables that have changed, and what has changed
is put back behind each probe; nothing is looked at but what a probe reaches. What a row of integers adds up to is kept:
a changed bound is added to it, and only a row that may tighten something then is looked at term by term.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import jit, without_allocation
from oocbe.propagation.kernels.cpu.linear_rows import (
    EXACT_LIMIT,
    INTEGER_ROW,
    LANES,
    Changes,
    Found,
    propagate_row,
)


class Probes(NamedTuple):
    """Assignments, int64 variables and float64 values (probes,), and uint8 ``failed``: 1 for contradictions."""

    variables: Any
    values: Any
    failed: Any


class Activities(NamedTuple):
    """Activities of rows of integers with the bounds before any probe; float64.

    low, high : (rows,), least and most; no number in ``low`` for other rows, and where sums reach 2^53 or have no end.
    widest : (rows,), by how much a term varies at most. coefficients : (entries,), those of ``LinearRows.rows_of``.
    """

    low: Any
    high: Any
    widest: Any
    coefficients: Any


class ProbeState(NamedTuple):
    """Changes of a probe, and the queue of rows.

    lower, upper : float64 (variables,), bounds. low, high : float64 (rows,), activities.
    queue : int64 (rows + 1,), a ring. is_queued : uint8 (rows,). variables, rows : int64, those that were touched.
    variable_stamps, row_stamps : int64, the number of the probe that touched each last.
    places : int64 (5,): begin and end of the queue, touched variables and rows, probes so far.
    """

    lower: Any
    upper: Any
    low: Any
    high: Any
    queue: Any
    is_queued: Any
    variables: Any
    rows: Any
    variable_stamps: Any
    row_stamps: Any
    places: Any


@jit
def coefficients_of_uses(rows: Any) -> Any:
    """Coefficients in the order of ``LinearRows.rows_of``, float64 (entries,)."""
    coefficients, place = np.empty(len(rows.columns)), rows.row_starts.copy()
    for entry in range(len(rows.columns)):
        v = rows.columns[entry]
        coefficients[place[v]] = rows.coefficients[entry]
        place[v] += 1
    return coefficients


@jit
def activities_of(rows: Any, lower: Any, upper: Any, coefficients: Any) -> Any:
    """Activities of rows with some bounds: :class:`Activities`.

    rows : :class:`~oocbe.propagation.kernels.cpu.linear_rows.LinearRows`. lower, upper : float64 (variables,).
    coefficients : :func:`coefficients_of_uses`.
    """
    count = len(rows.row_lower)
    low, high, widest = np.full(count, np.nan), np.zeros(count), np.zeros(count)
    for row in range(count):
        least, most, size, wide = 0.0, 0.0, 0.0, 0.0
        for entry in range(rows.starts[row], rows.starts[row + 1]):
            v, a = rows.columns[entry], rows.coefficients[entry]
            one, other = a * lower[v], a * upper[v]
            least += min(one, other)
            most += max(one, other)
            size += max(abs(one), abs(other))
            wide = max(wide, abs(other - one))
        if rows.kinds[row] == INTEGER_ROW and size < EXACT_LIMIT:
            low[row], high[row], widest[row] = least, most, wide
    return Activities(low, high, widest, coefficients)


@jit
def state_of(exact: Any, lower: Any, upper: Any) -> Any:
    """A thread's :class:`ProbeState` before a probe, restored by :func:`propagate_probes`; arguments as there."""
    rows, variables = len(exact.low), len(lower)
    return ProbeState(
        lower.copy(),
        upper.copy(),
        exact.low.copy(),
        exact.high.copy(),
        np.empty(rows + 1, dtype=np.int64),
        np.zeros(rows, dtype=np.uint8),
        np.empty(variables, dtype=np.int64),
        np.empty(rows, dtype=np.int64),
        np.zeros(variables, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(5, dtype=np.int64),
    )


@without_allocation
def _spread(rows: Any, exact: Any, state: Any, v: Any, was_low: Any, was_high: Any, but: Any) -> Any:
    """Have rows, but one, of a variable wait if they may gain from its bounds, which were low and high."""
    places = state.places
    probe = places[4]
    if state.variable_stamps[v] != probe:
        state.variable_stamps[v] = probe
        state.variables[places[2]] = v
        places[2] += 1
    up, down = state.lower[v] - was_low, state.upper[v] - was_high
    first, last = rows.row_starts[v], rows.row_starts[v + 1]
    for use in range(first, last):
        row = rows.rows_of[use]
        if not math.isnan(exact.low[row]):
            if state.row_stamps[row] != probe:
                state.row_stamps[row] = probe
                state.rows[places[3]] = row
                places[3] += 1
            a = exact.coefficients[use]
            state.low[row] += a * (up if a > 0 else down)
            state.high[row] += a * (down if a > 0 else up)
            low, high = state.low[row], state.high[row]
            side_low, side_high = rows.row_lower[row], rows.row_upper[row]
            # A side that every assignment keeps bounds nothing, nor does one that leaves room for the widest term.
            by_high = high > side_high and side_high - low < exact.widest[row]
            by_low = low < side_low and high - side_low < exact.widest[row]
            if not (by_high or by_low or low > side_high or high < side_low):
                continue
        if state.is_queued[row] == 0 and row != but:
            state.is_queued[row] = 1
            state.queue[places[1]] = row
            places[1] = places[1] + 1 if places[1] + 1 < len(state.queue) else 0
    return places[1]


@without_allocation
def _propagate_exact(rows: Any, exact: Any, state: Any, row: Any, but: Any) -> Any:
    """Tighten the bounds of a row's variables by its activity; whether the row cannot be satisfied."""
    low, high = state.low[row], state.high[row]
    side_low, side_high = rows.row_lower[row], rows.row_upper[row]
    if low > side_high or high < side_low:
        return True
    room_high = side_high - low if high > side_high else math.inf
    room_low = high - side_low if low < side_low else math.inf
    for entry in range(rows.starts[row], rows.starts[row + 1]):
        v, a = rows.columns[entry], rows.coefficients[entry]
        was_low, was_high = state.lower[v], state.upper[v]
        size = abs(a)
        spread = size * (was_high - was_low)
        if spread <= room_high and spread <= room_low:
            continue
        # From where the term takes least, and from where it takes most. Quotients of integers below 2^53 that are
        # rounded to doubles, and then to integers, are rounded right.
        by_least = np.floor(room_high / size) if spread > room_high else math.inf
        by_most = np.floor(room_low / size) if spread > room_low else math.inf
        from_low, from_high = (by_least, by_most) if a > 0 else (by_most, by_least)
        new_low, new_high = max(was_low, was_high - from_high), min(was_high, was_low + from_low)
        if new_low > new_high:
            return True
        state.lower[v], state.upper[v] = new_low, new_high
        _spread(rows, exact, state, v, was_low, was_high, but)
    return False


@jit
def propagate_probes(
    rows: Any,
    exact: Any,
    state: Any,
    lower: Any,
    upper: Any,
    probes: Any,
    first: Any,
    last: Any,
    rounding: Any,
    most: Any,
    stop: Any,
) -> Any:
    """Propagate the probes from ``first`` to ``last``.

    rows : :class:`~oocbe.propagation.kernels.cpu.linear_rows.LinearRows`. lower, upper : float64 (variables,), a
        fixpoint that all probes begin with; not changed.
    exact : its :class:`Activities`. state : :func:`state_of` these.
    probes : :class:`Probes`; calls with different ranges may run beside one another.
    rounding : as for rounds. most : times that rows are propagated in a probe, at most; its results until then are
        valid.
    stop : flag that ends the loop early; later probes then have no result.
    """
    row_count, places = len(rows.row_lower), state.places
    longest = 0
    for row in range(row_count):
        longest = max(longest, rows.starts[row + 1] - rows.starts[row])
    variables, sums = np.empty(longest, dtype=np.int64), np.empty((4, LANES))
    changes = Changes(np.zeros(1, dtype=np.int64), variables, np.empty(longest), np.empty(longest), sums)
    found = Found(np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    for probe in range(first, last):
        if stop[0] != 0:
            break
        v, left, fails = probes.variables[probe], most, False
        places[0] = places[1] = places[2] = places[3] = 0
        places[4] += 1
        state.lower[v] = state.upper[v] = probes.values[probe]
        _spread(rows, exact, state, v, lower[v], upper[v], -1)
        while places[0] != places[1] and not fails and left > 0 and stop[0] == 0:
            row = state.queue[places[0]]
            places[0] = places[0] + 1 if places[0] < row_count else 0
            state.is_queued[row] = 0
            left -= 1
            # What one side of a row tightens is not what it reads.
            but = row if np.isinf(rows.row_lower[row]) or np.isinf(rows.row_upper[row]) else -1
            if not math.isnan(exact.low[row]):
                fails = _propagate_exact(rows, exact, state, row, but)
                continue
            found.row[0] = -1
            propagate_row(rows, row, state.lower, state.upper, state.lower, state.upper, rounding, found, changes)
            for change in range(changes.count[0]):
                was_low, was_high = changes.lower[change], changes.upper[change]
                _spread(rows, exact, state, changes.variables[change], was_low, was_high, but)
            fails = found.row[0] >= 0
        probes.failed[probe] = fails
        while places[0] != places[1]:
            state.is_queued[state.queue[places[0]]] = 0
            places[0] = places[0] + 1 if places[0] < row_count else 0
        for place in range(places[2]):
            w = state.variables[place]
            state.lower[w], state.upper[w] = lower[w], upper[w]
        for place in range(places[3]):
            row = state.rows[place]
            state.low[row], state.high[row] = exact.low[row], exact.high[row]
