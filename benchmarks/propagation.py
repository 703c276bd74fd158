"""Propagation: fixpoints of real instances checked against an independent program's, and their seconds.

    python benchmarks/propagation.py                # linear systems and tables of the folder of instances
    python benchmarks/propagation.py --rows 2e7     # and a scan of so many made-up rows
    python benchmarks/propagation.py --device       # and linear systems on a CUDA device
    python benchmarks/propagation.py --markdown     # rows for RESULTS.md

Seconds are those of the best of ``--repeat`` runs, without reading the file: processor time of one thread; wall time of
scans of made-up rows, by all threads, and on a device, where the system is already and bounds are brought to and from.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from measuring import data_folder, describe_run

from oocbe.io import read_model
from oocbe.kernels.cpu.propagation.linear_rows import Rounding
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.linear_system import LinearSystem
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.propagation.bounds import PROGRESS, ROUNDS, Bounds, linear_rows_of, propagate_bounds, rounded_bounds
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.large_tables import allowed_rows

Answer = TypeVar("Answer")


def best_of(repeat: int, work: Callable[[], Answer]) -> tuple[Answer, float]:
    """The last answer, and the least processor time of some runs."""
    least = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        answer = work()
        least = min(least, time.process_time() - begin)
    return answer, least


def on_device(system: LinearSystem, repeat: int) -> tuple[Bounds, list[float]]:
    """Bounds by the device, and the least wall time with the loop over rounds on the host, and on the device."""
    from oocbe.kernels.cuda.propagation.linear_rows import DeviceRows

    device, rounding = DeviceRows(linear_rows_of(system)), Rounding(True, 0.0, PROGRESS)
    lower, upper = rounded_bounds(system, 0.0)
    seconds = []
    for is_loop_on_device in (False, True):
        least = float("inf")
        for _ in range(repeat + 1):
            begin = time.perf_counter()
            device.propagate(lower, upper, rounding, ROUNDS, is_loop_on_device=is_loop_on_device)
            least = min(least, time.perf_counter() - begin)
        seconds.append(least)
    return propagate_bounds(system, backend="cuda"), seconds


def linear_lines(folder: Path, repeat: int, has_device: bool) -> list[list[str]]:
    """A line an instance: sizes, rounds and seconds in turn and at once; SystemExit where a fixpoint is another one."""
    lines = []
    expected = json.loads((folder / "mps" / "linear_reference.json").read_text())
    for name, entry in sorted(expected.items()):
        if not (folder / name).exists():
            continue
        system = read_model(folder / name)
        assert isinstance(system, LinearSystem)
        in_turn, seconds = best_of(repeat, lambda s=system: propagate_bounds(s, backend="cpu"))
        at_once, seconds_at_once = best_of(
            repeat, lambda s=system: propagate_bounds(s, simultaneous=True, backend="cpu")
        )
        for found in (in_turn, at_once):
            total = found.upper[np.isfinite(found.upper)].sum()
            if found.status == entry["status"] and abs(total - entry["sum_finite_upper"]) > 1e-8 + 1e-5 * abs(total):
                raise SystemExit(f"{name}: the bounds add up to {total}, not {entry['sum_finite_upper']}")
        entries = len(system.coefficients)
        rounds = f"{len(in_turn.rounds)} / {len(at_once.rounds)}"
        spent_there: list[float] = []
        if has_device:
            there, spent_there = on_device(system, repeat)
            if there.rounds != at_once.rounds or there.upper.tolist() != at_once.upper.tolist():
                raise SystemExit(f"{name}: the device's bounds are not the processor's")
        shown = [f"{1e3 * spent:.1f} ms" for spent in (seconds, seconds_at_once, *spent_there)]
        lines.append([Path(name).name.split(".")[0], f"{system.rows:,}", f"{entries:,}", rounds, *shown])
    return lines


def table_rows(folder: Path, repeat: int) -> list[list[str]]:
    """A line an instance: its positive tables alone; SystemExit where other values or rows are left."""
    lines = []
    for line in (folder / "xcsp" / "tables_reference.txt").read_text().splitlines():
        name, *words = line.split()
        entry = dict(zip(words[::2], words[1::2], strict=False))
        model = read_model(folder / "xcsp" / f"{name}.gz")
        assert isinstance(model, CompactProblem)
        allowed = tuple(c for c in model.problem.constraints if c.allowed and len(c.scope) > 1)
        problem = replace(model.problem, constraints=allowed, functions=(), linear_constraints=())
        tables = CompactProblem(problem, tuple(t for t in model.short_tables if t.allowed))
        seconds = {}
        for engine, memory in (("scan", 0), ("bit sets", 1 << 30)):

            def work(memory: int = memory, tables: CompactProblem = tables) -> tuple[int, int]:
                network = Network(tables, memory, 0)
                removed = sum(network.propagate().rounds)
                return removed, sum(getattr(p, "rows_left", 0) for p in network.propagators)

            found, seconds[engine] = best_of(repeat, work)
            if found != (int(entry["removed"]), int(entry["alive"])):
                raise SystemExit(f"{name}, {engine}: {found} values removed and rows left, not as in the reference")
        shown = [f"{1e3 * spent:.1f} ms" for spent in seconds.values()]
        lines.append(
            [name.removesuffix(".xml"), entry["positive"], f"{int(entry['tuples']):,}", entry["removed"], *shown]
        )
    return lines


def scanned(rows: int, repeat: int) -> list[list[str]]:
    """A line a kind of table: rows scanned a second, by what part of the values is left."""
    lines = []
    for columns, size in ((6, 100), (10, 50)):
        random = np.random.default_rng(0)
        codes = random.integers(0, size, (rows, columns)).astype(np.uint8)
        problem = Problem(tuple(Variable(f"v{i}", size) for i in range(columns)))
        for part in (1.0, 0.9, 0.5):
            kept = random.random(size * columns) < part
            spent = []
            for _ in range(repeat):
                domains = Domains.of_sizes(problem.sizes)
                for v in range(columns):
                    domains.keep(v, kept[domains.offsets[v] : domains.offsets[v + 1]])
                table = allowed_rows(tuple(range(columns)), codes, domains, "table")
                begin = time.perf_counter()
                table.filter(domains)
                spent.append(time.perf_counter() - begin)
            left, seconds = getattr(table, "rows_left", 0), min(spent)
            inside = np.ones(rows, dtype=bool)
            for c in range(columns):
                inside &= kept[c * size : (c + 1) * size][codes[:, c]]
            if left != inside.sum():
                raise SystemExit(f"{columns} columns: {left:,} rows left, not {inside.sum():,}")
            lines.append([str(columns), f"{part:.0%}", f"{left:,}", f"{rows / seconds / 1e6:.0f} M/s"])
    return lines


def show(title: list[str], lines: list[list[str]], markdown: bool) -> None:
    if markdown:
        print(f"| {' | '.join(title)} |\n|{'---|' * len(title)}")
        print("\n".join(f"| {' | '.join(line)} |" for line in lines), end="\n\n")
        return
    widths = [max(map(len, column)) for column in zip(title, *lines, strict=True)]
    for line in (title, *lines):
        print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, of which the best counts")
    parser.add_argument("--rows", type=float, default=0, help="also scan so many made-up rows")
    parser.add_argument("--device", action="store_true", help="also propagate linear systems on a CUDA device")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    folder = data_folder()
    title = [
        "linear system",
        "rows",
        "non-zeros",
        "rounds in turn / at once",
        "in turn",
        "at once",
    ]
    if given.device:
        title += ["device, loop on the host", "loop on the device"]
    show(title, linear_lines(folder, given.repeat, given.device), given.markdown)
    title = ["tables", "tables", "rows", "values removed", "scan", "bit sets"]
    show(title, table_rows(folder, given.repeat), given.markdown)
    if given.rows:
        title = ["columns", "values left", "rows left", "rows a second"]
        show(title, scanned(int(given.rows), given.repeat), given.markdown)
    print(describe_run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
