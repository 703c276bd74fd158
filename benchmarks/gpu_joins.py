"""Join and maximum on the device beside the join of Wu, Koutsoukos and Alonso (SIGMOD 2025), CUB's sort and maximum.

    python benchmarks/gpu_joins.py                                    # oocbe alone
    python benchmarks/gpu_joins.py --joins FOLDER --algorithms shj,smj  # with the peer's programs in FOLDER

The peer is BowenforGit/GPU-Joins-Evaluation, built outside the project: ``join_exp_4b4b`` and ``join_exp_8b8b``. It
joins 2^27 unique keys with 2^27 foreign keys, uniform, one and two payload columns; its times are those that it prints.
:file:`peers/join_tail.cu`, built with nvcc, is what follows: a sum, a sort and a maximum of each group. oocbe joins
tables of the same numbers of rows over (x, y) and (z, x, y), keys of 8 bytes, and eliminates x, 8 values wide, in one
step: it looks the first table's values up in an array over (x, y), whose sizes it knows, unlike the peer. ``wide``
eliminates a variable of 8,192 values, ``wide, own`` one of 1,024, and the first table has a variable of its own, so
that values are not looked up. All columns are in device memory, shuffled. Medians of six.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import cupy as cp

import oocbe
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

LOG_ROWS = 27

CASES = {
    "4-byte keys": (24, 3, 8, 0),
    "8-byte keys": (24, 3, 16, 0),
    "wide": (14, 13, 8, 0),
    "wide, own": (14, 10, 8, 3),
}
"""Bits of y, x and z, and of the first table's own variable."""


def milliseconds(run: Callable[[], Any], times: int = 6) -> float:
    """Median on the device, after a first call."""
    found = []
    for _ in range(times + 1):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        run()
        end.record()
        end.synchronize()
        found.append(cp.cuda.get_elapsed_time(begin, end))
    return median(found[1:])


def tables(y: int, x: int, z: int, own: int) -> tuple[Table, Table]:
    """All assignments of (x, y), or (a, x, y), and 2^LOG_ROWS ones of (z, x, y), at most; shuffled, on the device."""
    random = cp.random.default_rng(1)

    def table(layout: Layout, keys: Any) -> Table:
        keys = keys[cp.argsort(random.integers(0, 1 << 62, len(keys)))].astype(cp.uint64)
        values = random.integers(0, 1000, len(keys)).astype(cp.int32)
        return Table(layout, keys[None], values, oocbe.MAX_SUM, False)

    names = ("a", "x", "y") if own else ("x", "y")
    layout = Layout(names, (1 << own, 1 << x, 1 << y)[-len(names) :])
    first = table(layout, cp.arange(layout.complete_rows))
    drawn = cp.unique(random.integers(0, 1 << (x + y + z), 1 << LOG_ROWS))
    return first, table(Layout(("z", "x", "y"), (1 << z, 1 << x, 1 << y)), drawn)


def peer_milliseconds(program: Path, algorithm: str, data: str) -> float:
    """Sum of the phases that the peer prints, median of three runs."""
    size = [str(LOG_ROWS)]
    options = ["-l", "-r", *size, "-s", *size, "-m", "1", "-n", "2", "-t", "pkfk", "-i", algorithm]
    command = [str(program), *options, "-f", f"{data}/", "-o", f"{data}/{algorithm}.csv"]
    found = []
    for _ in range(3):
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(sum(float(number) for number in re.findall(r"^\w+: ([\d.]+) ms$", printed, re.M)))
    return median(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joins", type=Path, help="folder of the peer's programs")
    parser.add_argument("--algorithms", default="shj,smj,phj", help="of the peer")
    arguments = parser.parse_args()
    for name, bits in CASES.items():
        first, second = tables(*bits)
        cp.get_default_memory_pool().free_all_blocks()
        found = milliseconds(lambda pair=(first, second): oocbe.join_maximise(*pair, "x", backend="cuda"))
        print(f"{name}: oocbe {found:.1f} ms ({first.rows:,} and {second.rows:,} rows)", flush=True)
        del first, second
        cp.get_default_memory_pool().free_all_blocks()
    if arguments.joins is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("int", "long"):
            (Path(folder) / kind).mkdir()
        tail = Path(folder) / "join_tail"
        source = Path(__file__).parent / "peers" / "join_tail.cu"
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, "-O3", "-std=c++17", "-arch=sm_90", source, "-o", tail], check=True)
        tails = subprocess.run([tail, str(1 << LOG_ROWS)], check=True, capture_output=True, text=True).stdout.split()
        for program, after in zip(("join_exp_4b4b", "join_exp_8b8b"), map(float, tails), strict=True):
            for algorithm in arguments.algorithms.split(","):
                join = peer_milliseconds(arguments.joins / program, algorithm, folder)
                print(
                    f"{program} {algorithm}: join {join:.1f} ms, with sort and maximum {join + after:.1f}", flush=True
                )


if __name__ == "__main__":
    main()
