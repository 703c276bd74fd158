"""``oocbe.aggregate`` against DuckDB-like group-by of the full join, computed with pandas."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oocbe
from oocbe.api.aggregation import SOURCE_SHARE
from oocbe.api.contraction import EinsumExpression, path_of
from oocbe.api.source_messages import CELL_BYTES
from oocbe.cli.main import app
from oocbe.errors import FormatError, ModelError, ResourceError, UsageError, ValueRangeError
from oocbe.tables import arrow, parquet_source
from tests.helpers.effort import examples

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
pq = pytest.importorskip("pyarrow.parquet")

SHAPES = {
    "chain": ["ab", "bc", "cd"],
    "star": ["ab", "ac", "ad"],
    "triangle": ["ab", "bc", "ca"],
    "cycle": ["ab", "bc", "cd", "da"],
    "apart": ["ab", "cd"],
    "alone": ["abc"],
}


AGGREGATES = [("max", "sum"), ("min", "sum"), ("sum", "product"), ("count", "product")]
"""Each with what combines the values of sources."""


def frames(random, scopes, rows, kind):
    found = []
    for scope in scopes:
        columns = {name: random.integers(0, 5, rows) for name in scope}
        if kind == "text":
            columns = {name: np.array(["ü", "v", "w", "x y", "z"])[own] for name, own in columns.items()}
        elif kind == "dates":
            columns = {name: np.datetime64("2026-11-24") + own for name, own in columns.items()}
        found.append(pd.DataFrame({**columns, "value": random.integers(-9, 9, rows)}))
    return found


def expected(sources, group_by, aggregate, combine):
    whole = sources[0].rename(columns={"value": "v0"})
    for number, other in enumerate(sources[1:], 1):
        other = other.rename(columns={"value": f"v{number}"})
        shared = [name for name in other.columns if name in whole.columns]
        whole = whole.merge(other, on=shared) if shared else whole.merge(other, how="cross")
    parts = whole[[f"v{number}" for number in range(len(sources))]]
    whole["value"] = parts.sum(axis=1) if combine == "sum" else parts.prod(axis=1)
    if not group_by:
        return {(): {"count": len, "sum": sum, "max": max, "min": min}[aggregate](whole["value"].tolist())}
    grouped = whole.groupby(group_by)["value"]
    made = getattr(grouped, aggregate)()
    return {key if isinstance(key, tuple) else (key,): value for key, value in made.items()}


def found_in(table, group_by):
    rows = table.to_arrow().to_pylist() if group_by else [{"value": v} for v in table.to_dict().values()]
    return {tuple(row[name] for name in group_by): row["value"] for row in rows}


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["integers", "text", "dates"])
@pytest.mark.parametrize("shape", SHAPES)
def test_groups_are_those_of_the_join(shape, kind, turn, tmp_path):
    """Shapes and kinds take turns with the aggregates."""
    random = np.random.default_rng(len(shape))
    scopes = SHAPES[shape]
    letters = sorted(set("".join(scopes)))
    for aggregate, combine in AGGREGATES[(len(scopes) + len(kind) + turn) % 2 :: 2]:
        sources = frames(random, scopes, 14, kind)
        group_by = [str(name) for name in random.permutation(letters)[: random.integers(0, 3)]]
        wanted = expected(sources, group_by, aggregate, combine)
        if kind == "dates":
            wanted = {tuple(day.strftime("%Y-%m-%d") for day in key): value for key, value in wanted.items()}
        assert found_in(oocbe.aggregate(*sources, group_by=group_by, aggregate=aggregate), group_by) == wanted
        paths = []
        for number, source in enumerate(sources):
            paths.append(tmp_path / f"{aggregate}-{number}.parquet")
            source.to_parquet(paths[-1])
        stored = oocbe.aggregate(*paths, group_by=group_by, aggregate=aggregate, output=tmp_path / f"out-{aggregate}")
        assert found_in(stored.to_table(), group_by) == wanted


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("cells", "row_bytes"), [(0, 40), (5, 40), (0, 1 << 60), (5, 1 << 60)])
@pytest.mark.parametrize("shape", SHAPES)
def test_groups_do_not_depend_on_which_sources_send_messages(shape, cells, row_bytes, turn, monkeypatch):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr("oocbe.api.source_messages.MESSAGE_CELLS", cells)
    monkeypatch.setattr("oocbe.api.source_messages.SORTED_BYTES", row_bytes)
    monkeypatch.setattr("oocbe.api.source_messages.CELLS_A_ROW", 0)
    random = np.random.default_rng(cells)
    scopes, letters = SHAPES[shape], sorted(set("".join(SHAPES[shape])))
    for aggregate, combine in AGGREGATES[(len(shape) + cells + (row_bytes > 40) + turn) % 2 :: 2]:
        sources = frames(random, scopes, *((4, "text") if cells == 5 else (14, "integers")))
        group_by = [str(name) for name in random.permutation(letters)[: random.integers(cells == 5, 3)]]
        given = [pl.from_pandas(source) for source in sources]  # text of views, of which Arrow selects no rows
        found = oocbe.aggregate(*given, group_by=group_by, aggregate=aggregate)
        assert found_in(found, group_by) == expected(sources, group_by, aggregate, combine)


def test_values_that_leave_their_range_are_refused_while_sources_send_messages():
    one, two = pa.table({"k": [0, 1], "g": [0, 0], "v": [2**62, 1]}), pa.table({"k": [0, 1], "v": [2**62, 1]})
    floats = [pa.table({"k": [0], "g": [0], "v": [value]}) for value in (1e200, 1e-200)]
    for sources, how in (
        ((one, two), "max"),
        ((one, two), "sum"),
        ((floats[0],) * 2, "sum"),
        ((floats[1],) * 2, "sum"),
    ):
        with pytest.raises(ValueRangeError, match=r"64-bit integers|outside the range of float64"):
            oocbe.aggregate(*sources, group_by=["g"], aggregate=how, values="v")
    parts = [pa.table({"k": [0], "v": [value]}) for value in (2**63 - 1024, *[500] * 4)]  # floats round each sum down
    with pytest.raises(ValueRangeError, match="may leave 64-bit integers"):
        oocbe.aggregate(pa.concat_tables(parts), group_by=["k"], aggregate="sum", values="v")
    large = pa.table({"k": [0, 0, 1], "v": [1e308, 1e308, 0.0]})
    with warnings.catch_warnings(), pytest.raises(ValueRangeError, match="a sum is inf"):
        warnings.simplefilter("error")
        oocbe.aggregate(large, group_by=["k"], aggregate="sum", values="v")
    found = oocbe.aggregate(pa.table({"v": [2**61, 2**61 + 1]}), group_by=[], aggregate={"mean": ("mean", "v")})
    assert found.to_pylist() == [{"mean": 2.0**61}]  # the nearest float
    short = pa.table({"k": pa.array([0, 1], pa.int32()), "v": pa.array([2**31 - 1, 1], pa.int32())})
    found = oocbe.aggregate(short, short, group_by=[], values="v")
    assert found.to_dict() == {(): 2**32 - 2}
    assert oocbe.aggregate(short, group_by=["k"], values="v").dtype == np.int32


@pytest.mark.parametrize(("scopes", "sent"), [(("abc", "a", "b", "c"), 2), (("a", "ab", "bc", "c"), 3)])
def test_messages_that_wait_share_the_memory(scopes, sent, monkeypatch):
    """Three to one source have more cells than its share; in a chain, two wait at a time."""
    monkeypatch.setattr("oocbe.api.source_messages.SORTED_BYTES", 1 << 60)
    size = int(0.45 * 2**24 * SOURCE_SHARE / CELL_BYTES)
    sources = [pa.table(dict.fromkeys(scope, pa.array([0, size - 1]))) for scope in scopes]
    lines: list[str] = []
    found = oocbe.aggregate(*sources, group_by=[], aggregate="count", values=None, memory=2**24, explain=lines.append)
    assert found.to_dict() == {(): 2} and sum("sent to" in line for line in lines) == sent


@pytest.mark.parametrize(("operands", "rows"), [("ab bc ca", [900, 902, 899]), ("ab bc cd da", [195, 195, 195, 195])])
def test_paths_of_cycles_eliminate_in_each_step_and_join_small_tables_first(operands, rows):
    """A triangle wrote the join of two tables, or a cycle of four joined a result of two with another table."""
    scopes = tuple(map(tuple, operands.split()))
    expression = EinsumExpression(scopes, ("a",), dict.fromkeys("abcd"[: len(scopes)], 30))
    path = path_of(expression, rows=rows)
    assert path.largest == 30**2
    assert [len(names) for names in path.steps[-1].inputs] == [2, 2] and path.steps[-1].joined == 30**2


def test_a_join_without_cycles_loads_no_compiled_loop(tmp_path):
    """Their loading took longer than a million rows, as did Arrow's import of pandas."""
    pq.write_table(pa.table({"a": [0, 1], "b": [1, 1], "value": [1, 2]}), tmp_path / "ab.parquet")
    pq.write_table(pa.table({"b": [0, 1], "value": [1, 2]}), tmp_path / "b.parquet")
    text = (
        "import sys, oocbe\n"
        "print(oocbe.aggregate('ab.parquet', 'b.parquet', group_by=['a']).to_dict())\n"
        "print([name for name in ('numba', 'pandas', 'pyarrow.compute', 'pyarrow.dataset') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "{(0,): 3, (1,): 4}\n[]\n"


def test_sources_beyond_the_memory_go_to_scratch_files(tmp_path):
    random = np.random.default_rng(8)
    sources = [
        pd.DataFrame({**{name: random.integers(0, 3000, 400_000) for name in scope}, "gain": random.random(400_000)})
        for scope in ("ab", "bc")
    ]
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, source in zip(paths, sources, strict=True):
        source.to_parquet(path, row_group_size=50_000)
    best = [source.groupby("b")["gain"].max() for source in sources]
    wanted = (best[0] + best[1]).dropna()
    made = oocbe.aggregate(*paths, group_by=["b"], values="gain", memory="24MiB")
    frame = made.to_pandas("gain").set_index("b")["gain"].sort_index()
    np.testing.assert_allclose(frame.to_numpy(), wanted.sort_index().to_numpy())
    assert frame.index.tolist() == wanted.sort_index().index.tolist()


def test_one_source_beyond_the_memory_has_a_row_for_each_group(tmp_path):
    """Later batches have keys of earlier ones; the table in the scratch folder was returned as it was, or refused."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"a": random.integers(0, 300, 60_000), "b": random.integers(0, 300, 60_000), "value": 1})
    data = pa.Table.from_batches(pa.Table.from_pandas(frame).to_batches(max_chunksize=10_000))
    found = oocbe.aggregate(data, group_by=["a", "b"], aggregate="sum", memory="2MiB")
    assert found.to_dict() == frame.groupby(["a", "b"])["value"].sum().to_dict()
    pq.write_table(data.slice(0, 1000), tmp_path / "some.parquet")
    stored = oocbe.StoredTable.from_parquet(tmp_path / "some.parquet", tmp_path / "stored", duplicates=True)
    assert oocbe.aggregate(stored, group_by=["a", "b"]).to_dict() == dict.fromkeys(
        frame[:1000].groupby(["a", "b"]).groups, 1
    )


def test_columns_that_are_not_joined_are_ignored_and_tables_may_be_mixed():
    sales = pd.DataFrame({"shop": ["a", "a", "b"], "day": [0, 1, 1], "note": ["x", "x", "y"], "gain": [5, 9, 4]})
    rents = pd.DataFrame({"shop": ["a", "b"], "note": ["other", "other"], "cost": [-3, -1]})
    found = oocbe.aggregate(sales, rents, group_by=["shop"], values=["gain", "cost"], on=["shop"])
    assert found_in(found, ["shop"]) == {("a",): 6, ("b",): 3}
    table = oocbe.Table.from_pandas(rents[["shop", "cost"]], "cost")
    mixed = oocbe.aggregate(sales[["shop", "day", "gain"]], table, group_by=["day"], values=["gain", "value"])
    assert found_in(mixed, ["day"]) == {(0,): 2, (1,): 6}
    weightless = oocbe.aggregate(sales, rents, group_by=["day"], values=["gain", None], on=["shop"])
    assert found_in(weightless, ["day"]) == {(0,): 5, (1,): 9}
    assert found_in(oocbe.aggregate(table, group_by=[], aggregate="count"), []) == {(): 2}


def test_what_is_refused():
    missing = pd.DataFrame({"a": [0, 1], "value": [1.0, np.nan]})
    with pytest.raises(ModelError, match=r"column value, row 1 .*drop_nulls"):
        oocbe.aggregate(missing, group_by=["a"])
    assert found_in(oocbe.aggregate(missing, group_by=["a"], drop_nulls=True), ["a"]) == {(0,): 1.0}
    with pytest.raises(ModelError, match="column value has NaN"):
        oocbe.aggregate(pa.table({"a": [0, 1], "value": [1.0, np.nan]}), group_by=["a"])
    large = pa.table({"a": [0, 0], "value": [2**62, 2**62]})
    with pytest.raises(ValueRangeError, match="may leave 64-bit integers"):
        oocbe.aggregate(large, group_by=["a"], aggregate="sum")
    good = pa.table({"a": [0, 1], "b": [0, 1], "value": [1, 2]})
    for options, error, message in [
        ({"aggregate": "median"}, UsageError, "'median' of a 'product' is unknown; known: max of a sum"),
        ({"combine": "sum", "aggregate": "sum"}, UsageError, "'sum' of a 'sum' is unknown"),
        ({"group_by": ["c"]}, ModelError, "column 'c' is in no source; there are: a, b"),
        ({"group_by": ["a", "a"]}, UsageError, "a column occurs twice"),
        ({"values": ["value", "value"]}, UsageError, "2 columns for 1 sources"),
        ({"values": "gain"}, ModelError, "no column 'gain' of values"),
    ]:
        with pytest.raises(error, match=message):
            oocbe.aggregate(good, **{"group_by": ["a"], **options})
    with pytest.raises(UsageError, match="there is no source"):
        oocbe.aggregate(group_by=[])
    with pytest.raises(ModelError, match="'a' is in several sources, and not in on"):
        oocbe.aggregate(good, good, group_by=["a"], on=["b"])


@pytest.mark.parametrize("shape", SHAPES)
def test_several_aggregates_are_columns_beside_groups_of_the_sources_types(shape):
    random = np.random.default_rng(3)
    sources = frames(random, SHAPES[shape], 14, "dates")
    for number, source in enumerate(sources):
        source["cost"] = random.integers(1, 5, len(source)) if number == 0 else 1
    named = {"best": ("max", "value"), "total": ("sum", "cost"), "average": ("mean", "cost"), "n": "count"}
    for group_by in ([], ["a"], ["b", "a"]):
        costs = [source.drop(columns="value").rename(columns={"cost": "value"}) for source in sources]
        plain = [source.drop(columns="cost") for source in sources]
        best = expected(plain, group_by, "max", "sum")
        total, count = (expected(costs, group_by, how, "product") for how in ("sum", "count"))
        found = oocbe.aggregate(*sources, group_by=group_by, aggregate=named)
        assert found.column_names == [*group_by, *named]
        rows = [tuple(row.values()) for row in found.to_pylist()]
        wanted = [(*key, best[key], total[key], total[key] / count[key], count[key]) for key in sorted(best)]
        assert rows == wanted


def test_several_aggregates_of_nothing_have_no_rows_and_wrong_ones_are_refused(tmp_path):
    one, other = pa.table({"a": [0, 1], "value": [1, 2]}), pa.table({"a": [2, 3], "value": [1, 2]})
    for group_by in ([], ["a"]):
        found = oocbe.aggregate(one, other, group_by=group_by, aggregate={"m": ("mean", "value"), "n": "count"})
        assert found.to_pylist() == []
    for wrong, message in [
        ({"m": "max"}, "'m': give 'count', or a pair"),
        ({"m": ("count", "value")}, "'m': give 'count', or a pair"),
        ({"a": ("max", "value")}, "'a' names no aggregate, or a column of group_by as well"),
        ({}, "names no aggregate"),
        ({"m": ("median", "value")}, "'median' of a 'product' is unknown"),
    ]:
        with pytest.raises(UsageError, match=message):
            oocbe.aggregate(one, other, group_by=["a"], aggregate=wrong)
    with pytest.raises(ModelError, match="no source has a column 'gain'"):
        oocbe.aggregate(one, other, group_by=["a"], aggregate={"m": ("max", "gain")})
    with pytest.raises(UsageError, match="several aggregates are returned in memory"):
        oocbe.aggregate(one, group_by=["a"], aggregate={"m": ("mean", "value")}, output=tmp_path / "out")


def test_the_command_writes_several_aggregates(tmp_path):
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("day,shop,gain\n2026-11-26,a,5\n2026-11-27,a,9\n2026-11-27,b,4\n")
    other.write_text("shop,price\na,2\nb,8\n")
    given = ["join", str(one), str(other), "--group-by", "day", "--max", "gain", "--mean", "price", "--count"]
    done = CliRunner().invoke(app, [*given, "-o", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    wanted = '"day","max_gain","mean_price","count"\n2026-11-26,5,2,1\n2026-11-27,9,5,2\n'
    assert (tmp_path / "out.csv").read_text() == wanted
    named = {"max_gain": ("max", "gain"), "mean_price": ("mean", "price"), "count": "count"}
    found = oocbe.aggregate(one, str(other), group_by=["day"], aggregate=named)
    assert [tuple(row.values())[1:] for row in found.to_pylist()] == [(5, 2.0, 1), (9, 5.0, 2)]
    best = [
        "--key",
        "month=month(day)",
        "--top",
        "1",
        "--within",
        "month",
        "--explain",
        "-o",
        str(tmp_path / "top.csv"),
    ]
    done = CliRunner().invoke(app, ["join", str(one), "--group-by", "shop,month", "--max", "gain", *best])
    assert done.exit_code == 0 and "each of 2 groups: no step" in done.stderr, done.output
    assert (tmp_path / "top.csv").read_text() == '"shop","month","gain"\n"a",11,9\n'
    done = CliRunner().invoke(app, ["join", str(one), "--group-by", "shop", "--max", "gain", "--key", "month", *best])
    assert done.exit_code == 2 and "--key month: give NAME=FUNCTION(COLUMN), such as" in done.stderr
    with pytest.raises(UsageError, match="there is no such file"):
        oocbe.aggregate(tmp_path / "none.csv", group_by=["day"], values="gain")
    refused = CliRunner().invoke(app, [*given, "-o", str(tmp_path / "stored")])
    assert refused.exit_code == 2 and "for a stored table" in refused.output
    best = ["--argmax", "gain:shop"]
    printed = CliRunner().invoke(app, ["join", str(one), str(other), "--group-by", "day", *best])
    assert printed.stdout == '"day","argmax_gain"\n2026-11-26,"a"\n2026-11-27,"a"\n', printed.output
    printed = CliRunner().invoke(app, ["join", str(one), str(other), "--group-by", "day", *best, *best])
    assert printed.stdout.startswith('"day","argmax_gain","argmax_gain_shop"\n2026-11-26,"a","a"\n'), printed.output
    for name in ("N.CSV", "N.PARQUET", "n.tsv"):
        done = CliRunner().invoke(app, ["join", str(one), "--group-by", "day", "--count", "-o", str(tmp_path / name)])
        assert done.exit_code == 0 and (tmp_path / name).is_file(), "a stored table, which is a folder"
    assert oocbe.aggregate(tmp_path / "n.tsv", group_by=["day"], values="count").rows == 2
    refused = CliRunner().invoke(app, ["join", str(one), "--group-by", "day", "--count", "-o", "n.xlsx"])
    assert refused.exit_code == 2 and "writes .parquet, .csv and .tsv" in " ".join(refused.stderr.split())
    with pytest.raises(UsageError, match="give a folder for a stored table"):  # it was a folder of this name
        oocbe.aggregate(one, group_by=["day"], values="count", output=tmp_path / "n.parquet")
    twice = ["--group-by", "day", "--group-by", "shop", "--max", "gain", "--max", "price"]
    printed = CliRunner().invoke(app, ["join", str(one), str(other), *twice])
    assert printed.stdout.startswith('"day","shop","max_gain","max_price"\n2026-11-26,"a",5,2\n'), printed.output
    whys = ("give COLUMN:OTHER", "give COLUMN:OTHER", "argmax: .* column 'x'")
    for given, why in zip(("gain", "gain:", "gain:x"), whys, strict=True):
        refused = CliRunner().invoke(app, ["join", str(one), "--group-by", "day", "--argmax", given])
        assert refused.exit_code == 2 and re.search(why, " ".join(refused.stderr.split())), refused.stderr
    refused = CliRunner().invoke(app, ["join", str(one), "--group-by", "day", "--count", "--json"])
    assert refused.exit_code == 2 and "name its file by --output" in refused.stderr


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_failed_write_leaves_the_file_before_and_nothing_else(name, tmp_path, monkeypatch):
    """``oocbe join`` writes beside the file, and takes its name when complete."""
    source, out = tmp_path / "in.parquet", tmp_path / name
    pq.write_table(pa.table({"a": [0, 1], "gain": [1, 2]}), source)
    out.write_text("before")

    def fail(data, where, *options):
        where.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", fail)
    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    done = CliRunner().invoke(app, ["join", str(source), "--group-by", "a", "--max", "gain", "-o", str(out)])
    assert done.exit_code == 30 and "the disk is full" in done.stderr
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.parquet", name])


def sql_of(sources, on, group_by, extra, aggregate):
    """The joined rows' ``total`` by the columns of ``group_by`` and ``extra``, aggregated by DuckDB, as tuples."""
    duckdb = pytest.importorskip("duckdb")
    base = duckdb.connect()
    for number, source in enumerate(sources):
        base.register(f"t{number}", source.rename(columns={"value": f"v{number}"}))
    joined = "t0" + "".join(f" join t{n} using ({', '.join(own)})" for n, own in enumerate(on, 1))
    total = " + ".join(f"v{number}" for number in range(len(sources)))
    groups = ", ".join([*group_by, *extra])
    text = f"select {groups}, {aggregate}({total}) total from {joined} group by all order by all"
    return base.sql(text).fetchall()


tables = st.lists(st.tuples(*[st.integers(0, 3)] * 2, st.integers(-5, 5)), max_size=12)
"""Rows of two keys and a value."""


@settings(max_examples=examples(100), deadline=None)
@given(tables, tables, tables, st.integers(1, 3), st.sampled_from(["max", "min"]))
def test_argmax_and_the_best_of_groups_are_those_of_sql(one, two, three, count, how):
    scopes = ["ab", "bc", "cd"]
    sources = [
        pd.DataFrame(rows, columns=[*scope, "value"]).astype("int64")
        for rows, scope in zip((one, two, three), scopes, strict=True)
    ]
    arg = oocbe.aggregate(*sources, group_by=["a"], aggregate={"v": (how, "value"), "d": (f"arg{how}", "value", "d")})
    top = {"top": count, "within": ["a"]}
    best = oocbe.aggregate(*sources, group_by=["a", "d"], aggregate={"v": (how, "value")}, **top)
    rows = sql_of(sources, ["b", "c"], ["a"], ["d"], how)
    sign = -1 if how == "max" else 1
    ranked = sorted(rows, key=lambda row: (row[0], sign * row[2], row[1]))
    wanted = [row for n, row in enumerate(ranked) if sum(other[0] == row[0] for other in ranked[:n]) < count]
    assert [tuple(row.values()) for row in best.to_pylist()] == wanted
    firsts = [row for n, row in enumerate(ranked) if n == 0 or ranked[n - 1][0] != row[0]]
    assert [tuple(row.values()) for row in arg.to_pylist()] == [(a, v, d) for a, d, v in firsts]


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.dates(), st.integers(-9, 9)), min_size=1, max_size=12))
def test_keys_of_parts_of_dates_are_those_of_pandas(rows):
    frame = pd.DataFrame({"day": [day for day, _ in rows], "value": [value for _, value in rows]})
    parts = {"year": ("day", "year"), "even": ("day", lambda days: pc.equal(pc.bit_wise_and(pc.month(days), 1), 0))}
    found = oocbe.aggregate(
        pa.Table.from_pandas(frame),
        group_by=["year", "even"],
        aggregate={"n": "count", "s": ("sum", "value")},
        keys=parts,
    )
    frame["year"], frame["even"] = [d.year for d in frame["day"]], [d.month % 2 == 0 for d in frame["day"]]
    wanted = frame.groupby(["year", "even"])["value"].agg(["size", "sum"]).reset_index()
    assert found.to_pandas().to_numpy().tolist() == wanted.to_numpy().tolist()


