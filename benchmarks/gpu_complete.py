"""Buckets of complete tables on the device: joined rows a second, and the share of the device's copy bandwidth.

Products: two functions that share a batch axis and the eliminated one, in the layout of bucket elimination (eliminated
axis fastest). Peers: the same in CuPy, a slice of the eliminated axis at a time (``maximum(out, a + b)``), and for sums
of products of floats its matrix product. Everything else is bound by memory: each input and output byte counts once.

    python benchmarks/gpu_complete.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import prod
from typing import Any

import cupy as cp
import numpy as np
from measuring import describe_run

from oocbe.kernels import backend_named
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.semiring import LOG_SUM_EXP, MAX_SUM, MIN_SUM, SUM_PRODUCT, Semiring

KERNELS = backend_named("cuda")
RUNS = 5


def seconds_of(call: Callable[[], Any]) -> float:
    """Device time of a call, the least of some."""
    times = []
    for _ in range(RUNS + 1):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(begin, end) / 1e3)
    return min(times[1:])


def copy_rate() -> float:
    """Bytes read and written a second by a copy on the device."""
    source = cp.zeros(1 << 30, dtype=cp.uint64)
    target = cp.empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: cp.copyto(target, source))


def random_values(cells: int, dtype: str, seed: int) -> Any:
    generator = cp.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return generator.random(cells, dtype=dtype)
    return generator.integers(0, 100, cells, dtype=np.int32).astype(dtype)


def product_case(semiring: Semiring, dtype: str, cells: int, shared: int, side: int, fastest: str) -> list[str]:
    """Two functions of about so many values; each has a side of its own."""
    batch = cells // (shared * side)
    sizes = [side, side, batch, shared]
    if fastest == "eliminated":
        left, right = (0, shared, shared * side, 1), (shared, 0, shared * side, 1)
    else:
        left, right = (0, 1, shared * side, side), (1, 0, shared * side, side)
    a, b = random_values(cells, dtype, 1), random_values(cells, dtype, 2)
    functions = [CompleteFunction(a, left), CompleteFunction(b, right)]
    codes = (semiring.combination, semiring.marginalisation)

    def run() -> Any:
        return KERNELS.eliminate_complete(functions, sizes, 1, *codes, np.dtype(dtype))

    found = run()
    seconds = seconds_of(run)
    joined = batch * side * side * shared

    def peer(some: int) -> Any:
        """The same for the first batches, in CuPy."""
        shape = (batch, side, shared) if fastest == "eliminated" else (batch, shared, side)
        x, y = a.reshape(shape)[:some], b.reshape(shape)[:some]
        if fastest != "eliminated":
            x, y = x.transpose(0, 2, 1), y.transpose(0, 2, 1)
        if semiring is SUM_PRODUCT:
            return x @ y.transpose(0, 2, 1)
        best = cp.maximum if semiring is MAX_SUM else cp.minimum
        out = x[:, :, None, 0] + y[:, None, :, 0]
        for k in range(1, shared):
            best(out, x[:, :, None, k] + y[:, None, :, k], out=out)
        return out

    some = max(1, min(batch, (1 << 27) // (side * side)))
    expected = peer(some)
    same = found[: some * side * side].reshape(expected.shape)
    assert bool(cp.allclose(same, expected, rtol=1e-4)), "the results differ"
    slow = seconds_of(lambda: peer(some)) * batch / some
    del found, same, expected
    cp.get_default_memory_pool().free_all_blocks()
    return [
        f"{semiring} {dtype}", f"2 x 2^{cells.bit_length() - 1}", str(shared), f"{side:,}", fastest, f"{joined:.2e}",
        f"{seconds * 1e3:.2f}", f"{joined / seconds / 1e12:.2f}", f"{slow / seconds:.1f} x",
    ]  # fmt: skip


def memory_case(name: str, semiring: Semiring, dtype: str, sizes: list[int], scopes: list[tuple[int, ...]],
                eliminated: int, rate: float) -> list[str]:  # fmt: skip
    """A bucket bound by memory; scopes with the fastest axis first."""
    functions = []
    for number, scope in enumerate(scopes):
        strides, step = [0] * len(sizes), 1
        for axis in scope:
            strides[axis] = step
            step *= sizes[axis]
        functions.append(CompleteFunction(random_values(step, dtype, number), tuple(strides)))
    codes = (semiring.combination, semiring.marginalisation)

    def run() -> Any:
        return KERNELS.eliminate_complete(functions, sizes, eliminated, *codes, np.dtype(dtype))

    moved = sum(f.values.nbytes for f in functions) + run().nbytes
    seconds = seconds_of(run)
    joined = prod(sizes)
    cp.get_default_memory_pool().free_all_blocks()
    return [
        name, f"{semiring} {dtype}", f"{joined:.2e}", f"{moved / 2**30:.1f}", f"{seconds * 1e3:.2f}",
        f"{joined / seconds / 1e12:.2f}", f"{moved / seconds / rate:.0%}",
    ]  # fmt: skip


def show(rows: list[list[str]]) -> None:
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller tables")
    quick = parser.parse_args().quick
    show([["semiring", "inputs", "eliminated", "sides", "fastest axis", "joined", "ms", "10^12 joined/s", "CuPy"]])
    show([["---"] * 9])
    small, large = (24, 26) if quick else (27, 30)
    for semiring, dtype in ((MAX_SUM, "int32"), (MAX_SUM, "int16"), (MIN_SUM, "int32"), (MAX_SUM, "float32"),
                            (SUM_PRODUCT, "float32"), (MAX_SUM, "int64"), (MAX_SUM, "float64"),
                            (SUM_PRODUCT, "float64")):  # fmt: skip
        for shared in (16, 32, 64):
            show([product_case(semiring, dtype, 1 << small, shared, 1024, "eliminated")])
    for fastest in ("eliminated", "own"):
        show([product_case(MAX_SUM, "int32", 1 << small, 32, side, fastest) for side in (64, 128, 512)])
        show([product_case(MAX_SUM, "int32", 1 << large, 32, 256, fastest)])
        show([product_case(MAX_SUM, "int16", 1 << large, 64, 256, fastest)])
    rate = copy_rate()
    print(f"\ncopy on the device: {rate / 1e9:,.0f} GB/s read and written\n")
    show([["bucket", "semiring", "joined", "GiB", "ms", "10^12 joined/s", "of the copy"], ["---"] * 7])
    n = 20 if quick else 28
    cases: list[tuple[str, list[int], list[tuple[int, ...]], int]] = [
        ("maximise, eliminated axis fastest, 2 values", [1 << n, 2], [(1, 0)], 1),
        ("maximise, eliminated axis fastest, 5 values", [1 << n - 2, 5], [(1, 0)], 1),
        ("maximise, eliminated axis fastest, 16 values", [1 << n - 3, 16], [(1, 0)], 1),
        ("maximise, eliminated axis fastest, 64 values", [1 << n - 5, 64], [(1, 0)], 1),
        ("maximise, eliminated axis slowest, 16 values", [1 << n - 3, 16], [(0, 1)], 1),
        ("maximise to one value", [1 << n], [(0,)], 1),
        ("join, (x, y) and (y, z)", [1 << n // 2 - 2, 8, 1 << n // 2], [(0, 1), (1, 2)], 0),
        ("network: 12 variables of 5 values, 4 functions", [5] * 12, [(11, 0, 1, 3, 5, 8), (11, 2, 4, 6, 9, 10),
                                                                      (11, 7, 8), (1, 2, 10)], 1),
        ("network: one large function and 3 small ones", [5] * 12, [(11, *range(11)), (11, 0), (11, 3, 7), (2, 9)], 1),
        ("binary network: 28 variables, 3 functions", [2] * (n + 1), [(n, *range(0, n - 6)), (n, *range(8, n)), (n, 3)],
         1),
    ]  # fmt: skip
    for name, sizes, scopes, eliminated in cases:
        show([memory_case(name, MIN_SUM, "int32", sizes, scopes, eliminated, rate)])
    show([memory_case(cases[2][0], LOG_SUM_EXP, "float64", *cases[2][1:], rate)])
    show([memory_case(cases[2][0], SUM_PRODUCT, "float32", *cases[2][1:], rate)])
    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"\n{name}; {describe_run(['cupy-cuda12x', 'cupy-cuda13x'])}")


if __name__ == "__main__":
    main()
