"""Writers of stored tables: rows, or cells in order, are collected into chunks under a temporary name; then one rename.

Whole chunks are written from the caller's arrays; the rest of an append is copied, and waits for the next one. The
least and greatest value, and the feasible cells, are determined when chunks are written: a small append costs a copy.

Their base, also of the writers of tables of parts (:mod:`oocbe.tables.parts`), writes a hidden folder, forces it to
disk, then renames it. Files are recorded in the manifest, and chunks are encoded by several threads. The arrays form an
ordinary Zarr v3 group. Its metadata are a few lines of JSON, which are written here: importing Zarr takes half a
second.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import DiskError, ModelError, UsageError
from oocbe.kernels.cpu.threads import run_all
from oocbe.model.infeasible import feasible_mask
from oocbe.model.results.numerals import format_bytes
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import Semiring
from oocbe.model.settings.option_values import parse_boolean, parse_count, parse_integer
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.faults import fault_point
from oocbe.runtime.temporary_names import LOCK_NAME, temporary_beside
from oocbe.runtime.tracing.recorder import WRITER, span
from oocbe.runtime.urls import url_of
from oocbe.tables import disk
from oocbe.tables.chunk_files import (
    PACKED,
    ZSTD,
    array_metadata,
    arrays_of,
    codec_of,
    column_names,
    columns_of,
    encoded,
)
from oocbe.tables.columns import check_values, row_of
from oocbe.tables.disk import write_file
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.group import LARGEST_CHUNK_ROWS, table_attributes
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import COLUMNS, COMPLETE, MANIFEST_NAME, ROWS, FileRecord, Manifest
from oocbe.tables.numbers import VALUE_DTYPES, check_numbers, greatest
from oocbe.tables.table import check_kind


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

    form : of the table, stored in the manifest. budget, overwrite : see :class:`FolderSettings`.
    """

    _makes_parents = True
    _folder: Path

    def __init__(
        self, path: str | Path, form: str, *, budget: DiskBudget | None = None, overwrite: bool = False
    ) -> None:
        if (url := url_of(path)) is not None:
            raise UsageError(f"{url}: tables are made on disk; write it there, and upload it: table.upload({url!r})")
        self.path = Path(path)
        self.rows = 0
        self._manifest = Manifest(form=form)
        self._written = 0
        check_kind(budget, DiskBudget | None, "a DiskBudget")
        self._budget = budget or DiskBudget(self.path.parent)
        self._is_durable = not self._budget.is_scratch  # forced to disk before publication
        self._manifest_bytes = 0
        self._overwrite = parse_boolean("overwrite", overwrite)
        self._published = False
        self._takes_rows = False  # within the block, unless an append has failed
        self._temporary = ExitStack()

    def __enter__(self) -> Self:
        fault_point("table:begin")
        try:
            self._refuse_existing()
            if self._makes_parents:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = self._temporary.enter_context(temporary_beside(self.path, is_folder=True))
        except BaseException as error:  # Ctrl-C included; __exit__ will not run
            self._temporary.close()
            if isinstance(error, OSError):
                error = self._disk_error(error)
                if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                    raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None
                raise error from None
            raise
        self._takes_rows = True
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._takes_rows = False
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
        """Error with sizes for a full or failing disk; others, such as a missing permission, are returned as is."""
        if error.errno not in (*disk.FULL_DISK, errno.EIO, errno.EROFS):
            return error
        size, shown = self._size
        what = f"{self.path} ({self._written:,} of {shown} written)"
        return self._budget.failure(error, what, None if row_bytes is None else size * row_bytes)

    @property
    def _size(self) -> tuple[int, str]:
        """Size of the table as far as it is known, and as a text."""
        return self.rows, f"at least {self.rows:,} rows"


