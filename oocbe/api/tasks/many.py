"""Many problems side by side, each solved as :func:`oocbe.solve` does, by a process that has a share of the machine
(:mod:`oocbe.api.tasks.solving_processes`), or by an executor of the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from oocbe.api.facade import read_finite, settings_from, solve
from oocbe.api.tasks import solving_processes
from oocbe.api.tasks.solving_processes import SolvingProcesses
from oocbe.errors import EXIT_INTERRUPTED, EXIT_RESOURCES, UsageError
from oocbe.formats.files import RECORDS, folder_description
from oocbe.formats.registry import is_problem_file
from oocbe.model.model_checks import as_integer
from oocbe.model.results.failure import Failure, failure_of
from oocbe.model.results.result import Result
from oocbe.model.run_verb import Interrupted, read_and_work
from oocbe.model.settings.option_types import OwnValues
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.memory import MemoryLimit

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from oocbe.model.problem import Problem


@dataclass(frozen=True)
class Outcome:
    """The outcome of one of many problems.

    Attributes
    ----------
    number : position of the problem in the input, from 0. problem : its path as given, or its name.
    result : the answer, or None. failure : reason for no answer; None if there is one.
    """

    number: int
    problem: str
    result: Result | None = None
    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of ``oocbe solve`` for this problem."""
        if self.result is not None:
            return self.result.exit_code
        assert self.failure is not None
        return self.failure.exit_code


@dataclass(frozen=True)
class _Task:
    """A problem to solve, with its share of the machine, and its position in the input."""

    number: int
    problem: Problem | str | Path
    format: str | None
    options: SolveOptions

    @property
    def name(self) -> str:
        return str(self.problem) if isinstance(self.problem, Path) else str(getattr(self.problem, "name", self.problem))


def problem_files(given: Sequence[Path], format: str | None) -> list[Path]:
    """Files, and those of folders by suffix (all with ``format``), by name; UsageError: a folder without any."""
    found = []
    for path in given:
        own = [path]
        if path.is_dir():
            if any((path / record).exists() for record in RECORDS):
                raise UsageError(f"{path}: cannot be read: {folder_description(path)}")
            own = sorted(p for p in path.iterdir() if p.is_file() and (format is not None or is_problem_file(p)))
            if not own:
                raise UsageError(f"{path}: no file in this folder has the suffix of a problem; name the files")
        found += own
    return found


def solve_many(
    problems: str | Path | Iterable[Problem | str | Path],
    options: SolveOptions | None = None,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    format: str | None = None,
    **overrides: Unpack[OwnValues],
) -> Generator[Outcome, None, None]:
    """Solve problems, or the files that paths name, in parallel; yields each outcome as soon as it is available.

    An error of one problem is its outcome, and does not stop others. On Ctrl-C during the wait for an outcome, running
    solves wind down, and their partial results are yielded before KeyboardInterrupt is raised.

    Parameters
    ----------
    problems : each a problem or a path that :func:`oocbe.read` accepts; or a folder, for the files in it that have the
        suffix of a problem.
    options : settings of each; None takes defaults and ``OOCBE_`` environment variables. ``memory`` and ``max_disk``
        (and ``device_memory``, if given) are limits of all together, divided evenly. The time limit is that of each. In
        ``workdir`` each problem has a run directory of its own, named after it, from which ``resume`` continues.
    jobs : problems at a time; None: one per core, or as many as the executor has workers.
    executor : runs the solves, such as Dask's ``Client.get_executor()``, and is not shut down; None: processes that
        are started here and ended with the iterator.
    format : of the files, if their suffixes do not identify it.
    overrides : single options by name.

    Raises
    ------
    UsageError : an invalid option, workers to share one problem, or fewer jobs than one. Errors of a problem are in its
        outcome. KeyboardInterrupt : Ctrl-C was pressed; problems that had not begun have no outcome.
    """
    if isinstance(problems, str | Path) and Path(problems).is_dir():
        problems = problem_files([Path(problems)], format)
    if isinstance(problems, str | Path) or not isinstance(problems, Iterable):
        raise UsageError(f"solve_many takes several problems, such as a list or a folder, not {problems!r}; see solve")
    settings, given = settings_from(options, overrides), list(problems)
    if settings.has_workers:
        raise UsageError(
            "workers and cluster share out one problem; of many, one process solves each: give jobs, or an executor"
        )
    if jobs is not None and as_integer("jobs", jobs) < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    wanted = jobs or getattr(executor, "_max_workers", None) or _processors()
    if format is not None:
        from oocbe.formats.registry import format_of

        format_of("", format)
    if not hasattr(executor, "submit") and executor is not None:
        raise UsageError(f"executor: {executor!r:.100}: give a concurrent.futures.Executor")
    count = max(1, min(wanted, len(given)))
    shared = _shared(settings, count)
    tasks = [
        _Task(number, problem, format, replace(shared, workdir=folder))
        for number, (problem, folder) in enumerate(zip(given, _run_directories(settings.workdir, given), strict=True))
    ]
    return _by_processes(tasks, count) if executor is None else _by_executor(tasks, executor)


