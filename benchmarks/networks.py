"""Fioretto et al. (Constraints 2018): networks to the optimum (tables 1 to 3), mini-bucket bounds (6, 8 and 10).

    python benchmarks/networks.py                            # everything; mini-buckets need the real instances
    python benchmarks/networks.py --quick                    # a few minutes
    python benchmarks/networks.py --largest --seconds 60     # the largest w* of tables 1 to 3, on all backends
    python benchmarks/networks.py --tables 2 --instances 5   # five scale-free networks a setting
    python benchmarks/networks.py --tables 10 --z 3,6,9      # bounds on SPOT5
    python benchmarks/networks.py --markdown                 # tables for RESULTS.md

*Exact*: for each setting, networks from seeds 0, 1, … (costs 0 to 100, half of each function's entries infeasible).
Times are those of elimination without bounds along one order for all systems, order search excluded, on the CPU and,
where there is one, on the CUDA device, in one process that has compiled its loops before; what ends within half of
the limit is run twice, and the second time counts, as kernels may be compiled for the shape of a bucket. Beside them
the whole of ``oocbe.solve`` as it comes, toulbar2 in its default mode and dense NumPy arrays (:mod:`peers.dense`).
Means over the networks of a setting. The exit code is 1 where two answers differ.

*Mini-buckets*: bound and incumbent for each z, the best of four ways to divide buckets (by scope and by content, with
and without cost shifting) along the orders of ``--seeds`` seeds; the seconds are those of the run that gave the bound,
and a way that took long is not tried for larger z. z counts the eliminated variable (the paper's algorithm 2; its
example 4 does not). Beside them the paper's four bounds, and the least z at which ours reaches each. The paper's order
is not printed, and its z only at the first: there the two compare, and beyond by what a z reaches.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from measuring import data_folder, describe_run, print_table
from published import BOUNDS, TABLES, Bounds, Setting

import oocbe
from oocbe.elimination.orders.order import longest_search, order_cell_work, search_orders, speed_of
from oocbe.errors import LimitError, OocbeError, ResourceError
from oocbe.kernels.choice import cuda_works
from oocbe.model.problem import Problem
from oocbe.model.results.bound_result import BoundResult
from oocbe.model.results.result import Result
from oocbe.stress import grid_network, random_network, scale_free_network

OUT_OF_MEMORY = "out of memory"
QUICK_SETTINGS = {
    ("random", 15, 10, 0.3),
    ("random", 10, 25, 0.3),
    ("scale-free", 15, 10, None),
    ("grid", 10, 10, None),
}
LARGEST_SETTINGS = {
    *(("random", n, 10, 0.3) for n in (18, 19, 20)),
    ("random", 10, 100, 0.3),
    ("random", 10, 10, 0.8),
    ("random", 10, 10, 0.9),
    *(("scale-free", n, 10, None) for n in (16, 17, 18, 19, 20)),
    *(("scale-free", 10, d, None) for d in (50, 100)),
    *(("grid", side, 10, None) for side in (6, 7, 8, 9, 10)),
}
"""The largest w* that the tables print, and all that they print as out of memory, of random and scale-free networks; of
grids, whose true w* is the side, those between what takes a moment and what fits no machine."""
QUICK_BOUNDS = ("s386", "54", "503", "404", "42b")
LADDER = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20)
WAYS = {
    "scope": {"partition": "scope", "cost_shifting": False},
    "content": {"partition": "content", "cost_shifting": False},
    "scope, shifting": {"partition": "scope", "cost_shifting": True},
    "content, shifting": {"partition": "content", "cost_shifting": True},
}

EXACT_WARM_UP = {1: (TABLES[1][0], TABLES[1][4]), 2: TABLES[2][:1], 3: TABLES[3][:1]}
"""Settings of each table that make all its loops compiled."""


@dataclass
class Exact:
    """What was measured of a setting: seconds by system, a list entry a network."""

    widths: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    infeasible: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)

    def shown(self, system: str) -> str:
        """Mean seconds, or why there are none."""
        if system in self.failures:
            return self.failures[system]
        return f"{fmean(self.seconds[system]):.3f}" if self.seconds.get(system) else ""


def network(setting: Setting, seed: int) -> Problem:
    """The network of a setting and a seed."""
    if setting.topology == "random":
        return random_network(setting.n, setting.d, setting.p1 or 0.3, seed=seed)
    if setting.topology == "grid":
        return grid_network(setting.n, setting.d, seed=seed)
    return scale_free_network(setting.n, setting.d, seed=seed)


def measure_exact(setting: Setting, arguments: argparse.Namespace, device: bool) -> Exact:
    """Solve the networks of a setting with everything there is."""
    found = Exact()
    for seed in range(arguments.instances):
        problem = network(setting, seed)
        longest = longest_search(arguments.order_seconds, arguments.seconds)
        cell_work = order_cell_work(speed_of("auto"), "auto")
        search = (problem, "auto", arguments.order_seconds, 0)
        choice = search_orders(*search, cell_work=cell_work, longest=longest)[0]
        file = Path(arguments.folder) / "order"
        file.write_text("\n".join(problem.variables[v].name for v in choice.order))
        alone: dict[str, object] = {"bounds": "none", "order": str(file)}
        values: dict[str, object] = {}
        runs: list[tuple[str, dict[str, object]]] = [("cpu", {"backend": "cpu", **alone})]
        if device:
            runs.append(("gpu", {"backend": "cuda", **alone}))
        runs.append(("solve", {"backend": "auto" if device else "cpu"}))
        for system, options in runs:
            if system in found.failures:
                continue
            try:
                result, spent = timed_solve(problem, arguments, options)
                if spent < arguments.seconds / 2:
                    result, spent = timed_solve(problem, arguments, options)
            except (ResourceError, LimitError) as error:
                found.failures[system] = "limit" if isinstance(error, LimitError) else OUT_OF_MEMORY
                continue
            if result.status == "limit":
                found.failures[system] = f"limit of {arguments.seconds:g} s"
                continue
            values[system] = result.value
            if system != "solve":
                spent = result.seconds["forward"] + result.seconds["backward"]
            if system == "cpu":
                found.widths.append(result.width)
                found.rows.append(result.largest_message_rows)
                found.infeasible += result.status == "infeasible"
            found.seconds.setdefault(system, []).append(spent)
        for system in arguments.peers:
            if system not in found.failures:
                values |= run_peer(system, problem, choice.order, arguments, found)
        if len(set(values.values())) > 1:
            found.disagreements.append(f"{problem.name}: {values}")
    return found


def timed_solve(problem: Problem, arguments: argparse.Namespace, options: dict[str, object]) -> tuple[Result, float]:
    """A solve and its wall time."""
    begin = time.perf_counter()
    limits = {"time_limit": arguments.seconds, "order_seconds": arguments.order_seconds}
    result = oocbe.solve(problem, **limits, **options)
    return result, time.perf_counter() - begin


def run_peer(
    system: str, problem: Problem, order: Sequence[int], arguments: argparse.Namespace, found: Exact
) -> dict[str, object]:
    """One solve by a peer: its value, noted with its time; nothing where it failed, which is noted."""
    if system == "dense":
        from peers import dense

        try:
            answer = dense.solve(problem, order, arguments.dense_memory)
        except dense.OutOfMemoryError:
            found.failures[system] = OUT_OF_MEMORY
            return {}
    else:
        from peers import toulbar2

        answer = toulbar2.solve(problem, arguments.seconds)
        if answer.status not in ("optimal", "infeasible"):
            found.failures[system] = f"limit of {arguments.seconds:g} s"
            return {}
    found.seconds.setdefault(system, []).append(answer.wall_seconds)
    return {system: answer.value}


def exact_tables(arguments: argparse.Namespace, device: bool) -> bool:
    """Measure and print tables 1 to 3; whether all answers agreed."""
    agreed = True
    for number in arguments.tables & set(TABLES):
        heading = [
            "n",
            "d",
            "p1",
            "w* paper",
            "w*",
            "largest rows",
            "cpu s",
            "gpu s",
            "speed-up",
            "solve s",
            *arguments.peers,
        ]
        rows = [[*heading, "paper cpu", "paper gpu", "infeasible"]]
        for setting in TABLES[number]:
            key = (setting.topology, setting.n, setting.d, setting.p1)
            if (arguments.quick and key not in QUICK_SETTINGS) or (arguments.largest and key not in LARGEST_SETTINGS):
                continue
            found = measure_exact(setting, arguments, device)
            for text in found.disagreements:
                agreed = False
                print(f"answers differ: {text}", file=sys.stderr)
            both = found.seconds.get("cpu"), found.seconds.get("gpu")
            speed_up = f"{fmean(both[0]) / fmean(both[1]):.1f}" if both[0] and both[1] else ""
            row = [
                str(setting.n),
                str(setting.d),
                "" if setting.p1 is None else f"{setting.p1:g}",
                f"{setting.width:g}",
                f"{fmean(found.widths):.1f}" if found.widths else "",
                f"{max(found.rows):,}" if found.rows else "",
                found.shown("cpu"),
                found.shown("gpu") if device else "no device",
                speed_up,
                found.shown("solve"),
                *(found.shown(peer) for peer in arguments.peers),
                OUT_OF_MEMORY if setting.cpu is None else f"{setting.cpu:g}",
                OUT_OF_MEMORY if setting.gpu is None else f"{setting.gpu:g}",
                f"{found.infeasible} of {arguments.instances}",
            ]
            rows.append(row)
            print(f"table {number}: {' | '.join(row)}", file=sys.stderr, flush=True)
        print(f"\nTable {number}, {TABLES[number][0].topology} networks\n")
        print_table(rows, arguments.markdown)
    return agreed


def bound_tables(arguments: argparse.Namespace) -> None:
    """Measure and print the mini-bucket runs of tables 6, 8 and 10."""
    for number in sorted(arguments.tables & {6, 8, 10}):
        chosen = [b for b in BOUNDS if b.table == number and is_wanted(b, arguments)]
        missing = [b.path for b in chosen if not (data_folder() / b.path).exists()]
        if missing:
            print(f"table {number}: skipped, not in {data_folder()}: {', '.join(missing)}", file=sys.stderr)
        rows = [
            [
                "instance",
                "w*",
                "z",
                "bound",
                "incumbent",
                "way",
                "s",
                "largest rows",
                "paper",
                "least z that reaches it",
            ]
        ]
        for published in chosen:
            if published.path not in missing:
                rows += bound_rows(published, arguments)
        print(f"\nTable {number}\n")
        print_table(rows, arguments.markdown)


def is_wanted(published: Bounds, arguments: argparse.Namespace) -> bool:
    """Whether an instance is asked for."""
    name = published.path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    if arguments.only:
        return name in arguments.only
    return not arguments.quick or name in QUICK_BOUNDS


def bound_rows(published: Bounds, arguments: argparse.Namespace) -> list[list[str]]:
    """Bounds of an instance: a row a z, with the paper's bounds in the first four."""
    problem = oocbe.read(data_folder() / published.path)
    least = max(len(f.scope) for f in (*problem.functions, *problem.constraints))
    ladder = [z for z in arguments.z if z >= least and z <= arguments.most_z] or [least]
    ladder = ladder if ladder[0] == least else [least, *ladder]
    lines: list[tuple[int, str, int | None, int | None, float, int]] = []
    width = 0
    ended: set[str] = set()
    slow: set[str] = set()
    for z in ladder:
        best: tuple[int, int | None, str, float, int] | None = None
        incumbent: int | None = None
        for way, seed in itertools.product(WAYS, range(arguments.seeds)):
            if way in ended:
                continue
            outcome = bounded(problem, z, way, seed, arguments)
            if outcome is None:
                ended.add(way)
                continue
            entry, width = outcome.entries[0], outcome.width
            if entry.seconds["total"] > arguments.seconds / 3:
                slow.add(way)
            if entry.incumbent is not None:
                incumbent = entry.incumbent if incumbent is None else min(incumbent, entry.incumbent)
            if entry.bound is not None and (best is None or entry.bound > best[0]):
                seconds, rows = entry.seconds["total"], entry.largest_message_rows
                best = (entry.bound, entry.incumbent, way, seconds, rows)
        ended |= slow
        if best is None:
            break
        lines.append((z, best[2], best[0], incumbent, best[3], best[4]))
        name = published.path.rsplit("/", 1)[-1]
        print(f"table {published.table}: {name} {lines[-1]}", file=sys.stderr, flush=True)
        if best[0] == incumbent or z > width:
            break
    rows = []
    for place in range(max(len(lines), 4)):
        row = [published.path.rsplit("/", 1)[-1], f"{published.width} / {width}"] if place == 0 else ["", ""]
        if place < len(lines):
            z, way, bound, value, spent, largest = lines[place]
            shown = "" if value is None else f"{value:,}"
            row += [str(z), f"{bound:,}", shown, way, f"{spent:.2f}", f"{largest:,}"]
        else:
            row += [""] * 6
        if place < 4:
            target = published.bounds[place]
            reached = next((str(line[0]) for line in lines if line[2] is not None and line[2] >= target), "not reached")
            row += [f"{target:,}", reached]
        else:
            row += ["", ""]
        rows.append(row)
    return rows


