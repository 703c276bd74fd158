"""Packing and unpacking of chunks (:mod:`oocbe.tables.packed_codec`) on the device: fewer bytes over the bus.

Chunks are identical, word for word, to the CPU's. Chunks must be validated on the host before they are read
(:func:`oocbe.tables.packed_codec.checked`). One launch handles many columns: a piece has dozens of chunks, and the
thread that queues kernels is the bottleneck of a stream of packed pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.packing.bit_pack import BLOCK, FRONT_WORDS, HEADER_WORDS, front_word
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.kernels.cuda.pairs.selection import COUNTS, prefix_sum
from oocbe.kernels.cuda.transfer.readback import Readback

THREADS = 128
"""Threads of a block, as in the source."""

MOST_PARTS = 64
"""Maximum number of columns of one launch, as in the source: they are a kernel argument, by value."""

SUMMARY_WORDS = 4
"""Words of a column's summary for the host."""

SIGN = 1 << 63
"""Sign bit of a word."""

ALL_ONES = (1 << 64) - 1
"""A word of ones."""

SOURCE = np.dtype(
    [("chunk", "u8"), ("out", "u8"), ("rows", "i8"), ("start", "i8"), ("wanted", "i8"), ("first_block", "u4"),
     ("item_bytes", "u4")]
)  # fmt: skip
"""The source's struct of a chunk to unpack."""

COLUMN = np.dtype(
    [("column", "u8"), ("rows", "i8"), ("first_block", "u4"), ("item_bytes", "u4"), ("rotation", "u4"),
     ("is_signed", "u4")]
)  # fmt: skip
"""The source's struct of a column to measure."""

TARGET = np.dtype(
    [("column", "u8"), ("chunk", "u8"), ("rows", "i8"), ("payload_words", "i8"), ("front", "u8"),
     ("first_block", "u4"), ("item_bytes", "u4"), ("rotation", "u4"), ("unused", "u4")]
)  # fmt: skip
"""The source's struct of a column to pack."""


class Wanted(NamedTuple):
    """Rows of a column's adjacent chunks to be unpacked.

    words : uint64 on the device, validated chunks. places : int64 (chunks + 1,), where each begins, the last one's end.
    rows : int64 (chunks + 1,), the first row of each likewise, counted from the first chunk's.
    out : (wanted rows,) on the device, of the packed dtype; overwritten with the rows from ``start`` on.
    """

    words: Any
    places: NDArray[np.int64]
    rows: NDArray[np.int64]
    out: Any
    start: int

    def sources(self) -> NDArray[np.void]:
        """The source's structs of the chunks that have rows of these, with ``first_block`` left out."""
        low, high = self.rows[:-1], self.rows[1:]
        begin, end = np.maximum(low, self.start), np.minimum(high, self.start + len(self.out))
        found = np.zeros(len(low), dtype=SOURCE)
        found["chunk"] = self.words.data.ptr + 8 * self.places[:-1]
        found["out"] = self.out.data.ptr + self.out.itemsize * (begin - self.start)
        found["rows"], found["start"], found["wanted"] = high - low, begin - low, end - begin
        found["item_bytes"] = self.out.itemsize
        return found[end > begin]


