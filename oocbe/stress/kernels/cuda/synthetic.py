"""Rows of sorted synthetic tables on the device, and checks of results there: the launches of :file:`synthetic.cu`.

Array arguments that describe tables and results are NumPy's, as for the loops of
:mod:`oocbe.stress.kernels.cpu.synthetic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import host_array

SOURCE = "synthetic"
"""Name of the CUDA source."""

THREADS, TILE_ROWS = 256, 2048
"""Threads of a block, and rows that a block generates, as in the source."""

BLOCKS = 8
"""Blocks of a multiprocessor that check rows."""

IS_WRONG = 4
"""Place of the number of wrong rows in the source's sums."""


class TableRows:
    """A synthetic table's sorted rows, generated on the device, with key words and values of a dtype."""

    def __init__(
        self,
        words: int,
        dtype: np.dtype[Any],
        classes: NDArray[np.int64],
        fields: NDArray[np.int64],
        settings: NDArray[np.int64],
    ) -> None:
        self._words, self._dtype, self._settings = words, dtype, settings
        self._classes, self._fields = cupy().asarray(classes), cupy().asarray(fields)

    @with_retry
    def rows(self, start: int, count: int) -> tuple[Any, Any]:
        """Keys uint64 (words, count) and values (count,) of rows ``start`` and following; errors as for kernels."""
        keys = cupy().empty((self._words, count), dtype=np.uint64)
        values = cupy().empty(count, dtype=self._dtype)
        launch(
            kernel(SOURCE, "fill_in_order", VALUE=C_TYPES[self._dtype]), -(-count // TILE_ROWS), THREADS,
            keys, values, count, self._words, start, self._classes, len(self._classes),
            self._fields, len(self._fields), self._settings,
        )  # fmt: skip
        return keys, values


class RowSums:
    """Checks rows of a result on the device; the sums of all rows add up.

    fields : as for the loops. classes, settings : of each table; two for a join, one for a marginalisation.
    pieces : ``joined`` or ``reduced`` of the loops. eliminates : of a join.
    """

    def __init__(
        self,
        fields: NDArray[np.int64],
        classes: Sequence[NDArray[np.int64]],
        settings: Sequence[NDArray[np.int64]],
        pieces: NDArray[np.int64],
        eliminates: bool = False,
    ) -> None:
        fields, *ranges = (cupy().asarray(array) for array in (fields, *classes, pieces))
        *tables, last = (np.array([array.data.ptr, len(array)], dtype=np.uint64) for array in ranges)
        self._held = ranges
        self._function = "check_join" if len(tables) > 1 else "check_maximum"
        flags = (int(eliminates),) if len(tables) > 1 else ()
        self._arguments = fields, len(fields), *tables, *settings, last, *flags
        self._sums = cupy().zeros(IS_WRONG + 1, dtype=np.uint64)

    def add(self, keys: Any, values: Any) -> None:
        """Queue the check of rows on the device: keys uint64 (words, rows), the rows of a word adjacent, and values."""
        words, rows = keys.shape
        result = np.array([keys.data.ptr, values.data.ptr, rows, words, keys.strides[0] // 8], dtype=np.uint64)
        blocks = min(-(-rows // THREADS), BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice()))
        function = kernel(SOURCE, self._function, VALUE=C_TYPES[values.dtype])
        launch(function, blocks, THREADS, result, *self._arguments, self._sums)

    def read(self) -> tuple[bool, NDArray[np.uint64]]:
        """Whether all rows are correct, and their sums as of the loops, with the digest last; uint64 (4,)."""
        sums = host_array(self._sums)
        return int(sums[IS_WRONG]) == 0, sums[:IS_WRONG]
