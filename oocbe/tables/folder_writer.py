"""Atomic writing of a folder: a hidden folder, forced to disk, then renamed.

Common base of the writers of tables (:mod:`oocbe.tables.writer`) and of tables of parts (:mod:`oocbe.tables.parts`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from oocbe.errors import UsageError
from oocbe.kernels.cpu.threads import run_all
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.runtime.urls import url_of
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.faults import fault_point
from oocbe.tables.manifest import MANIFEST_NAME, Manifest


class FolderWriter:
    """Writes a table's folder and publishes it at the end of its ``with`` block.

    The table appears under its name complete or not at all: everything is written into a hidden folder beside it,
    forced to disk, the manifest last, and then renamed. If the block ends with an exception (Ctrl-C included), the
    hidden folder is removed; that of a killed process is removed by the next writer of a table of this name.

    Parameters
    ----------
    form : of the table, stored in the manifest.
    budget : counts the bytes written and may refuse them; an unfinished table is returned to it. Tables of a scratch
        budget are not synchronised.
    overwrite : whether the complete table replaces an existing one of its name.
    """

    _makes_parents = True
    _folder: Path

    def __init__(self, path: str | Path, form: str, budget: DiskBudget | None = None, overwrite: bool = False) -> None:
        if (url := url_of(path)) is not None:
            raise UsageError(f"{url}: tables are made on disk; write it there, and upload it: table.upload({url!r})")
        self.path = Path(path)
        self.rows = 0
        self._manifest = Manifest(form=form)
        self._written = 0
        self._budget = DiskBudget(self.path.parent) if budget is None else budget
        self._is_durable = not self._budget.is_scratch  # forced to disk before publication
        self._manifest_bytes = 0
        self._overwrite = overwrite
        self._published = False
        self._temporary = ExitStack()

    def __enter__(self) -> Self:
        fault_point("table:begin")
        self._refuse_existing()
        try:
            if self._makes_parents:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = self._temporary.enter_context(temporary_beside(self.path, is_folder=True))
        except BaseException as error:  # Ctrl-C included; __exit__ will not run
            self._temporary.close()
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
            self._temporary.close()
            if not self._published:
                self._budget.take(-self._bytes_taken - self._manifest_bytes, self.path)

    @property
    def _bytes_taken(self) -> int:
        """Bytes taken from the budget for the files so far, excluding the manifest."""
        return self._manifest.files_bytes

    def _finish(self) -> None:
        """Write the remaining rows and publish; called at the end of the block."""
        raise NotImplementedError

    def _seal(self, files: Iterable[Path], folders: Iterable[Path]) -> None:
        """Force these files and folders to disk, then the manifest, and rename the folder."""
        if self._is_durable:
            # A disk processes several requests at a time.
            run_all(disk.synchronise, [(path,) for path in files])
            for folder in folders:
                disk.synchronise(folder)
        fault_point("table:data-synchronised")
        manifest = self._folder / MANIFEST_NAME
        content = self._manifest.render()
        self._budget.take(len(content), manifest)
        self._manifest_bytes = len(content)
        disk.write_file(manifest, content)
        fault_point("table:manifest-written")
        if self._is_durable:
            disk.synchronise(manifest)
            disk.synchronise(self._folder)
        fault_point("table:manifest-synchronised")
        self._refuse_existing()
        if self._overwrite and self.path.exists():
            disk.replace_folder(self._folder, self.path)
        else:
            disk.rename(self._folder, self.path)
        self._published = True
        fault_point("table:renamed")
        if self._is_durable:
            disk.synchronise(self.path.parent)
        fault_point("table:done")

    def _refuse_existing(self) -> None:
        if not self.path.exists() and not self.path.is_symlink():
            return
        if not self._overwrite:
            raise UsageError(f"{self.path} exists already; remove it, choose another name, or overwrite it (overwrite)")
        if self.path.is_symlink() or not (self.path / MANIFEST_NAME).is_file():
            raise UsageError(f"{self.path} is no stored table, and nothing else is overwritten; choose another name")

    def _disk_error(self, error: OSError, row_bytes: int | None = None) -> Exception:
        """Error with sizes for a full or failing disk; other errors, such as a missing permission, are returned
        unchanged."""
        if error.errno not in (*disk.FULL_DISK, errno.EIO, errno.EROFS):
            return error
        what = f"{self.path} ({self._written:,} of at least {self.rows:,} rows written)"
        return self._budget.failure(error, what, None if row_bytes is None else self.rows * row_bytes)
