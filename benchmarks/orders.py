"""Elimination orders beside other programs after equal time: widths, and predicted rows.

    FLOW_CUTTER=flow_cutter_pace17 TAMAKI=PACE2017-TrackA HTD=htd_main COTENGRA_PYTHON=PYTHON \\
        python benchmarks/orders.py --seconds 1,10
    python benchmarks/orders.py --instances "treewidth/ex0[0-2]*,uai2014/PR/*"    # patterns within the data folder
    python benchmarks/orders.py --markdown                                        # rows for results/orders.json

Each program has a process of its own, and as many processor seconds (``OOCBE_THREADS`` of 1 is one thread for ours).
FlowCutter, tamaki's heuristic and htd read the primal graph and print tree decompositions once they are asked to end;
cotengra's hyper-optimiser (of hypergraph partitions and greedy trees) gives a contraction tree of the functions. Peers
whose environment variable is not set are left out. An elimination order of each decomposition is judged as ours are:
its width, and the logarithm (to base 2) of the predicted rows of all messages. Of graphs (``.gr``), every variable has
two values. Hypergraph peers get ``.gr`` graphs as functions of two variables.

The exit code is 1 if the width of ours exceeds the best peer's by more than one and our logarithm the best peer's by
more than 5 %.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
from measuring import data_folder, describe_run, instances, print_table, run_child

FAMILIES = (
    "treewidth/*.gr.gz",
    *("spot5/*.spot", "wcsp/*/*.wcsp", "wcsp/*/*.xz", "bif/*.gz", "uai/*/*.gz"),
    *("uai2014/PR/*.uai", "uai2014/PR/*.uai.gz", "uai2014/MMAP/*.uai*", "mc2022/*.cnf.gz"),
)


class ProcessorDeadline:
    """In place of a deadline: its flag is set after so many processor seconds of this process."""

    def __init__(self, seconds: float | None = None) -> None:
        self.flag, self._end = np.zeros(1, dtype=np.int64), time.process_time() + (seconds or math.inf)
        self._closed = Event()
        if seconds is not None:
            Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.wait(0.01):
            self.flag[0] = time.process_time() > self._end

    remaining = math.inf

    def check(self) -> None:
        """Searches end by themselves."""

    def close(self) -> None:
        """End the watch."""
        self._closed.set()


COTENGRA = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import cotengra
scopes, sizes, seconds, seed = json.load(sys.stdin)
optimiser = cotengra.HyperOptimizer(methods=["greedy", "kahypar"], minimize="write", max_time=seconds, parallel=False,
    max_repeats=10**9, progbar=False, optlib="random", simulated_annealing_opts=None, reconf_opts={})
names = {str(v): s for v, s in enumerate(sizes)}
tree = optimiser.search([tuple(map(str, s)) for s in scopes], (), names)
bags, edges = {}, []
for parent, left, right in tree.traverse():
    bags[parent] = set(tree.get_legs(left)) | set(tree.get_legs(right))
    edges += [(parent, left), (parent, right)]
for leaf in tree.gen_leaves():
    bags[leaf] = set(map(str, scopes[min(leaf)]))
number = {node: i for i, node in enumerate(bags, 1)}
for node, bag in bags.items():
    print("b", number[node], *(int(v) + 1 for v in bag))
for one, other in edges:
    print(number[one], number[other])
"""


def text_of(path: Path) -> str:
    """The text of a ``.gr`` file, packed or not."""
    data = path.read_bytes()
    return (
        gzip.decompress(data) if path.suffix == ".gz" else lzma.decompress(data) if path.suffix == ".xz" else data
    ).decode()


def problem_of(path: Path) -> Any:
    """The problem of a file; of a graph, functions of pairs of variables of two values."""
    import oocbe
    from oocbe.model.parts import Function, Variable
    from oocbe.model.problem import Problem

    if not fnmatch(path.name, "*.gr*"):
        return oocbe.read(path)
    lines = [line.split() for line in text_of(path).splitlines() if line and line[0] != "c"]
    count = int(next(words[2] for words in lines if words[0] == "p"))
    edges = [(int(u) - 1, int(v) - 1) for u, v in (words for words in lines if words[0] != "p")]
    functions = tuple(Function.from_array(edge, [[0, 1], [1, 0]]) for edge in edges)
    return Problem(tuple(Variable(f"x{i}", 2) for i in range(count)), functions, name=path.name)


def judged(graph: Any, order: Any, seed: int) -> dict[str, float]:
    """Width, and logarithm of the predicted rows, of an order."""
    from oocbe.errors import ResourceError
    from oocbe.model.settings.tuning import tuning

    try:
        width = graph.separators(np.array(order)).width
    except ResourceError:
        return {"width": math.inf, "rows": math.inf}
    return {"width": width, "rows": math.log2(max(1.0, graph.work(np.array(order), tuning().final_probes, seed)))}


def used(pid: int) -> float:
    """Processor seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def printed(command: list[str], text: str, seconds: float, folder: Path | None = None) -> str:
    """What a program prints that is asked to end after so many processor seconds."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out:
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=out, stderr=subprocess.DEVNULL, cwd=folder)
        begin = time.monotonic()
        while process.poll() is None and used(process.pid) < seconds and time.monotonic() < begin + 10 * seconds + 10:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20 + seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        out.seek(0)
        return out.read()


