"""Synthetic tables: as they were asked for, the same whatever the threads, and answers that are right and noticing."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.errors import UsageError
from oocbe.model.semiring import MAX_SUM
from oocbe.stress.segments import check_joined, check_marginalised
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.table import Table

SHAPES = {
    "uniform": {"rows": 3000, "groups": 60},
    "uneven": {"rows": 3011, "groups": 61, "domain": 6},
    "zipf": {"rows": 3000, "groups": 90, "sizes": "zipf"},
    "one group": {"rows": 400, "groups": 1, "density": 1.0},
    "single rows": {"rows": 500, "groups": 500, "domain": 2, "variables": 5},
    "wide": {"rows": 1000, "groups": 100, "density": 1e-12, "variables": 6},
}


def in_memory(table: SyntheticTable, chunk_rows: int = 700) -> Table:
    keys, values = zip(*table.chunks(chunk_rows), strict=True)
    return Table(table.layout, np.concatenate(keys, axis=1), np.concatenate(values), MAX_SUM, table.is_sorted)


@pytest.fixture(params=SHAPES, ids=str)
def pair(request):
    shape = SHAPES[request.param]
    return SyntheticTable(**shape), SyntheticTable(**shape | {"rows": shape["rows"] * 3 // 2}, own="b", seed=1)


def test_rows_are_what_was_asked_for(pair):
    for table in pair:
        made = in_memory(table)
        assert made.rows == table.rows_made
        assert 0.9 * table.rows <= made.rows <= table.rows or table.sizes == "zipf"
        assert len(made.to_dict()) == made.rows  # no row twice
        assert made.to_rows()[0].max(axis=0)[0] < table.domain
        assert (made.to_rows()[0] < np.array(table.layout.sizes)).all()


def test_sorted_tables_are_sorted_and_have_rows_of_the_same_form():
    table = SyntheticTable(rows=3000, groups=60, is_sorted=True, variables=4)
    keys = in_memory(table).keys[0]
    assert (keys[1:] > keys[:-1]).all()
    assert check_marginalised(maximise(in_memory(table), "a"), table).fault == ""


def test_the_number_of_threads_does_not_matter(monkeypatch, tmp_path):
    table = SyntheticTable(rows=9000, groups=60, sizes="zipf")
    files = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OOCBE_THREADS", threads)
        table.write(tmp_path / threads, chunk_rows=1000)
        files.append({p.relative_to(tmp_path / threads): p.read_bytes() for p in (tmp_path / threads).rglob("*/c/*")})
    assert files[0] == files[1]
    assert len(files[0]) == 2 * -(-table.rows_made // 1000)


def test_results_pass(pair):
    first, second = (in_memory(t) for t in pair)
    joined = join_sum(first, second)
    assert check_joined(joined, *pair).fault == ""
    assert joined.rows > 0
    assert check_joined(join_maximise(first, second, "e"), *pair).fault == ""
    assert check_joined(maximise(joined, "e"), *pair).fault == ""
    for table, rows in zip(pair, (first, second), strict=True):
        assert check_marginalised(maximise(rows, table.own), table).fault == ""


def test_wrong_results_fail(pair):
    first, second = (in_memory(t) for t in pair)
    for right, check in (
        (join_sum(first, second), lambda t: check_joined(t, *pair)),
        (join_maximise(first, second, "e"), lambda t: check_joined(t, *pair)),
        (maximise(first, "a"), lambda t: check_marginalised(t, pair[0])),
    ):
        rng = np.random.default_rng(1)
        values = right.values.copy()
        values[rng.integers(right.rows)] += 1
        assert "another value" in check(Table(right.layout, right.keys, values, MAX_SUM, right.is_sorted)).fault
        shorter = Table(right.layout, right.keys[:, 1:].copy(), right.values[1:], MAX_SUM, right.is_sorted)
        assert "rows instead of" in check(shorter).fault
        keys, values = right.keys.copy(), right.values.copy()
        keys[:, 0], values[0] = keys[:, -1], values[-1]
        if right.rows > 1:
            assert check(Table(right.layout, keys, values, MAX_SUM)).fault
        keys = right.keys.copy()
        keys[-1, rng.integers(right.rows)] ^= np.uint64(1) << np.uint64(right.layout.fields[-1].shift)
        assert check(Table(right.layout, keys, right.values, MAX_SUM, right.is_sorted)).fault


@pytest.mark.parametrize(
    "settings",
    [
        {"rows": 10, "groups": 100}, {"rows": 100, "groups": 0}, {"rows": 100, "groups": 2, "domain": 5},
        {"rows": 100, "groups": 2, "density": 0}, {"rows": 100, "groups": 2, "sizes": "normal"},
        {"rows": 100, "groups": 2, "variables": 2}, {"rows": 1 << 50, "groups": 2}, {"rows": 1 << 40, "groups": 1 <<
    32}, ],
    ids=str,
)  # fmt: skip
def test_impossible_settings_are_refused(settings):
    with pytest.raises(UsageError):
        SyntheticTable(**settings)
