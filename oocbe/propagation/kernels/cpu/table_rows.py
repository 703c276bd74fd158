"""One constraint against the domains of its variables: rows of a table, rows that are forbidden, a linear inequality.

All domains lie in one array of flags, variable after variable. A scan drops rows with a removed value for good (simple
tabular reduction) and keeps the values that some row left has. A cell that stands for every value has the code that
follows the last value's.

Compact-Table has the rows of a table as bits of words, and the rows that have each value (Demeulenaere et al. 2016).
The rows left are a *reversible sparse bit set*: words that are zero are behind the others in a list of words, and a
word that changes is put on a trail once a level, so that a search goes back by what has changed. A value's *residue* is
the word in which its last support was. Rows with cells for every value count for each of them, and leave with none
(Verhaeghe, Lecoutre and Schaus 2017).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import borrowing, helper, jit

LOOK_STEP = (1 << 16) - 1
"""Rows, less one, after which a scan looks at the flag; ones in the low bits."""


@helper
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
def count_forbidden(
    codes: Any, rows: Any, count: Any, is_whole: Any, offsets: Any, sizes: Any, alive: Any, counts: Any, stop: Any
) -> Any:
    """Count the remaining forbidden rows with each value; return the number of remaining rows.

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


FIXPOINT, FAILED, UNFINISHED = range(3)
"""How :func:`filter_tables` ends: at the fixpoint or an empty domain, with a table without rows, or by the flag."""


@jit
def filter_tables(
    scopes: Any,
    scope_starts: Any,
    cells: Any,
    cell_starts: Any,
    allowed: Any,
    uses: Any,
    use_starts: Any,
    offsets: Any,
    alive: Any,
    counts: Any,
    counters: Any,
    queue: Any,
    waiting: Any,
    is_due: Any,
    stop: Any,
) -> Any:
    """Remove the values without support in some tables, and in those of their variables, to the fixpoint.

    A value goes where no allowed row left has it, or where as many forbidden rows left have it as there are assignments
    of the other variables. A table is at its own fixpoint after one visit: what goes has no support that others lose.

    scopes, scope_starts : int64, variables of all tables, one after the other, and (tables + 1,) where each begins.
    cells, cell_starts : int64, their rows likewise, a row's values adjacent. allowed : bool (tables,), else forbidden.
    uses, use_starts : int64, tables of each variable, and (variables + 1,) where each begins.
    offsets, alive, counts : of :class:`~oocbe.propagation.domains.Domains`; the latter two are changed.
    counters : int64, scratch, one a value. queue : int64 (tables,), its first ``waiting`` are the tables that are due.
    is_due : bool (tables,), set for these. stop : the flag that ends it early.
    """
    first, tables = 0, len(allowed)
    while waiting > 0:
        if stop[0] != 0:
            return UNFINISHED
        table = queue[first]
        first, waiting = (first + 1) % tables, waiting - 1
        is_due[table] = False
        scope = scopes[scope_starts[table] : scope_starts[table + 1]]
        arity, left, product = len(scope), 0, 1.0
        for v in scope:
            counters[offsets[v] : offsets[v + 1]] = 0
            product *= counts[v]
        for row in range(cell_starts[table], cell_starts[table + 1], arity):
            is_left = True
            for c in range(arity):
                if alive[offsets[scope[c]] + cells[row + c]] == 0:
                    is_left = False
                    break
            if is_left:
                left += 1
                for c in range(arity):
                    counters[offsets[scope[c]] + cells[row + c]] += 1
        if left == (0.0 if allowed[table] else product):
            return FAILED
        for v in scope:
            others, before = 0.0 if allowed[table] else product / counts[v], counts[v]
            for value in range(offsets[v], offsets[v + 1]):
                if alive[value] != 0 and counters[value] == others:
                    alive[value] = 0
                    counts[v] -= 1
            if counts[v] == 0:
                return FIXPOINT
            for use in range(use_starts[v], use_starts[v + 1] if counts[v] < before else use_starts[v]):
                if uses[use] != table and not is_due[uses[use]]:
                    is_due[uses[use]] = True
                    queue[(first + waiting) % tables] = uses[use]
                    waiting += 1
    return FIXPOINT


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


WORD_LOOK_STEP = (1 << 12) - 1
"""Words, less one, after which an update looks at the flag; ones in the low bits."""

