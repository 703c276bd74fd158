"""The CUDA kernels give what the CPU's do, bit for bit: several blocks, ends of blocks, groups of all sizes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from oocbe.algebra.filters import drop_forbidden
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.kernels import backend_named
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.pairs import reduce
from oocbe.kernels.interface import MatchedGroups
from oocbe.model.semiring import LOG_SUM_EXP, SEMIRINGS, Combination, Marginalisation
from oocbe.tables.layout import Layout, move_plan
from oocbe.tables.residence import is_on_device, to_host, to_kernels
from oocbe.tables.table import Table

pytestmark = pytest.mark.gpu
CPU = backend_named("cpu")
DTYPES = [np.int32, np.int64, np.float32, np.float64]
ROWS = [1, 31, 33, 2047, 2049, 5760, 5761, 200_003]


def random_keys(rows: int, bits: int, seed: int, words: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << bits, (words, rows), dtype=np.uint64)


def same(found, expected, floats: bool = False) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        if floats and a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-3 if a.dtype == np.float32 else 1e-12)
        else:
            assert np.array_equal(a, b)


@pytest.mark.parametrize("rows", [*ROWS, 3_000_000])
@pytest.mark.parametrize("bits", [1, 9, 33])
def test_sort(cuda, rows, bits):
    keys, values = random_keys(rows, bits, rows), np.arange(rows, dtype=np.int32)
    same(cuda.sort_rows(keys, values, [(0, 0, 64)]), CPU.sort_rows(keys, values, [(0, 0, 64)]))
    wide = np.concatenate([keys << np.uint64(20), random_keys(rows, 5, 2), keys])
    ranges = [(1, 0, 64), (0, 17, 30), (2, 3, 9)]
    same(cuda.sort_rows(wide, values, ranges), CPU.sort_rows(wide, values, ranges))


def test_sort_of_keys_that_differ_in_few_digits(cuda):
    for mask in (0, 0xFF, 0xFF00FF, 0xF0F0F, 0xFFFFFF << 40, 0x0101010101010101):
        keys, values = random_keys(20_000, 63, 5) & np.uint64(mask), np.arange(20_000)
        same(cuda.sort_rows(keys, values, [(0, 0, 64)]), CPU.sort_rows(keys, values, [(0, 0, 64)]))


@pytest.mark.parametrize("ranges", [[(0, 0, 30)], [(0, 20, 10), (0, 0, 20)], [(0, 3, 5)]], ids=str)
@pytest.mark.parametrize("rows", [1000, 500_000])
def test_sort_of_owned_keys(cuda, rows, ranges):
    keys, values = random_keys(rows, 30, rows), np.arange(rows)
    expected = CPU.sort_rows(keys, values, ranges)
    for own in (False, True):
        given, carried = cuda.backend.upload(keys), cuda.backend.upload(values)
        found = cuda.backend.sort_rows(given, carried, ranges, own=own)
        same([cuda.backend.download(array) for array in found], expected)
        assert own or np.array_equal(cuda.backend.download(given), keys)
        assert np.array_equal(cuda.backend.download(carried), values)


def test_a_sort_keeps_no_memory(cuda):
    """The compiled sort is kept, and with it what it was called with last."""
    keys, values = cuda.backend.upload(random_keys(200_000, 30, 3)), cuda.backend.upload(np.arange(200_000))
    pool = cupy().get_default_memory_pool()
    before = pool.used_bytes()
    for own in (False, True):
        cuda.backend.sort_rows(keys, values, [(0, 0, 30)], own=own)
        assert pool.used_bytes() == before


def test_sorts_by_several_threads_on_streams_of_their_own(cuda):
    def sorted_there(seed: int):
        keys = random_keys(100_000 + seed, 40, seed)
        with cupy().cuda.Stream(non_blocking=True) as stream:
            found = cuda.sort_rows(keys, np.arange(keys.shape[1]), [(0, 0, 40)])
            stream.synchronize()
        return keys, found

    with ThreadPoolExecutor(4) as pool:
        for keys, found in pool.map(sorted_there, range(24)):
            same(found, CPU.sort_rows(keys, np.arange(keys.shape[1]), [(0, 0, 40)]))


@pytest.mark.parametrize("rows", ROWS)
def test_permute(cuda, rows):
    layout = Layout(tuple("abcdef"), (4, 1 << 30, 7, 1 << 40, 2, 1 << 21))
    tuples = np.random.default_rng(rows).integers(0, layout.sizes, (rows, 6))
    to = layout.select("fdbeca")
    arguments = layout.pack(tuples), move_plan(layout, to), to.words
    assert np.array_equal(cuda.permute(*arguments), CPU.permute(*arguments))


def test_plans_of_many_moves(cuda):
    layout = Layout(tuple(f"v{i}" for i in range(150)), (2,) * 150)
    to = layout.select(layout.scope[::-1])
    keys = random_keys(1000, 22, 4, words=3)
    plan = move_plan(layout, to)
    assert len(plan) > 64
    assert np.array_equal(cuda.permute(keys, plan, 3), CPU.permute(keys, plan, 3))


def groups_of(sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys with groups of some sizes above bit 8, and their starts."""
    numbers = np.repeat(np.arange(len(sizes), dtype=np.uint64) * np.uint64(3), sizes)
    return numbers[np.newaxis] << np.uint64(8), np.concatenate(([0], np.cumsum(sizes)))


