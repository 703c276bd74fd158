"""Writing a table's folder: arrays under a temporary name, with checksums, then one rename.

Common base of the writers of incomplete (:mod:`oocbe.tables.writer`) and complete tables
(:mod:`oocbe.tables.complete_writer`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.model.semiring import Semiring
from oocbe.runtime.temporary_names import LOCK_NAME
from oocbe.tables.chunk_files import KEY_NAMES, PACKED, ZSTD, value_names
from oocbe.tables.column_form import column_dtype, column_names
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.folder_writer import FolderWriter
from oocbe.tables.layout import Layout
from oocbe.tables.limbs import greatest
from oocbe.tables.numbers import VALUE_DTYPES, check_numbers

if TYPE_CHECKING:
    from oocbe.tables.new_arrays import NewArrays

LARGEST_CHUNK_ROWS = 1 << 26
"""Maximum rows of a chunk: keeps its keys far below the codec's limit of 2 GiB."""


class GroupWriter(FolderWriter):
    """Writes the arrays of one table; otherwise as its base.

    Parameters
    ----------
    words : arrays of keys beside that of values. form, budget, overwrite : as for :class:`FolderWriter`.
    limbs : of each value (:mod:`oocbe.tables.limbs`); 0 for plain numbers.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        chunk_rows: int,
        words: int,
        form: str,
        codec: str = PACKED,
        budget: DiskBudget | None = None,
        limbs: int = 0,
        overwrite: bool = False,
    ) -> None:
        super().__init__(path, form, budget, overwrite)
        self.layout = layout
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.semiring = semiring
        if self.dtype not in VALUE_DTYPES:
            raise ModelError(f"{path}: values must be {', '.join(d.name for d in VALUE_DTYPES)}, not {self.dtype}")
        if not 1 <= chunk_rows <= LARGEST_CHUNK_ROWS:
            raise UsageError(f"chunk_rows must be 1 to {LARGEST_CHUNK_ROWS:,}, not {chunk_rows:,}")
        self._chunk_rows = chunk_rows
        self._words = words
        self._limbs = limbs
        self._codec = codec
        self._extent: tuple[int, int] | None = None
        self._arrays: NewArrays | None = None
        self._pending: list[tuple[NDArray[np.uint64], NDArray[Any]]] = []
        self._waiting = 0  # rows that are pending

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
        try:
            self._open_arrays().append(self._written, keys, values)
        except OSError as error:
            raise self._disk_error(error) from None
        self._written += len(values)

    def _open_arrays(self) -> NewArrays:
        if self._arrays is None:
            self._arrays = self._new_arrays()
        return self._arrays

    def _new_arrays(self) -> NewArrays:
        from oocbe.tables.new_arrays import FileRecorder, PackedArrays  # imports Numba: needed for writing only

        files = FileRecorder(self._folder, self._manifest, self._budget)
        if self._codec == ZSTD:
            names, dtypes = column_names(self.layout), [column_dtype(size) for size in self.layout.sizes]
        else:
            words = range(self._words)
            names, dtypes = [KEY_NAMES.format(word) for word in words], [np.dtype(np.uint64) for _ in words]
        of_values = value_names(self._limbs)
        names, dtypes = [*names, *of_values], [*dtypes, *[self.dtype] * len(of_values)]
        if self._codec == PACKED:
            return PackedArrays(files, names, dtypes, self._chunk_rows)
        from oocbe.tables.zarr_arrays import ZarrArrays

        return ZarrArrays(self._folder, files, self.layout, names, dtypes, self._chunk_rows)

    def _publish(self, attributes: dict[str, Any]) -> None:
        """Force all to disk, the manifest last, and rename the folder."""
        try:
            arrays = self._open_arrays()
            arrays.describe({"oocbe": attributes})
            paths = sorted(self._folder.rglob("*"), reverse=True)
            folders = [path for path in paths if path.is_dir()]
            self._seal([path for path in paths if path not in folders and path.name != LOCK_NAME], folders)
        except OSError as error:
            raise self._disk_error(error) from None

    def _disk_error(self, error: OSError, row_bytes: int | None = None) -> Exception:
        return super()._disk_error(error, row_bytes or 8 * self._words + self.dtype.itemsize * max(1, self._limbs))