BitTable = namedtuple("BitTable", "offsets starts supports owned current words limit residues seen stamps")
"""A table's arrays; values are those of all its variables, one variable after the other.

offsets : int64 (arity,), where each variable's flags begin among those of all domains. starts : int64 (arity + 1,),
where its values begin here. supports : uint64 (values, words), rows that fit each value. owned : the same without
rows that fit every value; ``supports`` itself where there are none. current : uint64 (words,), rows left.
words : int32 (words,), numbers of words, those that are not zero first; limit : int64 (1,), how many these are.
residues : int32 (values,). seen : uint8 (values,), values that were left at the last filtering of the table.
stamps : int64 (words,), level at which each word was put on the trail last, or -1.
"""

Trail = namedtuple("Trail", "words contents count")
"""Words as they were: number and content, and how many there are; int32, uint64 (places,), int64 (1,)."""


@jit
def build_supports(codes: Any, starts: Any, supports: Any, owned: Any) -> None:
    """Set the bits of all rows; arrays as in :class:`BitTable`, all zero before."""
    for row in range(codes.shape[0]):
        word, bit = row >> 6, np.uint64(1) << np.uint64(row & 63)
        for c in range(codes.shape[1]):
            code, size = codes[row, c], starts[c + 1] - starts[c]
            if code < size:
                supports[starts[c] + code, word] |= bit
                owned[starts[c] + code, word] |= bit
            else:
                for value in range(starts[c], starts[c + 1]):
                    supports[value, word] |= bit


@borrowing
def update_rows(table: Any, alive: Any, level: Any, trail: Any, gone: Any, left: Any, stop: Any) -> None:
    """Take rows with removed values out of the rows left.

    By the values that went where these are fewer than those that stayed, by those that stayed otherwise.

    table : :class:`BitTable`; rows left, the list of words and ``seen`` are changed.
    alive : uint8, flags of all domains. level : another number after each step of a search down or back.
    trail : with room for all words once more. gone, left : int32, scratch for as many values as the largest domain has.
    stop : the flag that ends it early; a further call continues.
    """
    for c in range(len(table.offsets)):
        start, size = table.starts[c], table.starts[c + 1] - table.starts[c]
        offset = table.offsets[c]
        lost, kept = 0, 0
        for value in range(size):
            if alive[offset + value] != 0:
                left[kept] = start + value
                kept += 1
            elif table.seen[start + value] != 0:
                gone[lost] = start + value
                lost += 1
        if lost == 0:
            continue
        place = 0
        looked = 0
        while place < table.limit[0]:
            looked += 1
            if looked & WORD_LOOK_STEP == 0 and stop[0] != 0:
                return
            word = table.words[place]
            mask = np.uint64(0)
            if lost < kept:
                for number in range(lost):
                    mask |= table.owned[gone[number], word]
                mask = ~mask
            else:
                for number in range(kept):
                    mask |= table.supports[left[number], word]
            before = table.current[word]
            after = before & mask
            if after != before:
                if table.stamps[word] != level:
                    table.stamps[word] = level
                    trail.words[trail.count[0]] = word
                    trail.contents[trail.count[0]] = before
                    trail.count[0] += 1
                table.current[word] = after
            if after == 0:
                # The word changes places with the last one that is not zero, which comes next.
                table.limit[0] -= 1
                table.words[place] = table.words[table.limit[0]]
                table.words[table.limit[0]] = word
            else:
                place += 1
        for number in range(lost):
            table.seen[gone[number]] = 0


@borrowing
def filter_values(table: Any, alive: Any, removed: Any) -> None:
    """Remove the values that no row left fits; removed : int64 (arity,), overwritten, how many of each variable."""
    for c in range(len(table.offsets)):
        removed[c] = 0
        start, offset = table.starts[c], table.offsets[c]
        for value in range(table.starts[c + 1] - start):
            if alive[offset + value] == 0:
                continue
            own = start + value
            word = table.residues[own]
            if table.current[word] & table.supports[own, word] != 0:
                continue
            is_supported = False
            for place in range(table.limit[0]):
                word = table.words[place]
                if table.current[word] & table.supports[own, word] != 0:
                    table.residues[own] = word
                    is_supported = True
                    break
            if not is_supported:
                alive[offset + value] = 0
                table.seen[own] = 0
                removed[c] += 1


@borrowing
def undo(table: Any, trail: Any, first: Any) -> None:
    """Put back the words on the trail from a place on; the list of words needs only its old limit besides."""
    for place in range(trail.count[0] - 1, first - 1, -1):
        table.current[trail.words[place]] = trail.contents[place]
    trail.count[0] = first
