"""Base of answers that become data frames, through Arrow: pyarrow is the only bridge, and no dependency."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from oocbe.errors import UsageError, install_hint
from oocbe.runtime.data_limit import data_limit


def pyarrow() -> Any:
    """The module pyarrow; UsageError where it is missing."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"Arrow and Parquet need pyarrow, which is missing; {install_hint('parquet')}")
    with data_limit.lifted():
        import pyarrow

    return pyarrow


def module_of_frames(name: str) -> Any:
    """The module ``pandas`` or ``polars``; UsageError where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise UsageError(f"{name} is missing; install it to get a table as its data frame") from None


class Framed:
    """An answer with rows and named columns; other libraries also read it by Arrow's interface."""

    index: Any = None
    """Of the rows in pandas, as of the frame that they answer; None: their numbers."""

    def _columns(self) -> Iterable[tuple[str, Any]]:
        """Names and contents: an array or a list; or a pair of int (rows,), -1 for no entry, and labels by number."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """A pyarrow.Table; labels are dictionaries, and absent ones null.

        Raises
        ------
        UsageError : pyarrow is missing, the answer has no rows to show, or two columns have one name.
        """
        arrow = pyarrow()
        columns: dict[str, Any] = {}
        for name, own in self._columns():
            if name in columns:
                raise UsageError(f"two columns are called {name!r}; rename that variable")
            if isinstance(own, tuple):
                numbers, labels = own
                shown = arrow.array(numbers, type=arrow.int32(), mask=numbers < 0)
                columns[name] = arrow.DictionaryArray.from_arrays(shown, arrow.array(labels, type=arrow.string()))
            else:
                columns[name] = arrow.array(own)
        return arrow.table(columns)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; columns of labels are Categoricals. Errors as for :meth:`to_arrow`."""
        module_of_frames("pandas")
        frame = self.to_arrow().to_pandas()
        return frame if self.index is None else frame.set_axis(self.index)

    def to_polars(self) -> Any:
        """A polars.DataFrame. Errors as for :meth:`to_arrow`."""
        return module_of_frames("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)