def unpack(parts: Sequence[Wanted]) -> None:
    """Unpack rows of chunks."""
    sources = np.concatenate([np.zeros(0, dtype=SOURCE), *(part.sources() for part in parts)])
    for first in range(0, len(sources), MOST_PARTS):
        here = np.zeros(MOST_PARTS, dtype=SOURCE)
        count = min(MOST_PARTS, len(sources) - first)
        here[:count] = sources[first : first + count]
        blocks = -(-(here["start"] + here["wanted"]) // BLOCK) - here["start"] // BLOCK
        here["first_block"] = np.cumsum(blocks) - blocks
        launch(kernel("bit_pack", "unpack_blocks"), int(blocks.sum()), THREADS, here, count)


class DeviceColumn(NamedTuple):
    """A column to pack, (rows,) on the device, not empty; rotated to the right in bits if unsigned."""

    items: Any
    rotation: int


@dataclass(frozen=True)
class ChunkSummary:
    """Summary of a packed column for the host.

    payload_words : of the chunk. first, last : the first and the last item, as unsigned 64-bit words.
    extent : least and greatest item of signed integers, otherwise None.
    """

    payload_words: int
    first: int
    last: int
    extent: tuple[int, int] | None


class Measured:
    """Columns on the device, measured for packing; their summaries come to the host asynchronously."""

    def __init__(self, columns: Sequence[DeviceColumn]) -> None:
        self._columns = columns
        self._starts = [0, *accumulate(-(-len(items) // BLOCK) for items, _ in columns)]
        total = self._starts[-1]
        self._headers = cupy().empty(HEADER_WORDS * total, dtype=np.uint64)
        sizes = cupy().empty(total, dtype=np.int64)
        summaries = cupy().zeros((len(columns), SUMMARY_WORDS), dtype=np.uint64)
        for first, last, begin in self._launches():
            described = _argument(
                COLUMN,
                (
                    (items.data.ptr, len(items), start - begin, items.itemsize, rotation, items.dtype.kind != "u")
                    for (items, rotation), start in zip(columns[first:last], self._starts[first:last], strict=True)
                ),
            )
            launch(
                kernel("bit_pack", "measure_blocks"), self._starts[last] - begin, THREADS, described, last - first,
                self._headers[HEADER_WORDS * begin :], sizes[begin:], summaries[first:],
            )  # fmt: skip
        self._places = prefix_sum(COUNTS, sizes)
        ends = [self._places[stop : stop + 1].view(np.uint64) for stop in self._starts[1:]]
        self._read = Readback(summaries.reshape(-1), *ends)
        self._words: list[int] = []

    def summaries(self) -> list[ChunkSummary]:
        """The summary of each column; waits for the device."""
        numbers = self._read.numbers().tolist()
        count = len(self._columns)
        ends = [0, *numbers[SUMMARY_WORDS * count :]]
        self._words = [stop - start for start, stop in pairwise(ends)]
        found = []
        for number, (items, _) in enumerate(self._columns):
            first, last, least, greatest = numbers[SUMMARY_WORDS * number : SUMMARY_WORDS * (number + 1)]
            extent = _signed(~least & ALL_ONES), _signed(greatest)
            found.append(ChunkSummary(self._words[number], first, last, extent if items.dtype.kind == "i" else None))
        return found

    def packed(self) -> list[Any]:
        """The chunks, uint64 (words,) each, adjacent in one array on the device."""
        if len(self._words) < len(self._columns):
            self.summaries()
        sizes = [
            FRONT_WORDS + HEADER_WORDS * -(-len(items) // BLOCK) + words + 1
            for (items, _), words in zip(self._columns, self._words, strict=True)
        ]
        ends = list(accumulate(sizes))
        made = cupy().empty(ends[-1], dtype=np.uint64)
        chunks = [made[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        for first, last, begin in self._launches():
            described = _argument(
                TARGET,
                (
                    (
                        items.data.ptr, chunk.data.ptr, len(items), words, front_word(items.itemsize, rotation),
                        start - begin, items.itemsize, rotation, 0,
                    )
                    for (items, rotation), chunk, words, start in zip(
                        self._columns[first:last], chunks[first:last], self._words[first:last],
                        self._starts[first:last], strict=True,
                    )
                ),
            )  # fmt: skip
            launch(
                kernel("bit_pack", "pack_blocks"), self._starts[last] - begin, THREADS, described, last - first,
                self._places[begin:], self._headers[HEADER_WORDS * begin :],
            )  # fmt: skip
        return chunks

    def _launches(self) -> Iterator[tuple[int, int, int]]:
        """First column of each launch, the one behind its last, and the first block."""
        for first in range(0, len(self._columns), MOST_PARTS):
            yield first, min(first + MOST_PARTS, len(self._columns)), self._starts[first]


def _argument(dtype: np.dtype[Any], parts: Iterator[tuple[Any, ...]]) -> NDArray[np.void]:
    """Parts as the kernels' struct."""
    argument = np.zeros(MOST_PARTS, dtype=dtype)
    made = list(parts)
    argument[: len(made)] = made
    return argument


def _signed(word: int) -> int:
    """The signed number of a word shifted by SIGN."""
    return word - SIGN
