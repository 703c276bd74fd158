"""Least-significant-digit radix sort of packed keys with their payload on chosen bit ranges, on the device.

One read of the keys counts the values of every digit. From the counts follows which bits are equal in all rows; where
leaving those out saves passes, digits are made of the others and counted again. Then each digit costs one pass that
reads and writes every row once (:file:`sort.cu`).

Keys of one word carry their values through every pass. Wider keys carry a row number instead, word by word, and rows
are gathered once at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.interface import BitRange

DIGIT_BITS = 8
BINS = 1 << DIGIT_BITS
VALUE_BITS = np.arange(BINS)[:, np.newaxis] >> np.arange(DIGIT_BITS) & 1
"""Bits of each value of a digit, (256, 8)."""

DIGITS_A_COUNT = 8
"""Digits counted in one launch, as in the source."""

THREADS = 384
ITEMS = {4: 15, 8: 12}
"""Rows a thread, by the payload's bytes, as in the source."""

SHORT_ROWS = 1 << 30
"""Below, counts fit beside their two flag bits in 32 bits, which halves what tiles tell each other."""

STATE_BYTES = 1 << 24
"""Zeroing up to so many bytes takes less time than a launch for each pass."""

SHORT = np.dtype(np.uint32)

DIGIT = np.dtype([("shift", "u1"), ("bits", "u1"), ("second_shift", "u1"), ("second_bits", "u1")])


class Digit(NamedTuple):
    """Up to eight key bits from one or two places of a word; the second place's bits go above the first one's."""

    word: int
    shift: int
    bits: int
    second_shift: int = 0
    second_bits: int = 0

    @property
    def positions(self) -> list[int]:
        """The key bit that each bit of the digit is, the lowest first."""
        return [
            *range(self.shift, self.shift + self.bits),
            *range(self.second_shift, self.second_shift + self.second_bits),
        ]


def sort_rows(
    keys: Any, values: Any, ranges: Sequence[BitRange], piece_rows: int | None = None, own: bool = False
) -> tuple[Any, Any]:
    """Sort rows on some bits of their keys; see :meth:`oocbe.kernels.interface.Backend.sort_rows`."""
    rows = keys.shape[1]
    digits, counts = _digits_that_vary(keys, ranges)
    if rows < 2 or not digits:
        return keys, values
    starts = cupy().asarray(np.cumsum(counts, axis=1) - counts)
    bits = np.dtype(np.uint32 if values.dtype.itemsize == 4 else np.uint64)
    if keys.shape[0] == 1:
        column, payload = _passes(keys[0], values.view(bits), digits, starts, own)
        return column[np.newaxis], payload.view(values.dtype)
    order = cupy().arange(rows, dtype=np.uint32 if rows < 1 << 32 else np.uint64)
    first = 0
    while first < len(digits):
        last = first
        while last < len(digits) and digits[last].word == digits[first].word:
            last += 1
        column = keys[digits[first].word] if first == 0 else keys[digits[first].word].take(order)
        _, order = _passes(column, order, digits[first:last], starts[first:last], own=first > 0)
        first = last
    out = cupy().empty_like(keys)
    for word in range(keys.shape[0]):
        cupy().take(keys[word], order, out=out[word])
    return out, values.take(order)


