"""Outputs under a temporary name: what a killed process leaves goes with the next one, what a live one writes stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.formats.files import write_bytes
from oocbe.runtime import temporary_names
from oocbe.runtime.faults import hooked
from oocbe.runtime.temporary_names import temporary_beside
from tests.helpers.small_networks import random_network

WAITING = """
import os, sys
from pathlib import Path
from oocbe.runtime.temporary_names import temporary_beside
with temporary_beside(Path(sys.argv[1]), sys.argv[2] == "folder") as made:
    (made / "part" if sys.argv[2] == "folder" else made).write_text("begun")
    print(made, flush=True)
    sys.stdin.readline()
    made.rename(sys.argv[1])
"""


@pytest.fixture
def begin():
    """Starts a process that has begun to write a target, and goes on when it is told; its temporary name as well."""
    started = []

    def start(target: Path, what: str) -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING, str(target), what],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def parquet(target: Path) -> None:
    pytest.importorskip("pyarrow")
    rows().to_parquet(target, overwrite=True)


def parquet_folder(target: Path) -> None:
    pytest.importorskip("pyarrow")
    rows().to_parquet(target, rows_per_file=1, overwrite=True)


def rows() -> oocbe.Table:
    return oocbe.Table.from_rows({"a": 3}, [[0], [1], [2]], [1, 2, 3])


def tree(target: Path) -> None:
    oocbe.JunctionTree(random_network(np.random.default_rng(1))).save(target)


def text(target: Path) -> None:
    write_bytes(target, b"some text")


def table(target: Path) -> None:
    oocbe.StoredTable.save(target, rows(), overwrite=True)


WRITERS = [text, table, parquet, parquet_folder, tree]
writers_and_kinds = pytest.mark.parametrize(
    ("write", "what"),
    [
        pytest.param(write, what, id=f"{write.__name__}-{what}", marks=pytest.mark.slow if (turn + place) % 2 else ())
        for turn, what in enumerate(["file", "folder"])
        for place, write in enumerate(WRITERS)
    ],
)
"""Each writer beside what was begun as a file or as a folder; the others are slow."""


@writers_and_kinds
def test_what_a_killed_process_left_goes_with_the_next_that_writes_the_name(write, what, begin, tmp_path):
    begun = [begin(tmp_path / name, what) for name in ("target", "target", "other")]
    for process, _ in begun:
        process.kill()
        process.wait()
    left = [made for _, made in begun]
    assert all(path.exists() for path in left)
    write(tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["target", left[-1].name])


@writers_and_kinds
def test_what_a_live_process_writes_stays(write, what, begin, tmp_path):
    process, made = begin(tmp_path / "target", what)
    process.send_signal(signal.SIGSTOP)
    write(tmp_path / "target")
    assert made.exists()
    (tmp_path / "target").rename(tmp_path / "written")
    process.send_signal(signal.SIGCONT)
    process.communicate("go on\n")
    assert process.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"target", "written"}


def test_two_writers_of_one_process_are_two(tmp_path):
    with temporary_beside(tmp_path / "t") as one, temporary_beside(tmp_path / "t") as other:
        assert one != other and one.exists() and other.exists()
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_others_is_removed(tmp_path, monkeypatch):
    """Neither what another host may still lock, nor what only looks alike, nor what a link leads to."""
    ours = temporary_names.temporary_name("t")
    host = ours.split(".")[2]
    names = (f"{ours}.txt", ours.replace(host, "00000000"), ".t.partial", f".t.{host}.dir.partial", "t.partial")
    kept = [tmp_path / name for name in names]
    for path in kept:
        path.write_text("of somebody")
    (tmp_path / temporary_names.temporary_name("t")).symlink_to(kept[0])
    os.mkfifo(tmp_path / temporary_names.temporary_name("t"))
    before = {path.name for path in tmp_path.iterdir()}
    write_bytes(tmp_path / "t", b"text")
    assert {path.name for path in tmp_path.iterdir()} == {*before, "t"}

    def refuse(*_: object) -> None:
        raise OSError(95, "no locks here")

    monkeypatch.setattr(temporary_names.fcntl, "flock", refuse)
    left = tmp_path / temporary_names.temporary_name("t")
    left.write_text("perhaps of a live process")
    table(tmp_path / "stored")
    assert not list((tmp_path / "stored").glob(".*"))
    write_bytes(tmp_path / "t", b"other text")
    assert (tmp_path / "t").read_bytes() == b"other text" and left.exists()


def test_what_is_replaced_leaves_its_permissions(tmp_path):
    """A file's and a folder's; a new one has those that the process gives to new ones."""
    before = os.umask(0o027)
    try:
        for write, is_folder in ((text, False), (parquet, False), (table, True), (parquet_folder, True)):
            target = tmp_path / write.__name__
            write(target)
            assert target.stat().st_mode & 0o777 == (0o750 if is_folder else 0o640)
            for mode in (0o700, 0o604 | 0o111 * is_folder):
                target.chmod(mode)
                write(target)
                assert target.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize("write", [text, table, tree], ids=lambda given: given.__name__)
def test_disks_that_fail_at_any_operation(write, tmp_path):
    """What was there stays whole, and nothing hidden is left but what could not be removed."""
    seen = []
    with hooked(lambda operation, path: seen.append(operation)):
        write(tmp_path / "whole")
    assert {"create", "rename", "remove"} < {*seen}
    for number, failing in enumerate(seen):
        left = iter(range(number, -1, -1))

        def fail(operation, path, left=left):
            if next(left, -1) == 0:
                raise OSError(5, "broken", str(path))

        target = tmp_path / f"{number}"
        with hooked(fail), suppress(oocbe.OocbeError, OSError):
            write(target)
        assert failing == "remove" or not list(tmp_path.glob(f".{number}.*"))
        if write is not tree or not target.exists():
            write(target)
        assert not list(tmp_path.glob(f".{number}.*"))


def test_one_that_another_takes_for_dead_is_made_anew(tmp_path, monkeypatch):
    """The other one comes between the making of a file and its lock."""
    locked, calls = temporary_names._locked, []

    def steal(path: Path) -> int | None:
        calls.append(path)
        if len(calls) < 3:
            path.unlink()
        return locked(path)

    monkeypatch.setattr(temporary_names, "_locked", steal)
    write_bytes(tmp_path / "t", b"text")
    assert len(calls) == 3 and [path.name for path in tmp_path.iterdir()] == ["t"]


def test_killed_conversions_leave_one_file_at_most(tmp_path):
    """As a person sees it: `oocbe convert` that is killed again and again, and then is not."""
    pytest.importorskip("pyarrow")
    oocbe.StoredTable.save(tmp_path / "t", rows())
    script = (
        "import os, sys\nimport pyarrow.parquet as files\n"
        "write = files.ParquetWriter.write_batch\n"
        "def killed(*given, **more):\n    write(*given, **more)\n    os.kill(os.getpid(), 9)\n"
        "files.ParquetWriter.write_batch = killed\n"
        "from oocbe.cli.main import main\nmain()\n"
    )
    for _ in range(2):
        command = [sys.executable, "-c", script, "convert", str(tmp_path / "t"), str(tmp_path / "x.parquet")]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert len([path for path in tmp_path.iterdir() if path.name.startswith(".")]) == 1
    subprocess.run([sys.executable, "-m", "oocbe", *command[3:]], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"t", "x.parquet"}
