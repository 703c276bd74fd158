"""A file without a name: removed on closing or when the process ends, and counted in a disk budget until then."""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import TYPE_CHECKING

from oocbe.errors import CorruptDataError, DiskError
from oocbe.tables import disk
from oocbe.tables.scratch import NAMELESS
from oocbe.tables.table import format_bytes

if TYPE_CHECKING:
    from oocbe.tables.disk_budget import DiskBudget


class NamelessFile:
    """Bytes on disk for the lifetime of this object, or until :meth:`close`; thread-safe.

    Parameters
    ----------
    budget : its folder is the location of the file; it counts the bytes.
    what : names the file in errors.

    Raises
    ------
    DiskError : the file cannot be created.

    Attributes
    ----------
    name : for errors.
    """

    def __init__(self, budget: DiskBudget, what: str) -> None:
        self.name = f"{what} in {budget.folder}"
        self._budget, self._folder = budget, budget.folder
        try:
            self._handle = disk.open_nameless(self._folder, NAMELESS)
        except OSError as error:
            raise budget.failure(error, self.name) from None
        self._taken = _Taken(budget)
        self._end = weakref.finalize(self, _end, self._handle, self._taken)

    def write(self, data: memoryview, offset: int, more: int) -> None:
        """Write bytes at an offset; ``more`` of them are new, not overwritten.

        Raises
        ------
        DiskError : the disk or its budget is full, or the disk fails.
        """
        self._taken.add(more, self.name)
        try:
            disk.write_at(self._handle, data, offset, self._folder)
        except OSError as error:
            raise self._budget.failure(error, self.name, max(more, len(data))) from None

    def read(self, data: memoryview, offset: int) -> None:
        """Fill the caller's buffer with bytes written before.

        Raises
        ------
        DiskError : the disk fails. CorruptDataError : the file ends before the buffer is full.
        """
        try:
            count = disk.read_at(self._handle, data, offset, self._folder)
        except OSError as error:
            raise DiskError(
                f"{self.name}: {format_bytes(len(data))} at {format_bytes(offset)} cannot be read "
                f"({error.strerror or error}); {self._budget.sizes()}. Check the disk, or choose another folder"
            ) from None
        if count < len(data):
            raise CorruptDataError(f"{self.name}: ends before {format_bytes(offset + len(data))}; check the disk")

    def close(self) -> None:
        """Release the bytes to the disk and the budget."""
        self._end()


class _Taken:
    """A file's bytes in a budget; a separate object, so that they can be released after the file's collection."""

    def __init__(self, budget: DiskBudget) -> None:
        self._budget = budget
        self._count = 0
        self._lock = Lock()

    def add(self, count: int, name: str) -> None:
        self._budget.take(count, name)
        with self._lock:
            self._count += count

    def give_back(self) -> None:
        self._budget.take(-self._count, self._budget.folder)


def _end(handle: int, taken: _Taken) -> None:
    os.close(handle)
    taken.give_back()
