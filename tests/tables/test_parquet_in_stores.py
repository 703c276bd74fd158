"""Parquet in object stores: what is there comes back, within the memory, and what fails is told; S3 by moto."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import DiskError, FormatError, OocbeError, UsageError
from oocbe.runtime.urls import url_of
from oocbe.tables import objects
from oocbe.tables.object_path import ObjectPath
from oocbe.tables.objects import ObjectReader
from tests.tables.test_object_stores import bucket, keys_of, rows, same, server, url  # noqa: F401  (fixtures)

obstore = pytest.importorskip("obstore")
arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def place(request, bucket):  # noqa: F811
    """A prefix of the test's own in S3."""
    return f"{bucket}/parquet/{request.node.name}"


def put(table, url, row_group_size=100):  # noqa: F811
    """An Arrow table as a Parquet object."""
    found = ObjectPath.of(url)
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, row_group_size=row_group_size)
    found.create(sink.getvalue().to_pybytes())
    return url


def test_a_table_comes_back(place, tmp_path):
    table = rows()
    stored = oocbe.StoredTable.save(tmp_path / "t", table, chunk_rows=64)
    for number, given in enumerate((table, stored)):
        target = f"{place}/{number}.parquet"
        assert given.to_parquet(target) == target
        assert oocbe.Table.from_parquet(target).to_dict() == table.to_dict()
        back = oocbe.StoredTable.from_parquet(target, tmp_path / f"back {number}")
        assert back.to_table().to_dict() == table.to_dict()
        with pytest.raises(UsageError, match="exists already"):
            given.to_parquet(target)
        smaller = oocbe.maximise(table, "a")
        smaller.to_parquet(target, overwrite=True)
        assert oocbe.Table.from_parquet(target).to_dict() == smaller.to_dict()


