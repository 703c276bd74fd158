"""One round of bound propagation over the rows of a linear system (Sofranac, Gleixner and Pokutta 2021, algorithm 1).

A row's *activity* is what its terms add up to, at least and at most; how many terms are infinite is counted apart, so
that the *residual* activity without one of them is known where that is the only infinite one. Side and residual
activity bound the term, and so its variable. Where all numbers are integers and the sizes of the terms add up to less
than 2^53, doubles compute this exactly. Elsewhere a bound moves outwards by what rounding may be off: that of sums and
products, and that of each coefficient, bound and side that a file says in decimals.

Sums are rounded, so their order is fixed, and is one that threads of a device can share. Terms of a short row are added
up from the first to the last. A longer one is cut into chunks: in each, *lanes* take every 32nd term, and are then
added up in pairs; the chunks' sums are added up from the first to the last.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from oocbe.kernels.cpu.jit import borrowing, helper, inline, jit

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


class LinearRows(NamedTuple):
    """A linear system as the loop reads it.

    starts : int64 (rows + 1,). columns, coefficients : int64 and float64 (entries,). row_lower, row_upper : float64
    (rows,). kinds : uint8 (rows,). integral : uint8 (variables,). row_starts, rows_of : rows of each variable, int64.
    """

    starts: Any
    columns: Any
    coefficients: Any
    row_lower: Any
    row_upper: Any
    kinds: Any
    integral: Any
    row_starts: Any
    rows_of: Any


class Rounding(NamedTuple):
    """Rules for accepting new bounds.

    outward : whether they are moved outwards by the rounding error. tolerance : what integers may be off, and bounds
    may cross, where they are not. progress : by what part a real bound must get better, of itself or of 1.
    """

    outward: bool
    tolerance: float
    progress: float


class Found(NamedTuple):
    """Int64 (1,) each: row and variable of infeasibility, or -1; ``inexact``: 1 if integer sums reached 2^53."""

    row: Any
    variable: Any
    inexact: Any


class Changes(NamedTuple):
    """Bounds that a row has changed, in its order, and what they were; room for the entries of the longest row.

    count : int64 (1,). variables : int64. lower, upper : float64. sums : float64 (4, LANES), scratch.
    """

    count: Any
    variables: Any
    lower: Any
    upper: Any
    sums: Any


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
    """Whether a lower bound is worth keeping; upper ones are asked with both signs turned."""
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
    changes : :func:`room_for_changes`.
    stop : the flag that ends it early; rows that were not propagated stay marked.
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
    rows: Any,
    row: Any,
    old_lower: Any,
    old_upper: Any,
    lower: Any,
    upper: Any,
    rounding: Any,
    found: Any,
    changes: Any,
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
