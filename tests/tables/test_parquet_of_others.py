"""Parquet that was not written for a join: other names, nulls, keys that occur again; and outputs that are replaced."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.errors import ModelError, UsageError
from oocbe.tables import parquet_source
from oocbe.tables.arrow import column_of
from tests.helpers.effort import examples

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SHOPS, DAYS = ("b", "a", "c"), (0, 1, 2)
SALES = st.lists(
    st.tuples(st.sampled_from([*SHOPS, None]), st.sampled_from([*DAYS, None]), st.sampled_from([-3, 0, 5, None])),
    max_size=12,
)
RENTS = st.lists(
    st.tuples(st.sampled_from([*SHOPS, None]), st.sampled_from([*DAYS, None]), st.sampled_from([-2, 1, None])),
    max_size=8,
)
MEANINGS = {oocbe.MAX_SUM: (max, sum), oocbe.MIN_SUM: (min, sum), oocbe.SUM_PRODUCT: (sum, np.prod)}
"""How values of one key are combined, and those of rows that meet."""


@settings(max_examples=examples(60))
@given(SALES, RENTS, st.sampled_from(list(MEANINGS)), st.sampled_from([1, 3, None]))
def test_a_join_is_that_of_sql_with_other_names_nulls_and_repeated_keys(sales, rents, semiring, piece_rows):
    """Every row meets every other one with its key; rows with nulls meet none; what has one key is combined."""
    combine, meet = MEANINGS[semiring]
    expected: dict[str, list[int]] = {}
    for shop, day, gain in sales:
        for own in rents if None not in (shop, day, gain) else ():
            if own[:2] == (shop, day) and own[2] is not None:
                expected.setdefault(shop, []).append(meet([abs(gain), abs(own[2])]))
    with TemporaryDirectory() as name:
        folder, kinds = Path(name), {"shop": arrow.string(), "day": arrow.int8(), "gain": arrow.int32()}
        for file, rows, names in (
            ("sales", sales, ["shop", "day", "gain"]),
            ("rents", rents, ["place", "day", "rent"]),
        ):
            columns = list(zip(*rows, strict=True)) or [(), (), ()]
            values = [None if value is None else abs(value) for value in columns[2]]
            arrays = [
                arrow.array(column, type=kind)
                for column, kind in zip((*columns[:2], values), kinds.values(), strict=True)
            ]
            parquet.write_table(arrow.table(arrays, names=names), folder / f"{file}.parquet", row_group_size=4)
        files, rename = [folder / "sales.parquet", folder / "rents.parquet"], {"place": "shop", "rent": "gain"}
        domains = oocbe.common_domains(*files, values="gain", rename=rename, drop_nulls=True)
        one, two = (
            oocbe.StoredTable.from_parquet(
                file, file.with_suffix(""), "gain", rename=renamed, domains=domains, semiring=semiring,
                drop_nulls=True, duplicates=True, chunk_rows=3,
            )
            for file, renamed in zip(files, (None, rename), strict=True)
        )  # fmt: skip
        found = oocbe.join_maximise(one, two, "day", output=folder / "joined", piece_rows=piece_rows, scratch=folder)
        rows = parquet.read_table(found.to_parquet(folder / "joined.parquet", "gain")).to_pylist()
        assert {row["shop"]: row["gain"] for row in rows} == {shop: combine(all_) for shop, all_ in expected.items()}
        assert len(rows) == len(expected)
        once = oocbe.maximise(one, [], output=folder / "once", piece_rows=piece_rows, scratch=folder)
        assert once.rows == len({row[:2] for row in sales if None not in row})


def test_rows_of_one_key_are_combined_where_nothing_is_eliminated_and_refused_one_by_one(tmp_path):
    rows = {"a": {"x": [1, 0, 1], "y": [0, 0, 0], "value": [5, 1, 7]}, "b": {"x": [1, 0, 1], "value": [2, 3, 1]}}
    for name, columns in rows.items():
        parquet.write_table(arrow.table(columns), tmp_path / name)
    domains = oocbe.common_domains(*(tmp_path / name for name in rows))
    for semiring, sums in ((oocbe.MAX_SUM, {0: 4, 1: 9}), (oocbe.SUM_PRODUCT, {0: 3, 1: 36})):
        one, two = (
            oocbe.StoredTable.from_parquet(
                tmp_path / name, tmp_path / f"{name}.t", domains=domains, semiring=semiring, duplicates=True,
                overwrite=True,
            )
            for name in rows
        )  # fmt: skip
        joined = oocbe.join_sum(one, two, output=tmp_path / "j", overwrite=True)
        assert joined.to_table().to_dict() == {(x, 0): value for x, value in sums.items()}
        least = oocbe.join_maximise(one, two, "y", output=tmp_path / "j", overwrite=True)
        assert least.to_table().to_dict() == {(x,): value for x, value in sums.items()}
    for use in (lambda: oocbe.join_sum(one, two), lambda: oocbe.to_complete(one), lambda: oocbe.semi_join(one, two)):
        with pytest.raises(UsageError, match="a key may occur more than once; combine them"):
            use()
    assert one.to_arrow().read_all().num_rows == 3
    with pytest.raises(UsageError, match=r"a path, and no table; open it: oocbe.StoredTable.open\('a.t'\)"):
        oocbe.join_sum("a.t", one)  # type: ignore[call-overload]
    product = [
        oocbe.StoredTable.from_parquet(tmp_path / n, tmp_path / f"{n}.p", semiring=oocbe.MAX_PRODUCT, duplicates=True)
        for n in rows
    ]
    assert oocbe.join_sum(*product, output=tmp_path / "p").to_table().to_dict() == {(0, 0): 3, (1, 0): 14}
    parquet.write_table(arrow.table({"x": [1, 0, 1], "value": [-2, 3, -1]}), tmp_path / "b")
    less = oocbe.StoredTable.from_parquet(
        tmp_path / "b", tmp_path / "b.p", semiring=oocbe.MAX_PRODUCT, duplicates=True, overwrite=True
    )
    with pytest.raises(ModelError, match="cannot be combined before they are joined"):
        oocbe.join_sum(product[0], less, output=tmp_path / "q")


def test_what_renaming_and_nulls_cannot_be_is_refused(tmp_path):
    file = tmp_path / "f.parquet"
    parquet.write_table(arrow.table({"date": [0, None, 2], "day": [1, 2, 3], "v": [1, 2, 3]}), file)
    with pytest.raises(ModelError, match="no column 'week' to be renamed; there are: date, day, v"):
        oocbe.common_domains(file, values="v", rename={"week": "when"})
    with pytest.raises(ModelError, match="column 'week' is in no table; there are: date, day, v"):
        oocbe.common_domains(file, values="v", scope=["day", "week"])
    with pytest.raises(ModelError, match="two columns are called 'day'"):
        oocbe.Table.from_parquet(file, "v", rename={"date": "day"})
    with pytest.raises(ModelError, match=r"column when, row 1 \(the first is 0\): nothing is there"):
        oocbe.StoredTable.from_parquet(file, tmp_path / "t", "v", rename={"date": "when"})
    assert oocbe.Table.from_parquet(file, "v", rename={"date": "when"}, drop_nulls=True).to_dict() == {
        (0, 1): 1,
        (2, 3): 3,
    }
    parquet.write_table(arrow.table({"day": [1, 1], "v": [1, 2]}), file)
    with pytest.raises(ModelError, match=r"a key occurs twice, at or after row 0 \(.*\); where that is meant"):
        oocbe.StoredTable.from_parquet(file, tmp_path / "t", "v")
    twice = arrow.table([arrow.array([2]), arrow.array([3]), arrow.array([4])], names=["day", "v", "day"])
    parquet.write_table(twice, tmp_path / "g.parquet")
    with pytest.raises(ModelError, match=r"g.parquet: two columns are called 'day'"):
        oocbe.Table.from_parquet([file, tmp_path / "g.parquet"], "v")


def test_an_index_without_a_name_is_no_variable(tmp_path):
    """Frames of pandas of which rows were left out have one; it became a key, and joins kept a row of each."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"day": [0, 1, 1, 5], "v": [1, 2, 2, 3]}).drop_duplicates()
    file = tmp_path / "f.parquet"
    frame.to_parquet(file)
    assert parquet.read_schema(file).names == ["day", "v", "__index_level_0__"]
    assert oocbe.common_domains(file, frame, values="v") == {"day": 6}
    for table in (oocbe.Table.from_arrow(frame, "v"), oocbe.StoredTable.from_parquet(file, tmp_path / "t", "v")):
        assert table.scope == ("day",)
    assert oocbe.Table.from_parquet(file, "v", scope=["__index_level_0__"]).rows == 3  # where it is asked for
    other = pandas.DataFrame({"day": [5, 1, 0], "w": [7, 8, 9]}, index=[2, 0, 4])
    other.to_parquet(tmp_path / "other.parquet")
    frame.to_csv(tmp_path / "f.csv")
    other.to_csv(tmp_path / "other.csv")
    for one, two in ((frame, other), (file, tmp_path / "other.parquet"), (tmp_path / "f.csv", tmp_path / "other.csv")):
        days = oocbe.aggregate(one, two, group_by=["day"], aggregate={"v": ("sum", "v")}).to_pylist()
        assert days == [{"day": 0, "v": 1}, {"day": 1, "v": 2}, {"day": 5, "v": 3}], "rows matched by their numbers"
    frame.set_index("day").to_parquet(file)
    assert oocbe.Table.from_parquet(file, "v").scope == ("day",)


