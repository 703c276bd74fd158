"""Agents (DPOP) on the instances of Fioretto et al.'s families and, by width, beside the paper's tables 1 to 3.

    python benchmarks/agents.py                               # all of the data folder, beside oocbe.solve
    python benchmarks/agents.py --widths --seeds 20           # random, scale-free networks and grids, grouped by width
    python benchmarks/agents.py --widths --tightness 0 --backend cuda --largest 7
    python benchmarks/agents.py --markdown                    # rows for RESULTS.md
    PYDCOP_PYTHON=PYTHON python benchmarks/agents.py --peer    # beside pyDcop, where that interpreter has it

The paper's own generator does not give the widths that its tables print (a grid of side 10 has width 10, not 4.0), so
networks are grouped by the width of our pseudo-tree and stand beside the rows of the paper whose w* rounds to it.
Simulated seconds are by the paper's definition: each agent a clock, a message carries it. Times of the paper are of its
own machine. What is checked: every value against the known optimum or ``oocbe.solve``, that messages are one a tree
edge, and that ADPOP's bound is on the right side. The exit code is 1 where any of it is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from measuring import data_folder, describe_run, print_table, run_timed
from published import TABLES, Setting

import oocbe
from oocbe.dcop import Dcop, DcopResult, adpop, dpop, pseudo_tree, read_dcop
from oocbe.model.problem import Problem
from oocbe.stress import grid_network, random_network, scale_free_network

FAMILIES = {"random": 1, "scale-free": 2, "grid": 3}
"""The paper's table of each family."""


@dataclass
class OfWidth:
    """What was measured of the networks of one family and width."""

    simulated: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    solved: list[float] = field(default_factory=list)


def complaints(name: str, result: DcopResult, bounded: DcopResult | None, known: float | None) -> Iterator[str]:
    """What is wrong with the answers, a line each; ``known`` is the optimum, None where nothing is feasible."""
    found = result.metrics
    if result.value != known:
        yield f"{name}: the agents' value is {result.value}, the optimum {known}"
    if found.util_messages != found.variables - found.trees:
        yield f"{name}: {found.util_messages} messages for {found.variables} variables in {found.trees} trees"
    if bounded is not None and known is not None and bounded.bound is not None and bounded.bound > known:
        yield f"{name}: ADPOP's bound {bounded.bound} is above the optimum {known}"


def instances(given: argparse.Namespace) -> bool:
    """Measure the data folder's instances; whether all is right."""
    folder = data_folder() / "dcop"
    if not (folder / "optima.json").exists():
        print(f"no instances in {folder}: set OOCBE_DATA", file=sys.stderr)
        return True
    known = json.loads((folder / "optima.json").read_text())
    title = ["instance", "w*", "messages", "largest: cells", "rows", "simulated", "work", f"ADPOP({given.z})", "solve"]
    table, wrong = [title], []
    for name in sorted(name for name in known if (folder / "paper" / f"{name}.xml.gz").exists()):
        dcop = read_dcop(folder / "paper" / f"{name}.xml.gz")
        result = best_of(given.repeat, dcop, given.backend)
        bounded = adpop(dcop, given.z, backend=given.backend)
        seconds, solved = solve(dcop.problem, given.backend)
        wrong += complaints(name, result, bounded, known[name]["minimum"])
        if solved != known[name]["minimum"]:
            wrong.append(f"{name}: solve finds {solved}")
        found = result.metrics
        largest = found.largest_message
        table.append(
            [
                name,
                str(found.width),
                str(found.util_messages),
                "" if largest is None else f"{largest.cells:,}",
                "" if largest is None else f"{largest.rows:,}",
                f"{found.simulated_seconds:.3f}",
                f"{found.work_seconds:.3f}",
                f"{bounded.bound} .. {'–' if bounded.value is None else bounded.value}",
                f"{seconds:.3f}",
            ]
        )
    print_table(table, given.markdown)
    print("\n".join(wrong) or "all values are optimal, messages n - 1, bounds not above")
    return not wrong


PEER = Path(__file__).parent / "peers" / "pydcop_agents.py"
PEER_SECONDS = 30.0
"""After so long pyDcop is ended."""


def beside_pydcop(given: argparse.Namespace) -> bool:
    """Measure small instances beside pyDcop, in processor seconds without start and reading; whether values agree."""
    interpreter = os.environ.get("PYDCOP_PYTHON")
    if not interpreter:
        print("PYDCOP_PYTHON names no interpreter that has pyDcop", file=sys.stderr)
        return False
    table, wrong = [["instance", "agents", "w*", "oocbe ms", "pyDcop ms", "ratio"]], []
    for path in sorted((data_folder() / "dcop" / "paper").glob("*.yaml.gz")):
        dcop = read_dcop(path.with_suffix("").with_suffix(".xml.gz"))
        if len(dcop.problem.variables) > given.most:
            continue
        taken = []
        for _ in range(max(3, given.repeat)):
            begin = time.process_time()
            result = dpop(dcop, backend=given.backend)
            taken.append(time.process_time() - begin)
        try:
            done, _ = run_timed([interpreter, str(PEER), str(path)], PEER_SECONDS)
            theirs = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        except subprocess.TimeoutExpired:
            theirs = None
        if theirs is not None and result.value is not None and theirs["cost"] != result.value:
            wrong.append(f"{path.name}: pyDcop's value is {theirs['cost']}, ours {result.value}")
        table.append(
            [
                path.name.removesuffix(".yaml.gz"),
                str(len(dcop.problem.variables)),
                str(result.metrics.width),
                f"{1e3 * median(taken):.2f}",
                "–" if theirs is None else f"{1e3 * theirs['seconds']:,.1f}",
                "" if theirs is None else f"{theirs['seconds'] / median(taken):,.0f}",
            ]
        )
    print_table(table, given.markdown)
    print("\n".join(wrong) or "all values are equal")
    return not wrong


