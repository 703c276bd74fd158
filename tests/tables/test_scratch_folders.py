"""Scratch folders and locks where the disk fails, and who removes what."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import closing, nullcontext, suppress

import numpy as np
import pytest

from oocbe.algebra.inputs import Execution
from oocbe.algebra.out_of_core import context
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.runs.run_directory import RunDirectory
from oocbe.errors import DiskError, UsageError
from oocbe.runtime import temporary_names
from oocbe.runtime.interruption import heard
from oocbe.tables import scratch as scratch_folders
from oocbe.tables.disk import hooked
from oocbe.tables.scratch import FolderLock, ScratchFolder, remove_orphans
from oocbe.tables.table import Table
from tests.helpers.signals import signalled_at_every_line


def refusing(operation, number, name=""):
    def hook(done, path):
        if done == operation and name in path.name:
            raise OSError(number, os.strerror(number), str(path))

    return hooked(hook)


def test_the_folder_of_an_operator_is_locked_while_it_works(tmp_path, monkeypatch):
    """And removed by others once its owner has died, empty or not."""
    made = []
    monkeypatch.setattr(context, "ScratchFolder", lambda parent: made.append(ScratchFolder(parent)) or made[-1])
    place = ExecutionContext.of(Execution(tmp_path / "out", scratch=tmp_path, backend="cpu"))
    with place.scratch_folder() as folder:
        assert remove_orphans(tmp_path) == []
        (folder / "joined").mkdir()
        assert remove_orphans(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), place.scratch_folder() as folder:
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    dying = place.scratch_folder()
    (dying.__enter__() / "joined").mkdir()
    os.close(made[-1]._lock._handle)  # as its death would
    made[-1]._lock._handle = None
    assert remove_orphans(tmp_path) == [made[-1].path]


def test_the_text_of_a_lock_may_find_no_room(tmp_path, monkeypatch):
    """A full disk can be locked: who holds it is only for messages."""
    first = FolderLock.take(tmp_path)
    first.release()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("pwrite", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(scratch_folders.os, name, full)
            lock = FolderLock.take(tmp_path)
            assert isinstance(FolderLock.try_take(tmp_path, create=False), str)
            lock.release()


def test_an_orphan_that_cannot_be_removed_is_not_locked_for_ever(tmp_path):
    dead = ScratchFolder(tmp_path)
    (dead.path / "table").mkdir()
    os.close(dead._lock._handle)  # as its death would
    with refusing("remove", errno.EIO):
        assert remove_orphans(tmp_path) == []
    assert remove_orphans(tmp_path) == [dead.path]


@pytest.mark.parametrize(("number", "text"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot be written")])
def test_a_table_whose_folder_cannot_be_made(number, text, tmp_path):
    table = Table.from_rows({"a": 1000}, np.arange(1000)[:, np.newaxis], np.arange(1000))
    with refusing("folder", number, "message-"), MessageStore(100, tmp_path) as store:
        with pytest.raises(DiskError, match=text):
            store.add((0,), table)
        assert store.budget.used == 0


@pytest.mark.parametrize("number", range(5))
def test_a_folder_whose_removal_was_cut_short_is_an_orphan(number, tmp_path):
    """A second Ctrl-C, or a kill: wherever it comes, the next process knows what it finds there."""
    folder, begun = ScratchFolder(tmp_path), []
    for name in ("a", "m", "z"):  # on both sides of the lock's name
        (folder.path / name).mkdir()
        (folder.path / name / "rows").write_bytes(b"rows")

    def interrupt(operation, path):
        if operation == "remove":
            begun.append(path)
            if len(begun) > number:
                raise KeyboardInterrupt

    with hooked(interrupt), pytest.raises(KeyboardInterrupt) if number < 4 else nullcontext():
        folder.close()
    if number < 4:
        os.close(folder._lock._handle)  # as the end of the process would
        assert remove_orphans(tmp_path) == [folder.path]
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_the_lock_is_taken_leaves_no_folder(tmp_path, monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderLock, "try_take", pressed)
    with pytest.raises(KeyboardInterrupt):
        ScratchFolder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_another_host_is_left_to_it(tmp_path, monkeypatch):
    """Where a file system keeps locks to each host, what another one has locked looks free."""
    with monkeypatch.context() as patch:
        patch.setattr(scratch_folders.platform, "node", lambda: "node7")
        scratch = ScratchFolder(tmp_path)
    os.close(scratch._lock._handle)  # as seen from a host that does not see its locks
    scratch._lock._handle = None
    assert remove_orphans(tmp_path) == []
    assert scratch.path.is_dir()
    assert "on node7" in (scratch.path / scratch_folders.MARKER).read_text()
    monkeypatch.setattr(scratch_folders.platform, "node", lambda: "node7")
    assert remove_orphans(tmp_path) == [scratch.path]


def test_what_is_called_like_a_scratch_folder_and_is_none_stays(tmp_path):
    """Run directories, and folders and files of the user: empty, with a free lock, nested, and a link to another's."""
    run = tmp_path / "oocbe-20261125"
    with RunDirectory(run):
        (run / "order-0123456789abcdef").mkdir()
    (tmp_path / "oocbe-reports1").mkdir()
    (tmp_path / "oocbe-empty_01").mkdir()
    (tmp_path / "oocbe-reports1" / "lock").touch()
    (tmp_path / "oocbe-reports1" / "oocbe-nested01" / "oocbe-nested02").mkdir(parents=True)
    (tmp_path / "oocbe-an_empty").touch()
    (tmp_path / ".oocbe-nameless.notes").touch()
    (tmp_path / temporary_names.temporary_name("oocbe-nameless")).write_text("not empty")
    (tmp_path / "elsewhere").mkdir()
    dead = ScratchFolder(tmp_path / "elsewhere")
    os.close(dead._lock._handle)  # as its death would
    (tmp_path / "oocbe-link0001").symlink_to(dead.path)
    before = sorted(tmp_path.rglob("*"))
    for parent in (tmp_path, run):
        assert remove_orphans(parent) == []
        ScratchFolder(parent).close()
    assert sorted(tmp_path.rglob("*")) == before
    assert remove_orphans(tmp_path / "elsewhere") == [dead.path]