def _passes(column: Any, payload: Any, digits: Sequence[Digit], starts: Any, own: bool) -> tuple[Any, Any]:
    """Sort by each digit in turn, between two buffers; the caller's column is one of them only where ``own``."""
    rows = len(column)
    size = payload.dtype.itemsize
    total = np.dtype(np.uint32 if rows < SHORT_ROWS else np.uint64)
    tiles = -(-rows // (THREADS * ITEMS[size]))
    # All memory is taken before the first pass: an owned column must be whole if the call has to run again.
    # Small tables set the states of all passes to zero at once, large ones use the same memory again. The counter of
    # tiles lies behind each pass's states.
    length = tiles * BINS + 2
    at_once = len(digits) if length * len(digits) * total.itemsize <= STATE_BYTES else 1
    states = cupy().zeros((at_once, length), dtype=total)
    columns, payloads = [cupy().empty_like(column)], [cupy().empty_like(payload)]
    if len(digits) > 1:
        columns.append(column if own else cupy().empty_like(column))
        payloads.append(cupy().empty_like(payload))
    for number, digit in enumerate(digits):
        if number >= at_once:
            states.fill(0)
        mine = states[number % at_once]
        target = columns[number % 2], payloads[number % 2]
        packed = np.array([digit[1:]], dtype=DIGIT)
        function = _sort_kernel("scatter_by_digit", [digit], payload.dtype, total)
        launch(
            function, tiles, THREADS, column, payload, *target, rows, packed, starts[number], mine, mine[tiles * BINS :]
        )
        column, payload = target
    return column, payload


def _digits_that_vary(keys: Any, ranges: Sequence[BitRange]) -> tuple[list[Digit], NDArray[np.int64]]:
    """Digits to sort by, and the rows of each of their values, int64 (digits, 256)."""
    digits = _made_of(ranges)
    counts = _counted(keys, digits)
    # A bit varies where values with it and values without it occur.
    occurs = counts != 0
    with_bit, values = occurs @ VALUE_BITS, occurs.sum(axis=1)
    varies = (with_bit > 0) & (with_bit < values[:, np.newaxis])
    used = np.flatnonzero(varies.any(axis=1))
    if -(-np.count_nonzero(varies) // DIGIT_BITS) < len(used):
        varying = [(digit.word, digit.positions[bit], 1) for digit, row in zip(digits, varies, strict=True)
                   for bit in np.flatnonzero(row)]  # fmt: skip
        fewer = _made_of(varying)
        if len(fewer) < len(used):
            return fewer, _counted(keys, fewer)
    return [digits[d] for d in used], counts[used]


def _made_of(ranges: Sequence[BitRange]) -> list[Digit]:
    """As few digits as cover some bits, in their order, each from at most two places of one word."""
    digits: list[Digit] = []
    for word, shift, bits in ranges:
        done = 0
        while done < bits:
            start, last = shift + done, digits[-1] if digits else None
            room = DIGIT_BITS - last.bits - last.second_bits if last is not None and last.word == word else 0
            take = min(bits - done, room or DIGIT_BITS)
            if last is None or not room:
                digits.append(Digit(word, start, take))
            elif not last.second_bits and start == last.shift + last.bits:
                digits[-1] = last._replace(bits=last.bits + take)
            elif not last.second_bits:
                digits[-1] = last._replace(second_shift=start, second_bits=take)
            elif start == last.second_shift + last.second_bits:
                digits[-1] = last._replace(second_bits=last.second_bits + take)
            else:
                take = min(bits - done, DIGIT_BITS)
                digits.append(Digit(word, start, take))
            done += take
    return digits


def _counted(keys: Any, digits: Sequence[Digit]) -> NDArray[np.int64]:
    rows = keys.shape[1]
    counts = cupy().zeros((len(digits), BINS), dtype=np.uint64)
    function = _sort_kernel("count_digits", digits)
    blocks = min(-(-rows // 1024), 4 * multiprocessors(cupy().cuda.runtime.getDevice()))
    first = 0
    while first < len(digits):
        last = first
        while last < min(len(digits), first + DIGITS_A_COUNT) and digits[last].word == digits[first].word:
            last += 1
        packed = np.zeros(DIGITS_A_COUNT, dtype=DIGIT)
        packed[: last - first] = [digit[1:] for digit in digits[first:last]]
        launch(function, blocks, 256, keys[digits[first].word], rows, packed, last - first, counts[first])
        first = last
    found: NDArray[np.int64] = counts.get().astype(np.int64)
    return found


def _sort_kernel(
    function: str,
    digits: Sequence[Digit],
    payload: np.dtype[Any] = SHORT,
    total: np.dtype[Any] = SHORT,
) -> Any:
    places = 2 if any(digit.second_bits for digit in digits) else 1
    return kernel("sort", function, PAYLOAD=C_TYPES[payload], TOTAL=C_TYPES[total], PLACES=places)