def test_outputs_are_replaced_where_that_is_asked_for(tmp_path):
    """Tables, their parts and Parquet, read from under the very name too; nothing else is, and nothing is left."""
    table = oocbe.Table.from_rows({"x": 9, "y": 2}, [[1, 0], [2, 0], [2, 1]], [5, 6, 7])
    path = tmp_path / "t"
    oocbe.StoredTable.save(path, table)
    stored = oocbe.StoredTable.save(path, table, overwrite=True)
    assert oocbe.maximise(stored, "x", output=path, overwrite=True).to_table().to_dict() == {(0,): 6, (1,): 7}
    again = oocbe.join_sum(oocbe.StoredTable.open(path), table, output=path, overwrite=True)
    assert sorted(again.to_table().to_dict().values()) == [11, 12, 14]
    assert oocbe.to_complete(table, output=path, overwrite=True).path == path
    assert oocbe.semi_join(table, table, output=path, overwrite=True).rows == 3
    file = tmp_path / "f.parquet"
    for rows_per_file in (None, 2, 1, None):
        table.to_parquet(file, rows_per_file=rows_per_file, overwrite=True)
        assert oocbe.Table.from_parquet(file, domains={"x": 9, "y": 2}).to_dict() == table.to_dict()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f.parquet", "t"]


