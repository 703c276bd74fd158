"""Tables to and from Arrow, data frames and Parquet: equal rows, labels and their order back, and clear refusals."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.errors import FormatError, ModelError, ResourceError, UsageError
from oocbe.model.semiring import MIN_SUM
from oocbe.tables.columns import Column, sorted_rows
from oocbe.tables.layout import Layout
from tests.helpers.effort import examples

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def content(table: oocbe.Table | oocbe.StoredTable) -> dict[tuple[object, ...], float]:
    """Rows by labels, so that tables with other numberings can be compared."""
    table = table.to_table() if isinstance(table, oocbe.StoredTable) else table
    labels = table.layout.labels
    return {
        tuple(labels[name][i] if name in labels else i for name, i in zip(table.scope, row, strict=True)): value
        for row, value in table.to_dict().items()
    }


def same(one: oocbe.Table, other: oocbe.Table) -> bool:
    if not one.rows:  # columns without entries have no labels: nothing but the names need come back
        return one.scope == other.scope and not other.rows
    return (
        one.layout == other.layout and one.layout.labels == other.layout.labels and one.dtype == other.dtype
        and one.to_dict() == other.to_dict()
    )  # fmt: skip


LABELS = st.one_of(
    st.none(),
    st.lists(st.text("abcä '\n", max_size=3), min_size=1, max_size=4, unique=True).map(tuple),
    st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=4, unique=True).map(tuple),
)


@st.composite
def tables(draw: st.DrawFn) -> oocbe.Table:
    """Tables of up to three variables, with and without labels; domains larger than what rows use among them."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c d", "é"]), min_size=1, max_size=3, unique=True))
    domains = [draw(LABELS) or draw(st.integers(1, 5)) for _ in names]
    sizes = [d if isinstance(d, int) else len(d) for d in domains]
    rows = draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), unique=True, max_size=8))
    dtype = draw(st.sampled_from([np.int32, np.int64, np.float32, np.float64]))
    values = np.array(draw(st.lists(st.integers(-9, 9), min_size=len(rows), max_size=len(rows))), dtype=dtype)
    columns = [
        Column(name, np.array([row[place] for row in rows], dtype=np.int64), d if isinstance(d, tuple) else None)
        for place, (name, d) in enumerate(zip(names, domains, strict=True))
    ]
    return oocbe.Table(
        *sorted_rows(columns, values, dict(zip(names, domains, strict=True)), MIN_SUM, "table"), MIN_SUM, True
    )


def sizes_of(table: oocbe.Table) -> dict[str, int]:
    """Domains that are given as numbers, which no file keeps."""
    known = zip(table.scope, table.layout.sizes, strict=True)
    return {name: size for name, size in known if name not in table.layout.labels}


@settings(max_examples=examples(200))
@given(tables())
def test_arrow_and_back(table):
    found = oocbe.Table.from_arrow(arrow.table(table), domains=sizes_of(table), semiring=MIN_SUM)
    assert same(found, table)
    assert same(oocbe.Table.from_arrow(table, domains=sizes_of(table), semiring=MIN_SUM), table)


@settings(max_examples=examples(200))
@given(tables())
def test_pandas_and_back(table):
    pytest.importorskip("pandas")
    assert same(oocbe.Table.from_pandas(table.to_pandas(), domains=sizes_of(table), semiring=MIN_SUM), table)


@settings(max_examples=examples(200))
@given(tables())
def test_polars_and_back(table):
    pytest.importorskip("polars")
    # Polars has text as categories, and no integers: these come back as values, numbered as before when told how.
    domains = {**sizes_of(table), **table.layout.labels}
    assert same(oocbe.Table.from_polars(table.to_polars(), domains=domains, semiring=MIN_SUM), table)


