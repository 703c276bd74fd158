"""Where a table's arrays are: in main memory (NumPy's), or on a device (CuPy's)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.memory import Holder

AnyForm = TypeVar("AnyForm", bound=Table | CompleteTable)


def is_on_device(table: Table | CompleteTable) -> bool:
    """Whether a table's rows, or values, are in a device's memory."""
    return not isinstance(table.values, np.ndarray)


def stays_on_device(table: Table | CompleteTable, holder: Holder) -> bool:
    """Whether a table that is only asked for single rows from now on is on the device and may stay there.

    holder : asked to move it where this thread runs out of device memory.
    """
    if not is_on_device(table):
        return False
    from oocbe.kernels.cuda.transfer import memory

    memory.held_by(holder)
    return memory.used_bytes() <= tuning().device_used_share * memory.limit_bytes()


def to_host(table: AnyForm) -> AnyForm:
    """The table with its rows, or values, in main memory; itself where they are."""
    if not is_on_device(table):
        return table
    from oocbe.kernels.cuda.transfer.home import bring_home

    arrays: dict[str, Any] = {name: getattr(table, name) for name in ("keys", "values") if hasattr(table, name)}
    arrays = dict(zip(arrays, bring_home(list(arrays.values())), strict=True))
    return replace(table, **arrays)


def values_at_home(table: CompleteTable, most_bytes: int) -> Iterator[NDArray[Any]]:
    """Values of a complete table in main memory: all of them where they are there, else part by part."""
    if not is_on_device(table):
        yield table.values
        return
    from oocbe.kernels.cuda.transfer.home import bring_home

    most = max(1, most_bytes // table.dtype.itemsize)
    for low in range(0, table.cells, most):
        yield bring_home([table.values[low : low + most]])[0]


def rows_at_home(table: Table, most_bytes: int) -> Iterator[Table]:
    """The same for rows, in their order."""
    if not is_on_device(table):
        yield table
        return
    most = max(1, most_bytes * table.rows // max(1, table.nbytes))
    for low in range(0, table.rows, most):
        rows = slice(low, low + most)
        yield to_host(replace(table, keys=table.keys[:, rows], values=table.values[rows]))


def to_device(table: Table) -> Table:
    """The table with its rows in device memory; itself where they are.

    Raises
    ------
    ResourceError : device memory ran out.
    """
    if is_on_device(table):
        return table
    from oocbe.kernels.cuda.device import cupy
    from oocbe.kernels.cuda.transfer.memory import with_retry

    upload = with_retry(cupy().asarray)
    return replace(table, keys=upload(table.keys), values=upload(table.values))


def find_row(table: Table, key: NDArray[np.uint64]) -> int:
    """Row of a key uint64 (words,) in a sorted table, wherever it is; -1 where there is none."""
    from oocbe.kernels.cpu.pairs.search import find_row as find_in_main_memory

    low, keys = 0, table.keys
    if is_on_device(table):
        from oocbe.kernels.cuda.pairs.search import rows_around

        low, keys = rows_around(keys, key)
    row = int(find_in_main_memory(keys, key))
    return row if row < 0 else low + row
