"""Where a table's arrays are, and moving them: main memory (NumPy's arrays) or a device (CuPy's).

Tables move here and nowhere else. The arrays of kernels alone, which are no tables, move by
:meth:`oocbe.kernels.interface.Backend.upload` and :meth:`~oocbe.kernels.interface.Backend.download`, and pieces that
stream by :mod:`oocbe.kernels.cuda.transfer.conveyor`; both end in the same two copies as this module's functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.arrays import host_array, host_arrays, is_device_array
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.memory import Holder
    from oocbe.kernels.interface import Backend

AnyForm = TypeVar("AnyForm", bound=Table | CompleteTable)


def is_on_device(table: Table | CompleteTable) -> bool:
    """Whether a table's rows, or values, are in a device's memory."""
    return is_device_array(table.values)


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
    arrays = _arrays(table)
    return _with(table, dict(zip(arrays, host_arrays(list(arrays.values())), strict=True)))


def to_device(table: AnyForm) -> AnyForm:
    """The table with its rows, or values, in device memory; itself where they are.

    Raises
    ------
    ResourceError : device memory ran out.
    """
    if is_on_device(table):
        return table
    from oocbe.kernels.cuda.backend import CudaBackend

    return _with(table, {name: CudaBackend.upload(array) for name, array in _arrays(table).items()})


def to_kernels(table: AnyForm, kernels: Backend) -> AnyForm:
    """The table with its rows, or values, where some kernels work; itself where they are.

    Raises
    ------
    ResourceError : device memory ran out.
    """
    return _with(table, {name: kernels.upload(array) for name, array in _arrays(table).items()})


def host_values(table: CompleteTable, most_bytes: int) -> Iterator[NDArray[Any]]:
    """Values of a complete table in main memory: all of them where they are there, else part by part."""
    if not is_on_device(table):
        yield table.values
        return
    most = max(1, most_bytes // table.dtype.itemsize)
    for low in range(0, table.cells, most):
        yield host_array(table.values[low : low + most])


def host_rows(table: Table, most_bytes: int) -> Iterator[Table]:
    """Rows in main memory, in their order: the table where they are there, else part by part."""
    if not is_on_device(table):
        yield table
        return
    most = max(1, most_bytes * table.rows // max(1, table.nbytes))
    for low in range(0, table.rows, most):
        rows = slice(low, low + most)
        yield to_host(replace(table, keys=table.keys[:, rows], values=table.values[rows]))


def _arrays(table: Table | CompleteTable) -> dict[str, Any]:
    """The arrays that make up a table, by the names of its attributes."""
    return {name: getattr(table, name) for name in ("keys", "values") if hasattr(table, name)}


def _with(table: AnyForm, arrays: dict[str, Any]) -> AnyForm:
    """The table with other arrays; itself where they are its own."""
    return table if all(getattr(table, name) is array for name, array in arrays.items()) else replace(table, **arrays)


def find_row(table: Table, key: NDArray[np.uint64]) -> int:
    """Row of a key uint64 (words,) in a sorted table, wherever it is; -1 where there is none."""
    low, keys = 0, table.keys
    if is_on_device(table):
        from oocbe.kernels.cuda.pairs.search import rows_around

        low, keys = rows_around(keys, key)
    row = row_in_main_memory(keys, key)
    return row if row < 0 else low + row


def host_rows_between(table: Table, first: NDArray[np.uint64], last: NDArray[np.uint64]) -> Table:
    """Neighbouring rows of a sorted table on the device, with all that have a key from one to another, in main memory.

    first, last : uint64 (words,).
    """
    from oocbe.kernels.cuda.pairs.search import rows_around

    low, keys = rows_around(table.keys, first, last)
    return replace(table, keys=keys, values=host_array(table.values[low : low + keys.shape[1]]))


def row_in_main_memory(keys: NDArray[np.uint64], key: NDArray[np.uint64]) -> int:
    """Row of a key uint64 (words,) in sorted keys uint64 (words, rows); -1 where it is not there.

    The backward pass asks for one row of each message: loading a compiled loop takes longer than finding all of them.
    """
    low, high = 0, keys.shape[1]
    for word in range(len(keys) - 1, -1, -1):  # the most significant first
        column, wanted = keys[word, low:high], key[word]
        low, high = low + int(column.searchsorted(wanted)), low + int(column.searchsorted(wanted, "right"))
    return low if low < high else -1
