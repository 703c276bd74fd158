"""Probing of linear systems: the loop that puts back what a probe has changed, beside probing of values one by one.

    python benchmarks/probing.py                    # real systems of binaries, the same bounds both ways
    python benchmarks/probing.py --variables 20000  # and a made-up system, by threads
    python benchmarks/probing.py --variables 20000 --device     # and on a CUDA device

Real systems: processor time of one thread, from bounds at their fixpoint on, least of ``--repeat``; SystemExit where
other bounds are left. Made-up system: binaries in rows of 4 to 12, wall time; non-zeros times probes are those of rows
that probes looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from measuring import data_folder, describe_run, print_table

from oocbe.errors import TimeLimitError
from oocbe.io import as_problem, read_model
from oocbe.kernels.cpu.propagation.linear_rows import Rounding
from oocbe.model.linear_system import LinearSystem
from oocbe.propagation.bounds import PROGRESS, linear_rows_of, propagate_bounds
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.linear_probing import outcomes_of, probe_bounds, two_valued
from oocbe.propagation.probing import probe
from oocbe.system.deadline import Deadline

SYSTEMS = ("enigma", "harp2", "p0201", "p0548", "p2756", "reblock166", "seymour")
"""Of integers, which have two values each after propagation, or are fixed."""


def real_lines(folder: Path, repeat: int, limit: float) -> list[list[str]]:
    lines = []
    for name in SYSTEMS:
        system = read_model(folder / "mps" / f"{name}.mps.gz")
        assert isinstance(system, LinearSystem)
        bounds = propagate_bounds(system, backend="cpu")
        seconds = []
        for _ in range(repeat):
            begin = time.process_time()
            found = probe_bounds(system, bounds)
            seconds.append(time.process_time() - begin)
        network = Network(as_problem(system))
        expected = network.propagate()
        begin = time.process_time()
        try:
            with Deadline(limit):
                probed = probe(network, expected)
        except TimeLimitError:
            expected.status = "limit"
        spent = time.process_time() - begin
        if expected.status == "fixpoint":
            ends = [(int(v[0]), int(v[-1])) for v in (network.domains.values(v) for v in range(len(system.names)))]
            if ends != list(zip(found.bounds.lower.astype(int), found.bounds.upper.astype(int), strict=True)):
                raise SystemExit(f"{name}: other bounds are left")
        tried = len(two_valued(bounds, system.integral))
        shown = f"{1e3 * spent:,.0f} ms" if expected.status == "fixpoint" else f"over {limit:.0f} s"
        lines.append([
            name, f"{len(system.coefficients):,}", f"{tried:,}", f"{found.probes:,}", f"{found.failures:,}",
            f"{1e3 * min(seconds):.1f} ms", f"{probed.probes:,}", shown,
        ])  # fmt: skip
    return lines


def made_up(variables: int) -> LinearSystem:
    """Packing, covering and knapsack rows over binaries, all satisfied by one point."""
    random = np.random.default_rng(0)
    lengths = random.integers(4, 13, variables)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = np.concatenate([np.sort(random.choice(variables, size, replace=False)) for size in lengths])
    coefficients = random.choice([-2.0, -1.0, 1.0, 1.0, 2.0, 3.0], len(columns))
    point = random.integers(0, 2, variables)
    sides = np.add.reduceat(coefficients * point[columns], starts[:-1]) + random.integers(0, 2, variables)
    return LinearSystem(
        starts, columns.astype(np.int64), coefficients, np.full(variables, -np.inf), sides, np.zeros(variables),
        np.ones(variables), np.ones(variables, dtype=bool), tuple(f"x{v}" for v in range(variables)),
    )  # fmt: skip


def made_up_lines(variables: int, has_device: bool, repeat: int) -> list[list[str]]:
    system = made_up(variables)
    bounds = propagate_bounds(system, backend="cpu")
    if bounds.status != "fixpoint":
        raise SystemExit(f"the made-up system is {bounds.status}: {bounds.reason}")
    tried = two_valued(bounds, system.integral)[:4096]
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    rows, lines, found = linear_rows_of(system), [], []
    devices = [None]
    if has_device:
        from oocbe.kernels.cuda.propagation.linear_probes import DeviceProbes

        devices.append(DeviceProbes(rows))
    for device in devices:
        spent = []
        for _ in range(repeat + 1):
            begin = time.perf_counter()
            outcomes = outcomes_of(rows, bounds, np.repeat(tried, 2), values, Rounding(True, 0.0, PROGRESS), device)
            spent.append(time.perf_counter() - begin)
        seconds = min(spent[1:])
        found.append(outcomes)
        lines.append([
            "threads" if device is None else "device", f"{len(system.coefficients):,}", f"{len(values):,}",
            f"{int(outcomes.failed.sum()):,}", f"{int(np.bitwise_count(outcomes.implied).sum()):,}",
            f"{1e3 * seconds:.1f} ms", f"{len(values) / seconds:,.0f}", f"{outcomes.entries / seconds / 1e9:.2f}",
        ])  # fmt: skip
        if (outcomes.failed != found[0].failed).any() or (outcomes.implied != found[0].implied).any():
            raise SystemExit("the device's outcomes are not the processor's")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, of which the best counts")
    parser.add_argument("--limit", type=float, default=20, help="seconds of probing value by value at most")
    parser.add_argument("--variables", type=int, default=0, help="also probe a made-up system of so many binaries")
    parser.add_argument("--device", action="store_true", help="that system on a CUDA device, too")
    parser.add_argument("--no-files", action="store_true", help="leave out real systems")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    if not given.no_files:
        title = ["system", "non-zeros", "binaries", "probes", "failures", "together", "probes", "value by value"]
        print_table([title, *real_lines(data_folder(), given.repeat, given.limit)], given.markdown)
    if given.variables:
        title = ["", "non-zeros", "probes", "failures", "implications", "time", "probes/s", "10^9 non-zeros x probes/s"]
        print_table([title, *made_up_lines(given.variables, given.device, given.repeat)], given.markdown)
    print(describe_run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
