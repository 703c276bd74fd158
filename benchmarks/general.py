"""General weighted CSPs and explanations: oocbe beside toulbar2 (two modes) and CP-SAT, on all shared instances.

    python benchmarks/general.py                                # all of wcsp/ and uai/, 60 s for each system
    python benchmarks/general.py --only CELAR6-SUB2,90-20-5 --peers toulbar2 --seconds 20
    python benchmarks/general.py --markdown                     # a table for RESULTS.md

*warm* is ``oocbe.solve`` in a process that has solved a small problem before, so that compiled code is loaded; *cpu* is
the processor time of that, all threads together; *process* is the whole command ``oocbe solve`` from start to finish.
*1 s*, *10 s* and *60 s* are bound and incumbent so long after the warm solve began. A peer's time runs from the file or
the problem in memory to its answer, starting Python excluded; toulbar2's processor time stands behind it in brackets.
Explanations are solved as sums of negative logarithms.
CP-SAT takes problems of integers only.

Every assignment is evaluated by the problem itself. The exit code is 1 where two proven optima differ, an assignment
is better than a proven optimum, or a bound lies above an assignment. toulbar2 rounds the costs of explanations.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from gzip import decompress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import EXAMPLE, data_folder, describe_run, print_table, run_child, run_timed

import oocbe
from oocbe.elimination.observer import Observer
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.errors import OocbeError, UnsupportedError
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import MAX_PRODUCT, Combination

MOMENTS = (1.0, 10.0, 60.0)
"""Seconds after which bound and incumbent are looked at."""

ROUNDING = 1e-4
"""How far toulbar2's optimum of an explanation may be from the true one: thousands of costs of seven digits."""

GRACE_SECONDS = 60.0
"""For starting, importing, reading and ending beside a limit."""

PEERS = {"toulbar2": "pytoulbar2", "toulbar2-td": "pytoulbar2", "cp-sat": "ortools"}
"""Peers, and the package that each needs."""

Run = dict[str, Any]


def read(path: str | Path) -> Problem:
    """A problem of costs that are added: products by their negative logarithms."""
    problem = oocbe.read(path)
    is_product = problem.semiring.combination is Combination.MULTIPLY
    return in_logarithms(problem.in_semiring(MAX_PRODUCT)) if is_product else problem


class Moments(Observer):
    """Notes what is known at each of :data:`MOMENTS`."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._changes: list[tuple[float, Any, Any]] = []

    def bounds_changed(
        self, lower: int | float | None, value: int | float | None, why: str, assignment: tuple[int, ...] | None
    ) -> None:
        self._changes.append((time.perf_counter() - self._begin, lower, value))

    def finished(self, result: Result) -> None:
        bound = result.value if result.status == "optimal" else result.bound
        self._changes.append((time.perf_counter() - self._begin, bound, result.value))

    def known(self) -> list[list[Any]]:
        """Bound and incumbent at each moment, None where nothing was known."""
        found = []
        for moment in MOMENTS:
            before = [change for change in self._changes if change[0] <= moment]
            found.append(list(before[-1][1:]) if before else [None, None])
        return found


def solve_warm(path: str, seconds: str, backend: str) -> Run:
    """In a child: one solve by oocbe, after a small one."""
    oocbe.solve(EXAMPLE)
    problem, moments = read(path), Moments()
    processor, begin = time.process_time(), time.perf_counter()
    result = oocbe.solve(problem, time_limit=float(seconds), backend=backend, observer=moments)
    return {
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - processor,
        "proven": result.status in ("optimal", "infeasible"),
        "value": result.value,
        "bound": result.value if result.status == "optimal" else result.bound,
        "rows": result.total_rows,
        "bytes": result.peak_memory_bytes,
        "known": moments.known(),
    }


def solve_peer(name: str, path: str, seconds: str) -> Run:
    """In a child: one solve by a peer."""
    problem = read(path)
    if name == "cp-sat":
        from peers import cp_sat

        answer = asdict(cp_sat.solve(problem, float(seconds)))
        proven = answer["status"] in ("optimal", "infeasible")
        return {"seconds": answer["wall_seconds"], "proven": proven, "value": answer["value"], "bound": answer["bound"]}
    from peers import toulbar2

    mode = "default" if name == "toulbar2" else "tree decomposition"
    with tempfile.TemporaryDirectory(prefix="oocbe-benchmark-") as folder:
        plain = Path(folder, Path(path).name.removesuffix(".gz").removesuffix(".xz"))
        content = Path(path).read_bytes()
        plain.write_bytes({".gz": decompress, ".xz": lzma.decompress}.get(Path(path).suffix, bytes)(content))
        found = toulbar2.run(plain, float(seconds), mode)
    if found is None:
        return {"seconds": float(seconds), "proven": False, "value": None, "bound": None}
    value = None if found["assignment"] is None else problem.evaluate(found["assignment"])
    # Its bounds on explanations are in its own rounded costs.
    bound = found["bound"] if problem.is_integral else None
    times = {"seconds": found["seconds"], "processor": found["processor"]}
    return {**times, "proven": found["proven"], "value": value, "bound": bound}


CHILDREN = {"warm": solve_warm, "peer": solve_peer}


def solve_process(path: Path, seconds: float, backend: str) -> float | None:
    """Wall time of the whole command; None where it failed."""
    command = [sys.executable, "-m", "oocbe", "solve", str(path), "--json", "--quiet", "--time-limit", str(seconds)]
    if ".uai" in path.name:
        command += ["--task", "mpe"]
    try:
        done, wall = run_timed([*command, "--backend", backend], seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return wall if done.returncode in (0, 10, 20) else None


def run(*arguments: str, seconds: float) -> Run:
    """A child's answer; ``why`` where it has none."""
    try:
        return run_child(__file__, arguments, seconds + GRACE_SECONDS)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"seconds": seconds, "proven": False, "value": None, "bound": None, "why": str(error)}


