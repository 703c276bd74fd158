"""Transfer of tables between main memory (NumPy arrays) and device memory (CuPy arrays).

All tables are transferred here. Arrays of kernels that are not tables are transferred by
:meth:`oocbe.kernels.interface.Backend.upload` and :meth:`~oocbe.kernels.interface.Backend.download`, and streamed
pieces by :mod:`oocbe.kernels.cuda.transfer.conveyor`; both use the same two copy functions as this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import Backend, host_array, host_arrays, is_device_array
from oocbe.model.settings.tuning import tuning
from oocbe.tables.complete import CompleteTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.memory import Holder

AnyForm = TypeVar("AnyForm", bound=Table | CompleteTable)


def is_on_device(table: Table | CompleteTable) -> bool:
    """Whether a table's rows, or values, are in a device's memory."""
    return is_device_array(table.values)


def stays_on_device(table: Table | CompleteTable, holder: Holder) -> bool:
    """Whether a table, read by single rows from now on, may stay there; ``holder`` moves it for room."""
    if not is_on_device(table):
        return False
    from oocbe.kernels.cuda.transfer import memory

    memory.held_by(holder)
    return memory.used_bytes() <= tuning().device_used_share * memory.limit_bytes()


def to_host(table: AnyForm) -> AnyForm:
    """The table with its rows, or values, in main memory; itself if they are there already."""
    arrays = _arrays(table)
    return _with(table, dict(zip(arrays, host_arrays(list(arrays.values())), strict=True)))


def to_device(table: AnyForm) -> AnyForm:
    """The table with rows or values in device memory, possibly itself; ResourceError: no room there."""
    if is_on_device(table):
        return table
    from oocbe.kernels.cuda.backend import CudaBackend

    return _with(table, {name: CudaBackend.upload(array) for name, array in _arrays(table).items()})


def to_kernels(table: AnyForm, kernels: Backend) -> AnyForm:
    """The table in the memory of the kernels, itself if it is there; ResourceError: device memory ran out."""
    return _with(table, {name: kernels.upload(array) for name, array in _arrays(table).items()})


def host_values(table: CompleteTable, most_bytes: int) -> Iterator[NDArray[Any]]:
    """Values of a complete table in main memory: all at once if they are there, otherwise part by part."""
    if not is_on_device(table):
        yield table.values
        return
    most = max(1, most_bytes // table.dtype.itemsize)
    for low in range(0, table.cells, most):
        yield host_array(table.values[low : low + most])


def host_rows(table: Table, most_bytes: int) -> Iterator[Table]:
    """Rows in main memory, in order: the table itself if it is there, otherwise part by part."""
    if not is_on_device(table):
        yield table
        return
    most = max(1, most_bytes * table.rows // max(1, table.nbytes))
    for low in range(0, table.rows, most):
        rows = slice(low, low + most)
        yield to_host(replace(table, keys=table.keys[:, rows], values=table.values[rows]))


def _arrays(table: Table | CompleteTable) -> dict[str, Any]:
    """The arrays of a table, by the names of its attributes."""
    return {name: getattr(table, name) for name in ("keys", "values") if hasattr(table, name)}


def _with(table: AnyForm, arrays: dict[str, Any]) -> AnyForm:
    """The table with other arrays; itself if they are its own."""
    return table if all(getattr(table, name) is array for name, array in arrays.items()) else replace(table, **arrays)


def find_row(table: Table, key: NDArray[np.uint64]) -> int:
    """Row of a key uint64 (words,) in a sorted table, in main or device memory; -1 if there is none."""
    low, keys = 0, table.keys
    if is_on_device(table):
        from oocbe.kernels.cuda.pairs.extents import rows_around

        low, keys = rows_around(keys, key)
    begin, end = rows_in_main_memory(keys, key)
    return low + begin if begin < end else -1


def host_rows_between(table: Table, first: NDArray[np.uint64], last: NDArray[np.uint64]) -> Table:
    """Consecutive rows of a sorted table on the device, including all with keys from first to last, in main memory.

    first, last : uint64 (words,).
    """
    from oocbe.kernels.cuda.pairs.extents import rows_around

    low, keys = rows_around(table.keys, first, last)
    return replace(table, keys=keys, values=host_array(table.values[low : low + keys.shape[1]]))


def rows_in_main_memory(keys: NDArray[np.uint64], key: NDArray[np.uint64], more: int = 0) -> tuple[int, int]:
    """First row with a key uint64 (words,) in sorted keys uint64 (words, rows), and the row after the last one.

    more : rows with up to this added to word 0 of the key are included; the sum fits in it.

    Without compiled loops: the backward pass looks for a row of each message, and loading a loop takes longer.
    """
    low, high = 0, keys.shape[1]
    for word in range(len(keys) - 1, -1, -1):  # the most significant first
        column, wanted = keys[word, low:high], key[word]
        last = wanted if word else wanted + np.uint64(more)
        low, high = low + int(column.searchsorted(wanted)), low + int(column.searchsorted(last, "right"))
    return low, high