SIZES = {
    "all alone": [1] * 10_000,
    "one": [50_000],
    "small": np.random.default_rng(0).integers(1, 9, 9_000).tolist(),
    "around a warp": np.random.default_rng(0).integers(28, 37, 900).tolist(),
    "large and small": [1] * 4095 + [9000] + [2] * 50 + [4096, 1, 8192, 1] + [3] * 5000,
    "one over very many blocks": [5, 4096 * 300 + 7, 5],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("marginalisation", Marginalisation)
def test_groups_and_reduction(cuda, sizes, dtype, marginalisation):
    keys, starts = groups_of(sizes)
    masks = np.array([~np.uint64(255)], dtype=np.uint64)
    assert np.array_equal(cuda.group_starts(keys, masks), starts)
    values = np.random.default_rng(1).integers(-50, 50, keys.shape[1]).astype(dtype)
    if marginalisation is Marginalisation.LOG_SUM_EXP and np.dtype(dtype).kind == "i":
        pytest.skip("log-sum-exp is of floats")
    found = cuda.reduce_groups(keys, values, starts, masks, marginalisation)
    same(found, CPU.reduce_groups(keys, values, starts, masks, marginalisation), floats=marginalisation > 1)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_matches(cuda, sizes):
    keys, _ = groups_of(sizes)
    other = np.unique(random_keys(5000, 16, 2))[np.newaxis] << np.uint64(8)
    masks = np.array([~np.uint64(255)], dtype=np.uint64)
    for arguments in [(keys, other), (other, keys), (keys[:, :0], other), (other, keys[:, :0])]:
        found, expected = cuda.common_groups(*arguments, masks), CPU.common_groups(*arguments, masks)
        same(vars(found).values(), vars(expected).values())


@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (300, 700), (1, 70_000), (70_000, 1)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("combination", Combination)
def test_join_rows(cuda, counts, dtype, combination):
    rng = np.random.default_rng(5)
    groups = 1 + 400_000 // (counts[0] * counts[1])
    counts1, counts2 = rng.integers(1, counts[0] + 1, groups), rng.integers(1, counts[1] + 1, groups)
    starts1, starts2 = np.cumsum(counts1) - counts1, np.cumsum(counts2) - counts2
    matched = MatchedGroups(starts1, counts1, starts2, counts2)
    rows1, rows2 = int(counts1.sum()), int(counts2.sum())
    tables = (
        random_keys(rows1, 20, 6), rng.integers(-9, 9, rows1).astype(dtype),
        random_keys(rows2, 20, 7, words=2) << np.uint64(20), rng.integers(-9, 9, rows2).astype(dtype),
    )  # fmt: skip
    same(cuda.join_rows(*tables, matched, 2, combination), CPU.join_rows(*tables, matched, 2, combination))


def random_table(scope: dict[str, int], rows: int, seed: int, semiring, dtype, shuffled: bool) -> Table:
    rng = np.random.default_rng(seed)
    tuples = np.unique(rng.integers(0, list(scope.values()), (rows, len(scope))), axis=0)
    values = rng.integers(1, 90, len(tuples)).astype(dtype)
    table = Table.from_rows(scope, tuples, values, semiring)
    if not shuffled:
        return table
    order = rng.permutation(table.rows)
    return Table(table.layout, np.ascontiguousarray(table.keys[:, order]), table.values[order], semiring)


SHAPES = {
    "few large groups": ({"a": 500, "e": 6, "k": 2}, {"b": 400, "e": 6, "k": 2}),
    "many small groups": ({"a": 5, "e": 6, "k": 20_000}, {"b": 5, "e": 6, "k": 20_000}),
    "two values, large groups": ({"a": 2000, "e": 2, "k": 2}, {"b": 1500, "e": 2, "k": 2}),
    "eight values, large groups": ({"a": 700, "e": 8, "k": 2}, {"b": 300, "e": 8, "k": 2}),
    "9 to 32 values": ({"a": 200, "e": 20, "k": 7}, {"b": 90, "e": 20, "k": 7}),
    "33 to 64 values": ({"a": 300, "e": 60, "k": 5}, {"b": 300, "e": 60, "k": 5}),
    "lists of values": ({"a": 100, "e": 3000, "k": 3}, {"b": 30, "e": 3000, "k": 3}),
    "keys of two words": ({"a": 1 << 40, "e": 6, "k": 300}, {"b": 1 << 40, "e": 6, "k": 300}),
    "one group": ({"a": 900, "e": 6}, {"b": 800, "e": 6}),
    "nothing alone": ({"e": 4, "k": 9000}, {"k": 9000, "e": 4}),
    "looked up, all of a domain": ({"a": 50, "e": 6, "k": 30}, {"k": 30, "e": 6}),
    "looked up, a part of a domain": ({"e": 7, "k": 700}, {"k": 700, "b": 40, "e": 7}),
    "looked up, the same variables": ({"e": 4, "k": 900}, {"k": 900, "e": 4}),
    "looked up from keys of two words": ({"a": 1 << 40, "e": 6, "c": 1 << 30, "k": 300}, {"k": 300, "e": 6}),
}


@pytest.mark.parametrize("shuffled", [False, True], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_operators(cuda, semiring, shape, shuffled):
    dtype = np.float64 if semiring is LOG_SUM_EXP else np.int32
    f = random_table(shape[0], 6000, 1, semiring, dtype, shuffled)
    g = random_table(shape[1], 3000, 2, semiring, dtype, shuffled)
    expected = join_maximise(f, g, "e", backend="cpu")
    found = join_maximise(f, g, "e", backend="cuda")
    assert (found.layout, found.is_sorted) == (expected.layout, expected.is_sorted)
    same((found.keys, found.values), (expected.keys, expected.values), floats=True)
    forbidden = [[value] for value in range(0, shape[0]["e"], 2)]
    chains = []
    for backend in ("cpu", "cuda"):
        kernels = backend_named(backend)
        first, second = to_kernels(f, kernels), to_kernels(g, kernels)
        joined = join_sum(first, second, backend=kernels)
        left = drop_forbidden(joined, {"e": shape[0]["e"]}, forbidden, backend=kernels)
        reduced = maximise(left, "e", backend=kernels)
        assert all(is_on_device(t) == (backend == "cuda") for t in (joined, left, reduced))
        chains.append([to_host(t) for t in (joined, left, reduced)])
    for a, b in zip(*chains, strict=True):
        same((a.keys, a.values), (b.keys, b.values), floats=True)


@pytest.mark.parametrize("shape", [name for name in SHAPES if "looked up" in name])
def test_rows_partitioned_before_they_are_looked_up(cuda, shape, monkeypatch):
    f, g = (random_table(scope, 4000, 5, SEMIRINGS["max-sum"], np.int64, True) for scope in SHAPES[shape])
    expected = join_maximise(f, g, "e", backend="cpu")
    calls = []
    real = reduce.sort_rows
    monkeypatch.setattr(reduce, "CACHED_BYTES", 0)
    monkeypatch.setattr(reduce, "sort_rows", lambda *given: calls.append(1) or real(*given))
    found = join_maximise(f, g, "e", backend="cuda")
    assert calls == [1]
    same((found.keys, found.values), (expected.keys, expected.values))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", ["eight values, large groups", "9 to 32 values", "one group", "looked up, a part of a domain"]
)
def test_values_of_all_types(cuda, shape, dtype):
    first, second = SHAPES[shape]
    for semiring in SEMIRINGS.values():
        if semiring is not LOG_SUM_EXP or np.dtype(dtype).kind == "f":
            f = random_table(first, 5000, 3, semiring, dtype, shuffled=False)
            g = random_table(second, 2000, 4, semiring, dtype, shuffled=False)
            expected, found = (join_maximise(f, g, "e", backend=name) for name in ("cpu", "cuda"))
            same((found.keys, found.values), (expected.keys, expected.values), floats=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [3, 12, 28, 60])
def test_forbidden_tuples(cuda, bits, dtype):
    keys = random_keys(100_000, min(bits, 12), bits) << np.uint64(max(0, bits - 12))
    values = np.arange(100_000).astype(dtype)
    forbidden = np.ascontiguousarray(keys[:, :5000:50])
    arguments = keys, values, keys, forbidden, bits
    found = cuda.drop_forbidden(*arguments)
    assert 0 < len(found[1]) < 100_000 or bits == 3
    same(found, CPU.drop_forbidden(*arguments))
