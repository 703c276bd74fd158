"""Pieces of packed tables on the device, unpacked there as they arrive.

What travels are packed chunks (:mod:`oocbe.tables.codec`), whole ones: where a piece begins or ends inside a chunk, the
neighbouring piece has that chunk too, and each unpacks the rows that are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.codec import FRONT_WORDS
from oocbe.tables.packed import PackedTable
from oocbe.tables.packed_files import ChunkFiles


def packed_words(table: PackedTable, start: int, stop: int) -> list[NDArray[np.uint64] | ChunkFiles]:
    """What has to travel for rows ``start`` to ``stop``: each column's words."""
    first, last = table.covering(start, stop)
    return [column.chunks(first, last) for column in table.columns]


def unpacked(table: PackedTable, start: int, stop: int, columns: Sequence[Any]) -> tuple[list[Any], Any]:
    """Rows ``start`` to ``stop`` on the device: key words and values, (rows,) each.

    Parameters
    ----------
    columns : uint64 (words,) each, on the device: what :func:`packed_words` names.
    """
    from oocbe.kernels.cuda.bit_pack import unpack
    from oocbe.kernels.cuda.device import cupy

    first, last = table.covering(start, stop)
    dtypes = [np.dtype(np.uint64)] * table.layout.words + [table.dtype]
    found = [cupy().empty(stop - start, dtype=dtype) for dtype in dtypes]
    for column, words, out in zip(table.columns, columns, found, strict=True):
        begin = int(column.starts[first])
        for chunk in range(first, last):
            low, high = int(table.row_starts[chunk]), int(table.row_starts[chunk + 1])
            target = out[max(start, low) - start : min(stop, high) - start]
            source = words[int(column.starts[chunk]) - begin : int(column.starts[chunk + 1]) - begin]
            unpack(source, high - low, FRONT_WORDS, target, max(0, start - low))
    return found[:-1], found[-1]
