"""Propagation of any model that a file may hold, probing, and the reduced problem.

Probing propagates single assignments: a value is removed where that ends in a contradiction. In a linear system both
values of each two-valued variable are propagated, thousands in parallel. Where one leads to a contradiction, the
variable is fixed to the other and bounds are propagated again, to a fixpoint.
The result does not depend on the order of the probes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import TimeLimitError, UnsupportedError
from oocbe.formats import Model, as_problem
from oocbe.kernels import backend_for
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.dcop import Dcop
from oocbe.model.linear_system import INFINITE, LinearSystem, Numbers
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.propagation_result import PropagationResult
from oocbe.model.settings.option_values import parse_backend, parse_integer, parse_number
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.bounds import (
    FIXPOINT,
    INFEASIBLE,
    INTERRUPTED,
    LIMIT,
    PROGRESS,
    ROUNDS,
    Bounds,
    how_time_ended,
    linear_rows_of,
    propagate_bounds,
)
from oocbe.propagation.domains import reduced
from oocbe.propagation.fixpoint import Fixpoint, Network
from oocbe.propagation.kernels.cpu.linear_rows import (
    Activities,
    LinearRows,
    Probes,
    ProbeState,
    Rounding,
    activities_of,
    coefficients_of_uses,
    propagate_probes,
    state_of,
)
from oocbe.runtime.deadline import check_deadline, current_flag, unlimited

if TYPE_CHECKING:
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceProbes

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
    system: LinearSystem, bounds: Bounds, *, progress: float = PROGRESS, backend: str | None = "cpu"
) -> ProbedBounds:
    """Probe both values of all two-valued variables, from a fixpoint on, until none is a contradiction.

    The system's numbers are doubles. The bounds reached at the deadline are valid.

    backend : where probes are propagated: ``cpu``, ``cuda``, ``auto`` or None for the value of ``OOCBE_BACKEND``. A
        device propagates rows in another order, which changes bounds of reals only, by less than counts as progress.

    Raises UsageError: there is no CUDA device where one is required; ResourceError: its memory ran out.
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
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceProbes

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

        Raises TimeLimitError: at the deadline.
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


def propagate(
    model: Model,
    *,
    rounds: int = ROUNDS,
    progress: float = PROGRESS,
    tolerance: float | None = None,
    probing: bool = False,
    backend: str | None = None,
) -> PropagationResult:
    """Remove infeasible values, to a fixpoint.

    A linear system's bounds are tightened (:func:`~oocbe.propagation.bounds.propagate_bounds`, also for progress and
    tolerance); a problem's values without support in some constraint go (:mod:`oocbe.propagation.fixpoint`).

    rounds : rounds at most, at least 0. probing : whether to try each value of each variable afterwards. Of a system,
        these are integers that have two values left (:func:`probe_bounds`); where all
        are integers with bounds, and some have more values, it is taken as a problem, and each of them is tried.
    backend : of a system's rows and of large tables: ``cpu``, ``cuda``, ``auto`` or None for what ``OOCBE_BACKEND``
        says.
    """
    begin = time.perf_counter()
    rounds, backend = parse_integer("rounds", rounds), None if backend is None else parse_backend("backend", backend)
    progress = parse_number("progress", progress, least=0)
    tolerance = None if tolerance is None else parse_number("tolerance", tolerance, least=0)
    if isinstance(model, Dcop):
        model = model.problem  # ownership does not affect values
    if isinstance(model, LinearSystem) and not (probing and _is_of_values(model)):
        result = _of_system(model, rounds, progress, tolerance, backend, probing)
    else:
        result = _of_problem(finite(model) if isinstance(model, LinearSystem) else model, rounds, probing, backend)
    return replace(result, seconds=time.perf_counter() - begin)


def _is_of_values(system: LinearSystem) -> bool:
    """Whether a system's variables are integers with bounds, of which probing is to try more than two each."""
    if system.is_exact:
        return True
    is_finite = np.isfinite(system.lower) & np.isfinite(system.upper)
    if not (is_finite & system.integral).all():
        return False
    return bool((np.floor(system.upper.astype(np.float64)) > np.ceil(system.lower.astype(np.float64)) + 1).any())


