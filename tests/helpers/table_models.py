"""Tables as dictionaries: what operators must come to, in plain Python."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import strategies as st

from oocbe.model.semiring import Combination, Marginalisation, Semiring
from oocbe.tables.table import Table

SIZES = {"a": 2, "b": 3, "c": 1, "d": 4, "e": 5}
DTYPES = [np.int32, np.int64, np.float32, np.float64]


@st.composite
def rows_of(draw, semiring, least_rows=0) -> Table:
    scope = draw(st.lists(st.sampled_from(sorted(SIZES)), unique=True, max_size=4))
    sizes = {name: SIZES[name] for name in scope}
    cells = int(np.prod([*sizes.values()], dtype=int))
    seed = draw(st.integers(0, 2**32 - 1))
    rows = draw(st.integers(min(least_rows, cells), cells))
    random = np.random.default_rng(seed)
    chosen = random.permutation(cells)[:rows]
    tuples = np.column_stack(np.unravel_index(chosen, [*sizes.values()])) if scope else np.zeros((rows, 0), dtype=int)
    multiplies = semiring.combination is Combination.MULTIPLY
    values = random.integers(1 if multiplies else -9, 10, rows)
    return Table.from_rows(sizes, tuples, values.astype(draw(st.sampled_from(DTYPES))), semiring)


def combine(a, b, semiring: Semiring):
    return a + b if semiring.combination is Combination.ADD else a * b


def reduce(values, semiring: Semiring):
    match semiring.marginalisation:
        case Marginalisation.MIN:
            return min(values)
        case Marginalisation.MAX:
            return max(values)
        case Marginalisation.SUM:
            return sum(values)
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


def model_of(table: Table) -> dict[frozenset, float]:
    return {frozenset(zip(table.scope, t, strict=True)): v for t, v in table.to_dict().items()}


def model_join(m1, m2, semiring):
    joined = {}
    for (r1, v1), (r2, v2) in product(m1.items(), m2.items()):
        row = r1 | r2
        if len({name for name, _ in row}) == len(row):
            joined[row] = combine(v1, v2, semiring)
    return joined


def model_maximise(model, variables, semiring):
    groups = {}
    for row, value in model.items():
        groups.setdefault(frozenset(p for p in row if p[0] not in variables), []).append(value)
    return {row: reduce(values, semiring) for row, values in groups.items()}


def check(table: Table, expected: dict, scope) -> None:
    found = model_of(table)
    assert set(table.scope) == set(scope)
    assert found.keys() == expected.keys()
    exact = table.values.dtype.kind == "i"
    for row, value in expected.items():
        assert found[row] == (value if exact else pytest.approx(value, rel=1e-4, abs=1e-4))
    keys = [int.from_bytes(k.tobytes(), "little") for k in np.ascontiguousarray(table.keys.T)]
    assert len(set(keys)) == len(keys)
    if table.is_sorted:
        assert keys == sorted(keys)


def same_table(found: Table, expected: Table) -> None:
    """The same rows in the same order, layout and dtype."""
    assert (found.layout, found.values.dtype, found.is_sorted) == (
        expected.layout,
        expected.values.dtype,
        expected.is_sorted,
    )
    assert np.array_equal(found.keys, expected.keys)
    assert np.array_equal(found.values, expected.values)
