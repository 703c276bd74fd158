"""Solves whose messages are larger than the memory that they may take: the same answers, and the memory that was used.

    python benchmarks/limited_memory.py                       # a message of 3 GiB, with 256 MiB and with all of it
    python benchmarks/limited_memory.py --values 6 --tasks optimum,count,marginals
    python benchmarks/limited_memory.py --file 408.spot --limits 2GiB --options "--no-dominance" --seconds 1500

Without ``--file`` the problem is a clique: a cost of 0 to 999 for each pair of values of each pair of variables, and
one forbidden pair of values for all pairs that are no neighbours on a ring, from seed 0. The first message then is over
all variables but one.

Each solve is a process of its own. Its resident set is sampled every 20 ms; ``base`` is the largest that the same
command has on the shipped example, which is the interpreter, libraries and compiled code. ``read`` and ``written`` are
the bytes that went through calls of the operating system, cached or not, those of libraries being loaded left out as
far as the base has them. With one problem and task, answers and numbers of rows must be equal for all limits.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import EXAMPLE, describe_run, print_table

COMMON = ("--tables", "incomplete", "--bounds", "none", "--no-dominance")
"""Of the clique: all rows are to be kept."""

INTERVAL = 0.02


def clique(variables: int, values: int, folder: Path) -> Path:
    """Write the problem of the module."""
    from oocbe.formats import write
    from oocbe.model.parts import Constraint, Function, Variable
    from oocbe.model.problem import Problem

    random = np.random.default_rng(0)
    ring = [(v, (v + 1) % variables) for v in range(variables)]
    others = [(u, v) for u in range(variables) for v in range(u + 2, variables) if (v, u) not in ring]
    functions = tuple(Function.from_array(p, random.integers(0, 1000, (values, values))) for p in ring + others)
    constraints = tuple(Constraint(p, [random.integers(0, values, 2).tolist()]) for p in others)
    named = tuple(Variable(f"x{v}", values) for v in range(variables))
    path = folder / f"clique-{variables}-{values}.wcsp"
    write(Problem(named, functions, constraints, name=path.stem), path)
    return path


def solve(path: Path, limit: str, more: list[str], folder: Path, seconds: float) -> dict[str, Any]:
    """The JSON of a solve in a process, with ``peak``, ``read`` and ``written`` in bytes, and ``wall`` in seconds."""
    command = [sys.executable, "-m", "oocbe", "solve", str(path), "--host-memory", limit, "--json", "--quiet", *more]
    begin = time.perf_counter()
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "TMPDIR": str(folder)}
        ) as process,
    ):
        found = {"peak": 0, "read": 0, "written": 0}
        while process.poll() is None:
            sample(process.pid, found)
            time.sleep(INTERVAL)
            if time.perf_counter() - begin > seconds:
                process.terminate()
                process.wait()
                return {**found, "status": "stopped", "wall": time.perf_counter() - begin}
        assert process.stdout is not None
        text = process.stdout.read()
        log.seek(0)
        told = log.read().strip().splitlines()
    answer = json.loads(text) if text.strip() else {"status": f"exit code {process.returncode}"}
    if not text.strip() and told:
        answer["status"] = told[-1]
    return {**answer, **found, "wall": time.perf_counter() - begin}


def sample(process: int, found: dict[str, int]) -> None:
    """Take note of what a process has and has done."""
    try:
        resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        done = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    except (OSError, IndexError, ValueError):
        return  # it ended
    found["peak"] = max(found["peak"], resident)
    found["read"], found["written"] = int(done["rchar"]), int(done["wchar"])


def outcome(answer: dict[str, Any]) -> Any:
    """What must be equal whatever the limit: the answer and the rows."""
    names = ("value", "status", "marginals", "assignments", "total_rows", "largest_message_rows")
    return {name: answer.get(name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variables", type=int, default=10, help="of the clique (default 10)")
    parser.add_argument("--values", type=int, default=9, help="of each variable (default 9)")
    parser.add_argument("--file", type=Path, help="a problem, in place of the clique")
    parser.add_argument("--options", default="", help="more options for the solves, in one text")
    parser.add_argument("--limits", default="256MiB,14GiB", help="comma-separated memory limits")
    parser.add_argument("--tasks", default="optimum", help="comma-separated: optimum, count, marginals, …")
    parser.add_argument("--folder", type=Path, help="where messages go (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=3600, help="after which a solve is stopped")
    options = parser.parse_args()
    lines = [["task", "limit", "status", "largest rows", "rows", "seconds", "MiB", "base", "read GiB", "written GiB"]]
    differing = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="oocbe-benchmark-") as name:
        folder = Path(name)
        path = options.file or clique(options.variables, options.values, folder)
        more = shlex.split(options.options) if options.file else [*COMMON, *shlex.split(options.options)]
        for task in options.tasks.split(","):
            asked = more if task == "optimum" else [*(o for o in more if o != "--no-dominance"), "--task", task]
            for _ in range(2):  # the first one compiles where nothing is cached, which takes memory of its own
                base = solve(EXAMPLE, "256MiB", asked, folder, options.seconds)
            outcomes = []
            for limit in options.limits.split(","):
                answer = solve(path, limit, asked, folder, options.seconds)
                rows = [f"{answer[k]:,}" if k in answer else "" for k in ("largest_message_rows", "total_rows")]
                sizes = [f"{answer['peak'] / 2**20:.0f}", f"{base['peak'] / 2**20:.0f}"]
                streamed = [f"{max(0, answer[k] - base[k]) / 2**30:.1f}" for k in ("read", "written")]
                lines.append([task, limit, answer["status"], *rows, f"{answer['wall']:.1f}", *sizes, *streamed])
                outcomes.append(outcome(answer))
                print("  ".join(lines[-1]), file=sys.stderr, flush=True)
            differing += [task for other in outcomes[1:] if other != outcomes[0]]
    print_table(lines)
    print(f"\n{path.name}; {describe_run()}")
    if differing:
        raise SystemExit(f"answers differ: {differing}")


if __name__ == "__main__":
    main()
