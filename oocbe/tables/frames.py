"""Data frames of pandas and Polars, read as Arrow tables."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from oocbe.errors import ModelError, UsageError
from oocbe.runtime.framed import pyarrow
from oocbe.tables.arrow import arrow_table


def of_pandas(frame: Any) -> Any:
    """A pyarrow.Table of a pandas data frame, without its index; columns may have numbers as names.

    Raises UsageError: not a pandas data frame, or pyarrow is missing; ModelError: a column of entries of several types.
    """
    if not hasattr(frame, "iterrows"):
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
    schema = {} if hasattr(frame, "collect") else getattr(frame, "schema", {})  # lazy frames are refused below
    for name in (name for name, kind in schema.items() if str(kind) in ("Int128", "UInt128")):
        import polars

        for kind in (polars.Int64, polars.UInt64):
            with suppress(polars.exceptions.InvalidOperationError):
                frame = frame.with_columns(frame[name].cast(kind))
                break
        else:
            ends = f"{frame[name].min()} to {frame[name].max()}"
            raise ModelError(
                f"data frame: column {name} has integers from {ends}, beyond 64 bits with a sign, and without"
            )
    return arrow_table(frame)


def arrow_of(given: Any) -> Any:
    """A pyarrow.Table of a data frame of pandas or Polars, also lazy, or of an object with Arrow's interface; None for
    others. Errors as of :func:`of_pandas`, :func:`of_polars`.
    """
    if hasattr(given, "set_axis"):
        return of_pandas(given)
    given = given.collect() if hasattr(type(given), "collect_schema") and hasattr(given, "collect") else given
    return arrow_table(given) if any(hasattr(given, f"__arrow_c_{name}__") for name in ("stream", "array")) else None