def _of_system(
    system: LinearSystem, rounds: int, progress: float, tolerance: float | None, backend: str | None, probing: bool
) -> PropagationResult:
    found = propagate_bounds(system, rounds=rounds, progress=progress, tolerance=tolerance, backend=backend)
    probed = ProbedBounds(found, 0, 0)
    if probing and found.status == FIXPOINT and found.lower.dtype != object:
        probed = probe_bounds(system, found, progress=progress, backend=backend)
    found, smaller = probed.bounds, None
    if found.status != INFEASIBLE:
        with unlimited():  # also after the deadline: the bounds reached are valid
            smaller = with_bounds(system, found.lower, found.upper)
    return PropagationResult(
        status=found.status,
        reason=found.reason,
        problem=system.name,
        rounds=found.rounds,
        removed=int(np.count_nonzero(found.lower != system.lower) + np.count_nonzero(found.upper != system.upper)),
        constraint=None if found.row is None else system.row_name(found.row),
        variable=None if found.variable is None else system.names[found.variable],
        reduced=smaller,
        probes=probed.probes,
        failures=probed.failures,
    )


def with_bounds(system: LinearSystem, lower: Numbers, upper: Numbers) -> LinearSystem:
    """A system with other bounds, rounded outwards where these are integers that its numbers do not have."""
    if not system.is_exact:
        # Of a system without a solution they may go on for ever: to integers that are no doubles, and to bounds that
        # would be infinite the wrong way.
        most = float(np.nextafter(INFINITE, 0))
        lower = np.minimum(np.maximum(lower, -INFINITE), most)
        upper = np.maximum(np.minimum(upper, INFINITE), -most)
        rounded = [bounds.astype(np.float64) for bounds in (lower, upper)]
        lower = np.where(rounded[0] > lower, np.nextafter(rounded[0], -np.inf), rounded[0])
        upper = np.where(rounded[1] < upper, np.nextafter(rounded[1], np.inf), rounded[1])
    return replace(system, lower=lower, upper=upper)


def _of_problem(model: Problem | CompactProblem, rounds: int, probing: bool, backend: str | None) -> PropagationResult:
    compact = model if isinstance(model, CompactProblem) else CompactProblem(model)
    network = Network(compact, tuning().work_bytes if probing else 0, backend=backend)
    found = network.propagate(rounds)
    probed = probe(network, found) if probing else Probed(found)
    smaller: Problem | CompactProblem | None = None
    if found.status != INFEASIBLE:
        with unlimited():
            smaller = reduced(compact, found.domains)
        if isinstance(model, Problem):
            smaller = smaller.problem
    return PropagationResult(
        status=found.status,
        reason=found.reason,
        problem=compact.problem.name,
        rounds=tuple(found.rounds),
        removed=int(sum(compact.problem.sizes) - found.domains.counts.sum()),
        constraint=found.constraint,
        variable=None if found.variable is None else compact.problem.variables[found.variable].name,
        reduced=smaller,
        left_out=compact.left_out,
        probes=probed.probes,
        failures=probed.failures,
    )


def finite(model: Model) -> Problem:
    """The problem with finite domains that a model is, or that propagation leaves of it; UnsupportedError otherwise."""
    try:
        return as_problem(model)
    except UnsupportedError:
        if isinstance(model, Problem | Dcop) or (isinstance(model, CompactProblem) and model.left_out):
            raise
        found = propagate(model)
        return _infeasible(model) if found.reduced is None else as_problem(found.reduced)


def _infeasible(model: LinearSystem | CompactProblem) -> Problem:
    """A problem over variables of the same names that has no solution."""
    names = model.names if isinstance(model, LinearSystem) else tuple(v.name for v in model.problem.variables)
    nothing = Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True)
    of = model if isinstance(model, LinearSystem) else model.problem
    variables = tuple(Variable(n, 1) for n in names)
    return replace(
        Problem(variables, constraints=(nothing,), name=of.name),
        notes=of.notes,
        question=of.question,
        counting=of.counting,
    )


@dataclass(eq=False)
class Probed:
    """Outcome of probing: the fixpoint reached, assignments tried, and how many of them were contradictions."""

    fixpoint: Fixpoint
    probes: int = 0
    failures: int = 0


def probe(network: Network, found: Fixpoint) -> Probed:
    """Probe all values from a fixpoint on, repeatedly, until none is a contradiction.

    Each failure is propagated at once, and its removals are added to ``found``'s rounds. The domains reached at the
    deadline are valid.
    """
    probed = Probed(found)
    domains = network.domains
    is_changed = True
    while is_changed and found.status == FIXPOINT:
        is_changed = False
        for v in range(len(network.problem.variables)):
            for value in domains.values(v).tolist():
                if domains.counts[v] == 1 or not domains.flags(v)[value]:
                    continue
                tried = network.tried(v, value)
                probed.probes += 1
                if tried.status in (LIMIT, INTERRUPTED):
                    found.status, found.reason = tried.status, tried.reason
                if tried.status == INFEASIBLE:
                    probed.failures += 1
                    is_changed = True
                    network.remove(v, value, found)
                if found.status != FIXPOINT:
                    return probed
    return probed
