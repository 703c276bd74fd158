"""The limit on what a run may write to disk, the error for an exhausted limit or disk, and nameless files."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock

from oocbe.errors import CorruptDataError, DiskError
from oocbe.model.results.numerals import format_bytes
from oocbe.tables import disk
from oocbe.tables.disk import FULL_DISK, free_bytes
from oocbe.tables.scratch import NAMELESS


class DiskBudget:
    """Counts the bytes of a run's files on disk and enforces a limit.

    Bytes are those of file contents; file systems round each file up to whole blocks.

    folder : location of the files; free space is that of its disk. limit : bytes; None: limited by the disk only.
    is_scratch : whether the files are not needed after this run, however it ends. They are then not forced to disk:
        the system may keep them in memory, and they are lost if the host fails.
    """

    def __init__(self, folder: Path, limit: int | None = None, is_scratch: bool = False) -> None:
        self.folder, self.limit, self.is_scratch = folder, limit, is_scratch
        self.used = 0
        self._lock = RLock()  # a file's finaliser may return its bytes at any moment, also inside take

    @property
    def available(self) -> int:
        """Bytes that can still be written: the minimum of the remaining limit and the free space of the disk."""
        return self.allowed if self.limit is None else min(free_bytes(self.folder), self.allowed)

    @property
    def allowed(self) -> int:
        """Remaining limit in bytes, regardless of the disk; without a limit, the free space of the disk."""
        return free_bytes(self.folder) if self.limit is None else max(0, self.limit - self.used)

    def take(self, count: int, path: Path | str) -> None:
        """Count a file's bytes before a write (negative: after removal); DiskError: too many, and none is counted."""
        with self._lock:
            if self.limit is None or count <= 0 or self.used + count <= self.limit:
                self.used += count
                return
        raise DiskError(
            f"{path}: {format_bytes(count)} more would pass the disk limit; {self.sizes()}. Raise --max-disk",
            is_full=True,
        )

    def failure(self, error: OSError, what: str, needed: int | None = None) -> DiskError:
        """The error of a failed operation on ``what``, a table or file; ``needed``: bytes before compression."""
        size = "" if needed is None else f"needed up to {format_bytes(needed)}, "
        where = f" ({error.filename})" if error.filename and str(error.filename) != what else ""
        if error.errno in FULL_DISK:
            return DiskError(
                f"{what}: the disk is full{where}; {size}{self.sizes()}. Free some space, or choose another folder",
                is_full=True,
            )
        return DiskError(f"{what}: cannot be written, {error.strerror or error}{where}; {size}{self.sizes()}")

    @contextmanager
    def failing(self, what: Path | str, needed: int | None = None) -> Iterator[None]:
        """Within the block, an OSError becomes a :meth:`failure`."""
        try:
            yield
        except OSError as error:
            raise self.failure(error, str(what), needed) from None

    def sizes(self) -> str:
        """Used, limit and free, for messages."""
        limit = "none" if self.limit is None else format_bytes(self.limit)
        try:
            free = format_bytes(free_bytes(self.folder))
        except OSError:
            free = "unknown"
        return f"used {format_bytes(self.used)}, limit {limit}, free on disk {free}"


class NamelessFile:
    """Bytes on disk for the lifetime of this object, or until :meth:`close`; thread-safe.

    budget : its folder is the location of the file; it counts the bytes.
    what, name : what the file is, for errors.
    Raises DiskError: the file cannot be created.
    """

    def __init__(self, budget: DiskBudget, what: str) -> None:
        self.name = f"{what} in {budget.folder}"
        self._budget, self._folder = budget, budget.folder
        with budget.failing(self.name):
            self._handle = disk.open_nameless(self._folder, NAMELESS)
        self._taken, self._lock = [0], Lock()  # bytes in the budget, which are released after this object
        self._end = weakref.finalize(self, _end, self._handle, budget, self._taken)

    def write(self, data: memoryview, offset: int, more: int) -> None:
        """Write bytes at an offset; ``more`` of them are new, not overwritten.

        Raises DiskError: the disk or its budget is full, or the disk fails.
        """
        self._budget.take(more, self.name)
        with self._lock:
            self._taken[0] += more
        with self._budget.failing(self.name, max(more, len(data))):
            disk.write_at(self._handle, data, offset, self._folder)

    def read(self, data: memoryview, offset: int) -> None:
        """Fill the caller's buffer with bytes written before.

        Raises DiskError: the disk fails; CorruptDataError: the file ends before the buffer is full.
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


def _end(handle: int, budget: DiskBudget, taken: list[int]) -> None:
    os.close(handle)
    budget.take(-taken[0], budget.folder)
