"""Schedules of agile satellites (AEOSSP): proven optima of the conflict graphs that AstroReason's own solver makes.

    python benchmarks/aeossp.py --folder ASTROREASON --python PYTHON [--split test_easy] [--seconds 60]
        [--graphs FOLDER]

ASTROREASON is a checkout of https://github.com/Mtrya/astro-reason, PYTHON an interpreter with its dependency ``brahe``.
Its solver ``mwis_conflict_graph`` lists the times at which a satellite can begin each task, and their conflicts, which
takes minutes a case; ``--graphs`` keeps them. A task is a variable: none, or one of its times. The sum of the weights
of tasks without a time is minimised. The schedule is checked by the benchmark's own verifier, which knows batteries,
as the conflicts do not: where one runs empty, its satellite loses the least of the observations before, until the
verifier accepts the schedule. Without batteries, the bound is a bound all the same. Reported: tasks, times, weight of
the tasks left out by the solve and its bound, seconds of the solve, observations lost to batteries, weight left out
with them, the share of the weight that the verifier counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measuring import describe_run, print_table

import oocbe

SOLVER, CASES = "solvers/aeossp_standard/mwis_conflict_graph", "benchmarks/aeossp_standard/dataset/cases"

GRAPH = """
import json, sys
from pathlib import Path
import numpy as np
from src.candidates import CandidateConfig, generate_candidates
from src.case_io import load_case
from src.graph import GraphBuildConfig, build_conflict_graph
case, workers = load_case(Path(sys.argv[1])), int(sys.argv[3])
times, _ = generate_candidates(case, CandidateConfig.from_mapping({"candidate_workers": workers}))
graph = build_conflict_graph(case, times, GraphBuildConfig.from_mapping({"graph_workers": workers}))
number = {time.candidate_id: i for i, time in enumerate(times)}
pairs = [(number[a], number[b]) for a, others in graph.adjacency.items() for b in others if number[a] < number[b]]
edges = [(a, b) for a, b in pairs if times[a].task_id != times[b].task_id]
tasks = case.tasks.values() if isinstance(case.tasks, dict) else case.tasks
np.savez_compressed(
    sys.argv[2],
    edges=np.array(edges, dtype=np.int32).reshape(-1, 2),
    candidates=json.dumps([time.as_dict() for time in times]),
    weights=json.dumps({task.task_id: task.weight for task in tasks}),
)
"""
"""Program of the other interpreter: a case's times, their conflicts but for those of one task, and weights of tasks."""

WEIGHT_UNIT = 0.5
"""Weights of tasks are multiples of it."""

RECENT = 20
"""Observations before a battery runs empty among which one is left out: earlier ones were made up for by the sun."""


def graph_of(case: Path, stored: Path, python: str, folder: Path) -> tuple[list[dict[str, Any]], Any, dict[str, float]]:
    """Times, conflicts (pairs, 2) and weights of a case."""
    if not stored.exists():
        command = [python, "-c", GRAPH, str(case), str(stored), str(os.cpu_count())]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(folder / SOLVER)})
    with np.load(stored) as found:
        return json.loads(str(found["candidates"])), found["edges"], json.loads(str(found["weights"]))


def problem_of(
    name: str, times: list[dict[str, Any]], edges: Any, weights: dict[str, float]
) -> tuple[oocbe.Problem, list[list[int]]]:
    """The problem, and the times of each of its tasks' values from 1 on; value 0 is none."""
    tasks = sorted(weights)
    number = {task: v for v, task in enumerate(tasks)}
    own: list[list[int]] = [[] for _ in tasks]
    place = []
    for i, time in enumerate(times):
        v = number[time["task_id"]]
        own[v].append(i)
        place.append((v, len(own[v])))
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in edges.tolist():
        (u, x), (v, y) = sorted((place[a], place[b]))
        pairs.setdefault((u, v), []).append((x, y))
    problem = oocbe.Problem(
        tuple(oocbe.Variable(task, 1 + len(own[v])) for task, v in number.items()),
        tuple(
            oocbe.Function.from_array((v,), [round(weights[task] / WEIGHT_UNIT), *[0] * len(own[v])])
            for task, v in number.items()
        ),
        tuple(oocbe.Constraint(scope, np.array(rows)) for scope, rows in pairs.items()),
        name=name,
    )
    return problem, own


