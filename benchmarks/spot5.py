"""SPOT5 side by side: oocbe, toulbar2 (default and along a tree decomposition), OR-tools CP-SAT and HiGHS.

    python benchmarks/spot5.py                      # ten instances, every peer that is installed, 60 s each
    python benchmarks/spot5.py --instances 505,42 --peers cp-sat --seconds 20 --repeat 1
    python benchmarks/spot5.py --markdown           # rows for RESULTS.md

Every solve has a process of its own, one at a time. oocbe is measured twice over. *Process* is ``oocbe solve FILE``
from start to finish: interpreter, imports, reading, order search, elimination; *cpu* is the processor time of that, all
threads together, which does not depend on what else the machine does. *Warm* is the same solve in a process
that has solved the example before, so that compiled code is loaded: the order search, the bounds (where a problem is
not over before), forward and backward passes (runs given up included), and that process's peak resident set. A peer's
time runs from the problem in memory to its answer, modelling included, starting a process and importing excluded; the
limit counts for each. Of ``--repeat`` runs the one in the middle counts; what reached the limit is not tried again.

Values are recomputed from the assignments by ``Problem.evaluate`` and compared with ``optima.json`` and among solvers;
the exit code is 1 where any two disagree or oocbe proves nothing. The criteria are for two cores and do not change it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import EXAMPLE, data_folder, describe_run, median, print_table, run_child, run_timed

INSTANCES = "8,54,29,404,503,505,42,5,408,412,11,509,1502"
TIMEOUT_SECONDS = 3600.0  # for oocbe
GRACE_SECONDS = 60.0  # for a peer to start, import, read, and notice its limit


@dataclass(frozen=True)
class Peer:
    """Another solver: the module in :mod:`peers`, what its ``solve`` gets, and the package that must be installed."""

    module: str
    package: str
    options: dict[str, str]


PEERS = {
    "toulbar2": Peer("toulbar2", "pytoulbar2", {"mode": "default"}),
    "toulbar2-td": Peer("toulbar2", "pytoulbar2", {"mode": "tree decomposition"}),
    "cp-sat": Peer("cp_sat", "ortools", {}),
    "highs": Peer("highs", "scipy", {}),
}

PROCESS_SECONDS = {
    **dict.fromkeys(("8", "54", "29", "404", "503", "505", "42", "5"), 3.0),
    **dict.fromkeys(("408", "412"), 6.0),
    "11": 60.0,
    "1502": 1.0,
}
"""What a whole process may take on two cores, by instance."""

MEMORY_BYTES = 2 << 30
"""What each of them may take of memory."""

Run = dict[str, Any]


def solve_warm(path: str, repeat: str) -> Run:
    """In a child: load compiled code with the example, then solve; the run in the middle, and the process's peak."""
    import oocbe

    oocbe.solve(EXAMPLE)
    problem = oocbe.read(path)
    runs = []
    for _ in range(int(repeat)):
        result = oocbe.solve(problem)
        if result.assignment is not None and problem.evaluate(result.assignment) != result.value:
            raise RuntimeError(f"the assignment of {path} is not worth {result.value}")
        runs.append(
            {
                "status": result.status,
                "value": result.value,
                "order": result.seconds["order"],
                "bounds": result.seconds.get("bounds", 0.0),
                "passes": result.seconds["forward"] + result.seconds["backward"],
                "total": result.seconds["total"],
                "largest": result.largest_message_rows,
                "rows": result.total_rows,
                "bytes": result.peak_memory_bytes,
            }
        )
    return {**median(runs, "total"), "bytes": runs[-1]["bytes"]}


def solve_peer(name: str, path: str, seconds: str) -> Run:
    """In a child: one solve by a peer."""
    from oocbe.formats import read

    peer = PEERS[name]
    return asdict(import_module(f"peers.{peer.module}").solve(read(Path(path)), float(seconds), **peer.options))


