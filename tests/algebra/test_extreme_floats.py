"""NaN, infinities, and floats at the ends of their range: refused, naming the table, or the same as brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe import CompleteTable, PackedTable, StoredTable, Table
from oocbe.errors import ModelError, ValueRangeError
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT, Semiring
from oocbe.tables.numbers import EXTREMES_ROWS, extremes
from oocbe.tables.stored import StoredCompleteTable
from tests.helpers.effort import examples

FLOATING = (MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP)
CELLS = list(itertools.product(range(2), repeat=2))
STRANGE = [(s, x) for s in FLOATING for x in (math.nan, math.inf, -math.inf) if x != s.zero]


def rows(scope: str, values, semiring: Semiring, dtype=np.float64) -> Table:
    """A table of two variables of two values as kernels make it: nothing is checked."""
    whole = Table.from_rows(dict.fromkeys(scope, 2), CELLS, np.ones(4, dtype=dtype), semiring)
    return Table(whole.layout, whole.keys, np.array(values, dtype=dtype), semiring, True)


def cells(scope: str, values, semiring: Semiring, dtype=np.float64) -> CompleteTable:
    return CompleteTable(rows(scope, values, semiring).layout, np.array(values, dtype=dtype), semiring)


OPERATORS = {
    "join_sum": lambda f, g, **more: oocbe.join_sum(f, g, **more),
    "join_maximise": lambda f, g, **more: oocbe.join_maximise(f, g, "b", **more),
    "maximise": lambda f, g, **more: oocbe.maximise(f, "b", **more),
}


@pytest.mark.parametrize("form", [rows, cells])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("semiring", "strange"), STRANGE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_no_number_is_refused(form, operator, semiring, strange, dtype, tmp_path):
    bad, good = form("ab", [1, strange, 2, 3], semiring, dtype), rows("bc", [1, 2, 3, 4], semiring, dtype)
    with pytest.raises(ModelError, match=r"table over \('a', 'b'\): a value is"):
        OPERATORS[operator](bad, good)
    if operator != "maximise":
        with pytest.raises(ModelError, match=r"table over \('a', 'b'\): a value is"):
            OPERATORS[operator](good, bad)
    with pytest.raises(ModelError, match=r"table over \('a', 'b'\): a value is"):
        OPERATORS[operator](bad, good, output=tmp_path / "out", memory="64MiB")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("semiring", "strange"), STRANGE)
def test_what_is_no_number_enters_no_table(semiring, strange, tmp_path):
    bad = rows("ab", [1, strange, 2, 3], semiring)
    array = np.array([[1, strange], [2, 3]])
    with pytest.raises(ModelError, match=r"\('a', 'b'\): a value is"):
        Table.from_rows({"a": 2, "b": 2}, CELLS, bad.values, semiring)
    with pytest.raises(ModelError, match=r"\('a', 'b'\): a value is"):
        CompleteTable.from_array("ab", array, semiring)
    with pytest.raises(ModelError, match=r"\('a', 'b'\): a value is"):
        PackedTable.pack(bad)
    with pytest.raises(ModelError, match=r"stored: a value is"):
        StoredTable.save(tmp_path / "stored", bad)
    with pytest.raises(ModelError, match=r"stored: a value is"):
        StoredCompleteTable.save(tmp_path / "stored", cells("ab", bad.values, semiring))
    assert not list(tmp_path.iterdir())


def combined(semiring: Semiring, a: float, b: float) -> float:
    return a + b if semiring.one == 0 else a * b


def reduced(semiring: Semiring, values: list[float]) -> float:
    if semiring in (MIN_SUM, MAX_SUM, MAX_PRODUCT):
        return (min if semiring is MIN_SUM else max)(values)
    if semiring is SUM_PRODUCT:
        return math.fsum(values)
    greatest = max(values)
    return greatest if math.isinf(greatest) else greatest + math.log(math.fsum(math.exp(v - greatest) for v in values))


@settings(max_examples=examples(240), deadline=None)
@given(
    st.sampled_from(FLOATING),
    st.lists(st.sampled_from([0.0, 1.0, 2.5, 7.0, None]), min_size=8, max_size=8),
    st.sampled_from([("rows", "rows"), ("rows", "cells"), ("cells", "cells")]),
)
def test_zeros_of_the_semiring_are_infeasible_in_every_form(semiring, drawn, forms):
    """A row that holds the semiring's zero is worth what a cell that does is: what has no row at all."""
    values = [semiring.zero if v is None else v for v in drawn]
    make = {"rows": rows, "cells": cells}
    f, g = (
        make[form](scope, own, semiring)
        for form, scope, own in zip(forms, ("ab", "bc"), (values[:4], values[4:]), strict=True)
    )
    a_b = {(x, y): values[x + 2 * y] for x, y in CELLS}
    b_c = {(x, y): values[4 + x + 2 * y] for x, y in CELLS}
    joined = {k: combined(semiring, a_b[k[:2]], b_c[k[1:]]) for k in itertools.product(range(2), repeat=3)}
    expected = {
        "join_sum": joined,
        "join_maximise": {(a, c): reduced(semiring, [joined[a, b, c] for b in range(2)]) for a, c in CELLS},
    }
    for name, wanted in expected.items():
        result = OPERATORS[name](f, g)
        order = [result.scope.index(v) for v in ("abc" if name == "join_sum" else "ac")]
        found = {tuple(key[i] for i in order): value for key, value in result.to_dict().items()}
        for key, value in wanted.items():
            assert found.get(key, semiring.zero) == pytest.approx(value, rel=1e-12)


EXTREMES = {
    "a product that overflows": (MAX_PRODUCT, 1e200, 1e200),
    "a sum of products that overflows": (SUM_PRODUCT, 1e308, 2.0),
    "a product that underflows": (SUM_PRODUCT, 1e-200, 1e-200),
    "a best product that underflows": (MAX_PRODUCT, 1e-200, 1e-200),
    "costs that overflow": (MIN_SUM, 1.5e308, 1.5e308),
    "negative costs that overflow": (MIN_SUM, -1.5e308, -1.5e308),
    "utilities that overflow": (MAX_SUM, 1.5e308, 1.5e308),
    "logarithms that overflow": (LOG_SUM_EXP, -1.5e308, -1.5e308),
}


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("form", [rows, cells])
@pytest.mark.parametrize("operator", ["join_sum", "join_maximise"])
def test_results_outside_the_range_of_floats_are_refused(case, form, operator):
    semiring, one, other = EXTREMES[case]
    with pytest.raises(ValueRangeError, match=r"tables over \('a', 'b'\), \('b', 'c'\): a value of the result is"):
        OPERATORS[operator](form("ab", [one] * 4, semiring), form("bc", [other] * 4, semiring))


def test_sums_of_products_may_cancel():
    f, g = rows("ab", [1, 1, 1, 1], SUM_PRODUCT), rows("bc", [3, -3, 3, -3], SUM_PRODUCT)
    assert set(oocbe.join_maximise(f, g, "b").to_dict().values()) == {0.0}


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, None])
def test_extremes_of_long_arrays_are_those_of_all_parts(strange):
    values = np.random.default_rng(3).random(3 * EXTREMES_ROWS + 5)
    if strange is not None:
        values[2 * EXTREMES_ROWS + 1] = strange
    assert np.array_equal(extremes(values), (values.min(), values.max()), equal_nan=True)
    assert extremes(values[::-2]) == extremes(values[::-2].copy()) or math.isnan(strange)
