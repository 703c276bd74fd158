"""The first runs on a machine: installation, solves with nothing compiled under a time limit, and what warm-up leaves.

    python benchmarks/first_start.py install    # a fresh environment from this checkout, and the README's first solve
    python benchmarks/first_start.py limits     # --time-limit with an empty cache, beside the same run with a warm one
    python benchmarks/first_start.py warm-up    # its seconds, and the seconds that commands compile afterwards

``limits`` runs each case with limits of 1, 2 and 10 s and an empty cache. A run is late if it takes more than a second
longer than its limit. It lacks an answer if it has no value where the warm run finds one within half of the limit, or
no bound where the warm run has one.

Cases: examples, and files below ``OOCBE_DATA`` (``../shared/data`` without it) of all families and tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from measuring import EXAMPLE, ROOT, data_folder, describe_run, print_table

from oocbe.errors import EXIT_INFEASIBLE, EXIT_LIMIT, EXIT_NOTHING_BETTER, EXIT_OPTIMAL, EXIT_RESOURCES

LIMITS = (1.0, 2.0, 10.0)
"""Time limits, in seconds."""

ALLOWED_SECONDS = 1.0
"""How much longer than its limit a run may take."""

KILL_SECONDS = 90.0
"""A run that takes so much longer than its limit is killed."""

ENDED = (EXIT_OPTIMAL, EXIT_INFEASIBLE, EXIT_NOTHING_BETTER)
"""Exit codes of commands that have the answer."""

COMMANDS = {
    "spot5/404.spot": "solve",
    "spot5/503.spot": "solve",
    "spot5/1502.spot": "solve",
    "spot5/1401.spot": "solve",
    "spot5/408.spot": "solve --task count --order min-degree --order-seconds 0",
    "spot5/54.spot": "solve --task kbest --k 3",
    "wcsp/spot5b/42b.wcsp": "solve",
    "wcsp/celar6/CELAR6-SUB0.wcsp": "solve",
    "wcsp/celar6/CELAR6-SUB2.wcsp": "solve",
    "wcsp/celar6/scen06.wcsp.xz": "solve",
    "wcsp/iscas89/c432.wcsp": "solve",
    "wcsp/iscas89/s386.wcsp": "solve --task count",
    "wcsp/mastermind/mastermind_03_08_03.wcsp": "solve",
    "wcsp/other/latin4.wcsp.xz": "solve",
    "wcsp/other/GEOM40_6.wcsp.xz": "solve",
    "wcsp/random/0.wcsp": "solve",
    "wcsp/random/3.wcsp": "solve --task min-marginals",
    "uai/grid/50-12-5.uai.gz": "solve",
    "uai/grid/75-18-5.uai.gz": "solve --task mpe",
    "uai/pedigree/pedigree1.uai.gz": "solve --task logz",
    "uai/pedigree/pedigree33.uai.gz": "solve",
    "uai/protein/pdb1hyp.uai.gz": "solve",
    "uai/protein/pdb2mcm.uai.gz": "solve",
    "bif/alarm.bif.gz": "solve --task marginals",
    "bif/munin1.bif.gz": "solve --task mpe",
    "bif/pigs.bif.gz": "solve --task logz",
    "bif/water.bif.gz": "solve",
    "dcop/pydcop/gc_random_20.yaml": "solve",
    "dcop/pydcop/ising_5x5.yaml": "dcop",
    "dcop/pydcop/graph_coloring1.yaml": "dcop --z 2",
    "mps/p0201.mps.gz": "solve",
    "mps/p0548.mps.gz": "solve",
    "mps/p2756.opb.gz": "solve",
    "mps/enigma.mps.gz": "solve --task count",
    "mps/stocfor3.mps.gz": "propagate",
    "xcsp/Knapsack-50-200-01.xml.gz": "solve",
    "xcsp/Steiner3-7.xml.gz": "solve",
    "xcsp/Crossword-lex-h0502.xml.gz": "solve --task count",
    "wcsp/random/5.wcsp": "bound --z 3",
}
"""Arguments by file."""


class Run(NamedTuple):
    """A process. seconds : its wall time. answer : its JSON object; empty if it printed none. message : its last line
    on standard error."""

    seconds: float
    answer: dict[str, Any]
    code: int
    message: str


def cases() -> list[tuple[str, list[str]]]:
    """Names and arguments of the cases whose files are there."""
    found = [("daily.spot", ["solve", str(EXAMPLE)])]
    for name, command in COMMANDS.items():
        path = data_folder() / name
        if path.exists():
            verb, *rest = command.split()
            found.append((f"{Path(name).name} {command}", [verb, str(path), *rest]))
    return found


def run(arguments: Sequence[str], cache: str | None, limit: float) -> Run:
    """Run a command with its own cache of loops; None: the usual one."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": cache})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has compiled its modules
    command = [sys.executable, "-P", "-m", "oocbe", *arguments, "--json", "--quiet", "--time-limit", f"{limit:g}"]
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit + KILL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Run(time.perf_counter() - begin, {}, -9, "killed")
    seconds = time.perf_counter() - begin
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    return Run(seconds, answer, done.returncode, done.stderr.strip().rpartition("\n")[2])