CHILDREN: dict[str, Callable[..., Run]] = {"warm": solve_warm, "peer": solve_peer}


def solve_process(path: Path, repeat: int) -> Run:
    """``oocbe solve`` from start to finish, its assignment judged by :func:`oocbe.verify`."""
    import oocbe

    runs = []
    with tempfile.TemporaryDirectory(prefix="oocbe-benchmark-") as folder:
        solution = Path(folder) / "solution"
        command = [sys.executable, "-m", "oocbe", "solve", str(path), "--json", "--quiet", "--solution", str(solution)]
        for _ in range(repeat):
            before = _child_seconds()
            done, seconds = run_timed(command, TIMEOUT_SECONDS)
            processor = _child_seconds() - before
            if done.returncode != 0:
                raise RuntimeError(f"oocbe ended with {done.returncode} on {path.name}: {done.stderr.strip()[-800:]}")
            verdict = oocbe.verify(path, solution)
            if not verdict.accepted:
                raise RuntimeError(f"the assignment for {path.name} was rejected: {verdict}")
            runs.append({"seconds": seconds, "processor": processor, "value": json.loads(done.stdout)["value"]})
    return median(runs, "seconds")


def _child_seconds() -> float:
    """Processor time of all child processes that have ended, user and system."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_peer(name: str, path: Path, seconds: float, repeat: int) -> Run:
    """A peer's run in the middle; ``status`` is ``failed`` where it ended without an answer, with ``why``."""
    runs: list[Run] = []
    for _ in range(repeat):
        try:
            runs.append(run_child(__file__, ["peer", name, str(path), str(seconds)], seconds + GRACE_SECONDS))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return {"status": "failed", "value": None, "bound": None, "why": str(error)}
        if runs[-1]["status"] != "optimal":
            return runs[-1]
    return median(runs, "wall_seconds")


@dataclass
class Instance:
    """An instance and what came out: oocbe warm and as a process, the peers by name, the optimum where it is known."""

    name: str
    path: Path
    optimum: int | None
    warm: Run
    process: Run
    peers: dict[str, Run]

    def disagreements(self) -> list[str]:
        """Sentences on values that cannot all be right."""
        found = []
        if self.warm["status"] != "optimal":
            found.append(f"oocbe ended with {self.warm['status']}")
        best = self.warm["value"] if self.optimum is None else self.optimum
        claims = {"oocbe": self.warm["value"], "oocbe as a process": self.process["value"]}
        claims |= {name: run["value"] for name, run in self.peers.items() if run["status"] == "optimal"}
        found += [f"{name} has {value} as the optimum, not {best}" for name, value in claims.items() if value != best]
        for name, run in self.peers.items():
            if run["status"] == "infeasible":
                found.append(f"{name} says infeasible")
            if best is None:
                continue
            if run["value"] is not None and run["value"] < best:
                found.append(f"{name} has an assignment worth {run['value']}, below {best}")
            if run["bound"] is not None and run["bound"] > best + 0.5:
                found.append(f"{name} has the bound {run['bound']}, above {best}")
        return [f"{self.name}: {sentence}" for sentence in dict.fromkeys(found)]


def measure(name: str, peers: Sequence[str], seconds: float, repeat: int) -> Instance:
    """Run everything on one instance, named by its number or a path."""
    path = Path(name)
    if not path.is_file():
        path = data_folder() / "spot5" / f"{name}.spot"
    if not path.is_file():
        raise SystemExit(f"no instance {name}: {path} does not exist; set OOCBE_DATA to the folder of instances")
    warm = run_child(__file__, ["warm", str(path), str(repeat)], TIMEOUT_SECONDS * repeat)
    process = solve_process(path, repeat)
    results = {peer: run_peer(peer, path, seconds, repeat) for peer in peers}
    return Instance(path.stem, path, _known_optimum(path), warm, process, results)


