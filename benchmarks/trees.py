"""Junction trees of belief networks beside pyAgrum: batches of cases, and single cases with evidence.

    python benchmarks/trees.py                                     # twelve networks
    python benchmarks/trees.py --networks water,munin2 --cases 1000
    python benchmarks/trees.py --markdown                          # rows for RESULTS.md
    python benchmarks/trees.py --backend cuda                      # batches on a device beside the CPU's threads
    LIBDAI_FOLDER=... MERLIN_FOLDER=... python benchmarks/trees.py   # beside libDAI and merlin, too: see README.md

Each network has a process of its own. A case observes 20 variables, others in every case (``mixed``) or the same in all
(``fixed``), and the posteriors of all others are asked for. pyAgrum's lazy propagation, Shafer-Shenoy and variable
elimination answer case by case, with one inference object that is kept; each case of oocbe alone likewise, and a batch
of cases at once. So do libDAI and merlin where they are there, called by programs that count their own time. All run on
one thread, and seconds are processor time, without reading files. Making an inference object, or a tree, is counted
apart; with ``none``, a case that observes nothing, it is part of the case, and there is no batch. Batches repeat the
cases of the data folder until there are as many as asked for.

What is checked: every posterior of the first cases against those of all others to 10^-6 (pyAgrum's numbers of files
pass through float32), and the batch against single cases to 10^-10. The exit code is 1 where any differs.

With ``--backend cuda`` pyAgrum has no part: batches of the same cases are answered on the device and by all threads of
the CPU, in wall time from the call to the arrays of posteriors in main memory, the median of three calls after one that
uploads the tree. Cases are given as an array of value indices, and as the dictionaries of the other benchmark. Every
posterior of the CPU's cases is compared, to 10^-10.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measuring import data_folder, describe_run, print_table, run_child
from peers.clique_trees import known_folders, peer_answers, programs

from oocbe.model.names import value_index
from oocbe.model.problem import Problem

NETWORKS = "alarm,hailfinder,water,mildew,andes,pigs,diabetes,munin1,munin2,munin3,munin4,barley"
CASES = {
    "alarm": 20_000,
    "hailfinder": 20_000,
    "water": 20_000,
    "mildew": 2_000,
    "andes": 2_000,
    "barley": 2_000,
} | dict.fromkeys(("munin1", "munin4"), 64)
"""Cases of a batch, so that it takes about a second; 640 of networks that are not named."""

DEVICE_CASES = {
    "alarm": 200_000,
    "hailfinder": 200_000,
    "water": 200_000,
    "diabetes": 8_000,
    "munin1": 256,
    "munin4": 2_000,
}
"""Cases of a batch on a device; 20,000 of networks that are not named."""

ENGINES = {"lazy": "LazyPropagation", "shafer": "ShaferShenoyInference", "elimination": "VariableElimination"}
CLOSE_TO_PEERS, CLOSE = 1e-6, 1e-10
ENGINE_SECONDS = 20.0
"""After so long an engine gets no further case."""

PEER_SECONDS = 300.0
"""After so long a program over another library is ended."""

TIMEOUT_SECONDS = 3600.0

Case = dict[str, str]
Posteriors = dict[str, list[float]]


def measured(name: str, kind: str, count: str) -> dict[str, Any]:
    """In a child: one network and one kind of cases, with a batch of ``count``, or none of 0."""
    import oocbe

    path, cases = _instance(name, kind)
    problem = oocbe.read(path)
    small = oocbe.JunctionTree(oocbe.read(data_folder() / "bif" / "asia.bif.gz"))
    small.batch([{}])  # load what is compiled
    small.calibrate()
    begin = time.process_time()
    tree = oocbe.JunctionTree(problem)
    found: dict[str, Any] = {"compile": time.process_time() - begin}
    names = [v.name for v in problem.variables]

    def ask(case: Case) -> Posteriors:
        tree.retract()
        tree.observe(case)
        tree.calibrate()
        return {v: tree.marginal(v).tolist() for v in names}

    if kind != "none":
        ask(cases[-1])
    found["single"], answers = _timed(ask, cases)
    found["single"] += found["compile"] if kind == "none" else 0.0
    if int(count) and kind != "none":
        many = [cases[i % len(cases)] for i in range(int(count))]
        tree.batch(many[:8])
        begin = time.process_time()
        batch = tree.batch(many)
        found["batch"] = len(many) / (time.process_time() - begin)
        found["difference"] = max(
            abs(x - float(y))
            for i, answer in enumerate(answers)
            for v in names
            for x, y in zip(answer[v], batch.marginals[v][i], strict=True)
        )
        found["rows"] = tree.rows
    found["engines"] = _agrum(path, kind, cases, answers) | _peers(problem, kind, cases, answers)
    return found


def measured_on_device(name: str, kind: str, count: str) -> dict[str, Any]:
    """In a child: one network and one kind of cases, on the device and on all threads of the CPU."""
    import numpy as np

    import oocbe
    from oocbe.junction_trees.evidence import cases_of

    path, cases = _instance(name, kind)
    problem = oocbe.read(path)
    small = oocbe.read(data_folder() / "bif" / "asia.bif.gz")
    for backend in ("cpu", "cuda"):
        oocbe.JunctionTree(small, backend=backend).batch([{}] * 300)  # load what is compiled
    tree = oocbe.JunctionTree(problem, backend="cuda")
    order = [problem.variables[v].name for v in tree._tree.order]
    on_cpu = oocbe.JunctionTree(problem, order, backend="cpu")
    many = [cases[i % len(cases)] for i in range(int(count))]
    codes = cases_of(problem, cases).observed[np.arange(len(many)) % len(cases)]

    def timed(tree: Any, given: Any, calls: int) -> tuple[float, Any]:
        seconds = []
        for _ in range(calls):
            begin = time.perf_counter()
            answers = tree.batch(given)
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds), answers

    first, _ = timed(tree, codes, 1)
    device, batch = timed(tree, codes, 3)
    dictionaries, _ = timed(tree, many, 1)
    few = codes[: CASES.get(name, 640)]
    timed(on_cpu, few, 1)
    cpu, expected = timed(on_cpu, few, 1)
    worst = max(float(np.abs(batch.marginals[v][: len(few)] - own).max()) for v, own in expected.marginals.items())
    logarithms = np.abs(batch.log_evidence[: len(few)] - expected.log_evidence)
    agree = bool((batch.status[: len(few)] == expected.status).all())
    return {
        "rows": tree.rows,
        "cases": len(many),
        "first": first,
        "device": len(many) / device,
        "dictionaries": len(many) / dictionaries,
        "cpu": len(few) / cpu,
        "difference": worst if agree else math.inf,
        "logarithms": float(logarithms[expected.log_evidence > -math.inf].max(initial=0.0)),
    }


def _instance(name: str, kind: str) -> tuple[Path, list[Case]]:
    """A network's file, and its cases."""
    if kind == "none":
        return data_folder() / "bif" / f"{name}.bif.gz", [{}]
    with gzip.open(data_folder() / "evidence" / f"{name}.{'20' if kind == 'mixed' else kind}.json.gz", "rt") as file:
        return data_folder() / "bif" / f"{name}.bif.gz", json.load(file)


