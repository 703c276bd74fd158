"""Writing a stored table: chunks under a temporary name, then one rename."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import Semiring
from oocbe.tables.chunk_files import PACKED, ZSTD
from oocbe.tables.column_form import column_names
from oocbe.tables.columns import row_of
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.group import table_attributes
from oocbe.tables.group_writer import LARGEST_CHUNK_ROWS, GroupWriter
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import COLUMNS, ROWS

if TYPE_CHECKING:
    from oocbe.tables.new_arrays import PackedArrays

__all__ = ["CHUNK_ROWS", "LARGEST_CHUNK_ROWS", "StoredTableWriter"]

CHUNK_ROWS = 1 << 20
"""Default rows per chunk: 8 MiB of keys, enough for the full speed of disk and codec, and small relative to memory."""

FORMS = {PACKED: ROWS, ZSTD: COLUMNS}
"""Form of the table that each codec of chunks has."""


class StoredTableWriter(GroupWriter):
    """Collects rows into chunks and publishes them as a table at the end of its ``with`` block.

    Created by :meth:`oocbe.tables.stored.StoredTable.create`.
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
        limbs: int = 0,
        overwrite: bool = False,
        duplicates: bool = False,
    ) -> None:
        if codec not in FORMS:
            raise UsageError(f"chunks can be {', '.join(FORMS)}, not {codec!r}")
        if limbs and codec != PACKED:
            raise UsageError(f"counts of several limbs are written packed, not {codec!r}")
        form, words = FORMS[codec], layout.words
        super().__init__(path, layout, dtype, semiring, chunk_rows, words, form, codec, budget, limbs, overwrite)
        self.is_sorted = True
        self._duplicates = duplicates
        self._last_key = -1

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Append rows.

        Parameters
        ----------
        keys : uint64 (words, rows). values : (rows,) or (rows, limbs), of the table's dtype. Both may be reused after
            return.

        Raises
        ------
        ModelError : another shape or dtype, or, unless duplicates are allowed, a row with the key of the previous row.
        DiskError : the disk or the disk budget is exhausted.
        """
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
        self._widen(values)
        self.rows += len(values)
        self._collect(keys, values)

    @property
    def chunk_rows(self) -> int:
        """Rows of each chunk but the last one."""
        return self._chunk_rows

    def begin_packed(self, rows: int, edge_keys: tuple[int, int], extent: tuple[int, int] | None) -> int:
        """Begin the next chunk, sorted, whose packed columns :meth:`write_packed` writes; returns its number.

        Parameters
        ----------
        rows : of the chunk; :attr:`chunk_rows`, or fewer in the last one.
        edge_keys : keys of its first and its last row, each as one number (word 0 least significant).
        extent : least and greatest value of integers.

        Raises
        ------
        ModelError : the first key equals that of the previous row.
        """
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
        self._packed_arrays().extend(rows)
        return len(self._manifest.first_keys) - 1

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a column (key words, and the values last) of a chunk begun by :meth:`begin_packed`; thread-safe.

        Raises
        ------
        DiskError : the disk or the disk budget is exhausted.
        """
        try:
            self._packed_arrays().write_packed(chunk, column, words)
        except OSError as error:
            raise self._disk_error(error) from None

    def _packed_arrays(self) -> PackedArrays:
        return cast("PackedArrays", self._open_arrays())  # begin_packed implies packed arrays

    def _check_order(self, keys: NDArray[np.uint64]) -> None:
        from oocbe.kernels.cpu.pairs.ascent import ASCENDING, REPEATED, ascent  # imports Numba: needed for writing only

        first, order = key_number(keys, 0), ascent(keys)
        if not self._duplicates and (self._last_key == first or order == REPEATED):
            raise ModelError(
                f"{self.path}: a key occurs twice, at or after {row_of(self.rows)}; where that is meant, give "
                "duplicates=True where the table, or what it is joined of, is made"
            )
        self.is_sorted = self.is_sorted and order == ASCENDING and self._last_key < first
        self._last_key = key_number(keys, keys.shape[1] - 1)

    def _write(self, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows from the start of a chunk on."""
        super()._write(keys, values)
        for start in range(0, len(values), self._chunk_rows):
            self._manifest.first_keys.append(key_number(keys, start))
            self._manifest.last_keys.append(key_number(keys, min(start + self._chunk_rows, len(values)) - 1))

    def _finish(self) -> None:
        if self._arrays is None:
            # All rows fit in one chunk, which needs no more room than they take.
            self._chunk_rows = max(1, self._waiting)
        self._flush()
        self._publish(self._attributes())

    def _attributes(self) -> dict[str, Any]:
        chunk_rows, is_sorted = self._chunk_rows, self.is_sorted
        attributes = table_attributes(self.layout, self.semiring, self.dtype, self.rows, chunk_rows, is_sorted)
        if self._duplicates and not self.is_sorted:
            attributes["duplicates"] = True
        if self._limbs:
            attributes["limbs"] = self._limbs
        if self._codec == ZSTD:
            attributes["columns"] = column_names(self.layout)
        if self._extent is not None:
            attributes["extent"] = list(self._extent)
        return attributes
