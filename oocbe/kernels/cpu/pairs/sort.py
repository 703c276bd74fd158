"""Least-significant-digit radix sort of packed keys with their values, on selected bit ranges.

Digits have 8 bits: 256 write positions fit in the caches and in the address translation buffer, which 2048 do not
(measured: 8-bit digits beat 11-bit ones). Bits that are equal in all rows cost no pass. A pass is two loops over row
ranges: a histogram for each range, then, after an exclusive prefix sum over (digit, range), a stable scatter.

Large tables are first scattered by their most significant digit; then one thread sorts each bucket by the other digits,
within the caches: one pass over main memory instead of one a digit. If most rows are in one bucket, all threads make
all passes over the whole table. Either way the result is that of a stable sort.

One-word keys carry their values through every pass. Wider keys carry a row number instead, word by word, and rows are
gathered once at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import row_ranges, run_all


class Digit(NamedTuple):
    """Up to eight key bits from one or two positions of a word; the second part's bits are above the first part's."""

    word: int
    shift: int
    bits: int
    second_shift: int = 0
    second_bits: int = 0

    @property
    def size(self) -> int:
        """Number of values of the digit."""
        return 1 << (self.bits + self.second_bits)

    @property
    def arguments(self) -> tuple[np.uint64, ...]:
        """Shifts, masks and position of the second part, as the compiled loops take them."""
        masks = ((1 << self.bits) - 1, ((1 << self.second_bits) - 1) << self.bits)
        # The second shift moves the bits directly above the first part's, possibly to the left.
        right, left = max(0, self.second_shift - self.bits), max(0, self.bits - self.second_shift)
        return tuple(np.uint64(x) for x in (self.shift, masks[0], right, left, masks[1]))

    @property
    def positions(self) -> list[int]:
        """Key bit of each bit of the digit, the lowest first."""
        return [
            *range(self.shift, self.shift + self.bits),
            *range(self.second_shift, self.second_shift + self.second_bits),
        ]


DIGIT_BITS = 8
"""Bits of a digit: 256 write positions fit in the caches."""

BUCKET_ROWS = 1 << 16
"""Minimum rows for a first scatter by the most significant digit, into buckets sorted in the caches."""

LARGEST_BUCKET_SHARE = 1 / 8
"""Maximum share of a bucket: a larger one would keep one thread busy while the others are idle."""

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
    """Values viewed as integers of their width: a scatter only moves them, so two versions serve all."""
    return values.view(np.int32 if values.dtype.itemsize == 4 else np.int64)


def _digits(keys: NDArray[np.uint64], ranges: Sequence[BitRange], pieces: Sequence[tuple[int, int]]) -> list[Digit]:
    """Digits that cover the varying bits of the ranges, in the order of the ranges."""
    varying = {word: _varying_bits(keys[word], pieces) for word in {r[0] for r in ranges}}
    digits: list[Digit] = []
    # From the most significant bit down, so that the last digit, which defines the buckets, is full.
    for word, shift, bits in reversed(ranges):
        left = (varying[word] >> shift) & ((1 << bits) - 1)
        while left:
            last = digits[-1] if digits else None
            top = left.bit_length()
            joins = last is not None and last.word == word and last.bits < DIGIT_BITS and not last.second_bits
            take = min(DIGIT_BITS - last.bits if joins and last else DIGIT_BITS, top)
            # The part's lowest bits are left out if they are equal in all rows.
            part = left >> (top - take)
            equal = (part & -part).bit_length() - 1
            low, take = top - take + equal, take - equal
            if joins and last:
                digits[-1] = Digit(word, shift + low, take, last.shift, last.bits)
            else:
                digits.append(Digit(word, shift + low, take))
            left &= (1 << low) - 1
    return digits[::-1]


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
    """Sort by each digit in turn, between two buffers; the caller's column is one of them only if ``own``."""
    if len(digits) > 1 and len(column) >= BUCKET_ROWS:
        target = (np.empty_like(column), np.empty_like(payload))
        counts, places = _histogram(column, digits[-1], pieces)
        sizes = counts.sum(axis=0)
        if sizes.max() <= LARGEST_BUCKET_SHARE * len(column):
            _scatter(column, payload, digits[-1], places, target, pieces)
            bounds = np.concatenate(([0], np.cumsum(sizes)))
            arguments = np.array([digit.arguments for digit in digits[:-1]], dtype=np.uint64)
            run_all(_sort_bucket, [(*target, arguments, int(a), int(b)) for a, b in pairwise(bounds) if b > a])
            return target
    spare_column, spare_payload = None, None
    for number, digit in enumerate(digits):
        target = (
            np.empty_like(column) if spare_column is None else spare_column,
            np.empty_like(payload) if spare_payload is None else spare_payload,
        )
        _, places = _histogram(column, digit, pieces)
        _scatter(column, payload, digit, places, target, pieces)
        spare_column = column if own or number > 0 else None
        spare_payload = payload if number > 0 else None
        column, payload = target
    return column, payload


