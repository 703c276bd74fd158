"""Joins of a large table with a small one, rows without a partner dropped before a sort; and joins with few rows."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocbe
from oocbe.algebra import elimination, inputs
from oocbe.kernels import backend_named
from oocbe.kernels.cuda.pairs.join_reduce import equal_rows
from oocbe.model.semiring import SEMIRINGS, SUM_PRODUCT
from oocbe.tables.table import Table

ROWS = 20_000


def random_table(sizes: dict[str, int], rows: int, seed: int) -> Table:
    random = np.random.default_rng(seed)
    found = np.unique(np.column_stack([random.integers(0, size, rows) for size in sizes.values()]), axis=0)
    return Table.from_rows(sizes, found, random.integers(0, 1000, len(found)))


CASES = {
    "few bits": ({"a": 1000, "b": 5000}, {"b": 5000, "d": 7}),
    "hashed": ({"a": 1000, "b": 1 << 40}, {"b": 1 << 40, "d": 7}),
    "two words": ({"a": 1000, "b": 1 << 40, "c": 1 << 40}, {"c": 1 << 40, "b": 1 << 40, "d": 7}),
}


def tables_of(case: str) -> tuple[Table, Table]:
    """A large table and a small one, some of whose shared values occur in both."""
    large_sizes, small_sizes = CASES[case]
    large = random_table(large_sizes, ROWS, 1)
    picked = np.random.default_rng(2).choice(large.rows, 40, replace=False)
    shared = [name for name in small_sizes if name in large_sizes]
    columns = dict(zip(large.scope, large.layout.unpack(large.keys[:, picked]).T, strict=True))
    rows = np.column_stack([*(columns[name] for name in shared), np.arange(40) % small_sizes["d"]])
    rows = np.unique(np.vstack([rows, random_rows(small_sizes, 40)]), axis=0)
    return large, Table.from_rows(small_sizes, rows, np.arange(len(rows)) * 7)


def random_rows(sizes: dict[str, int], rows: int) -> Any:
    random = np.random.default_rng(3)
    return np.column_stack([random.integers(0, size, rows) for size in sizes.values()])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_first", [True, False])
def test_joins_are_those_of_dictionaries(case: str, is_first: bool) -> None:
    large, small = tables_of(case)
    pair = (large, small) if is_first else (small, large)
    joined: dict[tuple[tuple[str, int], ...], int] = {}
    best: dict[tuple[tuple[str, int], ...], int] = {}
    by_shared: dict[tuple[int, ...], list[tuple[dict[str, int], int]]] = {}
    shared = [name for name in large.scope if name in small.scope]
    for key, value in small.to_dict().items():
        row = dict(zip(small.scope, key, strict=True))
        by_shared.setdefault(tuple(row[name] for name in shared), []).append((row, value))
    for key, value in large.to_dict().items():
        row = dict(zip(large.scope, key, strict=True))
        for other, more in by_shared.get(tuple(row[name] for name in shared), []):
            both = row | other
            joined[tuple(sorted(both.items()))] = value + more
            left = tuple(sorted((name, at) for name, at in both.items() if name != "b"))
            best[left] = max(best.get(left, value + more), value + more)
    result = oocbe.join_sum(*pair)
    found = {tuple(sorted(zip(result.scope, key, strict=True))): value for key, value in result.to_dict().items()}
    assert found == joined and joined
    result = oocbe.join_maximise(*pair, "b")
    found = {tuple(sorted(zip(result.scope, key, strict=True))): value for key, value in result.to_dict().items()}
    assert found == best


@pytest.mark.parametrize("case", CASES)
def test_few_rows_without_a_partner_are_left(case: str) -> None:
    large, small = tables_of(case)
    shared = [name for name in large.scope if name in small.scope]
    left, same = inputs.without_lonely((large, small), shared, backend_named("cpu"))
    partners = oocbe.semi_join(large, small).rows
    assert same is small and partners <= left.rows <= partners + large.rows // 100


def test_a_table_whose_rows_mostly_have_partners_is_left_alone() -> None:
    large = random_table({"a": 5000, "b": 16}, ROWS, 1)
    small = random_table({"b": 16, "d": 2}, 60, 2)
    assert inputs.without_lonely((large, small), ["b"], backend_named("cpu"))[0] is large


def test_the_filter_of_few_rows_takes_little_memory() -> None:
    """Each piece of an operator on disk has one: it took 10 MiB, whatever the memory limit."""
    small, large = random_table({"a": 50, "b": 1 << 30}, 100, 1), random_table({"b": 1 << 30, "c": 50}, 2000, 2)
    inputs.without_lonely((large, small), ["b"], backend_named("cpu"))
    tracemalloc.start()
    try:
        left, _ = inputs.without_lonely((large, small), ["b"], backend_named("cpu"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()
    assert left.rows < large.rows / 5


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("semiring", ["min-sum", "max-sum", "sum-product", "max-product"])
@pytest.mark.parametrize("shared", [("e",), ("e", "k"), ("e", "g", "k")])
@pytest.mark.parametrize("own", ["ab", "a", "b", ""])
def test_few_joined_rows_are_made_and_reduced(
    semiring: str, shared: tuple[str, ...], own: str, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The result is that of the loop without joined rows, in memory and in pieces; sums of floats keep their order."""
    merges = "oocbe.kernels.cuda.pairs.join_reduce."
    limits = {
        "cpu": [("oocbe.algebra.elimination.FEW_JOINED", 100, 0)],
        "cuda": [(merges + "STEPS_A_ROW", 1e-9, np.inf), (merges + "ROWS_A_LONE_STEP", 0, 0)],
    }
    is_looked_up = backend == "cuda" and own != "ab" and len(shared) == 1  # values in an array over a small domain
    made = []
    reduce = elimination.JoinElimination._of_few_joined
    monkeypatch.setattr(
        elimination.JoinElimination, "_of_few_joined", lambda *a, **o: made.append(reduce(*a, **o)) or made[-1]
    )
    monkeypatch.setitem(elimination.LARGE_GROUPS, "cpu", 1)
    monkeypatch.setitem(elimination.LARGE_GROUPS, "cuda", np.inf)
    random, gone = np.random.default_rng(1), ["e", "g"][: len(shared) - 1 or 1]
    sizes = {"a": 5, "b": 6, "e": 300, "g": 4, "k": 3}
    scopes = [[*(name for name in part if name in own), *shared] for part in ("a", "b")]
    rows = [np.unique(random.integers(0, [sizes[n] for n in scope], (500, len(scope))), axis=0) for scope in scopes]
    for dtype in (np.int64, np.float64):
        tables = [
            Table.from_rows({n: sizes[n] for n in scope}, given, (8 * random.random(len(given)) + 1).astype(dtype))
            for scope, given in zip(scopes, rows, strict=True)
        ]
        one, two = (replace(table, semiring=SEMIRINGS[semiring]) for table in tables)
        results = []
        for is_made in (True, False):
            for name, always, never in limits[backend]:
                monkeypatch.setattr(name, always if is_made else never)
            made.clear()
            results.append(oocbe.join_marginalise(one, two, gone, backend=backend))
            assert is_looked_up or (made[-1] is not None) == is_made
            stored = oocbe.join_marginalise(
                one, two, gone, output=tmp_path / "o", overwrite=True, piece_rows=100, backend=backend
            )
            results.append(stored.read(0, stored.rows))
        if backend == "cpu":
            assert results[0].to_dict() == results[2].to_dict()  # to the last bit
        for found in results[1:]:
            assert found.to_dict() == pytest.approx(results[0].to_dict(), rel=1e-12)


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("own", "dtype"), [(1 << 20, np.int64), (8, np.int32), (1 << 20, np.float64)])
def test_a_large_group_among_small_ones_makes_its_joined_rows(
    own: int, dtype: type, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half of the rows have one value of the variable that stays: each run of that group would meet each other one."""
    made = []
    reduce = elimination.JoinElimination._of_few_joined
    monkeypatch.setattr(
        elimination.JoinElimination, "_of_few_joined", lambda *a, **o: made.append(reduce(*a, **o)) or made[-1]
    )
    random = np.random.default_rng(1)
    pairs = random.integers(0, (1 << 20, 1 << 20), (1 << 16, 2))
    pairs[::2, 0] = 5
    pairs = np.unique(pairs, axis=0)
    one, two = (
        Table.from_rows(
            {"k": 1 << 20, "e": 1 << 20, name: own},
            np.column_stack((pairs, random.integers(0, own, len(pairs)))),
            random.integers(1, 90, len(pairs)).astype(dtype), SUM_PRODUCT,
        )
        for name in "ab"
    )  # fmt: skip
    expected = oocbe.join_marginalise(one, two, "e", backend="cpu").to_dict()
    found = oocbe.join_marginalise(one, two, "e", backend=backend)
    assert made[-1] is not None
    assert found.to_dict() == pytest.approx(expected, rel=1e-12)
    made.clear()
    stored = oocbe.join_marginalise(one, two, "e", output=tmp_path / "o", piece_rows=20 * len(pairs), backend=backend)
    assert any(result is not None for result in made)
    assert stored.read(0, stored.rows).to_dict() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("semiring", ["sum-product", "log-sum-exp"])
def test_float_sums_of_unsorted_tables_do_not_depend_on_joined_rows(
    semiring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, cells = np.random.default_rng(2), np.array([[e, k] for e in range(200) for k in range(3)])
    monkeypatch.setitem(elimination.LARGE_GROUPS, "cpu", 1)

    def table(own: str, count: int) -> Table:
        rows = np.concatenate([np.insert(cells, 0, a, axis=1) for a in range(count)])
        sizes = {own: count, "e": 200, "k": 3}
        found = Table.from_rows(sizes, rows, random.random(len(rows)), SEMIRINGS[semiring])
        order = random.permutation(found.rows)
        return Table(found.layout, found.keys[:, order], found.values[order], found.semiring)

    one, two, results = table("a", 4), table("b", 2), []
    for limit in (100, 0):
        monkeypatch.setattr(elimination, "FEW_JOINED", limit)
        results.append(oocbe.join_marginalise(one, two, "e", backend="cpu").to_dict())
    assert results[0] == results[1]  # to the last bit


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_float_sums_without_a_common_group_are_empty(backend: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    one, two = (
        Table.from_rows(
            {"k": 1 << 20, "e": 1 << 20, name: 1 << 20},
            np.column_stack((2 * np.arange(5000) + parity, random.integers(0, 1 << 20, (5000, 2)))),
            random.random(5000), SUM_PRODUCT,
        )
        for parity, name in enumerate("ab")
    )  # fmt: skip
    for settings in ({}, {"output": tmp_path / "o", "piece_rows": 20_000}):
        assert oocbe.join_marginalise(one, two, "e", backend=backend, **settings).rows == 0


def test_merges_of_no_group_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocbe.kernels.cuda.pairs.join_reduce.cupy", lambda: np)
    none = np.zeros(0, dtype=np.int64)
    assert equal_rows(none, none, none, none) == 0
    assert equal_rows(*np.array([[6], [2], [6], [3]])) > 0
