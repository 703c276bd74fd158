"""Groups of adjacent rows with equal masked keys: their starts, and the common groups of two tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.kernels.interface import MatchedGroups


def group_starts(
    keys: NDArray[np.uint64], masks: NDArray[np.uint64], piece_rows: int | None = None
) -> NDArray[np.int64]:
    """First row of each group, and the row count; see :meth:`oocbe.kernels.interface.Backend.group_starts`."""
    rows = keys.shape[1]
    if rows == 0:
        return np.zeros(1, dtype=np.int64)
    pieces = row_ranges(rows, piece_rows)
    counts = run_all(_count_starts, [(keys, masks, *piece) for piece in pieces])
    places = np.concatenate(([0], np.cumsum(counts)))
    starts = np.empty(int(places[-1]) + 1, dtype=np.int64)
    starts[-1] = rows
    run_all(_fill_starts, [(keys, masks, starts[places[i] :], *piece) for i, piece in enumerate(pieces)])
    return starts


def common_groups(
    keys1: NDArray[np.uint64], keys2: NDArray[np.uint64], masks: NDArray[np.uint64], piece_rows: int | None = None
) -> MatchedGroups:
    """Common groups of two tables; see :meth:`oocbe.kernels.interface.Backend.common_groups`."""
    starts1, starts2 = group_starts(keys1, masks, piece_rows), group_starts(keys2, masks, piece_rows)
    groups = len(starts1) - 1
    found1, found2 = np.empty(groups, dtype=np.int64), np.empty(groups, dtype=np.int64)
    pieces = row_ranges(groups, piece_rows)
    counts = run_all(_match, [(keys1, starts1, keys2, starts2, masks, found1, found2, *piece) for piece in pieces])
    kept = [slice(start, start + count) for (start, _), count in zip(pieces, counts, strict=True)]
    common1, common2 = np.concatenate([found1[k] for k in kept]), np.concatenate([found2[k] for k in kept])
    first1, first2 = starts1[common1], starts2[common2]
    return MatchedGroups(first1, starts1[common1 + 1] - first1, first2, starts2[common2 + 1] - first2)


@helper
def differs(keys: NDArray[np.uint64], masks: NDArray[np.uint64], row: int, other: int) -> bool:
    """Whether two rows of a table differ in the masked bits (to be called from compiled loops)."""
    difference = np.uint64(0)
    for word in range(masks.shape[0]):
        difference |= (keys[word, row] ^ keys[word, other]) & masks[word]
    return bool(difference != 0)


@jit
def _count_starts(keys: NDArray[np.uint64], masks: NDArray[np.uint64], start: int, stop: int) -> int:
    count = 0
    if start == 0:
        start, count = 1, 1
    if masks.shape[0] == 1:
        # The usual case, in vectorisable form.
        here, before = keys[0, start:stop], keys[0, start - 1 : stop - 1]
        for i in range(stop - start):
            count += (here[i] ^ before[i]) & masks[0] != 0
        return count
    for row in range(start, stop):
        count += differs(keys, masks, row, row - 1)
    return count


@jit
def _fill_starts(
    keys: NDArray[np.uint64], masks: NDArray[np.uint64], out: NDArray[np.int64], start: int, stop: int
) -> None:
    place = 0
    if start == 0:
        out[0] = 0
        start, place = 1, 1
    if masks.shape[0] == 1:
        here, before = keys[0, start:stop], keys[0, start - 1 : stop - 1]
        for i in range(stop - start):
            if (here[i] ^ before[i]) & masks[0] != 0:
                out[place] = start + i
                place += 1
        return
    for row in range(start, stop):
        if differs(keys, masks, row, row - 1):
            out[place] = row
            place += 1


@helper
def _compare(
    keys1: NDArray[np.uint64], row1: int, keys2: NDArray[np.uint64], row2: int, masks: NDArray[np.uint64]
) -> int:
    """Sign of masked key 1 minus masked key 2, the last word most significant; words beyond the masks are ignored."""
    for back in range(masks.shape[0]):
        word = masks.shape[0] - 1 - back
        a, b = keys1[word, row1] & masks[word], keys2[word, row2] & masks[word]
        if a != b:
            return -1 if a < b else 1
    return 0


@jit
def _match(
    keys1: NDArray[np.uint64],
    starts1: NDArray[np.int64],
    keys2: NDArray[np.uint64],
    starts2: NDArray[np.int64],
    masks: NDArray[np.uint64],
    found1: NDArray[np.int64],
    found2: NDArray[np.int64],
    first: int,
    last: int,
) -> int:
    if first == last:
        return 0
    low, high = 0, len(starts2) - 1
    while low < high:
        middle = (low + high) // 2
        if _compare(keys2, starts2[middle], keys1, starts1[first], masks) < 0:
            low = middle + 1
        else:
            high = middle
    count, group1, group2 = 0, first, low
    while group1 < last and group2 < len(starts2) - 1:
        sign = _compare(keys1, starts1[group1], keys2, starts2[group2], masks)
        if sign == 0:
            found1[first + count], found2[first + count] = group1, group2
            count += 1
        if sign <= 0:
            group1 += 1
        if sign >= 0:
            group2 += 1
    return count
