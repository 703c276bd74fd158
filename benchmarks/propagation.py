"""Propagation: fixpoints of real instances checked against an independent program's, and their seconds.

    python benchmarks/propagation.py                # linear systems and tables of the folder of instances
    python benchmarks/propagation.py --device       # and linear systems on a CUDA device
    python benchmarks/propagation.py --engine       # instead: rows and seconds of solves and counts with and without it
    python benchmarks/propagation.py --peers        # and fixpoints beside SCIP's, CP-SAT's and Choco's
    python benchmarks/propagation.py --markdown     # rows for RESULTS.md

Seconds are those of the best of ``--repeat`` runs, without reading the file: processor time of one thread; wall time on
a device, where the system is already and bounds are brought to and from.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from measuring import ROOT, data_folder, describe_run, run_child, run_timed
from peers.xcsp_extension import read_extension

from oocbe.errors import TimeLimitError
from oocbe.formats import read_model
from oocbe.model.compact_problem import CompactProblem, ShortTable
from oocbe.model.linear_system import INFINITE, LinearSystem
from oocbe.model.parts import Constraint
from oocbe.propagation.bounds import PROGRESS, ROUNDS, Bounds, linear_rows_of, propagate_bounds, rounded_bounds
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.kernels.cpu.linear_rows import Rounding

Answer = TypeVar("Answer")

ENGINE = [
    *((f"spot5/{number}.spot", "solve") for number in (408, 42, 1502, 1504)),
    *((f"wcsp/random/{number}.wcsp", "solve") for number in (0, 5)),
    *((f"wcsp/iscas89/{name}.wcsp", "solve") for name in ("c432", "c499", "s386")),
    *((f"uai/pedigree/pedigree{number}.uai.gz", "solve") for number in (1, 18, 23)),
    *((name, "count") for name in ("spot5/1502.spot", "wcsp/iscas89/c432.wcsp", "uai/pedigree/pedigree1.uai.gz")),
]
"""Instances and what is asked of them with and without propagation."""


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
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceRows

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


def positive_tables(folder: Path, name: str) -> CompactProblem:
    """An instance's tables of allowed rows alone."""
    model = read_extension(folder / "xcsp" / f"{name}.gz")
    allowed = tuple(c for c in model.problem.constraints if c.allowed and len(c.scope) > 1)
    problem = replace(model.problem, constraints=allowed, functions=(), linear_constraints=())
    return CompactProblem(problem, tuple(t for t in model.short_tables if t.allowed))


def table_rows(folder: Path, repeat: int) -> list[list[str]]:
    """A line an instance: its positive tables alone; SystemExit where other values or rows are left."""
    lines = []
    for line in (folder / "xcsp" / "tables_reference.txt").read_text().splitlines():
        name, *words = line.split()
        entry = dict(zip(words[::2], words[1::2], strict=False))
        tables = positive_tables(folder, name)
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


def peers_of_systems(folder: Path) -> list[list[str]]:
    """A line an instance and peer: how many of its bounds are ours, and where they are not, whose are tighter."""
    lines = []
    for name in sorted(json.loads((folder / "mps" / "linear_reference.json").read_text())):
        system = read_model(folder / name)
        assert isinstance(system, LinearSystem)
        found, seconds = best_of(3, lambda s=system: propagate_bounds(s, tolerance=1e-9, backend="cpu"))
        own = np.stack([found.lower, found.upper])
        for peer in ("scip", "cp_sat"):
            with tempfile.TemporaryDirectory() as scratch:
                given = _given_to(peer, system, folder / name, Path(scratch))
                answer = None if isinstance(given, str) else peer_answer(peer, given)
            words = [given if isinstance(given, str) else "failed"]
            if answer is not None:
                listed = answer["bounds"]
                theirs = np.array([listed[n] for n in system.names] if isinstance(listed, dict) else listed, float).T
                theirs = np.where(np.abs(theirs) >= INFINITE, np.copysign(np.inf, theirs), theirs)
                with np.errstate(invalid="ignore"):
                    equal = (own == theirs) | (np.abs(own - theirs) <= 1e-6 * np.maximum(1, np.abs(theirs)))
                tighter = np.stack([own[0] > theirs[0], own[1] < theirs[1]]) & ~equal
                spent = answer.get("seconds")
                words = [
                    f"{np.count_nonzero(equal):,} of {equal.size:,}",
                    f"{np.count_nonzero(tighter):,}",
                    f"{np.count_nonzero(~equal & ~tighter):,}",
                    f"{1e3 * seconds:.1f} ms",
                    "" if spent is None else f"{1e3 * spent:.0f} ms",
                ]
            lines.append([Path(name).name.split(".")[0], peer, *words, *[""] * (5 - len(words))])
    return lines


def _given_to(peer: str, system: LinearSystem, path: Path, scratch: Path) -> Path | str:
    """The file that a peer reads, or why it gets none."""
    if importlib.util.find_spec({"scip": "pyscipopt", "cp_sat": "ortools", "choco": "pychoco"}[peer]) is None:
        return "not installed"
    if peer == "scip":
        copy = scratch / path.name.removesuffix(".gz")
        copy.write_bytes(gzip.decompress(path.read_bytes()))
        return copy
    numbers = (system.coefficients, system.lower, system.upper)
    if not system.integral.all() or not all((np.floor(n) == n).all() and np.isfinite(n).all() for n in numbers):
        return "not of integers within bounds"
    rows = []
    for row in range(system.rows):
        entries = slice(system.starts[row], system.starts[row + 1])
        terms = list(zip(system.columns[entries].tolist(), map(int, system.coefficients[entries]), strict=True))
        low, high = system.row_lower[row], system.row_upper[row]
        rows.append((terms, -(2**62) if np.isinf(low) else int(np.ceil(low)), _ceiling(high)))
    given = {"lower": system.lower.astype(int).tolist(), "upper": system.upper.astype(int).tolist(), "rows": rows}
    (scratch / "system.json").write_text(json.dumps(given))
    return scratch / "system.json"