@pytest.mark.parametrize("memory", [None, "24MiB"])
def test_lazy_frames_and_relations_are_run_for_the_columns_needed_once_if_these_fit(memory, tmp_path):
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    random = np.random.default_rng(4)
    sizes = 400_000 if memory else 60
    columns = {"a": random.integers(0, 9, sizes), "b b": random.integers(0, 90, sizes), "gain": random.random(sizes)}
    frame, runs = pd.DataFrame({**columns, "note": "x"}), []

    def counted(part):
        runs.append(part.columns)
        return part

    lazy = pl.from_pandas(frame).lazy().map_batches(counted, projection_pushdown=True)
    with duckdb.connect() as base:
        base.register("rents", frame[["b b", "gain"]].groupby("b b").max().reset_index())
        relation = base.sql("select * from rents")
        found = oocbe.aggregate(
            lazy, relation, group_by=["a"], aggregate={"m": ("max", "gain"), "n": "count"}, on=["b b"], memory=memory
        )
    assert runs[0] == ["a", "b b", "gain"] and (len(runs) > 1) == (memory is not None)
    best = frame.groupby("b b")["gain"].max()
    wanted = (frame["gain"] + frame["b b"].map(best)).groupby(frame["a"]).agg(["max", "size"])
    np.testing.assert_allclose(found.to_pandas().set_index("a").to_numpy(), wanted.to_numpy())


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_labels_of_polars_categories(kind):
    """Arrow takes no entries of their dictionaries, whose texts are views."""
    pl = pytest.importorskip("polars")
    shops = pl.Series(["b", "a", "b"], dtype=pl.Categorical if kind == "Categorical" else pl.Enum(["b", "a", "c"]))
    sales, rents = pl.DataFrame({"shop": shops, "gain": [1, 2, 3]}), pd.DataFrame({"shop": ["a", "b"], "cost": [7, 8]})
    named = {"best": ("max", "gain"), "cost": ("sum", "cost")}
    for data in (sales, sales.lazy()):
        made = oocbe.aggregate(data, rents, group_by=["shop"], aggregate=named).to_pylist()
        assert made == [{"shop": "a", "best": 2, "cost": 7}, {"shop": "b", "best": 3, "cost": 16}]