@settings(max_examples=examples(160))
@given(table=tables(), rows_per_file=st.sampled_from([None, 1, 3]), chunk_rows=st.sampled_from([None, 2]))
def test_parquet_and_back(tmp_path_factory, table, rows_per_file, chunk_rows):
    folder = tmp_path_factory.mktemp("parquet")
    stored = oocbe.StoredTable.save(folder / "stored", table, chunk_rows=chunk_rows or 100)
    written = stored.to_parquet(folder / "out.parquet", rows_per_file=rows_per_file, memory="1MiB")
    # Parquet keeps dictionaries of text, those of integers come back as the integers they stand for.
    of_integers = {name: own for name, own in table.layout.labels.items() if isinstance(own[0], int)}
    domains = {**sizes_of(table), **of_integers}
    again = oocbe.StoredTable.from_parquet(
        written, folder / "again", domains=domains, semiring=MIN_SUM, memory="1MiB", chunk_rows=chunk_rows
    )
    assert same(again.to_table(), table)
    assert same(oocbe.Table.from_parquet(written, domains=domains, semiring=MIN_SUM), table)
    assert content(oocbe.Table.from_arrow(again)) == content(table)


def test_text_that_two_tables_share_is_joined_by_common_domains(tmp_path):
    sales = arrow.table({"shop": ["b", "a", "c"], "day": [0, 1, 1], "cost": [1, 2, 3]})
    rents = arrow.table({"shop": ["c", "d", "a"], "cost": [10, 20, 30]})
    parquet.write_table(sales, tmp_path / "sales.parquet")
    parquet.write_table(rents, tmp_path / "rents.parquet")
    files = [tmp_path / "sales.parquet", tmp_path / "rents.parquet"]
    domains = oocbe.common_domains(*files, values="cost")
    assert domains == {"shop": ("a", "b", "c", "d"), "day": 2}
    assert oocbe.common_domains(sales, rents, values="cost") == domains
    one, two = (oocbe.StoredTable.from_parquet(f, f.with_suffix(""), "cost", domains=domains) for f in files)
    joined = oocbe.join_sum(one, two, output=tmp_path / "joined")
    assert {dict(zip(joined.scope, row, strict=True))["shop"]: v for row, v in content(joined).items()} == {
        "a": 32,
        "c": 13,
    }
    least = oocbe.maximise(joined, "day", output=tmp_path / "least")
    back = parquet.read_table(least.to_parquet(tmp_path / "least.parquet", "cost")).to_pydict()
    assert back == {"shop": ["a", "c"], "cost": [32, 13]}
    assert content(oocbe.to_complete(oocbe.Table.from_arrow(rents, "cost")).to_table()) == {
        ("c",): 10, ("d",): 20, ("a",): 30,
    }  # fmt: skip


def test_labels_stay_with_results_of_every_operator(tmp_path):
    one = oocbe.Table.from_arrow(arrow.table({"x": ["u", "v"], "y": ["p", "q"], "value": [1, 2]}))
    two = oocbe.Table.from_arrow(arrow.table({"y": ["p", "q"], "z": [True, False], "value": [1, 2]}))
    wanted = {"x": ("u", "v"), "y": ("p", "q"), "z": (False, True)}
    complete = oocbe.to_complete(one)
    results = [
        oocbe.join_sum(one, two), oocbe.join_maximise(one, two, "y"), oocbe.maximise(one, "x"), complete,
        oocbe.semi_join(one, two), oocbe.to_rows(complete), oocbe.join_sum(complete, oocbe.to_complete(two)),
        oocbe.PackedTable.pack(one), oocbe.StoredTable.save(tmp_path / "s", one),
        oocbe.join_sum(complete, two, output=tmp_path / "j"), oocbe.to_complete(one, output=tmp_path / "c"),
    ]  # fmt: skip
    for found in results:
        assert found.layout.labels == {name: wanted[name] for name in found.scope}, found


def test_tables_with_other_labels_or_sizes_are_not_joined():
    one, two, three = (oocbe.Table.from_arrow(arrow.table({"x": x, "value": [1]})) for x in (["u"], ["v"], [3]))
    for other in (two, three):
        with pytest.raises(ModelError, match=r"variable x .* common_domains"):
            oocbe.join_sum(one, other)


REFUSED = [
    ({"x": [1, None], "value": [1, 2]}, r"column x, row 1 \(the first is 0\): nothing is there"),
    ({"x": [1, 2], "value": [1, None]}, r"column value, row 1 \(the first is 0\): nothing is there"),
    ({"x": [1.5, 2], "value": [1, 2]}, r"column x is of type double"),
    ({"x": [1, 1], "value": [1, 2]}, r"two rows have the key \{'x': 1\}"),
    ({"x": ["u", "u"], "value": [1, 2]}, r"two rows have the key \{'x': 'u'\}"),
    ({"x": [1, 2], "value": ["a", "b"]}, r"column value is of type string"),
    ({"x": [1, 2], "cost": [1, 2]}, r"column 'value' is not there; there are: x, cost"),
    ({"x": [1, 2], "value": [1.0, float("nan")]}, "NaN"),
]


