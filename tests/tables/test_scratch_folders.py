"""Scratch folders and locks where the disk fails, and who removes what."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from oocbe.elimination.messages import MessageStore
from oocbe.errors import DiskError
from oocbe.operators.inputs import OutOfCore
from oocbe.operators.out_of_core import workplace
from oocbe.operators.out_of_core.workplace import Workplace
from oocbe.tables import folder_lock
from oocbe.tables.disk import hooked
from oocbe.tables.folder_lock import FolderLock
from oocbe.tables.scratch import ScratchFolder, remove_orphans
from oocbe.tables.table import Table


def refusing(operation, number, name=""):
    def hook(done, path):
        if done == operation and name in path.name:
            raise OSError(number, os.strerror(number), str(path))

    return hooked(hook)


def test_the_folder_of_an_operator_is_locked_while_it_works(tmp_path, monkeypatch):
    """And removed by others once its owner has died, empty or not."""
    made = []
    monkeypatch.setattr(workplace, "ScratchFolder", lambda parent: made.append(ScratchFolder(parent)) or made[-1])
    place = Workplace.of(OutOfCore(tmp_path / "out", scratch=tmp_path), None, "cpu")
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
            patch.setattr(folder_lock.os, name, full)
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
