"""Packed chunks (:mod:`oocbe.tables.codec`) made and read on the device: fewer bytes over the bus.

Chunks are the same, word for word, as the CPU's. What is read must have been checked before, on the host, where chunks
come from (:func:`oocbe.tables.codec.checked`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.bit_pack import BLOCK, HEADER_WORDS
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.kernels.cuda.readback import last_entries
from oocbe.kernels.cuda.selection import COUNTS, prefix_sum

THREADS = 256


def unpack(chunk: Any, front_words: int, rotation: int, out: Any) -> None:
    """Unpack a whole chunk.

    Parameters
    ----------
    chunk : uint64 (words,) on the device, checked. front_words : words before its headers.
    rotation : as its front says.
    out : (rows,) on the device, of the dtype that was packed; filled.
    """
    rows = len(out)
    blocks = -(-rows // BLOCK)
    headers = chunk[front_words:]
    payload = chunk[front_words + HEADER_WORDS * blocks :]
    launch(_kernel("unpack_blocks", out.dtype), blocks, THREADS, headers, payload, rotation, rows, out)


def pack(column: Any, front_words: int, rotation: int) -> tuple[Any, int]:
    """Pack a column; the front words are left for the caller to fill.

    Parameters
    ----------
    column : (rows,) on the device.
    front_words : words to leave free before the headers. rotation : to the right, before packing.

    Returns
    -------
    uint64 (words,) on the device, and the words of payload in it.
    """
    rows = len(column)
    blocks = -(-rows // BLOCK)
    start = front_words + HEADER_WORDS * blocks
    headers = cupy().empty(HEADER_WORDS * blocks, dtype=np.uint64)
    sizes = cupy().empty(blocks, dtype=np.int64)
    is_signed = int(column.dtype.kind != "u")
    function = _kernel("measure_blocks", column.dtype)
    launch(function, blocks, THREADS, column, rows, rotation, is_signed, headers, sizes)
    places = prefix_sum(COUNTS, sizes)
    words = last_entries(places)[0]
    chunk = cupy().empty(start + words + 1, dtype=np.uint64)
    chunk[start + words :] = 0
    function = _kernel("pack_blocks", column.dtype)
    launch(function, blocks, THREADS, column, rows, rotation, places, headers, chunk[start:])
    chunk[front_words:start] = headers
    return chunk, words


def _kernel(function: str, dtype: np.dtype[Any]) -> Any:
    return kernel("bit_pack", function, ITEM="int" if dtype.itemsize == 4 else "unsigned long long")