def _ceiling(side: float) -> int:
    return 2**62 if np.isinf(side) else int(np.floor(side))


def peer_answer(peer: str, path: Path) -> dict[str, Any] | None:
    """What a peer says in a process of its own; None where it fails, which is told."""
    program = Path(__file__).parent / "peers" / "root_propagation.py"
    done, _ = run_timed([sys.executable, str(program), peer, str(path)])
    if done.returncode != 0:
        print(f"{peer}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _propagated(tables: CompactProblem) -> Domains:
    """The domains that are left."""
    network = Network(tables)
    network.propagate()
    return network.domains


def peers_of_tables(folder: Path, most_rows: int = 1 << 20) -> list[list[str]]:
    """A line an instance with few enough rows: values that Choco removes, and whether they are those removed here."""
    lines = []
    for line in (folder / "xcsp" / "tables_reference.txt").read_text().splitlines():
        name = line.split()[0]
        tables = positive_tables(folder, name)
        domains, seconds = best_of(3, lambda t=tables: _propagated(t))
        sizes, counts = tables.problem.sizes, domains.counts.tolist()
        parts: list[Constraint | ShortTable] = [*tables.problem.constraints, *tables.short_tables]
        words = ["more rows than are handed over"]
        if importlib.util.find_spec("pychoco") is None:
            words = ["not installed"]
        elif sum(len(part.tuples) for part in parts) <= most_rows:
            given = {"sizes": sizes, "tables": [(part.scope, part.tuples.tolist()) for part in parts]}
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch) / "tables.json"
                path.write_text(json.dumps(given))
                answer = peer_answer("choco", path)
            words = ["failed"]
            if answer is not None:
                are_same = answer["removed"] == [size - count for size, count in zip(sizes, counts, strict=True)]
                words = ["the same" if are_same else "others", f"{sum(answer['removed']):,}"]
                words += [f"{1e3 * seconds:.1f} ms", f"{1e3 * answer['seconds']:.1f} ms"]
        lines.append([name.removesuffix(".xml"), *words, *[""] * (4 - len(words))])
    return lines


def engine_answer(path: str, task: str, propagates: str, limit: float) -> dict[str, Any]:
    """Rows and processor time of a solve or a count; the loops have been loaded by a small one before."""
    import oocbe
    from oocbe.model.settings.tuning import tuned

    work = {"solve": oocbe.solve, "count": oocbe.count}[task]
    options: dict[str, Any] = {
        "backend": "cpu",
        "seed": 0,
        "order": "min-fill",
        "order_seconds": 0,
        "time_limit": limit,
    }
    with tuned(propagates=propagates == "on"):
        work(ROOT / "examples" / "daily.spot", **options)
        begin = time.process_time()
        try:
            result = work(path, **options)
        except TimeLimitError:
            return {"status": "limit", "value": None, "rows": 0, "seconds": time.process_time() - begin}
        seconds = time.process_time() - begin
    return {"status": result.status, "value": result.value, "rows": result.total_rows, "seconds": seconds}


def engine_lines(folder: Path, repeat: int, limit: float) -> list[list[str]]:
    """A line an instance and task, with and without propagation in turn; SystemExit where answers differ."""
    lines = []
    for name, task in ENGINE:
        best: dict[str, dict[str, Any]] = {}
        for propagates in ("off", "on") * repeat:
            answer = run_child(__file__, [str(folder / name), task, propagates, str(limit)])
            if propagates not in best or answer["seconds"] < best[propagates]["seconds"]:
                best[propagates] = answer
        off, on = best["off"], best["on"]
        if off["status"] == on["status"] != "limit" and off["value"] != on["value"]:
            raise SystemExit(f"{name}, {task}: {on['value']} with propagation, {off['value']} without")
        shown = [f"{answer['rows']:,}" for answer in (off, on)] + [f"{a['seconds']:.2f} s" for a in (off, on)]
        change = f"{100 * (on['seconds'] / off['seconds'] - 1):+.0f} %"
        lines.append([Path(name).name.split(".")[0], task, on["status"], *shown, change])
        print(*lines[-1], file=sys.stderr, flush=True)
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
    parser.add_argument("--device", action="store_true", help="also propagate linear systems on a CUDA device")
    parser.add_argument("--peers", action="store_true", help="also compare with SCIP, CP-SAT and Choco")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    parser.add_argument("--engine", action="store_true", help="solve and count with and without propagation instead")
    parser.add_argument("--limit", type=float, default=120, help="seconds of each of these at most")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(engine_answer(*given.child[:3], float(given.child[3]))))
        return 0
    folder = data_folder()
    if given.engine:
        title = ["instance", "task", "status", "rows without", "with", "without", "with", "change"]
        show(title, engine_lines(folder, given.repeat, given.limit), given.markdown)
        print(describe_run())
        return 0
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
    if given.peers:
        title = ["linear system", "beside", "equal bounds", "ours tighter", "theirs tighter", "ours", "theirs"]
        show(title, peers_of_systems(folder), given.markdown)
        show(
            ["tables", "values removed by Choco", "how many", "ours", "Choco"], peers_of_tables(folder), given.markdown
        )
    print(describe_run(("ortools", "pyscipopt", "pychoco") if given.peers else ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
