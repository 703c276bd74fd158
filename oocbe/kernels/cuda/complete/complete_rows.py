"""Conversion of rows of an incomplete table to cells of a complete one and back, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.buckets.flags import pack
from oocbe.kernels.cuda.complete.complete import eliminate_complete
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.pairs.selection import counted, empty_bits
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring

THREADS, UNITS = 256, 4
"""Threads of a block, and cells per thread, as in the source."""

UNLIKE, AT_MOST, AT_LEAST = range(3)
"""Codes of the tests for feasible values, as in the source."""


def cells_of_rows(keys: Any, values: Any, fields: NDArray[np.int64], cells: int, semiring: Semiring) -> Any:
    """Values of a complete table (cells,) with the rows' values, infeasible elsewhere.

    keys : uint64 (words, rows). values : (rows,). fields : as for
        :func:`oocbe.kernels.cpu.complete.complete_rows.cells_of_rows`.
    """
    rows = len(values)
    filler = infeasible_value(values.dtype, semiring.combination, semiring.marginalisation)
    out = cupy().full(cells, filler, dtype=values.dtype)
    word, shift, bits, step = fields.T.astype(np.uint64)
    masks = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)
    buffer, places = pack([word, shift, masks, step])
    described = [int(buffer.data.ptr) + 8 * place for place in places]
    arguments = (keys, values, rows, *described, len(fields), out)
    launch(_kernel("write_rows", values), -(-rows // THREADS), THREADS, *arguments)
    return out


def rows_of_cells(
    values: Any, sizes: NDArray[np.int64], steps: NDArray[np.int64], places: NDArray[np.int64], semiring: Semiring
) -> tuple[Any, Any]:
    """Keys uint64 (words, rows), ascending, and values (rows,) of the feasible cells.

    values : (cells,), in any order of the variables.
    sizes, steps : int64 (variables,), domain sizes and strides in cells, the least significant variable first.
    places : int64 (variables, 2), word and shift of each variable's field, the words in ascending order.
    """
    codes = (semiring.combination, semiring.marginalisation)
    function = CompleteFunction(values, tuple(steps.tolist()))
    ordered = eliminate_complete([function], sizes.tolist(), 0, *codes, values.dtype)
    cells, words = len(ordered), int(places[-1, 0]) + 1 if len(places) else 1
    bits = empty_bits(cells)
    blocks = -(-cells // (THREADS * UNITS))
    launch(_kernel("mark_feasible", values), blocks, THREADS, ordered, cells, *_test(values.dtype, semiring), bits)
    marked = counted(bits, cells)
    keys = cupy().empty((words, marked.count), dtype=np.uint64)
    kept = cupy().empty(marked.count, dtype=values.dtype)
    buffer, at = pack([sizes, places[:, 0], places[:, 1]])
    described = [int(buffer.data.ptr) + 8 * place for place in at]
    launch(
        _kernel("list_cells", values), blocks, THREADS,
        ordered, cells, bits, marked.before, marked.count, *described, len(sizes), words, keys, kept,
    )  # fmt: skip
    return keys, kept


@with_retry
def count_feasible(values: Any, semiring: Semiring) -> int:
    """Number of feasible values (cells,) of a complete table."""
    count = cupy().zeros(1, dtype=np.uint64)
    busy = 8 * multiprocessors(cupy().cuda.runtime.getDevice())
    blocks = min(busy, -(-len(values) // (THREADS * UNITS)))
    arguments = (values, len(values), *_test(values.dtype, semiring), count)
    launch(_kernel("count_feasible", values), blocks, THREADS, *arguments)
    return int(count[0])


def _test(dtype: np.dtype[Any], semiring: Semiring) -> tuple[int, Any]:
    """Test for feasible values of a dtype, and its reference value; see :mod:`oocbe.model.infeasible`."""
    if semiring.combination is Combination.MULTIPLY or dtype.kind == "f":
        return UNLIKE, infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    limit = largest_feasible(dtype)
    if semiring.marginalisation is Marginalisation.MIN:
        return AT_MOST, dtype.type(limit)
    return AT_LEAST, dtype.type(-limit)


def _kernel(name: str, values: Any) -> Any:
    return kernel("complete_rows", name, VALUE="short" if values.dtype.itemsize == 2 else C_TYPES[values.dtype])
