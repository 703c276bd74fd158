"""Conversion of tables to and from data frames of pandas and Polars, without pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError, UsageError
from oocbe.model.semiring import Semiring
from oocbe.tables.chunk_files import columns_of
from oocbe.tables.columns import Column, Domains, Rows, SortedRows, check_scope, row_of, sorted_rows
from oocbe.tables.decimals import listed_decimals
from oocbe.tables.layout import Layout, label_array


def frame_rows(
    frame: Any,
    column_of: Callable[[str, Any, str], Column],
    values: str,
    scope: Sequence[str] | None,
    domains: Domains | None,
    semiring: Semiring,
) -> SortedRows:
    """The rows of a data frame of either library, sorted.

    Parameters
    ----------
    frame : with named columns. column_of : :func:`pandas_column` or :func:`polars_column`.
    values, scope, domains, semiring : as for :meth:`oocbe.Table.from_arrow`.

    Raises
    ------
    ModelError : an entry is missing, of a wrong type or outside its domain, or a key occurs twice.
    """
    what = "data frame"
    columns = [column_of(name, frame[name], what) for name in check_scope(list(frame.columns), values, scope, what)]
    return sorted_rows(columns, _frame_values(values, frame[values], what), domains, semiring, what)


def pandas_column(name: str, series: Any, what: str) -> Column:
    """A pandas series of a variable.

    Raises
    ------
    ModelError : a missing entry, or a type that labels cannot have.
    """
    import pandas

    _refuse_missing(series.isna().to_numpy(), name, what)
    if isinstance(series.dtype, pandas.CategoricalDtype):
        return Column(name, series.cat.codes.to_numpy(), _labels(name, series.cat.categories.to_numpy(), what))
    kind = series.dtype.kind if hasattr(series.dtype, "kind") else "O"
    if kind == "M":
        if (series != series.dt.normalize()).any():
            raise ModelError(f"{what}: column {name} has times of day; cast it to dates, or to text, before")
        series, kind = series.dt.strftime("%Y-%m-%d"), "O"
    if kind in "iu":
        return Column(name, series.to_numpy(dtype=np.uint64 if kind == "u" else np.int64))
    if kind not in "ObUT":
        raise ModelError(f"{what}: column {name} is of type {series.dtype}; variables are integers, text or categories")
    try:
        codes, different = pandas.factorize(series.to_numpy(dtype=bool if kind == "b" else object), sort=True)
    except TypeError as error:
        raise ModelError(f"{what}: column {name} has entries of several types ({error})") from None
    return Column(name, codes.astype(np.int64), _labels(name, np.asarray(different), what))


def polars_column(name: str, series: Any, what: str) -> Column:
    """A Polars series of a variable; errors as for :func:`pandas_column`."""
    import polars

    _refuse_missing(series.is_null().to_numpy(), name, what)
    if series.dtype.is_integer():
        return Column(name, _of_64_bits(series, name, what, unsigned=True).to_numpy())
    if series.dtype == polars.Boolean:
        return Column(name, series.cast(polars.Int32).to_numpy(), (False, True))
    if series.dtype in (polars.Date, polars.Categorical):
        series = series.cast(polars.String)
    if series.dtype == polars.String:
        series = series.cast(polars.Enum(series.unique().sort()))
    if series.dtype != polars.Enum:
        raise ModelError(f"{what}: column {name} is of type {series.dtype}; variables are integers, text or categories")
    labels = tuple(series.dtype.categories.to_list())
    return Column(name, series.to_physical().to_numpy().astype(np.int64), labels)


def _frame_values(name: str, series: Any, what: str) -> NDArray[Any]:
    """Values (rows,) of a series of either library; ModelError for missing entries and other types."""
    missing = series.isna() if hasattr(series, "isna") else series.is_null()
    _refuse_missing(missing.to_numpy(), name, what)
    is_decimal = str(series.dtype).startswith("Decimal")  # to_numpy of Polars would convert decimals to floats
    numbers: NDArray[Any] = _of_64_bits(series, name, what).to_numpy()
    if numbers.dtype == object or is_decimal:
        listed = series.to_list()
        if (decimals := listed_decimals(name, listed, what)) is not None:
            return decimals
        try:
            numbers = np.array(listed)
        except ValueError:
            numbers = np.empty(0, dtype=object)
        if numbers.dtype.kind == "f" and any(type(x) is int and int(float(x)) != x for x in listed):
            raise ModelError(f"{what}: column {name} has integers, among others, that no float64 holds; cast it before")
    if numbers.dtype.kind not in "iufb":
        raise ModelError(f"{what}: column {name} is of type {series.dtype}; values are integers or floats")
    return numbers


def to_pandas(layout: Layout, rows: Rows, values: str) -> Any:
    """A pandas.DataFrame: one column per variable (a Categorical for labels), and one of values."""
    pandas = _module("pandas")
    columns: dict[str, Any] = {}
    for name, indices in zip(layout.scope, columns_of(layout, rows[0]), strict=True):
        labels = layout.labels.get(name)
        columns[name] = indices if labels is None else pandas.Categorical.from_codes(indices, list(labels))
    return pandas.DataFrame({**columns, _free(values, layout): rows[1]})


def to_polars(layout: Layout, rows: Rows, values: str) -> Any:
    """A polars.DataFrame: one column per variable (an Enum for text labels), and one of values."""
    polars = _module("polars")
    columns = []
    for name, indices in zip(layout.scope, columns_of(layout, rows[0]), strict=True):
        labels = layout.labels.get(name)
        if labels is None:
            columns.append(polars.Series(name, indices))
            continue
        text = all(isinstance(label, str) for label in labels)
        integers = label_array(name, labels)
        own = polars.Series(
            name, list(labels) if integers is None else integers, dtype=polars.Enum(list(labels)) if text else None
        )
        columns.append(own.gather(indices))
    return polars.DataFrame([*columns, polars.Series(_free(values, layout), rows[1])])


def _module(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise UsageError(f"{name} is missing; install it to get a table as its data frame") from None


def _free(values: str, layout: Layout) -> str:
    if values in layout:
        raise UsageError(f"the column of values cannot be called {values!r}: that is a variable; name another")
    return values


def _refuse_missing(missing: NDArray[np.bool_], name: str, what: str) -> None:
    if missing.any():
        row = int(np.argmax(missing))
        raise ModelError(f"{what}: column {name}, {row_of(row)}: nothing is there (missing); drop or fill such rows")


def _of_64_bits(series: Any, name: str, what: str, unsigned: bool = False) -> Any:
    """The series, 128-bit integers of Polars cast to 64 bits; ModelError if they do not fit.

    unsigned : whether 64 bits without a sign are allowed.
    """
    if str(series.dtype) not in ("Int128", "UInt128"):
        return series
    import polars

    for kind in (polars.Int64, polars.UInt64) if unsigned else (polars.Int64,):
        with suppress(polars.exceptions.InvalidOperationError):
            return series.cast(kind)
    raise ModelError(
        f"{what}: column {name} has integers from {series.min()} to {series.max()}, beyond 64 bits with a sign"
        + (", and without" if unsigned else "")
    )


def _labels(name: str, found: NDArray[Any], what: str) -> tuple[str | int | bool, ...]:
    labels = tuple(found.tolist())
    if not all(isinstance(label, str | int) for label in labels):
        raise ModelError(f"{what}: column {name} has categories that are neither text nor integers")
    return labels
