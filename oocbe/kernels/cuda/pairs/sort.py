"""Stable sort of packed keys with their payload on selected bit ranges, on the device: NVIDIA's radix sort.

The package ``cuda-cccl`` (:mod:`oocbe.kernels.cuda.pairs.cccl`) sorts one column of keys by one range of bits. Several
ranges are sorted in turn, the least significant first. Without the package, CuPy computes the order of each range.

One-word keys carry their values along. Wider keys carry a row number instead, word by word, and rows are gathered once
at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.pairs.cccl import Buffers, is_available, radix_sort, temporary_bytes
from oocbe.kernels.interface import BitRange


def sort_rows(
    keys: Any, values: Any, ranges: Sequence[BitRange], piece_rows: int | None = None, own: bool = False
) -> tuple[Any, Any]:
    """Sort rows on some bits of their keys; see :meth:`oocbe.kernels.interface.Backend.sort_rows`."""
    rows = keys.shape[1]
    ranges = [found for found in ranges if found[2]]
    if rows < 2 or not ranges:
        return keys, values
    if keys.shape[0] == 1:
        payload = values.view(np.dtype(f"u{values.dtype.itemsize}"))
        column, payload = _sort_column(keys[0], payload, ranges, own)
        return column[np.newaxis], payload.view(values.dtype)
    order = cupy().arange(rows, dtype=np.uint32 if rows < 1 << 32 else np.uint64)
    for number, (word, parts) in enumerate(groupby(ranges, key=lambda found: found[0])):
        column = keys[word].take(order) if number else keys[word]
        _, order = _sort_column(column, order, list(parts), own=number > 0)
    out = cupy().empty_like(keys)
    for word in range(keys.shape[0]):
        cupy().take(keys[word], order, out=out[word])
    return out, values.take(order)


def _sort_column(column: Any, payload: Any, ranges: Sequence[BitRange], own: bool) -> tuple[Any, Any]:
    """Sort a column with its payload by several ranges of its bits in turn.

    All memory is allocated before the first pass: the input must be intact if the call is repeated. The column is
    uint64 (rows,). The payload is uint32 or uint64 (rows,), and never written to. ``own`` tells whether the column may
    be overwritten.
    """
    if not is_available():
        return _sort_by_cupy(column, payload, ranges)
    # From the caller's keys to new buffers, one range needs no copy; several ranges alternate between two buffers,
    # without temporary copies.
    to_and_fro = len(ranges) > 1
    columns = [column if own or not to_and_fro else column.copy(), cupy().empty_like(column)]
    payloads = [payload.copy() if to_and_fro else payload, cupy().empty_like(payload)]
    buffers = Buffers(columns, payloads, to_and_fro)
    most = max(temporary_bytes(buffers, shift, bits) for _, shift, bits in ranges)
    temporary = cupy().empty(max(most, 1), dtype=np.uint8)
    for _, shift, bits in ranges:
        buffers = radix_sort(buffers, shift, bits, temporary)
    return buffers.columns[0], buffers.payloads[0]


def _sort_by_cupy(column: Any, payload: Any, ranges: Sequence[BitRange]) -> tuple[Any, Any]:
    """Sort a column with its payload; arguments as for :func:`_sort_column`, none of them is overwritten."""
    for _, shift, bits in ranges:
        part = (column >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
        order = cupy().argsort(part, kind="stable")
        column, payload = column.take(order), payload.take(order)
    return column, payload
