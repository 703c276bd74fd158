"""Filter by forbidden tuples on the device: mark the rows of a table that contain none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.pairs.selection import counted, empty_bits
from oocbe.kernels.cuda.pairs.sort import sort_rows

THREADS = 256
"""Threads of a block, as in the source."""

BITMAP_BITS = 27
"""Maximum bits of forbidden tuples in a bitmap (16 MiB, a part of the second-level cache); longer tuples are searched
by bisection."""


def drop_forbidden(
    keys: Any, values: Any, parts: Any, forbidden: Any, bits: int, piece_rows: int | None = None, keeps: bool = False
) -> tuple[Any, Any]:
    """As :meth:`oocbe.kernels.interface.Backend.drop_forbidden`; ``keeps``: the one-word tuples are allowed."""
    rows, tuples = len(values), cupy().asarray(forbidden)
    count = tuples.shape[1]
    marks = empty_bits(rows)
    if bits <= BITMAP_BITS or keeps:
        table = cupy().zeros(max(1, (1 << bits) // 32), dtype=np.uint32)
        launch(_filter_kernel("set_bits"), -(-count // THREADS), THREADS, tuples, count, table)
        launch(_filter_kernel("mark_parts"), -(-rows // (4 * THREADS)), THREADS, parts, rows, table, int(keeps), marks)
    else:
        # The sort requires a payload; it is not used here.
        nothing = cupy().zeros(count, dtype=np.int32)
        ranges = [(word, 0, min(64, bits - 64 * word)) for word in range(tuples.shape[0])]
        ordered, _ = sort_rows(tuples, nothing, ranges)
        arguments = parts, rows, ordered, count, tuples.shape[0], marks
        launch(_filter_kernel("mark_absent"), -(-rows // THREADS), THREADS, *arguments)
    staying = counted(marks, rows)
    if staying.count == rows:
        return keys, values
    out_keys = cupy().empty((keys.shape[0], staying.count), dtype=np.uint64)
    out_values = cupy().empty(staying.count, dtype=values.dtype)
    launch(
        _filter_kernel("write_marked", values.dtype.itemsize), -(-rows // (4 * THREADS)), THREADS,
        keys, values, rows, keys.shape[0], marks, staying.before, staying.count, out_keys, out_values,
    )  # fmt: skip
    return out_keys, out_values


def _filter_kernel(function: str, payload_bytes: int = 4) -> Any:
    return kernel("filters", function, PAYLOAD=C_TYPES[np.dtype(f"u{payload_bytes}")])
