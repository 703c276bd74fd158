"""From how many rows the GPU is faster than the CPU for tables in main memory, the way there and back included.

    python benchmarks/gpu_choice.py

``auto`` goes by this (``AUTO_ROWS`` in oocbe/kernels/choice.py). Median seconds of the whole operator, from NumPy
arrays to NumPy arrays, warm. The tables' rows are shuffled, so that both sides sort.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from oocbe.algebra.operators import join_maximise, maximise
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000)


def shuffled(own: str, rows: int, seed: int) -> Table:
    """Half of all rows over (own, e, k) with 8 values of own and e each, in random order."""
    groups = max(1, rows // 32)
    layout = Layout((own, "e", "k"), (8, 8, groups))
    rng = np.random.default_rng(seed)
    keys = rng.permutation(64 * groups)[:rows].astype(np.uint64)[np.newaxis]
    return Table(layout, keys, rng.integers(0, 1000, keys.shape[1], dtype=np.int32), MIN_SUM)


def seconds_of(call: Callable[[], object]) -> float:
    """Median of some calls after a first one."""
    call()
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def main() -> None:
    print(f"{'operator':16}{'rows':>12}{'cpu ms':>10}{'cuda ms':>10}{'cpu / cuda':>12}")
    for rows in SIZES:
        f, g = shuffled("a", rows, 1), shuffled("b", rows, 2)
        cases = {
            "maximise": (rows, lambda name, f=f: maximise(f, "e", backend=name)),
            "join_maximise": (2 * rows, lambda name, f=f, g=g: join_maximise(f, g, "e", backend=name)),
        }
        for operator, (all_rows, run) in cases.items():
            a, b = run("cpu"), run("cuda")
            assert np.array_equal(a.keys, b.keys), operator
            assert np.array_equal(a.values, b.values), operator
            cpu, cuda = (seconds_of(lambda name=name, run=run: run(name)) for name in ("cpu", "cuda"))
            print(f"{operator:16}{all_rows:12,}{cpu * 1e3:10.2f}{cuda * 1e3:10.2f}{cpu / cuda:12.2f}", flush=True)


if __name__ == "__main__":
    main()