def bounded(problem: Problem, z: int, way: str, seed: int, arguments: argparse.Namespace) -> BoundResult | None:
    """One run of mini-bucket elimination; None where it passed a limit."""
    try:
        return oocbe.bound(
            problem,
            z,
            order_seconds=arguments.order_seconds,
            seed=seed,
            incumbent_seconds=0.5,
            time_limit=arguments.seconds,
            **WAYS[way],
        )
    except (ResourceError, LimitError) as error:
        print(f"{problem.name}, z = {z}, {way}: {error}", file=sys.stderr)
        return None


def numbers(text: str) -> list[int]:
    """Numbers separated by commas."""
    return [int(part) for part in text.split(",")]


def peers_there(wanted: Iterable[str]) -> list[str]:
    """Those of the peers that are installed; says which are not."""
    found = []
    for name in wanted:
        if name == "toulbar2" and find_spec("pytoulbar2") is None:
            print("toulbar2 is not installed: pip install pytoulbar2", file=sys.stderr)
        else:
            found.append(name)
    return found


def warm_up(tables: set[int], device: bool) -> None:
    """Have the loops that these tables need compiled before anything is timed."""
    for table, settings in EXACT_WARM_UP.items():
        for setting in settings if table in tables else ():
            problem = network(setting, 0)
            oocbe.solve(problem)
            for backend in ("cpu", "cuda") if device else ("cpu",):
                for form in ("auto", "incomplete", "complete"):
                    if form != "complete" or setting.topology == "random":
                        oocbe.solve(problem, bounds="none", backend=backend, tables=form)
    if not tables <= EXACT_WARM_UP.keys():
        for way in WAYS.values():
            oocbe.bound(network(TABLES[1][0], 0), z=3, order_seconds=0, incumbent_seconds=0.1, **way)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=lambda t: set(numbers(t)), default={1, 2, 3, 6, 8, 10}, help="of 1,2,3,6,8,10")
    parser.add_argument("--instances", type=int, default=3, help="networks a setting (the paper has 50)")
    parser.add_argument("--peers", type=lambda t: [p for p in t.split(",") if p], default=["toulbar2", "dense"])
    parser.add_argument("--z", type=numbers, default=list(LADDER), help="sizes of mini-buckets")
    parser.add_argument("--most-z", type=int, default=20, help="largest of them")
    parser.add_argument("--only", type=lambda t: t.split(","), help="names of instances for tables 6, 8 and 10")
    parser.add_argument("--seeds", type=int, default=2, help="orders tried for each bound")
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of a solve or bound")
    parser.add_argument("--order-seconds", type=float, default=0.5)
    parser.add_argument("--dense-memory", type=float, default=4.0, help="GiB that an array of dense NumPy may take")
    parser.add_argument("--quick", action="store_true", help="a few settings, one network each, small z")
    parser.add_argument("--largest", action="store_true", help="the largest settings of tables 1 to 3, a network each")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    arguments.dense_memory = int(arguments.dense_memory * 2**30)
    arguments.peers = peers_there(arguments.peers)
    if arguments.quick:
        arguments.instances, arguments.seeds, arguments.most_z = 1, 1, min(arguments.most_z, 8)
        arguments.seconds = min(arguments.seconds, 30.0)
    if arguments.largest:
        arguments.instances, arguments.tables = 1, arguments.tables & set(TABLES)
    device = cuda_works(wanted=False)
    warm_up(arguments.tables, device)
    agreed = True
    try:
        with tempfile.TemporaryDirectory(prefix="oocbe-networks-") as arguments.folder:
            agreed = exact_tables(arguments, device)
        bound_tables(arguments)
    except OocbeError as error:
        print(f"oocbe: {error}", file=sys.stderr)
        agreed = False
    print(f"\n{describe_run(['pytoulbar2', 'cupy-cuda12x', 'cupy-cuda13x'])}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
