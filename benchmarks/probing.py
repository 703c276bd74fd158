"""Probing of linear systems: the loop that puts back what a probe has changed, beside probing of values one by one.

    python benchmarks/probing.py                    # real systems of binaries, the same bounds both ways
    python benchmarks/probing.py --variables 20000  # and made-up systems, by threads
    python benchmarks/probing.py --variables 20000 --device     # and on a CUDA device

Real systems: processor time of one thread, from bounds at their fixpoint on, least of ``--repeat``; SystemExit where
other bounds are left. Made-up systems: wall time; non-zeros times probes are those of rows that probes looked at.
*Mixed*: packing, covering and knapsack rows of 4 to 12 binaries, of which a probe reaches few; *precedence*: each
binary, once it is one, makes eight others one that come before it, so that a probe reaches a large part.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from measuring import data_folder, describe_run, print_table

from oocbe.errors import TimeLimitError
from oocbe.formats import as_problem, read_model
from oocbe.model.linear_system import LinearSystem
from oocbe.propagation.bounds import PROGRESS, linear_rows_of, propagate_bounds
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.kernels.cpu.linear_rows import Rounding
from oocbe.propagation.linear_probing import HostProbes, outcomes_of, probe_bounds, two_valued
from oocbe.propagation.propagate import probe
from oocbe.runtime.deadline import Deadline

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


def mixed(variables: int) -> LinearSystem:
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


def precedence(variables: int) -> LinearSystem:
    """A row a binary but the first few: eight of the thousand before it are one where it is."""
    random = np.random.default_rng(0)
    count, reach = 8, 1000
    owners = np.arange(count, variables)
    part = np.minimum(owners, reach) // count
    before = [owners - 1 - k * part - random.integers(0, part) for k in range(count)]
    columns = np.stack([owners, *before], axis=1)
    coefficients = np.tile([float(count), *[-1.0] * count], len(owners))
    starts = np.arange(0, columns.size + 1, count + 1)
    return LinearSystem(
        starts.astype(np.int64), columns.reshape(-1).astype(np.int64), coefficients, np.full(len(owners), -np.inf),
        np.zeros(len(owners)), np.zeros(variables), np.ones(variables), np.ones(variables, dtype=bool),
        tuple(f"x{v}" for v in range(variables)),
    )  # fmt: skip


FAMILIES = {"mixed": mixed, "precedence": precedence}


def made_up_lines(family: str, variables: int, probes: int, has_device: bool, repeat: int) -> list[list[str]]:
    system = FAMILIES[family](variables)
    bounds = propagate_bounds(system, backend="cpu")
    if bounds.status != "fixpoint":
        raise SystemExit(f"the made-up system is {bounds.status}: {bounds.reason}")
    every = two_valued(bounds, system.integral)
    tried = every[:: max(1, 2 * len(every) // probes)][: probes // 2]
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    rows, lines, found = linear_rows_of(system), [], []
    probers = [HostProbes(rows)]
    if has_device:
        from oocbe.propagation.kernels.cuda.linear_probes import DeviceProbes

        probers.append(DeviceProbes(rows))
    for prober in probers:
        spent = []
        for is_told in (False, True) * (repeat + 1):
            begin = time.perf_counter()
            outcomes = outcomes_of(
                rows, bounds, np.repeat(tried, 2), values, Rounding(True, 0.0, PROGRESS), prober, is_told
            )
            spent.append(time.perf_counter() - begin)
        seconds, telling = min(spent[2::2]), min(spent[3::2])
        found.append(outcomes)
        lines.append([
            family, "threads" if prober is probers[0] else "device", f"{len(system.coefficients):,}",
            f"{len(values):,}", f"{int(outcomes.failed.sum()):,}", f"{len(outcomes.implied):,}",
            f"{1e3 * seconds:.2f} ms", f"{1e3 * telling:.2f} ms", f"{len(values) / seconds:,.0f}",
            f"{outcomes.entries / seconds / 1e9:.2f}",
        ])  # fmt: skip
        for name in ("failed", "starts", "implied"):
            if not np.array_equal(getattr(outcomes, name), getattr(found[0], name)):
                raise SystemExit(f"{family}: the device's outcomes are not the processor's: {name}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, of which the best counts")
    parser.add_argument("--limit", type=float, default=20, help="seconds of probing value by value at most")
    parser.add_argument("--variables", type=int, default=0, help="also probe made-up systems of so many binaries")
    parser.add_argument("--probes", type=int, default=8192, help="assignments that are probed of each of these")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=[*FAMILIES], help="which of these")
    parser.add_argument("--device", action="store_true", help="these systems on a CUDA device, too")
    parser.add_argument("--no-files", action="store_true", help="leave out real systems")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    if not given.no_files:
        title = ["system", "non-zeros", "binaries", "probes", "failures", "together", "probes", "value by value"]
        print_table([title, *real_lines(data_folder(), given.repeat, given.limit)], given.markdown)
    if given.variables:
        title = ["family", "", "non-zeros", "probes", "failures", "implications", "time", "all told", "probes/s",
                 "10^9 non-zeros x probes/s"]  # fmt: skip
        for family in given.families:
            lines = made_up_lines(family, given.variables, given.probes, given.device, given.repeat)
            print_table([title, *lines], given.markdown)
    print(describe_run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