def has(answer: dict[str, Any], *names: str) -> bool:
    """Whether a result has one of these figures."""
    return any(answer.get(name) is not None for name in names)


def is_answered(one: Run) -> bool:
    """Whether a run ended with a value, or with the answer of another task."""
    return has(one.answer, "value", "assignment") or one.code in ENDED


def compare(case: tuple[str, list[str]]) -> list[list[str]]:
    """Rows of the table: a case under each limit."""
    name, arguments = case
    rows = []
    for limit in LIMITS:
        warm = run(arguments, None, limit / 2)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            cold = run(arguments, cache, limit)
            # A compilation that is still running would slow the next run; the lock of late ones is never removed.
            while any(path.name != "late.lock" for path in Path(cache).rglob("*.lock")):
                time.sleep(0.1)
        faults = ["late"] if cold.seconds > limit + ALLOWED_SECONDS else []
        failed = [one for one in (warm, cold) if one.code not in {*ENDED, EXIT_LIMIT, EXIT_RESOURCES}]
        faults += [f"exit code {one.code}: {one.message}" for one in failed]
        if is_answered(warm) and not is_answered(cold):
            faults.append("bound only" if has(cold.answer, "bound") else "no answer")
        elif has(warm.answer, "bound") and not has(cold.answer, "bound"):
            faults.append("no bound")
        shown = [str(one.answer.get("value", one.answer.get("status", "-"))) for one in (warm, cold)]
        rows.append([name, f"{limit:g}", f"{cold.seconds:.2f}", *shown, ", ".join(faults)])
    return rows


def limits(processes: int) -> int:
    """Compare all cases; the number of faults."""
    heading = ["case", "limit", "seconds", "warm, half the limit", "empty cache", "fault"]
    rows = [heading]
    with ThreadPoolExecutor(processes) as pool:
        for found in pool.map(compare, cases()):
            rows += found
    print_table(rows)
    faults = sum(bool(row[-1]) for row in rows[1:])
    print(f"{len(rows) - 1} runs, {faults} with a fault")
    return faults


def warm_up(processes: int) -> int:
    """Warm up an empty cache, and run every case to see what still compiles; the number of such cases."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        begin = time.perf_counter()
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        subprocess.run([sys.executable, "-P", "-m", "oocbe", "warm-up", "--quiet"], env=environment, check=True)
        took = time.perf_counter() - begin
        rows = [["case", "seconds compiling"]]
        with ThreadPoolExecutor(processes) as pool:
            found = list(pool.map(lambda case: (case[0], run(case[1], cache, 20.0)), cases()))
    for name, one in found:
        seconds = one.answer.get("seconds")  # of a command without parts, one number
        spent = seconds.get("compiling", 0.0) if isinstance(seconds, dict) else 0.0
        if spent:
            rows.append([name, f"{spent:.1f}"])
    print_table(rows)
    print(f"warm-up took {took:.1f} s; {len(rows) - 1} of {len(found)} commands compile after it")
    return len(rows) - 1


def install() -> int:
    """Make an environment, install this checkout, and solve the README's example."""
    with tempfile.TemporaryDirectory() as folder:
        copy, environment = Path(folder) / "oocbe", Path(folder) / "environment"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        rows = [["step", "seconds"]]
        plain = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        plain["HOME"] = plain["XDG_CACHE_HOME"] = folder
        for step, command in (
            ("pip install", [f"{environment}/bin/pip", "install", "-q", "-e", str(copy)]),
            ("first solve", [f"{environment}/bin/oocbe", "solve", str(copy / "examples" / "daily.spot")]),
            ("second solve", [f"{environment}/bin/oocbe", "solve", str(copy / "examples" / "daily.spot")]),
        ):
            begin = time.perf_counter()
            subprocess.run(command, env=plain, check=True, stdout=subprocess.DEVNULL)
            rows.append([step, f"{time.perf_counter() - begin:.1f}"])
    print_table(rows)
    return 0


def main() -> None:
    """Measure and print; ends with 1 if a run has a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("install", "limits", "warm-up"))
    parser.add_argument("--processes", type=int, default=1, help="cases at once (default 1)")
    arguments = parser.parse_args()
    print(describe_run())
    measured = {"install": lambda _: install(), "limits": limits, "warm-up": warm_up}
    raise SystemExit(min(1, measured[arguments.what](arguments.processes)))


if __name__ == "__main__":
    main()
