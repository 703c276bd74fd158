"""Data frames of pandas and Polars: read as Arrow tables, and made of a table without pyarrow."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from oocbe.errors import ModelError, UsageError
from oocbe.runtime.framed import module_of_frames, pyarrow
from oocbe.tables.arrow import arrow_table
from oocbe.tables.chunk_files import columns_of
from oocbe.tables.columns import Rows
from oocbe.tables.layout import Layout, label_array


def of_pandas(frame: Any) -> Any:
    """A pyarrow.Table of a pandas data frame, without its index; columns may have numbers as names.

    Raises UsageError: not a pandas data frame, or pyarrow is missing; ModelError: a column of entries of several types.
    """
    if not hasattr(frame, "set_axis"):
        raise UsageError(f"expected a data frame of pandas, not {type(frame).__name__}; make one (pandas.DataFrame)")
    arrow = pyarrow()
    names, arrays = [str(name) for name in frame.columns], []
    for place, name in enumerate(names):
        try:
            with suppress(OverflowError):  # of Python's integers beyond int64
                arrays.append(arrow.Array.from_pandas(frame.iloc[:, place]))
                continue
            arrays.append(arrow.Array.from_pandas(frame.iloc[:, place], type=arrow.uint64()))
        except (arrow.ArrowException, OverflowError) as error:
            raise ModelError(f"data frame: column {name} cannot be read ({error}); cast it before") from None
    return arrow.table(arrays, names)


def of_polars(frame: Any) -> Any:
    """A pyarrow.Table of Polars, 128-bit integers in 64; UsageError: no pyarrow; ModelError: beyond 64 bits."""
    for name, kind in frame.schema.items():
        if str(kind) in ("Int128", "UInt128"):
            frame = frame.with_columns(_of_64_bits(frame[name], name))
    return arrow_table(frame)


def is_frame(given: object) -> bool:
    """Whether an object is a data frame, or a table of Arrow: all that :func:`arrow_of` reads."""
    return any(hasattr(given, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"))


def arrow_of(frame: Any) -> Any:
    """A pyarrow.Table of pandas, Polars or Arrow's interface; errors as :func:`of_pandas`, :func:`of_polars`."""
    return of_pandas(frame) if hasattr(frame, "set_axis") else arrow_table(frame)


def to_pandas(layout: Layout, rows: Rows, values: str) -> Any:
    """A pandas.DataFrame: one column per variable (a Categorical for labels), and one of values."""
    pandas = module_of_frames("pandas")
    columns: dict[str, Any] = {}
    for name, indices in zip(layout.scope, columns_of(layout, rows[0]), strict=True):
        labels = layout.labels.get(name)
        columns[name] = indices if labels is None else pandas.Categorical.from_codes(indices, list(labels))
    return pandas.DataFrame({**columns, _free(values, layout): rows[1]})


def to_polars(layout: Layout, rows: Rows, values: str) -> Any:
    """A polars.DataFrame: one column per variable (an Enum for text labels), and one of values."""
    polars = module_of_frames("polars")
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


def _free(values: str, layout: Layout) -> str:
    if values in layout:
        raise UsageError(f"the column of values cannot be called {values!r}: that is a variable; name another")
    return values


def _of_64_bits(series: Any, name: str) -> Any:
    """A series of Polars cast to 64 bits, without a sign if need be; ModelError if they do not hold it."""
    import polars

    for kind in (polars.Int64, polars.UInt64):
        with suppress(polars.exceptions.InvalidOperationError):
            return series.cast(kind)
    raise ModelError(
        f"data frame: column {name} has integers from {series.min()} to {series.max()}, beyond 64 bits with a sign, "
        "and without"
    )
