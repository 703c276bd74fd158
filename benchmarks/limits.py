"""Whether memory and time limits are kept: peak resident set and lateness of solves of all families.

    python benchmarks/limits.py                                   # 512 MiB; 1, 2 and 5 s; instances and made problems
    python benchmarks/limits.py --only spot5,clique --limits 2 --markdown

Each solve is a process of its own that works through the command line's functions, after ``oocbe warm-up``, so that no
loop is compiled; loading them counts. *Late* is the time from the command's start, reading included, to its end, less
the limit. The peak is the operating system's, of the whole process; ``base`` is what it is on the shipped example,
which is the interpreter, libraries and loops. What was proven within a limit is not asked with a longer one. What is
later than ``--tolerance`` is run twice more, as machines are shared: the least counts, and the load is told. *Work* is
the processor time that the process has taken after its limit, which other work on the machine changes little: with
``--shared`` only what is late by that, too, counts as late. The exit code is 1 where a limit was not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from families import FAMILIES, made
from measuring import EXAMPLE, data_folder, describe_run, print_table, run_child

from oocbe.formats import write

FOLDERS = ("wcsp", "uai", "spot5", "bif")
"""Of the instances."""

PROVEN = (0, 10)
"""Exit codes of what ended with a proof: with more time it is the same."""

ENDED = (0, 10, 11, 20)
"""Exit codes of what was solved, or ended by its limit."""

MIB = 2**20


@dataclass
class Family:
    """What the solves of a family came to.

    Attributes
    ----------
    runs, proven : their numbers. late : seconds at most, by which problem. peak : bytes at most, by which problem.
    load : of the machine, in the latest run. work : processor seconds after the limit at most.
    """

    runs: int = 0
    proven: int = 0
    late: tuple[float, str] = (-1e9, "")
    peak: tuple[int, str] = (0, "")
    load: float = 0.0
    work: float = 0.0
    failed: list[str] = field(default_factory=list)

    def add(self, name: str, limit: float, answer: dict[str, Any]) -> None:
        """Count a run."""
        self.runs += 1
        self.proven += answer["code"] in PROVEN
        if answer["code"] not in ENDED:
            self.failed.append(f"{name} after {limit:g} s: {answer['code']} {answer['output']}")
        what = f"{name}, {limit:g} s"
        if answer["seconds"] - limit > self.late[0]:
            self.late, self.load = (answer["seconds"] - limit, what), answer["load"]
        self.work = max(self.work, answer["work"])
        self.peak = max(self.peak, (answer["peak"], what))


def solve(path: str, memory: str, limit: str) -> dict[str, Any]:
    """In a child: one solve by the command line's functions."""
    from oocbe.cli.main import app
    from oocbe.runtime.process_memory import peak_memory

    shown = io.StringIO()
    code: Any = 0
    at_limit: list[float] = []
    timer = threading.Timer(float(limit), lambda: at_limit.append(time.process_time()))
    timer.daemon = True
    begin = time.perf_counter()
    timer.start()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            app(["solve", path, "--memory", memory, "--time-limit", limit, "--backend", "cpu", "--quiet"])
        except SystemExit as ended:
            code = ended.code
    seconds, worked = time.perf_counter() - begin, time.process_time()
    timer.cancel()
    work = worked - at_limit[0] if at_limit else 0.0
    return {"seconds": seconds, "work": work, "peak": peak_memory(), "code": code, "output": shown.getvalue()[-300:]}


CHILDREN = {"solve": solve}


def measured(path: Path, memory: str, limit: float) -> dict[str, Any]:
    """One solve in a process of its own, with the machine's load after it."""
    try:
        answer = run_child(__file__, ("solve", str(path), memory, f"{limit:g}"), 10 * limit + 60)
    except Exception as error:
        answer = {
            "seconds": 10 * limit + 60,
            "work": 0.0,
            "peak": 0,
            "code": type(error).__name__,
            "output": str(error)[-300:],
        }
    return {**answer, "load": os.getloadavg()[0]}


def lateness(answer: dict[str, Any], limit: float, is_shared: bool) -> float:
    """Seconds by which a solve was late, or has worked after its limit where that is less and the machine is shared."""
    late: float = answer["seconds"] - limit
    return min(late, answer["work"]) if is_shared else late


def problems(only: list[str], seeds: int, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Family, name and file of each problem."""
    data = data_folder()
    for name in FOLDERS:
        for path in sorted((data / name).rglob("*")) if name in only else ():
            if path.is_file() and path.suffix in (".gz", ".xz", ".wcsp", ".uai", ".spot", ".bif"):
                yield name, path.name, path
    for family in FAMILIES:
        for size in range(len(FAMILIES[family][1])) if family in only else ():
            for seed in range(seeds):
                path = folder / "problem.wcsp"
                write(made(family, size, seed), path)
                yield family, f"size {size}, seed {seed}", path


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", default="512MiB", help="limit of each solve (default 512MiB)")
    parser.add_argument("--limits", type=lambda text: [*map(float, text.split(","))], default=[1.0, 2.0, 5.0])
    parser.add_argument("--tolerance", type=float, default=0.5, help="seconds by which a solve may be late")
    parser.add_argument("--shared", action="store_true", help="what is late has worked so long after its limit, too")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*FOLDERS, *FAMILIES])
    parser.add_argument("--seeds", type=int, default=1, help="made problems of each size (default 1)")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        kind, *arguments = given.child
        print("\n" + json.dumps(CHILDREN[kind](*arguments)))
        return 0
    from oocbe.model.settings.option_values import parse_bytes

    most = parse_bytes("--memory", given.memory)
    assert most is not None
    found: dict[str, Family] = {}
    over = []
    base = measured(EXAMPLE, given.memory, 60.0)["peak"]
    with tempfile.TemporaryDirectory(prefix="oocbe-benchmark-") as name:
        for family, problem, path in problems(given.only, given.seeds, Path(name)):
            own = found.setdefault(family, Family())
            for limit in given.limits:
                answer = measured(path, given.memory, limit)
                for _ in range(2):
                    if lateness(answer, limit, given.shared) > given.tolerance:
                        again = measured(path, given.memory, limit)
                        answer = min(answer, again, key=lambda a: lateness(a, limit, given.shared))
                own.add(problem, limit, answer)
                if lateness(answer, limit, given.shared) > given.tolerance or answer["peak"] > most:
                    late, peak = answer["seconds"] - limit, answer["peak"] / MIB
                    figures = f"{late:.2f} s late, {answer['work']:.2f} s of work after the limit, {peak:.0f} MiB"
                    over.append(f"{family}, {problem}, {limit:g} s: {figures}, load {answer['load']:.1f}")
                    print(over[-1], file=sys.stderr, flush=True)
                if answer["code"] in PROVEN:
                    break
    rows = [["family", "solves", "proven", "latest s", "load", "of", "work s", "peak MiB", "of"]]
    for family, own in found.items():
        figures = [str(own.runs), str(own.proven), f"{own.late[0]:.2f}", f"{own.load:.1f}", own.late[1]]
        rows.append([family, *figures, f"{own.work:.2f}", f"{own.peak[0] / MIB:.0f}", own.peak[1]])
    print_table(rows, given.markdown)
    print(f"\nlimit {given.memory}, base {base / MIB:.0f} MiB; {describe_run()}")
    for why in [*over, *(why for own in found.values() for why in own.failed)]:
        print(why)
    return int(bool(over) or any(own.failed for own in found.values()))


if __name__ == "__main__":
    sys.exit(main())