def _histogram(
    column: NDArray[np.uint64], digit: Digit, pieces: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Counts of each digit value in each piece (pieces, values), and output position of the piece's rows of that
    value."""
    counts = np.zeros((len(pieces), digit.size), dtype=np.int64)
    run_all(_count_digit, [(column, *digit.arguments, counts[i], *piece) for i, piece in enumerate(pieces)])
    by_digit = counts.T.ravel()
    places = (np.cumsum(by_digit) - by_digit).reshape(digit.size, len(pieces)).T
    return counts, places.astype(np.uint64, order="C")


def _scatter(
    column: NDArray[np.uint64],
    payload: NDArray[Any],
    digit: Digit,
    places: NDArray[np.uint64],
    target: tuple[NDArray[np.uint64], NDArray[Any]],
    pieces: Sequence[tuple[int, int]],
) -> None:
    run_all(
        _scatter_digit,
        [(column, payload, *digit.arguments, places[i], *target, *piece) for i, piece in enumerate(pieces)],
    )


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
    # Slices and unsigned indices avoid the check for negative indices: 1.6 times as fast. Write-combining buffers for
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


@jit
def _sort_bucket(
    column: NDArray[np.uint64], payload: NDArray[Any], digits: NDArray[np.uint64], start: int, stop: int
) -> None:
    """Sort the rows of a bucket by all digits (a row of :attr:`Digit.arguments` each), in a buffer of its size."""
    keys, carried = column[start:stop], payload[start:stop]
    other_keys, other_carried = np.empty_like(keys), np.empty_like(carried)
    places = np.empty(1 << DIGIT_BITS, dtype=np.uint64)
    for number in range(digits.shape[0]):
        shift, mask, right, left, second_mask = digits[number]
        counts = np.zeros(1 << DIGIT_BITS, dtype=np.int64)
        _count_digit(keys, shift, mask, right, left, second_mask, counts, 0, len(keys))
        total = 0
        for value in range(len(counts)):
            places[value] = total
            total += counts[value]
        _scatter_digit(
            keys, carried, shift, mask, right, left, second_mask, places, other_keys, other_carried, 0, len(keys)
        )
        keys, other_keys = other_keys, keys
        carried, other_carried = other_carried, carried
    if digits.shape[0] % 2:
        target_keys, target_carried = column[start:stop], payload[start:stop]
        for row in range(len(target_keys)):
            target_keys[row] = keys[row]
            target_carried[row] = carried[row]


UNSORTED, ASCENDING, REPEATED = 0, 1, 2
"""Order of keys: unsorted, strictly ascending, or ascending with equal neighbours."""


@jit
def ascent(keys: NDArray[np.uint64]) -> int:
    """:data:`ASCENDING` if each key uint64 (words, rows) exceeds the previous one, :data:`REPEATED` if some equals the
    previous one, otherwise :data:`UNSORTED`."""
    falls, repeats = 0, 0
    if keys.shape[0] == 1:
        word = keys[0]
        for row in range(1, len(word)):
            falls += word[row] < word[row - 1]
            repeats += word[row] == word[row - 1]
    else:
        for row in range(1, keys.shape[1]):
            place = keys.shape[0] - 1
            while place >= 0 and keys[place, row] == keys[place, row - 1]:
                place -= 1
            if place < 0:
                return REPEATED
            falls += keys[place, row] < keys[place, row - 1]
    if repeats:
        return REPEATED
    return UNSORTED if falls else ASCENDING


@jit
def exceeds_domains(keys: NDArray[np.uint64], checks: NDArray[np.uint64]) -> Any:
    """Whether a key uint64 (words, rows) has a value beyond its domain; ``checks`` are those of its layout."""
    wrong = np.uint64(0)
    for number in range(keys.shape[0]):
        word, lacking, lowest, most = keys[number], checks[number, 0], checks[number, 1], checks[number, 2]
        for row in range(len(word)):
            wrong |= ((word[row] ^ (word[row] + lacking) ^ lacking) & lowest) | np.uint64(word[row] > most)
    return wrong != 0


@jit
def find_rows(keys: Any, wanted: Any, found: Any) -> Any:
    """Rows of ``wanted`` uint64 (words, n) in sorted ``keys`` (words, rows), into ``found`` int64 (n,); -1: none."""
    words, rows = keys.shape
    for i in range(wanted.shape[1]):
        low, high = 0, rows
        while low < high:
            middle = (low + high) >> 1
            below = False
            for w in range(words - 1, -1, -1):
                if keys[w, middle] != wanted[w, i]:
                    below = keys[w, middle] < wanted[w, i]
                    break
            if below:
                low = middle + 1
            else:
                high = middle
        found[i] = low
        if low == rows:
            found[i] = -1
            continue
        for w in range(words):
            if keys[w, low] != wanted[w, i]:
                found[i] = -1
                break
