"""toulbar2 in its default mode, and searching along a tree decomposition.

It keeps options and a time limit in global state, counts processor time, and may end the process that asks too much of
it, so each run has a process of its own, ended when the wall clock says so. It reads the problem as a wcsp file, which
is part of the time, as modelling is for the other peers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from oocbe.formats import write
from oocbe.model.problem import Problem

from .result import PeerResult, check_supported, make_result

MODES = ("default", "tree decomposition")
GRACE_SECONDS = 10.0  # for starting, importing, and answering when the limit has passed

# Tree decomposition as in toulbar2's own example script: -B=1 -O=-3, a cluster tree of a min-fill order. Nothing else
# is set, so whatever is on by default, hybrid best-first search among it, stays on. Other settings were not tried.
_WORKER = """
import json, sys, time
import pytoulbar2
path, mode, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
begin, processor = time.perf_counter(), time.process_time()
network = pytoulbar2.CFN()
if mode == "tree decomposition":
    network.Option.btdMode = 1
    network.Option.setVarOrder("-3")
answer = {"assignment": None, "proven": False, "bound": None}
try:
    network.Read(path)
    solution = network.Solve(timeLimit=seconds)
    answer["proven"] = not network.Option.limited  # network.Limit stays None whatever happens
    if solution is not None:
        answer["assignment"] = [int(value) for value in solution[0]]
    answer["bound"] = network.GetDDualBound()
except network.Contradiction:
    answer["proven"] = True
answer["seconds"] = time.perf_counter() - begin
answer["processor"] = time.process_time() - processor
print("\\n" + json.dumps(answer))
"""


def solve(problem: Problem, seconds: float, mode: str = "default") -> PeerResult:
    """Minimise a min-sum problem of integers of at least 0 in one of :data:`MODES`."""
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    name = f"toulbar2, {mode}"
    check_supported(name, problem)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oocbe-peer-") as folder:
        path = Path(folder) / "problem.wcsp"
        write(problem, path)
        written = time.perf_counter() - begin
        answer = run(path, seconds, mode)
    if answer is None:
        return make_result(name, problem, None, False, None, time.perf_counter() - begin)
    assignment, proven, bound = answer["assignment"], answer["proven"], answer["bound"]
    if assignment is not None and not proven and problem.evaluate(assignment) is None:
        assignment = None  # interrupted along the tree: clusters solved so far, the rest as it happened to be
    return make_result(name, problem, assignment, proven, bound, written + answer["seconds"])


def run(path: Path, seconds: float, mode: str) -> dict[str, Any] | None:
    """Have a file solved: ``assignment``, ``proven``, ``bound``, ``seconds`` and, of the processor, ``processor``; None
    where it had to be ended."""
    # The limit inside is in whole seconds of processor time: only a help to end in good order, with bounds.
    command = [sys.executable, "-c", _WORKER, str(path), mode, str(max(1, round(seconds)))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, cwd=path.parent, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"toulbar2, {mode}, ended with {done.returncode} on {path}: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
