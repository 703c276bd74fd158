"""Packed chunks (:mod:`oocbe.tables.codec`) made and read on the device: fewer bytes over the bus.

Chunks are the same, word for word, as the CPU's. What is read must have been checked before, on the host, where chunks
come from (:func:`oocbe.tables.codec.checked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oocbe.kernels.cpu.bit_pack import BLOCK, HEADER_WORDS
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.kernels.cuda.selection import COUNTS, prefix_sum

THREADS = 256


def unpack(chunk: Any, rows: int, front_words: int, out: Any, start: int = 0) -> None:
    """Unpack rows ``start`` and following of a chunk.

    Parameters
    ----------
    chunk : uint64 (words,) on the device, checked. rows : rows in it. front_words : words before its headers.
    out : (wanted rows,) on the device, of the dtype that was packed; filled.
    """
    if len(out) == 0:
        return
    first, last = start // BLOCK, -(-(start + len(out)) // BLOCK)
    blocks = -(-rows // BLOCK)
    headers = chunk[front_words + HEADER_WORDS * first :]
    payload = chunk[front_words + HEADER_WORDS * blocks :]
    left, skipped = rows - first * BLOCK, start - first * BLOCK
    function = _kernel("unpack_blocks", out.dtype)
    launch(function, last - first, THREADS, chunk, headers, payload, left, skipped, len(out), out)


@dataclass(frozen=True)
class Measured:
    """A column on its way into a packed chunk: its blocks are measured, and the sizes of all may be read back.

    Attributes
    ----------
    column : (rows,) on the device. rotation : to the right, before packing.
    headers : uint64 (3 · blocks,), the payloads' places left out.
    places : int64 (blocks + 1,), where each block's payload begins; the last one is the words of payload in all.
    """

    column: Any
    rotation: int
    headers: Any
    places: Any

    def chunk_words(self, front_words: int, payload_words: int) -> int:
        """Words of the chunk, given those of its front and its payload."""
        return front_words + len(self.headers) + payload_words + 1

    def packed(self, front_words: int, payload_words: int) -> Any:
        """The chunk, uint64 (words,); the front words are left for the caller to fill."""
        chunk = cupy().empty(self.chunk_words(front_words, payload_words), dtype=np.uint64)
        start = front_words + len(self.headers)
        chunk[start + payload_words :] = 0
        function = _kernel("pack_blocks", self.column.dtype)
        rows, blocks, headers = len(self.column), len(self.places) - 1, chunk[front_words:start]
        headers[:] = self.headers
        launch(function, blocks, THREADS, self.column, rows, self.rotation, self.places, headers, chunk[start:])
        return chunk


def measure(column: Any, rotation: int) -> Measured:
    """Measure what each block of a column needs; the column is (rows,) on the device, with at least one row."""
    rows = len(column)
    blocks = -(-rows // BLOCK)
    headers = cupy().empty(HEADER_WORDS * blocks, dtype=np.uint64)
    sizes = cupy().empty(blocks, dtype=np.int64)
    function = _kernel("measure_blocks", column.dtype)
    launch(function, blocks, THREADS, column, rows, rotation, int(column.dtype.kind != "u"), headers, sizes)
    return Measured(column, rotation, headers, prefix_sum(COUNTS, sizes))


def _kernel(function: str, dtype: np.dtype[Any]) -> Any:
    return kernel("bit_pack", function, ITEM="int" if dtype.itemsize == 4 else "unsigned long long")
