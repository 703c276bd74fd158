"""Least-significant-digit radix sort of packed keys with their values, on chosen bit ranges.

Digits have 8 bits: 256 write positions fit in the caches and in the address translation buffer, which 2048 do not
(measured: 8-bit digits beat 11-bit ones). Bits that are equal in all rows cost no pass. A pass is two loops over row
ranges: a histogram for each range, then, after an exclusive prefix sum over (digit, range), a stable scatter.

Keys of one word carry their values through every pass. Wider keys carry a row number instead, word by word, and rows
are gathered once at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all

DIGIT_BITS = 8
BitRange = tuple[int, int, int]


def sort_rows(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    ranges: Sequence[BitRange],
    piece_rows: int | None = None,
    own: bool = False,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Sort rows on some bits of their keys; see :meth:`oocbe.kernels.interface.Backend.sort_rows`."""
    pieces = row_ranges(keys.shape[1], piece_rows)
    digits = _digits(keys, ranges, pieces)
    if not digits:
        return keys, values
    if keys.shape[0] == 1:
        word, payload = _passes(keys[0], _as_bits(values), digits, pieces, own)
        return word[np.newaxis], payload.view(values.dtype)
    rows = keys.shape[1]
    order = np.arange(rows, dtype=np.int32 if rows < 1 << 31 else np.int64)
    last_word = -1
    column = keys[0]
    for digit in digits:
        if digit.word != last_word:
            column, last_word = _gather(keys[digit.word], order, pieces), digit.word
        column, order = _passes(column, order, [digit], pieces, True)
    out = np.empty_like(keys)
    for word_number in range(keys.shape[0]):
        run_all(_gather_rows, [(keys[word_number], order, out[word_number], *piece) for piece in pieces])
    return out, _gather(_as_bits(values), order, pieces).view(values.dtype)


def _as_bits(values: NDArray[Any]) -> NDArray[Any]:
    """Values seen as integers of their width: a scatter only moves them, so two compiled versions serve all dtypes."""
    return values.view(np.int32 if values.dtype.itemsize == 4 else np.int64)


class Digit(NamedTuple):
    """Up to eight key bits from one or two places of a word; the second place's bits go above the first one's."""

    word: int
    shift: int
    bits: int
    second_shift: int = 0
    second_bits: int = 0

    @property
    def size(self) -> int:
        """Different values of the digit."""
        return 1 << (self.bits + self.second_bits)

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """Shifts, masks and the second part's place, as the compiled loops take them."""
        masks = ((1 << self.bits) - 1, ((1 << self.second_bits) - 1) << self.bits)
        # The second shift brings the bits right above the first part's, which may be to the left.
        right, left = max(0, self.second_shift - self.bits), max(0, self.bits - self.second_shift)
        return tuple(np.uint64(x) for x in (self.shift, masks[0], right, left, masks[1]))


def _digits(keys: NDArray[np.uint64], ranges: Sequence[BitRange], pieces: Sequence[tuple[int, int]]) -> list[Digit]:
    """Digits that cover the bits of the ranges that are not equal in all rows, in the order of the ranges."""
    varying = {word: _varying_bits(keys[word], pieces) for word in {r[0] for r in ranges}}
    digits: list[Digit] = []
    for word, shift, bits in ranges:
        left = (varying[word] >> shift) & ((1 << bits) - 1)
        while left:
            skip = (left & -left).bit_length() - 1
            left, shift = left >> skip, shift + skip
            last = digits[-1] if digits else None
            if last and last.word == word and last.bits < DIGIT_BITS and not last.second_bits:
                take = min(DIGIT_BITS - last.bits, left.bit_length())
                digits[-1] = last._replace(second_shift=shift, second_bits=take)
            else:
                take = min(DIGIT_BITS, left.bit_length())
                digits.append(Digit(word, shift, take))
            left, shift = left >> take, shift + take
    return digits


def _varying_bits(column: NDArray[np.uint64], pieces: Sequence[tuple[int, int]]) -> int:
    if len(column) == 0:
        return 0
    found = 0
    for bits in run_all(_differing_bits, [(column, *piece) for piece in pieces]):
        found |= int(bits)
    return found


def _passes(
    column: NDArray[np.uint64],
    payload: NDArray[Any],
    digits: Sequence[Digit],
    pieces: Sequence[tuple[int, int]],
    own: bool,
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Sort by each digit in turn, between two buffers; the caller's column is in one of them only where ``own``."""
    spare_column, spare_payload = None, None
    for number, digit in enumerate(digits):
        target = (
            np.empty_like(column) if spare_column is None else spare_column,
            np.empty_like(payload) if spare_payload is None else spare_payload,
        )
        counts = np.zeros((len(pieces), digit.size), dtype=np.int64)
        run_all(_count_digit, [(column, *digit.arguments, counts[i], *piece) for i, piece in enumerate(pieces)])
        by_digit = counts.T.ravel()
        places = (np.cumsum(by_digit) - by_digit).reshape(digit.size, len(pieces)).T.astype(np.uint64, order="C")
        run_all(
            _scatter_digit,
            [(column, payload, *digit.arguments, places[i], *target, *piece) for i, piece in enumerate(pieces)],
        )
        spare_column = column if own or number > 0 else None
        spare_payload = payload if number > 0 else None
        column, payload = target
    return column, payload


def _gather(column: NDArray[Any], order: NDArray[Any], pieces: Sequence[tuple[int, int]]) -> NDArray[Any]:
    out = np.empty_like(column)
    run_all(_gather_rows, [(column, order, out, *piece) for piece in pieces])
    return out


@jit
def _differing_bits(column: NDArray[np.uint64], start: int, stop: int) -> np.uint64:
    reference = column[0]
    found = np.uint64(0)
    for key in column[start:stop]:
        found |= key ^ reference
    return found


@jit
def _count_digit(
    column: NDArray[np.uint64],
    shift: np.uint64,
    mask: np.uint64,
    right: np.uint64,
    left: np.uint64,
    second_mask: np.uint64,
    counts: NDArray[np.int64],
    start: int,
    stop: int,
) -> None:
    for key in column[start:stop]:
        counts[((key >> shift) & mask) | (((key >> right) << left) & second_mask)] += 1


@jit
def _scatter_digit(
    column: NDArray[np.uint64],
    payload: NDArray[Any],
    shift: np.uint64,
    mask: np.uint64,
    right: np.uint64,
    left: np.uint64,
    second_mask: np.uint64,
    places: NDArray[np.uint64],
    out_column: NDArray[np.uint64],
    out_payload: NDArray[Any],
    start: int,
    stop: int,
) -> None:
    # Slices and unsigned places spare the check for negative indices: 1.6 times as fast. Write-combining buffers for
    # the 256 streams were slower.
    one = np.uint64(1)
    source, carried = column[start:stop], payload[start:stop]
    for row in range(len(source)):
        key = source[row]
        digit = ((key >> shift) & mask) | (((key >> right) << left) & second_mask)
        place = places[digit]
        places[digit] = place + one
        out_column[place] = key
        out_payload[place] = carried[row]


@jit
def _gather_rows(column: NDArray[Any], order: NDArray[Any], out: NDArray[Any], start: int, stop: int) -> None:
    target, source = out[start:stop], order[start:stop]
    for row in range(len(target)):
        target[row] = column[source[row]]
