"""Cuts by the first keys of chunks: the ranges of a brute search, and operators that need no pass before the pieces."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra.operators import join_maximise, join_sum
from oocbe.execution import partition
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.partition import JoinInput, KeyIndex, LaidEndToEnd, OrderedSlice, cut_alike, parts
from oocbe.execution.sources import Buffers, InMemorySource, StoredRows
from oocbe.kernels import backend_for
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.memory_disk import MEMORY_DISK
from tests.helpers.out_of_core_modes import same_rows

BUDGET = Budget(1 << 20)


def sorted_table(own: str, seed: int, rows: int, wide: bool = False) -> Table:
    """Rows over (own, e, k, l), or with 40-bit k and l, whose keys take two words; some values of k with many rows."""
    rng = np.random.default_rng(seed)
    scale = 1 << 35 if wide else 1
    layout = Layout((own, "e", "k", "l"), (8, 4, 20 * scale, 3 * scale))
    columns = [rng.integers(0, 8, rows), rng.integers(0, 4, rows), rng.zipf(1.5, rows) % 20 * scale]
    columns.append(rng.integers(0, 3, rows) * scale)
    keys = np.unique(layout.pack(np.stack(columns, axis=1))[::-1], axis=1)[::-1]
    return Table(
        layout, np.ascontiguousarray(keys), rng.integers(0, 99, keys.shape[1]).astype(np.int32), is_sorted=True
    )


def numbers_of(table: Table) -> list[int]:
    places = [table.layout.place(name) for name in ("k", "l")]
    k, l = table.layout.unpack(table.keys)[:, places].T.tolist()  # noqa: E741
    bits = table.layout.field("k").bits
    return [a | b << bits for a, b in zip(k, l, strict=True)]


@pytest.mark.parametrize("wide", [False, True])
@settings(max_examples=examples(80))
@given(st.integers(0, 99), st.integers(1, 400), st.integers(1, 60))
def test_places_and_bounds(wide, seed, rows, stretch):
    table = sorted_table("a", seed, rows, wide)
    index = KeyIndex(InMemorySource(table, stretch), ("k", "l"), BUDGET)
    numbers = numbers_of(table)
    assert numbers == sorted(numbers)
    wanted = sorted({0, *numbers, *(n + 1 for n in numbers), index.end})
    for number in wanted:
        assert index.place(number) == sum(n < number for n in numbers)
    for low, high in pairwise(wanted):
        assert index.most_rows(low, high) >= sum(low <= n < high for n in numbers)
    assert index.most_rows(0, index.end) == len(numbers)


@settings(max_examples=examples(120))
@given(st.integers(0, 99), st.integers(1, 300), st.integers(1, 300), st.integers(2, 40), st.integers(1, 300))
def test_sources_are_cut_alike(seed, rows1, rows2, stretch, most):
    tables = [sorted_table("a", seed, rows1), sorted_table("b", seed + 1, rows2)]
    indices = [KeyIndex(InMemorySource(table, stretch), ("k", "l"), BUDGET) for table in tables]
    found = list(cut_alike(indices, lambda rows: max(rows) <= most))
    numbers = [numbers_of(table) for table in tables]
    for side, table in enumerate(tables):
        assert [part[side][0] for part in found] == [0] + [part[side][1] for part in found[:-1]]
        assert found[-1][side][1] == table.rows
    for (low1, high1), (low2, high2) in found:
        before = {*numbers[0][:low1], *numbers[1][:low2]}
        behind = {*numbers[0][high1:], *numbers[1][high2:]}
        inside = {*numbers[0][low1:high1], *numbers[1][low2:high2]}
        assert inside.isdisjoint(before | behind)
        if high1 - low1 > most or high2 - low2 > most:
            begun = [n for index in indices for n in index.firsts]
            assert len(inside & set(begun)) <= 2  # nothing between to cut at


@pytest.mark.parametrize(
    ("mode", "wide"), [((40, 1), False), ((100, 2), True), ((400, 8), False), ((400, 8), True), ((None, 2), True)]
)
def test_operators_on_sorted_tables_need_no_pass_before(tmp_path, monkeypatch, tune, mode, wide):
    tables = [sorted_table("a", 1, 900, wide), sorted_table("b", 2, 700, wide)]
    stored = [StoredTable.save(tmp_path / f"{n}", table, chunk_rows=9) for n, table in enumerate(tables)]
    tune(stretch_rows=9)
    asked, ask = [], partition.cut_alike
    monkeypatch.setattr(partition, "cut_alike", lambda *arguments: asked.append(1) or ask(*arguments))
    how = {"memory": "32MiB", "scratch": MEMORY_DISK, "piece_rows": mode[0], "streams": mode[1]}
    for name, operator in (("max", lambda *t, **how: join_maximise(*t, "e", **how)), ("sum", join_sum)):
        expected = operator(*tables)
        same_rows(operator(*stored, output=tmp_path / f"{name} stored", **how), expected)
        same_rows(operator(stored[0], tables[1], output=tmp_path / f"{name} mixed", **how), expected)
    assert len(asked) == (0 if mode[0] is None else 4)  # without a limit, all is one piece


def test_chunks_are_read_by_pieces_and_at_cuts_only(tmp_path, monkeypatch):
    table = sorted_table("a", 3, 3000)
    stored = StoredTable.save(tmp_path / "t", table, chunk_rows=20)
    reads = []
    read = StoredTable.read_into

    def counted(self, start, keys, values, alone=False):
        reads.append((start, keys.shape[1], values is None))
        read(self, start, keys, values, alone)

    monkeypatch.setattr(StoredTable, "read_into", counted)
    source = StoredRows(stored)
    index = KeyIndex(source, ("k", "l"), BUDGET)
    assert reads == []
    parts = list(cut_alike([index], lambda rows: max(rows) <= 200))
    assert all(rows <= 20 and keys_only for _, rows, keys_only in reads)
    assert len(reads) <= len(parts)


def sorted_run(table: Table, rows: np.ndarray, folder: Path, chunk: int) -> StoredTable:
    """Some rows of a table as workers sort them: k and l in the lowest places, ascending by these."""
    layout = table.layout.select(("k", "l", "own", "e"))
    columns = table.layout.unpack(table.keys)[rows][:, [table.layout.place(name) for name in layout.scope]]
    order = np.lexsort((columns[:, 0], columns[:, 1]))
    run = Table(layout, layout.pack(columns[order]), table.values[rows][order])
    return StoredTable.save(folder, run, chunk_rows=chunk)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 99), st.integers(1, 300), st.integers(2, 30), st.integers(20, 200), st.data())
def test_ranges_of_sorted_runs_need_no_pass(tmp_path_factory, seed, rows, chunk, most, data):
    """Whatever the chunks in which they begin and end, and each part has all rows of some keys."""
    folder = tmp_path_factory.mktemp("runs")
    wholes = [sorted_table("own", seed + side, rows) for side in (0, 1)]
    inputs, expected = [], []
    for side, whole in enumerate(wholes):
        run_of = np.random.default_rng(seed).integers(0, 3, whole.rows)
        slices = []
        for number in range(3):
            chosen = np.flatnonzero(run_of == number)
            if len(chosen):
                stored = sorted_run(whole, chosen, folder / f"{side}-{number}", chunk)
                low = data.draw(st.integers(0, stored.rows - 1))
                slices.append(OrderedSlice(StoredRows(stored), low, stored.rows, ("k", "l")))
                expected.append((side, stored.read(low, stored.rows)))
        inputs.append(JoinInput(LaidEndToEnd(slices), slices[0].layout.scope, ("k", "l"), 8))
    space = MemoryPlan(BUDGET, DiskBudget(folder), 1, most)
    found, seen = [[], []], [set(), set()]
    with pytest.MonkeyPatch.context() as patch:
        alike = max(Counter(number for whole in wholes for number in numbers_of(whole)).values())
        if 2 * 3 * chunk + 2 * alike <= most:  # otherwise pieces do not hold several chunks of each run, or one key
            patch.setattr(partition, "_Partition", None)
        for part in parts(inputs, space, backend_for(0, "cpu")):
            tables = [Buffers().load("rows", ordered.source) for ordered in part.inputs]
            keys = [set(map(tuple, t.layout.unpack(t.keys)[:, :2].tolist())) for t in tables]
            assert not any(one & other for one, other in zip(keys, seen, strict=True))
            seen = [one | other for one, other in zip(keys, seen, strict=True)]
            for side, table in enumerate(tables):
                found[side] += rows_of(table)
    for side in (0, 1):
        wanted = [row for number, table in expected if number == side for row in rows_of(table)]
        other = {row[:2] for number, table in expected if number != side for row in rows_of(table)}
        assert sorted(row for row in found[side] if row[:2] in other) == sorted(r for r in wanted if r[:2] in other)


def rows_of(table: Table) -> list[tuple[int, ...]]:
    return [
        (*row, value)
        for row, value in zip(table.layout.unpack(table.keys).tolist(), table.values.tolist(), strict=True)
    ]
