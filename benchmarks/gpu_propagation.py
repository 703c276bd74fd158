"""Propagation on a CUDA device: rounds over made-up linear systems.

    python benchmarks/gpu_propagation.py                                 # 100 million non-zeros
    python benchmarks/gpu_propagation.py --entries 4e8 --markdown

A round is checked against the processor's bit for bit on a smaller system of the same kind. Shares are of the fewest
bytes that must be read, over what a copy within the device's memory moves: a non-zero's column and coefficient, each
variable's bounds once, each row's sides. Seconds are the median of ``--repeat``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from measuring import describe_run, print_table

from oocbe.kernels.cuda.device import cupy
from oocbe.propagation.kernels.cpu.linear_rows import (
    INTEGER_ROW,
    Found,
    LinearRows,
    Rounding,
    propagate_round,
    room_for_changes,
)
from oocbe.propagation.kernels.cuda.linear_rows import DeviceRows

CHECKED_ENTRIES = 1_000_000
"""Non-zeros of the system whose round is compared with the processor's."""

OUTWARD = Rounding(True, 0.0, 1e-9)


def seconds_of(work: Callable[[], object], repeat: int) -> float:
    """Median seconds of the device between two events, after a run to warm up."""
    work()
    spent = []
    for _ in range(repeat):
        begin, end = cupy().cuda.Event(), cupy().cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        spent.append(cupy().cuda.get_elapsed_time(begin, end) / 1e3)
    return float(np.median(spent))


def copy_bandwidth(repeat: int) -> float:
    """Bytes a second, read and written, of a copy within the device's memory."""
    source = cupy().ones(1 << 28, dtype=np.float64)
    target = cupy().empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: cupy().copyto(target, source), repeat)


def system(entries: int, variables: int, least: int, most: int) -> LinearRows:
    """Rows of integers with so many terms over any variables between 0 and 10; one of three bounds some of them."""
    random = np.random.default_rng(0)
    lengths = random.integers(least, most + 1, size=2 * entries // (least + most))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = random.integers(0, variables, size=starts[-1])
    coefficients = random.integers(1, 10, size=starts[-1]).astype(np.float64)
    rows = len(lengths)
    reach = 10 * np.add.reduceat(coefficients, starts[:-1])
    upper = np.floor(np.where(random.random(rows) < 1 / 3, 0.3 / np.sqrt(lengths), 0.8) * reach)
    nothing = np.zeros(variables + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    kinds, integral = np.full(rows, INTEGER_ROW, dtype=np.uint8), np.ones(variables, dtype=np.uint8)
    return LinearRows(starts, columns, coefficients, np.full(rows, -np.inf), upper, kinds, integral, *nothing)


def bounds_of(rows: LinearRows) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(len(rows.integral)), np.full(len(rows.integral), 10.0)


def check(least: int, most: int) -> None:
    """SystemExit where a round on the device is another one than here."""
    rows = system(CHECKED_ENTRIES, CHECKED_ENTRIES // 10, least, most)
    before, (lower, upper) = bounds_of(rows), bounds_of(rows)
    marked, found = np.ones(len(rows.kinds), dtype=np.uint8), Found(*np.array([[-1], [-1], [0]]))
    changes, stop = room_for_changes(rows), np.zeros(1, np.int64)
    propagate_round(rows, *before, lower, upper, marked, marked.copy(), True, OUTWARD, found, changes, stop)
    reached = DeviceRows(rows).propagate(*before, OUTWARD, 1)
    if reached.lower.tobytes() != lower.tobytes() or reached.upper.tobytes() != upper.tobytes():
        raise SystemExit(f"rows of {least} to {most}: the device's bounds are not the processor's")


def linear_lines(entries: int, repeat: int, bandwidth: float) -> list[list[str]]:
    lines = []
    for variables, least, most in (
        (1_000_000, 2, 18),
        (25_000_000, 2, 18),
        (1_000_000, 50, 400),
        (1_000_000, 4000, 4000),
    ):
        check(least, most)
        rows = system(entries, variables, least, most)
        count = len(rows.columns)
        device = DeviceRows(rows)
        rounds = device.rounds_from(*bounds_of(rows), OUTWARD)
        begin, end = cupy().cuda.Event(), cupy().cuda.Event()
        begin.record()
        changes, _ = rounds.round()
        end.record()
        end.synchronize()
        first = cupy().cuda.get_elapsed_time(begin, end) / 1e3
        later = seconds_of(rounds.round, repeat)
        fewest = 8 * count + 16 * variables + 25 * len(rows.kinds)
        lines.append([
            f"{count:,}", f"{variables:,}", f"{least} to {most}", f"{changes:,}", f"{1e3 * first:.2f} ms",
            f"{1e3 * later:.2f} ms", f"{count / later / 1e9:.1f}", f"{fewest / later / bandwidth:.0%}",
        ])  # fmt: skip
        del rounds, device
        cupy().get_default_memory_pool().free_all_blocks()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=float, default=1e8, help="non-zeros of each linear system")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each, whose median counts")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    bandwidth = copy_bandwidth(given.repeat)
    print(f"a copy within the device's memory moves {bandwidth / 1e12:.2f} TB/s\n")
    title = ["non-zeros", "variables", "in a row", "bounds changed", "first round", "later round", "10^9/s", "roofline"]
    print_table([title, *linear_lines(int(given.entries), given.repeat, bandwidth)], given.markdown)
    print(describe_run(["cupy"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
