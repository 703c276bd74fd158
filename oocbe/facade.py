"""The library's verbs on problems: the same steps that the command line takes, for a program or a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oocbe.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.elimination.plan import Plan
    from oocbe.observer import Observer
    from oocbe.problem import Problem
    from oocbe.result import Result
    from oocbe.verification import Verdict


def solve(
    problem: Problem | str | Path,
    options: SolveOptions | None = None,
    *,
    observer: Observer | None = None,
    **overrides: Any,
) -> Result:
    """Solve a problem, or the file that a path names, exactly.

    Parameters
    ----------
    problem : the problem, or a path that :func:`oocbe.read` accepts.
    options : settings; None takes defaults and ``OOCBE_`` environment variables.
    observer : receives the solve's events, or None.
    overrides : single options by name, such as ``order="min-fill"`` or ``memory="2GiB"``.

    Returns
    -------
    Result : status, value, assignment and what it cost.

    Raises
    ------
    UsageError : an unknown or unusable option. FormatError, UnsupportedError : the file. ResourceError : memory or
        disk ran out. ValueRangeError : values that no supported dtype can sum exactly.
    """
    settings = settings_from(options, overrides)
    if isinstance(problem, str | Path):
        return solve_timed(lambda: load_problem(problem), settings, observer)
    from oocbe.elimination.solve import solve as run

    return run(problem, settings, observer)


def solve_timed(load: Callable[[], Problem], options: SolveOptions, observer: Observer | None = None) -> Result:
    """Load a problem and solve it, with the time that loading took among the result's seconds (``read``)."""
    start = time.perf_counter()
    problem = load()
    reading = time.perf_counter() - start
    from oocbe.elimination.solve import solve as run  # after reading: a malformed file need not wait for Numba

    result = run(problem, options, observer)
    seconds = {**result.seconds, "read": reading, "total": reading + result.seconds.get("total", 0.0)}
    return replace(result, seconds={"read": seconds.pop("read"), **seconds})


def plan(problem: Problem | str | Path, options: SolveOptions | None = None, **overrides: Any) -> Plan:
    """Choose an order and predict each bucket's rows and bytes without computing any; arguments as for ``solve``."""
    from oocbe.elimination.plan import make_plan

    return make_plan(load_problem(problem), settings_from(options, overrides))


def verify(problem: Problem | str | Path, solution: str | Path) -> Verdict:
    """Judge the assignment in a solution file against a problem; see :mod:`oocbe.verification`."""
    from oocbe.verification import read_solution, verify_solution

    return verify_solution(load_problem(problem), read_solution(solution))


def settings_from(options: SolveOptions | None, overrides: dict[str, Any]) -> SolveOptions:
    """The options given, or those of the environment, with single ones overridden."""
    return (SolveOptions.from_environment() if options is None else options).with_overrides(**overrides)


def load_problem(problem: Problem | str | Path) -> Problem:
    """The problem, read where a path is given."""
    if isinstance(problem, str | Path):
        from oocbe.io import read

        return read(problem)
    return problem