@pytest.mark.parametrize(
    ("memory", "note", "others", "reads"),
    [(None, 1, 0, 1), (None, "x", 0, 2), ("1MiB", 1, 0, 2), ("4MiB", 1, 0, 1), ("4MiB", 1, 2, 2)],
)
def test_parquet_without_text_is_read_once_for_several_aggregates_if_it_fits(
    memory, note, others, reads, tmp_path, monkeypatch
):
    """Beside others, which take memory at the same time, too."""
    random, size = np.random.default_rng(5), 20_000
    frame = pd.DataFrame({name: random.integers(0, 90, size) for name in ("a", "b", "gain")} | {"note": note})
    frame.to_parquet(tmp_path / "sales.parquet")
    more = [pd.DataFrame({"a": range(90)})] * others
    count, own = [], parquet_source._File.batches

    def counted(self, columns, rows):
        count.append(columns)
        return own(self, columns, rows)

    monkeypatch.setattr(parquet_source._File, "batches", counted)
    named, groups = {"best": ("max", "gain"), "rows": "count", "all": ("sum", "gain")}, ["note", "a"]
    found = oocbe.aggregate(tmp_path / "sales.parquet", *more, group_by=groups, aggregate=named, memory=memory)
    wanted = frame.groupby(groups)["gain"].agg(["max", "size", "sum"])
    assert found.to_pandas().set_index(groups).to_numpy().tolist() == wanted.to_numpy().tolist()
    assert sum("gain" in columns for columns in count) == reads


