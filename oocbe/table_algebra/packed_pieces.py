"""Pieces of packed tables on the device, unpacked there as they arrive.

What travels are packed chunks (:mod:`oocbe.tables.codec`), whole ones: where a piece begins or ends inside a chunk, the
neighbouring piece has that chunk too, and each unpacks the rows that are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.tables.packed import PackedTable
from oocbe.tables.packed_files import ChunkFiles


def packed_words(table: PackedTable, start: int, stop: int) -> list[NDArray[np.uint64] | ChunkFiles]:
    """What has to travel for rows ``start`` to ``stop``: each column's words."""
    first, last = table.covering(start, stop)
    return [column.chunks(first, last) for column in table.columns]


class Travelled(NamedTuple):
    """Rows of a packed table that are on the device.

    Attributes
    ----------
    table : the table. start, stop : the rows.
    columns : uint64 (words,) each, on the device: what :func:`packed_words` names.
    """

    table: PackedTable
    start: int
    stop: int
    columns: Sequence[Any]


def unpacked(pieces: Sequence[Travelled]) -> list[tuple[Any, Any]]:
    """Rows of packed tables on the device: keys uint64 (words, rows) and values (rows,) of each."""
    from oocbe.kernels.cuda.device import cupy
    from oocbe.kernels.cuda.packing.bit_pack import Wanted, unpack

    found: list[tuple[Any, Any]] = []
    parts: list[Wanted] = []
    for table, start, stop, columns in pieces:
        keys = cupy().empty((table.layout.words, stop - start), dtype=np.uint64)
        values = cupy().empty(stop - start, dtype=table.dtype)
        found.append((keys, values))
        first, last = table.covering(start, stop)
        rows = table.row_starts[first : last + 1].tolist()
        for column, words, out in zip(table.columns, columns, [*keys, values], strict=True):
            places = column.starts[first : last + 1].tolist()
            begin = places[0]
            for (low, high), (source, end) in zip(pairwise(rows), pairwise(places), strict=True):
                target = out[max(start, low) - start : min(stop, high) - start]
                parts.append(Wanted(words[source - begin : end - begin], high - low, target, max(0, start - low)))
    unpack(parts)
    return found
