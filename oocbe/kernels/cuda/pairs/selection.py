"""Prefix sums, and marked rows: a bit a row, and the number of marked rows before each word of 32 rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import as_struct, kernel, launch
from oocbe.kernels.cuda.transfer.readback import HostNumbers

THREADS = 256
"""Threads of a block, as in the source."""

PREFIX_THREADS, PREFIX_TILE = 96, 1536
"""Threads of a block of the prefix sum, and its entries, as in the source."""

WORDS_A_BLOCK = THREADS
"""Words of marks of a block of the writing kernels: 32 a warp."""

MOST_WORDS = 64
"""Maximum number of key words whose masks are a kernel argument, by value."""

COUNTS, PRODUCTS, ONES, SHORT_COUNTS, UNITS = range(5)
"""Codes of the summands of a prefix sum, as in the source."""


@dataclass(frozen=True)
class Marked:
    """Selected rows.

    bits : uint32 (ceil(rows / 32),), a bit a row, zero beyond the last row.
    before : int64 (words + 1,), marked rows before each word, all marked rows last. rows : total number of rows.
    read, place : numbers on their way to the host, and the place of the number of marked rows among them.
    """

    bits: Any
    before: Any
    rows: int
    read: HostNumbers
    place: int = 0

    @cached_property
    def count(self) -> int:
        """Number of marked rows; waits for the device."""
        return int(self.read.numbers()[self.place])


def prefix_sum(term: int, first: Any, second: Any = None) -> Any:
    """Exclusive prefix sum, int64 (entries + 1,), of counts, products of two, set bits, or other source terms."""
    return _prefix_sums(term, [(first, first if second is None else second, 1)])[0]


def summed(term: int, *summands: tuple[Any, Any, int]) -> tuple[list[Any], HostNumbers]:
    """One or two prefix sums in one launch, of two lists (which may be the same) and the source's ``part`` each, and
    their totals on their way to the host."""
    totals = HostNumbers(len(summands))
    return _prefix_sums(term, summands, totals), totals


def _prefix_sums(term: int, summands: Sequence[tuple[Any, Any, int]], totals: HostNumbers | None = None) -> list[Any]:
    found, words, tiles = [], list[int](), 0
    for first, second, part in summands:
        held = aligned(first), aligned(second), cupy().empty(len(first) + 1, dtype=np.int64)
        found.append(held)
        words += *(array.data.ptr for array in held), len(first), part
        tiles += max(1, -(-len(first) // PREFIX_TILE))
    states = cupy().zeros(tiles + 1, dtype=np.uint64)
    sums = np.array([*words, *[0] * (10 - len(words)), totals.address if totals else 0], dtype=np.uint64)
    # The counter is stored after the states, so that one call sets both to zero.
    launch(kernel("prefix", "prefix_sum", TERM=term), tiles, PREFIX_THREADS, sums, states, states.data.ptr + 8 * tiles)
    if totals:
        totals.queued()
    return [out for _, _, out in found]


def aligned(array: Any) -> Any:
    """The array with 16-byte alignment; a copy if it is a misaligned part of another one."""
    return array.copy() if array.data.ptr % 16 else array


def find_tiles(places: Any, tile_rows: int, tiles: int) -> Any:
    """Group of the first row of each tile of rows, and the last group; places int64 (groups + 1,), ascending."""
    out = cupy().empty(tiles + 1, dtype=np.int64)
    function = kernel("prefix", "find_tiles", TERM=COUNTS)
    launch(function, -(-(tiles + 1) // THREADS), THREADS, places, len(places) - 1, tile_rows, tiles, out)
    return out


def counted(bits: Any, rows: int) -> Marked:
    """Marks with their counts; does not wait for the device."""
    return counted_together((bits, rows))[0]


def counted_together(*marks: tuple[Any, int]) -> list[Marked]:
    """One or two marks, bits and number of rows each, with their counts; does not wait for the device."""
    befores, read = summed(ONES, *((bits, bits, 1) for bits, _ in marks))
    pairs = zip(marks, befores, strict=True)
    return [Marked(bits, before, rows, read, place) for place, ((bits, rows), before) in enumerate(pairs)]


def empty_bits(rows: int) -> Any:
    """Uninitialised bits, one a row."""
    return cupy().empty(-(-rows // 32), dtype=np.uint32)


def packed_masks(masks: NDArray[np.uint64]) -> Any:
    """Masks as the kernels' struct. Raises UnsupportedError: more words than the struct holds."""
    if len(masks) > MOST_WORDS:
        raise UnsupportedError(f"the cuda backend has keys of up to {64 * MOST_WORDS:,} bits; use the cpu backend")
    return _packed_masks(masks.tobytes())


@lru_cache(maxsize=256)
def _packed_masks(masks: bytes) -> Any:
    words = np.zeros(MOST_WORDS, dtype=np.uint64)
    words[: len(masks) // 8] = np.frombuffer(masks, dtype=np.uint64)
    return as_struct(words)
