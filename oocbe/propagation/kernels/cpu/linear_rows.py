"""One round of bound propagation over the rows of a linear system (Sofranac, Gleixner and Pokutta 2021, algorithm 1).

A row's *activity* is what its terms add up to, at least and at most; how many terms are infinite is counted apart, so
that the *residual* activity without one of them is known where that is the only infinite one. Side and residual
activity bound the term, and so its variable. Where all numbers are integers and the sizes of the terms add up to less
than 2^53, doubles compute this exactly. Elsewhere a bound moves outwards by what rounding may be off: that of sums and
products, and that of each coefficient, bound and side that a file says in decimals.

Sums are rounded, so their order is fixed, and is one that threads of a device can share. Terms of a short row are added
up from the first to the last. A longer one is cut into chunks: in each, *lanes* take every 32nd term, and are then
added up in pairs; the chunks' sums are added up from the first to the last.

Probing propagates assignments v = a, each by itself from the same bounds. A probe touches few variables. So rows wait
in a queue, those of the variables that have changed, and what has changed is put back behind each probe; nothing is
looked at but what a probe reaches. What a row of integers adds up to is kept: a changed bound is added to it, and only
a row that may tighten something then is looked at term by term.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import borrowing, helper, inline, jit, without_allocation

HALF_UNIT = 2.0**-53
"""Largest relative error of a rounded result."""

EXACT_LIMIT = 2.0**53
"""Integers below it are doubles."""

INFINITE = 1e20
"""New bounds of this size and beyond say nothing."""

SHORT_ROW = 32
"""Terms up to which a row is added up from the first to the last."""

LANES = 32
"""Sums that terms of a longer row are dealt out to: the threads of a warp."""

CHUNK = 1024
"""Terms that are dealt out together; what a block of threads has shared memory for."""

REAL_ROW = 0
"""Kind of a row with coefficients that are no integers."""

INTEGER_COEFFICIENTS = 1
"""Kind of a row with integer coefficients, of which some variables are real."""

INTEGER_ROW = 2
"""Kind of a row whose coefficients, sides and variables are integers."""

LinearRows = namedtuple(
    "LinearRows",
    "starts columns coefficients row_lower row_upper kinds integral row_starts rows_of",
)
"""A linear system as the loop reads it.

starts : int64 (rows + 1,). columns, coefficients : int64 and float64 (entries,). row_lower, row_upper : float64
(rows,). kinds : uint8 (rows,). integral : uint8 (variables,). row_starts, rows_of : rows of each variable, int64.
"""


class Rounding(NamedTuple):
    """Rules for accepting new bounds.

    outward : whether they are moved outwards by the rounding error. tolerance : what integers may be off, and bounds
    may cross, where they are not. progress : by what part a real bound must get better, of itself or of 1.
    """

    outward: bool
    tolerance: float
    progress: float


Found = namedtuple("Found", "row variable inexact")
"""Int64 (1,) each: row and variable of infeasibility, or -1; ``inexact``: 1 if integer sums reached 2^53."""

Changes = namedtuple("Changes", "count variables lower upper sums")
"""Bounds that a row has changed, in its order, and what they were; room for the entries of the longest row.

