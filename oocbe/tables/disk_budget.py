"""The limit on what a run may write to disk, and the error for an exhausted limit or disk."""

from __future__ import annotations

from pathlib import Path
from threading import RLock

from oocbe.errors import DiskError
from oocbe.tables.disk import FULL_DISK, free_bytes
from oocbe.tables.table import format_bytes


class DiskBudget:
    """Counts the bytes of a run's files on disk and enforces a limit.

    Bytes are those of file contents; file systems round each file up to whole blocks.

    Parameters
    ----------
    folder : location of the files; free space is that of its disk.
    limit : bytes; None: limited by the disk only.
    is_scratch : whether the files are not needed after this run, however it ends. They are then not forced to disk:
        the system may keep them in memory, and they are lost if the host fails.
    """

    def __init__(self, folder: Path, limit: int | None = None, is_scratch: bool = False) -> None:
        self.folder = folder
        self.limit = limit
        self.is_scratch = is_scratch
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
        """Count a file's bytes before they are written (negative: after removal).

        Raises
        ------
        DiskError : the limit would be exceeded; nothing is counted then.
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
        """The error for a failed file operation.

        Parameters
        ----------
        what : the table or file to be written. needed : its bytes before compression, if known.
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
