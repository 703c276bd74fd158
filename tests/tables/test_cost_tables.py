"""Complete tables of capped costs: added in place and reduced as numpy does."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.algebra.complete_tables.conversion import CompleteCosts, add, least
from tests.helpers.effort import examples


@pytest.mark.parametrize("seed", range(examples(240)))
def test_sums_and_minima_are_those_of_arrays(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    monkeypatch.setenv("OOCBE_THREADS", str(1 + seed % 3))
    count = 15 if seed % 3 == 0 else int(generator.integers(1, 7))
    sizes = [2] * count if count == 15 else generator.integers(1, 6, count).tolist()
    scope = tuple(generator.permutation(count).tolist())
    part_scope = tuple(v for v in scope if generator.random() < 0.6)
    dtype, cap, limit = (np.int32, np.int64)[seed % 2], 1000, 900
    values = generator.integers(0, cap + 1, [sizes[v] for v in scope]).astype(dtype)
    part = generator.integers(0, cap + 1, [sizes[v] for v in part_scope]).astype(dtype)
    missing = tuple(i for i, v in enumerate(scope) if v not in part_scope)
    table = CompleteCosts(scope, values.ravel().copy())
    add(table, CompleteCosts(part_scope, part.ravel()), sizes, cap, limit)
    total = values + np.expand_dims(part, missing)
    assert (table.values == np.where(total >= limit, cap, total).ravel()).all()
    minima = least(table, part_scope, sizes, cap)
    assert (minima.values == table.values.reshape(values.shape).min(axis=missing).ravel()).all()
    # What is at the cap stays there, whatever is taken away; nothing is left below 0.
    add(table, CompleteCosts(part_scope, -minima.values), sizes, cap, limit)
    rest = np.where(total >= limit, cap, total - np.expand_dims(minima.values.reshape(part.shape), missing))
    assert (table.values == rest.ravel()).all()
    place = {v: int(generator.integers(sizes[v])) for v in scope}
    assert table.at(place, sizes) == table.values.reshape(values.shape)[tuple(place[v] for v in scope)]
