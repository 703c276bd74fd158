"""The fused join where a group is large: many columns, many eliminated values, values spread over wide domains."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MIN_SUM
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
