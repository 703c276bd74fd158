"""Writing a stored table: chunks under a temporary name, then one rename."""

from __future__ import annotations

import errno
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.semiring import Semiring
from oocbe.tables import disk
from oocbe.tables.chunk_files import BLOSC, PACKED
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.faults import passing
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import MANIFEST_NAME, Manifest
from oocbe.tables.table import VALUE_DTYPES

if TYPE_CHECKING:
    from oocbe.tables.chunk_store import NewArrays

CHUNK_ROWS = 1 << 20
"""Default rows a chunk: 8 MiB of keys, large enough for full disk and codec speed, small against any memory budget."""

LARGEST_CHUNK_ROWS = 1 << 26
"""A chunk's keys stay far below the 2 GiB that its codec can take."""


class StoredTableWriter:
    """Collects rows into chunks and publishes them as a table when its ``with`` block ends.

    Made by :meth:`oocbe.tables.stored.StoredTable.create`. The table appears under its name complete or not at all:
    everything is written into a hidden folder beside it, synchronised to disk, the manifest last, and then renamed.
    When the block ends with an exception (Ctrl-C included), the hidden folder is removed.

    ``budget`` counts what is written and may refuse it; a table that was not finished is given back to it.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        chunk_rows: int = CHUNK_ROWS,
        codec: str = PACKED,
        budget: DiskBudget | None = None,
    ) -> None:
        self.path = Path(path)
        self.layout = layout
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.semiring = semiring
        self.rows = 0
        self.is_sorted = True
        if self.dtype not in VALUE_DTYPES:
            raise ModelError(f"{path}: values must be {', '.join(d.name for d in VALUE_DTYPES)}, not {self.dtype}")
        if not 1 <= chunk_rows <= LARGEST_CHUNK_ROWS:
            raise UsageError(f"chunk_rows must be 1 to {LARGEST_CHUNK_ROWS:,}, not {chunk_rows:,}")
        if codec not in (PACKED, BLOSC):
            raise UsageError(f"chunks can be {PACKED} or {BLOSC}, not {codec!r}")
        self._chunk_rows = chunk_rows
        self._codec = codec
        self._manifest = Manifest(version=1 if codec == BLOSC else 2)
        self._extent: tuple[int, int] | None = None
        self._pending: list[tuple[NDArray[np.uint64], NDArray[Any]]] = []
        self._written = 0
        self._last_key = -1
        self._arrays: NewArrays | None = None
        self._folder = self.path.parent / disk.partial_name(self.path.name)
        self._budget = DiskBudget(self.path.parent) if budget is None else budget
        self._manifest_bytes = 0

    def __enter__(self) -> StoredTableWriter:
        passing("table:begin")
        self._refuse_existing()
        self._folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            if self._folder.exists():
                disk.remove(self._folder)
                taken = sum(record.size for record in self._manifest.files.values())
                self._budget.take(-taken - self._manifest_bytes, self.path)

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Add rows.

        Parameters
        ----------
        keys : uint64 (words, rows). values : (rows,) of the table's dtype. Both may be reused when this returns.

        Raises
        ------
        ModelError : another shape or dtype, or a row whose key equals that of the row before.
        DiskError : the disk or the disk budget is used up.
        """
        if keys.dtype != np.uint64 or keys.ndim != 2 or keys.shape[0] != self.layout.words:
            raise ModelError(
                f"{self.path}: keys must be uint64 ({self.layout.words}, rows), not {keys.dtype} {keys.shape}"
            )
        if values.dtype != self.dtype or values.shape != (keys.shape[1],):
            raise ModelError(
                f"{self.path}: values must be {self.dtype} ({keys.shape[1]},), not {values.dtype} {values.shape}"
            )
        if len(values) == 0:
            return
        self._check_order(keys)
        if self.dtype.kind == "i":
            extent = int(values.min()), int(values.max())
            self._extent = extent if self._extent is None else _union(self._extent, extent)
        self.rows += len(values)
        waiting = sum(len(v) for _, v in self._pending)
        if waiting + len(values) < self._chunk_rows:
            self._pending.append((keys.copy(), values.copy()))
            return
        # Fill the chunk begun, write whole chunks straight from the caller's arrays, keep the rest.
        head = -waiting % self._chunk_rows
        if waiting:
            self._pending.append((keys[:, :head], values[:head]))
            self._flush()
        else:
            head = 0
        whole = head + (len(values) - head) // self._chunk_rows * self._chunk_rows
        if whole > head:
            self._write(keys[:, head:whole], values[head:whole])
        if whole < len(values):
            self._pending.append((keys[:, whole:].copy(), values[whole:].copy()))

    @property
    def chunk_rows(self) -> int:
        """Rows of each chunk but the last one."""
        return self._chunk_rows

    def begin_packed(self, rows: int, edge_keys: tuple[int, int], extent: tuple[int, int] | None) -> int:
        """Announce the next chunk, sorted, whose packed columns follow by :meth:`write_packed`; returns its number.

        Parameters
        ----------
        rows : of the chunk; :attr:`chunk_rows`, or fewer in the last one.
        edge_keys : keys of its first and its last row, each as one number (word 0 least significant).
        extent : least and greatest value, where values are integers.

        Raises
        ------
        ModelError : the first key equals that of the row before.
        """
        if self._pending or self._written % self._chunk_rows or not 0 < rows <= self._chunk_rows:
            raise ModelError(f"{self.path}: {rows:,} rows are no chunk behind {self.rows:,} rows")
        if self._last_key == edge_keys[0]:
            raise ModelError(f"{self.path}: a key occurs twice, at row {self.rows:,}")
        if self._arrays is None:
            self._chunk_rows = rows
        self.is_sorted = self.is_sorted and self._last_key < edge_keys[0]
        self._last_key = edge_keys[1]
        if extent is not None:
            self._extent = extent if self._extent is None else _union(self._extent, extent)
        self._manifest.first_keys.append(edge_keys[0])
        self._manifest.last_keys.append(edge_keys[1])
        self.rows += rows
        self._written += rows
        self._open_arrays().extend(rows)
        return len(self._manifest.first_keys) - 1

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a column (key words, and the values last) of a chunk that was announced; from any thread.

        Raises
        ------
        DiskError : the disk or the disk budget is used up.
        """
        try:
            self._open_arrays().write_packed(chunk, column, words)
        except OSError as error:
            raise self._disk_error(error) from None

    def _check_order(self, keys: NDArray[np.uint64]) -> None:
        if self.is_sorted:
            from oocbe.kernels.cpu.ascent import ASCENDING, REPEATED, ascent  # Numba: only where rows are written

            first, order = key_number(keys, 0), ascent(keys)
            if self._last_key == first or order == REPEATED:
                raise ModelError(f"{self.path}: a key occurs twice, at or after row {self.rows:,}")
            self.is_sorted = order == ASCENDING and self._last_key < first
        self._last_key = key_number(keys, keys.shape[1] - 1)

    def _flush(self) -> None:
        keys, values = ([pair[i] for pair in self._pending] for i in (0, 1))
        self._pending = []
        if values:
            self._write(np.concatenate(keys, axis=1), np.concatenate(values))

    def _write(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows that start at a chunk's start."""
        try:
            self._open_arrays().append(self._written, keys, values)
        except OSError as error:
            raise self._disk_error(error) from None
        for start in range(0, len(values), self._chunk_rows):
            self._manifest.first_keys.append(key_number(keys, start))
            self._manifest.last_keys.append(key_number(keys, min(start + self._chunk_rows, len(values)) - 1))
        self._written += len(values)

    def _open_arrays(self) -> NewArrays:
        from oocbe.tables.chunk_store import NewArrays

        if self._arrays is None:
            self._arrays = NewArrays(
                self._folder,
                self._manifest,
                self.layout.words,
                self.dtype,
                self._chunk_rows,
                self._codec,
                self._budget,
            )
        return self._arrays

    def _finish(self) -> None:
        if self._arrays is None:
            # All rows fit in one chunk: it need not be longer than they are.
            self._chunk_rows = max(1, sum(len(v) for _, v in self._pending))
        self._flush()
        try:
            self._open_arrays().describe({"oocbe": self._attributes()})
            for path in sorted(self._folder.rglob("*"), reverse=True):
                disk.synchronise(path)
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
            disk.synchronise(self.path.parent)
            passing("table:done")
        except OSError as error:
            raise self._disk_error(error) from None

    def _attributes(self) -> dict[str, Any]:
        attributes = {
            "version": self._manifest.version,
            "scope": list(self.layout.scope),
            "sizes": list(self.layout.sizes),
            "words": self.layout.words,
            "semiring": self.semiring.name,
            "dtype": self.dtype.name,
            "rows": self.rows,
            "chunk_rows": self._chunk_rows,
            "sorted": self.is_sorted,
        }
        if self._extent is not None and self._codec == PACKED:
            attributes["extent"] = list(self._extent)
        return attributes

    def _refuse_existing(self) -> None:
        if self.path.exists() or self.path.is_symlink():
            raise UsageError(f"{self.path} exists already; remove it or choose another name")

    def _disk_error(self, error: OSError) -> Exception:
        """Sizes for a disk that is full or fails; other errors, such as a missing permission, say enough themselves."""
        if error.errno not in (*disk.FULL_DISK, errno.EIO, errno.EROFS):
            return error
        what = f"{self.path} ({self._written:,} of at least {self.rows:,} rows written)"
        return self._budget.failure(error, what, self.rows * (8 * self.layout.words + self.dtype.itemsize))


def key_number(keys: NDArray[np.uint64], row: int) -> int:
    """A row's key as one number, word 0 least significant."""
    return sum(int(word[row]) << (64 * place) for place, word in enumerate(keys))


def _union(extent: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(extent[0], other[0]), max(extent[1], other[1])
