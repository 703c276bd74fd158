"""Files without a name: counted for as long as they are there, and never left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oocbe.elimination.runs.run_directory import RunDirectory
from oocbe.errors import CorruptDataError, DiskError, UsageError
from oocbe.tables.disk import hooked
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from oocbe.tables.scratch import remove_orphans


@pytest.fixture(params=[True, False], ids=["no name at all", "a name for a moment"])
def has_names(request, monkeypatch):
    if request.param:
        monkeypatch.delattr(os, "O_TMPFILE")
    return request.param


def bytes_of(count: int) -> memoryview:
    return memoryview(bytes(range(count)))


def test_what_is_written_comes_back(has_names, tmp_path):
    file = NamelessFile(DiskBudget(tmp_path), "scratch file")
    assert list(tmp_path.iterdir()) == []
    with hooked(lambda operation, path: 3 if operation == "write" else None):  # a few bytes at a time
        file.write(bytes_of(100), 20, 100)
    found = bytearray(60)
    file.read(memoryview(found), 50)
    assert found == bytes(range(30, 90))
    with pytest.raises(CorruptDataError, match="ends before"):
        file.read(memoryview(bytearray(80)), 50)


@pytest.mark.parametrize("closing", [True, False], ids=["closed", "given up"])
def test_the_budget_counts_a_file_for_as_long_as_it_is_there(closing, tmp_path):
    budget = DiskBudget(tmp_path, 250)
    file = NamelessFile(budget, "scratch file")
    file.write(bytes_of(200), 0, 200)
    file.write(bytes_of(200), 0, 0)
    assert budget.used == 200
    with pytest.raises(DiskError, match="would pass the disk limit") as caught:
        file.write(bytes_of(60), 200, 60)
    assert caught.value.is_full
    del caught  # its frames hold the file
    if closing:
        file.close()
        file.close()
    else:
        del file
    assert budget.used == 0


@pytest.mark.parametrize(
    ("operation", "number", "is_full"),
    [
        ("create", errno.ENOSPC, True),
        ("write", errno.ENOSPC, True),
        ("write", errno.EDQUOT, True),
        ("write", errno.EIO, False),
        ("read", errno.EIO, False),
    ],
)
def test_a_disk_that_is_full_or_fails(operation, number, is_full, tmp_path):
    def broken(done, path):
        if done == operation:
            raise OSError(number, os.strerror(number))

    with hooked(broken), pytest.raises(DiskError, match=f"scratch file in {tmp_path}.*free on disk") as caught:
        file = NamelessFile(DiskBudget(tmp_path), "scratch file")
        file.write(bytes_of(9), 0, 9)
        file.read(memoryview(bytearray(9)), 0)
    assert caught.value.is_full == is_full
    with pytest.raises(DiskError, match="nowhere"):
        NamelessFile(DiskBudget(tmp_path / "nowhere"), "scratch file")


class Killed(BaseException):
    """Ends what is going on as SIGKILL would, but in this process."""


def killed_before_the_name_is_gone(folder: Path, monkeypatch) -> Path:
    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.delattr(os, "O_TMPFILE")
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(Killed):
            NamelessFile(DiskBudget(folder), "scratch file")
    (left,) = folder.glob(".oocbe-*")
    return left


def test_a_name_that_a_killed_process_left_goes_with_the_next_scratch(tmp_path, monkeypatch):
    left = killed_before_the_name_is_gone(tmp_path, monkeypatch)
    other, full = tmp_path / "oocbe-notes.txt", tmp_path / "oocbe-12345678"
    other.touch()
    full.write_text("no process leaves this")
    assert remove_orphans(tmp_path) == [left]
    assert sorted(tmp_path.iterdir()) == sorted([other, full])


def test_a_name_that_a_killed_process_left_bars_no_run_directory(tmp_path, monkeypatch):
    with RunDirectory(tmp_path / "run"):
        killed_before_the_name_is_gone(tmp_path / "run", monkeypatch)
    with RunDirectory(tmp_path / "run"):
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]
    (tmp_path / "run" / "oocbe-12345678").write_text("mine")
    with pytest.raises(UsageError, match="no run has made"):
        RunDirectory(tmp_path / "run")


def test_another_process_may_remove_the_name(tmp_path, monkeypatch):
    unlink = Path.unlink

    def twice(path, missing_ok=False):
        unlink(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(Path, "unlink", twice)
    NamelessFile(DiskBudget(tmp_path), "scratch file").write(bytes_of(9), 0, 9)
