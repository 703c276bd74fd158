"""Writing a table's folder: arrays under a temporary name, checksummed, then one rename.

What writers of incomplete (:mod:`oocbe.tables.writer`) and of complete tables (:mod:`oocbe.tables.complete_writer`)
share.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import DiskError, ModelError, UsageError
from oocbe.kernels.cpu.threads import run_all
from oocbe.model.semiring import Semiring
from oocbe.tables import disk
from oocbe.tables.chunk_files import PACKED
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.faults import passing
from oocbe.tables.folder_lock import LOCK_NAME, FolderLock
from oocbe.tables.layout import Layout
from oocbe.tables.limbs import greatest
from oocbe.tables.manifest import MANIFEST_NAME, Manifest
from oocbe.tables.numbers import VALUE_DTYPES, check_numbers
from oocbe.tables.scratch import remove_locked, remove_partial_folders

if TYPE_CHECKING:
    from oocbe.tables.chunk_store import NewArrays

LARGEST_CHUNK_ROWS = 1 << 26
"""A chunk's keys stay far below the 2 GiB that its codec can take."""


class GroupWriter:
    """Writes the arrays of one table and publishes them as a folder when its ``with`` block ends.

    The table appears under its name complete or not at all: everything is written into a hidden folder beside it,
    synchronised to disk, the manifest last, and then renamed. When the block ends with an exception (Ctrl-C included),
    the hidden folder is removed; that of a killed process is, by the next one that writes a table of this name.

    Parameters
    ----------
    words : arrays of keys beside that of values. version : of the format, which the manifest tells.
    limbs : of each value (:mod:`oocbe.tables.limbs`); 0 for plain numbers.
    budget : counts what is written and may refuse it; a table that was not finished is given back to it.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        chunk_rows: int,
        words: int,
        version: int,
        codec: str = PACKED,
        budget: DiskBudget | None = None,
        limbs: int = 0,
    ) -> None:
        self.path = Path(path)
        self.layout = layout
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.semiring = semiring
        self.rows = 0
        if self.dtype not in VALUE_DTYPES:
            raise ModelError(f"{path}: values must be {', '.join(d.name for d in VALUE_DTYPES)}, not {self.dtype}")
        if not 1 <= chunk_rows <= LARGEST_CHUNK_ROWS:
            raise UsageError(f"chunk_rows must be 1 to {LARGEST_CHUNK_ROWS:,}, not {chunk_rows:,}")
        self._chunk_rows = chunk_rows
        self._words = words
        self._limbs = limbs
        self._codec = codec
        self._manifest = Manifest(version=version)
        self._extent: tuple[int, int] | None = None
        self._written = 0
        self._arrays: NewArrays | None = None
        self._folder = self.path.parent / disk.partial_name(self.path.name)
        self._budget = DiskBudget(self.path.parent) if budget is None else budget
        self._manifest_bytes = 0
        self._lock: FolderLock | None = None

    def __enter__(self) -> Self:
        passing("table:begin")
        self._refuse_existing()
        remove_partial_folders(self.path)
        try:
            disk.make_new_folder(self._folder)
            with suppress(DiskError):  # where the file system has no locks, what a killed process leaves has to stay
                self._lock = FolderLock.take(self._folder)
        except BaseException as error:  # Ctrl-C included: the block does not begin, so nothing ends it
            self._give_up()
            if isinstance(error, OSError):
                raise self._disk_error(error) from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            try:
                self._give_up()
            finally:
                if self._lock is not None:
                    self._lock.release()

    def _give_up(self) -> None:
        """Remove what was written, unless it was published."""
        if self._folder.exists():
            remove_locked(self._folder)
            taken = sum(record.size for record in self._manifest.files.values())
            self._budget.take(-taken - self._manifest_bytes, self.path)

    def _finish(self) -> None:
        """Write what is left and publish; called when the block ends."""
        raise NotImplementedError

    def _widen(self, values: NDArray[Any]) -> None:
        """Enter integers that are written into the least and greatest value; refuse floats that no table holds."""
        if self.dtype.kind == "f":
            check_numbers(str(self.path), values, self.semiring)
        elif len(values):
            self._widen_to(0 if self._limbs else int(values.min()), greatest(values))

    def _widen_to(self, low: int, high: int) -> None:
        if self._extent is not None:
            low, high = min(low, self._extent[0]), max(high, self._extent[1])
        self._extent = low, high

    def _write_arrays(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows that start at a chunk's start: keys (words, rows), values (rows,)."""
        try:
            self._open_arrays().append(self._written, keys, values)
        except OSError as error:
            raise self._disk_error(error) from None
        self._written += len(values)

    def _open_arrays(self) -> NewArrays:
        from oocbe.tables.chunk_store import NewArrays

        if self._arrays is None:
            self._arrays = NewArrays(
                self._folder,
                self._manifest,
                self.layout,
                self._words,
                self.dtype,
                self._chunk_rows,
                self._codec,
                self._budget,
                self._limbs,
            )
        return self._arrays

    def _publish(self, attributes: dict[str, Any]) -> None:
        """Force all to disk, the manifest last, and give the folder its name."""
        try:
            arrays = self._open_arrays()
            arrays.describe({"oocbe": attributes})
            paths = sorted(self._folder.rglob("*"), reverse=True)
            folders = [path for path in paths if path.is_dir()]
            files = [path for path in paths if path not in folders and path.name != LOCK_NAME]
            # A disk takes several requests at a time.
            run_all(disk.synchronise, [(path,) for path in files])
            for folder in folders:
                disk.synchronise(folder)
            passing("table:data-synchronised")
            manifest = self._folder / MANIFEST_NAME
            content = self._manifest.render()
            self._budget.take(len(content), manifest)
            self._manifest_bytes = len(content)
            disk.write_file(manifest, content)
            passing("table:manifest-written")
            disk.synchronise(manifest)
            disk.synchronise(self._folder)
            passing("table:manifest-synchronised")
            self._refuse_existing()
            disk.rename(self._folder, self.path)
            passing("table:renamed")
            with suppress(OSError):  # nobody reads it
                (self.path / LOCK_NAME).unlink(missing_ok=True)
            disk.synchronise(self.path.parent)
            passing("table:done")
        except OSError as error:
            raise self._disk_error(error) from None

    def _refuse_existing(self) -> None:
        if self.path.exists() or self.path.is_symlink():
            raise UsageError(f"{self.path} exists already; remove it or choose another name")

    def _disk_error(self, error: OSError) -> Exception:
        """Sizes for a disk that is full or fails; other errors, such as a missing permission, say enough themselves."""
        if error.errno not in (*disk.FULL_DISK, errno.EIO, errno.EROFS):
            return error
        what = f"{self.path} ({self._written:,} of at least {self.rows:,} rows written)"
        return self._budget.failure(
            error, what, self.rows * (8 * self._words + self.dtype.itemsize * max(1, self._limbs))
        )