def test_explain_has_the_sources_the_plan_and_the_rows_of_each_step():
    sources = frames(np.random.default_rng(1), ["ab", "bc"], 20, "text")
    lines = []
    made = oocbe.aggregate(*sources, group_by=["a"], explain=lines.append)
    heads = [
        "max",
        "  source 1",
        "  source 0",
        f"  one table with a row for each of {made.rows} groups",
    ]
    assert [line.split(":")[0].split("\n")[0] for line in lines] == heads
    assert "(b)" in lines[1] and "sent to source 0" in lines[1] and "(a)" in lines[2]


def test_what_is_refused_about_keys_top_and_groups():
    good = pa.table({"a": [0, 1], "day": ["x", "y"], "value": [1, 2]})
    named = {"m": ("max", "value")}
    for options, error, message in [
        ({"keys": {"m": ("when", "month")}}, ModelError, "'m': no source has a column 'when'"),
        ({"keys": {"m": ("day", "moon")}}, UsageError, "has no function 'moon'; it has year, quarter"),
        ({"keys": {"m": ("day", "month")}, "group_by": ["m"]}, ModelError, "key 'm' of column 'day'"),
        ({"keys": {"a": ("day", "utf8_upper")}}, ModelError, "there is a column 'a' already"),
        ({"top": 2}, UsageError, "top: a number from 1 on, of several aggregates"),
        ({"top": 0, "aggregate": named}, UsageError, "top: a number from 1 on"),
        ({"top": 2, "within": ["b"], "aggregate": named}, UsageError, "within columns of group_by"),
        ({"aggregate": "argmax"}, UsageError, "'argmax' of a 'product' is unknown"),
        ({"group_by": "a"}, UsageError, "group_by, within and on are lists"),
        ({"aggregate": {"m": ("argmax", "value")}}, UsageError, r"\('argmax', column, other\)"),
        ({"output": ""}, UsageError, "output: '': give a folder"),
        ({"aggregate": {"m": ("argmax", "value", "day")}, "output": "x"}, UsageError, "output: several aggregates"),
        ({"aggregate": {"m": ("argmax", "value", "a")}}, UsageError, "'a' is the column of values, or one of group_by"),
        ({"aggregate": {"m": ("argmin", "value", "value")}}, UsageError, "'value' is the column of values, or one of"),
        ({"keys": {"m": ("value", "sum")}, "group_by": ["m"]}, ModelError, "returns no Arrow array with an entry for"),
        ({"keys": {"m": ("a", lambda a: a[:0])}, "group_by": ["m"]}, ModelError, "returns no Arrow array with an"),
    ]:
        with pytest.raises(error, match=message):
            oocbe.aggregate(good, **{"group_by": ["a"], **options})


