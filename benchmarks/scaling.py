"""Workers beside one process with as many threads: the same count, wall and processor seconds, and peak memory.

    python benchmarks/scaling.py                      # two workers of one thread beside one process of two threads
    python benchmarks/scaling.py --workers 4 --threads 8 --size 13
    python benchmarks/scaling.py --kills 5            # kills so many workers on the way

The problem is a clique: every two of ``--variables`` variables with ``--size`` values each share a constraint, so that
the first bucket joins functions to a message of nearly size ^ (variables - 1) rows, and the next ones messages. What is
asked is how many assignments are feasible, in rows and in products of floats; each way has a process of its own, and
loops are compiled before. Processor seconds are those of a process and all its workers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from measuring import describe_run, print_table, run_child

Run = dict[str, Any]


def clique(variables: int, size: int) -> Any:
    """The problem: a pair of values of every two variables is forbidden for each value, and drawn."""
    from oocbe.model.parts import Constraint, Variable
    from oocbe.model.problem import Problem

    generator = np.random.default_rng(variables * size)
    pairs = list(combinations(range(variables), 2))
    return Problem(
        tuple(Variable(f"x{v}", size) for v in range(variables)),
        (),
        tuple(Constraint(pair, np.unique(generator.integers(0, size, (size // 4, 2)), axis=0)) for pair in pairs),
        name=f"clique {variables} x {size}",
    )


def answer(given: argparse.Namespace) -> Run:
    """In a child: count once small, then as asked."""
    import oocbe

    os.environ["OOCBE_THREADS"] = str(given.threads)
    options: Any = {"order": "linear", "order_seconds": 0, "tables": "incomplete", "memory": given.memory}
    oocbe.count(clique(4, 6), **options)
    problem = clique(given.variables, given.size)
    stop = threading.Event()
    killed: list[int] = []
    if given.kills:
        threading.Thread(target=_kill, args=(given.kills, stop, killed), daemon=True).start()
    begin, processor = time.perf_counter(), _processor_seconds()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        workers = None if given.workers == 0 else f"cpus:{given.workers}"
        result = oocbe.count(problem, workers=workers, workdir=folder, **options)
        seconds = time.perf_counter() - begin
        left = sorted(path.name for path in Path(folder).iterdir())
    stop.set()
    return {
        "value": str(result.value),
        "rows": result.total_rows,
        "largest": result.largest_message_rows,
        "read": "" if result.read_by_workers is None else result.read_by_workers.summary,
        "seconds": seconds,
        "cpu": _processor_seconds() - processor,
        "killed": len(killed),
        "left": left,
    }


def _kill(count: int, stop: threading.Event, killed: list[int]) -> None:
    """Kill a worker of this process now and then, one that has been at work for a while."""
    chance = random.Random(count)
    while len(killed) < count and not stop.wait(chance.uniform(3, 12)):
        path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        children = [int(text) for text in path.read_text().split()]
        if len(children) > 1:
            killed.append(chance.choice(children))
            os.kill(killed[-1], signal.SIGKILL)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> int:
    """Run both ways, print a table, and end with 1 where answers differ or a file is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of all processes together")
    parser.add_argument("--variables", type=int, default=7)
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="parent of the work folders")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(answer(given)))
        return 0
    print(describe_run(["distributed"]))
    runs = {}
    for workers in (0, given.workers):
        more = ["--workers", str(workers), *(["--kills", "0"] if not workers else [])]
        runs[workers] = run_child(__file__, [*sys.argv[1:], *more])
    alone, shared = runs[0], runs[given.workers]
    rows = [["", "rows", "seconds", "processor seconds", "killed"]]
    for name, run in (("one process", alone), (f"{given.workers} workers", shared)):
        rows.append([name, f"{run['rows']:,}", f"{run['seconds']:.1f}", f"{run['cpu']:.1f}", str(run["killed"])])
    print_table(rows, given.markdown)
    wall, cpu = shared["seconds"] / alone["seconds"], shared["cpu"] / alone["cpu"]
    print(
        f"{given.workers} workers take {wall:.2f} times the wall and {cpu:.2f} times the processor time of one process"
    )
    if shared["read"]:
        print(shared["read"])
    is_same = all(shared[name] == alone[name] for name in ("value", "rows", "largest"))
    is_clean = not alone["left"] and not shared["left"]
    if not (is_same and is_clean):
        print(f"not the same, or something is left: {alone}, {shared}")
    return int(not (is_same and is_clean))


if __name__ == "__main__":
    sys.exit(main())
