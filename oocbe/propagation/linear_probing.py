"""Probing of a linear system: both values of each two-valued variable are propagated, thousands in parallel.

Where one leads to a contradiction, the variable is fixed to the other and bounds are propagated again, to a fixpoint.
The result does not depend on the order of the probes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import TimeLimitError
from oocbe.kernels import backend_for
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.linear_system import LinearSystem
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.bounds import (
    FIXPOINT,
    INFEASIBLE,
    PROGRESS,
    Bounds,
    how_time_ended,
    linear_rows_of,
    propagate_bounds,
)
from oocbe.propagation.kernels.cpu.linear_probes import (
    Activities,
    Probes,
    ProbeState,
    activities_of,
    coefficients_of_uses,
    propagate_probes,
    state_of,
)
from oocbe.propagation.kernels.cpu.linear_rows import LinearRows, Rounding
from oocbe.runtime.deadline import check_deadline, current_flag

if TYPE_CHECKING:
    from oocbe.propagation.kernels.cuda.linear_probes import DeviceProbes

STEPS = 1000
"""Limit of propagations of all rows in a probe: unbounded variables may converge for ever."""


@dataclass(frozen=True, eq=False)
class ProbedBounds:
    """Bounds after probing, the number of probes, and how many of them were contradictions."""

    bounds: Bounds
    probes: int
    failures: int


def two_valued(bounds: Bounds, integral: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Integer variables that have two values left."""
    return np.flatnonzero(integral & (bounds.upper == bounds.lower + 1))


def probe_bounds(
    system: LinearSystem,
    bounds: Bounds,
    *,
    progress: float = PROGRESS,
    backend: str | None = "cpu",
) -> ProbedBounds:
    """Probe both values of all two-valued variables, from a fixpoint on, until none is a contradiction.

    The system's numbers are doubles. The bounds reached at the deadline are valid.

    backend : where probes are propagated: ``cpu``, ``cuda``, ``auto`` or None for the value of ``OOCBE_BACKEND``. A
        device propagates rows in another order, which changes bounds of reals only, by less than counts as progress.

    Raises UsageError: there is no CUDA device where one is asked for; ResourceError: its memory ran out.
    """
    rows, rounding = linear_rows_of(system), Rounding(True, 0.0, progress)
    device = _device_for(rows, len(two_valued(bounds, system.integral)), backend)
    prober = HostProbes(rows) if device is None else device
    probes = failures = 0
    is_changed = True
    while is_changed and bounds.status == FIXPOINT:
        is_changed = False
        waiting = two_valued(bounds, system.integral)
        while len(waiting) and bounds.status == FIXPOINT:
            block = tuning().few_rows if device is None else tuning().probe_device_block
            tried, waiting = waiting[: block // 2], waiting[block // 2 :]
            values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).astype(np.float64).reshape(-1)
            try:
                failed = failures_of(rows, bounds, np.repeat(tried, 2), values, rounding, prober)
            except TimeLimitError:
                ended = how_time_ended()
                assert ended is not None
                return ProbedBounds(replace(bounds, status=ended[0], reason=ended[1]), probes, failures)
            probes += len(values)
            if failed.any():
                is_changed = True
                failures += int(failed.sum())
                bounds = _without(system, bounds, tried, failed.reshape(-1, 2), progress)
                waiting = waiting[bounds.upper[waiting] > bounds.lower[waiting]]
    return ProbedBounds(bounds, probes, failures)


def _without(
    system: LinearSystem, bounds: Bounds, tried: NDArray[np.int64], failed: NDArray[np.bool_], progress: float
) -> Bounds:
    """Bounds without the failed values, (variables tried, 2), propagated."""
    impossible = np.flatnonzero(failed.all(axis=1))
    if len(impossible):
        v = int(tried[impossible[0]])
        reason = f"{system.names[v]} has no value that can be propagated"
        return replace(bounds, status=INFEASIBLE, reason=reason, row=None, variable=v)
    lower, upper = bounds.lower.copy(), bounds.upper.copy()
    raised, lowered = tried[failed[:, 0]], tried[failed[:, 1]]
    lower[raised], upper[lowered] = upper[raised], lower[lowered]
    marked = np.zeros(system.rows, dtype=np.uint8)
    starts, rows_of = system.rows_of_variables
    for v in np.concatenate([raised, lowered]).tolist():
        marked[rows_of[starts[v] : starts[v + 1]]] = 1
    smaller = replace(system, lower=lower, upper=upper)
    again = propagate_bounds(smaller, progress=progress, marked=marked, backend="cpu")
    return replace(again, rounds=(*bounds.rounds, *again.rounds))


def _device_for(rows: LinearRows, tried: int, backend: str | None) -> DeviceProbes | None:
    """The system on a device, where probes of so many variables justify one."""
    if (
        not tried
        or not len(rows.kinds)
        or backend_for(tried * len(rows.columns) // tuning().probed_entries, backend).name != "cuda"
    ):
        return None
    from oocbe.propagation.kernels.cuda.linear_probes import DeviceProbes

    return DeviceProbes(rows)


def failures_of(
    rows: LinearRows,
    bounds: Bounds,
    variables: NDArray[np.int64],
    values: NDArray[np.float64],
    rounding: Rounding,
    prober: DeviceProbes | HostProbes | None = None,
) -> NDArray[np.bool_]:
    """Contradictions among some assignments: bool (probes,).

    prober : threads or a device with the rows; None: threads that prepare them now.

    Raises TimeLimitError: at the deadline.
    """
    lower, upper = (side.astype(np.float64, copy=False) for side in (bounds.lower, bounds.upper))
    if prober is None or not len(variables) or isinstance(prober, HostProbes):
        host = prober if isinstance(prober, HostProbes) else HostProbes(rows)
        return host.propagate(lower, upper, variables, values, rounding)
    check_deadline()
    return prober.propagate(lower, upper, variables, values, rounding, tuning().probe_device_rounds)


class HostProbes:
    """A linear system for repeated probing by threads; working memory is reused."""

    def __init__(self, rows: LinearRows) -> None:
        self._rows = rows
        self._coefficients = coefficients_of_uses(rows)
        self._root: tuple[NDArray[np.float64], NDArray[np.float64], Activities] | None = None
        self._states: list[ProbeState] = []

    def propagate(
        self,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        variables: NDArray[np.int64],
        values: NDArray[np.float64],
        rounding: Rounding,
    ) -> NDArray[np.bool_]:
        """Contradictions among assignments, (probes,), from bounds, (variables,), that must not be changed afterwards.

        Raises
        ------
        TimeLimitError : at the deadline.
        """
        if self._root is None or self._root[0] is not lower or self._root[1] is not upper:
            self._root = lower, upper, activities_of(self._rows, lower, upper, self._coefficients)
            self._states = []
        rows, exact = self._rows, self._root[2]
        count = len(variables)
        probes = Probes(variables, values, np.zeros(count, dtype=np.uint8))
        stop = current_flag()
        part = max(1, -(-count // (tuning().parts_a_worker * max(1, thread_count()))))

        def work(first: int, last: int) -> None:
            try:
                state = self._states.pop()
            except IndexError:  # another thread has the last one
                state = state_of(exact, lower, upper)
            most = STEPS * len(rows.row_lower)
            propagate_probes(rows, exact, state, lower, upper, probes, first, last, rounding, most, stop)
            self._states.append(state)

        run_all(work, [(first, min(first + part, count)) for first in range(0, count, part)])
        if stop[0] != 0:
            check_deadline()
        failed: NDArray[np.bool_] = probes.failed.view(np.bool_)
        return failed
