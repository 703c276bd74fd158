"""The fused join where a group is large: many columns, many eliminated values, values spread over wide domains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oocbe.algebra import inputs
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.kernels.cpu.pairs import join_reduce
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MIN_SUM, SUM_PRODUCT
from oocbe.tables.table import Table


def random_table(own: str, own_size: int, eliminated: int, rows: int, seed: int, semiring, dtype) -> Table:
    """A table over (own, e, k); e takes 50 values at most, spread over its domain."""
    rng = np.random.default_rng(seed)
    spread = np.random.default_rng(0).integers(0, eliminated, 50)
    tuples = np.column_stack(
        [rng.integers(0, own_size, rows), spread[rng.integers(0, 50, rows)], rng.integers(0, 3, rows)]
    )
    tuples = np.unique(tuples, axis=0)
    values = rng.integers(1, 90, len(tuples)).astype(dtype)
    return Table.from_rows({own: own_size, "e": eliminated, "k": 3}, tuples, values, semiring)


CASES = {
    "all in masks": (8, 50),
    "64 columns": (64, 50),
    "65 columns": (65, 50),
    "many columns, few hit": (4000, 60),
    "many columns, many hit": (300, 6),
    "hashed values": (30, 1 << 20),
    "values of a whole word": (200, 1 << 62),
}


SEMIRINGS = (MIN_SUM, COUNTING, LOG_SUM_EXP)


@pytest.mark.parametrize(
    ("columns", "eliminated", "semiring"),
    [(*case, SEMIRINGS[(i + more) % 3]) for i, case in enumerate(CASES.values()) for more in (0, 1)],
    ids=str,
)
def test_same_as_join_then_maximise(columns, eliminated, semiring):
    dtype = np.float64 if semiring is LOG_SUM_EXP else np.int32
    t1 = random_table("a", 60, eliminated, 6000, 1, semiring, dtype)
    t2 = random_table("b", columns, eliminated, 900, 2, semiring, dtype)
    fused = join_maximise(t1, t2, "e")
    assert fused.is_sorted
    assert fused.scope == ("b", "a", "k")
    assert (np.diff(fused.keys[0].astype(np.float64)) > 0).all() or fused.layout.words > 1
    expected = maximise(join_sum(t1, t2), "e").to_dict()  # scope k, a, b
    found = {(k, a, b): value for (b, a, k), value in fused.to_dict().items()}
    assert found.keys() == expected.keys()
    assert len(found) > 400
    assert found == (expected if dtype is np.int32 else pytest.approx(expected))
    pieces = join_maximise(t1, t2, "e", piece_rows=7)
    assert np.array_equal(pieces.keys, fused.keys)
    assert np.array_equal(pieces.values, fused.values) or np.allclose(pieces.values, fused.values, rtol=1e-12)


def test_one_group_cut_into_many_pieces(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "3")
    t1 = random_table("a", 60_000, 50, 80_000, 3, MIN_SUM, np.int32)
    t2 = random_table("b", 9, 50, 300, 4, MIN_SUM, np.int32)
    whole, pieces = join_maximise(t1, t2, "e"), join_maximise(t1, t2, "e", piece_rows=5000)
    assert np.array_equal(whole.keys, pieces.keys)
    assert np.array_equal(whole.values, pieces.values)
    expected = maximise(join_sum(t1, t2), "e")
    assert (whole.rows, whole.values.sum()) == (expected.rows, expected.values.sum())


@pytest.mark.parametrize(("own", "matched"), [("x", 4_000), ("", 10)])  # runs of one row, or one run of all rows
def test_small_pieces_do_not_read_a_group_or_a_run_again(monkeypatch, own, matched):
    rows, calls = 4_000, []
    place = np.random.default_rng(4).permutation(rows)
    outer = Table.from_rows({"a": rows, **dict.fromkeys(own, rows)}, np.column_stack([place] * (1 + len(own))), place)
    place = place[:matched]
    inner = Table.from_rows({"a": rows, "y": rows}, np.column_stack([place, place]), place)
    outer, inner = (replace(table, semiring=SUM_PRODUCT, values=table.values / 7) for table in (outer, inner))
    outer = replace(outer, is_sorted=False)  # sums of floats in the outer rows' order: in one step
    whole = join_maximise(outer, inner, "a", backend="cpu")
    monkeypatch.setattr(inputs, "FILTER_RATIO", rows)  # the outer rows without a partner stay
    for name, originals in (("_join_reduce", join_reduce._join_reduce), ("_next_run", join_reduce._next_run)):
        monkeypatch.setattr(join_reduce, name, lambda *given, own=originals: calls.append(given) or own(*given))
    assert join_maximise(outer, inner, "a", piece_rows=10, backend="cpu").to_dict() == whole.to_dict()
    assert len(calls) < 10  # one or two for every ten rows: 400 or 800