def contradictions(runs: dict[str, Run], is_integral: bool) -> list[str]:
    """What of several systems' answers cannot be true together."""
    tolerance = 0.0 if is_integral else ROUNDING
    found = []
    for name, one in runs.items():
        for other_name, other in runs.items():
            if other["value"] is None:
                continue
            if one["proven"] and one["value"] is not None and other["value"] < one["value"] - tolerance:
                found.append(f"{name} proves {one['value']}, {other_name} has {other['value']}")
            if one["bound"] is not None and math.ceil(one["bound"] - 1e-6) > other["value"] + tolerance and is_integral:
                found.append(f"{name} has the bound {one['bound']}, {other_name} the assignment {other['value']}")
    return found


def _number(value: Any) -> str:
    return "?" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _interval(known: list[Any]) -> str:
    return f"{_number(known[0])} to {_number(known[1])}" if known[0] != known[1] else _number(known[0])


def _seconds(answer: Run) -> str:
    if answer["proven"]:
        return f"{answer['seconds']:.2f}"
    return "failed" if "why" in answer else f"limit, {_number(answer['value'])}"


def _peer_seconds(answer: Run) -> str:
    processor = f" ({answer['processor']:.2f})" if answer["proven"] and "processor" in answer else ""
    return _seconds(answer) + processor


def measure(path: Path, arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """A row of the table, and contradictions."""
    problem = read(path)
    limit = str(arguments.seconds)
    own = run("warm", str(path), limit, arguments.backend, seconds=arguments.seconds)
    process = solve_process(path, arguments.seconds, arguments.backend)
    peers = {}
    for name in arguments.peers:
        if name == "cp-sat" and not problem.is_integral:
            continue
        peers[name] = run("peer", name, str(path), limit, seconds=arguments.seconds)
    moments = [_interval(known) for known in own.get("known", [])] or ["?"] * len(MOMENTS)
    cells = [
        path.name.split(".")[0],
        str(len(problem.variables)),
        _seconds(own),
        f"{own.get('processor', math.nan):.2f}",
        "failed" if process is None else f"{process:.2f}",
        f"{own.get('rows', 0):,}",
        f"{own.get('bytes', 0) / 2**20:,.0f}",
        *moments,
        *(_peer_seconds(peers[name]) if name in peers else "" for name in arguments.peers),
    ]
    for name, answer in {"oocbe": own, **peers}.items():
        if "why" in answer:
            print(f"{path.name}, {name}: {answer['why']}", file=sys.stderr)
    return cells, contradictions({"oocbe": own, **peers}, problem.is_integral)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each system and instance (default 60)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of instances, separated by commas")
    parser.add_argument("--peers", help=f"by commas, of {', '.join(PEERS)}; '' for none (default: those installed)")
    parser.add_argument("--backend", default="auto", help="of oocbe: auto, cpu or cuda")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print("\n" + json.dumps(CHILDREN[arguments.child[0]](*arguments.child[1:])))
        return 0
    installed = [name for name, package in PEERS.items() if find_spec(package)]
    arguments.peers = installed if arguments.peers is None else [p for p in arguments.peers.split(",") if p]
    unknown = [name for name in arguments.peers if name not in installed]
    if unknown:
        parser.error(f"not installed, or no peer: {', '.join(unknown)}; installed: {', '.join(installed) or 'none'}")
    heading = ["instance", "variables", "warm", "cpu", "process", "rows", "MiB"]
    rows = [[*heading, *(f"{moment:g} s" for moment in MOMENTS), *arguments.peers]]
    wrong = []
    for folder in ("wcsp", "uai"):
        for path in sorted(p for p in (data_folder() / folder).rglob("*") if p.is_file()):
            if arguments.only and path.name.split(".")[0] not in arguments.only:
                continue
            try:
                cells, found = measure(path, arguments)
            except UnsupportedError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            except OocbeError as error:
                cells, found = [path.name, *[""] * (len(rows[0]) - 1)], [str(error)]
            rows.append(cells)
            wrong += [f"{path.name}: {sentence}" for sentence in found]
            print(" | ".join(cells), file=sys.stderr, flush=True)
    if len(rows) == 1:
        print(f"no such instance in {data_folder()}", file=sys.stderr)
        return 2
    print_table(rows, arguments.markdown)
    print(f"\nSeconds; limit {arguments.seconds:g} s.")
    print(describe_run([PEERS[name] for name in arguments.peers]))
    for sentence in wrong:
        print(f"answers contradict one another, {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