def test_a_result_beyond_the_memory_is_refused_without_output_and_fits_with_one(tmp_path):
    random = np.random.default_rng(0)
    big = pa.table({"a": random.permutation(200_000), "b": random.integers(0, 9, 200_000)})
    given = {"group_by": ["a", "b"], "aggregate": "count", "values": None, "memory": "1MiB"}
    with pytest.raises(ResourceError, match="beyond the memory limit of 1,048,576; give output"):
        oocbe.aggregate(big, **given)
    assert oocbe.aggregate(big, **given, output=tmp_path / "out").rows == 200_000


def test_a_key_may_be_called_value():
    sales = pa.table({"value": [3, 3, 4], "gain": [5, 9, 4]})
    found = oocbe.aggregate(sales, group_by=["value"], aggregate={"best": ("max", "gain")})
    assert found.to_pylist() == [{"value": 3, "best": 9}, {"value": 4, "best": 4}]
    assert oocbe.aggregate(sales, group_by=["value"], values="gain").to_dict() == {(3,): 9, (4,): 4}


def test_a_column_of_a_frame_may_be_called_as_a_method_of_queries():
    frame = pd.DataFrame({"project": ["a", "b", "a"], "collect_batches": [1, 2, 3]})
    found = oocbe.aggregate(frame, group_by=["project"], aggregate={"best": ("max", "collect_batches")})
    assert found.to_pylist() == [{"project": "a", "best": 3}, {"project": "b", "best": 2}]


