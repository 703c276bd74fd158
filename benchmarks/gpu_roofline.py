"""Device memory that kernels and operators have to move, what they moved, and the time beside that of a copy.

    python benchmarks/gpu_roofline.py [--rows 1e8] [--kernels FILE]

Every case of ``gpu_kernels.py``, the fused join + maximise of sorted tables (``gpu_fused.py``), and the operator on
shuffled tables (``gpu_joins.py``). Least: each input byte read once, each output byte written once. Moved: bytes that
the device's memory read and wrote during one call, by the hardware's counters (Nsight Compute, ``ncu``, without control
of clocks or caches). Time: median by events, in this process and without the profiler. Shares are of the bandwidth of a
copy within the device, read and write counted: of the least bytes, and of the bytes moved. ``--kernels`` writes the
figures of each launch.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy as cp
from gpu_fused import table
from gpu_joins import CASES as JOINS
from gpu_joins import tables
from gpu_kernels import CASES, Case, copy_bandwidth, seconds_of

from oocbe.algebra.operators import join_maximise
from oocbe.kernels import backend_named

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum")

MARK = "begin_case"
"""Name of the kernel before each case in the profiler's output, with the number of the case behind it."""


def operator_case(name: str, first: Any, second: Any, gone: str) -> Case:
    """A join and maximum of tables on the device."""
    kernels = backend_named("cuda")
    result = join_maximise(first, second, gone, backend=kernels)
    moved = first.nbytes + second.nbytes + result.nbytes
    return Case(
        name, first.rows + second.rows, moved, lambda: join_maximise(first, second, gone, backend=kernels), None
    )


def cases(rows: int) -> Iterator[Case]:
    """All cases, one after the other: the memory of one is free before the next."""
    for make in CASES.values():
        for case in make(rows):
            if "CUB" not in case.name:
                yield case
        cp.get_default_memory_pool().free_all_blocks()
    groups, domain = 1_000_000, 8
    own = max(2, 2 * rows // (groups * domain))
    pair = (table(name, own, domain, groups, rows, False, seed) for seed, name in enumerate(("a", "b"), 1))
    yield operator_case("join + maximise, sorted tables", *pair, "e")
    cp.get_default_memory_pool().free_all_blocks()
    for name, bits in JOINS.items():
        yield operator_case(f"join + maximise, shuffled: {name}", *tables(*bits), "x")
        cp.get_default_memory_pool().free_all_blocks()


def run_counted(rows: int) -> None:
    """Each case once, between the profiler's start and stop, behind a kernel with its number."""
    for number, case in enumerate(cases(rows)):
        for _ in range(2):
            case.run()
        mark = cp.RawKernel(f'extern "C" __global__ void {MARK}_{number}() {{}}', f"{MARK}_{number}")
        mark((1,), (1,), ())
        cp.cuda.Device().synchronize()
        cp.cuda.runtime.profilerStart()
        mark((1,), (1,), ())
        case.run()
        cp.cuda.Device().synchronize()
        cp.cuda.runtime.profilerStop()


def counted(rows: int, listed: Path | None) -> list[float]:
    """Bytes moved by each case."""
    profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    options = ["--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none"]
    options += ["--metrics", ",".join(METRICS), "--csv", "--page", "raw", "--print-units", "base"]
    command = [profiler, *options, sys.executable, __file__, "--counted", "--rows", str(rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = done.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    if listed is not None:
        listed.write_text("\n".join(lines[first:]))
    found: list[float] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[first:]))):
        if not row["ID"]:  # the line of the units
            continue
        if row["Kernel Name"].startswith(MARK):
            found.append(0)
        else:
            found[-1] += sum(float(row[name].replace(",", "")) for name in METRICS[:2])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e8, help="of each kernel's input")
    parser.add_argument("--kernels", type=Path, help="write the figures of each launch to this file")
    parser.add_argument("--counted", action="store_true", help="what this script calls within the profiler")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.counted:
        run_counted(rows)
        return
    moved = counted(rows, arguments.kernels)
    bandwidth = copy_bandwidth()
    print(f"{cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}: copies {bandwidth / 1e9:,.0f} GB/s read + write")
    print(f"{'case':46}{'least GB':>10}{'moved GB':>10}{'ratio':>7}{'ms':>9}{'of copy':>9}{'moved':>7}")
    for case, actual in zip(cases(rows), moved, strict=True):
        seconds = seconds_of(case.run)
        print(
            f"{case.name:46}{case.moved / 1e9:10.2f}{actual / 1e9:10.2f}{actual / case.moved:7.2f}{seconds * 1e3:9.2f}"
            f"{case.moved / seconds / bandwidth:9.0%}{actual / seconds / bandwidth:7.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
