"""Bounds of a linear system's variables, propagated to their fixpoint (Sofranac, Gleixner and Pokutta 2021).

Each round propagates the rows whose variables have changed. Integers are exact: doubles while sums stay below 2^53,
Python integers beyond. With fractions, bounds are moved outwards by the possible rounding error, so that no feasible
point is lost, those of the decimals in a file included. The paper's rule, which accepts improvements above a tolerance
and ignores rounding, is an option for comparison.

Rounds over all rows at once (algorithm 2) may run on a CUDA device; results equal the processor's bit for bit. A round
that shows infeasibility there is repeated on the processor, to identify the row and the variable.

Propagation with Python integers (:func:`exact_round`) is slow, and exact at any size. It is algorithm 1 of the paper,
as in :mod:`oocbe.propagation.kernels.cpu.linear_rows`: a row's activities with infinite terms counted apart, the
residual activity of each variable, a floor or ceiling division.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import RequestedEndError, TimeLimitError, UsageError
from oocbe.kernels import backend_for
from oocbe.model.linear_system import EXACT_LIMIT, LinearSystem, Numbers
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.kernels.cpu.linear_rows import (
    INTEGER_COEFFICIENTS,
    INTEGER_ROW,
    REAL_ROW,
    Found,
    LinearRows,
    Rounding,
    propagate_round,
    room_for_changes,
)
from oocbe.runtime.deadline import check_deadline, current, current_flag

ROUNDS = 1000
"""Default limit of rounds: convergence may be endless, and few instances need a hundred rounds."""

PROGRESS = 1e-9
"""Default least improvement of a real bound, relative to its size (or to 1); smaller improvements do not count."""

FIXPOINT, INFEASIBLE, LIMIT, INTERRUPTED = "fixpoint", "infeasible", "limit", "interrupted"
"""Status of a propagation."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds that were reached.

    status : ``fixpoint``, ``infeasible``, ``limit`` or ``interrupted`` (by a signal).
    reason : why it ended so, for people; empty for a fixpoint.
    lower, upper : (variables,), in the form of the system's numbers.
    rounds : improvements of bounds in each round; with all rows at once, the number of improved bounds.
    row, variable : the proof of infeasibility; one of them is None where the other suffices.
    """

    status: str
    reason: str
    lower: Numbers
    upper: Numbers
    rounds: tuple[int, ...] = ()
    row: int | None = None
    variable: int | None = None


def propagate_bounds(
    system: LinearSystem,
    *,
    rounds: int = ROUNDS,
    progress: float = PROGRESS,
    tolerance: float | None = None,
    simultaneous: bool = False,
    marked: NDArray[np.uint8] | None = None,
    backend: str | None = None,
) -> Bounds:
    """Tighten a system's bounds until no row can.

    rounds : rounds at most.
    progress : part of itself by which a real bound must get better; at least 0. Integers always count.
    tolerance : None: outward rounding, which allows for all but products and quotients below 2.2e-308 in size, of which
        doubles have fewer digits; a number: what integers may be off and bounds may cross, and no care of rounding, as
        in the paper (1e-9 there).
    simultaneous : whether all rows of a round see the bounds before it (algorithm 2 of the paper, for many processors)
        and not those that rows before them found (algorithm 1).
    marked : uint8 (rows,), rows to begin with; None: all.
    backend : ``cpu``, ``cuda``, ``auto`` or None for what ``OOCBE_BACKEND`` says. On a device all rows are propagated
        at once; ``auto`` takes one for many non-zeros, where ``marked`` is None.
    Returns Bounds : the bounds reached when the time was up or a limit was reached are valid, too.
    Raises UsageError: wrong limits, or there is no CUDA device that can be used; ResourceError: its memory ran out.
    """
    if rounds < 0 or not progress >= 0 or (tolerance is not None and not tolerance >= 0):
        raise UsageError("propagation: limits on rounds and progress, and the tolerance, must be at least 0")
    waiting = np.ones(system.rows, dtype=np.uint8) if marked is None else marked.copy()
    if system.is_exact:
        return _exactly(system, system.lower.astype(object), system.upper.astype(object), waiting, rounds, ())
    lower, upper = rounded_bounds(system, tolerance or 0.0)
    crossing = np.flatnonzero(lower > upper + (tolerance or 0.0))
    if len(crossing):
        return _crossing(system, lower, upper, int(crossing[0]))
    rows = linear_rows_of(system)
    rounding = Rounding(tolerance is None, tolerance or 0.0, progress)
    found = Found(*(np.full(1, start, dtype=np.int64) for start in (-1, -1, 0)))
    counts: list[int] = []
    changes, stop = room_for_changes(rows), current_flag()
    work = len(rows.columns) // tuning().entries_a_row
    if waiting.all() and len(waiting) and backend_for(work, backend).name == "cuda":
        from oocbe.propagation.kernels.cuda.linear_rows import DeviceRows

        simultaneous = True
        reached = DeviceRows(rows).propagate(lower, upper, rounding, rounds)
        lower, upper, counts = reached.lower, reached.upper, list(reached.changes)
        found.inexact[0] = reached.is_inexact
        waiting[:] = not reached.is_fixpoint
        if waiting.any() and (ended := how_time_ended()) is not None:
            return Bounds(*ended, lower, upper, tuple(counts))
    while waiting.any():
        if len(counts) >= rounds:
            return Bounds(LIMIT, f"the limit of {rounds} rounds was reached", lower, upper, tuple(counts))
        again = np.zeros_like(waiting) if simultaneous else waiting
        before = (lower.copy(), upper.copy()) if simultaneous else (lower, upper)
        better = propagate_round(
            rows, *before, lower, upper, waiting, again, simultaneous, rounding, found, changes, stop
        )
        if simultaneous:  # several rows may have made a bound better
            better = sum(int(np.count_nonzero(a != b)) for a, b in zip((lower, upper), before, strict=True))
        counts.append(better)
        if found.row[0] >= 0:
            variable = int(found.variable[0]) if found.variable[0] >= 0 else None
            return _infeasible(system, lower, upper, tuple(counts), int(found.row[0]), variable)
        if (ended := how_time_ended()) is not None:
            return Bounds(*ended, lower, upper, tuple(counts))
        waiting = again
    if found.inexact[0] and tolerance is None and (rows.kinds == INTEGER_ROW).all():
        # Sums exceeded 2^53: the bounds so far are valid, and Python integers continue from them.
        everything = np.ones(system.rows, dtype=np.uint8)
        return _exactly(system, _integers(lower), _integers(upper), everything, rounds, tuple(counts))
    return Bounds(FIXPOINT, "", lower, upper, tuple(counts))


def _exactly(
    system: LinearSystem,
    lower: NDArray[np.object_],
    upper: NDArray[np.object_],
    waiting: NDArray[np.uint8],
    rounds: int,
    counts: tuple[int, ...],
) -> Bounds:
    """Go on with Python's integers."""
    for v, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if low > high:
            return _crossing(system, lower, upper, v)
    while waiting.any():
        if len(counts) >= rounds:
            return Bounds(LIMIT, f"the limit of {rounds} rounds was reached", lower, upper, counts)
        better, row, variable = exact_round(system, lower, upper, waiting)
        counts = (*counts, better)
        if row is not None:
            return _infeasible(system, lower, upper, counts, row, variable)
        if (ended := how_time_ended()) is not None:
            return Bounds(*ended, lower, upper, counts)
    return Bounds(FIXPOINT, "", lower, upper, counts)