def best_of(repeat: int, dcop: Dcop, backend: str) -> DcopResult:
    """The run with the least simulated time: a busy machine adds to it, nothing takes from it."""
    return min((dpop(dcop, backend=backend) for _ in range(repeat)), key=lambda r: r.metrics.simulated_seconds)


def solve(problem: Problem, backend: str) -> tuple[float, float | None]:
    """Seconds and value of the complete solver, which knows everything at once."""
    begin = time.perf_counter()
    result = oocbe.solve(problem, backend=backend)
    return time.perf_counter() - begin, result.value


def networks(given: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Networks of the paper's parameters: n and d grow within each family, seed by seed."""
    for seed in range(given.seeds):
        for n in range(10, 21):
            yield "random", random_network(n, given.domain, 0.3, given.tightness, seed)
        for n in range(10, 21):
            yield "scale-free", scale_free_network(n, given.domain, given.tightness, seed)
        for side in range(3, 9):
            yield "grid", grid_network(side, given.domain, given.tightness, seed)


def widths(given: argparse.Namespace) -> bool:
    """Measure networks by width beside the paper's tables; whether all is right."""
    groups: dict[tuple[str, int], OfWidth] = defaultdict(OfWidth)
    wrong: list[str] = []
    for family, problem in networks(given):
        tree = pseudo_tree(problem)
        group = groups[family, tree.width]
        if tree.width > given.largest or len(group.simulated) >= given.seeds:
            continue
        runs = [dpop(problem, tree=tree, backend=given.backend) for _ in range(given.repeat)]
        result = min(runs, key=lambda r: r.metrics.simulated_seconds)
        seconds, solved = solve(problem, given.backend)
        wrong += complaints(f"{problem.name} (width {tree.width})", result, None, solved)
        group.simulated.append(result.metrics.simulated_seconds)
        group.work.append(result.metrics.work_seconds)
        group.solved.append(seconds)
        largest = result.metrics.largest_message
        group.cells.append(0 if largest is None else largest.cells)
        group.rows.append(0 if largest is None else largest.rows)
    title = [
        "family",
        "w*",
        "networks",
        "largest: cells",
        "rows",
        "simulated",
        "work",
        "solve",
        "paper CPU",
        "paper GPU",
    ]
    table = [title]
    for (family, width), group in sorted(groups.items()):
        if group.simulated:
            table.append(
                [
                    family,
                    str(width),
                    str(len(group.simulated)),
                    f"{median(group.cells):,.0f}",
                    f"{median(group.rows):,.0f}",
                    f"{fmean(group.simulated):.3f}",
                    f"{fmean(group.work):.3f}",
                    f"{fmean(group.solved):.3f}",
                    *published(family, width, given.domain),
                ]
            )
    print_table(table, given.markdown)
    print("\n".join(wrong) or "all values are those of oocbe.solve, messages one a tree edge")
    return not wrong


def published(family: str, width: int, domain: int) -> list[str]:
    """The paper's simulated seconds of DPOP, CPU and GPU, of rows whose w* rounds to the width; empty if none does."""
    rows: list[Setting] = [s for s in TABLES[FAMILIES[family]] if s.d == domain and round(s.width) == width]
    columns = []
    for column in ("dpop_cpu", "dpop_gpu"):
        times = [getattr(s, column) for s in rows if getattr(s, column) is not None]
        columns.append(f"{fmean(times):.3f}" if times else "")
    return columns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", action="store_true", help="networks by width instead of the data folder's")
    parser.add_argument("--peer", action="store_true", help="small instances beside pyDcop instead")
    parser.add_argument("--most", type=int, default=14, help="variables of instances beside pyDcop")
    parser.add_argument("--seeds", type=int, default=3, help="of each size; as many networks of a width at most")
    parser.add_argument("--domain", type=int, default=10, help="values of each variable")
    parser.add_argument("--tightness", type=float, default=0.5, help="share of forbidden pairs of values")
    parser.add_argument("--largest", type=int, default=8, help="width beyond which networks are passed over")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, of which the best counts")
    parser.add_argument("--z", type=int, default=5, help="of ADPOP")
    parser.add_argument("--backend", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    for small in (random_network(6, 4, 0.5), grid_network(5, 4)):  # loads, or compiles, what is measured
        dpop(small, backend=given.backend)
        solve(small, given.backend)
    is_right = beside_pydcop(given) if given.peer else widths(given) if given.widths else instances(given)
    print(describe_run())
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