count : int64 (1,). variables : int64. lower, upper : float64. sums : float64 (4, LANES), scratch.
"""


def room_for_changes(rows: LinearRows) -> Changes:
    """Room for what a row may change."""
    longest = int(np.diff(rows.starts).max(initial=0))
    variables, (lower, upper) = np.empty(longest, dtype=np.int64), np.empty((2, longest))
    return Changes(np.zeros(1, dtype=np.int64), variables, lower, upper, np.empty((4, LANES)))


@inline
def _residual(total: Any, own: Any, infinite: Any) -> Any:
    """The activity without one term; NaN where another one is infinite."""
    if math.isinf(own):
        return total if infinite == 1 else math.nan
    return total - own if infinite == 0 else math.nan


@helper
def _quotient(
    side: Any, rest: Any, error: Any, is_exact: Any, coefficient: Any, is_integral: Any, rounding: Any
) -> Any:
    """``(side - rest) / coefficient`` and by how much it may be off; ``error`` : by how much ``rest`` may.

    A quotient of integers below 2^53 that is rounded to a double, and then to an integer, is rounded right.
    """
    room = side - rest
    quotient = room / coefficient
    if not rounding.outward:
        return quotient, 0.0
    if is_exact and np.floor(side) == side and abs(room) < EXACT_LIMIT:
        if is_integral or (np.floor(quotient) == quotient and quotient * coefficient == room):
            return quotient, 0.0
        return quotient, 4 * HALF_UNIT * abs(quotient)
    error += HALF_UNIT * (abs(room) + abs(rest) + abs(side))
    return quotient, error / abs(coefficient) + 4 * HALF_UNIT * abs(quotient)


@helper
def _as_lower(bound: Any, error: Any, is_integral: Any, tolerance: Any) -> Any:
    """A lower bound from a quotient that is off by at most ``error``."""
    return np.ceil(bound - error - tolerance) if is_integral else bound - error


@helper
def _is_better(new: Any, old: Any, is_integral: Any, progress: Any) -> Any:
    """Whether a lower bound is worth keeping; for upper bounds, both have their signs turned."""
    if not -INFINITE < new < INFINITE:  # NaN as well
        return False
    if is_integral:
        return new > old
    return new - old > progress * max(1.0, abs(new))


@borrowing
def propagate_round(
    rows: Any,
    old_lower: Any,
    old_upper: Any,
    lower: Any,
    upper: Any,
    marked: Any,
    again: Any,
    simultaneous: Any,
    rounding: Any,
    found: Any,
    changes: Any,
    stop: Any,
) -> Any:
    """Propagate all marked rows once, in their order; returns how often a bound got better.

    With all rows at once, the bounds that are reached do not depend on the rows' order: a new one counts where it is
    better than that before the round by as much as it must be, and the best of those stays.

    rows : :class:`LinearRows`. old_lower, old_upper : float64 (variables,), bounds that activities are computed from.
    lower, upper : float64 (variables,), bounds that get better; the arrays before where each row sees what those before
        it found (algorithm 1), others where all rows see the bounds before the round (algorithm 2).
    marked : uint8 (rows,), cleared as rows are propagated. again : uint8 (rows,), where rows with a new bound are
        marked; ``marked`` itself, or one for the next round.
    simultaneous : whether the bounds before the round are other arrays.
    rounding : :class:`Rounding`. found : :class:`Found`; the round ends where it is infeasible.
    changes : :func:`room_for_changes`. stop : the flag that ends it early; rows that were not propagated stay marked.
    """
    better = 0
    for row in range(len(rows.row_lower)):
        if stop[0] != 0:
            break
        if marked[row] == 0:
            continue
        marked[row] = 0
        better += propagate_row(rows, row, old_lower, old_upper, lower, upper, rounding, found, changes)
        if found.row[0] >= 0:
            break
        # What one side of a row tightens is not what it reads.
        reads = simultaneous or not (math.isinf(rows.row_lower[row]) or math.isinf(rows.row_upper[row]))
        for change in range(changes.count[0]):
            v = changes.variables[change]
            for place in range(rows.row_starts[v], rows.row_starts[v + 1]):
                if reads or rows.rows_of[place] != row:
                    again[rows.rows_of[place]] = 1
    return better


@inline
def propagate_row(
    rows: Any, row: Any, old_lower: Any, old_upper: Any, lower: Any, upper: Any, rounding: Any, found: Any, changes: Any
) -> Any:
    """Propagate one row, as in :func:`propagate_round`; returns how often a bound got better.

    changes : overwritten; a variable is there once where its lower bound, its upper bound or both have changed.
    """
    changes.count[0], sums = 0, changes.sums
    first, last = rows.starts[row], rows.starts[row + 1]
    side_low, side_high = rows.row_lower[row], rows.row_upper[row]
    kind = rows.kinds[row]
    is_exact = kind != REAL_ROW
    low, low_size, low_infinite = 0.0, 0.0, 0
    high, high_size, high_infinite = 0.0, 0.0, 0
    widest = 0.0
    lanes = 1 if last - first <= SHORT_ROW else LANES
    for begin in range(first, last, CHUNK):
        end = min(begin + CHUNK, last)
        for lane in range(lanes):
            lane_low, lane_low_size, lane_high, lane_high_size = 0.0, 0.0, 0.0, 0.0
            for entry in range(begin + lane, end, lanes):
                v, a = rows.columns[entry], rows.coefficients[entry]
                least, most = a * old_lower[v], a * old_upper[v]
                if a < 0:
                    least, most = most, least
                if most - least > widest:
                    widest = most - least
                if math.isinf(least):
                    low_infinite += 1
                else:
                    lane_low += least
                    lane_low_size += abs(least)
                if math.isinf(most):
                    high_infinite += 1
                else:
                    lane_high += most
                    lane_high_size += abs(most)
                if kind == INTEGER_COEFFICIENTS:
                    is_exact &= np.floor(least) == least and np.floor(most) == most
                    is_exact &= np.floor(old_lower[v]) == old_lower[v] and np.floor(old_upper[v]) == old_upper[v]
            sums[0, lane], sums[1, lane] = lane_low, lane_low_size
            sums[2, lane], sums[3, lane] = lane_high, lane_high_size
        step = lanes >> 1
        while step > 0:
            for part in range(4):
                for lane in range(step):
                    sums[part, lane] += sums[part, lane + step]
            step >>= 1
        low += sums[0, 0]
        low_size += sums[1, 0]
        high += sums[2, 0]
        high_size += sums[3, 0]
    if low_size >= EXACT_LIMIT or high_size >= EXACT_LIMIT:
        if kind == INTEGER_ROW:
            found.inexact[0] = 1
        is_exact = False
    low_error = high_error = 0.0
    if not is_exact and rounding.outward:
        unit = (last - first + 4) * HALF_UNIT
        low_error, high_error = unit * low_size, unit * high_size
    slack = 0.0 if rounding.outward else rounding.tolerance
    slack_high = slack * max(1.0, abs(side_high)) if math.isfinite(side_high) else 0.0
    slack_low = slack * max(1.0, abs(side_low)) if math.isfinite(side_low) else 0.0
    if rounding.outward and not is_exact:
        slack_high, slack_low = HALF_UNIT * abs(side_high), HALF_UNIT * abs(side_low)
    is_violated = low_infinite == 0 and low - low_error > side_high + slack_high
    is_violated |= high_infinite == 0 and high + high_error < side_low - slack_low
    # A side that every assignment keeps, or that two infinite terms are between, bounds nothing.
    by_high = side_high < math.inf and low_infinite <= 1 and not (high_infinite == 0 and high + high_error <= side_high)
    by_low = side_low > -math.inf and high_infinite <= 1 and not (low_infinite == 0 and low - low_error >= side_low)
    # A term that varies by less than the room that the cheapest terms leave keeps its bounds.
    room_high = side_high - low if low_infinite == 0 else -math.inf
    room_low = high - side_low if high_infinite == 0 else -math.inf
    if is_violated:
        found.row[0] = row
    elif not ((by_high and widest >= room_high) or (by_low and widest >= room_low)):
        return 0
    better = 0
    for entry in range(first, last):
        v, a = rows.columns[entry], rows.coefficients[entry]
        is_integral = rows.integral[v] != 0
        least, most = a * old_lower[v], a * old_upper[v]
        if a < 0:
            least, most = most, least
        new_low, new_high = -math.inf, math.inf
        if by_high and most - least >= room_high:
            rest = _residual(low, least, low_infinite)
            bound, error = _quotient(side_high, rest, low_error, is_exact, a, is_integral, rounding)
            if a > 0:
                new_high = -_as_lower(-bound, error, is_integral, slack)
            else:
                new_low = _as_lower(bound, error, is_integral, slack)
        if by_low and most - least >= room_low:
            rest = _residual(high, most, high_infinite)
            bound, error = _quotient(side_low, rest, high_error, is_exact, a, is_integral, rounding)
            if a > 0:
                new_low = _as_lower(bound, error, is_integral, slack)
            else:
                new_high = -_as_lower(-bound, error, is_integral, slack)
        is_changed = False
        was_low, was_high = lower[v], upper[v]
        # Adding zero makes a zero of a negative one, which compares alike and is not the same bits.
        if _is_better(new_low, old_lower[v], is_integral, rounding.progress) and new_low > lower[v]:
            lower[v] = new_low + 0.0
            better += 1
            is_changed = True
        if _is_better(-new_high, -old_upper[v], is_integral, rounding.progress) and new_high < upper[v]:
            upper[v] = new_high + 0.0
            better += 1
            is_changed = True
        if is_changed:
            place = changes.count[0]
            changes.variables[place], changes.lower[place], changes.upper[place] = v, was_low, was_high
            changes.count[0] = place + 1
            if lower[v] > upper[v] + slack * max(1.0, abs(upper[v])):
                found.row[0] = row
                found.variable[0] = v
                return better
    return better


@jit
def tile_rows(starts: Any, tiles: Any) -> Any:
    """Cut rows into tiles of neighbours with at most CHUNK entries, and rows, together; longer rows have their own.

    starts : int64 (rows + 1,). tiles : int64, with room for rows + 1 numbers, overwritten: the first row of each, and
    after the last one how many rows there are. Returns how many tiles.
    """
    count, first, rows = 0, 0, len(starts) - 1
    for row in range(rows):
        if row > first and (starts[row + 1] - starts[first] > CHUNK or row - first == CHUNK):
            tiles[count] = first
            count += 1
            first = row
    if rows > 0:
        tiles[count] = first
        count += 1
    tiles[count] = rows
    return count


Probes = namedtuple("Probes", "variables values failed")
"""Assignments, int64 variables and float64 values (probes,), and uint8 ``failed``: 1 for contradictions."""

Activities = namedtuple("Activities", "low high widest coefficients")
"""Activities of rows of integers with the bounds before any probe; float64.

low, high : (rows,), least and most; no number in ``low`` for other rows, and where sums reach 2^53 or have no end.
widest : (rows,), by how much a term varies at most. coefficients : (entries,), those of ``LinearRows.rows_of``.
"""

ProbeState = namedtuple(
    "ProbeState",
    "lower upper low high queue is_queued variables rows variable_stamps row_stamps places",
)
"""Changes of a probe, and the queue of rows.

lower, upper : float64 (variables,), bounds. low, high : float64 (rows,), activities.
queue : int64 (rows + 1,), a ring. is_queued : uint8 (rows,). variables, rows : int64, those that were touched.
variable_stamps, row_stamps : int64, the number of the probe that touched each last.
places : int64 (5,): begin and end of the queue, touched variables and rows, probes so far.
"""


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

    rows : :class:`LinearRows`. lower, upper : float64 (variables,). coefficients : :func:`coefficients_of_uses`.
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

    rows : :class:`LinearRows`. lower, upper : float64 (variables,), a
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