def test_wrong_sources_are_refused_by_name(tmp_path):
    one = pa.table({"shop": ["a"], "gain": [1.5]})
    with pytest.raises(ModelError, match="no column 'profit' of values; there are: shop, gain"):
        oocbe.aggregate(one, one, group_by=["shop"], values="profit")
    with pytest.raises(ModelError, match="column shop is of type string; values are integers"):
        oocbe.aggregate(one, group_by=[], values="shop")
    with pytest.raises(ModelError, match="DataFrame: cannot be read as columns of one type each"):
        oocbe.aggregate(pd.DataFrame({"shop": ["a", 1], "gain": [1, 2]}), group_by=["shop"], values="gain")
    with pytest.raises(UsageError, match="list has neither __arrow_c_stream__"):
        oocbe.aggregate([{"shop": "a", "gain": 1}], group_by=["shop"], values="gain")
    path = tmp_path / "sales.csv"
    path.write_text("shop,gain\na,5\nb,\n")
    with pytest.raises(ModelError, match=r"sales.csv: column gain, row 1 .* \(drop_nulls, --drop-nulls\)"):
        oocbe.aggregate(path, group_by=["shop"], values="gain")
    path.write_text("shop,gain\n")
    assert oocbe.aggregate(path, group_by=["shop"], values="gain").rows == 0
    with pytest.raises(ModelError, match="no source has a column 'cost'; there are: shop, gain"):
        oocbe.aggregate(path, group_by=["shop"], aggregate={"m": ("max", "cost")})
    for name in ("sales.csv.gz", "sales.csv.xz"):
        (tmp_path / name).write_text("shop,gain\n")
        with pytest.raises(FormatError, match=f"{name}: .+"):
            oocbe.aggregate(tmp_path / name, group_by=["shop"], values="gain")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_first_line_of_a_csv_file_has_its_separators(mark, tmp_path):
    """With semicolons, as spreadsheets write them, there was one column, called shop;gain."""
    path = tmp_path / "sales.csv"
    path.write_text(f'"shop, place"{mark}gain\n"a,b"{mark}5\n')
    made = oocbe.aggregate(path, group_by=["shop, place"], aggregate={"best": ("max", "gain")})
    assert made.to_pylist() == [{"shop, place": "a,b", "best": 5}]


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_compressed_csv(module, tmp_path):
    path = tmp_path / f"sales.csv.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[module] }"
    path.write_bytes(module.compress(b"shop,gain\r\na,5\r\na,7\r\n"))
    assert oocbe.aggregate(path, group_by=["shop"], values="gain").to_dict() == {(0,): 7}


def test_rows_with_missing_entries_are_none_of_any_aggregate():
    """Each aggregate had skipped those of its own column only: groups were of other rows, and means too small."""
    data = pa.table({"g": ["a", "b", "b", "c"], "v": [None, 2, None, 3], "w": [1, 2, 3, None]})
    asked = {"v": ("sum", "v"), "w": ("max", "w"), "n": "count", "mean": ("mean", "v")}
    made = oocbe.aggregate(data, group_by=["g"], aggregate=asked, drop_nulls=True)
    assert made.to_pylist() == [{"g": "b", "v": 2, "w": 2, "n": 1, "mean": 2.0}]
    none = oocbe.aggregate(data.slice(0, 1), group_by=["g"], aggregate=asked, drop_nulls=True)
    assert none.to_pylist() == []


def test_keys_of_functions_in_python_and_without_entries():
    data = pa.table({"day": [3, 17, 24, 40], "value": [5, 9, 4, 1]})
    given = {"group_by": ["week"], "aggregate": {"n": "count", "best": ("max", "value")}}

    def week(days):
        return pa.array([None if day > 31 else f"week {day // 7}" for day in days.to_pylist()])

    made = oocbe.aggregate(data, **given, keys={"week": ("day", week)}, drop_nulls=True)
    assert made.to_pylist() == [
        {"week": "week 0", "n": 1, "best": 5},
        {"week": "week 2", "n": 1, "best": 9},
        {"week": "week 3", "n": 1, "best": 4},
    ]
    with pytest.raises(ModelError, match="column week, row 3 "):
        oocbe.aggregate(data, **given, keys={"week": ("day", week)})


def test_columns_of_aggregates_may_be_renamed_and_asked_for_by_argmax():
    data = pa.table({"G": ["a", "a", "b"], "v": [1, 5, 2], "W": [30, 10, 20]})
    asked = {"sum": ("sum", "w"), "where": ("argmax", "v", "w")}
    made = oocbe.aggregate(data, group_by=["g"], aggregate=asked, rename={"G": "g", "W": "w"})
    assert made.to_pylist() == [{"g": "a", "sum": 40, "where": 10}, {"g": "b", "sum": 20, "where": 20}]


def test_rows_with_missing_entries_are_left_out_of_all_aggregates():
    data = {"g": ["a", "b", "c", None, "d"], "v": [None, 2, 5, 1, 4], "w": [1, None, 3, 1, 2]}
    named = {"v": ("max", "v"), "w": ("max", "w"), "n": "count"}
    views = pa.table({name: pa.array(own, pa.string_view() if name == "g" else None) for name, own in data.items()})
    later = pa.concat_tables([views.slice(2, 1), views.slice(0, 2), views.slice(3)])  # a batch without such rows first
    for table in (pa.table(data), views, later):
        found = oocbe.aggregate(table, group_by=["g"], aggregate=named, drop_nulls=True)
        assert found.to_pylist() == [{"g": "c", "v": 5, "w": 3, "n": 1}, {"g": "d", "v": 4, "w": 2, "n": 1}]
    assert oocbe.aggregate(views, group_by=[], aggregate={"n": "count"}).to_pylist() == [{"n": 5}]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.timestamp("us"), pa.date32(), pa.int8()], ids=str)
def test_sources_without_rows_have_no_groups(kind):
    none = pa.table({"g": pa.array([], kind), "v": pa.array([], pa.int64())})
    named = {"v": ("max", "v"), "g2": ("argmax", "v", "h"), "n": "count"}
    for group_by in ([], ["g"]):
        found = oocbe.aggregate(none, pa.table({"h": [1]}), group_by=group_by, aggregate=named)
        assert found.to_pylist() == [] and (not group_by or found.schema.field("g").type in (kind, pa.string()))
        assert oocbe.aggregate(none, group_by=group_by, values="v").rows == 0


def test_the_greatest_product_of_negative_values_is_refused():
    one, other = pa.table({"g": [0, 1], "k": [0, 0], "v": [-2, -3]}), pa.table({"k": [0, 0], "v": [-3, 5]})
    with pytest.raises(ModelError, match="column v has a negative value"):
        oocbe.aggregate(one, other, group_by=["g"], combine="product", values="v")


def test_the_greatest_product_of_values_of_one_source_is_that_of_the_values():
    one, other = pa.table({"g": [0, 1, 2], "k": [0, 0, 1], "v": [-2, -3, 0]}), pa.table({"k": [0, 1]})
    for how in ("max", "min"):
        best = oocbe.aggregate(one, other, group_by=["g"], aggregate=how, combine="product", values=["v", None])
        assert best.to_arrow("v").to_pylist() == [{"g": 0, "v": -2}, {"g": 1, "v": -3}, {"g": 2, "v": 0}]


