"""Each CUDA kernel against the device's own copy bandwidth, and against the straightforward CuPy composition.

    python benchmarks/gpu_kernels.py                          # all kernels, 10^6 to 10^9 rows
    python benchmarks/gpu_kernels.py --sizes 1e7 --only sort  # some
    python benchmarks/gpu_kernels.py --fused                  # fused join + maximise against the two steps
    python benchmarks/gpu_kernels.py --sorts                  # the sort against cuda.cccl's and CUB's

Columns: rows a second (output rows for joins, input rows elsewhere); bytes that have to move (each input byte read
once, each output byte written once) per second, as a share of what a copy of 2 GiB within the device reaches, read and
write counted; and how many times as fast as the composition it is. The sort is compared with CUB's pair sort as well,
where nvcc is there to compile it. Times are medians over calls in a row, by events on the device. Every result of up
to 20 million rows is checked against the composition's.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from oocbe.kernels import backend_named
from oocbe.kernels.cuda.pairs.groups import match_groups
from oocbe.kernels.cuda.pairs.selection import PRODUCTS, prefix_sum
from oocbe.kernels.interface import MatchedGroups
from oocbe.model.semiring import Combination, Marginalisation

KERNELS = backend_named("cuda")
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
CHECKED_ROWS = 20_000_000
"""Beyond, the composition may not fit beside the result: larger cases are timed, and not checked or compared."""


@dataclass(frozen=True)
class Case:
    """One kernel on one input.

    Attributes
    ----------
    name : what a person reads.
    rows : rows that the rate counts.
    moved : bytes that have to move.
    run : the kernel; its result.
    composed : the same result, as a tuple of arrays, from CuPy's own functions.
    """

    name: str
    rows: int
    moved: int
    run: Callable[[], Any]
    composed: Callable[[], Any] | None


def seconds_of(run: Callable[[], Any], at_once: int = 5, times: int = 5) -> float:
    """Seconds of a call on the device: the median over some rows of calls, after two calls to warm up.

    Calls of a row are queued without waiting, as a chain of operators would, so that queueing one overlaps with the
    work of the one before (as far as the kernel itself does not wait for the device).
    """
    for _ in range(2):
        run()
    found = []
    for _ in range(times):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        for _ in range(at_once):
            run()
        stop.record()
        stop.synchronize()
        found.append(cp.cuda.get_elapsed_time(start, stop) / 1e3 / at_once)
    return float(np.median(found))


def copy_bandwidth() -> float:
    """Bytes a second that a copy within the device reads and writes."""
    source = cp.random.default_rng(0).integers(0, 1 << 62, 1 << 28, dtype=np.int64)
    target = cp.empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: cp.copyto(target, source))


def random_words(rows: int, bits: int, seed: int = 1) -> Any:
    """uint64 (rows,) of so many random bits."""
    generator = cp.random.default_rng(seed)
    return generator.integers(0, 1 << bits, rows, dtype=np.uint64)


def nbytes(result: Any) -> int:
    """Bytes of the arrays in a kernel's result."""
    return sum(a.nbytes for a in result) if isinstance(result, tuple) else int(result.nbytes)


def permute_cases(rows: int) -> Iterator[Case]:
    keys = random_words(rows, 60)[np.newaxis]
    plan = np.array([[0, 0, 20, 0, 40], [0, 20, 25, 0, 0], [0, 45, 15, 0, 25]], dtype=np.int64)

    def composed() -> tuple[Any, ...]:
        k = keys[0]
        parts = [((k >> np.uint64(s)) & np.uint64((1 << b) - 1)) << np.uint64(to) for _, s, b, _, to in plan.tolist()]
        return ((parts[0] | parts[1] | parts[2])[np.newaxis],)

    yield Case("move 3 fields", rows, 16 * rows, lambda: KERNELS.permute(keys, plan, 1), composed)


