"""The library's verbs for tasks: queries about a problem other than its optimum.

Each takes a problem, or the path of one, and the options of :func:`oocbe.solve`. All except the most probable
explanation use all feasible rows, without dominance. The problem's semiring defines the meaning of its values;
``semiring`` overrides it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from oocbe.api.facade import load_problem, settings_from, use_workers_of
from oocbe.api.tasks.questions import check_semiring, check_task
from oocbe.elimination.observer import Observer
from oocbe.errors import UsageError, ValueRangeError
from oocbe.execution.cluster.workers import read_by_workers, read_since
from oocbe.model.model_checks import as_integer
from oocbe.model.problem import Problem
from oocbe.model.run_verb import run_verb
from oocbe.model.settings.option_types import OptionValues
from oocbe.model.settings.options import RESUMED, SolveOptions
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.interruption import listening

if TYPE_CHECKING:
    from distributed import Client

    from oocbe.formats.uai import Evidence
    from oocbe.model.results.task_result import TaskResult


class TaskValues(OptionValues, total=False):
    """Keyword arguments of a task: options, evidence and observer; of a count, the files of its proof."""

    evidence: Evidence | None
    observer: Observer | None
    client: Client | None
    proof: str | Path | None
    opb: str | Path | None


def run_task(
    task: str,
    problem: Problem | str | Path,
    options: SolveOptions | None = None,
    *,
    k: int = 10,
    temperature: float = 1.0,
    evidence: Evidence | None = None,
    observer: Observer | None = None,
    client: Client | None = None,
    proof: str | Path | None = None,
    opb: str | Path | None = None,
    **overrides: Unpack[OptionValues],
) -> TaskResult:
    """Run a task on a problem with the tables of bucket elimination.

    task : one of :data:`TASKS`. problem : the problem, or a path that :func:`oocbe.read` accepts.
    options, overrides, evidence, observer, client : as for :func:`oocbe.solve`.
    k : number of assignments of ``kbest``, at least 1.
    temperature : of ``logz`` and ``marginals``, above 0; ``math.inf`` gives all feasible assignments equal weight.
    proof, opb : of ``count``, files to be written as for :func:`oocbe.solve`; a note states what is proven, or why not.
    Raises UsageError: an unknown task, or a k or temperature out of range; UnsupportedError: a constraint that tables
    cannot represent, or a semiring without meaning for the task; FloatRangeError: products of floats leave the range of
    float64, in ``count-optimal`` and ``kbest``; ``mpe``, ``logz`` and ``marginals`` add logarithms instead;
    ResourceError: memory or disk ran out; Interrupted: Ctrl-C was pressed; its ``result`` has the status
    ``interrupted``.
    """
    settings = settings_from(options, overrides, observer)

    def work(loaded: Problem) -> TaskResult:
        load_engine()
        with use_workers_of(settings, client):
            return answered(
                task, loaded, settings, k=k, temperature=temperature, observer=observer, proof=proof, opb=opb
            )

    return run_verb(problem, partial(load_problem, evidence=evidence), work, settings.time_limit, settings.memory_limit)


def answered(
    task: str,
    problem: Problem,
    settings: SolveOptions,
    *,
    k: int = 10,
    temperature: float = 1.0,
    observer: Observer | None = None,
    proof: str | Path | None = None,
    opb: str | Path | None = None,
    beside: Callable[[Any], AbstractContextManager[None]] = nullcontext,
) -> TaskResult:
    """The task's result; one with the status ``interrupted`` is returned like any other.

    beside : a context for the writing of ``proof`` or ``opb``, which may suppress its errors.
    """
    temperature = check_task(task, temperature)
    if as_integer("k", k) < 1:
        raise UsageError(f"k: {k} is not at least 1")
    from oocbe.api.tasks import count as counting
    from oocbe.api.tasks import k_best as best
    from oocbe.api.tasks import marginals as weights
    from oocbe.api.tasks.count import asks_weights, forbid_zero_weights, weighted_count
    from oocbe.api.tasks.result import answered_at_once, lifted, task_result
    from oocbe.elimination.buckets.resources import memory_warning
    from oocbe.elimination.preparation.temperature import INEXACT, at_temperature, check_rounding
    from oocbe.elimination.reformulation import Stack, reduce_arity
    from oocbe.propagation.propagated import presolved

    made = None
    if proof is not None or opb is not None:
        from oocbe.certificates.proofs import CountProof

        made = CountProof(task, problem, settings, proof, opb)
    is_weighted = asks_weights(task, problem, settings)
    watch, before = Stopwatch(), read_by_workers()
    whole = reduce_arity(problem.in_semiring(settings.semiring or problem.semiring))
    check_semiring(task, whole)
    if is_weighted:
        whole = forbid_zero_weights(whole)
    if settings.ub is not None:
        raise UsageError("ub: an upper bound belongs to the task optimum; kbest finds the best assignments without one")
    is_solve = task == "mpe"  # it warns and propagates itself, and can be resumed
    warnings = () if is_solve else (memory_warning(settings), why_from_the_start(task, settings))
    ways: dict[str, Callable[[], TaskResult]] = {
        "mpe": lambda: best.most_probable_explanation(loaded, settings, observer),
        "count": lambda: (
            weighted_count(stack, settings, observer) if is_weighted else counting.count(loaded, settings, observer)
        ),
        "count-optimal": lambda: counting.count_optimal(loaded, settings, observer),
        "kbest": lambda: best.k_best(loaded, settings, k, observer),
        "logz": lambda: weights.log_partition(loaded, settings, temperature, observer),
        "marginals": lambda: weights.marginals(loaded, settings, temperature, observer),
        "min-marginals": lambda: weights.min_marginals(loaded, settings, observer),
    }

    def checked(found: TaskResult) -> TaskResult:
        may_round = task == "marginals" and loaded.magnitude >= temperature * INEXACT
        if may_round and isinstance(found.value, float):
            check_rounding(at_temperature(loaded, temperature), found.value)
        return found

    with listening() as interruption:
        try:
            loaded, stack = whole, Stack(whole, keeps_counts=True)
            at_once = None
            with suppress(ValueRangeError):  # propagation may remove the values that all others are far from
                found = answered_at_once(task, whole, settings, temperature)
                at_once = None if found is None else checked(found)
            if at_once is None and not is_solve:
                stack = presolved(stack, settings)
                loaded = stack.problem
                at_once = answered_at_once(task, loaded, settings, temperature) if loaded.sizes != whole.sizes else None
            result = checked(lifted(at_once or ways[task](), stack))
        except BaseException as error:
            if not interruption.caused(error):
                raise
            used = temperature if task in ("logz", "marginals") else None
            why = (interruption.reason,)
            result = task_result(task, whole, status="interrupted", passes=0, notes=why, temperature=used)
        if made is not None:
            with beside(proof or opb):
                result = made.write_count(result)
    known = sum(result.seconds.values())
    total, compiled = watch.elapsed, watch.compiled
    seconds = {**result.seconds, "backward": max(0.0, total - known), "total": total}
    if compiled:
        seconds["compiling"] = compiled
    notes = (*result.notes, *filter(None, warnings), *(() if is_solve else whole.notes))
    result = replace(result, read_by_workers=read_since(before))
    return replace(result, seconds=seconds, notes=notes, evidence=whole.evidence)


def why_from_the_start(task: str, settings: SolveOptions) -> str:
    """The note if a requested run to resume does not exist; else empty."""
    if not settings.resume:
        return ""
    if task not in RESUMED:
        return f"resume: of the task {task} nothing is kept that a later run could go on from; it begins from the start"
    from oocbe.elimination.runs.run_directory import no_run_in

    return "" if settings.workdir is None else no_run_in(settings.workdir)


def load_engine() -> None:
    """Load the modules of tasks after reading, so that a malformed file is reported sooner."""
    import oocbe.api.tasks.count  # noqa: F401


def _asked(
    task: str, problem: Problem | str | Path, options: SolveOptions | None, overrides: TaskValues, **own: Any
) -> TaskResult:
    """The result of a verb; UsageError: an argument that only other verbs have."""
    if wrong := sorted({"k", "temperature"} & overrides.keys()):
        raise UsageError(f"{wrong[0]}: not of the task {task}; k is of k_best, temperature of log_partition, marginals")
    return run_task(task, problem, options, **own, **overrides)


def most_probable_explanation(
    problem: Problem | str | Path, options: SolveOptions | None = None, **overrides: Unpack[TaskValues]
) -> TaskResult:
    """The assignment with the greatest product of values, and its logarithm; see :mod:`oocbe.api.tasks.k_best`."""
    return _asked("mpe", problem, options, overrides)


def count(
    problem: Problem | str | Path, options: SolveOptions | None = None, **overrides: Unpack[TaskValues]
) -> TaskResult:
    """The exact number of feasible assignments, an integer of any size; see :func:`run_task`.

    Weights and projections of the file are observed: the value of a weighted count is a ``fractions.Fraction``, or a
    float with ``float_counts``.
    """
    return _asked("count", problem, options, overrides)


def count_optimal(
    problem: Problem | str | Path, options: SolveOptions | None = None, **overrides: Unpack[TaskValues]
) -> TaskResult:
    """The exact number of optimal assignments; see :func:`run_task`."""
    return _asked("count-optimal", problem, options, overrides)


def k_best(
    problem: Problem | str | Path, k: int = 10, options: SolveOptions | None = None, **overrides: Unpack[TaskValues]
) -> TaskResult:
    """The k best distinct assignments in order; see :func:`run_task`."""
    return _asked("kbest", problem, options, overrides, k=k)


def log_partition(
    problem: Problem | str | Path,
    temperature: float = 1.0,
    options: SolveOptions | None = None,
    **overrides: Unpack[TaskValues],
) -> TaskResult:
    """Natural logarithm of the partition function at a temperature; see :func:`run_task`."""
    return _asked("logz", problem, options, overrides, temperature=temperature)


def marginals(
    problem: Problem | str | Path,
    temperature: float = 1.0,
    options: SolveOptions | None = None,
    **overrides: Unpack[TaskValues],
) -> TaskResult:
    """Probability of each value of each variable at a temperature; see :func:`run_task`."""
    return _asked("marginals", problem, options, overrides, temperature=temperature)


def min_marginals(
    problem: Problem | str | Path, options: SolveOptions | None = None, **overrides: Unpack[TaskValues]
) -> TaskResult:
    """The best value of an assignment with each value of each variable; see :func:`run_task`."""
    return _asked("min-marginals", problem, options, overrides)