def _timed(ask: Callable[[Case], Posteriors], cases: Sequence[Case]) -> tuple[float, list[Posteriors]]:
    """Median processor seconds a case, and the answers, of as many cases as there is time for."""
    seconds, answers = [], []
    for case in cases[:10]:
        begin = time.process_time()
        answers.append(ask(case))
        seconds.append(time.process_time() - begin)
        if sum(seconds) > ENGINE_SECONDS:
            break
    return statistics.median(seconds), answers


def _agrum(path: Path, kind: str, cases: Sequence[Case], answers: Sequence[Posteriors]) -> dict[str, Any]:
    """What each of pyAgrum's engines takes for a case, and how far its posteriors are from ours."""
    import pyagrum as gum

    gum.setNumberOfThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "network.bif"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        network = gum.loadBN(str(plain))
    found = {}
    for short, name in ENGINES.items():
        engine = getattr(gum, name)(network)

        def ask(case: Case, name: str = name, kept: Any = engine) -> Posteriors:
            engine = getattr(gum, name)(network) if kind == "none" else kept
            engine.eraseAllEvidence()
            engine.setEvidence(case)
            engine.makeInference()
            return {v: engine.posterior(v).tolist() for v in network.names() if v not in case}

        seconds, theirs = _timed(ask, cases)
        found[short] = {"single": seconds, "difference": _farthest(answers, theirs)}
    return found


def _peers(problem: Problem, kind: str, cases: Sequence[Case], answers: Sequence[Posteriors]) -> dict[str, Any]:
    """The same of libDAI and merlin where they are there, each at its quickest; infinite where it gave no answer."""
    place = {v.name: index for index, v in enumerate(problem.variables)}
    observed = [
        [(place[name], value_index(problem.variables[place[name]], label)) for name, label in case.items()]
        for case in cases[:10]
    ]
    found: dict[str, Any] = {}
    for name, theirs in peer_answers(problem, observed, ENGINE_SECONDS, PEER_SECONDS):
        best = found.setdefault(name, {"single": math.inf, "difference": 0.0})
        if theirs is None:
            continue
        seconds = statistics.median(theirs.seconds) + (theirs.making if kind == "none" else 0.0)
        named = [{v: given.tolist() for v, given in zip(place, case, strict=True)} for case in theirs.posteriors]
        best["difference"] = max(best["difference"], _farthest(answers, named))
        if seconds < best["single"]:
            best |= {"single": seconds, "variant": theirs.variant, "compile": theirs.making}
    return found