class ArrayFiles:
    """Writes the files of a table's arrays, enters each into the manifest, and counts its bytes in the disk budget.

    Files are written in place, as the whole folder has a temporary name until it is complete.

    root, manifest, budget : folder of the table, and where its files are entered and counted.
    arrays : dtype of each by its name, those of values last. chunk_rows : of each chunk but the last.
    """

    def __init__(
        self, root: Path, manifest: Manifest, budget: DiskBudget, arrays: Mapping[str, np.dtype[Any]], chunk_rows: int
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
            data = encoded(column, self._codec, self._chunk_rows)
        self._record(name, data)

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


CHUNK_ROWS = 1 << 20
"""Default rows per chunk: 8 MiB of keys, enough for the full speed of disk and codec, and small relative to memory."""

CHUNK_CELLS = 1 << 20
"""Default cells per chunk of a complete table."""

FORMS = {PACKED: ROWS, ZSTD: COLUMNS}
"""Form of the table that each codec of chunks has."""

LEAST_CHUNK_BYTES = 64
"""Least bytes of a chunk and its manifest record, with equal values; used to refuse oversized tables early."""


class RowSettings(FolderSettings, total=False):
    """Settings for writing a table of rows.

    chunk_rows : rows of each chunk but the last.
    codec : ``packed`` (:mod:`oocbe.tables.packed_codec`), or ``zstd`` (one array a variable), for any Zarr library.
    limbs : of each value (:mod:`oocbe.tables.numbers`); 0 for plain numbers.
    duplicates : whether a key may occur more than once.
    """

    chunk_rows: int
    codec: str
    limbs: int
    duplicates: bool


class CellSettings(FolderSettings, total=False):
    """Settings for writing a complete table; ``chunk_cells`` : cells of each chunk but the last."""

    chunk_cells: int


class TableWriter(FolderWriter):
    """Writes the arrays of one table, and publishes it at the end of its ``with`` block; otherwise as its base.

    chunk_rows : rows, or cells, of each chunk but the last. limbs : as for :class:`RowSettings`.
    form, settings : as for :class:`FolderWriter`.
    """

    is_sorted: bool | None = None
    """Whether the rows so far ascend; None: a complete table."""
    _duplicates = False

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        chunk_rows: int,
        form: str,
        limbs: int = 0,
        **settings: Unpack[FolderSettings],
    ) -> None:
        super().__init__(path, form, **settings)
        check_kind(layout, Layout, "a Layout")
        check_kind(semiring, Semiring, "a Semiring")
        self.layout, self.semiring = layout, semiring
        if not (known := [own for own in VALUE_DTYPES if own == dtype]):
            given = getattr(dtype, "__name__", dtype)
            raise ModelError(f"{path}: values must be {', '.join(d.name for d in VALUE_DTYPES)}, not {given}")
        self.dtype: np.dtype[Any] = known[0]
        self._chunk_rows = parse_integer("chunk_rows", chunk_rows, 1, LARGEST_CHUNK_ROWS)
        self._form, self._limbs = form, parse_integer("limbs", limbs)
        self._extent: tuple[int, int] | None = None
        self._arrays: ArrayFiles | None = None
        self._pending: list[tuple[NDArray[np.uint64], NDArray[Any]]] = []
        self._waiting = 0  # rows that are pending

    @property
    def chunk_rows(self) -> int:
        """Rows, or cells, of each chunk but the last one."""
        return self._chunk_rows

    def _widen(self, values: NDArray[Any]) -> None:
        """Update the least and greatest value by new integers; refuse floats that tables cannot represent."""
        if self.dtype.kind == "f":
            check_numbers(str(self.path), values, self.semiring)
        elif len(values):
            self._widen_to(0 if self._limbs else int(values.min()), greatest(values))

    def _widen_to(self, low: int, high: int) -> None:
        if self._extent is not None:
            low, high = min(low, self._extent[0]), max(high, self._extent[1])
        self._extent = low, high

    def _collect(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Take the next rows: whole chunks are written from the caller's arrays, the rest is copied."""
        if self._waiting + len(values) < self._chunk_rows:
            self._keep(keys, values)
            return
        head = -self._waiting % self._chunk_rows
        if head:
            self._pending.append((keys[:, :head], values[:head]))
            self._flush()
        whole = head + (len(values) - head) // self._chunk_rows * self._chunk_rows
        if whole > head:
            self._write(keys[:, head:whole], values[head:whole])
        if whole < len(values):
            self._keep(keys[:, whole:], values[whole:])

    def _keep(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        self._pending.append((keys.copy(), values.copy()))
        self._waiting += len(values)

    def _flush(self) -> None:
        """Write the rows that wait."""
        keys, values = ([pair[i] for pair in self._pending] for i in (0, 1))
        self._pending, self._waiting = [], 0
        if values:
            self._write(np.concatenate(keys, axis=1), np.concatenate(values))

    def _write(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows from the start of a chunk on: keys (words, rows), values (rows,)."""
        self._takes_rows = False
        self._widen(values)
        try:
            columns = columns_of(self.layout, keys) if self._form == COLUMNS else list(keys)
            self._open_arrays().append([*columns, *([values] if values.ndim == 1 else values.T)])
        except OSError as error:
            raise self._disk_error(error) from None
        self._written += len(values)
        self._takes_rows = True

    def _refuse_rows(self, *arrays: object) -> None:
        for array in arrays:
            check_kind(array, np.ndarray, "an array of NumPy")
        if not self._takes_rows:
            raise UsageError(f"{self.path}: rows are appended in a writer's `with` block, before any of them fails")

    def _open_arrays(self) -> ArrayFiles:
        if self._arrays is None:
            arrays = arrays_of(self.layout, self.dtype, self._form, self._limbs)
            self._arrays = ArrayFiles(self._folder, self._manifest, self._budget, arrays, self._chunk_rows)
        return self._arrays

    def _finish(self) -> None:
        """Force all to disk, the manifest last, and rename the folder."""
        self._refuse_rows()
        self._flush()
        try:
            self._open_arrays().describe({"oocbe": self._attributes()})
            paths = sorted(self._folder.rglob("*"), reverse=True)
            folders = [path for path in paths if path.is_dir()]
            self._seal([path for path in paths if path not in folders and path.name != LOCK_NAME], folders)
        except OSError as error:
            raise self._disk_error(error) from None

    def _attributes(self) -> dict[str, Any]:
        of_table = self.layout, self.semiring, self.dtype, self.rows, self._chunk_rows
        attributes = table_attributes(*of_table, self.is_sorted, self._limbs, self._extent)
        if self._duplicates and not self.is_sorted:
            attributes["duplicates"] = True
        if self._form == COLUMNS:
            attributes["columns"] = column_names(self.layout)
        return attributes

    def _disk_error(self, error: OSError, row_bytes: int | None = None) -> Exception:
        words = 0 if self._form == COMPLETE else self.layout.words
        return super()._disk_error(error, row_bytes or 8 * words + self.dtype.itemsize * max(1, self._limbs))


class StoredTableWriter(TableWriter):
    """Collects rows into chunks and publishes them as a table at the end of its ``with`` block.

    Created by :meth:`oocbe.tables.stored.StoredTable.create`.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        *,
        chunk_rows: int = CHUNK_ROWS,
        codec: str = PACKED,
        limbs: int = 0,
        duplicates: bool = False,
        **settings: Unpack[FolderSettings],
    ) -> None:
        if not isinstance(codec, str) or codec not in FORMS:
            raise UsageError(f"chunks can be {', '.join(FORMS)}, not {codec!r}")
        if limbs and codec != PACKED:
            raise UsageError(f"counts of several limbs are written packed, not {codec!r}")
        super().__init__(path, layout, dtype, semiring, chunk_rows, FORMS[codec], limbs, **settings)
        self.is_sorted = True
        self._duplicates = parse_boolean("duplicates", duplicates)
        self._last_key = -1

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Append rows.

        keys : uint64 (words, rows). values : (rows,) or (rows, limbs), of the table's dtype. Both may be reused after
            return.
        Raises ModelError: another shape or dtype, a value beyond its domain, or, unless duplicates are allowed, a row
        with the previous one's key; UsageError: outside of the block, or after a failed append; DiskError: the disk or
        its budget is exhausted.
        """
        self._refuse_rows(keys, values)
        if keys.dtype != np.uint64 or keys.ndim != 2 or keys.shape[0] != self.layout.words:
            raise ModelError(
                f"{self.path}: keys must be uint64 ({self.layout.words}, rows), not {keys.dtype} {keys.shape}"
            )
        shape = (keys.shape[1], self._limbs) if self._limbs else (keys.shape[1],)
        if values.dtype != self.dtype or values.shape != shape:
            raise ModelError(f"{self.path}: values must be {self.dtype} {shape}, not {values.dtype} {values.shape}")
        if len(values) == 0:
            return
        self._check_order(keys)
        self.rows += len(values)
        self._collect(keys, values)

    def begin_packed(self, rows: int, edge_keys: tuple[int, int], extent: tuple[int, int] | None) -> int:
        """Begin the next chunk, sorted, whose packed columns :meth:`write_packed` writes; returns its number.

        rows : of the chunk; :attr:`chunk_rows`, or fewer in the last one.
        edge_keys : keys of its first and its last row, each as one number (word 0 least significant).
        extent : least and greatest value of integers.
        Raises ModelError: the first key equals that of the previous row. UsageError: the writer has another codec.
        """
        if self._form != ROWS:
            raise UsageError(f"{self.path}: packed chunks need codec {PACKED!r}, not {codec_of(self._form)!r}")
        if self._pending or self._written % self._chunk_rows or not 0 < rows <= self._chunk_rows:
            raise ModelError(f"{self.path}: {rows:,} rows are no chunk behind {self.rows:,} rows")
        if self._last_key == edge_keys[0]:
            raise ModelError(f"{self.path}: a key occurs twice, at {row_of(self.rows)}")
        if self._arrays is None:
            self._chunk_rows = rows
        self.is_sorted = self.is_sorted and self._last_key < edge_keys[0]
        self._last_key = edge_keys[1]
        if extent is not None:
            self._widen_to(*extent)
        self._manifest.first_keys.append(edge_keys[0])
        self._manifest.last_keys.append(edge_keys[1])
        self.rows += rows
        self._written += rows
        self._open_arrays().extend(rows)
        return len(self._manifest.first_keys) - 1

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a column (key words, and the values last) of a chunk begun by :meth:`begin_packed`; thread-safe.

        Raises DiskError: the disk or the disk budget is exhausted.
        """
        try:
            self._open_arrays().write_packed(chunk, column, words)
        except OSError as error:
            raise self._disk_error(error) from None

    def _check_order(self, keys: NDArray[np.uint64]) -> None:
        from oocbe.kernels.cpu.pairs.sort import ASCENDING, REPEATED, ascent, exceeds_domains  # imports Numba

        if exceeds_domains(keys, self.layout.checks):
            check_values(f"{self.path}: of the rows from {self.rows:,} on", self.layout.unpack(keys), self.layout)
            raise ModelError(f"{self.path}: a key has bits that are no variable's, at or after {row_of(self.rows)}")
        first, order = key_number(keys, 0), ascent(keys)
        if not self._duplicates and (self._last_key == first or order == REPEATED):
            raise ModelError(
                f"{self.path}: a key occurs twice, at or after {row_of(self.rows)}; where that is meant, give "
                "duplicates=True where the table, or what it is joined of, is made"
            )
        self.is_sorted = self.is_sorted and order == ASCENDING and self._last_key < first
        self._last_key = key_number(keys, keys.shape[1] - 1)

    def _write(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        super()._write(keys, values)
        for start in range(0, len(values), self._chunk_rows):
            self._manifest.first_keys.append(key_number(keys, start))
            self._manifest.last_keys.append(key_number(keys, min(start + self._chunk_rows, len(values)) - 1))

    def _finish(self) -> None:
        if self._arrays is None:
            # All rows fit in one chunk, which needs no more room than they take.
            self._chunk_rows = max(1, self._waiting)
        super()._finish()


class CompleteTableWriter(TableWriter):
    """Collects cells into chunks and publishes them as a complete table at the end of its ``with`` block.

    Created by :meth:`oocbe.tables.stored.StoredCompleteTable.create`. ``rows`` counts the feasible cells.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        *,
        chunk_cells: int = CHUNK_CELLS,
        **settings: Unpack[FolderSettings],
    ) -> None:
        chunk_cells = min(parse_count("chunk_cells", chunk_cells), layout.complete_rows)
        super().__init__(path, layout, dtype, semiring, chunk_cells, COMPLETE, **settings)
        self.cells, cells = 0, layout.complete_rows
        needed = -(-cells // chunk_cells) * LEAST_CHUNK_BYTES
        if needed > self._budget.available:  # no compression can make it fit
            raise DiskError(
                f"{self.path}: a complete table of {cells:,} values takes {format_bytes(needed)} or more, even if they "
                f"are all alike; {self._budget.sizes()}. Keep it as rows"
            )

    def append(self, values: NDArray[Any]) -> None:
        """Append the values of the next cells.

        values : (cells,) of the table's dtype; may be reused after return.
        Raises ModelError: another dtype, or more cells than the table has; UsageError: as for rows; DiskError: the disk
        or the disk budget is exhausted; TimeLimitError, RequestedEndError: the current deadline passed.
        """
        self._refuse_rows(values)
        if values.dtype != self.dtype or values.ndim != 1 or self.cells + len(values) > self.layout.complete_rows:
            raise ModelError(
                f"{self.path}: {self.layout.complete_rows:,} values of {self.dtype}, {self.cells:,} of which are there,"
                f" go on with no {values.dtype} {values.shape}"
            )
        step = max(1, tuning().many_rows // self._chunk_rows) * self._chunk_rows
        for begin in range(0, len(values), step):
            check_deadline()
            part = values[begin : begin + step]
            self.cells += len(part)
            self._collect(np.empty((0, len(part)), dtype=np.uint64), part)

    @property
    def _size(self) -> tuple[int, str]:
        return self.layout.complete_rows, f"{self.layout.complete_rows:,} cells"

    def _widen(self, values: NDArray[Any]) -> None:
        """Count the feasible cells, and their least and greatest value."""
        feasible = feasible_mask(values, self.semiring.combination, self.semiring.marginalisation)
        count = int(np.count_nonzero(feasible))
        self.rows += count
        super()._widen(values if count == len(values) else values[feasible])

    def _finish(self) -> None:
        if self.cells != self.layout.complete_rows:
            raise ModelError(f"{self.path}: {self.cells:,} of {self.layout.complete_rows:,} cells were written")
        super()._finish()
