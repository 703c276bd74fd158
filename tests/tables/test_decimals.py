"""Decimals as values: exact, or refused by their column; whatever they come from."""

from __future__ import annotations

import random
from decimal import Decimal
from importlib.util import find_spec

import numpy as np
import pytest

import oocbe
from oocbe.errors import ModelError

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def taken(data, tmp_path):
    """The table by every way in."""
    parquet.write_table(data, tmp_path / "t.parquet", row_group_size=3)
    yield oocbe.Table.from_arrow(data)
    yield oocbe.Table.from_parquet(tmp_path / "t.parquet")
    stored = oocbe.StoredTable.from_parquet(tmp_path / "t.parquet", tmp_path / "t", overwrite=True)
    yield stored.to_table()
    yield oocbe.Table.from_arrow(arrow.concat_tables([data.slice(0, 2), data.slice(2)]))
    if find_spec("pandas"):
        yield oocbe.Table.from_pandas(data.to_pandas())
    if not find_spec("polars"):
        return
    import polars

    if data.schema.field("value").type.bit_width == 128 and data.schema.field("value").type.scale >= 0:
        yield oocbe.Table.from_polars(polars.from_arrow(data))


def of(numbers, kind):
    return arrow.table({"x": list(range(len(numbers))), "value": arrow.array([Decimal(n) for n in numbers], kind)})


@pytest.mark.parametrize("kind", [arrow.decimal128(38, 0), arrow.decimal256(60, 0), arrow.decimal128(19, 0)], ids=str)
def test_integral_ones_are_integers(kind, tmp_path):
    numbers = [0, 1, -1, (1 << 63) - 1, -(1 << 63) + 1, (1 << 53) + 1, 10**18]
    for table in taken(of(numbers, kind), tmp_path):
        assert table.dtype == np.int64
        assert table.values.tolist() == numbers


@pytest.mark.parametrize("scale", [1, 2, 7, 15, 22])
@pytest.mark.parametrize("width", [128, 256])
def test_others_are_the_nearest_floats(scale, width, tmp_path):
    """Which Python's own conversion of decimals finds, which rounds once."""
    drawn = random.Random(scale)
    units = [0, 1, -1, 1 << 53, -(1 << 53), *(drawn.randint(-(1 << 53), 1 << 53) for _ in range(200))]
    numbers = [Decimal(unit).scaleb(-scale) for unit in units]
    kind = arrow.decimal128(38, scale) if width == 128 else arrow.decimal256(60, scale)
    for table in taken(of(numbers, kind), tmp_path):
        assert table.dtype == np.float64
        assert table.values.tolist() == [float(number) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "kind", "shown"),
    [
        (["1", str(1 << 63)], arrow.decimal128(38, 0), r"9223372036854775808 has more digits than 64 bits"),
        (["0.5", "90071992547409.931"], arrow.decimal128(38, 3), r"90071992547409\.931 has more digits than a float64"),
        (["0.5", "1" * 30 + ".5"], arrow.decimal128(38, 1), r"1{30}\.5 has more digits than a float64"),
        (["0", "1e-30"], arrow.decimal128(38, 30), r"1E-30 has more digits than a float64"),
    ],
)
def test_those_that_would_be_rounded_are_refused_by_column_and_row(numbers, kind, shown, tmp_path):
    data = of(numbers, kind)
    parquet.write_table(data, tmp_path / "t.parquet")
    ways = (
        lambda: oocbe.Table.from_arrow(data),
        lambda: oocbe.StoredTable.from_parquet(tmp_path / "t.parquet", tmp_path / "t"),
        lambda: oocbe.Table.from_pandas(data.to_pandas()),
    )
    for way in ways:
        with pytest.raises(ModelError, match=rf"column value, row 1 \(the first is 0\): the decimal {shown}"):
            way()
    assert not (tmp_path / "t").exists()


def test_missing_ones_and_those_of_dictionaries_are_refused_by_column():
    data = arrow.table({"x": [0, 1], "value": arrow.array([Decimal(1), None], arrow.decimal128(5, 0))})
    with pytest.raises(ModelError, match=r"column value, row 1 .*nothing is there"):
        oocbe.Table.from_arrow(data)
    keys = arrow.table({"x": arrow.array([1.5]), "value": [1]})
    with pytest.raises(ModelError, match=r"column x is of type double; variables are"):
        oocbe.Table.from_arrow(keys)


@pytest.mark.parametrize("scale", [-3, -18, -19, -25])
def test_places_before_the_point(scale):
    """Units may be larger than any integer of 64 bits: 0 of them is 0, and any other number is refused."""
    kind = arrow.decimal128(5, scale)
    numbers = [0, 7 * 10**-scale, -9 * 10**-scale] if scale >= -18 else [0, 0]
    data = of(numbers, kind)  # which Parquet has none of
    tables = [
        oocbe.Table.from_arrow(data),
        *([oocbe.Table.from_pandas(data.to_pandas())] if find_spec("pandas") else []),
    ]
    for table in tables:
        assert (table.dtype, table.values.tolist()) == (np.int64, numbers)
    for number in [10 ** (4 - scale)] if scale <= -18 else []:
        with pytest.raises(ModelError, match=r"column value, row 1 .*has more digits than 64 bits"):
            oocbe.Table.from_arrow(of([0, number], kind))


def test_zeros_of_more_places_than_a_float_has():
    units = arrow.py_buffer(np.zeros(4, dtype=np.int64))
    zeros = arrow.Array.from_buffers(arrow.decimal128(5, 400), 2, [None, units])
    assert oocbe.Table.from_arrow(arrow.table({"x": [0, 1], "value": zeros})).values.tolist() == [0.0, 0.0]


def test_none_at_all(tmp_path):
    for scale, dtype in ((0, np.int64), (2, np.float64)):
        data = arrow.table({"x": arrow.array([], arrow.int64()), "value": arrow.array([], arrow.decimal128(9, scale))})
        assert oocbe.Table.from_arrow(data).dtype == dtype