def test_empty_cells_of_text_in_csv_are_missing(tmp_path):
    """As they are for DuckDB, Polars and pandas; they were labels that matched each other."""
    (tmp_path / "one.csv").write_text('shop,day,gain\na,1,5\n,1,7\n"",2,8\nNA,2,9\n')
    (tmp_path / "other.csv").write_text("shop,cost\na,1\n,2\nNA,3\n")
    paths = [str(tmp_path / name) for name in ("one.csv", "other.csv")]
    with pytest.raises(ModelError, match=r"one.csv: column shop, row 1 .*--drop-nulls"):
        oocbe.aggregate(*paths, group_by=["shop"], aggregate={"gain": ("max", "gain")})
    found = oocbe.aggregate(*paths, group_by=["shop"], aggregate={"gain": ("max", "gain")}, drop_nulls=True)
    assert found.to_pylist() == [{"shop": "NA", "gain": 9}, {"shop": "a", "gain": 5}]


def test_keys_of_a_first_source_without_rows_may_be_of_any_type_and_floats_name_the_way_out():
    one, none = pa.table({"k": ["a", "b"], "v": [1, 2]}), pa.table({"k": pa.array([], pa.bool_())})
    assert oocbe.aggregate(none, one, group_by=["k"], aggregate="count").rows == 0
    floats = pa.table({"k": [1.0, 2.0], "v": [1, 2]})
    with pytest.raises(ModelError, match=r"column k is of type double; .* keys"):
        oocbe.aggregate(floats, group_by=["k"], values="v")
    with pytest.raises(ModelError, match="column k is of type string, and integers in another table; cast one"):
        oocbe.aggregate(pa.table({"k": [1]}), one, group_by=["k"], aggregate="count")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_files_of_a_pattern_or_a_list_are_one_source(suffix, tmp_path):
    folders, tmp_path = str(tmp_path / "*" / f"part-*.{suffix}"), tmp_path / "parts [1]"
    tmp_path.mkdir()
    for name, rows in (("1", {"k": ["a", "b"], "v": [1, 2]}), ("2", {"k": ["a"], "v": [5]})):
        frame = pd.DataFrame(rows)
        frame.to_csv(tmp_path / f"part-{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"part-{name}.parquet")
    pattern = str(tmp_path / f"part-*.{suffix}")
    for source in (pattern, folders, [str(tmp_path / f"part-{name}.{suffix}") for name in "12"]):
        found = oocbe.aggregate(source, group_by=["k"], aggregate={"total": ("sum", "v")})
        assert found.to_pylist() == [{"k": "a", "total": 6}, {"k": "b", "total": 2}]
    with pytest.raises(UsageError, match="there is no such file"):
        oocbe.aggregate(str(tmp_path / f"other-*.{suffix}"), group_by=["k"], aggregate="count")
    with pytest.raises(UsageError, match=r"s3://b/part-\*.*: a pattern is of files on this machine"):
        oocbe.aggregate(f"s3://b/part-*.{suffix}", group_by=["k"], aggregate="count")
    if suffix == "csv":
        with pytest.raises(UsageError, match=r"s3://b/one\.csv: a CSV file cannot be in an object store"):
            oocbe.aggregate("s3://b/one.csv", group_by=["k"], aggregate="count")
        with pytest.raises(ModelError, match=r"no column 'v' of values; .* as values=\['v', None\]"):
            oocbe.aggregate(pattern, pa.table({"k": ["a"]}), group_by=["k"], values="v")
    (tmp_path / "part-3.csv").write_text("k,v\na,x\n")
    if suffix == "csv":
        with pytest.raises(ModelError, match=r"part-\*.csv: the files have different columns"):
            oocbe.aggregate(pattern, group_by=["k"], aggregate="count")
        (tmp_path / "part-3.csv").write_text("k,w\na,3\n")  # its rows would be left out with those of no v
        with pytest.raises(ModelError, match=r"different columns: .*part-1.csv or .*part-3.csv has no 'v'"):
            oocbe.aggregate(pattern, group_by=["k"], aggregate={"v": ("sum", "v")}, drop_nulls=True)


def test_files_of_the_same_columns_are_joined_with_a_warning(tmp_path, caplog):
    """As a shell makes them of a pattern without quotes: each was a table of its own, and nothing said so."""
    for name, gain in (("one", 1), ("two", 2), ("three", 4)):
        (tmp_path / f"{name}.csv").write_text(f"shop,gain\na,{gain}\n")
    paths = [str(tmp_path / f"{name}.csv") for name in ("one", "two", "three")]
    assert oocbe.aggregate(*paths, group_by=["shop"], aggregate={"gain": ("max", "gain")}).to_pylist()[0]["gain"] == 7
    assert len(caplog.messages) == 1
    assert "one.csv and" in caplog.messages[0]
    assert "in quotes" in caplog.messages[0]
    assert oocbe.aggregate(paths, group_by=["shop"], aggregate={"gain": ("max", "gain")}).to_pylist()[0]["gain"] == 4
    assert len(caplog.messages) == 1


def test_a_spelling_of_nothing_is_text_in_each_csv_file_of_a_source_with_text(tmp_path):
    """It was missing in a file or a source with nothing else, and text in the others."""
    (tmp_path / "part-1.csv").write_text("shop,gain\nNULL,1\n,2\n")
    (tmp_path / "part-2.csv").write_text("shop,gain\na,4\nNULL,NA\nNULL,8\n")
    asked = {"group_by": ["shop"], "aggregate": {"gain": ("max", "gain")}, "drop_nulls": True}
    found = oocbe.aggregate(str(tmp_path / "part-*.csv"), **asked)
    assert found.to_pylist() == [{"shop": "NULL", "gain": 8}, {"shop": "a", "gain": 4}]
    (tmp_path / "none.csv").write_text("shop,gain\na,\n")
    assert oocbe.aggregate(str(tmp_path / "none.csv"), **asked).num_rows == 0
    for source in (str(tmp_path / "part-1.csv"), [str(tmp_path / "part-1.csv")] * 2):
        assert oocbe.aggregate(source, **asked).to_pylist() == [{"shop": "NULL", "gain": 1}]
    with pytest.raises(ModelError, match=r"part-1.csv: column shop, row 1 .*--drop-nulls"):
        oocbe.aggregate(str(tmp_path / "part-1.csv"), **{**asked, "drop_nulls": False})


def test_sources_without_a_common_column_are_joined_with_a_warning(caplog):
    """As of a column whose name differs in one letter: the result was that of all pairs of rows."""
    one, two = pa.table({"shop": ["a"], "day": [1], "gain": [1]}), pa.table({"Day": [1, 2], "gain": [1, 2]})
    found = oocbe.aggregate(one, two, group_by=["shop"], aggregate={"rows": "count", "best": ("max", "gain")})
    assert found.to_pylist() == [{"shop": "a", "rows": 2, "best": 3}]
    assert [message for message in caplog.messages if "source 1, of columns Day, gain, has none in common" in message]
    caplog.clear()
    with pytest.raises(ModelError, match="on: column 'dya' is in no source"):  # without a warning before
        oocbe.aggregate(one, two, group_by=["shop"], on=["dya"], aggregate={"best": ("max", "gain")})
    assert not caplog.messages


def test_times_of_different_zones_and_of_a_repeated_hour_are_refused():
    """Local times were compared: equal times did not match, and two hours became one group."""
    times = pd.to_datetime(["2026-10-25 00:30", "2026-10-25 01:30"]).tz_localize("UTC")
    rows = pd.DataFrame({"t": times, "v": [1, 2]})
    local = rows.assign(t=times.tz_convert("Europe/Paris"))
    asked = {"group_by": ["t"], "aggregate": {"sum": ("sum", "v")}}
    assert oocbe.aggregate(rows, **asked).num_rows == 2
    with pytest.raises(ModelError, match="column t has times of an hour that the end of summer time repeats; use UTC"):
        oocbe.aggregate(local, **asked)
    assert oocbe.aggregate(rows[:0], **asked).num_rows == 0, "a source without rows ended in a TypeError"
    same = pa.Table.from_pandas(rows).cast(pa.schema([("t", pa.timestamp("us", "Etc/UTC")), ("v", pa.int64())]))
    assert oocbe.aggregate(rows, same, **asked).num_rows == 2
    for other in (local[:1], rows.assign(t=times.tz_localize(None))):
        with pytest.raises(ModelError, match=r"column t is of type timestamp.* in another table; convert both"):
            oocbe.aggregate(rows, other, **asked)


def test_wrong_data_is_refused_with_its_source_and_column(tmp_path):
    (tmp_path / "latin.csv").write_bytes("k,v\nä,1\n".encode("latin-1"))
    pl = pytest.importorskip("polars")
    decimals = pa.table({"k": ["a"], "v": pa.array(["12345678901234567890.123"]).cast(pa.decimal128(30, 3))})
    for source, message in (
        (str(tmp_path / "latin.csv"), "latin.csv: column k is no UTF-8"),
        (pd.DataFrame({"k": [1], "v": [2**70]}), "DataFrame: cannot be read as columns .* integers of 64 bits"),
        (pl.DataFrame({"k": [1], "v": [float("nan")]}), r"source 0 \(DataFrame\): column v has NaN, .* drop_nulls"),
        (decimals, r"source 0 \(Table\): column v, row 0 .* has more digits than a float64"),
        (pd.DataFrame({"k": [None], "v": [1]}), r"source 0 \(DataFrame\): column k, row 0"),
        (pd.DataFrame({"k": [1], "v": [np.inf]}), r"source 0 \(DataFrame\): column v: a value is inf"),
    ):
        with pytest.raises((ModelError, FormatError), match=message):
            oocbe.aggregate(source, group_by=["k"], aggregate={"best": ("max", "v")})
    for source, message in (([decimals], "give each table by itself"), ({"k": [1]}, "make one, such as pyarrow.table")):
        with pytest.raises(UsageError, match=message):
            oocbe.aggregate(source, group_by=["k"], aggregate="count")


def test_wrong_arguments_of_aggregates_are_refused_by_name():
    one = pa.table({"k": ["a"], "v": [1]})
    wrong = [
        ({"aggregate": ["max", "min"]}, "give the name of one"),
        ({"aggregate": {"m": ("avg", "v")}}, r"'avg' .* mean"),
        ({"aggregate": "mean", "values": "v"}, r"by names also mean"),
        ({"aggregate": {"m": ("max", "v")}, "top": 1.5}, "top: a number"),
        ({"aggregate": {"m": ("max", "k")}}, "'k' is the column of values, or one of group_by"),
        ({"aggregate": {"m": ("max", "v")}, "backend": "gpu"}, "backend: 'gpu' is not one of auto, cpu, cuda"),
        ({"explain": True}, "explain is a function such as print"),
        ({"group_by": 5}, "are lists of columns"),
        ({"on": iter("k")}, "are lists of columns"),
        ({"within": None}, "are lists of columns"),
        ({"rename": ["k"]}, "rename a dictionary of new names"),
        ({"aggregate": {"m": ("max", "v")}, "keys": {"x": "k"}}, "keys: 'x': give a pair"),
    ]
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            oocbe.aggregate(one, **{"group_by": ["k"], **arguments})
    twice = pd.DataFrame([["a", "b", 1]], columns=["k", "k", "v"])
    with pytest.raises(ModelError, match="Duplicate column names"):
        oocbe.aggregate(twice, group_by=["k"], values="v")


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.uint64()])
def test_labels_are_not_numbered_again_for_each_chunk(monkeypatch, kind):
    rows, chunk = 2_000, 20
    keys = [row - rows for row in range(rows)] if kind == pa.int64() else [row + (1 << 63) for row in range(rows)]
    column = pa.array(map(str, keys) if kind == pa.string() else keys, kind)
    data = pa.table({"k": column, "v": np.arange(rows)})
    chunks = pa.Table.from_batches(data.to_batches(max_chunksize=chunk))
    hashed, original = [], pc.index_in

    def index_in(entries, *, value_set):
        hashed.append(len(value_set))
        return original(entries, value_set=value_set)

    monkeypatch.setattr(pc, "index_in", index_in)
    best = oocbe.aggregate(chunks, data.slice(5), group_by=["k"], on=["k"], values="v").to_arrow("v")
    assert dict(zip(best["k"].to_pylist(), best["v"].to_pylist(), strict=True)) == {
        key.as_py(): 2 * row for row, key in enumerate(column) if row >= 5
    }
    assert sum(hashed) <= 4 * rows  # for each chunk: a hundred times


def test_arrow_labels_of_a_table_are_made_once(monkeypatch):
    made, original = [], arrow._labels
    monkeypatch.setattr(arrow, "_labels", lambda name, labels: made.append(name) or original(name, labels))
    data = pa.table({"k": ["x", "y", "z"], "l": [5, 6, 7], "v": [1, 2, 3]})
    named = {"best": ("max", "v"), "least": ("min", "v"), "mean": ("mean", "v"), "of": ("argmax", "v", "l")}
    found = oocbe.aggregate(data, group_by=["k"], aggregate=named)
    assert found.column("of").to_pylist() == [5, 6, 7] and made == ["k"]
