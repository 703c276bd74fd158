"""Tasks on SPOT5 instances: counts, optimal counts, the k best, log Z and marginals, each checked against the others.

    python benchmarks/tasks.py                                  # five tasks on six instances
    python benchmarks/tasks.py --instances 503 --tasks count --independent 30
    python benchmarks/tasks.py --markdown                       # rows for RESULTS.md

Every task has a process of its own, which has answered it for the shipped example before. Seconds are wall time from
the problem in memory to the answer, the search for an order included; ``cpu`` is processor time of all cores together.

What is checked: the count against ``peers/path_count.py``, which shares nothing with oocbe, where ``--independent``
gives it time to search for an order; the optimum against ``optima.json``; the k best against ``Problem.evaluate``, one
another and the number of optimal assignments; log Z against the k best from below, and against count and optimum from
above; the marginals of a variable, all assignments weighing alike, against counts with that variable fixed. The exit
code is 1 where any check fails.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import EXAMPLE, data_folder, describe_run, print_table, run_child

INSTANCES = "54,29,404,503,505,42"
TASKS = "count,count-optimal,kbest,logz,marginals"
TIMEOUT_SECONDS = 3600.0
CLOSE = 1e-9
"""How far, relatively, floating point may be off."""

Run = dict[str, Any]


def _settings(task: str, k: int, temperature: float) -> dict[str, Any]:
    """What a task needs besides the problem; marginals weigh all assignments alike."""
    return {"kbest": {"k": k}, "logz": {"temperature": temperature}, "marginals": {"temperature": math.inf}}.get(
        task, {}
    )


def answer(task: str, path: str, k: str, temperature: str) -> Run:
    """In a child: one task on one instance, and what is needed to check it."""
    import oocbe
    from oocbe.api.tasks.verbs import run_task
    from oocbe.runtime.process_memory import peak_memory

    settings = _settings(task, int(k), float(temperature))
    run_task(task, EXAMPLE, **settings)
    problem = oocbe.read(path)
    begin, processor = time.perf_counter(), _processor_seconds()
    result = run_task(task, problem, **settings)
    run: Run = {"seconds": time.perf_counter() - begin, "cpu": _processor_seconds() - processor}
    run |= {"largest": result.largest_message_rows, "rows": result.total_rows, "passes": result.passes}
    run |= {"bytes": peak_memory(), "optimum": result.optimum}
    run["value"] = str(result.value) if result.counts else result.value
    if task == "kbest":
        run["values"] = [value for value, _ in result.assignments]
        run["right"] = all(problem.evaluate(assignment) == value for value, assignment in result.assignments)
        run["distinct"] = len({assignment for _, assignment in result.assignments})
    if task == "marginals":
        run["sums"] = [float(own.sum()) for own in result.marginals]
        variable = max(range(len(problem.variables)), key=lambda v: min(result.marginals[v]))
        run["ratios"] = result.marginals[variable].tolist()
        fixed = [problem.with_evidence({variable: value}) for value in range(problem.sizes[variable])]
        run["counts"] = [str(run_task("count", one).value) for one in fixed]
    return run


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def count_independently(path: str, seconds: str) -> Run:
    """In a child: the count by the independent counter."""
    from peers.path_count import count_assignments, find_order, read_day

    day = read_day(path)
    count, states = count_assignments(day, find_order(day, float(seconds)))
    return {"value": str(count), "states": states}


CHILDREN = {"answer": answer, "count": count_independently}


def check(name: str, runs: dict[str, Run], k: int, temperature: float) -> list[str]:
    """Sentences on what does not hold."""
    facts: list[tuple[bool, str]] = []
    known = _known_optimum(name)
    count = int(runs["count"]["value"]) if "count" in runs else None
    best = runs["count-optimal"]["optimum"] if "count-optimal" in runs else known
    if best is None and "kbest" in runs:
        best = runs["kbest"]["values"][0]  # no other figure to hold it against
    if "independent" in runs and count is not None:
        facts.append((count == int(runs["independent"]["value"]), f"the count is not {runs['independent']['value']}"))
    if "count-optimal" in runs:
        facts.append((known in (None, best), f"the optimum is {known}, not {best}"))
    if "kbest" in runs:
        run = runs["kbest"]
        values = run["values"]
        facts.append((values == sorted(values) and values[:1] == [best], "the k best do not begin with the optimum"))
        facts.append((run["right"] and run["distinct"] == len(values), "the k best are not distinct and right"))
        facts.append((len(values) == (k if count is None else min(k, count)), "the k best are too few"))
        if "count-optimal" in runs:
            optimal = min(k, int(runs["count-optimal"]["value"]))
            facts.append((values.count(best) == optimal, f"{optimal} of the k best must be optimal"))
        if "logz" in runs:
            least = math.log(math.fsum(math.exp((best - v) / temperature) for v in values)) - best / temperature
            slack = CLOSE * abs(least)
            facts.append((runs["logz"]["value"] >= least - slack, "log Z is below that of the k best"))
    if "logz" in runs and count is not None and best is not None:
        most = math.log(count) - best / temperature
        facts.append((runs["logz"]["value"] <= most + CLOSE * abs(most), "log Z is above count times the largest"))
    if "marginals" in runs:
        run = runs["marginals"]
        counts = [int(c) for c in run["counts"]]
        total = sum(counts)
        facts.append((all(abs(s - 1) < CLOSE for s in run["sums"]), "marginals do not sum to 1"))
        facts.append((count in (None, total), "counts with a variable fixed do not sum to the count"))
        close = all(abs(c / total - ratio) < CLOSE for c, ratio in zip(counts, run["ratios"], strict=True))
        facts.append((close, "marginals are not ratios of counts"))
    return [f"{name}: {sentence}" for holds, sentence in facts if not holds]


def _known_optimum(name: str) -> int | None:
    file = data_folder() / "optima.json"
    entry = json.loads(file.read_text()).get(f"spot5/{name}.spot", {}) if file.is_file() else {}
    return entry["minimum"] if entry.get("status") == "optimal" else None


def table_rows(found: dict[str, dict[str, Run]], tasks: Sequence[str]) -> list[list[str]]:
    """Heading and a row a task of an instance."""
    rows = [["instance", "task", "value", "seconds", "cpu", "largest rows", "total rows", "passes", "MiB"]]
    for name, runs in found.items():
        for task in tasks:
            run = runs[task]
            value = f"{run['values'][0]:,} to {run['values'][-1]:,}" if task == "kbest" else ""
            value = value or (f"{run['value']:.6f}" if isinstance(run["value"], float) else str(run["value"]))
            sizes = [f"{run['largest']:,}", f"{run['rows']:,}", str(run["passes"]), f"{run['bytes'] / 2**20:.0f}"]
            rows.append([name, task, value, f"{run['seconds']:.2f}", f"{run['cpu']:.2f}", *sizes])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, check, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", default=INSTANCES, help=f"numbers or paths, by commas (default {INSTANCES})")
    parser.add_argument("--tasks", default=TASKS, help=f"by commas (default {TASKS})")
    parser.add_argument("--k", type=int, default=100, help="assignments of kbest (default 100)")
    parser.add_argument("--temperature", type=float, default=100.0, help="of logz (default 100)")
    parser.add_argument("--independent", type=float, default=0.0, help="seconds for the counter's order (default none)")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print("\n" + json.dumps(CHILDREN[options.child[0]](*options.child[1:])))
        return 0
    tasks = options.tasks.split(",")
    for task in tasks:
        if task not in TASKS.split(","):
            parser.error(f"unknown task {task}; known: {TASKS}")
    found: dict[str, dict[str, Run]] = {}
    wrong: list[str] = []
    for given in options.instances.split(","):
        path = Path(given) if Path(given).is_file() else data_folder() / "spot5" / f"{given}.spot"
        if not path.is_file():
            raise SystemExit(f"no instance {given}: {path} does not exist; set OOCBE_DATA to the folder of instances")
        runs = found.setdefault(path.stem, {})
        for task in tasks:
            print(f"{path.stem} {task} … ", end="", file=sys.stderr, flush=True)
            child = ["answer", task, str(path), str(options.k), str(options.temperature)]
            runs[task] = run_child(__file__, child, TIMEOUT_SECONDS)
            print(" | ".join(table_rows({path.stem: runs}, [task])[1]), file=sys.stderr, flush=True)
        if options.independent > 0 and "count" in tasks:
            runs["independent"] = run_child(__file__, ["count", str(path), str(options.independent)], TIMEOUT_SECONDS)
        wrong += check(path.stem, runs, options.k, options.temperature)
    print_table(table_rows(found, tasks), options.markdown)
    for name, runs in found.items():
        if "independent" in runs:
            print(
                f"\n{name}: the independent counter agrees on the count, with {runs['independent']['states']:,} states"
            )
    print(f"\nk {options.k}, temperature {options.temperature:g}.\n{describe_run()}")
    for sentence in wrong:
        print(f"wrong: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
