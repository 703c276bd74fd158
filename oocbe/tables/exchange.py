"""Interoperation of tables: length, interfaces of Arrow and NumPy, data frames and Parquet.

Modules that need pyarrow, pandas or Polars are imported on use; none of them is a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocbe.errors import UsageError
from oocbe.model.semiring import MAX_SUM, Semiring
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.chunk_files import PACKED

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from oocbe.tables.columns import Domains, Rows
    from oocbe.tables.layout import Layout
    from oocbe.tables.object_path import Place
    from oocbe.tables.parquet_source import Source

VALUES = "value"
"""Default name of the column of values."""


class ColumnSettings(TypedDict, total=False):
    """How columns become a table; see :meth:`oocbe.Table.from_arrow`."""

    scope: Sequence[str] | None
    domains: Domains | None
    semiring: Semiring


class Exchanged:
    """Common interface of incomplete tables in memory and on disk: length, and export to Parquet."""

    if TYPE_CHECKING:
        layout: Layout
        semiring: Semiring

        rows: Any
        dtype: Any
        scope: Any

    def __len__(self) -> int:
        return int(self.rows)

    def __bool__(self) -> bool:
        return True  # a table without rows is valid: nothing is feasible

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


class InMemory(Exchanged):
    """Import and export of a table in memory."""

    if TYPE_CHECKING:
        keys: NDArray[np.uint64]
        values: NDArray[Any]

        def __init__(self, *parts: Any) -> None: ...

    def _rows(self, start: int, stop: int) -> Rows:
        return self.keys[:, start:stop], self.values[start:stop]

    @classmethod
    def from_arrow(
        cls,
        data: object,
        values: str = VALUES,
        *,
        scope: Sequence[str] | None = None,
        domains: Domains | None = None,
        semiring: Semiring = MAX_SUM,
    ) -> Self:
        """Make a table from an object with Arrow's interface (``__arrow_c_stream__``), or that of data frames.

        Columns of integers from 0 on are value indices. Text, truth values, categories and other integers are numbered
        by their labels, which the table keeps: dictionaries in their order, all others ascending.

        Parameters
        ----------
        data : a table of pyarrow, a data frame, a relation of DuckDB.
        values : name of the column of values, of integers (of 64 bits at most) or floats.
        scope : columns that are variables, the least significant first; None: all others in their order, except the
            nameless index of a pandas frame (``__index_level_0__``).
        domains : domain of each variable: its number of values, or its labels; None, or a missing name: found from the
            data. Tables that are to be joined need common domains (:func:`oocbe.common_domains`).
        semiring : combination and marginalisation.

        Raises
        ------
        ModelError : a column is missing or of another type, an entry is missing or outside its domain, a key occurs
            twice, or a number that tables cannot represent. UsageError : pyarrow is missing.

        Examples
        --------
        >>> import pyarrow
        >>> from oocbe.tables.table import Table
        >>> paints = pyarrow.table({"colour": ["red", "blue"], "coat": [0, 1], "value": [5, 7]})
        >>> table = Table.from_arrow(paints)
        >>> table.to_dict(), table.layout.labels
        ({(1, 0): 5, (0, 1): 7}, {'colour': ('blue', 'red')})
        """
        from oocbe.tables.arrow import arrow_table, column_of, numbers_of
        from oocbe.tables.columns import check_scope, sorted_rows
        from oocbe.tables.layout import check_integers

        given = arrow_table(data)
        what = "Arrow table"
        names = check_scope(given.column_names, values, scope, what)
        domains = domains or {}
        for name in names:
            if not isinstance(domain := domains.get(name, 1), int):
                check_integers(name, domain)
        columns = [column_of(name, given.column(name), what, domains.get(name)) for name in names]
        return cls(
            *sorted_rows(columns, numbers_of(values, given.column(values), what), domains, semiring, what),
            semiring,
            True,
        )

    @classmethod
    def from_pandas(cls, frame: pandas.DataFrame, values: str = VALUES, **settings: Unpack[ColumnSettings]) -> Self:
        """Make a table from a pandas data frame; see :meth:`from_arrow`. The index is ignored.

        Raises
        ------
        UsageError : not a pandas data frame, or pyarrow is missing. ModelError : as for :meth:`from_arrow`.
        """
        from oocbe.tables.frames import of_pandas

        return cls.from_arrow(of_pandas(frame), values, **settings)

    @classmethod
    def from_polars(cls, frame: polars.DataFrame, values: str = VALUES, **settings: Unpack[ColumnSettings]) -> Self:
        """Make a table from a Polars data frame; see :meth:`from_arrow`."""
        from oocbe.tables.frames import of_polars

        return cls.from_arrow(of_polars(frame), values, **settings)

    @classmethod
    def from_parquet(
        cls,
        source: Source,
        values: str = VALUES,
        *,
        scope: Sequence[str] | None = None,
        domains: Domains | None = None,
        semiring: Semiring = MAX_SUM,
        rename: Mapping[str, str] | None = None,
        drop_nulls: bool = False,
    ) -> Self:
        """Make a table in memory from a Parquet file, a folder of them, or several files; see :meth:`from_arrow`.

        For larger data: :meth:`oocbe.StoredTable.from_parquet`, which also explains ``rename`` and ``drop_nulls``.
        """
        from oocbe.tables.columns import check_scope
        from oocbe.tables.parquet_source import check_renamed, source_of

        found = source_of(source, rename, drop_nulls)
        check_renamed(rename, [found])
        names = check_scope(found.names, values, scope, found.what)
        return cls.from_arrow(found.whole([*names, values]), values, scope=names, domains=domains, semiring=semiring)

    def to_arrow(self, values: str = VALUES) -> pyarrow.Table:
        """A pyarrow.Table: one column per variable (dictionaries for labels), and one of values.

        Raises
        ------
        UsageError : a variable has the name of the values, labels are of several types, or pyarrow is missing.
        """
        from oocbe.tables.arrow import whole_table

        return whole_table(self.layout, (self.keys, self.values), values)

    def to_pandas(self, values: str = VALUES) -> pandas.DataFrame:
        """A pandas.DataFrame, labels as a Categorical; errors as for :meth:`to_arrow`."""
        from oocbe.tables.frames import to_pandas

        return to_pandas(self.layout, (self.keys, self.values), values)

    def to_polars(self, values: str = VALUES) -> polars.DataFrame:
        """A polars.DataFrame, text labels as an Enum; errors as for :meth:`to_arrow`."""
        from oocbe.tables.frames import to_polars

        return to_polars(self.layout, (self.keys, self.values), values)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.to_arrow().__dataframe__(nan_as_null, allow_copy)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """A structured array (rows,): one field of value indices per variable, and one of values."""
        from oocbe.tables.chunk_files import columns_of

        if copy is False:
            raise ValueError("rows are packed: an array of them is always a copy")
        if VALUES in self.layout:
            raise UsageError(f"a variable is called {VALUES!r}, like the values: use to_rows()")
        columns = columns_of(self.layout, self.keys)
        kinds: list[Any] = [(name, column.dtype) for name, column in zip(self.scope, columns, strict=True)]
        found = np.empty(self.rows, dtype=[*kinds, (VALUES, self.dtype)])
        for name, column in zip(self.scope, columns, strict=True):
            found[name] = column
        found[VALUES] = self.values
        return found if dtype is None else found.astype(dtype)


class OnDisk(Exchanged):
    """Import and export of a table on disk, in pieces."""

    if TYPE_CHECKING:
        create: Any
        open: Any
        chunks: Any
        read: Any
        path: Place
        duplicates: bool

    def refuse_duplicates(self) -> None:
        """Refuse (UsageError) a table with possibly repeated keys."""
        if self.duplicates:
            raise UsageError(
                f"{self.path}: a key may occur more than once; combine them: maximise(table, [], output=…)"
            )

    def _rows(self, start: int, stop: int) -> Rows:
        piece = self.read(start, stop)
        return piece.keys, piece.values

    @classmethod
    def from_parquet(
        cls,
        source: Source,
        path: str | Path,
        values: str = VALUES,
        *,
        scope: Sequence[str] | None = None,
        domains: Domains | None = None,
        semiring: Semiring = MAX_SUM,
        rename: Mapping[str, str] | None = None,
        drop_nulls: bool = False,
        duplicates: bool = False,
        memory: int | str | None = None,
        chunk_rows: int | None = None,
        codec: str = PACKED,
        overwrite: bool = False,
    ) -> Self:
        """Make a stored table from Parquet data of any size, batch by batch, in row order.

        Parameters
        ----------
        source : a Parquet file, a folder of them (partitions ``name=value`` are columns), or several files; or their
            URLs in an object store (``s3://bucket/folder``), read on demand.
        path : folder of the new table.
        values, scope, domains, semiring : as for :meth:`oocbe.Table.from_arrow`.
        rename : name of a column of the data to that of the variable (or of the values); all other arguments use the
            latter. A missing column is accepted if one with its new name exists.
        drop_nulls : whether to skip rows with a missing entry in any column read; otherwise they are refused.
        duplicates : whether a key may occur more than once, as is common if ``scope`` omits columns. Operators with an
            ``output`` combine such rows by the semiring, as SQL groups them; ``maximise(table, [])`` does nothing else.
            Otherwise two consecutive rows of one key are refused.
        memory : limit in bytes (or text such as ``2GiB``) on labels, rows and buffers; None: 80 % of the available
            memory.
        chunk_rows, codec, overwrite : as for :meth:`create`.

        Raises
        ------
        ModelError : as for :meth:`oocbe.Table.from_arrow`. UsageError : the path exists, the source is unreadable, or
            pyarrow is missing. FormatError : not a Parquet file. ResourceError : labels exceed the memory.
            DiskError : the disk is full.
        """
        from oocbe.tables.parquet import read_parquet
        from oocbe.tables.parquet_source import sparing

        with sparing():
            found = read_parquet(source, values, scope, domains, rename, drop_nulls, memory)
            rows = found.piece_rows if chunk_rows is None else chunk_rows
            with (
                closing(found.pieces),
                cls.create(
                    path,
                    found.layout,
                    found.dtype,
                    semiring,
                    chunk_rows=rows,
                    codec=codec,
                    overwrite=overwrite,
                    duplicates=duplicates,
                ) as writer,
            ):
                for keys, numbers in found.pieces:
                    check_deadline()
                    writer.append(keys, numbers)
        opened: Self = cls.open(path)
        return opened

    def to_arrow(self, values: str = VALUES) -> pyarrow.RecordBatchReader:
        """A pyarrow.RecordBatchReader of the rows, chunk by chunk; errors as for :meth:`oocbe.Table.to_arrow`."""
        from oocbe.tables.arrow import reader_of

        return reader_of(self.layout, self.dtype, ((piece.keys, piece.values) for piece in self.chunks()), values)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)
