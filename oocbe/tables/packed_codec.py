"""Packed chunks: a column of a stored table in as few bits as each block of rows needs.

Sorted keys are stored as differences between neighbours, values as distances from the least of their block, both cut to
the bits that vary (frame of reference and delta encoding: Zukowski et al. 2006; Lemire and Boytsov 2015). Blocks have a
fixed number of rows and headers that say where each begins, so that threads, or a GPU's thread blocks
(``kernels/cuda/packing/bit_pack.cu``), decode all of them at once, and a range of rows without the rest. The caller's
dtype decides whether items are signed; a chunk does not record it.

A packed chunk is an array of little-endian 64-bit words:

=============  ======================================================================================================
words          content
=============  ======================================================================================================
0              bytes ``OBPK``, then one byte each: version (1), bytes of an item (4 or 8), rotation, log2 of the
               rows a block (10)
1              rows
2              words of payload (without the padding)
3              zero
4 to 4 + 3·B   three words for each of the B blocks: base; step; and place = offset of its payload in words (bits 0 to
               39), width in bits (40 to 47), shift (48 to 55), mode (56 to 63)
then           payload, block after block, each from a word's beginning: number i of a block takes ``width`` bits from
               bit ``i · width``, the least significant first, possibly across two words
last           one word of padding (zero), so that a decoder may always read the word behind
=============  ======================================================================================================

With ``p[i]`` for the i-th packed number, row i of a block is, modulo 2^64,

* mode 0 (frame of reference): ``base + (p[i] << shift)``;
* mode 1 (differences): ``base`` for the first row (``p[0]`` is 0) and ``row[i - 1] + step + (p[i] << shift)`` behind.

The result is then rotated to the left by ``rotation`` bits, and cut to the item's bytes. Items of four bytes were
sign-extended before packing; floats are packed as the integers that their bits are. The rotation serves keys that are
sorted by their low bits, such as those of a join (grouped by the shared variables, which it puts lowest): rotated, they
ascend, and pack like sorted ones.

Everything is checked before it is used: sizes against the rows expected, each block's place against the one before, so
that damaged or forged chunks give :class:`oocbe.errors.CorruptDataError` and never a read out of bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.kernels.cpu.packing.bit_pack import (
    BLOCK,
    FRONT_WORDS,
    HEADER_WORDS,
    best_rotation,
    check_headers,
    front_word,
    measure_blocks,
    pack_blocks,
    rotation_in,
    unpack_blocks,
)

CODEC_NAME = "oocbe.packed"
"""The codec's name in Zarr's metadata."""

SAMPLE_ROWS, SAMPLES = 256, 4
"""Four stretches of a chunk decide its rotation: a ten-thousandth of the time that packing a million rows takes."""


def encode(column: NDArray[Any]) -> NDArray[np.uint64]:
    """Pack a column, uint64, int64, int32, float64 or float32 (rows,); returns the chunk, uint64 (words,)."""
    words: NDArray[Any] = np.ascontiguousarray(column).view(np.int32 if column.dtype.itemsize == 4 else np.uint64)
    signed = column.dtype.kind != "u"
    rotation = best_rotation(words, SAMPLE_ROWS, SAMPLES) if not signed and len(words) else 0
    blocks = -(-len(column) // BLOCK)
    headers = np.empty((blocks, HEADER_WORDS), dtype=np.uint64)
    payload_words = measure_blocks(words, rotation, signed, headers)
    start = FRONT_WORDS + HEADER_WORDS * blocks
    chunk = np.zeros(start + payload_words + 1, dtype=np.uint64)
    chunk[0] = front_word(column.dtype.itemsize, rotation)
    chunk[1], chunk[2] = len(column), payload_words
    chunk[FRONT_WORDS:start] = headers.ravel()
    pack_blocks(words, rotation, headers, chunk[start:])
    return chunk


def rows_in(data: bytes | memoryview) -> int:
    """Rows that a packed chunk claims to have; :class:`CorruptDataError` where it is not one."""
    if len(data) < 8 * (FRONT_WORDS + 1) or len(data) % 8:
        raise CorruptDataError(f"a packed chunk cannot have {len(data):,} bytes")
    return int(np.frombuffer(data, dtype="<u8", count=2)[1])


def checked(data: Any, rows: int, itemsize: int) -> tuple[NDArray[np.uint64], int]:
    """A chunk's words, after all that a decoder relies on was checked, and its rotation.

    data : the packed chunk, any buffer, not copied. rows, itemsize : what it must have.
    Raises CorruptDataError: not a packed chunk of that many rows of that size, or damaged.
    """
    view = memoryview(data).cast("B")
    if rows_in(view) != rows:
        raise CorruptDataError(f"a packed chunk has {rows_in(view):,} rows instead of {rows:,}")
    chunk = np.frombuffer(view, dtype="<u8")
    front, blocks = int(chunk[0]), -(-rows // BLOCK)
    rotation = rotation_in(front)
    first_payload, payload_words = FRONT_WORDS + HEADER_WORDS * blocks, int(chunk[2])
    if front != front_word(itemsize, rotation) or rotation > 63 or chunk[3] != 0:
        raise CorruptDataError(f"not a packed chunk of {itemsize}-byte items (its first word is {front:016x})")
    if first_payload + payload_words + 1 != len(chunk):
        raise CorruptDataError(
            f"a packed chunk of {blocks:,} blocks and {payload_words:,} words of payload has {len(chunk):,} words"
        )
    damaged = check_headers(chunk[FRONT_WORDS:first_payload].reshape(blocks, HEADER_WORDS), rows, payload_words)
    if damaged >= 0:
        raise CorruptDataError(f"block {damaged:,} of a packed chunk has an impossible header")
    return chunk, rotation


def decode(data: bytes | memoryview, rows: int, out: NDArray[Any], start: int = 0) -> None:
    """Unpack rows ``start`` and following of a chunk.

    data : the packed chunk. rows : rows that it must have.
    out : (wanted rows,), contiguous, of the dtype that was packed; filled.
    Raises CorruptDataError: not a packed chunk of that many rows of that size, or damaged.
    """
    chunk, rotation = checked(data, rows, out.dtype.itemsize)
    first_payload = FRONT_WORDS + HEADER_WORDS * -(-rows // BLOCK)
    headers = chunk[FRONT_WORDS:first_payload].reshape(-1, HEADER_WORDS)
    stop = start + len(out)
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"rows {start} to {stop} of a chunk of {rows}")
    target = out.view(np.uint32 if out.dtype.itemsize == 4 else np.uint64)
    if len(out):
        unpack_blocks(headers, chunk[first_payload:], rotation, target, start // BLOCK, -(-stop // BLOCK), start, stop)