@pytest.mark.parametrize("name", ["order-2026", "oocbe-20261125", "result.json", "known.json", ".notes.partial"])
def test_a_folder_with_names_like_those_of_a_run_is_no_run_directory(tmp_path, name):
    """A run would remove them when it begins, or ends."""
    if name.startswith("o"):
        (tmp_path / name).mkdir()
    if name != "order-2026":
        (tmp_path / name / "mine" if name.startswith("o") else tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match=f"holds '{name}', which no run has made"):
        RunDirectory(tmp_path)
    assert (tmp_path / name).exists()


def test_a_signal_at_any_line_leaves_no_folder(tmp_path):
    """While it is made, used or removed, and before its path is known to its user."""

    def use():
        with heard({signal.SIGINT: KeyboardInterrupt}), closing(ScratchFolder(tmp_path)) as scratch:
            (scratch.path / "table").mkdir()

    def left():
        with suppress(KeyboardInterrupt):
            use()
        return len(list(tmp_path.iterdir()))

    assert signalled_at_every_line(left, signal.SIGINT, ("scratch.py", "contextlib.py")) == {0, "heard"}


def test_a_signal_during_the_removal_leaves_no_folder(tmp_path, monkeypatch):
    """Before the error is handled: its traceback may keep the owner until the process ends without a cleaning."""
    scratch, remove, ends = ScratchFolder(tmp_path), scratch_folders._remove_locked, [KeyboardInterrupt]

    def removed(path):
        for end in [*ends]:
            ends.clear()
            raise end
        remove(path)

    monkeypatch.setattr(scratch_folders, "_remove_locked", removed)
    with pytest.raises(KeyboardInterrupt):
        scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_leaves_the_folder_of_its_parent(tmp_path):
    scratch = ScratchFolder(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            scratch._end()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and scratch.path.exists()
    scratch.close()
    assert list(tmp_path.iterdir()) == []
