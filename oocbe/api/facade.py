"""The library's verbs on problems, with the same steps as the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from oocbe.elimination.observer import Observer, check_observer
from oocbe.errors import UsageError
from oocbe.model.run_verb import run_verb
from oocbe.model.settings.option_types import OptionValues, OwnValues
from oocbe.model.settings.option_values import parse_boolean, parse_seconds, plain
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, unlimited
from oocbe.runtime.memory import MemoryLimit

if TYPE_CHECKING:
    from distributed import Client

    from oocbe.elimination.plan.plan import Plan
    from oocbe.formats import Model
    from oocbe.formats.solutions import Hint, Verdict
    from oocbe.formats.uai import Evidence
    from oocbe.model.problem import Problem
    from oocbe.model.results.bound_result import BoundResult
    from oocbe.model.results.propagation_result import PropagationResult
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult


def solve(
    problem: Problem | str | Path,
    options: SolveOptions | None = None,
    *,
    evidence: Evidence | None = None,
    observer: Observer | None = None,
    client: Client | None = None,
    proof: str | Path | None = None,
    opb: str | Path | None = None,
    hint: Hint | None = None,
    **overrides: Unpack[OptionValues],
) -> Result:
    """Solve a problem, or the file that a path names, exactly.

    Parameters
    ----------
    problem : the problem, or a path that :func:`oocbe.read` accepts.
    options : settings; None takes defaults and ``OOCBE_`` environment variables.
    evidence : variables that are fixed, name to value label or position (or a ``.evid`` file, or ``"rain=yes"``).
    observer : receives the solve's events, or None.
    client : of a Dask cluster whose workers share large buckets; it stays open.
    proof, opb : files to be written: a proof of the result in the format of VeriPB, and the formula that it refers to;
        a note of the result states what is proven.
    hint : an assignment that may be good, of some variables or all: a file that ``verify`` reads, a result, or
        variable name to value label or position. The best assignment with its values is sought first, for a quarter
        of the time limit and 10 seconds at most, and is the first incumbent; the optimum does not depend on it.
    overrides : single options by name, such as ``order="min-fill"`` or ``memory="2GiB"``.

    Returns
    -------
    Result : status, value, assignment and cost.

    Raises
    ------
    UsageError : an unknown or unusable option. FormatError, UnsupportedError : the file. LimitError : the time limit
        passed without any result, for lack of bounds. ResourceError : memory or disk ran out. ClusterError : the
        requested workers failed. ValueRangeError : values that no supported dtype can sum exactly. Interrupted :
        Ctrl-C was pressed; its ``result`` has the best bound and assignment so far. The other verbs raise it, too.
    """
    settings, begin = settings_from(options, overrides, observer), time.perf_counter()

    def work(loaded: Problem) -> Result:
        run = solver_from(hint)  # after reading: a malformed file need not wait for Numba
        if proof is None and opb is None:
            with use_workers_of(settings, client):
                return run(loaded, settings, observer)
        from oocbe.certificates.proofs import ProofTask

        made = ProofTask(loaded, settings, proof, opb)
        with use_workers_of(settings, client):
            result = run(loaded, made.options, observer)
        left = None if settings.time_limit is None else begin + settings.time_limit - time.perf_counter()
        with unlimited():  # the answer at a limit gets its proof, too
            result, missing = made.write(result, left)
        return replace(result, notes=(*result.notes, missing)) if missing else result

    return run_verb(problem, partial(load_problem, evidence=evidence), work, settings.time_limit, settings.memory_limit)


def solver_from(hint: Hint | None) -> Callable[[Problem, SolveOptions, Observer | None], Result]:
    """The solver of problems, or the one that begins with a hint."""
    if hint is not None:
        from oocbe.api.solving.hints import solve_from

        return partial(solve_from, hint)
    from oocbe.api.solving.solve import solve

    return solve


def use_workers_of(options: SolveOptions, client: Client | None = None) -> AbstractContextManager[None]:
    """Within the block, the requested workers share large buckets (:mod:`oocbe.execution.cluster.choice`)."""
    if not options.has_workers and client is None:
        return nullcontext()
    from oocbe.execution.cluster.choice import use_cluster

    return use_cluster(options.workers, options.cluster, options.memory, client)


def plan(
    problem: Problem | str | Path,
    options: SolveOptions | None = None,
    *,
    evidence: Evidence | None = None,
    task: str = "optimum",
    temperature: float = 1.0,
    **overrides: Unpack[OptionValues],
) -> Plan:
    """Choose an order and predict each bucket's rows and bytes without computing any; arguments as for ``solve``.

    Parameters
    ----------
    task : ``optimum``, or a task of :func:`oocbe.api.tasks.verbs.run_task`. temperature : of ``logz``, ``marginals``.

    Returns
    -------
    Plan : ``width``, ``order`` and ``buckets``, each with its variable and the prediction for its message; ``plot()``
        draws it.
    """
    from oocbe.api.solving.outlook import plan_task

    settings = settings_from(options, overrides)
    with MemoryLimit(settings.memory_limit):
        with Deadline(settings.time_limit):
            loaded = load_problem(problem, evidence)
        return plan_task(loaded, task, settings, temperature)


def bound(
    problem: Problem | str | Path,
    z: int | str | Sequence[int | str] = "auto",
    options: SolveOptions | None = None,
    *,
    partition: str = "auto",
    cost_shifting: bool = False,
    evidence: Evidence | None = None,
    observer: Observer | None = None,
    **overrides: Unpack[OptionValues],
) -> BoundResult:
    """Bound a problem's optimum from both sides by mini-bucket elimination.

    Parameters
    ----------
    z : maximum variables of a mini-bucket, including the eliminated one, or several such numbers, of which redundant
        ones are skipped; ``auto`` chooses by the memory limit.
    partition : of buckets: ``scope``, ``content`` (by the loss), or ``auto``: content where costs are shifted in dense
        tables, else scope.
    cost_shifting : whether costs are shifted between mini-buckets, for a tighter bound at the cost of time.
    problem, options, evidence, observer, overrides : as for :func:`oocbe.solve`.

    Returns
    -------
    BoundResult : for each z a bound and, if one was found, an assignment with its value.

    Raises
    ------
    UsageError : an unknown partition, a z below 1, or an option without effect here: ``ub``, ``resume``,
        ``workdir``, ``piece_rows`` or ``streams``.
    UnsupportedError : a semiring that does not select, or negative factors. ResourceError : no z fits the memory limit.
    LimitError : the time limit passed before the first z was done. ValueRangeError : sums beyond 64-bit integers.
    """
    settings, cost_shifting = settings_from(options, overrides, observer), parse_boolean("cost_shifting", cost_shifting)
    wanted = list(z) if isinstance(z := plain(z), Iterable) and not isinstance(z, str) else [z]

    def work(loaded: Problem) -> BoundResult:
        from oocbe.bounds.mini_buckets.mini_buckets_bound import bound as run

        return run(loaded, settings, wanted, partition, cost_shifting, observer)

    return run_verb(problem, partial(load_problem, evidence=evidence), work, settings.time_limit, settings.memory_limit)


def verify(
    problem: Problem | str | Path, solution: str | Path | Result | TaskResult | Mapping[str, str | int]
) -> Verdict:
    """Verify an assignment against a problem, independently of the solver.

    Parameters
    ----------
    problem : the problem, or a path that :func:`oocbe.read` accepts.
    solution : a solution file, a result that has an assignment, or variable name to value.

    Raises
    ------
    FormatError : a file that is no solution of this problem. UsageError : a name or value that the problem does not
        have, a variable without a value, or a result without an assignment.
    """
    from oocbe.formats.solutions import judge

    return judge(load_problem(problem), solution)


def propagate(
    problem: Model | str | Path,
    *,
    rounds: int = 1000,
    progress: float = 1e-9,
    tolerance: float | None = None,
    probe: bool = False,
    time_limit: float | None = None,
    backend: str | None = None,
) -> PropagationResult:
    """Propagate to a fixpoint: remove values, or tighten bounds, that no solution attains.

    Parameters
    ----------
    problem : a problem, a linear system, or a path.
    rounds : maximum number of rounds. progress : minimum relative improvement of a bound of a real variable.
    tolerance : of linear systems: None rounds outwards, so that no solution is lost; a number (1e-9) as in solvers.
    probe : whether to probe each value of each variable, too, which needs finite domains.
    time_limit : seconds, including reading; the result at that time is valid.
    backend : of large systems and tables: ``cpu``, ``cuda``, ``auto`` or None for the value of ``OOCBE_BACKEND``.

    Returns
    -------
    PropagationResult : status, removed values or bounds, and the reduced problem.

    Raises
    ------
    UsageError : invalid limits, or no CUDA device if one is requested.
    FormatError, UnsupportedError : the file.
    """

    probe = parse_boolean("probe", probe)

    def read(given: Model | str | Path) -> Model:
        from oocbe.formats.registry import model_of, read_model

        return read_model(given) if isinstance(given, str | Path) else model_of(given)

    def work(model: Model) -> PropagationResult:
        from oocbe.propagation.propagate import propagate as run

        return run(model, rounds=rounds, progress=progress, tolerance=tolerance, probing=probe, backend=backend)

    return run_verb(problem, read, work, None if time_limit is None else parse_seconds("time_limit", time_limit))


def settings_from(
    options: SolveOptions | None, overrides: OptionValues | OwnValues, observer: Observer | None = None
) -> SolveOptions:
    """The given options, or those of the environment, with single ones overridden; UsageError also: not an observer."""
    check_observer(observer)
    if not isinstance(options, SolveOptions | None):
        raise UsageError(f"options: {options!r:.100}: give each by its name, such as memory='2GiB', or SolveOptions")
    return (SolveOptions.from_environment() if options is None else options).replaced(overrides)


def load_problem(problem: object, evidence: Evidence | None = None) -> Problem:
    """The problem, read if a path is given, and propagated if its domains are infinite otherwise.

    Raises UsageError: it is neither a problem, a path nor a network, or evidence that does not match the problem.
    Errors of :func:`oocbe.read`.
    """
    from oocbe.model.problem import Problem

    if isinstance(problem, str | Path):
        return read_finite(problem, None, evidence)
    if not isinstance(problem, Problem):
        from oocbe.formats.networks import problem_of  # loaded late: problems do not need it

        problem = problem_of(problem)
    return finite_problem(problem, "", evidence)


def read_finite(path: str | Path, format: str | None = None, evidence: Evidence | None = None) -> Problem:
    """The problem in a file, as :func:`oocbe.read`; infinite domains are reduced by propagation."""
    from oocbe.formats import read_model

    return finite_problem(read_model(path, format), path, evidence)


def finite_problem(model: Model, path: str | Path, evidence: Evidence | None = None) -> Problem:
    """The problem of a model that was read from a path; infinite domains are reduced by propagation."""
    from oocbe.model.problem import Problem

    if not isinstance(model, Problem):
        from oocbe.formats import error_context
        from oocbe.model.dcop import Dcop
        from oocbe.propagation.propagate import finite  # which loads Numba

        with error_context(path):
            model = model.problem if isinstance(model, Dcop) else finite(model)
    if evidence is None:
        return model
    from oocbe.formats.uai import evidence_of

    return model.with_values(evidence_of(evidence, model))
