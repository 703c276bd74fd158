"""Least-significant-digit radix sort of packed keys with their payload on chosen bit ranges, on the device.

One read of the keys counts the values of every digit and finds the bits that vary. While the host learns which these
are, the device is at work on the first digit already; where leaving the other bits out saves passes, new digits are
made of what varies and counted. Each digit costs one pass that reads and writes every row once (:file:`sort.cu`).

Keys of one word carry their values through every pass. Wider keys carry a row number instead, word by word, and rows
are gathered once at the end: moving all words in each pass would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, Definition, as_struct, cooperative_kernel, kernel, launch
from oocbe.kernels.cuda.transfer.readback import Readback
from oocbe.kernels.interface import BitRange
from oocbe.kernels.key_digits import Digit

DIGIT_BITS = 8
"""Bits of a digit, as in the source."""

BINS = 1 << DIGIT_BITS
"""Values of a digit."""

DIGITS_A_COUNT = 8
"""Digits counted in one launch, as in the source."""

THREADS = 384
"""Threads of a block, as in the source."""

ITEMS = {4: 15, 8: 12}
"""Rows a thread, by the payload's bytes: the sizes that CUB found best for these widths."""

ITEMS_AT_ONCE = {4: 10, 8: 8}
"""Rows a thread where all passes are one launch: small tables need more tiles than there are multiprocessors."""

SHORT_ROWS = 1 << 30
"""Below, counts fit beside their two flag bits in 32 bits, which halves what tiles tell each other."""

STATE_BYTES = 1 << 24
"""Zeroing up to so many bytes takes less time than a launch for each pass."""

ROWS_AT_ONCE = 1 << 21
"""Up to so many rows all passes are one launch: queueing a launch takes as long as a pass over a million rows."""

SHORT = np.dtype(np.uint32)
"""Dtype of counts below :data:`SHORT_ROWS`."""

DIGIT = np.dtype([("shift", "u1"), ("bits", "u1"), ("second_shift", "u1"), ("second_bits", "u1")])
"""The source's struct of a digit."""


def sort_rows(
    keys: Any, values: Any, ranges: Sequence[BitRange], piece_rows: int | None = None, own: bool = False
) -> tuple[Any, Any]:
    """Sort rows on some bits of their keys; see :meth:`oocbe.kernels.interface.Backend.sort_rows`."""
    rows = keys.shape[1]
    digits = _made_of(ranges)
    if rows < 2 or not digits:
        return keys, values
    bits = np.dtype(np.uint32 if values.dtype.itemsize == 4 else np.uint64)
    if rows <= ROWS_AT_ONCE and keys.shape[0] == 1 and len(digits) <= DIGITS_A_COUNT:
        return _sort_at_once(keys, values.view(bits), digits, values.dtype)
    counted = _Counted(keys, digits)
    if keys.shape[0] == 1:
        passes = _Passes(keys[0], values.view(bits), own, len(digits))
        passes.sort_by(digits[0], counted.counts[0])
        rest, counts = counted.remaining(keys, digits, 1)
        if not rest and not counted.varies(digits[0]):
            return keys, values
        for digit, count in zip(rest, counts, strict=True):
            passes.sort_by(digit, count)
        return passes.column[np.newaxis], passes.payload.view(values.dtype)
    digits, counts = counted.remaining(keys, digits, 0)
    if not digits:
        return keys, values
    order = cupy().arange(rows, dtype=np.uint32 if rows < 1 << 32 else np.uint64)
    first = 0
    while first < len(digits):
        last = first
        while last < len(digits) and digits[last].word == digits[first].word:
            last += 1
        column = keys[digits[first].word] if first == 0 else keys[digits[first].word].take(order)
        passes = _Passes(column, order, first > 0, last - first)
        for digit, count in zip(digits[first:last], counts[first:last], strict=True):
            passes.sort_by(digit, count)
        order = passes.payload
        first = last
    out = cupy().empty_like(keys)
    for word in range(keys.shape[0]):
        cupy().take(keys[word], order, out=out[word])
    return out, values.take(order)