def _processors() -> int:
    from oocbe.kernels.cpu.threads import thread_count  # which loads Numba

    return thread_count()


def _shared(options: SolveOptions, count: int) -> SolveOptions:
    """The options with the limits of each of ``count`` parallel solves."""
    if count == 1:
        return options

    def part(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // count)

    memory = part(options.memory_limit)
    return replace(options, memory=memory, max_disk=part(options.max_disk), device_memory=part(options.device_memory))


def _run_directories(parent: Path | None, problems: Sequence[Problem | str | Path]) -> list[Path | None]:
    """A run directory for each problem, always the same for the same problems; None if there are none.

    The names consist of the file's name and a few digits of its path's digest, as names may repeat across folders.
    """
    if parent is None:
        return [None] * len(problems)
    taken: set[str] = set()
    folders: list[Path | None] = []
    for problem in problems:
        if isinstance(problem, str | Path):
            path = Path(problem)
            digits = blake2b(os.fsencode(path.absolute()), digest_size=4).hexdigest()
            name = f"{path.name}-{digits}"
        else:
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in problem.name) or "problem"
        found, again = name, 1
        while found in taken:
            again += 1
            found = f"{name}-{again}"
        taken.add(found)
        folders.append(parent / found)
    return folders


def solved(task: _Task) -> Outcome:
    """Solve a problem in a process of the executor."""
    try:
        return Outcome(task.number, task.name, _result(task))
    except Interrupted as error:
        assert isinstance(error.result, Result)
        return Outcome(task.number, task.name, error.result)
    except KeyboardInterrupt:
        return Outcome(task.number, task.name, failure=Failure("KeyboardInterrupt", "interrupted", EXIT_INTERRUPTED))
    except Exception as error:
        return Outcome(task.number, task.name, failure=failure_of(error))


def serve(connection: Connection) -> None:
    """Solve the problems that another process sends (:mod:`oocbe.api.tasks.solving_processes`)."""
    solving_processes.serve(connection, solved)


def _result(task: _Task) -> Result:
    folder = task.options.workdir
    if folder is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
    if task.format is None or not isinstance(task.problem, str | Path):
        return solve(task.problem, task.options)
    path, format, options = task.problem, task.format, task.options
    with MemoryLimit(options.memory_limit):
        return read_and_work(path, lambda p: read_finite(p, format), lambda p: solve(p, options), options.time_limit)[1]


def _by_processes(tasks: Sequence[_Task], count: int) -> Generator[Outcome, None, None]:
    threads = max(1, _processors() // count)
    processes: SolvingProcesses[_Task, Outcome] = SolvingProcesses(
        threads, _killed, lambda task, failure: Outcome(task.number, task.name, failure=failure)
    )
    with processes:
        yield from processes.answers(tasks, count)


def _by_executor(tasks: Sequence[_Task], executor: Executor) -> Generator[Outcome, None, None]:
    """Outcomes as they complete. Tasks that a broken executor left are solved here at the end."""
    waiting: dict[Future[Outcome], _Task] = {}
    left: list[_Task] = []
    try:
        for place, task in enumerate(tasks):
            try:
                waiting[executor.submit(solved, task)] = task
            except BrokenExecutor:
                left += tasks[place:]
                break
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda f: waiting[f].number):
                task = waiting.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, BrokenExecutor):
                    left.append(task)
                elif isinstance(error, Exception):
                    yield Outcome(task.number, task.name, failure=failure_of(error))
                else:
                    raise error
        yield from map(_killed, sorted(left, key=lambda task: task.number))
    finally:
        for future in waiting:
            future.cancel()


def _killed(task: _Task) -> Outcome:
    """The outcome of a problem whose process ended before its solve."""
    why = (
        f"{task.name}: the process that solved it was ended by the system; where that was for memory, give less "
        "--memory, or solve fewer at a time"
    )
    return Outcome(task.number, task.name, failure=Failure("ResourceError", why, EXIT_RESOURCES))
