"""Keys that are integers of 64 bits without a sign, such as hashes: one answer, whatever gives or takes them."""

from __future__ import annotations

import pytest

import oocbe
from oocbe.errors import ModelError
from oocbe.tables.layout import Layout

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

HASHES = (3, (1 << 63) + 5, (1 << 64) - 1)
CONTENT = {(key,): number for number, key in enumerate(HASHES)}


@pytest.fixture
def given():
    return arrow.table({"id": arrow.array(HASHES[::-1], arrow.uint64()), "value": [2, 1, 0]})


def content(table):
    return {(table.layout.labels["id"][i],): value for (i,), value in table.to_dict().items()}


def from_parquet(table, folder):
    parquet.write_table(table, folder / "t.parquet")
    return oocbe.Table.from_parquet(folder / "t.parquet")


def from_stored(table, folder):
    parquet.write_table(table, folder / "t.parquet")
    return oocbe.StoredTable.from_parquet(folder / "t.parquet", folder / "t").to_table()


def from_polars(table, folder, kind="UInt64"):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": list(HASHES), "value": [0, 1, 2]}, schema_overrides={"id": getattr(polars, kind)})
    return oocbe.Table.from_polars(frame)


WAYS_IN = {
    "arrow": lambda table, folder: oocbe.Table.from_arrow(table),
    "dictionaries": lambda table, folder: oocbe.Table.from_arrow(
        table.set_column(0, "id", table.column("id").dictionary_encode())
    ),
    "pandas": lambda table, folder: oocbe.Table.from_pandas(table.to_pandas()),
    "pandas, objects": lambda table, folder: oocbe.Table.from_pandas(table.to_pandas().astype({"id": object})),
    "pandas, categories": lambda table, folder: oocbe.Table.from_pandas(table.to_pandas().astype({"id": "category"})),
    "polars": from_polars,
    "polars, 128 bits": lambda table, folder: from_polars(table, folder, "Int128"),
    "parquet": from_parquet,
    "stored": from_stored,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_in_numbers_them_by_labels(way, given, tmp_path):
    if "pandas" in way:
        pytest.importorskip("pandas")
    assert content(WAYS_IN[way](given, tmp_path)) == CONTENT


def test_what_comes_of_a_join_is_written_and_read_in_every_form(given, tmp_path):
    parquet.write_table(given.append_column("day", [[0, 1, 1]]), tmp_path / "a.parquet")
    parquet.write_table(given, tmp_path / "b.parquet")
    domains = oocbe.common_domains(tmp_path / "a.parquet", tmp_path / "b.parquet")
    one, two = (
        oocbe.StoredTable.from_parquet(tmp_path / f"{name}.parquet", tmp_path / name, domains=domains) for name in "ab"
    )
    best = oocbe.join_maximise(one, two, "day", output=tmp_path / "best")
    expected = {key: 2 * value for key, value in CONTENT.items()}
    held = best.to_table()
    assert content(held) == expected
    assert content(oocbe.Table.from_parquet(best.to_parquet(tmp_path / "best.parquet"))) == expected
    for table in (best, held):
        found = arrow.table(table)
        assert found.schema.field("id").type.value_type == arrow.uint64()
        assert content(oocbe.Table.from_arrow(found)) == expected


@pytest.mark.parametrize("first", [0, 200])
def test_data_frames_come_back(first):
    labels = (*range(4, first), *HASHES)  # a library that looks at the first ones alone sees small integers
    table = labelled(labels)
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for again in (oocbe.Table.from_pandas(table.to_pandas()), oocbe.Table.from_polars(table.to_polars())):
        assert content(again) == {(label,): number for number, label in enumerate(labels)}


def labelled(labels):
    plain = oocbe.Table.from_rows({"id": len(labels)}, [[i] for i in range(len(labels))], list(range(len(labels))))
    return oocbe.Table(Layout(("id",), (len(labels),), {"id": tuple(labels)}), plain.keys, plain.values)


MIXED = (-1, (1 << 63) + 5)


def test_labels_beyond_64_bits_are_refused_by_name_before_anything_is_read(given, tmp_path):
    message = r"variable id: its labels are integers from -1 to 9223372036854775813"
    with pytest.raises(ModelError, match=message):
        oocbe.Table.from_arrow(given, domains={"id": MIXED})
    parquet.write_table(given, tmp_path / "t.parquet")
    with pytest.raises(ModelError, match=message):
        oocbe.StoredTable.from_parquet(tmp_path / "t.parquet", tmp_path / "t", domains={"id": MIXED})
    assert not (tmp_path / "t").exists()
    signed = arrow.table({"id": [-1, 3], "value": [1, 2]})
    with pytest.raises(ModelError, match="variable id: its labels are integers from -1 to 18446744073709551615"):
        oocbe.common_domains(signed, given)
    with pytest.raises(ModelError, match=message):
        labelled(MIXED).to_arrow()
    pandas = pytest.importorskip("pandas")
    for wrong in (MIXED, (0, 1 << 64)):
        frame = pandas.DataFrame({"id": pandas.Series(wrong, dtype=object), "value": [1, 2]})
        with pytest.raises(ModelError, match="column id cannot be read"):
            oocbe.Table.from_pandas(frame)
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": list(MIXED), "value": [1, 2]}, schema_overrides={"id": polars.Int128})
    with pytest.raises(ModelError, match="column id has integers from -1 to 9223372036854775813"):
        oocbe.Table.from_polars(frame)
