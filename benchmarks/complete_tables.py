"""Buckets of complete tables beside NumPy's broadcasting, and whole solves with and without complete messages.

The kernel is compared with ``(a + b).max(axis)`` over arrays that broadcast, and for sums of products with
``np.einsum``; both see the same values, and the results must agree. Times are the best of some runs, taken in turn,
so that both meet the same load. Solves are whole, bounds left out, order included, in the user's and system's CPU time:
``tables`` says what each message may be.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
from measuring import data_folder, describe_run

import oocbe
from oocbe.kernels.cpu.complete.complete import eliminate_complete
from oocbe.kernels.interface import CompleteFunction, steps_of
from oocbe.model.semiring import MAX_SUM, SUM_PRODUCT, Semiring

SHAPES: dict[str, tuple[Sequence[int], int, Sequence[Sequence[int]]]] = {
    "matrix product, 64 in common": ((1024, 1024, 64), 1, [(0, 2), (1, 2)]),
    "matrix product, transposed": ((512, 512, 512), 1, [(2, 0), (1, 2)]),
    "three functions": ((256, 256, 256), 1, [(0, 2), (1, 2), (0, 1)]),
    "22 binary, two large": ((2,) * 22, 1, [(*range(16), 21), (*range(6, 21), 21)]),
    "22 binary, one large": ((2,) * 22, 1, [tuple(range(22)), (0, 3, 7, 21), (12, 19, 21)]),
    "maximise the fastest": ((1 << 22, 4), 1, [(1, 0)]),
    "maximise the slowest": ((1 << 22, 4), 1, [(0, 1)]),
    "to a number": ((256, 256, 64), 3, [(0, 1), (1, 2), (2, 0)]),
}
"""Sizes of the axes (the fastest first), how many of the last are eliminated, and each function's axes."""

INSTANCES = (
    *("uai/grid/50-16-5.uai.gz", "uai/grid/75-18-5.uai.gz"),
    *("uai/pedigree/pedigree1.uai.gz", "uai/pedigree/pedigree23.uai.gz"),
    *(f"wcsp/random/{number}.wcsp" for number in range(10)),
)


def in_turn(ways: Sequence[Callable[[], object]], repeat: int) -> list[float]:
    """Best wall time of each way, each run ``repeat`` times after a first one."""
    best = [math.inf] * len(ways)
    for way in ways:
        way()
    for _ in range(repeat):
        for number, way in enumerate(ways):
            begin = time.perf_counter()
            way()
            best[number] = min(best[number], time.perf_counter() - begin)
    return best


def bucket(shape: str, dtype: str) -> tuple[list[CompleteFunction], list[np.ndarray]]:
    """Functions for the kernel, and the same as arrays that broadcast, the last axis fastest."""
    sizes, _, scopes = SHAPES[shape]
    random = np.random.default_rng(0)
    functions, arrays = [], []
    for scope in scopes:
        values = random.integers(0, 100, math.prod(sizes[a] for a in scope)).astype(dtype)
        steps = dict(zip(scope, steps_of([sizes[a] for a in scope]), strict=True))
        functions.append(CompleteFunction(values, tuple(steps.get(a, 0) for a in range(len(sizes)))))
        array = values.reshape([sizes[a] for a in reversed(scope)])
        axes = list(reversed(scope))
        array = array.transpose(sorted(range(len(axes)), key=lambda i: -axes[i]))
        arrays.append(array.reshape([sizes[a] if a in scope else 1 for a in reversed(range(len(sizes)))]))
    return functions, arrays


def kernel(shape: str, dtype: str, semiring: Semiring, repeat: int) -> None:
    """Print a row for one shape."""
    sizes, eliminated, _ = SHAPES[shape]
    functions, arrays = bucket(shape, dtype)
    gone = tuple(range(eliminated))
    codes = (semiring.combination, semiring.marginalisation, np.dtype(dtype))

    def ours() -> np.ndarray:
        return eliminate_complete(functions, sizes, eliminated, *codes)

    def broadcast() -> np.ndarray:
        joined = arrays[0]
        for array in arrays[1:]:
            joined = joined + array
        return joined.max(axis=gone)

    def einsum() -> np.ndarray:
        operands: list[object] = []
        for array in arrays:
            operands += [array.squeeze(), [a for a, n in enumerate(array.shape) if n > 1]]
        return np.einsum(*operands, list(range(eliminated, len(sizes))), optimize=True)

    theirs = broadcast if semiring == MAX_SUM else einsum
    expected = np.asarray(theirs()).ravel()
    assert np.allclose(ours(), expected, rtol=1e-4) if codes[2].kind == "f" else np.array_equal(ours(), expected)
    mine, numpy = in_turn((ours, theirs), repeat)
    rate = math.prod(sizes) / mine / 1e9
    print(
        f"| {shape} | {semiring} | {dtype} | 2^{math.log2(math.prod(sizes)):.1f} | {mine * 1e3:.2f} | {rate:.2f} | "
        f"{numpy * 1e3:.2f} | {numpy / mine:.1f} |",
        flush=True,
    )


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def solve(name: str, repeat: int) -> None:
    """Print a row for one instance."""
    problem = oocbe.read(data_folder() / name)
    plan = oocbe.plan(problem, order_seconds=0)
    best: dict[str, tuple[float, float]] = {}
    values = []
    for tables in ("auto", "incomplete") * (repeat + 1):  # the first round compiles, or finds, the loops
        begin, used = time.perf_counter(), cpu_seconds()
        result = oocbe.solve(problem, tables=tables, bounds="none", order_seconds=0, backend="cpu")
        spent = (cpu_seconds() - used, time.perf_counter() - begin)
        values.append(result.value)
        if len(values) > 2:
            best[tables] = min(best.get(tables, spent), spent)
    assert np.allclose(values, values[0], rtol=1e-9)
    (cpu, wall), (cpu_rows, wall_rows) = best["auto"], best["incomplete"]
    print(
        f"| {name.split('.')[0]} | {plan.width} | {result.largest_message_rows:,} | {cpu:.2f} | {wall:.2f} | "
        f"{cpu_rows:.2f} | {wall_rows:.2f} | {cpu_rows / cpu:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dtypes", default="int16,int32,float32,float64")
    parser.add_argument("--instances", default=",".join(INSTANCES), help="below the data folder; empty: none")
    arguments = parser.parse_args()
    print("| bucket | semiring | values | joined | ms | billion/s | NumPy ms | ratio |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for dtype in arguments.dtypes.split(","):
        for shape in SHAPES:
            kernel(shape, dtype, MAX_SUM, arguments.repeat)
    for dtype in ("float32", "float64"):
        kernel("matrix product, 64 in common", dtype, SUM_PRODUCT, arguments.repeat)
        kernel("three functions", dtype, SUM_PRODUCT, arguments.repeat)
    print("\n| instance | width | largest rows | CPU s | wall s | rows CPU s | rows wall s | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in filter(None, arguments.instances.split(",")):
        solve(name, max(1, arguments.repeat // 3))
    print(f"\n{describe_run()}")


if __name__ == "__main__":
    main()
