"""Packing of columns into the minimum number of bits for each block of rows, and unpacking.

The format is described in :mod:`oocbe.tables.packed_codec`, which also validates input before these loops read it.
Columns are uint64 (keys, and 8-byte values as integers) or int32 (4-byte values as integers).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit

BLOCK = 1024
"""Rows of a block: its header is a fifth of a bit a row, and a GPU's thread block decodes it in one pass."""

BLOCK_BITS = BLOCK.bit_length() - 1
"""Binary logarithm of the rows of a block."""

FRONT_WORDS = 4
"""Words before the blocks' headers."""

HEADER_WORDS = 3
"""Words of a block's header."""

MAGIC = int.from_bytes(b"OBPK", "little")
"""Magic number of packed chunks."""

VERSION = 1
"""Version of the packing by the CPU and by ``bit_pack.cu``, which change together."""

OFFSET_BITS = 40
"""Bits of a header word for the start of the block's payload."""

WIDTH_SHIFT, SHIFT_SHIFT, MODE_SHIFT = 40, 48, 56
"""Bit positions of the width, the common shift and the mode in the header word."""

REFERENCE, DELTAS = 0, 1
"""Modes: differences from the least item, or from the previous item."""


def front_word(itemsize: int, rotation: int) -> int:
    """The first word of a packed chunk."""
    return MAGIC | VERSION << 32 | itemsize << 40 | rotation << 48 | BLOCK_BITS << 56


def rotation_in(front: int) -> int:
    """The rotation in the first word of a packed chunk."""
    return front >> 48 & 0xFF


@helper
def _bit_length(word: np.uint64) -> int:
    length = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            length += step
    return length + (1 if word else 0)


@helper
def _trailing_zeros(word: np.uint64) -> int:
    """Number of zeros below the lowest one; 0 for the word 0."""
    return max(0, _bit_length(word & (~word + np.uint64(1))) - 1)


@helper
def _turned(column: NDArray[Any], start: int, count: int, rotation: int, out: NDArray[np.uint64]) -> None:
    """Rows as 64-bit words, sign-extended, rotated to the right."""
    right, left = np.uint64(rotation), np.uint64((64 - rotation) & 63)
    for i in range(count):
        word = np.uint64(np.int64(column[start + i]))
        out[i] = (word >> right) | (word << left) if rotation else word


@helper
def _measure(block: NDArray[np.uint64], count: int, signed: bool) -> tuple[np.uint64, np.uint64, int, int, int]:
    """Base, step, width, shift and mode of the smallest packing of some words."""
    bias = np.uint64(1 << 63) if signed else np.uint64(0)
    sign = np.uint64(1 << 63)
    least, ones = block[0] ^ bias, np.uint64(0)
    for i in range(1, count):
        least = min(least, block[i] ^ bias)
    base = least ^ bias
    for i in range(count):
        ones |= block[i] - base
    shift = _trailing_zeros(ones)
    width = _bit_length(ones) - shift if ones else 0
    if width == 0 or count < 2:
        return base, np.uint64(0), width, shift, REFERENCE
    step = (block[1] - block[0]) ^ sign
    for i in range(2, count):
        step = min(step, (block[i] - block[i - 1]) ^ sign)
    step ^= sign
    ones = np.uint64(0)
    for i in range(1, count):
        ones |= block[i] - block[i - 1] - step
    delta_shift = _trailing_zeros(ones)
    delta_width = _bit_length(ones) - delta_shift if ones else 0
    if delta_width < width:
        return block[0], step, delta_width, delta_shift, DELTAS
    return base, np.uint64(0), width, shift, REFERENCE