def how_time_ended() -> tuple[str, str] | None:
    """Status and reason where the deadline of the enclosing block has passed; None otherwise."""
    try:
        check_deadline()
    except TimeLimitError as error:
        return INTERRUPTED if isinstance(error, RequestedEndError) else LIMIT, str(error)
    return None


def _infeasible(
    system: LinearSystem, lower: Numbers, upper: Numbers, counts: tuple[int, ...], row: int, variable: int | None
) -> Bounds:
    if variable is None:
        reason = f"{system.row_name(row)} cannot be satisfied within the bounds of its variables"
    else:
        name = system.names[variable]
        reason = f"{system.row_name(row)} leaves {name} no value: at least {lower[variable]}, at most {upper[variable]}"
    return Bounds(INFEASIBLE, reason, lower, upper, counts, row, variable)


def _crossing(system: LinearSystem, lower: Numbers, upper: Numbers, variable: int) -> Bounds:
    name = system.names[variable]
    kind = "integer" if system.integral[variable] else "value"
    reason = f"{name} has no {kind} between its bounds {system.lower[variable]} and {system.upper[variable]}"
    return Bounds(INFEASIBLE, reason, lower, upper, (), None, variable)


def rounded_bounds(system: LinearSystem, tolerance: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Copies of the bounds, those of integers rounded inwards."""
    lower, upper = system.lower.astype(np.float64), system.upper.astype(np.float64)
    lower = np.where(system.integral, np.ceil(lower - tolerance), lower)
    upper = np.where(system.integral, np.floor(upper + tolerance), upper)
    return lower + 0.0, upper + 0.0  # no zero is a negative one


def linear_rows_of(system: LinearSystem) -> LinearRows:
    """The loop's arrays; sides of rows of integers are rounded to integers."""
    coefficients = system.coefficients.astype(np.float64, copy=False)
    is_integer = (coefficients == np.floor(coefficients)) & (np.abs(coefficients) < EXACT_LIMIT)
    has_integers = _all_of_rows(system, is_integer)
    only_integers = has_integers & _all_of_rows(system, system.integral[system.columns])
    kinds = np.where(only_integers, INTEGER_ROW, np.where(has_integers, INTEGER_COEFFICIENTS, REAL_ROW))
    row_lower, row_upper = (side.astype(np.float64, copy=False) for side in (system.row_lower, system.row_upper))
    row_lower = np.where(only_integers, np.ceil(row_lower), row_lower)
    row_upper = np.where(only_integers, np.floor(row_upper), row_upper)
    return LinearRows(
        system.starts,
        system.columns,
        coefficients,
        row_lower,
        row_upper,
        kinds.astype(np.uint8),
        system.integral.astype(np.uint8),
        *system.rows_of_variables,
    )


def _all_of_rows(system: LinearSystem, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a flag of every entry of each row is set."""
    missing = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(~flags, out=missing[1:])
    result: NDArray[np.bool_] = missing[system.starts[1:]] == missing[system.starts[:-1]]
    return result


def _integers(bounds: NDArray[np.float64]) -> NDArray[np.object_]:
    made = np.empty(len(bounds), dtype=object)
    made[:] = [int(b) if math.isfinite(b) else b for b in bounds.tolist()]
    return made


Bound: TypeAlias = int | float
"""An integer, or a float that is ``inf`` or ``-inf``."""

Objects: TypeAlias = NDArray[np.object_]


def exact_round(
    system: LinearSystem, lower: Objects, upper: Objects, marked: NDArray[np.uint8]
) -> tuple[int, int | None, int | None]:
    """Propagate all marked rows once, in their order; bounds and marks are changed.

    All variables and numbers are integers. Returns the number of improvements, and the row and the variable that show
    infeasibility, or None. It ends early at the deadline of the enclosing block; marks of rows not reached stay.
    """
    starts, rows_of = system.rows_of_variables
    better = 0
    deadline = current()
    for row in np.flatnonzero(marked).tolist():
        if deadline is not None and deadline.passed:
            break
        marked[row] = 0
        entries = slice(system.starts[row], system.starts[row + 1])
        columns = system.columns[entries].tolist()
        coefficients = [int(a) for a in system.coefficients[entries].tolist()]
        side_low = _whole(system.row_lower[row], math.ceil)
        side_high = _whole(system.row_upper[row], math.floor)
        changed, is_violated, variable = _propagate(columns, coefficients, side_low, side_high, lower, upper)
        better += len(changed)
        if is_violated:
            return better, row, variable
        for v in set(changed):
            marked[rows_of[starts[v] : starts[v + 1]]] = 1
    return better, None, None


def _whole(side: Bound, rounded: Callable[[float], int]) -> Bound:
    if isinstance(side, int):
        return side
    return float(side) if math.isinf(side) else rounded(side)  # NumPy's infinity is not compared with large integers


def _propagate(
    columns: list[int], coefficients: list[int], side_low: Bound, side_high: Bound, lower: Objects, upper: Objects
) -> tuple[list[int], bool, int | None]:
    """Tighten the bounds of a row's variables; returns the changed ones, infeasibility, and its variable."""
    terms = []
    for v, a in zip(columns, coefficients, strict=True):
        least, most = (lower[v], upper[v]) if a > 0 else (upper[v], lower[v])
        terms.append((a * least, a * most))
    low, low_infinite = _total([least for least, _ in terms])
    high, high_infinite = _total([most for _, most in terms])
    is_violated = (low_infinite == 0 and low > side_high) or (high_infinite == 0 and high < side_low)
    changed = []
    for v, a, (least, most) in zip(columns, coefficients, terms, strict=True):
        new_low, new_high = -math.inf, math.inf
        rest = _residual(low, least, low_infinite)
        if rest is not None and not math.isinf(side_high):
            room = side_high - rest
            if a > 0:
                new_high = room // a
            else:
                new_low = -(room // -a)
        rest = _residual(high, most, high_infinite)
        if rest is not None and not math.isinf(side_low):
            room = side_low - rest
            if a > 0:
                new_low = -(-room // a)
            else:
                new_high = -room // -a
        if new_low > lower[v]:
            lower[v] = new_low
            changed.append(v)
        if new_high < upper[v]:
            upper[v] = new_high
            changed.append(v)
        if lower[v] > upper[v]:
            return changed, True, v
    return changed, is_violated, None


def _total(terms: list[Bound]) -> tuple[Bound, int]:
    """The sum of the finite terms, and how many are infinite."""
    finite = [term for term in terms if not isinstance(term, float)]
    return sum(finite), len(terms) - len(finite)


def _residual(total: Bound, own: Bound, infinite: int) -> Bound | None:
    """The activity without one term; None where another one is infinite."""
    if isinstance(own, float):
        return total if infinite == 1 else None
    return total - own if infinite == 0 else None