def test_nothing_but_tables_is_replaced(tmp_path):
    table = oocbe.Table.from_rows({"x": 9}, [[1]], [5])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").touch()
    (tmp_path / "link").symlink_to(oocbe.StoredTable.save(tmp_path / "t", table).path)
    for name in ("notes", "link"):
        with pytest.raises(UsageError, match="is no stored table, and nothing else is overwritten"):
            oocbe.StoredTable.save(tmp_path / name, table, overwrite=True)
    with pytest.raises(UsageError, match="with other things than"):
        table.to_parquet(tmp_path / "notes", overwrite=True)
    with pytest.raises(UsageError, match="name the output table"):
        oocbe.maximise(table, "x", overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*.tex")) == ["thesis.tex"]


def test_an_old_table_stays_where_the_new_one_fails(tmp_path):
    table = oocbe.Table.from_rows({"x": 9}, [[1]], [5])
    stored = oocbe.StoredTable.save(tmp_path / "t", table)
    with (
        pytest.raises(ZeroDivisionError),
        oocbe.StoredTable.create(tmp_path / "t", stored.layout, overwrite=True) as writer,
    ):
        writer.append(table.keys, table.values)
        raise ZeroDivisionError
    assert oocbe.StoredTable.open(tmp_path / "t").to_table().to_dict() == {(1,): 5}
    assert [entry.name for entry in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("semiring", [oocbe.SUM_PRODUCT, oocbe.COUNTING], ids=str)
def test_sums_of_rows_of_one_key_have_room(semiring, tmp_path):
    """Of 18 values that int32 holds, and of which int64 holds the sum; and of some whose sum nothing holds."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def table(value, dtype, name):
        columns = {"x": [0, 1] * 9, "value": np.full(18, value, dtype=dtype)}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
        source, path = tmp_path / f"{name}.parquet", tmp_path / name
        return oocbe.StoredTable.from_parquet(source, path, semiring=semiring, duplicates=True)

    small, ones = table(2**30, np.int32, "small"), oocbe.Table.from_rows({"x": 2}, [[0], [1]], [1, 1], semiring)
    assert oocbe.maximise(small, [], output=tmp_path / "a").to_table().to_dict() == {(0,): 9 * 2**30, (1,): 9 * 2**30}
    assert oocbe.maximise(small, "x", output=tmp_path / "b").to_table().to_dict() == {(): 18 * 2**30}
    joined = oocbe.join_sum(small, ones, output=tmp_path / "c")
    assert joined.to_table().to_dict() == {(0,): 9 * 2**30, (1,): 9 * 2**30}
    assert oocbe.join_maximise(small, ones, "x", output=tmp_path / "d").to_table().to_dict() == {(): 18 * 2**30}
    with pytest.raises(oocbe.ValueRangeError):
        oocbe.maximise(table(2**61, np.int64, "large"), "x", output=tmp_path / "e")


def test_tables_are_not_made_in_object_stores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = oocbe.Table.from_rows({"x": 9}, [[1]], [5])
    with pytest.raises(UsageError, match="upload it"):
        oocbe.StoredTable.save("s3://bucket/table", table)
    with pytest.raises(UsageError, match="upload it"):
        oocbe.to_complete(table, output="s3://bucket/table")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_files_takes_no_more_of_arrow_than_the_memory_that_is_given(tmp_path):
    """Arrow's own scanner of folders holds several batches of several files, whatever their size."""
    rows, folder = 400_000, tmp_path / "data"
    folder.mkdir()
    for part in range(4):
        numbers = np.arange(part * rows, (part + 1) * rows)
        table = arrow.table({"a": numbers, "b": numbers % 7, "gain": numbers})
        parquet.write_table(table, folder / f"{part}.parquet", use_dictionary=False, compression="none")
    before, pool = arrow.default_memory_pool(), arrow.proxy_memory_pool(arrow.default_memory_pool())
    arrow.set_memory_pool(pool)
    try:
        stored = oocbe.StoredTable.from_parquet(folder, tmp_path / "table", "gain", memory="4MiB")
    finally:
        arrow.set_memory_pool(before)
    assert stored.rows == 4 * rows
    assert pool.max_memory() < 16 << 20


def test_files_of_a_folder_may_lack_columns_or_have_narrower_ones(tmp_path):
    folder = tmp_path / "data"
    (folder / "shop=a").mkdir(parents=True)
    (folder / "shop=b").mkdir()
    wide, narrow = arrow.array([4, 5], arrow.int64()), arrow.array([6], arrow.int16())
    parquet.write_table(arrow.table({"day": [0, 1], "gain": wide, "till": [2, 2]}), folder / "shop=a" / "0.parquet")
    parquet.write_table(arrow.table({"gain": narrow, "day": [1]}), folder / "shop=b" / "1.parquet")
    taken = {"scope": ["shop", "day"], "values": "gain"}
    stored = oocbe.StoredTable.from_parquet(folder, tmp_path / "table", **taken)
    assert stored.to_table().to_dict() == {(0, 0): 4, (0, 1): 5, (1, 1): 6}
    assert oocbe.Table.from_parquet(folder, **taken).to_dict() == stored.to_table().to_dict()
    assert oocbe.common_domains(folder, values="gain", scope=["shop"]) == {"shop": ("a", "b")}
    with pytest.raises(ModelError, match="till"):
        oocbe.StoredTable.from_parquet(folder, tmp_path / "other", "gain")


def test_columns_of_two_types_in_one_folder_are_named_with_their_files(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    parquet.write_table(arrow.table({"day": [0], "gain": [1]}), folder / "0.parquet")
    parquet.write_table(arrow.table({"day": ["monday"], "gain": [1]}), folder / "1.parquet")
    with pytest.raises(
        ModelError, match=r"1\.parquet: column day is of type string, and of type int64 in .*0\.parquet"
    ):
        oocbe.StoredTable.from_parquet(folder, tmp_path / "table", "gain")


def with_statistics(path, wrong):
    """The greatest value that a file's statistics tell, 5, replaced by another; the file's values stay."""
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    bound = (5).to_bytes(8, "little")
    place = data.find(bound, footer)
    assert place > 0
    while place > 0:
        data[place : place + 8] = wrong.to_bytes(8, "little")
        place = data.find(bound, footer)
    path.write_bytes(data)


def test_wrong_statistics_are_said_to_be_wrong(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({"x": [0, 3, 5], "value": [1, 2, 3]}), path, use_dictionary=False)
    with_statistics(path, 4)
    message = r"column x has integers from 0 to 5, and the file's statistics say 0 to 4: they are wrong"
    with pytest.raises(ModelError, match=message):
        oocbe.StoredTable.from_parquet(path, tmp_path / "t")
    with pytest.raises(ModelError, match=message):
        oocbe.StoredTable.from_parquet(path, tmp_path / "t", domains=oocbe.common_domains(path))
    made = oocbe.StoredTable.from_parquet(path, tmp_path / "t", domains={"x": 6})
    assert made.to_table().to_dict() == oocbe.Table.from_parquet(path).to_dict() == {(0,): 1, (3,): 2, (5,): 3}
    with pytest.raises(ModelError, match="3 is not among 0 to 2"):  # what is given is wrong, and what is told is not
        parquet.write_table(arrow.table({"x": [0, 3, 5], "value": [1, 2, 3]}), path)
        oocbe.StoredTable.from_parquet(path, tmp_path / "u", domains={"x": 3})


def test_a_dot_in_a_name_is_no_part_of_a_structure(tmp_path):
    path = tmp_path / "t.parquet"
    parts = arrow.array([{"b": 1}, {"b": 1000}])
    parquet.write_table(arrow.table({"a": parts, "a.b": [7, 9], "value": [1, 2]}), path)
    domains = oocbe.common_domains(path, scope=["a.b"])
    assert domains == {"a.b": 10}
    stored = oocbe.StoredTable.from_parquet(path, tmp_path / "t", scope=["a.b"])
    assert stored.layout.sizes == (10,)
    assert stored.to_table().to_dict() == oocbe.Table.from_parquet(path, scope=["a.b"]).to_dict() == {(7,): 1, (9,): 2}
    parquet.write_table(arrow.table({"a": parts, "c": [7, 9], "value": [1, 2]}), path)
    with pytest.raises(ModelError, match=r"column 'a.b' is in no table"):
        oocbe.common_domains(path, scope=["a.b"])


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("options", "has_dictionaries", "kinds"),
    [
        ({}, {True}, ("string", "large_string")),
        ({"use_dictionary": False}, {False}, ("large_string", "string")),
        ({"dictionary_pagesize_limit": 64, "write_batch_size": 100}, {True}, ("string", "large_string")),
        ({"dictionary_pagesize_limit": 1, "write_batch_size": 1}, {False}, ("large_string", "string")),
        (None, {True, False}, ("string", "large_string")),
    ],
    ids=["dictionaries", "plain", "partly plain", "mostly plain", "files"],
)
def test_text_has_the_same_labels_however_it_is_stored(options, has_dictionaries, kinds, turn, tmp_path, monkeypatch):
    """In dictionaries of row groups, plain, in dictionaries and then plain, or in dictionaries in one of two files."""
    monkeypatch.setattr(parquet_source, "GROUP_ROWS", 1000)
    random, rows, path = np.random.default_rng(7), 6000, tmp_path / "data"
    texts = np.array([f"é{number:03}" for number in random.permutation(40)])
    shops = texts[np.sort(random.integers(0, 30, rows))].astype(object)
    shops[random.random(rows) < 0.1] = None
    shops[rows - 1] = "alone"
    gains = random.integers(0, 9, rows).astype(object)
    gains[rows - 1] = None
    columns = {"shop": arrow.array(shops, kinds[turn]), "row": np.arange(rows), "gain": arrow.array(gains, "int64")}
    data = arrow.table(columns)
    if options is None:
        path.mkdir()
        parquet.write_table(data[:3000], path / "0.parquet", row_group_size=1000)
        parquet.write_table(data[3000:], path / "1.parquet", row_group_size=1000, use_dictionary=False)
    else:
        parquet.write_table(data, path, row_group_size=2000, **options)
    source = parquet_source.source_of(path, None, True)
    assert {arrow.types.is_dictionary(b.column(0).type) for b in source.batches(["shop"])} == has_dictionaries

    there = [shop for shop in shops if shop is not None]
    assert oocbe.common_domains(path, values="gain", scope=["shop"], drop_nulls=True) == {"shop": (*sorted({*there}),)}
    kept = [own for own in zip(shops, range(rows), gains, strict=True) if None not in own]
    whole = oocbe.Table.from_parquet(path, "gain", drop_nulls=True)
    assert whole.layout.labels["shop"] == tuple(sorted({shop for shop, *_ in kept}))  # the dropped row's is none
    stored = oocbe.StoredTable.from_parquet(path, tmp_path / "table", "gain", drop_nulls=True)
    for table in (whole, stored.to_table()):
        labels = table.layout.labels["shop"]
        assert sorted((labels[s], r, g) for (s, r), g in table.to_dict().items()) == sorted(kept)
    labels, found = tuple(sorted(set(there))), []
    for batch in source.batches(["shop"], 7):  # fewer rows than a dictionary has entries
        found += [labels[place] for place in column_of("shop", batch.column(0), "", labels).indices]
    assert found == there
    sums: dict[str, int] = {}
    for shop, _, gain in kept:
        sums[shop] = sums.get(shop, 0) + gain
    rents, total = arrow.table({"shop": sorted(sums)[::2]}), {"total": ("sum", "gain")}
    found = oocbe.aggregate(str(path), rents, group_by=["shop"], aggregate=total, drop_nulls=True).to_pylist()
    assert found == [{"shop": shop, "total": sums[shop]} for shop in sorted(sums)[::2]]
    named = {"group_by": ["named"], "keys": {"named": ("shop", "utf8_upper")}}
    found = oocbe.aggregate(str(path), aggregate=total, drop_nulls=True, **named).to_pylist()
    assert found == [{"named": shop.upper(), "total": sums[shop]} for shop in sorted(sums)]
    missing, domains = kept[-1][0], {"shop": sorted(set(there) - {kept[-1][0]})}
    place = [shop for shop, *_ in kept].index(missing)
    with pytest.raises(ModelError, match=f"column shop, row {place:,} .*: {missing!r} is not among the .* labels"):
        oocbe.StoredTable.from_parquet(path, tmp_path / "none", "gain", drop_nulls=True, domains=domains)
    for domain in ([1], [*sorted(set(there)), 1]):
        with pytest.raises(ModelError, match="string, and its domain has the label 1"):
            oocbe.StoredTable.from_parquet(path, tmp_path / "none", "gain", drop_nulls=True, domains={"shop": domain})
    with pytest.raises(ModelError, match=f"column shop, row {shops.tolist().index(None)} .*null"):
        oocbe.common_domains(path, values="gain", scope=["shop"])
    with pytest.raises(ModelError, match="string; values are"):
        oocbe.aggregate(str(path), group_by=["row"], values="shop", drop_nulls=True)