def test_a_path_that_was_a_url_is_one(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = Path(f"{place}/t.parquet")
    assert rows().to_parquet(target) == f"{place}/t.parquet"
    assert oocbe.Table.from_parquet(target).to_dict() == rows().to_dict()
    oocbe.StoredTable.save("t", rows()).upload(f"{place}/t")
    same(oocbe.StoredTable.open(Path(f"{place}/t")).to_table(), rows())
    oocbe.maximise(rows(), "a", output=Path(f"{place}/u"))
    same(oocbe.StoredTable.open(f"{place}/u").to_table(), oocbe.maximise(rows(), "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_folders_of_files_and_partitions(place, tmp_path):
    table = rows()
    assert table.to_parquet(f"{place}/parts", rows_per_file=200) == f"{place}/parts"
    names = [f"part-{number:05}.parquet" for number in range(-(-table.rows // 200))]
    assert keys_of(f"{place}/parts") == names
    assert oocbe.Table.from_parquet(f"{place}/parts").to_dict() == table.to_dict()
    several = [f"{place}/parts/{name}" for name in names]
    assert oocbe.Table.from_parquet(several).to_dict() == table.to_dict()
    assert oocbe.common_domains(several) == oocbe.common_domains(f"{place}/parts")
    with pytest.raises(UsageError, match="exists already"):
        table.to_parquet(f"{place}/parts", rows_per_file=200)
    with pytest.raises(UsageError, match="are not overwritten"):
        table.to_parquet(f"{place}/parts", rows_per_file=200, overwrite=True)
    for day in (3, 7):
        put(arrow.table({"x": [0, day], "value": [day, 2 * day]}), f"{place}/days/day={day}/a.parquet")
    found = oocbe.Table.from_parquet(f"{place}/days")
    assert found.to_dict() == {(0, 3): 3, (3, 3): 6, (0, 7): 7, (7, 7): 14}
    stored = oocbe.StoredTable.from_parquet(f"{place}/days", tmp_path / "days")
    assert stored.to_table().to_dict() == found.to_dict()


def test_two_files_are_joined_and_the_result_is_written(place, tmp_path):
    """What the page on tables shows, all of it in a store."""
    sales, rents = rows(seed=1), rows(seed=2, scope={"c": 5, "d": 50, "b": 40})
    urls = [sales.to_parquet(f"{place}/sales.parquet", "gain"), rents.to_parquet(f"{place}/rents.parquet", "gain")]
    domains = oocbe.common_domains(*urls, values="gain")
    one, two = (
        oocbe.StoredTable.from_parquet(u, tmp_path / str(n), "gain", domains=domains, memory="32MiB")
        for n, u in enumerate(urls)
    )
    best = oocbe.join_maximise(one, two, "c", output=f"{place}/best", scratch=tmp_path)
    expected = oocbe.join_maximise(one.to_table(), two.to_table(), "c")
    best.to_parquet(f"{place}/best.parquet", "gain")
    assert oocbe.Table.from_parquet(f"{place}/best.parquet", "gain").to_dict() == expected.to_dict()


def test_the_command(place, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    oocbe.StoredTable.save(tmp_path / "t", rows())
    for given in (
        (tmp_path / "t", f"{place}/a.parquet"),
        (f"{place}/a.parquet", f"{place}/stored"),
        (f"{place}/stored", f"{place}/b.parquet"),
        (f"{place}/b.parquet", tmp_path / "back"),
        (f"{place}/stored", f"{place}/b.parquet", "--overwrite"),
    ):
        done = CliRunner().invoke(app, ["convert", *map(str, given)])
        assert done.exit_code == 0, done.output
    assert oocbe.StoredTable.open(tmp_path / "back").to_table().to_dict() == rows().to_dict()
    best = ["join", f"{place}/b.parquet", "--group-by", "", "--count", "-o", f"{place}/count.parquet"]
    done = CliRunner().invoke(app, best)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["join", f"{place}/count.parquet", "--group-by", "", "--max", "count"])
    assert done.stdout == f'"count"\n{rows().rows}\n'
    done = CliRunner().invoke(app, ["inspect", f"{place}/stored", "--json"])
    assert (done.exit_code, f'"rows": {rows().rows}' in done.output) == (0, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "t"]


def test_what_is_not_there_or_is_no_parquet(place, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no such file or folder"):
        oocbe.Table.from_parquet(f"{place}/none.parquet")
    ObjectPath.of(f"{place}/text.parquet").create(b"no parquet at all")
    with pytest.raises(FormatError, match=r"text\.parquet: no Parquet .*or damaged"):
        oocbe.Table.from_parquet(f"{place}/text.parquet")
    put(arrow.table({"x": [0], "value": [1]}), f"{place}/t.parquet")
    with pytest.raises(UsageError, match="are not all in one bucket"):
        oocbe.Table.from_parquet([f"{place}/t.parquet", str(tmp_path / "t.parquet")])
    monkeypatch.setattr(ObjectPath, "_request", refusing)
    with pytest.raises(UsageError, match="cannot be read: the store is away"):
        oocbe.Table.from_parquet(f"{place}/t.parquet")
    with pytest.raises(DiskError, match="the store is away"):
        rows().to_parquet(f"{place}/u.parquet")


def refusing(*_):
    raise OSError(5, "the store is away")


def test_what_cannot_be_written_leaves_nothing(url, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    upload, calls = ObjectPath.upload, []

    def fail(self, *given):
        calls.append(self)
        if len(calls) == 3:
            raise OSError(5, "no more room")
        upload(self, *given)

    monkeypatch.setattr(ObjectPath, "upload", fail)
    with pytest.raises(DiskError, match="no more room"):
        rows().to_parquet(url, rows_per_file=100)
    assert keys_of(url) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("columns", [1, 4])
def test_no_more_is_asked_for_than_is_read(columns, url, monkeypatch):  # noqa: F811
    """Nothing is held but what pyarrow asks for: columns that are not wanted stay where they are."""
    rng = np.random.default_rng(0)
    data = {f"c{n}": rng.integers(0, 1 << 40, 50_000) for n in range(20)}
    put(arrow.table({"x": np.arange(50_000), **data, "value": data["c0"]}), f"{url}.parquet", 25_000)
    requested, read = [], ObjectReader.read

    def counted(self, size=-1):
        found = read(self, size)
        requested.append(len(found))
        return found

    monkeypatch.setattr(objects.ObjectReader, "read", counted)
    names = ["x", *(f"c{n}" for n in range(columns - 1))]
    oocbe.Table.from_parquet(f"{url}.parquet", scope=names)
    assert sum(requested) < ObjectPath.of(f"{url}.parquet").size() * (columns + 3) / 22
    assert max(requested) <= 2 << 20


@pytest.mark.slow
def test_the_memory_limit_holds(place, tmp_path):
    """A file of 400 MB, of which a process with a limit of 64 MiB holds less than its own 250 MiB and that twice."""
    count = 1 << 20
    rng = np.random.default_rng(0)
    sink = arrow.BufferOutputStream()
    schema = arrow.schema([("x", arrow.int64()), ("y", arrow.int64()), ("value", arrow.int64())])
    with parquet.ParquetWriter(sink, schema, compression="none") as writer:
        for part in range(16):
            keys = np.arange(part * count, (part + 1) * count)
            writer.write_table(arrow.table([keys, rng.integers(0, 1 << 30, count), keys], schema=schema))
    ObjectPath.of(f"{place}.parquet").create(sink.getvalue().to_pybytes())
    script = (
        "import sys, oocbe\n"
        "from oocbe.runtime.process_memory import peak_memory\n"
        "oocbe.StoredTable.from_parquet(sys.argv[1], sys.argv[2], memory='64MiB')\n"
        "print(peak_memory())"
    )
    command = [sys.executable, "-c", script, f"{place}.parquet", str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert int(done.stdout) < 378 << 20


URL = "s3://bucket/key"


def problem():
    return oocbe.Problem((oocbe.Variable("a", 2),), (oocbe.Function.from_array((0,), [1, 2]),))


TAKERS = {
    "read": lambda: oocbe.read(f"{URL}.wcsp"),
    "write": lambda: oocbe.write(problem(), f"{URL}.wcsp"),
    "evidence": lambda: oocbe.solve(problem(), evidence=f"{URL}.evid"),
    "solve": lambda: oocbe.solve(f"{URL}.wcsp"),
    "workdir": lambda: oocbe.solve(problem(), workdir=URL),
    "order": lambda: oocbe.solve(problem(), order=URL),
    "tree": lambda: oocbe.JunctionTree(problem().in_semiring(oocbe.MIN_SUM)).save(URL),
    "open tree": lambda: oocbe.JunctionTree.open(URL),
    "scratch": lambda: oocbe.maximise(rows(), "a", output="never", scratch=URL),
    "new table": lambda: oocbe.StoredTable.save(URL, rows()),
    "new complete table": lambda: oocbe.StoredCompleteTable.save(URL, oocbe.CompleteTable.from_table(rows())),
}


@pytest.mark.parametrize("name", TAKERS)
def test_whatever_takes_no_url_refuses_it_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OocbeError, match=r"s3://bucket/key.*(cannot be in an object store|tables are made on disk)"):
        TAKERS[name]()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_name_ends_in_a_colon_is_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:").mkdir()
    rows().to_parquet("run:/t.parquet")
    rows().to_parquet(Path("run:/u.parquet"))
    assert oocbe.Table.from_parquet(Path("run:/t.parquet")).to_dict() == rows().to_dict()
    (tmp_path / "run:" / "p.wcsp").write_text("p 1 2 1 9\n2\n1 0 0 1\n0 1\n")
    done = CliRunner().invoke(app, ["solve", "run:/p.wcsp", "--solution", "run:/s.sol"])
    assert (done.exit_code, (tmp_path / "run:" / "s.sol").exists()) == (0, True), done.output
    assert url_of(Path("s3://bucket/key")) == url_of("s3://bucket/key") == "s3://bucket/key"


FLAGS = [
    ["solve", f"{URL}.wcsp"],
    ["solve", "p.wcsp", "p.wcsp", f"{URL}.wcsp"],
    ["solve", "p.wcsp", "--solution", URL],
    ["solve", "p.wcsp", "--report", URL],
    ["solve", "p.wcsp", "--trace", URL],
    ["solve", "p.wcsp", "--certificate", URL],
    ["solve", "p.wcsp", "--workdir", URL],
    ["solve", "p.wcsp", "--order", URL],
    ["solve", "p.wcsp", "--task", "mpe", "--output", f"{URL}.mpe"],
    ["solve", "p.wcsp", "--evidence", f"{URL}.evid"],
    ["plan", f"{URL}.wcsp"],
    ["bound", f"{URL}.wcsp"],
    ["propagate", "p.wcsp", "--output", f"{URL}.wcsp"],
    ["verify", "p.wcsp", f"{URL}.sol"],
    ["verify", "p.wcsp", "--certificate", URL],
    ["convert", "p.wcsp", f"{URL}.wcsp"],
    ["convert", f"{URL}.wcsp", "q.wcsp", "--format", "wcsp"],
    ["compile", "p.wcsp", URL],
    ["query", URL, "--cases", "cases.csv"],
    ["query", "tree", "--cases", f"{URL}.csv"],
    ["dcop", "p.wcsp", "--metrics", URL],
    ["trace", URL],
    ["synth", "table", URL],
    ["stress", "--workdir", URL],
]


@pytest.mark.parametrize("command", FLAGS, ids=" ".join)
def test_commands_refuse_urls_by_name_before_they_work(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.wcsp").write_text("p 1 2 1 9\n2\n1 0 0 1\n0 1\n")
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2, done.output
    assert "oocbe: s3://bucket/key" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.wcsp"]
