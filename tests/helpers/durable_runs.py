"""Solves in a run directory that are killed at named points, and what they come to when resumed.

As a script it answers each line of standard input with a line, both JSON, until there are no more. A line is a list of
cases, each a list of fault texts, or an object of such ``faults`` and the ``settings`` of :func:`solve_in` that they
are for. A case has a run directory of its own; for each of its texts a child process is forked that solves there with
``resume`` until it is killed at that point, and at the end one more that is not killed. The line ``"passings"`` asks
how often an undisturbed run passes each point. Forking from a process in which everything is compiled already makes a
kill cost a tenth of a second.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from oocbe.api.solving import solve as solving
from oocbe.api.solving import strategies
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from oocbe.runtime import faults

EMBEDDED_BYTES = 150
"""Messages above this many bytes become tables in these runs: some do, some do not."""

WARM = (
    {"bounds": "none"},
    {"bounds": "constant"},
    {"tables": "complete", "embedded_bytes": 0, "order": "linear"},
)
"""Settings of runs that take every path of those that are killed."""

FIRST_CAP = 8
"""Row cap of the first round of the race: every order is given up at least once."""


def small_problem(count: int = 7, size: int = 3, seed: int = 0) -> Problem:
    """A wheel with a chord or two: messages of one to some dozen rows."""
    random = np.random.default_rng(seed)
    pairs = [(v, (v + 1) % count) for v in range(count)] + [(v, (v + 3) % count) for v in range(0, count, 2)]
    pairs = sorted({(min(p), max(p)) for p in pairs})
    return Problem(
        tuple(Variable(f"x{v}", size) for v in range(count)),
        tuple(Function.from_array(p, random.integers(0, 100, (size, size))) for p in pairs),
        tuple(Constraint(p, [random.integers(0, size, 2)]) for p in pairs),
        name="wheel",
    )


def options_for(folder: Path | None, resume: bool = True, **more: object) -> SolveOptions:
    settings = {
        "order_seconds": 0,
        "incumbent_seconds": 0.01,
        "chunk_rows": 5,
        "workdir": folder,
        "resume": resume and folder is not None,
        "dominance": False,
        "tables": "incomplete",  # row caps, and with them races that are published, are for these
        "backend": "cpu",  # a forked child cannot use the device that its parent has used
    }
    return SolveOptions.from_mapping(settings | more)


def solve_in(
    folder: Path | None,
    resume: bool = True,
    problem: Problem | None = None,
    embedded_bytes: int = EMBEDDED_BYTES,
    **more: object,
) -> dict:
    """Solve with small constants; value, assignment, rows, notes and a digest of every message's rows."""
    digests: list[str] = []
    backward = strategies.backward_pass

    def digesting(prepared, buckets, recomputation=None, deadline=None):
        for bucket in buckets:
            for message in (m for m in bucket.messages if not m.is_forgotten):
                table = message.table()
                content = table.keys.tobytes() + table.values.tobytes()
                digests.append(f"{message.scope} {message.rows} {hashlib.sha256(content).hexdigest()}")
        return backward(prepared, buckets, recomputation, deadline)

    strategies.backward_pass = digesting
    try:
        # Rows of complete tables are listed a few at a time.
        with tuned(chunk_share=0.0, small_bytes=embedded_bytes, many_rows=FIRST_CAP):
            result = solving.solve(problem or small_problem(), options_for(folder, resume, **more))
    finally:
        strategies.backward_pass = backward
    return {
        "value": result.value,
        "assignment": list(result.assignment),
        "rows": [result.total_rows, result.largest_message_rows],
        "tables": digests,
        "notes": list(result.notes),
    }


def in_child(folder: Path, fault: str | None, bounds: str = "none", **more: object) -> tuple[int, dict | None]:
    """Solve in a forked child that dies at a point: the status it ended with, and the outcome where it did not die."""

    def work() -> dict:
        faults.arm(fault)
        return solve_in(folder, bounds=bounds, **more)

    return forked(work)


def forked(work: Callable[[], dict]) -> tuple[int, dict | None]:
    """What a function returns in a child process, after the status that the child ended with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return status, json.loads(text) if text else None


class EveryPoint(str):
    """In place of the point at which a process dies: is none of the points that are passed, and counts them."""

    def __init__(self) -> None:
        self.passed = dict.fromkeys(faults.POINTS, 0)

    def __eq__(self, name: object) -> bool:
        self.passed[name] += 1
        return False

    __hash__ = str.__hash__


def count_passings() -> dict[str, int]:
    """How often an undisturbed run passes each point; what is known is published by solves with bounds only."""

    def work(bounds: str) -> dict:
        faults._armed = EveryPoint()
        with tempfile.TemporaryDirectory() as parent:
            solve_in(Path(parent) / "run", bounds=bounds)
        return faults._armed.passed

    plain, bounded = (forked(partial(work, bounds))[1] for bounds in ("none", "constant"))
    return {point: (bounded if point.startswith("known:") else plain)[point] for point in faults.POINTS}


def run_case(asked: list[str] | dict) -> dict:
    case, settings = (asked, {}) if isinstance(asked, list) else (asked["faults"], asked["settings"])
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        bounds = "constant" if any(fault.startswith("known:") for fault in case) else "none"
        ended: list[tuple[int, dict | None]] = []
        for fault in case:
            ended.append(in_child(folder, fault, bounds, **settings))
            if [status for status, _ in ended[-2:]] == [0, 0]:  # it has its answer, and all that follow only tell it
                break
        left = sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) if folder.exists() else []
        status, final = in_child(folder, None, bounds, **settings)
        end = sorted(p.name for p in folder.iterdir())
        return {"case": case, "ended": ended, "left": left, "status": status, "final": final, "end": end}


def main() -> None:
    # What is compiled, loaded or imported before forking is so in every child.
    with tempfile.TemporaryDirectory() as parent:
        for number, settings in enumerate(WARM):
            solve_in(None, **settings)
            solve_in(Path(parent) / str(number), **settings)
    gc.freeze()  # a collection in a child would copy all pages of what is shared
    for line in sys.stdin:
        asked = json.loads(line)
        answer = count_passings() if asked == "passings" else [run_case(case) for case in asked]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