@pytest.mark.parametrize(("columns", "said"), REFUSED)
def test_what_no_table_can_be_is_refused_with_its_place(columns, said):
    with pytest.raises(ModelError, match=said):
        oocbe.Table.from_arrow(arrow.table(columns))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ModelError):
        oocbe.Table.from_pandas(pandas.DataFrame(columns))
    polars = pytest.importorskip("polars")
    with pytest.raises(ModelError):
        oocbe.Table.from_polars(polars.DataFrame(columns, strict=False))


def test_a_lazy_frame_is_refused_with_the_call_that_helps():
    polars = pytest.importorskip("polars")
    with pytest.raises(UsageError, match=r"^LazyFrame has neither .* give what its collect\(\) returns$"):
        oocbe.Table.from_arrow(polars.LazyFrame({"a": [0], "value": [1]}))


def test_empty_categories_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [], "value": []}, schema={"a": polars.Categorical, "value": polars.Int64})
    assert oocbe.Table.from_polars(frame).rows == 0


def test_entries_outside_a_domain_are_named_with_their_row(tmp_path):
    parquet.write_table(
        arrow.table({"x": list(range(3000)), "s": ["u"] * 2999 + ["w"], "value": [0] * 3000}), tmp_path / "f"
    )
    for domains, said in (
        ({"x": 2000}, r"column x, row 2,000 \(the first is 0\): 2000 "),
        ({"s": ["u"]}, r"column s, row 2,999 \(the first is 0\): 'w' "),
    ):
        with pytest.raises(ModelError, match=said):
            oocbe.StoredTable.from_parquet(tmp_path / "f", tmp_path / "t", domains=domains, memory="1MiB")
        assert not (tmp_path / "t").exists()


def test_labels_beyond_the_memory_are_refused(tmp_path):
    parquet.write_table(arrow.table({"s": [str(i) for i in range(20_000)], "value": [0] * 20_000}), tmp_path / "f")
    with pytest.raises(ResourceError, match="column s has more than"):
        oocbe.common_domains(tmp_path / "f", memory="1MiB")


