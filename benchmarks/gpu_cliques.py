"""Reduction and scattering of complete cliques on a device, beside a copy there.

    python benchmarks/gpu_cliques.py                    # all shapes
    python benchmarks/gpu_cliques.py --markdown         # rows for RESULTS.md

A clique of float64 cells is added up over all variables that a separator lacks (*reduction*), and multiplied by a table
over the separator into a clique of its own (*scattering*), as a junction tree does for each edge (Bistaffa, Farinelli
and Bombieri, algorithm 2). What counts is bytes a second of the tables read and written, beside what a copy of the
clique reads and writes. Separators are the first variables (the fastest), the last ones, every other one, and all but
one. What is checked: the first cells against NumPy. The exit code is 1 where any differs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import describe_run, print_table

from oocbe.algebra.complete_tables.complete_stream import BucketFunction, CompleteBucket
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.interface import steps_of
from oocbe.model.semiring import SUM_PRODUCT

SHAPES = {"binary": (2,) * 28, "mixed": (7, 3, 5, 4, 6, 3, 5, 4, 6, 5, 4, 3, 7), "wide": (21, 21, 21, 21, 21, 17, 4)}
"""Domain sizes, the first variable fastest."""

CLOSE = 1e-9

CALLS = 4
"""Calls between two events."""


def separators(count: int) -> dict[str, list[int]]:
    """Some separators of a clique, by name."""
    return {
        "first": list(range(count // 2)),
        "last": list(range(count - count // 2, count)),
        "every other": list(range(0, count, 2)),
        "all but the first": list(range(1, count)),
        "all but the last": list(range(count - 1)),
        "one": [count // 2],
    }


def timed(call: Callable[[], Any]) -> float:
    """Median seconds of a call, by events of the device around several, so that the host is ahead of it."""
    import cupy

    call()
    seconds = []
    for _ in range(5):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1000 / CALLS)
    return statistics.median(seconds)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    import cupy

    kernels = complete_kernels(0, "cuda")
    rows, wrong = (
        [["clique", "cells", "separator", "its cells", "reduced GB/s", "share", "scattered GB/s", "share"]],
        [],
    )
    for name, sizes in SHAPES.items():
        cells = int(np.prod(sizes))
        host = np.random.default_rng(1).random(cells)
        clique = cupy.asarray(host)
        target = cupy.empty_like(clique)
        copied = 16 * cells / timed(lambda target=target, clique=clique: cupy.copyto(target, clique))
        del target
        every = tuple(range(len(sizes)))
        whole = BucketFunction(every, clique, steps_of(sizes))
        cube = host.reshape(sizes, order="F")
        for kind, separator in separators(len(sizes)).items():
            own = [sizes[v] for v in separator]
            others = [v for v in every if v not in separator]
            up = CompleteBucket(separator, others, sizes, SUM_PRODUCT, np.dtype(np.float64), kernels)
            message = up.eliminate([whole])
            bytes_up = 8 * (cells + len(message))
            reduced = bytes_up / timed(lambda up=up, whole=whole: up.eliminate([whole]))
            down = CompleteBucket(every, (), sizes, SUM_PRODUCT, np.dtype(np.float64), kernels)
            back = BucketFunction(tuple(separator), message, steps_of(own))
            both = [whole, back]
            scattered = (8 * cells + bytes_up) / timed(lambda down=down, both=both: down.eliminate(both))
            expected = cube.sum(axis=tuple(others))
            shape = [sizes[v] if v in separator else 1 for v in every]
            again = cube * expected.reshape(shape, order="F")
            flat = (expected.ravel(order="F"), again.ravel(order="F"))
            for found, right in zip((message, down.eliminate(both)), flat, strict=True):
                if not np.allclose(found[:100_000].get(), right[:100_000], rtol=CLOSE, atol=0):
                    wrong.append(f"{name}, {kind}: numbers differ")
            shares = [f"{reduced / 1e9:,.0f}", f"{reduced / copied:.2f}", f"{scattered / 1e9:,.0f}"]
            rows.append([name, f"{cells:,}", kind, f"{len(message):,}", *shares, f"{scattered / copied:.2f}"])
        print(f"{name}: a copy reads and writes {copied / 1e9:,.0f} GB/s", flush=True)
    print_table(rows, arguments.markdown)
    print(describe_run(["cupy-cuda12x", "cupy-cuda13x"]))
    for line in wrong:
        print(f"WRONG {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