def sort_cases(rows: int) -> Iterator[Case]:
    values = cp.arange(rows, dtype=np.int32)
    for bits in (64, 32, 16):
        keys = random_words(rows, min(bits, 63))[np.newaxis]
        moved = 24 * rows * (bits // 8) + 8 * rows

        def composed(keys: Any = keys, bits: int = bits) -> tuple[Any, ...]:
            order = cp.argsort(keys[0] & np.uint64((1 << bits) - 1))
            return keys[:, order], values[order]

        yield Case(
            f"sort, {bits} bits", rows, moved,
            lambda keys=keys, bits=bits: KERNELS.sort_rows(keys, values, [(0, 0, bits)]), composed,
        )  # fmt: skip
        peer = cub_sort(keys, values, bits)
        if peer is not None:
            yield Case(f"  CUB's, {bits} bits", rows, moved, peer, None)


def cub_sort(keys: Any, values: Any, bits: int) -> Callable[[], Any] | None:
    """CUB's pair sort of the same rows; None where it cannot be compiled."""
    library = cub_library()
    if library is None:
        return None
    out_keys, out_values = cp.empty_like(keys), cp.empty_like(values)
    rows = ctypes.c_longlong(len(values))
    pointers = [ctypes.c_void_p(a.data.ptr) for a in (keys, out_keys, values, out_values)]
    size = library.sort_pairs(None, ctypes.c_longlong(0), *pointers, rows, 0, bits)
    temporary = cp.empty(size, dtype=np.uint8)

    def run() -> Any:
        arguments = ctypes.c_void_p(temporary.data.ptr), ctypes.c_longlong(size)
        assert library.sort_pairs(*arguments, *pointers, rows, 0, bits) == 0
        return out_keys, out_values

    return run


_LIBRARY: list[Any] = []


def cub_library() -> Any:
    """The compiled peer; compiled once a run."""
    if not _LIBRARY:
        compiler = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if compiler is None:
            print("no nvcc: CUB's sort is left out")
            _LIBRARY.append(None)
        else:
            target = Path(tempfile.mkdtemp()) / "cub_sort.so"
            architecture = f"-arch=sm_{cp.cuda.Device().compute_capability}"
            source = Path(__file__).with_name("cub_sort.cu")
            command = [compiler, "-O3", "-std=c++17", architecture, "-shared", "-Xcompiler", "-fPIC"]
            subprocess.run([*command, str(source), "-o", str(target)], check=True)
            _LIBRARY.append(ctypes.CDLL(str(target)))
            _LIBRARY[0].sort_pairs.restype = ctypes.c_longlong
    return _LIBRARY[0]


def sorted_groups(rows: int, size: int, seed: int = 3) -> tuple[Any, Any]:
    """Sorted keys (1, rows) in groups of some size on average, group number above bit 10, and the groups' starts."""
    groups = max(1, rows // size)
    numbers = cp.sort(random_words(rows, 40, seed) % np.uint64(groups))
    keys = ((numbers << np.uint64(10)) | (cp.arange(rows, dtype=np.uint64) & np.uint64(1023)))[np.newaxis]
    return keys, KERNELS.group_starts(keys, HIGH)


HIGH = np.array([ALL_BITS << np.uint64(10)])


def group_cases(rows: int) -> Iterator[Case]:
    for size in (4, 1000):
        keys, starts = sorted_groups(rows, size)
        values = random_words(rows, 20).astype(np.int32)

        def starts_composed(keys: Any = keys) -> tuple[Any, ...]:
            k = keys[0] >> np.uint64(10)
            return (cp.concatenate([cp.zeros(1, np.int64), cp.flatnonzero(k[1:] != k[:-1]) + 1, cp.array([len(k)])]),)

        yield Case(
            f"group starts, {size} rows a group", rows, keys.nbytes + starts.nbytes,
            lambda keys=keys: (KERNELS.group_starts(keys, HIGH),), starts_composed,
        )  # fmt: skip

        def maximum_composed(keys: Any = keys, starts: Any = starts, values: Any = values) -> tuple[Any, ...]:
            import cupyx

            heads = cp.zeros(len(values), dtype=np.int64)
            heads[starts[1:-1]] = 1
            out = cp.full(len(starts) - 1, -(2**31), dtype=np.int32)
            cupyx.scatter_max(out, cp.cumsum(heads), values)
            return keys[:, starts[:-1]] & HIGH[0], out

        yield Case(
            f"maximise, {size} rows a group", rows,
            keys.nbytes + values.nbytes + starts.nbytes + 12 * (len(starts) - 1),
            lambda keys=keys, starts=starts, values=values: KERNELS.reduce_groups(
                keys, values, starts, HIGH, Marginalisation.MAX
            ),
            maximum_composed,
        )  # fmt: skip
        other, other_starts = sorted_groups(rows, size, seed=4)

        def match_composed(
            keys: Any = keys, starts: Any = starts, other: Any = other, others: Any = other_starts
        ) -> Any:
            first, second = keys[0][starts[:-1]] >> np.uint64(10), other[0][others[:-1]] >> np.uint64(10)
            at = cp.minimum(cp.searchsorted(second, first), len(second) - 1)
            found1 = cp.flatnonzero(second[at] == first)
            found2 = at[found1]
            counts = starts[found1 + 1] - starts[found1], others[found2 + 1] - others[found2]
            return starts[found1], counts[0], others[found2], counts[1]

        groups = len(starts) + len(other_starts)
        yield Case(
            f"match groups, {size} rows a group", groups, 8 * groups * 2 + 32 * min(len(starts), len(other_starts)),
            lambda k=keys, s=starts, o=other, t=other_starts: tuple(vars(match_groups(k, s, o, t, HIGH)).values()),
            match_composed,
        )  # fmt: skip


def prefix_cases(rows: int) -> Iterator[Case]:
    a, b = (random_words(rows, 4, seed).astype(np.int64) for seed in (1, 2))
    yield Case(
        "prefix sum of products", rows, 24 * rows, lambda: (prefix_sum(PRODUCTS, a, b),),
        lambda: (cp.concatenate([cp.zeros(1, np.int64), cp.cumsum(a * b)]),),
    )  # fmt: skip


def join_cases(rows: int) -> Iterator[Case]:
    for size1, size2 in ((2, 2), (10, 10), (1000, 100), (rows // 100, 100)):
        groups = max(1, rows // (size1 * size2))
        generator = cp.random.default_rng(5)
        counts1 = generator.integers(size1 // 2 + 1, size1 + size1 // 2, groups, dtype=np.int64)
        counts2 = generator.integers(size2 // 2 + 1, size2 + size2 // 2, groups, dtype=np.int64)
        starts1, starts2 = cp.cumsum(counts1) - counts1, cp.cumsum(counts2) - counts2
        rows1, rows2 = int(counts1.sum()), int(counts2.sum())
        keys1, keys2 = random_words(rows1, 30)[np.newaxis], (random_words(rows2, 30) << np.uint64(30))[np.newaxis]
        values1, values2 = random_words(rows1, 20).astype(np.int32), random_words(rows2, 20).astype(np.int32)
        matched = MatchedGroups(starts1, counts1, starts2, counts2)
        joined = matched.joined_rows

        def composed(
            c1: Any = counts1, s1: Any = starts1, c2: Any = counts2, s2: Any = starts2, joined: int = joined,
            k1: Any = keys1, k2: Any = keys2, v1: Any = values1, v2: Any = values2,
        ) -> tuple[Any, ...]:  # fmt: skip
            products = c1 * c2
            places = cp.cumsum(products) - products
            group = cp.searchsorted(places, cp.arange(joined), side="right") - 1
            offset = cp.arange(joined) - places[group]
            row1, row2 = s1[group] + offset % c1[group], s2[group] + offset // c1[group]
            return k1[:, row1] | k2[:, row2], v1[row1] + v2[row2]

        yield Case(
            f"join, {size1} by {size2} rows", joined, 12 * (rows1 + rows2 + joined) + 32 * groups,
            lambda m=matched, k1=keys1, v1=values1, k2=keys2, v2=values2: KERNELS.join_rows(
                k1, v1, k2, v2, m, 1, Combination.ADD
            ),
            composed,
        )  # fmt: skip


def filter_cases(rows: int) -> Iterator[Case]:
    keys, values = random_words(rows, 40)[np.newaxis], cp.arange(rows, dtype=np.int32)
    parts = keys & np.uint64(1023)
    forbidden = np.arange(0, 1024, 2, dtype=np.uint64)[np.newaxis]

    def composed() -> tuple[Any, ...]:
        table = cp.ones(1024, dtype=bool)
        table[cp.asarray(forbidden[0])] = False
        stay = table[parts[0]]
        return keys[:, stay], values[stay]

    yield Case(
        "drop half by 10 bits", rows, rows * (20 + 6),
        lambda: KERNELS.drop_forbidden(keys, values, parts, forbidden, 10), composed,
    )  # fmt: skip


CASES = {
    "permute": permute_cases, "sort": sort_cases, "groups": group_cases, "prefix": prefix_cases, "join": join_cases,
    "filter": filter_cases,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="*", type=float, default=[1e6, 1e7, 1e8, 1e9])
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--fused", action="store_true", help="the fused join + maximise instead")
    parser.add_argument("--sorts", action="store_true", help="the sort beside cuda.cccl's and CUB's instead")
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"{cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}: copies {bandwidth / 1e9:,.0f} GB/s read + write")
    if arguments.fused:
        from gpu_fused import measure

        measure([int(size) for size in arguments.sizes], seconds_of)
        return
    if arguments.sorts:
        from gpu_sort import measure as measure_sorts

        measure_sorts([int(size) for size in arguments.sizes], seconds_of, cub_sort)
        return
    print(f"{'kernel':34}{'rows':>14}{'ms':>10}{'10^9 rows/s':>13}{'of copy':>9}{'composed':>10}")
    for name in arguments.only:
        for size in arguments.sizes:
            for case in CASES[name](int(size)):
                print_case(case, bandwidth)
            cp.get_default_memory_pool().free_all_blocks()


def print_case(case: Case, bandwidth: float) -> None:
    """Measure, check and print one case."""
    compared = ""
    if case.composed is not None and case.rows <= CHECKED_ROWS:
        found, expected = case.run(), case.composed()
        found = found if isinstance(found, tuple) else (found,)
        assert all(bool((a == b).all()) for a, b in zip(found, expected, strict=True)), case.name
        del found, expected
    seconds = seconds_of(case.run)
    if case.composed is not None and case.rows <= 10 * CHECKED_ROWS:
        compared = f"{seconds_of(case.composed) / seconds:.1f} x"
    print(
        f"{case.name:34}{case.rows:14,}{seconds * 1e3:10.3f}{case.rows / seconds / 1e9:13.2f}"
        f"{case.moved / seconds / bandwidth:9.0%}{compared:>10}",
        flush=True,
    )


if __name__ == "__main__":
    main()