def verified(actions: list[dict[str, Any]], case: Path, python: str, folder: Path) -> dict[str, Any]:
    """The report of the benchmark's own verifier."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "solution.json")
        path.write_text(json.dumps({"actions": actions}))
        command = [python, "-m", "benchmarks.aeossp_standard.verifier.run", str(case), str(path)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def accepted(
    chosen: list[dict[str, Any]], weights: dict[str, float], case: Path, python: str, folder: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The observations that are left when no battery runs empty, and the verifier's report of them."""
    fields = ("satellite_id", "task_id", "start_time", "end_time")
    while True:
        actions = [{"type": "observation"} | {name: time[name] for name in fields} for time in chosen]
        report = verified(actions, case, python, folder)
        failures = [f for f in report["diagnostics"]["action_failures"] if f["stage"] == "battery"]
        if report["valid"] or not failures:
            return chosen, report
        for failure in failures:
            own = [time for time in chosen if time["satellite_id"] == failure["satellite_id"]]
            before = [time for time in own if time["start_time"] <= failure["time"]]
            recent = sorted(before, key=lambda time: str(time["start_time"]))[-RECENT:]
            if not recent:
                raise SystemExit(f"{case.name}: a battery runs empty without an observation before: {failure}")
            least = min(recent, key=lambda time: weights[time["task_id"]])
            chosen = [time for time in chosen if time is not least]


def main() -> None:
    """Solve the cases of a split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="checkout of astro-reason")
    parser.add_argument("--python", required=True, help="interpreter that has brahe")
    parser.add_argument("--split", default="test_easy")
    parser.add_argument("--only", nargs="+", help="names of cases")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of a solve")
    parser.add_argument("--graphs", type=Path, help="folder that keeps times and conflicts")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    graphs = arguments.graphs or Path(tempfile.mkdtemp())
    folder, rows = arguments.folder.resolve(), []
    for case in sorted((folder / CASES / arguments.split).iterdir()):
        if arguments.only and case.name not in arguments.only:
            continue
        stored = graphs / f"{arguments.split}_{case.name}.npz"
        times, edges, weights = graph_of(case, stored, arguments.python, folder)
        problem, own = problem_of(case.name, times, edges, weights)
        result = oocbe.solve(problem, time_limit=arguments.seconds)
        assert result.assignment is not None and result.value is not None
        chosen = [times[own[v][x - 1]] for v, x in enumerate(result.assignment) if x]
        kept, report = accepted(chosen, weights, case, arguments.python, folder)
        bound = result.value if result.bound is None else result.bound
        left_out = sum(weights.values()) - sum(weights[time["task_id"]] for time in kept)
        rows.append(
            [
                case.name, str(len(weights)), f"{len(times):,}",
                f"{result.value * WEIGHT_UNIT:g}", f"{bound * WEIGHT_UNIT:g}",
                f"{result.seconds['total']:.1f}" if result.status == "optimal" else "limit",
                str(len(chosen) - len(kept)), f"{left_out:g}",
                f"{report['metrics']['WCR']:.4f}" if report["valid"] else "refused",
            ]
        )  # fmt: skip
    heading = ["case", "tasks", "times", "weight left out", "bound", "s", "lost to batteries"]
    heading += ["weight left out in all", "verified share of the weight"]
    print_table([heading, *rows], arguments.markdown)
    if not arguments.markdown:
        print(describe_run())


if __name__ == "__main__":
    main()
