"""How much a run may write to disk, and the error when that, or the disk, is used up."""

from __future__ import annotations

from pathlib import Path
from threading import RLock

from oocbe.errors import DiskError
from oocbe.tables.disk import FULL_DISK, free_bytes
from oocbe.tables.table import format_bytes


class DiskBudget:
    """Counts the bytes of the files that a run has on disk and refuses to pass a limit.

    Bytes are those of file contents: file systems round each file up to whole blocks.

    Parameters
    ----------
    folder : where the files are; its disk is the one whose free space is reported.
    limit : bytes, or None where only the disk's size limits.
    is_scratch : whether the files are not needed after this run, however it ends. They are then not forced to disk:
        the system keeps them in memory while it has some to spare, and they are lost if the host fails.
    """

    def __init__(self, folder: Path, limit: int | None = None, is_scratch: bool = False) -> None:
        self.folder = folder
        self.limit = limit
        self.is_scratch = is_scratch
        self.used = 0
        self._lock = RLock()  # a file that is given up may give its bytes back in the middle of anything

    @property
    def available(self) -> int:
        """Bytes that can still be written: what the limit leaves, or the disk where that is less."""
        return self.allowed if self.limit is None else min(free_bytes(self.folder), self.allowed)

    @property
    def allowed(self) -> int:
        """Bytes that may still be written: what the limit leaves, whatever the disk has; without one, what it has."""
        return free_bytes(self.folder) if self.limit is None else max(0, self.limit - self.used)

    def take(self, count: int, path: Path | str) -> None:
        """Count a file's bytes before they are written (negative: give them back).

        Raises
        ------
        DiskError : they would pass the limit; nothing is counted then.
        """
        with self._lock:
            if self.limit is None or count <= 0 or self.used + count <= self.limit:
                self.used += count
                return
        raise DiskError(
            f"{path}: {format_bytes(count)} more would pass the disk limit; {self.sizes()}. Raise --max-disk",
            is_full=True,
        )

    def failure(self, error: OSError, what: str, needed: int | None = None) -> DiskError:
        """The error for a file operation that failed.

        Parameters
        ----------
        what : the table or file that was to be written. needed : its bytes before compression, where known.
        """
        size = "" if needed is None else f"needed up to {format_bytes(needed)}, "
        where = f" ({error.filename})" if error.filename and str(error.filename) != what else ""
        if error.errno in FULL_DISK:
            return DiskError(
                f"{what}: the disk is full{where}; {size}{self.sizes()}. Free some space, or choose another folder",
                is_full=True,
            )
        return DiskError(f"{what}: cannot be written, {error.strerror or error}{where}; {size}{self.sizes()}")

    def sizes(self) -> str:
        """Used, limit and free, for messages."""
        limit = "none" if self.limit is None else format_bytes(self.limit)
        try:
            free = format_bytes(free_bytes(self.folder))
        except OSError:
            free = "unknown"
        return f"used {format_bytes(self.used)}, limit {limit}, free on disk {free}"
