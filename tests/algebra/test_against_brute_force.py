"""Every operator against a dictionary model: all semirings, narrow and wide keys, normal and tiny pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.algebra.filters import drop_forbidden
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.model.semiring import SEMIRINGS, Combination, Semiring
from oocbe.tables.table import Table
from tests.helpers.effort import examples
from tests.helpers.out_of_core_modes import MODES, also_out_of_core
from tests.helpers.table_models import check, model_join, model_maximise, model_of

OUT_OF_CORE = st.sampled_from([None, *MODES])
"""None: in memory alone; otherwise out of core as well, both compared bit by bit."""
PIECES = st.sampled_from([None, 1, 2, 7])
DTYPES = [np.int32, np.int64, np.float32, np.float64]
NAMES = "abcdef"
WIDTHS = {"narrow": 2, "wide": 1 << 40}
"""Domain sizes per variable of the two families: six wide variables take six words, one each."""
FAMILIES = st.sampled_from(list(WIDTHS))


@st.composite
def tables(draw, semiring: Semiring, family: str, names: str = NAMES) -> Table:
    scope = draw(st.lists(st.sampled_from(names), unique=True, max_size=4))
    size = WIDTHS[family]
    # Values at both ends of a wide domain use all its bits; four values a variable keep matches likely.
    value = st.sampled_from([0, 1] if family == "narrow" else [0, 1, size // 3, size - 1])
    rows = draw(st.lists(st.tuples(*[value] * len(scope)), unique=True, max_size=24))
    dtype = draw(st.sampled_from(DTYPES))
    low = 0 if semiring.combination is Combination.MULTIPLY else -9
    values = draw(st.lists(st.integers(low, 9), min_size=len(rows), max_size=len(rows)))
    table = Table.from_rows(
        dict.fromkeys(scope, size), np.array(rows, dtype=np.int64).reshape(len(rows), len(scope)),
        np.array(values, dtype=dtype), semiring,
    )  # fmt: skip
    if draw(st.booleans()):
        return table
    order = draw(st.permutations(range(table.rows)))
    shuffled = np.ascontiguousarray(table.keys[:, order])
    return Table(table.layout, shuffled, table.values[list(order)], semiring, is_sorted=table.rows < 2)


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
class TestAgainstModel:
    @settings(max_examples=examples(40))
    @given(data=st.data())
    def test_join_sum(self, semiring, data):
        family = data.draw(FAMILIES)
        t1, t2 = data.draw(tables(semiring, family)), data.draw(tables(semiring, family))
        result = join_sum(t1, t2, piece_rows=data.draw(PIECES))
        check(result, model_join(model_of(t1), model_of(t2), semiring), {*t1.scope, *t2.scope})
        if (mode := data.draw(OUT_OF_CORE)) is not None:
            also_out_of_core(join_sum, t1, t2, mode=mode, stored=data.draw(st.booleans()))

    @settings(max_examples=examples(40))
    @given(data=st.data())
    def test_maximise(self, semiring, data):
        family = data.draw(FAMILIES)
        t = data.draw(tables(semiring, family).filter(lambda t: t.scope))
        variables = data.draw(st.lists(st.sampled_from(t.scope), unique=True, min_size=1))
        result = maximise(t, variables, piece_rows=data.draw(PIECES))
        check(result, model_maximise(model_of(t), variables, semiring), {*t.scope} - {*variables})
        if (mode := data.draw(OUT_OF_CORE)) is not None:
            also_out_of_core(maximise, t, variables, mode=mode, stored=data.draw(st.booleans()))

    @settings(max_examples=examples(48))
    @given(data=st.data())
    def test_join_maximise(self, semiring, data):
        family = data.draw(FAMILIES)
        t1, t2 = data.draw(tables(semiring, family, "abcd")), data.draw(tables(semiring, family, "abce"))
        scope = sorted({*t1.scope, *t2.scope})
        variables = data.draw(st.lists(st.sampled_from(scope), unique=True)) if scope else []
        result = join_maximise(t1, t2, variables, piece_rows=data.draw(PIECES))
        joined = model_join(model_of(t1), model_of(t2), semiring)
        check(result, model_maximise(joined, variables, semiring), {*scope} - {*variables})
        if (mode := data.draw(OUT_OF_CORE)) is not None:
            # Pieces of a few rows force partial sums, whose last bits depend on where they are cut.
            also_out_of_core(join_maximise, t1, t2, variables, mode=mode, stored=data.draw(st.booleans()), exact=False)

    @settings(max_examples=examples(40))
    @given(data=st.data())
    def test_drop_forbidden(self, semiring, data):
        family = data.draw(FAMILIES)
        t = data.draw(tables(semiring, family).filter(lambda t: t.scope))
        scope = data.draw(st.lists(st.sampled_from(t.scope), unique=True, min_size=1))
        value = st.sampled_from([0, 1, WIDTHS[family] - 1])
        forbidden = data.draw(st.lists(st.tuples(*[value] * len(scope)), max_size=12))
        result = drop_forbidden(t, dict.fromkeys(scope, WIDTHS[family]), forbidden, piece_rows=data.draw(PIECES))
        bad = [frozenset(zip(scope, f, strict=True)) for f in forbidden]
        check(result, {r: v for r, v in model_of(t).items() if not any(b <= r for b in bad)}, t.scope)
