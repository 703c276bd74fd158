"""Propagation on a CUDA device: rounds over made-up linear systems, and scans of made-up tables.

    python benchmarks/gpu_propagation.py                                 # 100 million non-zeros, 400 million rows
    python benchmarks/gpu_propagation.py --entries 4e8 --rows 1e9 --markdown

A round is checked against the processor's bit for bit on a smaller system of the same kind. Shares are of the fewest
bytes that must be read, over what a copy within the device's memory moves: a non-zero's column and coefficient, each
variable's bounds once, each row's sides; a table's keys. Seconds are the median of ``--repeat``.
"""

from __future__ import annotations

import argparse
import sys
import time
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
from oocbe.propagation.kernels.cuda.table_rows import Scanner, ballot_words, slot_starts
from oocbe.propagation.scans import scan
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

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


def scan_lines(rows: int, repeat: int, bandwidth: float) -> list[list[str]]:
    lines = []
    for columns, size in ((6, 100), (10, 50)):
        layout = Layout(tuple(f"v{i}" for i in range(columns)), (size,) * columns)
        fields = [(f.word, f.shift, f.bits) for f in layout.fields]
        keys = cupy().zeros(rows, dtype=np.uint64)
        cupy().random.seed(0)
        for begin in range(0, rows, 1 << 26):
            part = keys[begin : begin + (1 << 26)]
            for _, shift, _ in fields:
                part |= cupy().random.randint(0, size, len(part), dtype=np.int32).astype(np.uint64) << np.uint64(shift)
        ballots = cupy().empty(ballot_words(rows, 1), dtype=np.uint32)
        sample = keys[:1_000_000].get()
        starts = slot_starts(fields)
        for part_left in (1.0, 0.9, 0.5):
            kept = np.random.default_rng(1).random((columns, size)) < part_left
            alive = np.zeros(starts[-1], dtype=np.uint8)
            for start, own in zip(starts, kept, strict=False):
                alive[start : start + size] = own
            is_left = np.ones(len(sample), dtype=bool)
            for own, (_, shift, bits) in zip(kept, fields, strict=True):
                is_left &= own[(sample >> np.uint64(shift)) & np.uint64((1 << bits) - 1)]
            checked = Scanner(fields, alive)
            checked.scan([keys[: len(sample)]])
            if checked.read()[0] != is_left.sum():
                raise SystemExit(f"{columns} columns: other rows are left than here")
            scanner = Scanner(fields, alive)
            plain = seconds_of(lambda s=scanner, k=keys: s.scan([k]), repeat)
            marking = seconds_of(lambda s=scanner, k=keys, b=ballots: s.scan([k], b), repeat)
            lines.append([
                f"{rows:,}", str(columns), f"{part_left:.0%}", f"{rows / plain / 1e9:.0f}",
                f"{8 * rows / plain / bandwidth:.0%}", f"{rows / marking / 1e9:.0f}",
            ])  # fmt: skip
        del keys, ballots
        cupy().get_default_memory_pool().free_all_blocks()
    return lines


def bus_lines(rows: int, repeat: int) -> list[list[str]]:
    """A scan of a table in main memory, beside a copy from pinned memory."""
    import cupyx

    layout = Layout(tuple(f"v{i}" for i in range(6)), (100,) * 6)
    keys = layout.pack(np.random.default_rng(0).integers(0, 100, size=(1 << 20, 6)))
    table = Table(layout, np.tile(keys, rows >> 20), np.zeros(rows >> 20 << 20, dtype=np.int32))
    pinned = cupyx.empty_pinned(1 << 27, dtype=np.uint64)
    pinned[:] = 1
    target = cupy().empty(len(pinned), dtype=np.uint64)
    bus = pinned.nbytes / seconds_of(lambda: target.set(pinned), repeat)
    spent = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        scan(table, backend="cuda")
        spent.append(time.perf_counter() - begin)
    rate = table.keys.nbytes / float(np.median(spent[1:]))
    begin = time.perf_counter()
    here = scan(table, backend="cpu")
    there = time.perf_counter() - begin
    if here.rows_left != table.rows:
        raise SystemExit("the scan lost rows")
    return [
        [
            f"{table.rows:,}",
            f"{rate / 1e9:.1f} GB/s",
            f"{rate / bus:.0%}",
            f"{table.keys.nbytes / there / 1e9:.1f} GB/s",
        ]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=float, default=1e8, help="non-zeros of each linear system")
    parser.add_argument("--rows", type=float, default=4e8, help="rows of each table on the device; a quarter in memory")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each, whose median counts")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    bandwidth = copy_bandwidth(given.repeat)
    print(f"a copy within the device's memory moves {bandwidth / 1e12:.2f} TB/s\n")
    title = ["non-zeros", "variables", "in a row", "bounds changed", "first round", "later round", "10^9/s", "roofline"]
    print_table([title, *linear_lines(int(given.entries), given.repeat, bandwidth)], given.markdown)
    title = ["rows", "columns", "values left", "10^9 rows/s", "roofline", "with rows marked"]
    print_table([title, *scan_lines(int(given.rows), given.repeat, bandwidth)], given.markdown)
    title = ["rows in main memory", "scan on the device", "of a pinned copy", "scan by threads"]
    print_table([title, *bus_lines(int(given.rows) // 4, given.repeat)], given.markdown)
    print(describe_run(["cupy"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
