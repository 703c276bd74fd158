"""Stable sort of packed keys with their payload on selected bit ranges, on the device: NVIDIA's radix sort.

CUB's radix sort from the package ``cuda-cccl`` sorts one column of keys by one range of bits. It is compiled once per
device and payload width, which takes seconds, and stored beside CuPy's compiled kernels for later processes. Several
ranges are sorted in turn, the least significant first. Without the package, CuPy computes the order of each range.

One-word keys carry their values along. Wider keys carry a row number instead, word by word, and rows are gathered once
at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from oocbe.errors import install_hint
from oocbe.kernels.cuda.device import cupy, cupy_cache
from oocbe.kernels.cuda.spans import device_span
from oocbe.kernels.interface import BitRange
from oocbe.runtime.tracing.recorder import KERNELS
from oocbe.runtime.waiting import interruptibly
from oocbe.runtime.writable import write_whole

KEY = np.dtype(np.uint64)
"""Dtype of a word of keys."""

_calls = Lock()
"""Lock of compiled sorts, which store the arguments of the call that is being queued."""


@dataclass(frozen=True)
class SortBuffers:
    """Input and output buffers of a sort.

    columns, payloads : two arrays each of a length, uint64, and uint32 or uint64; the first ones hold the rows.
    to_and_fro : whether all of them may be overwritten; otherwise only the second ones, and the sort makes copies.
    """

    columns: Sequence[Any]
    payloads: Sequence[Any]
    to_and_fro: bool


@cache
def is_available() -> bool:
    """Whether the package is usable here; if not, a message is printed once."""
    try:
        import_module("cuda.compute")
    except Exception as error:  # a broken installation may raise any exception
        print(
            f"oocbe: the package cuda-cccl does not work ({type(error).__name__}: {error}), so a GPU sorts by CuPy, "
            f"which takes longer; as the driver needs, {install_hint('cuda12', 'cuda13')}",
            file=sys.stderr,
        )
        return False
    return True


def temporary_bytes(buffers: SortBuffers, shift: int, bits: int) -> int:
    """Temporary memory of :func:`radix_sort`, in bytes."""
    return _call(buffers, shift, bits, None)[0]


def radix_sort(buffers: SortBuffers, shift: int, bits: int, temporary: Any) -> SortBuffers:
    """Queue a stable sort on the current stream, in :func:`temporary_bytes`; returns the buffers, sorted rows first."""
    with device_span(KERNELS, "radix_sort"):
        place = _call(buffers, shift, bits, temporary)[1]
    if place == 0:
        return buffers
    return SortBuffers(buffers.columns[::-1], buffers.payloads[::-1], buffers.to_and_fro)


def _call(buffers: SortBuffers, shift: int, bits: int, temporary: Any | None) -> tuple[int, int]:
    """Bytes of temporary memory, and the index of the buffer with the sorted rows."""
    sort = _compiled(int(cupy().cuda.Device().compute_capability), buffers.payloads[0].dtype.itemsize)
    columns: list[Any] = [_Lent(array) for array in buffers.columns]
    payloads: list[Any] = [_Lent(array) for array in buffers.payloads]
    if buffers.to_and_fro:
        pair = import_module("cuda.compute").DoubleBuffer
        columns, payloads = [pair(*columns), None], [pair(*payloads), None]
    with _calls:
        needed = sort(
            temp_storage=temporary, d_in_keys=columns[0], d_out_keys=columns[1], d_in_values=payloads[0],
            d_out_values=payloads[1], num_items=len(buffers.columns[0]), begin_bit=shift, end_bit=shift + bits,
            stream=_CurrentStream(),
        )  # fmt: skip
    return int(needed), int(columns[0].selector) if buffers.to_and_fro else 1


class _CurrentStream:
    """CuPy's current stream, by the protocol of ``cuda.compute``; not all versions of CuPy implement it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(cupy().cuda.get_current_stream().ptr)


class _Lent:
    """An array interface for ``cuda.compute``: a sort keeps its arguments, which must not keep the memory alive."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (array.data.ptr, False), "shape": array.shape, "typestr": array.dtype.str, "strides": None,
            "version": 3,
        }  # fmt: skip


@cache
def _compiled(capability: int, payload_bytes: int) -> Any:
    """The sort of one column of keys with a payload, for devices of a compute capability (90 is 9.0).
    Raises TimeLimitError or RequestedEndError if the current deadline came before it was compiled."""
    found: list[Any] = []
    device = cupy().cuda.Device()

    def work() -> None:
        with device:
            found.append(_load_or_compile(capability, payload_bytes))

    interruptibly(work)
    return found[0]


def _load_or_compile(capability: int, payload_bytes: int) -> Any:
    compute = import_module("cuda.compute")
    path = Path(cupy_cache()) / f"oocbe-sort-{version('cuda-cccl')}-{capability}-{payload_bytes}.bin"
    with suppress(OSError, ValueError, RuntimeError):  # missing or incomplete
        return compute.deserialize(path.read_bytes())
    # A payload without an address, like the package's placeholders, is ignored: only keys would be sorted.
    keys, payload = _Lent(cupy().empty(1, dtype=KEY)), _Lent(cupy().empty(1, dtype=np.dtype(f"u{payload_bytes}")))
    sort = compute.make_radix_sort(
        d_in_keys=keys, d_out_keys=keys, d_in_values=payload, d_out_values=payload,
        order=compute.SortOrder.ASCENDING, compute_capability=capability,
    )  # fmt: skip
    with suppress(OSError):  # then it is compiled again next time
        write_whole(path, sort.serialize())
    return sort


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
    buffers = SortBuffers(columns, payloads, to_and_fro)
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