def test_files_that_are_no_parquet(tmp_path):
    (tmp_path / "f.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(FormatError, match=r"no Parquet .*or damaged"):
        oocbe.Table.from_parquet(tmp_path / "f.parquet")
    with pytest.raises(UsageError, match="no such file"):
        oocbe.Table.from_parquet(tmp_path / "g.parquet")
    (tmp_path / "there").touch()
    table = oocbe.Table.from_rows({"x": 2}, [[0]], [1])
    with pytest.raises(UsageError, match="exists already"):
        table.to_parquet(tmp_path / "there")
    with pytest.raises(UsageError, match="cannot be called 'x'"):
        table.to_parquet(tmp_path / "new", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.parquet", "there"]


def test_hive_partitions_are_columns(tmp_path):
    for year in (3, 5):
        (tmp_path / f"in/year={year}").mkdir(parents=True)
        parquet.write_table(arrow.table({"x": [0, 1], "value": [year, 7]}), tmp_path / f"in/year={year}/f.parquet")
    stored = oocbe.StoredTable.from_parquet(tmp_path / "in", tmp_path / "out")
    assert stored.scope == ("x", "year")
    assert content(stored) == {(0, 3): 3, (1, 3): 7, (0, 5): 5, (1, 5): 7}


def test_a_table_is_an_array_of_named_fields_has_a_length_and_is_there_without_rows():
    table = oocbe.Table.from_rows({"a": 2, "b": 3}, [[0, 2], [1, 0]], [5, 7])
    array = np.asarray(table)
    assert array.dtype.names == ("a", "b", "value")
    assert array.tolist() == [(1, 0, 7), (0, 2, 5)]
    empty = oocbe.Table.from_rows({"a": 2}, [], [])
    assert (len(table), len(empty), bool(empty)) == (2, 0, True)


@pytest.mark.parametrize("chunk_rows", [2, 1 << 20])
def test_plain_zarr_reads_the_column_form_to_equal_columns(tmp_path, chunk_rows):
    zarr = pytest.importorskip("zarr")
    rng = np.random.default_rng(0)
    scope = {"a": 3, "b/c": 1 << 40, "values": 5, "A": 1 << 33}
    tuples = np.unique(rng.integers(0, list(scope.values()), (9, 4)), axis=0)
    table = oocbe.Table.from_rows(scope, tuples, np.arange(len(tuples), dtype=np.float32))
    stored = oocbe.StoredTable.save(tmp_path / "t", table, codec="zstd", chunk_rows=chunk_rows)
    group = zarr.open_group(tmp_path / "t", mode="r")
    assert {group[name].metadata.codecs[-1].to_dict()["name"] for name in group.attrs["oocbe"]["columns"]} == {"zstd"}
    rows, values = table.to_rows()
    for name, column in zip(group.attrs["oocbe"]["columns"], rows.T, strict=True):
        assert group[name][:].tolist() == column.tolist()
    assert group["values"][:].tolist() == values.tolist()
    assert group.attrs["oocbe"]["columns"][0] == "a"
    for found in (stored.to_table(), oocbe.to_rows(oocbe.PackedTable.read(stored)), stored.read(0, len(tuples))):
        assert same(found, table)
    assert same(stored.read(1, 4), oocbe.Table(table.layout, table.keys[:, 1:4], table.values[1:4], is_sorted=True))
    assert stored.value_at(tuples[3].tolist()) == 3
    smaller = oocbe.maximise(stored, "a", output=tmp_path / "m", memory="8MiB")
    assert smaller.to_table().to_dict() == oocbe.maximise(table, "a").to_dict()


def test_layouts_keep_labels_of_what_is_selected_and_check_their_number():
    layout = Layout(("a", "b"), (2, 3), {"b": ("x", "y", "z")})
    assert layout.select(["b"]).labels == {"b": ("x", "y", "z")}
    assert layout.select(["a"]).labels == {}
    with pytest.raises(ModelError, match="1 labels for 3 values"):
        Layout(("b",), (3,), {"b": ("x",)})


DAYS = [date(2024, 2, 29), date(1999, 12, 31)]


def of_days(kind):
    """A table of two days in Arrow's date or timestamp, with a dictionary or without."""
    days = arrow.array(DAYS, arrow.date32())
    if kind == "dictionary":
        return days.dictionary_encode()
    return days.cast(arrow.timestamp("s")).cast(kind) if arrow.types.is_timestamp(kind) else days.cast(kind)


@pytest.mark.parametrize(
    "kind",
    [arrow.date32(), arrow.date64(), arrow.timestamp("us"), arrow.timestamp("ns"), "dictionary"],
    ids=str,
)
def test_dates_are_labels(kind, tmp_path):
    dates = arrow.table({"day": of_days(kind), "value": [1, 2]})
    table = oocbe.Table.from_arrow(dates)
    assert table.layout.labels == {"day": ("1999-12-31", "2024-02-29")}
    assert table.to_dict() == {(0,): 2, (1,): 1}
    parquet.write_table(dates, tmp_path / "days.parquet")
    stored = oocbe.StoredTable.from_parquet(tmp_path / "days.parquet", tmp_path / "days")
    assert content(stored) == content(table) == {("2024-02-29",): 1, ("1999-12-31",): 2}


def test_days_of_other_libraries_and_of_other_places():
    """Midnight is that of the place that a timestamp is of; between midnights there are no days."""
    local = arrow.array([datetime(2024, 7, 1, 22)], arrow.timestamp("s")).cast(arrow.timestamp("s", "UTC"))
    local = local.cast(arrow.timestamp("s", "Europe/Paris"))
    assert oocbe.Table.from_arrow(arrow.table({"day": local, "value": [1]})).layout.labels == {"day": ("2024-07-02",)}
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    labels = {"day": ("1999-12-31", "2024-02-29")}
    assert (
        oocbe.Table.from_pandas(pandas.DataFrame({"day": pandas.to_datetime(DAYS), "value": [1, 2]})).layout.labels
        == labels
    )
    assert oocbe.Table.from_polars(polars.DataFrame({"day": DAYS, "value": [1, 2]})).layout.labels == labels


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_equal_timestamps_of_any_unit_have_equal_labels(unit, tmp_path):
    times = [datetime(2024, 1, 1, 5), datetime(2024, 1, 1), datetime(1969, 12, 31, 23, 59, 50)]
    table = arrow.table({"at": arrow.array(times, arrow.timestamp(unit)), "value": [1, 2, 3]})
    expected = {("2024-01-01 05:00:00",): 1, ("2024-01-01",): 2, ("1969-12-31 23:59:50",): 3}
    assert content(oocbe.Table.from_arrow(table)) == expected
    parquet.write_table(table, tmp_path / "times.parquet")
    assert content(oocbe.StoredTable.from_parquet(tmp_path / "times.parquet", tmp_path / "times")) == expected
    days = arrow.table({"at": arrow.array(times, arrow.timestamp("us")).dictionary_encode(), "value": [10, 20, 30]})
    joined = oocbe.aggregate(table, days, group_by=["at"]).to_arrow().to_pylist()
    assert {row["at"]: row["value"] for row in joined} == {at: 11 * value for (at,), value in expected.items()}


def test_timestamps_keep_microseconds_and_finer_ones_are_refused():
    fine = arrow.array([1_500_000_000, 1_000], arrow.timestamp("ns"))
    table = oocbe.Table.from_arrow(arrow.table({"at": fine, "value": [1, 2]}))
    assert content(table) == {("1970-01-01 00:00:01.500000",): 1, ("1970-01-01 00:00:00.000001",): 2}
    finest = arrow.table({"at": arrow.array([1], arrow.timestamp("ns")), "value": [1]})
    with pytest.raises(ModelError, match="column at has times that microseconds cannot represent"):
        oocbe.Table.from_arrow(finest)


def test_equal_decimals_of_any_scale_have_equal_labels():
    prices = [Decimal("1.50"), Decimal("-0.05"), Decimal("0.00"), Decimal("300.00"), Decimal("123456789012345678.25")]
    wide, narrow = arrow.decimal128(38, 12), arrow.decimal128(20, 2)
    expected = {"1.5": 11, "-0.05": 22, "0": 33, "300": 44, "123456789012345678.25": 55}
    one, other = (
        arrow.table({"price": arrow.array(prices, kind), "value": [n * i for i in range(1, 6)]})
        for kind, n in ((wide, 1), (narrow, 10))
    )
    joined = oocbe.aggregate(one, other, group_by=["price"]).to_arrow().to_pylist()
    assert {row["price"]: row["value"] for row in joined} == expected


def test_a_frame_without_rows_has_columns_of_no_type(tmp_path):
    pandas = pytest.importorskip("pandas")
    full = pandas.DataFrame({"shop": ["a", "b"], "value": [1, 2]})
    assert len(oocbe.Table.from_pandas(full[full.value > 5])) == 0
    for number, shops in enumerate((["a", "b"], [True, False], [0, 1], [-1, 1])):
        full["shop"] = pandas.Series(shops, dtype=object)
        empty = full[full.value > 5]
        empty = empty.astype({"shop": "category"}) if number == 3 else empty
        empty.to_parquet(tmp_path / f"{number}.parquet")
        for sources in ((full, empty), (empty, full), (full, tmp_path / f"{number}.parquet"), (empty, empty)):
            assert oocbe.aggregate(*sources, group_by=["shop"]).to_arrow().to_pylist() == []


@pytest.mark.parametrize(
    ("column", "domain", "said"),
    [
        (arrow.array(["a", "b"]), ("a", 2), "of type string, and its domain has the label 2"),
        (arrow.array([1, 2]), ("1", "2"), "of type int64, and its domain has the label '1'"),
        (arrow.array([True, False]), (0, 1), "of type bool, and its domain has the label 0"),
    ],
)
def test_a_domain_of_another_type_is_refused(column, domain, said):
    with pytest.raises(ModelError, match=said):
        oocbe.Table.from_arrow(arrow.table({"x": column, "value": [1, 2]}), domains={"x": domain})


def test_labels_need_not_fit_a_narrow_column(tmp_path):
    narrow = arrow.table({"x": arrow.array([-1, 5], arrow.int8()), "value": [1, 2]})
    wide = arrow.table({"x": [-1000, 5], "value": [3, 4]})
    domains = oocbe.common_domains(narrow, wide)
    assert content(oocbe.Table.from_arrow(narrow, domains=domains)) == {(-1,): 1, (5,): 2}
    parquet.write_table(narrow, tmp_path / "narrow.parquet")
    stored = oocbe.StoredTable.from_parquet(tmp_path / "narrow.parquet", tmp_path / "stored", domains=domains)
    assert content(stored) == {(-1,): 1, (5,): 2}
    unsigned = arrow.table({"x": arrow.array([0, 1 << 63], arrow.uint64()), "value": [1, 2]})
    assert content(oocbe.Table.from_arrow(unsigned, domains={"x": (5, 0, 1 << 63)})) == {(0,): 1, (1 << 63,): 2}


def test_views_of_text_are_text():
    views = arrow.table({"x": arrow.array(["b", "a"], arrow.string_view()), "value": [1, 2]})
    assert content(oocbe.Table.from_arrow(views)) == {("b",): 1, ("a",): 2}
    assert content(oocbe.Table.from_arrow(views, domains={"x": ["b", "a"]})) == {("b",): 1, ("a",): 2}


@pytest.mark.parametrize("other", [[-1, -2], ["a", "b"], arrow.array([1, 2]).dictionary_encode()])
def test_truth_values_are_not_numbered_with_other_labels(other):
    one, two = (arrow.table({"x": x, "value": [1, 2]}) for x in (other, [True, False]))
    with pytest.raises(ModelError, match="has other labels in another table"):
        oocbe.common_domains(one, two)


def test_folders_above_a_single_file_are_no_columns(tmp_path):
    (tmp_path / "run=3").mkdir()
    table = oocbe.Table.from_rows({"x": 2}, [[0], [1]], [1, 2])
    written = table.to_parquet(tmp_path / "run=3" / "table.parquet")
    assert same(oocbe.Table.from_parquet(written), table)


def test_what_cannot_be_written_says_so_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    table = oocbe.Table.from_rows({"x": 2}, [[0], [1]], [1, 2])
    wrong = (("t.parquet", {"compression": "none such"}), ("file/t", {}), ("file/t", {"rows_per_file": 1}))
    for name, options in wrong:
        with pytest.raises(UsageError, match="cannot be written"):
            table.to_parquet(tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("numbers", [[(1 << 60) + 1, 0.5], [(1 << 63) + 1, -1]])
def test_integers_beside_others_are_not_rounded(numbers):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0, 1], "value": pandas.Series(numbers, dtype=object)})
    with pytest.raises(ModelError, match="column value cannot be read"):
        oocbe.Table.from_pandas(frame)