def _known_optimum(path: Path) -> int | None:
    file = data_folder() / "optima.json"
    if not file.is_file() or path.resolve().parent != (data_folder() / "spot5").resolve():
        return None
    entry = json.loads(file.read_text()).get(f"spot5/{path.name}", {})
    return entry["minimum"] if entry.get("status") == "optimal" else None


def table_rows(instances: Sequence[Instance], peers: Sequence[str]) -> list[list[str]]:
    """Heading and a row an instance; seconds but for rows and MiB."""
    head = [
        "instance",
        "optimum",
        "order",
        "bounds",
        "passes",
        "process",
        "cpu",
        "largest rows",
        "total rows",
        "MiB",
        *peers,
    ]
    rows = [head]
    for i in instances:
        w = i.warm
        process = [f"{i.process[what]:.2f}" for what in ("seconds", "processor")]
        figures = [*(f"{w[phase]:.3f}" for phase in ("order", "bounds", "passes")), *process]
        sizes = [f"{w['largest']:,}", f"{w['rows']:,}", f"{w['bytes'] / 2**20:.0f}"]
        rows.append([i.name, f"{w['value']:,}", *figures, *sizes, *(_peer_cell(i.peers[p]) for p in peers)])
    return rows


def _peer_cell(run: Run) -> str:
    if run["status"] == "optimal":
        return f"{run['wall_seconds']:.2f}"
    if run["status"] in ("failed", "infeasible"):
        return str(run["status"])
    value = "none" if run["value"] is None else f"{run['value']:,}"
    bound = "none" if run["bound"] is None else f"{run['bound']:,.0f}"
    return f"limit [{bound}, {value}]"


def criteria(instances: Sequence[Instance]) -> list[tuple[bool, str]]:
    """Whether each criterion of an instance that was run is met, and what it says."""
    judged = []
    for i in instances:
        limit = PROCESS_SECONDS.get(i.name)
        if limit is None or i.optimum is None:
            continue
        seconds, size = i.process["seconds"], i.warm["bytes"]
        judged.append((seconds <= limit, f"{i.name}: whole process {seconds:.2f} s, at most {limit:g} s"))
        judged.append((size < MEMORY_BYTES, f"{i.name}: peak {size / 2**20:.0f} MiB, under {MEMORY_BYTES >> 20} MiB"))
    return judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", default=INSTANCES, help=f"numbers or paths, by commas (default {INSTANCES})")
    parser.add_argument("--peers", help=f"by commas, of {', '.join(PEERS)}; '' for none (default: those installed)")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each peer on each instance (default 60)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the one in the middle counts (default 3)")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print("\n" + json.dumps(CHILDREN[options.child[0]](*options.child[1:])))
        return 0
    installed = [name for name, peer in PEERS.items() if find_spec(peer.package)]
    peers = installed if options.peers is None else [p for p in options.peers.split(",") if p]
    for name in peers:
        if name not in installed:
            parser.error(f"{name} is no peer or not installed; installed: {', '.join(installed) or 'none'}")
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    instances = []
    for name in options.instances.split(","):
        print(f"{name} …", file=sys.stderr, flush=True)
        instances.append(measure(name, peers, options.seconds, options.repeat))
    print_table(table_rows(instances, peers), options.markdown)
    print(f"\nSeconds; limit {options.seconds:g} s a peer [bound, value]; median of {options.repeat}.")
    print(describe_run([PEERS[p].package for p in peers]))
    for i in instances:
        for name, run in i.peers.items():
            if "why" in run:
                print(f"{i.name}, {name}: {run['why']}", file=sys.stderr)
    for passed, sentence in criteria(instances):
        print(f"{'pass' if passed else 'FAIL'}  {sentence}", file=sys.stderr if options.markdown else sys.stdout)
    wrong = [sentence for i in instances for sentence in i.disagreements()]
    for sentence in wrong:
        print(f"disagreement: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
