"""One constraint against the domains of its variables: rows of a table, rows that are forbidden, a linear inequality.

All domains lie in one array of flags, variable after variable. A scan drops rows with a removed value for good (simple
tabular reduction) and keeps the values that some row left has. A cell that stands for every value has the code that
follows the last value's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

LOOK_STEP = (1 << 16) - 1
"""Rows, less one, after which a scan looks at the flag; ones in the low bits."""


BLOCK = 1 << 12
"""Rows of a large table that go through one column after the other; their codes and flags stay in the first cache."""

KEY_BLOCK = 1 << 11
"""The same, of packed rows."""


@jit
def _keep_rows(
    codes: Any, rows: Any, count: Any, is_whole: Any, offsets: Any, sizes: Any, alive: Any, stop: Any
) -> Any:
    """Move rows that have a removed value behind the others; returns how many are left at the front of ``rows``.

    The first ``count`` stay the same rows in another order: who sets the count back has all of them again.
    """
    if is_whole:
        for place in range(count):
            rows[place] = place
    left = 0
    arity = len(offsets)
    for place in range(count):
        if place & LOOK_STEP == 0 and stop[0] != 0:
            break
        row = rows[place]
        is_left = True
        for c in range(arity):
            code = codes[row, c]
            if code < sizes[c] and alive[offsets[c] + code] == 0:
                is_left = False
                break
        if is_left:
            rows[place] = rows[left]
            rows[left] = row
            left += 1
    return left


@jit
def scan_table(
    codes: Any,
    rows: Any,
    count: Any,
    is_whole: Any,
    offsets: Any,
    sizes: Any,
    alive: Any,
    supported: Any,
    removed: Any,
    stop: Any,
) -> Any:
    """Keep the values that some row has; returns how many rows are left.

    Parameters
    ----------
    codes : unsigned integers (rows of the table, arity), value indices; a variable's size stands for every value.
    rows : int32 or int64, its first ``count`` are the rows left, and are reordered. is_whole : whether all are left,
        and ``rows`` has not been filled yet.
    offsets, sizes : int64 (arity,), where each variable's flags begin, and how many there are.
    alive : uint8, flags of all values, changed. supported : uint8 of the same length, scratch.
    removed : int64 (arity,), overwritten; how many values each variable lost.
    stop : the flag that ends the scan early; nothing is removed then.
    """
    left = _keep_rows(codes, rows, count, is_whole, offsets, sizes, alive, stop)
    arity = len(offsets)
    for c in range(arity):
        removed[c] = 0
        supported[offsets[c] : offsets[c] + sizes[c]] = 0
    if stop[0] != 0:
        return left
    for c in range(arity):
        offset, size = offsets[c], sizes[c]
        missing = 0
        for value in range(size):
            missing += alive[offset + value]
        for place in range(left):
            code = codes[rows[place], c]
            if code == size:
                missing = 0
            elif supported[offset + code] == 0:
                supported[offset + code] = 1
                missing -= 1
            if missing <= 0:
                break
        if missing > 0:
            removed[c] = missing
            for value in range(size):
                alive[offset + value] &= supported[offset + value]
    return left


@jit
def scan_part(
    codes: Any, arity: Any, rows: Any, low: Any, count: Any, is_whole: Any, width: Any, alive: Any, seen: Any, stop: Any
) -> Any:
    """Scan some rows of a large table; returns how many of them are left.

    Blocks of rows are looked at, then reordered, both without a branch: which rows are left cannot be guessed.

    Parameters
    ----------
    codes : unsigned integers (rows of the table * arity,), one row after the other.
    rows : int32 or int64, of which ``count`` from ``low`` on are reordered: those that are left come first.
    is_whole : whether these are all rows from ``low`` on: what ``rows`` has for them is not read, and is only written
        where some go, as fresh memory costs more than the scan.
    width : uint64, flags of a column. alive : uint8 (arity * width,), 1 for each code that is left.
    seen : uint8 of the same length, zero before: set to 1 for each code that a row has that is left.
    stop : the flag that ends the scan early; the number is of no use then, and rows are to be scanned again.
    """
    flags = np.empty(BLOCK, dtype=np.uint8)
    is_wanted = np.ones(arity, dtype=np.uint8)
    length = np.uint64(arity)
    left: Any = low
    filled: Any = low if is_whole else low + count
    for begin in range(low, low + count, BLOCK):
        if stop[0] != 0:
            break
        size = min(BLOCK, low + count - begin)
        gone: Any = size
        for i in range(size):
            flag: Any = np.uint8(1)
            start: Any = np.uint64(0)
            place: Any = np.uint64(begin + i if is_whole else rows[begin + i]) * length
            for _ in range(arity):
                flag &= alive[start + np.uint64(codes[place])]
                start += width
                place += np.uint64(1)
            flags[i] = flag
            gone -= flag
        for c in range(arity):
            if is_wanted[c] != 0:
                first, own = np.uint64(c) * width, np.uint64(c)
                for i in range(size):
                    place = np.uint64(begin + i if is_whole else rows[begin + i]) * length
                    seen[first + np.uint64(codes[place + own])] |= flags[i]
                is_wanted[c] = _is_any_wanted(first, width, alive, seen)
        if gone == 0 and left == begin:
            left += size
            continue
        for row in range(filled, begin + size):
            rows[row] = row
        filled = max(filled, begin + size)
        for i in range(size):
            other = rows[begin + i]
            rows[begin + i] = rows[left]
            rows[left] = other
            left += flags[i]
    return left - low


@jit
def scan_keys(
    keys: Any,
    low: Any,
    high: Any,
    groups: Any,
    flags: Any,
    fields: Any,
    width: Any,
    wanted: Any,
    stop: Any,
) -> Any:
    """Scan packed rows; returns how many of them have only values that are left.

    Blocks of rows go through one group of columns after the other, without a branch: whether a row is left cannot be
    guessed. Only columns of which some value was not seen yet are looked at by themselves.

    Parameters
    ----------
    keys : uint64 (words, rows). low, high : the rows.
    groups : uint64 (groups, 4), columns that lie side by side in a key: word, shift and mask of all of them together,
        and where their flags begin; columns that have lost nothing are in none.
    flags : uint8, for each group 1 for each combination of codes that is left.
    fields : uint64 (columns, 3), word, shift and mask of each column; no mask is beyond the width.
    width : uint64, flags of a column. wanted : uint8 (columns * width,), 1 for each code that is left and was not seen;
        set to 0 for those that rows left have.
    stop : the flag that ends the scan early; the number is of no use then.
    """
    is_left = np.empty(KEY_BLOCK, dtype=np.uint8)
    places = np.empty(KEY_BLOCK, dtype=np.int64)
    waiting = np.zeros(len(fields), dtype=np.int64)
    for c in range(len(fields)):
        for code in range(width):
            waiting[c] += wanted[np.uint64(c) * width + np.uint64(code)]
    all_waiting = waiting.sum()
    left: Any = 0
    for begin in range(low, high, KEY_BLOCK):
        if stop[0] != 0:
            break
        size = min(KEY_BLOCK, high - begin)
        count: Any = size
        for g in range(len(groups)):
            word, shift, mask, first = groups[g, 0], groups[g, 1], groups[g, 2], groups[g, 3]
            if g == 0:
                for i in range(size):
                    is_left[i] = flags[first + ((keys[word, begin + i] >> shift) & mask)]
            else:
                for i in range(size):
                    is_left[i] &= flags[first + ((keys[word, begin + i] >> shift) & mask)]
        if len(groups) > 0:
            count = 0
            for i in range(size):
                count += is_left[i]
        left += count
        if all_waiting == 0 or count == 0:
            continue
        if count == size:
            for i in range(size):
                places[i] = begin + i
        else:
            found: Any = 0
            for i in range(size):
                places[found] = begin + i
                found += is_left[i]
        for c in range(len(fields)):
            if waiting[c] > 0:
                seen = _see(keys, places, count, fields[c, 0], fields[c, 1], fields[c, 2], np.uint64(c) * width, wanted)
                waiting[c] -= seen
                all_waiting -= seen
    return left


@jit
def _see(keys: Any, places: Any, count: Any, word: Any, shift: Any, mask: Any, first: Any, wanted: Any) -> Any:
    """Take the codes of some rows of a column off those that are wanted; returns how many were."""
    seen: Any = 0
    for i in range(count):
        code = first + ((keys[word, places[i]] >> shift) & mask)
        if wanted[code] != 0:
            wanted[code] = 0
            seen += 1
    return seen


@jit
def _is_any_wanted(start: Any, width: Any, alive: Any, seen: Any) -> Any:
    """Whether a column has a code that is left and was not seen."""
    for code in range(width):
        if alive[start + np.uint64(code)] > seen[start + np.uint64(code)]:
            return 1
    return 0


@jit
def count_forbidden(
    codes: Any, rows: Any, count: Any, is_whole: Any, offsets: Any, sizes: Any, alive: Any, counts: Any, stop: Any
) -> Any:
    """How many forbidden rows that are still possible have each value; returns how many rows are left.

    counts : int64, one a value of all domains; those of the scope are overwritten. Others as for :func:`scan_table`.
    """
    left = _keep_rows(codes, rows, count, is_whole, offsets, sizes, alive, stop)
    for c in range(len(offsets)):
        counts[offsets[c] : offsets[c] + sizes[c]] = 0
    if stop[0] != 0:
        return left
    for place in range(left):
        row = rows[place]
        for c in range(len(offsets)):
            counts[offsets[c] + codes[row, c]] += 1
    return left


@jit
def filter_linear(
    coefficients: Any, starts: Any, offsets: Any, capacity: Any, alive: Any, least: Any, removed: Any
) -> Any:
    """Remove values that take more than what the others leave; returns the room that the cheapest values leave.

    coefficients : int64, those of each variable's values, one variable after the other, from ``starts`` (arity + 1,)
    on; sums do not leave 64 bits. capacity : what all may take. least : int64 (arity,), scratch. Others as for
    :func:`scan_table`. A negative room is a contradiction; nothing is removed then.
    """
    room = capacity
    arity = len(offsets)
    for c in range(arity):
        best = np.iinfo(np.int64).max
        for value in range(starts[c + 1] - starts[c]):
            if alive[offsets[c] + value] != 0:
                best = min(best, coefficients[starts[c] + value])
        least[c] = best
        room -= best
        removed[c] = 0
    if room < 0:
        return room
    for c in range(arity):
        for value in range(starts[c + 1] - starts[c]):
            if alive[offsets[c] + value] != 0 and coefficients[starts[c] + value] - least[c] > room:
                alive[offsets[c] + value] = 0
                removed[c] += 1
    return room