def test_columns_of_pandas_may_be_called_by_numbers():
    pandas = pytest.importorskip("pandas")
    assert oocbe.Table.from_pandas(pandas.DataFrame({0: [1, 0], "value": [5, 7]})).to_dict() == {(1,): 5, (0,): 7}


def test_integers_of_128_bits_are_taken_where_64_hold_them():
    polars = pytest.importorskip("polars")
    numbers = polars.Series([1, (1 << 62) + 1], dtype=polars.Int128)
    column = polars.Series([1, 0], dtype=polars.Int128)
    table = oocbe.Table.from_polars(polars.DataFrame({"x": column, "value": numbers}))
    assert table.to_dict() == {(1,): 1, (0,): (1 << 62) + 1}
    numbers = polars.Series([1, 1 << 64], dtype=polars.Int128)
    with pytest.raises(ModelError, match="beyond 64 bits"):
        oocbe.Table.from_polars(polars.DataFrame({"x": [0, 1], "value": numbers}))


def test_unused_nulls_of_several_dictionaries():
    """Arrow unifies no dictionaries with nulls, even where no row refers to one."""
    chunks = [
        arrow.DictionaryArray.from_arrays(arrow.array(places, arrow.int32()), arrow.array(labels, arrow.string()))
        for places, labels in (([0, 2], ["b", None, "a"]), ([1], ["a", "c"]))
    ]
    data = arrow.table({"shop": arrow.chunked_array(chunks), "value": [1, 2, 3]})
    for domains in (None, {"shop": ["c", "b", "a"]}):
        found = oocbe.Table.from_arrow(data, domains=domains).to_arrow().to_pylist()
        assert {row["shop"]: row["value"] for row in found} == {"b": 1, "a": 2, "c": 3}
