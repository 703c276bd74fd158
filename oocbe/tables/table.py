"""A table in memory: packed keys, values, and the layout of the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.model.model_checks import as_array
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import MAX_SUM, Semiring
from oocbe.runtime.framed import module_of_frames
from oocbe.runtime.pictures.shown import Shown
from oocbe.tables.columns import Domains, Rows, check_scope, check_values, given_values, in_order, sorted_rows
from oocbe.tables.exchange import VALUES, ColumnSettings, Exchanged
from oocbe.tables.layout import Layout, as_domains, check_integers
from oocbe.tables.numbers import VALUE_DTYPES, check_numbers, limbs_of

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from oocbe.runtime.pictures.plots import Picture
    from oocbe.tables.parquet_source import Source


@dataclass(frozen=True, eq=False)
class Table(Shown, Exchanged):
    """An incomplete table: feasible assignments of a scope, each with a value. Keys are unique.

    Attributes
    ----------
    layout : scope and bit fields.
    keys : uint64 (words, rows), C-contiguous, word 0 least significant.
    values : int32, int64, float32 or float64 (rows,); counts of several limbs are int64 (rows, limbs), see
        :mod:`oocbe.tables.numbers`.
    semiring : combination and marginalisation for these values.
    is_sorted : whether rows are in ascending order of their keys.
    """

    layout: Layout
    keys: NDArray[np.uint64]
    values: NDArray[np.generic]
    semiring: Semiring = MAX_SUM
    is_sorted: bool = False

    def __post_init__(self) -> None:
        if self.keys.dtype != np.uint64 or self.keys.ndim != 2 or self.keys.shape[0] != self.layout.words:
            raise ModelError(
                f"table over {self.layout.scope}: keys must be uint64 of shape ({self.layout.words}, rows), "
                f"not {self.keys.dtype} of shape {self.keys.shape}"
            )
        if self.values.dtype not in VALUE_DTYPES:
            names = ", ".join(d.name for d in VALUE_DTYPES)
            raise ModelError(f"table over {self.layout.scope}: values must be {names}, not {self.values.dtype}")
        of_limbs = self.values.ndim == 2 and self.semiring.counts and self.values.dtype == np.int64
        if self.values.shape[: 1 if of_limbs else None] != (self.keys.shape[1],):
            raise ModelError(
                f"table over {self.layout.scope}: {self.keys.shape[1]} keys, values of shape {self.values.shape}"
            )

    @classmethod
    def from_rows(
        cls, scope: Mapping[str, int], tuples: ArrayLike, values: ArrayLike, semiring: Semiring = MAX_SUM
    ) -> Table:
        """Make a table from rows of value indices.

        Parameters
        ----------
        scope : domain size by variable name, the least significant first.
        tuples : integers (rows, len(scope)), columns in scope order, each below its domain size.
        values : numbers (rows,); Python integers become int64, floats float64; arrays keep a dtype of tables.
        semiring : combination and marginalisation.

        Raises
        ------
        ModelError : a value outside its domain, a tuple that occurs twice, inconsistent shapes, or numbers that tables
            cannot represent (:mod:`oocbe.tables.numbers`). ValueRangeError : an integer beyond int64.
        """
        if not isinstance(scope, Mapping):
            raise ModelError(
                f"scope: {scope!r:.100}: give the domain size of each variable by name, such as {{'a': 2}}"
            )
        layout = Layout(tuple(scope), tuple(scope.values()))
        rows, numbers = _matching(layout, tuples, values)
        check_numbers(f"table over {layout.scope}", numbers, semiring)
        check_values(f"table over {layout.scope}", rows, layout)
        keys, order = in_order(layout.pack(rows), np.arange(len(rows)), layout)
        if keys.shape[1] > 1 and (keys[:, 1:] == keys[:, :-1]).all(axis=0).any():
            raise ModelError(f"table over {layout.scope}: a tuple occurs twice")
        return cls(layout, keys, np.ascontiguousarray(numbers[order]), semiring, is_sorted=True)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.keys.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def limbs(self) -> int:
        """Limbs of each value; 0 for plain numbers."""
        return limbs_of(self.values)

    @property
    def density(self) -> float:
        """Rows divided by the rows of a complete table."""
        return self.rows / self.layout.complete_rows

    def to_rows(self) -> tuple[NDArray[np.int64], NDArray[np.generic]]:
        """Value indices int64 (rows, len(scope)) and values (rows,), in stored order."""
        return self.layout.unpack(self.keys), self.values

    def to_dict(self) -> dict[tuple[int, ...], int | float]:
        """Values by assignment (in scope order); for small tables and tests."""
        tuples, values = self.to_rows()
        return {tuple(t): v.item() for t, v in zip(tuples.tolist(), values, strict=True)}

    def find(self, key: NDArray[np.uint64]) -> int | float | None:
        """Value of one packed key, uint64 (words,); None if it has no row. Linear in the rows."""
        hits = np.flatnonzero((self.keys == key[:, np.newaxis]).all(axis=0))
        if len(hits) == 0:
            return None
        found: int | float = self.values[hits[0]].item()
        return found

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        scope = ", ".join(f"{name} ({size})" for name, size in zip(self.scope, self.layout.sizes, strict=True))
        return f"Table of {self.rows:,} rows", [
            ("variables (values)", scope),
            ("part of all assignments", self.density),
            ("values", f"{self.dtype}, {self.values.min()} to {self.values.max()}" if self.rows else f"{self.dtype}"),
            ("bytes", format_bytes(self.nbytes)),
            ("semiring", str(self.semiring)),
            ("sorted", self.is_sorted),
        ]

    def plot(self) -> Picture:
        """Histogram of the values; UsageError without matplotlib."""
        from oocbe.runtime.pictures.plots import histogram

        return histogram(f"{', '.join(self.scope)}: {self.rows:,} rows", self.values)

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
        what: str = "Arrow table",
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
        semiring : combination and marginalisation. what : name of the data, for errors.

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

        given = arrow_table(data)
        names = check_scope(given.column_names, values, scope, what)
        domains = as_domains(domains)
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
        module_of_frames("pandas")
        return self.to_arrow(values).to_pandas()

    def to_polars(self, values: str = VALUES) -> polars.DataFrame:
        """A polars.DataFrame, labels as a Categorical; errors as for :meth:`to_arrow`."""
        return module_of_frames("polars").from_arrow(self.to_arrow(values))

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

    def __repr__(self) -> str:
        return describe_table("Table", self.layout, self.rows, self.nbytes, self.values.dtype, self.semiring)


def _matching(layout: Layout, tuples: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Rows int64 (rows, variables) and their values (rows,); ModelError for other shapes or types."""
    what = f"table over {layout.scope}"
    rows, numbers = as_array(f"{what}: tuples", tuples), given_values(what, values)
    if rows.size == 0 and numbers.size == 0:
        rows = np.empty((0, len(layout.scope)), dtype=np.int64)
    if rows.shape != (len(rows) if rows.ndim else 0, len(layout.scope)) or numbers.shape != (len(rows),):
        raise ModelError(
            f"table over {layout.scope}: tuples of shape {rows.shape} and values of shape {numbers.shape}; (rows, "
            f"{len(layout.scope)}) and (rows,) are wanted"
        )
    if rows.size and rows.dtype.kind not in "iub":
        raise ModelError(f"{what}: tuples are value indices, integers, not {rows.dtype}")
    return rows.astype(np.int64, copy=False), numbers


def check_kind(
    table: object, kind: type | UnionType, wanted: str = "a table of rows in memory (to_rows, to_table)"
) -> None:
    """Refuse (UsageError) what is no table of a kind."""
    if not isinstance(table, kind):
        raise UsageError(f"expected {wanted}, not {type(table).__name__}")


def describe_table(
    kind: str, layout: Layout, rows: int, nbytes: int, dtype: np.dtype[np.generic], semiring: Semiring
) -> str:
    """One-line description of a table: scope, rows, density, bytes."""
    names = layout.scope if len(layout.scope) <= 8 else (*layout.scope[:6], f"… {len(layout.scope) - 6} more")
    density = rows / layout.complete_rows
    return (
        f"<{kind} ({', '.join(names)}): {rows:,} rows, density {density:.3g}, {format_bytes(nbytes)}, "
        f"{layout.bits} key bits, {dtype.name}, {semiring}>"
    )