def peers_of(graph: Any, problem: Any, seconds: float, seed: int) -> dict[str, Any]:
    """Orders of the peers whose environment variables are set; None: no decomposition."""
    from oocbe.elimination.orders.order import graph_text, order_of
    from oocbe.elimination.preparation.prepare import scopes_of

    text, answers = graph_text(graph), {}
    if program := os.environ.get("FLOW_CUTTER"):
        answers["FlowCutter"] = printed([program, "-s", str(seed)], text, seconds)
    if program := os.environ.get("TAMAKI"):
        java = ["java", "-XX:+UseSerialGC", "-Xmx4g", "-Xss512m", "tw.heuristic.MainDecomposer", "-s", str(seed)]
        answers["tamaki"] = printed(java, text, seconds, Path(program))
    if program := os.environ.get("HTD"):
        options = ["-s", str(seed), "--opt", "width", "--iterations", "0", "--patience", "-1"]
        answers["htd"] = printed([program, *options], text, seconds)
    if program := os.environ.get("COTENGRA_PYTHON"):
        scopes = [s for s in map(list, scopes_of(problem)) if s]
        given = json.dumps([scopes, graph.sizes.tolist(), seconds, seed])
        answers["cotengra"] = printed([program, "-c", COTENGRA], given, seconds + 20)
    orders: dict[str, Any] = {}
    for name, answer in answers.items():
        try:
            orders[name] = order_of(answer, len(graph.sizes))[0]
        except (ValueError, IndexError):
            orders[name] = None
    return orders


def child(path: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Width, predicted rows and processor seconds of ours, and the same of the peers' orders."""
    from oocbe.elimination.orders import order as orders
    from oocbe.elimination.orders.primal_graph import PrimalGraph

    problem = problem_of(path)
    graph = PrimalGraph(problem)
    if len(graph.sizes) == 0:
        return {"variables": 0}
    orders.search_orders(problem, "auto", 0.0, seed)  # so that nothing is compiled later
    orders.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]
    orders.Deadline = ProcessorDeadline  # type: ignore[misc,assignment]
    begin = time.process_time()
    best = orders.search_orders(problem, "auto", seconds, seed, longest=seconds)[0]
    own = {"seconds": time.process_time() - begin, "heuristic": best.heuristic, "tries": best.candidates}
    result: dict[str, Any] = {"variables": len(graph.sizes), "edges": len(graph.neighbours) // 2}
    result["oocbe"] = own | judged(graph, best.order, seed + 7)
    for name, order in peers_of(graph, problem, seconds, seed).items():
        result[name] = {"width": math.inf, "rows": math.inf} if order is None else judged(graph, order, seed + 7)
    return result


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", help="comma-separated patterns within the data folder")
    parser.add_argument("--every", type=int, default=1, help="only each n-th instance")
    parser.add_argument("--seconds", default="1", help="comma-separated processor seconds of each program")
    parser.add_argument("--jobs", type=int, default=1, help="measurements at a time, those of the longest time first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="print the rows of the table")
    parser.add_argument("--child", nargs=3, metavar="TEXT", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.child:
        path, seconds, seed = settings.child
        print(json.dumps(child(Path(path), float(seconds), int(seed))))
        return 0
    table, losses = [], 0
    names = ["oocbe", "FlowCutter", "tamaki", "htd", "cotengra"]
    times = sorted(map(float, settings.seconds.split(",")))
    runs = [(path, seconds) for path in instances(settings.instances, FAMILIES)[:: settings.every] for seconds in times]

    def measured(run: tuple[Path, float]) -> dict[str, Any]:
        try:
            found = run_child(__file__, [str(run[0]), f"{run[1]:g}", str(settings.seed)])
        except RuntimeError as error:
            found = {"variables": 0, "error": str(error)[-200:]}
        print(f"{run[0].name} {run[1]:g} s: {found}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(settings.jobs) as pool:
        longest_first = sorted(runs, key=lambda run: -run[1])
        found = dict(zip(longest_first, pool.map(measured, longest_first), strict=True))
    for path, seconds in runs:
        row = found[path, seconds]
        if not row["variables"]:
            continue
        own, *others = (row.get(name, {"width": math.inf, "rows": math.inf}) for name in names)
        widest = own["width"] > min(o["width"] for o in others) + 1
        dearest = own["rows"] > 1.05 * min(o["rows"] for o in others)
        losses += widest and dearest
        cells = [f"{row[n]['width']:g}, {row[n]['rows']:.1f}" if n in row else "" for n in names]
        flags = " width" * widest + " rows" * dearest
        table.append([str(path.relative_to(data_folder())), f"{row['variables']:,}", f"{seconds:g}", *cells, flags])
    print_table([["instance", "variables", "s", *names, "behind"], *table], settings.markdown)
    print(describe_run(), file=sys.stderr if settings.markdown else sys.stdout)
    return int(losses > 0)


if __name__ == "__main__":
    sys.exit(main())
