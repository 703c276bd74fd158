"""Propagation of any model that a file may hold, probing, and the reduced problem.

Probing propagates single assignments: a value is removed where that ends in a contradiction.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats import Model, as_problem
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.dcop import Dcop
from oocbe.model.linear_system import INFINITE, LinearSystem, Numbers
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.propagation_result import PropagationResult
from oocbe.model.settings.option_values import parse_backend, parse_integer, parse_number
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.bounds import FIXPOINT, INFEASIBLE, INTERRUPTED, LIMIT, PROGRESS, ROUNDS, propagate_bounds
from oocbe.propagation.domains import reduced
from oocbe.propagation.fixpoint import Fixpoint, Network
from oocbe.propagation.linear_probing import ProbedBounds, probe_bounds
from oocbe.runtime.deadline import unlimited


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

    Parameters
    ----------
    rounds : rounds at most, at least 0. probing : whether to try each value of each variable afterwards. Of a system,
        these are integers that have two values left (:func:`~oocbe.propagation.linear_probing.probe_bounds`); where all
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
        if found.reduced is None:
            return _infeasible(model)
        return as_problem(found.reduced)


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