def _farthest(answers: Sequence[Posteriors], theirs: Sequence[Posteriors]) -> float:
    """The largest difference between posteriors of the cases that both have answered; NaN is infinitely far."""
    differences = (
        abs(x - y)
        for own, their in zip(answers, theirs, strict=False)
        for v in their
        for x, y in zip(own[v], their[v], strict=True)
    )
    return max(math.inf if math.isnan(d) else d for d in differences)


def _row(name: str, kind: str, found: dict[str, Any]) -> list[str]:
    engines = found["engines"]
    best = min(e["single"] for e in engines.values())
    return [
        name,
        kind,
        f"{found['rows']:,}" if "rows" in found else "",
        f"{found['compile']:.2f}",
        f"{found['batch']:,.0f}" if "batch" in found else "",
        f"{found['batch'] * best:,.1f}" if "batch" in found else "",
        f"{1000 * found['single']:.2f}",
        *(f"{1000 * e['single']:.2f}" for e in engines.values()),
        f"{best / found['single']:.2f}",
    ]


def _compare_with_device(arguments: argparse.Namespace) -> int:
    """Batches on the device beside the CPU's; returns the exit code."""
    head = ["network", "cases", "rows", "batch", "first s", "device cases/s", "dictionaries", "cpu cases/s", "× cpu"]
    rows, wrong = [[*head, "difference"]], []
    for name in arguments.networks.split(","):
        for kind in arguments.kinds.split(","):
            count = arguments.cases or DEVICE_CASES.get(name, 20_000)
            found = run_child(__file__, ["cuda", name, kind, str(count)], TIMEOUT_SECONDS)
            speeds = (found["device"], found["dictionaries"], found["cpu"])
            rows.append(
                [name, kind, f"{found['rows']:,}", f"{found['cases']:,}", f"{found['first']:.2f}"]
                + [f"{speed:,.0f}" for speed in speeds]
                + [f"{found['device'] / found['cpu']:.1f}", f"{found['difference']:.0e}"]
            )
            if not max(found["difference"], found["logarithms"]) <= CLOSE:
                wrong.append(
                    f"{name} {kind}: differs by {found['difference']:.1e}, {found['logarithms']:.1e} in logarithms"
                )
    print_table(rows, arguments.markdown)
    print(describe_run(["cupy-cuda12x", "cupy-cuda13x"]))
    for line in wrong:
        print(f"WRONG {line}")
    return int(bool(wrong))


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--kinds", default="mixed,fixed", help="of cases: mixed, fixed, none")
    parser.add_argument("--no-batch", action="store_true", help="single cases alone")
    parser.add_argument("--cases", type=int, default=0, help="of a batch; 0: as many as take about a second")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    if arguments.backend == "cuda":
        return _compare_with_device(arguments)
    with programs():
        return _compare(arguments)


def _compare(arguments: argparse.Namespace) -> int:
    """Trees beside all engines that are there; returns the exit code."""
    os.environ["OOCBE_THREADS"] = "1"
    engines = [*ENGINES, *known_folders()]
    rows = [["network", "cases", "rows", "compile s", "batch cases/s", "× best", "single ms", *engines, "best / ours"]]
    ratios, wrong, not_slower, asked = [], [], 0, 0
    for name in arguments.networks.split(","):
        for kind in arguments.kinds.split(","):
            count = 0 if arguments.no_batch else arguments.cases or CASES.get(name, 640)
            found = run_child(__file__, [name, kind, str(count)], TIMEOUT_SECONDS)
            rows.append(_row(name, kind, found))
            print(*rows[-1], flush=True)
            best = min(e["single"] for e in found["engines"].values())
            asked += 1
            not_slower += found["single"] <= best
            if "batch" in found:
                ratios.append(found["batch"] * best)
                if found["difference"] > CLOSE:
                    wrong.append(f"{name} {kind}: batch and single cases differ by {found['difference']:.1e}")
            for engine, theirs in found["engines"].items():
                if theirs["difference"] > CLOSE_TO_PEERS:
                    wrong.append(f"{name} {kind}: {engine} differs by {theirs['difference']:.1e}")
    print_table(rows, arguments.markdown)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"batches: {mean:.1f} times the best of all in the geometric mean, {min(ratios):.1f} at least")
    print(f"single cases: not slower than the best of {', '.join(engines)} in {not_slower} of {asked}")
    print(describe_run(["pyAgrum"]))
    for line in wrong:
        print(f"WRONG {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child = measured_on_device if sys.argv[2] == "cuda" else measured
        print(json.dumps(child(*sys.argv[3 if sys.argv[2] == "cuda" else 2 :])))
    else:
        sys.exit(main())
