"""Interoperation of tables: length, interfaces of Arrow and NumPy, data frames and Parquet.

Modules that need pyarrow, pandas or Polars are imported on use; none of them is a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from oocbe.model.semiring import Semiring
from oocbe.tables.layout import Scoped

if TYPE_CHECKING:
    from oocbe.tables.columns import Domains, Rows

VALUES = "value"
"""Default name of the column of values."""


class ColumnSettings(TypedDict, total=False):
    """Settings for making a table of columns; see :meth:`oocbe.Table.from_arrow`."""

    scope: Sequence[str] | None
    domains: Domains | None
    semiring: Semiring


class Exchanged(Scoped):
    """Common interface of incomplete tables in memory and on disk: length, and export to Parquet."""

    if TYPE_CHECKING:
        semiring: Semiring

        rows: Any
        dtype: Any
        limbs: Any
        find: Any
        to_arrow: Any

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory: key words and value."""
        return int(8 * self.layout.words + self.dtype.itemsize * max(1, self.limbs))

    def __len__(self) -> int:
        return int(self.rows)

    def __bool__(self) -> bool:
        return True  # a table without rows is valid: nothing is feasible

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def value_at(self, assignment: Mapping[str, int] | Sequence[int]) -> int | float | None:
        """Value of one assignment (by name, or in scope order); None if it has no row.

        Raises
        ------
        ModelError : a value outside its domain, a missing variable, or a wrong number of values.
        """
        found: int | float | None = self.find(self.layout.pack(np.array([self.layout.indices_of(assignment)]))[:, 0])
        return found

    def to_parquet(
        self,
        path: str | Path,
        values: str = VALUES,
        *,
        memory: int | str | None = None,
        rows_per_file: int | None = None,
        compression: str = "snappy",
        overwrite: bool = False,
    ) -> Path | str:
        """Write the rows as Parquet, piece by piece: one column per variable (dictionaries for labels), and one of
        values.

        Parameters
        ----------
        path : the file, which appears when complete; or the URL of an object, such as ``s3://bucket/table.parquet``,
            which is written to a scratch folder first.
        values : name of the column of values.
        memory : limit in bytes (or text such as ``2GiB``) on the working memory; None: 80 % of the available memory.
        rows_per_file : rows per file; ``path`` becomes a folder of files ``part-00000.parquet`` and so on.
        compression : a name of pyarrow's: ``snappy``, ``zstd``, ``none`` and others.
        overwrite : whether to replace a file at the path, or a folder of such files, after writing.

        Raises
        ------
        UsageError : the path exists (with ``overwrite``: as a folder with other contents), cannot be written, or
            pyarrow is missing. CorruptDataError : a stored chunk is damaged. DiskError : the object store, or the
            scratch folder, refuses the data.

        Returns
        -------
        The path, or the URL as text.
        """
        from oocbe.tables.parquet import WrittenRows, write_parquet
        from oocbe.tables.parquet_source import sparing

        how = (values, memory, rows_per_file, compression)
        with sparing():
            return write_parquet(WrittenRows(self.layout, self.dtype, self.rows, self._rows, *how), path, overwrite)

    def _rows(self, start: int, stop: int) -> Rows:
        """Keys and values of rows ``start`` to ``stop``, the end excluded."""
        raise NotImplementedError