def _sort_at_once(keys: Any, payload: Any, digits: Sequence[Digit], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Sort a table of one key word in a single launch.

    The caller's keys are never written to: which of two buffers the first pass fills depends on how many digits vary,
    which only the device knows.
    """
    rows, count = len(payload), len(digits)
    items = ITEMS_AT_ONCE[payload.dtype.itemsize]
    tiles = -(-rows // (THREADS * items))
    # Counts of the digits, states of all passes, and counters, to be set to zero together.
    made = cupy().zeros(count * BINS * 2 + count * tiles * BINS + 1 + count, dtype=SHORT)
    states = made[count * BINS * 2 :]
    last = cupy().empty_like(keys), cupy().empty_like(payload)
    other = (cupy().empty_like(keys), cupy().empty_like(payload)) if count > 1 else last
    function, blocks = cooperative_kernel(
        "sort", "sort_at_once", THREADS, **_definitions(digits, payload.dtype, SHORT, items)
    )
    launch(
        function, min(blocks, tiles), THREADS, keys, payload, *last, *other, rows,
        _packed(tuple(digits), DIGITS_A_COUNT), count, made, states, states[count * tiles * BINS :],
    )  # fmt: skip
    return last[0], last[1].view(dtype)


class _Passes:
    """Sorts a column with its payload by one digit after another, between two buffers.

    All memory is taken before the first pass: a column that may be overwritten must be whole if the call runs again.

    Parameters
    ----------
    column : uint64 (rows,). payload : uint32 or uint64 (rows,).
    own : the column may be overwritten.
    most : passes at most.
    """

    def __init__(self, column: Any, payload: Any, own: bool, most: int) -> None:
        self.column, self.payload = column, payload
        self._rows = len(column)
        self._total = np.dtype(np.uint32 if self._rows < SHORT_ROWS else np.uint64)
        self._tiles = -(-self._rows // (THREADS * ITEMS[payload.dtype.itemsize]))
        # Small tables set the states of all passes to zero at once, large ones use the same memory again. The counter
        # of tiles lies behind each pass's states.
        length = self._tiles * BINS + 2
        at_once = most if length * most * self._total.itemsize <= STATE_BYTES else 1
        self._states = cupy().zeros((at_once, length), dtype=self._total)
        columns, payloads = [cupy().empty_like(column)], [cupy().empty_like(payload)]
        if most > 1:
            columns.append(column if own else cupy().empty_like(column))
            payloads.append(cupy().empty_like(payload))
        self._buffers = list(zip(columns, payloads, strict=True))
        self._done = 0

    def sort_by(self, digit: Digit, counts: Any) -> None:
        """One stable pass; counts uint64 (256,), rows of each of the digit's values."""
        if self._done >= len(self._states):
            self._states.fill(0)
        states = self._states[self._done % len(self._states)]
        target = self._buffers[self._done % 2]
        function = _sort_kernel("scatter_by_digit", [digit], self.payload.dtype, self._total)
        launch(
            function, self._tiles, THREADS,
            self.column, self.payload, *target, self._rows, _packed((digit,)), counts, states,
            states[self._tiles * BINS :],
        )  # fmt: skip
        self.column, self.payload = target
        self._done += 1


class _Counted:
    """Rows of each value of some digits, and the bits that vary.

    Attributes
    ----------
    counts : for each digit, uint64 (256,) on the device.

    Parameters
    ----------
    wants_bits : whether it will be asked which bits vary.
    """

    def __init__(self, keys: Any, digits: Sequence[Digit], wants_bits: bool = True) -> None:
        rows = keys.shape[1]
        self._words = sorted({digit.word for digit in digits})
        made = cupy().zeros(len(digits) * BINS + 2 * len(self._words), dtype=np.uint64)
        self.counts = [made[first : first + BINS] for first in range(0, len(digits) * BINS, BINS)]
        seen = made[len(digits) * BINS :]
        blocks = min(-(-rows // 1024), 4 * multiprocessors(cupy().cuda.runtime.getDevice()))
        function = _sort_kernel("count_digits", digits)
        first = 0
        while first < len(digits):
            last, word = first, digits[first].word
            while last < min(len(digits), first + DIGITS_A_COUNT) and digits[last].word == word:
                last += 1
            packed = _packed(tuple(digits[first:last]), DIGITS_A_COUNT)
            place = 2 * self._words.index(word)
            launch(
                function, blocks, 256, keys[word], rows, packed, last - first, self.counts[first], seen[place:]
            )  # fmt: skip
            first = last
        self._seen = Readback(seen) if wants_bits else None

    def _varying(self, word: int) -> int:
        assert self._seen is not None
        ones, zeros = self._seen.numbers()[2 * self._words.index(word) :][:2].tolist()
        return int(ones & zeros)

    def varies(self, digit: Digit) -> bool:
        """Whether the digit has more than one value; waits for the device."""
        return any(self._varying(digit.word) >> place & 1 for place in digit.positions)

    def remaining(self, keys: Any, digits: Sequence[Digit], done: int) -> tuple[list[Digit], list[Any]]:
        """What is left after the first ``done`` digits, in as few digits as hold what varies, and their counts."""
        kept = [number for number in range(done, len(digits)) if self.varies(digits[number])]
        varying = [
            (digits[number].word, place, 1)
            for number in kept
            for place in digits[number].positions
            if self._varying(digits[number].word) >> place & 1
        ]
        if -(-len(varying) // DIGIT_BITS) < len(kept):
            fewer = _made_of(varying)
            if len(fewer) < len(kept):
                return fewer, _Counted(keys, fewer, wants_bits=False).counts
        return [digits[number] for number in kept], [self.counts[number] for number in kept]


def _made_of(ranges: Sequence[BitRange]) -> list[Digit]:
    """The fewest digits that cover some bits, in their order, each from at most two places of one word."""
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


@cache
def _packed(digits: tuple[Digit, ...], room: int = 1) -> NDArray[np.void]:
    """Digits as the kernels' struct, which has room for so many."""
    packed = np.zeros(room, dtype=DIGIT)
    packed[: len(digits)] = [digit[1:] for digit in digits]
    return packed if room == 1 else as_struct(packed)


def _sort_kernel(
    function: str,
    digits: Sequence[Digit],
    payload: np.dtype[Any] = SHORT,
    total: np.dtype[Any] = SHORT,
) -> Any:
    return kernel("sort", function, **_definitions(digits, payload, total, ITEMS[payload.itemsize]))


def _definitions(
    digits: Sequence[Digit], payload: np.dtype[Any], total: np.dtype[Any], items: int
) -> dict[str, Definition]:
    places = 2 if any(digit.second_bits for digit in digits) else 1
    return {"PAYLOAD": C_TYPES[payload], "TOTAL": C_TYPES[total], "PLACES": places, "ITEMS": items}
