"""Atomic writing of a folder: a hidden folder, forced to disk, then renamed.

Common base of the writers of tables (:mod:`oocbe.tables.writer`) and of tables of parts (:mod:`oocbe.tables.parts`).

Files are recorded in the manifest, and chunks are encoded by several threads. The arrays form an ordinary Zarr v3
group. Its metadata are a few lines of JSON, which are written here: importing Zarr takes half a second.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.kernels.cpu.threads import run_all
from oocbe.runtime.faults import fault_point
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.runtime.tracing.recorder import WRITER, span
from oocbe.runtime.urls import url_of
from oocbe.tables import disk
from oocbe.tables.chunk_files import CODEC_NAMES, PACKED, codec_of
from oocbe.tables.disk import write_file
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.manifest import MANIFEST_NAME, FileRecord, Manifest

ZSTD_LEVEL = 3
"""Level of compression of the form of columns."""

CODEC_SETTINGS: dict[str, dict[str, Any]] = {
    "bytes": {"configuration": {"endian": "little"}},
    "zstd": {"configuration": {"level": ZSTD_LEVEL, "checksum": False}},
}
"""Settings of Zarr's codecs, by their names."""


class FolderSettings(TypedDict, total=False):
    """Settings for writing a folder.

    budget : counts the bytes written and may refuse them; an unfinished table is returned to it. Tables of a scratch
        budget are not synchronised. None: limited by the disk only.
    overwrite : whether the complete table replaces an existing one of its name.
    """

    budget: DiskBudget | None
    overwrite: bool


class FolderWriter:
    """Writes a table's folder and publishes it at the end of its ``with`` block.

    The table appears under its name complete or not at all: everything is written into a hidden folder beside it,
    forced to disk, the manifest last, and then renamed. If the block ends with an exception (Ctrl-C included), the
    hidden folder is removed; that of a killed process is removed by the next writer of a table of this name.

    form : of the table, stored in the manifest. settings : see :class:`FolderSettings`.
    """

    _makes_parents = True
    _folder: Path

    def __init__(self, path: str | Path, form: str, **settings: Unpack[FolderSettings]) -> None:
        if (url := url_of(path)) is not None:
            raise UsageError(f"{url}: tables are made on disk; write it there, and upload it: table.upload({url!r})")
        self.path = Path(path)
        self.rows = 0
        self._manifest = Manifest(form=form)
        self._written = 0
        self._budget = settings.get("budget") or DiskBudget(self.path.parent)
        self._is_durable = not self._budget.is_scratch  # forced to disk before publication
        self._manifest_bytes = 0
        self._overwrite = settings.get("overwrite", False)
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

    def __exit__(self, kind: object, *_: object) -> None:
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


class ArrayFiles:
    """Writes the files of a table's arrays, enters each into the manifest, and counts its bytes in the disk budget.

    Files are written in place, as the whole folder has a temporary name until it is complete.

    root, manifest, budget : folder of the table, and where its files are entered and counted.
    arrays : dtype of each by its name, those of values last. chunk_rows : of each chunk but the last.
    """

    def __init__(
        self,
        root: Path,
        manifest: Manifest,
        budget: DiskBudget,
        arrays: Mapping[str, np.dtype[Any]],
        chunk_rows: int,
    ) -> None:
        self._root, self._manifest, self._budget = root, manifest, budget
        self._arrays, self._names, self._chunk_rows = arrays, list(arrays), chunk_rows
        self._codec = codec_of(manifest.form)
        self._made = {root}
        self._rows = 0

    def append(self, columns: Sequence[NDArray[Any]]) -> None:
        """Write the next rows, a column (rows,) of each array; the rows before them fill whole chunks."""
        first, count = self._rows // self._chunk_rows, len(columns[-1])
        self._rows += count
        calls = [
            (f"{name}/c/{first + chunk}", column[low : low + self._chunk_rows])
            for chunk, low in enumerate(range(0, count, self._chunk_rows))
            for name, column in zip(self._names, columns, strict=True)
        ]
        run_all(self._write, calls)

    def extend(self, rows: int) -> None:
        """Count rows whose chunks :meth:`write_packed` writes."""
        self._rows += rows

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a packed chunk of a column; thread-safe for different chunks."""
        self._record(f"{self._names[column]}/c/{chunk}", words.data.cast("B"))

    def describe(self, attributes: dict[str, Any]) -> None:
        """Write the metadata of the arrays, and the attributes of the group."""
        for name, dtype in self._arrays.items():
            self._describe(f"{name}/", array_metadata(self._rows, dtype, self._chunk_rows, self._codec))
        self._describe("", {"attributes": attributes, "zarr_format": 3, "node_type": "group"})

    def _describe(self, folder: str, metadata: dict[str, Any]) -> None:
        self._record(f"{folder}zarr.json", json.dumps(metadata, indent=2).encode())

    def _write(self, name: str, column: NDArray[Any]) -> None:
        with span(WRITER, "encode", bytes=column.nbytes):
            data = self._packed(column) if self._codec == PACKED else self._compressed(column)
        self._record(name, data)

    def _packed(self, column: NDArray[Any]) -> memoryview:
        from oocbe.tables.codec import encode  # imports Numba: needed for writing only

        return encode(column).data.cast("B")

    def _compressed(self, column: NDArray[Any]) -> bytes:
        """A chunk as zstd compresses it; behind the array's end it is padded with zeros, as Zarr expects."""
        from numcodecs import zstd

        padded = np.zeros(self._chunk_rows, dtype=column.dtype)
        padded[: len(column)] = column
        compressed: bytes = zstd.compress(padded, ZSTD_LEVEL)
        return compressed

    def _record(self, key: str, data: bytes | memoryview) -> None:
        """Write and record a file; thread-safe for different files."""
        path = self._root / key
        self._budget.take(len(data), path)
        with span(WRITER, "checksum of file"):
            self._manifest.files[key] = FileRecord.of(data)
        if path.parent not in self._made:
            # Never the root: after an error it is removed while other threads are still writing.
            for folder in reversed([f for f in path.parents if f.is_relative_to(self._root) and f != self._root]):
                folder.mkdir(exist_ok=True)
            self._made.add(path.parent)
        write_file(path, data)
        if "/c/" in key:
            fault_point("table:chunk")


def array_metadata(rows: int, dtype: np.dtype[Any], chunk_rows: int, codec: str = PACKED) -> dict[str, Any]:
    """Zarr v3 metadata of an array (Zarr v3 core specification, "Array metadata"); ``codec``: of its chunks."""
    return {
        "shape": [rows],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_rows]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": dtype.type(0).item(),
        "codecs": [{"name": name, **CODEC_SETTINGS.get(name, {})} for name in CODEC_NAMES[codec]],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