@jit
def best_rotation(column: NDArray[np.uint64], sample: int, samples: int) -> int:
    """The rotation to the right with the smallest packing of some stretches of ``sample`` rows; the least one on ties.

    Evenly spaced rows count as one more stretch: short stretches alone may all miss the breaks of an order.
    """
    rows = len(column)
    sample = min(sample, rows)
    samples = 1 if rows < sample * samples else samples
    block = np.empty(sample, dtype=np.uint64)
    spread = column[:: max(1, rows // sample)]
    best, best_width = 0, 1 << 30
    for rotation in range(64):
        _turned(spread, 0, sample, rotation, block)
        total = _measure(block, sample, False)[2]
        for number in range(samples):
            _turned(column, (rows - sample) * number // max(1, samples - 1), sample, rotation, block)
            total += _measure(block, sample, False)[2]
            if total >= best_width:
                break
        if total < best_width:
            best, best_width = rotation, total
    return best


@jit
def measure_blocks(column: NDArray[Any], rotation: int, signed: bool, headers: NDArray[np.uint64]) -> int:
    """Write the header of each block, uint64 (blocks, 3); returns the payload's words."""
    block = np.empty(BLOCK, dtype=np.uint64)
    offset = 0
    for number in range(headers.shape[0]):
        start = number * BLOCK
        count = min(BLOCK, len(column) - start)
        _turned(column, start, count, rotation, block)
        base, step, width, shift, mode = _measure(block, count, signed)
        headers[number, 0], headers[number, 1] = base, step
        headers[number, 2] = np.uint64(offset | (width << WIDTH_SHIFT) | (shift << SHIFT_SHIFT) | (mode << MODE_SHIFT))
        offset += (count * width + 63) >> 6
    return offset


@jit
def pack_blocks(column: NDArray[Any], rotation: int, headers: NDArray[np.uint64], payload: NDArray[np.uint64]) -> None:
    """Write the payload that the headers describe."""
    block = np.empty(BLOCK, dtype=np.uint64)
    for number in range(headers.shape[0]):
        start = number * BLOCK
        count = min(BLOCK, len(column) - start)
        base, step, packed = headers[number, 0], headers[number, 1], headers[number, 2]
        width = np.uint64((packed >> np.uint64(WIDTH_SHIFT)) & np.uint64(0xFF))
        shift = np.uint64((packed >> np.uint64(SHIFT_SHIFT)) & np.uint64(0xFF))
        if width == np.uint64(0):
            continue
        place = np.int64(packed & np.uint64((1 << OFFSET_BITS) - 1))
        _turned(column, start, count, rotation, block)
        if packed >> np.uint64(MODE_SHIFT) == np.uint64(DELTAS):
            before = block[0]
            block[0] = np.uint64(0)
            for i in range(1, count):
                here = block[i]
                block[i] = (here - before - step) >> shift
                before = here
        else:
            for i in range(count):
                block[i] = (block[i] - base) >> shift
        filled, word = np.uint64(0), np.uint64(0)
        for i in range(count):
            value = block[i]
            word |= value << filled
            filled += width
            if filled >= np.uint64(64):
                payload[place] = word
                place += 1
                filled -= np.uint64(64)
                # The remaining bits; a shift by 64 would be no shift.
                word = value >> (width - filled) if filled else np.uint64(0)
        if filled:
            payload[place] = word


@jit
def check_headers(headers: NDArray[np.uint64], rows: int, payload_words: int) -> int:
    """Number of the first block with an invalid header, or -1; valid headers keep decoding within bounds."""
    expected: Any = 0
    for number in range(headers.shape[0]):
        count = min(BLOCK, rows - number * BLOCK)
        packed = headers[number, 2]
        width = np.int64((packed >> np.uint64(WIDTH_SHIFT)) & np.uint64(0xFF))
        shift = np.int64((packed >> np.uint64(SHIFT_SHIFT)) & np.uint64(0xFF))
        mode = np.int64(packed >> np.uint64(MODE_SHIFT))
        offset = np.int64(packed & np.uint64((1 << OFFSET_BITS) - 1))
        if width + shift > 64 or shift > 63 or mode > DELTAS or offset != expected:
            return number
        expected += (count * width + 63) >> 6
    return -1 if expected == payload_words else headers.shape[0]


@jit
def unpack_blocks(
    headers: NDArray[np.uint64],
    payload: NDArray[np.uint64],
    rotation: int,
    out: NDArray[Any],
    first: int,
    last: int,
    start: int,
    stop: int,
) -> None:
    """Unpack rows ``start`` to ``stop`` of a chunk, in blocks ``first`` to ``last``, into uint64 or uint32 ``out``.

    payload : with one word of padding at the end, so that two adjacent words can always be read.
    """
    left, right = np.uint64(rotation), np.uint64((64 - rotation) & 63)
    block = np.empty(BLOCK, dtype=np.uint64)
    for number in range(first, last):
        base, step, packed = headers[number, 0], headers[number, 1], headers[number, 2]
        width = np.uint64((packed >> np.uint64(WIDTH_SHIFT)) & np.uint64(0xFF))
        shift = np.uint64((packed >> np.uint64(SHIFT_SHIFT)) & np.uint64(0xFF))
        source = payload[np.int64(packed & np.uint64((1 << OFFSET_BITS) - 1)) :]
        low = max(start - number * BLOCK, 0)
        high = min(stop - number * BLOCK, BLOCK)
        # Each step is a loop of its own over a block in the first-level cache: most of them vectorise.
        if packed >> np.uint64(MODE_SHIFT) == np.uint64(DELTAS):
            _unpack(source, width, shift, step, 0, high, block)
            value = base - block[0]  # the first row is the base itself
            for i in range(high):
                value += block[i]
                block[i] = value
        else:
            _unpack(source, width, shift, base, low, high, block)
        if rotation:
            for i in range(low, high):
                block[i] = (block[i] << left) | (block[i] >> right)
        target = out[number * BLOCK + low - start : number * BLOCK + high - start]
        for i in range(high - low):
            target[i] = block[low + i]


@helper
def _unpack(
    source: NDArray[np.uint64],
    width: np.uint64,
    shift: np.uint64,
    added: np.uint64,
    low: int,
    high: int,
    out: NDArray[np.uint64],
) -> None:
    """Unpack numbers ``low`` to ``high`` of a block into ``out`` at the same indices, shifted, with ``added`` added."""
    if width == np.uint64(0):
        out[low:high] = added
        return
    one, last_bit = np.uint64(1), np.uint64(63)
    mask = ~np.uint64(0) >> (np.uint64(64) - width)
    bit = np.uint64(low) * width
    for i in range(low, high):
        place, offset = bit >> np.uint64(6), bit & last_bit
        word = (source[place] >> offset) | ((source[place + one] << one) << (last_bit - offset))
        out[i] = added + ((word & mask) << shift)
        bit += width
