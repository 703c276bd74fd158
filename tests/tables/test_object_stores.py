"""Tables in object stores: those that were written, whole or not at all, from S3 on the loopback interface as well."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.algebra.operators import join_sum, maximise
from oocbe.cli.main import app
from oocbe.errors import CorruptDataError, DiskError, UnsupportedError, UsageError
from oocbe.execution.cluster.workers import use_workers
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.tuning import tuned
from oocbe.tables import object_path
from oocbe.tables.manifest import render_record
from oocbe.tables.object_path import ObjectPath, is_url
from oocbe.tables.objects import POINTER_NAME
from oocbe.tables.stored import StoredCompleteTable, StoredTable, open_table
from oocbe.tables.table import Table
from tests.helpers.thread_workers import InThreads

obstore = pytest.importorskip("obstore")

NUMBERS = count()


def rows(count=500, seed=0, scope=None):
    rng = np.random.default_rng(seed)
    scope = scope or {"a": 30, "b": 40, "c": 5}
    tuples = np.unique(rng.integers(0, list(scope.values()), (count, len(scope))), axis=0)
    return Table.from_rows(scope, tuples, rng.integers(-9, 9, len(tuples)), MAX_SUM)


def same(found, expected):
    assert (found.layout, found.semiring, found.is_sorted) == (expected.layout, expected.semiring, expected.is_sorted)
    assert np.array_equal(found.keys, expected.keys) and np.array_equal(found.values, expected.values)


@pytest.fixture
def url():
    """A place of its own in a store within this process."""
    return f"memory:///{next(NUMBERS)}/table"


@pytest.fixture(scope="module")
def server():
    """S3 on the loopback interface, in a process of its own; the address, once it answers."""
    pytest.importorskip("moto")
    pytest.importorskip("flask_cors")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"{address}/tables", method="PUT")
                urllib.request.urlopen(request, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(server, monkeypatch):
    names = {"ENDPOINT_URL": server, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    for name, value in {**names, "ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": "something"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    object_path._store.cache_clear()
    yield "s3://tables"
    object_path._store.cache_clear()


def keys_of(url):
    place = ObjectPath.of(url)
    listed = obstore.list(object_path._store(place.root), prefix=place.key)
    return sorted(entry["path"].removeprefix(f"{place.key}/") for page in listed for entry in page)


def test_a_table_comes_back_from_s3(bucket, tmp_path):
    table = rows()
    stored = StoredTable.save(tmp_path / "t", table, chunk_rows=64)
    there = stored.upload(f"{bucket}/some/where")
    same(there.to_table(), table)
    again = StoredTable.open(f"{bucket}/some/where")
    assert again.manifest_checksum == stored.manifest_checksum
    same(again.read(100, 200), stored.read(100, 200))
    again.verify()
    with pytest.raises(UsageError, match="exists already"):
        stored.upload(f"{bucket}/some/where")
    with pytest.raises(UsageError, match=r"s3://tables/no/where: there is no such table"):
        StoredTable.open(f"{bucket}/no/where")


class Files(SimpleHTTPRequestHandler):
    """A web server that gives the range of a file that is asked for."""

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(part)

    def do_DELETE(self):
        """Without it the answer would be 501, which clients take for a passing failure: they ask again for 15 s."""
        self.send_error(405)

    def log_message(self, *arguments):
        pass


def test_a_table_behind_a_web_server_is_read(tmp_path):
    stored = StoredTable.save(tmp_path / "data-0123456789abcdef", rows(), chunk_rows=64)
    content = {"format": "oocbe-object-table", "version": 1, "folder": stored.folder.name}
    (tmp_path / "table" / POINTER_NAME).parent.mkdir()
    (tmp_path / "table" / POINTER_NAME).write_bytes(render_record(content))
    stored.folder.rename(tmp_path / "table" / stored.folder.name)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=tmp_path)) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{web.server_port}/table"
        same(StoredTable.open(address).to_table(), rows())
        with pytest.raises(DiskError, match="cannot be written"):
            StoredTable.open(address).upload(f"{address}2")
        web.shutdown()


def test_an_operator_reads_from_s3_and_writes_to_it(bucket, tmp_path):
    t1, t2 = rows(seed=1), rows(seed=2, scope={"c": 5, "d": 50, "b": 40})
    stored = [StoredTable.save(tmp_path / str(n), t, chunk_rows=50) for n, t in enumerate((t1, t2))]
    there = [table.upload(f"{bucket}/operator/{n}") for n, table in enumerate(stored)]
    made = join_sum(*there, output=f"{bucket}/operator/joined", scratch=tmp_path)
    same(made.to_table(), join_sum(*stored, output=tmp_path / "joined").to_table())
    assert str(made.path).startswith("s3://tables/operator/joined/data-")
    with pytest.raises(UsageError, match="are not overwritten"):
        join_sum(*there, output=f"{bucket}/operator/joined", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "joined"]


def converted(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_the_command_converts_to_urls_and_from_them(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url, table = f"{bucket}/converted", rows()
    same(StoredTable.save(tmp_path / "t", table, chunk_rows=64).to_table(), table)
    for source, target in ((tmp_path / "t", f"{url}/a"), (f"{url}/a", f"{url}/b"), (f"{url}/b", tmp_path / "back")):
        done = converted(source, target)
        assert done.exit_code == 0, done.output
        same(StoredTable.open(str(target)).to_table(), table)
    done = converted(f"{url}/a", tmp_path / "back.parquet")
    assert done.exit_code == 0, done.output
    done = converted(tmp_path / "back.parquet", f"{url}/c", "--semiring", "min-sum")
    assert done.exit_code == 0, done.output
    assert StoredTable.open(f"{url}/c").rows == table.rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "back.parquet", "t"]


def test_what_the_command_does_not_put_into_object_stores(url, tmp_path):
    StoredTable.save(tmp_path / "t", rows())
    for arguments, message in (
        ((tmp_path / "t", url, "--overwrite"), "are not overwritten"),
        ((f"{url}.parquet", tmp_path / "u"), "there is no such file or folder"),
        (("examples/daily.spot", f"{url}.wcsp"), "only tables are read from object stores"),
    ):
        done = converted(*arguments)
        assert done.exit_code == 2 and message in done.output


def test_of_two_writers_one_is_told(bucket, tmp_path, monkeypatch):
    """Both have found no table there; what the second one has written is removed."""
    monkeypatch.setattr("oocbe.tables.objects._refuse_existing", lambda place: None)
    first = StoredTable.save(tmp_path / "first", rows()).upload(f"{bucket}/two")
    with pytest.raises(UsageError, match="written meanwhile"):
        StoredTable.save(tmp_path / "second", rows(seed=5)).upload(f"{bucket}/two")
    same(StoredTable.open(f"{bucket}/two").to_table(), rows())
    assert {key.partition("/")[0] for key in keys_of(f"{bucket}/two")} == {first.path.name, POINTER_NAME}


def test_complete_tables_and_tables_of_parts(url, tmp_path):
    table = rows()
    cells = oocbe.to_complete(table, output=tmp_path / "cells")
    assert isinstance(cells, StoredCompleteTable)
    there = cells.upload(f"{url}/cells")
    assert np.array_equal(there.to_table().values, cells.to_table().values)
    assert isinstance(open_table(f"{url}/cells"), StoredCompleteTable)
    sizes = {"segment_rows": 1, "first_segments": 3, "least_segment_seconds": 1e3, "most_segment_seconds": 1e3}
    with InThreads(2) as workers, use_workers(workers), tuned(**sizes):
        there = StoredTable.save(tmp_path / "t", table, chunk_rows=50).upload(f"{url}/rows")
        parts = maximise(there, "c", output=f"{url}/parts")
    assert len({key.split("/")[1] for key in keys_of(f"{url}/parts") if "part-" in key}) > 1
    same(parts.to_table(), maximise(table, "c"))


@pytest.mark.parametrize("fails_at", [0, 3, -1])
def test_what_cannot_be_written_leaves_nothing(url, tmp_path, monkeypatch, fails_at):
    stored = StoredTable.save(tmp_path / "t", rows(), chunk_rows=100)
    files = sum(path.is_file() for path in stored.folder.rglob("*"))
    numbers, create = count(), ObjectPath.create

    def failing(self, data):
        if next(numbers) == fails_at % (files + 1):  # the pointer is the last
            raise OSError(5, "the store is full", str(self))
        create(self, data)

    monkeypatch.setattr(ObjectPath, "create", failing)
    with pytest.raises(DiskError, match="cannot be written: the store is full"):
        stored.upload(url)
    assert keys_of(url) == []


def test_what_a_killed_writer_has_left_is_no_table(url, tmp_path):
    stored = StoredTable.save(tmp_path / "t", rows())
    there = stored.upload(url)
    (ObjectPath.of(url) / POINTER_NAME).remove()
    with pytest.raises(CorruptDataError, match="not a table, or it is still written"):
        StoredTable.open(url)
    assert stored.upload(url).path != there.path
    same(StoredTable.open(url).to_table(), rows())


def test_nothing_and_other_objects_in_the_place_of_a_table(url):
    for command in (["inspect", url], ["convert", url, "t.parquet"]):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, f"oocbe: {url}: there is no " in done.stderr) == (2, True), done.stderr
    ObjectPath.of(url).create(b"an object")
    done = CliRunner().invoke(app, ["inspect", url])
    assert (done.exit_code, "this is an object, expected a stored table" in done.stderr) == (2, True), done.stderr


def test_damage_is_told_by_place(url, tmp_path):
    stored = StoredTable.save(tmp_path / "t", rows(), chunk_rows=100).upload(url)
    chunk = stored.path / "values/c/1"
    content = bytearray(chunk.read(1 << 20))
    chunk.remove()
    with pytest.raises(CorruptDataError, match="chunk 1 of values is missing: memory:///"):
        StoredTable.open(url).to_table()
    content[-1] ^= 1
    chunk.create(content)
    with pytest.raises(CorruptDataError, match="chunk 1 of values is damaged"):
        StoredTable.open(url).verify()
    for pointer in ({"folder": "../elsewhere", "version": 1}, {"folder": stored.path.name, "version": 2}):
        (ObjectPath.of(url) / POINTER_NAME).remove()
        (ObjectPath.of(url) / POINTER_NAME).create(render_record({"format": "oocbe-object-table", **pointer}))
        with pytest.raises(CorruptDataError, match="names no table that this program reads"):
            StoredTable.open(url)


@pytest.mark.parametrize("text", ["s3://", "s3://bucket", "s3://bucket/"])
def test_urls_that_name_no_table(text):
    with pytest.raises(UsageError, match="name a table in an object store"):
        StoredTable.open(text)


def test_what_is_a_url():
    assert is_url("s3://bucket/a") and is_url("https://host/a/b")
    assert not any(map(is_url, ("a/b", "/a", "C:/a", "s3:a")))


def test_stores_that_there_are_not(monkeypatch):
    with pytest.raises(UnsupportedError, match="nosuch://x"):
        StoredTable.open("nosuch://x/a")
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UnsupportedError, match=r"pip install -e '\.\[objects\]'"):
        StoredTable.open("s3://not-asked-before/a")


def test_a_folder_is_asked_for_in_vain(url, tmp_path):
    stored = StoredTable.save(tmp_path / "t", rows())
    assert stored.folder == tmp_path / "t"
    with pytest.raises(UsageError, match="is in an object store"):
        assert stored.upload(url).folder
