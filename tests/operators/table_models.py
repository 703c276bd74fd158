"""Tables as dictionaries: what operators must come to, in plain Python."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from oocbe.semiring import Combination, Marginalisation, Semiring
from oocbe.tables.table import Table


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
