"""Rows of synthetic tables, and checks of what operators make of them; see :mod:`oocbe.stress.tables`.

Arguments that all loops share: ``classes`` int64 (classes, 3), for each class of groups of one size its first rank, the
own values of each of its groups, and the (group, own value) pairs before it; ``fields`` int64 (variables, 4), for each
variable of a scope its word, shift, mask and domain size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import helper, jit

FIRST, COUNT, PAIRS = 0, 1, 2
"""Columns of a range of groups: its first rank, its rows a group, and the pairs before it."""

WORD, SHIFT, MASK, SIZE = 0, 1, 2, 3
"""Columns of a field: its place in a key, and its number of values."""


@helper
def _finalised(word: np.uint64) -> np.uint64:
    """A number of 64 bits that looks random, another one for each (SplitMix64, Steele, Lea and Flood 2014)."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@helper
def mixed(seed: int, a: int, b: int) -> int:
    """A number below 2^32 that looks random (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    word = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(a) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(b)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    number: int = np.int64((word ^ (word >> np.uint64(31))) >> np.uint64(32))  # type: ignore[assignment]
    return number


@helper
def _class_of(classes: NDArray[np.int64], column: int, number: int) -> int:
    """The last class whose entry in a column is not above a number."""
    low, high = 0, classes.shape[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if classes[middle, column] <= number:
            low = middle
        else:
            high = middle
    return low


@helper
def _own_count(classes: NDArray[np.int64], rank: int) -> int:
    count: int = classes[_class_of(classes, FIRST, rank), COUNT]
    return count


@helper
def value_of(seed: int, rank: int, own: int, count: int, eliminated: int) -> int:
    """Value of a row: a term of its group, one that runs through all own values, one of group and eliminated value."""
    return mixed(seed, rank, 1) % 1000 + (own + rank) % count + mixed(seed, rank, 2 + eliminated) % 1000


@helper
def best_own(rank: int, count: int, parity: int) -> int:
    """Largest ``(own + rank) % count`` over own values of a parity; -1 where there is none."""
    for back in range(min(3, count)):
        own = (2 * count - 1 - back - rank % count) % count
        if own & 1 == parity:
            return count - 1 - back
    return -1


@jit
def fill_rows(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    start: int,
    chunks: int,
    scatter: int,
    classes: NDArray[np.int64],
    fields: NDArray[np.int64],
    settings: NDArray[np.int64],
) -> None:
    """Rows of one chunk of a scattered table: every ``chunks``-th row from ``start`` on, in steps of ``scatter`` such.

    settings : seed, eliminated values of an own value, stride of own values, groups, and step, shift and inverse step
    by which groups are scattered.
    """
    seed, half, stride, groups, step, shift, _ = settings
    keys[:] = np.uint64(0)
    count = len(values)
    place = 0
    for i in range(count):
        row = place * chunks + start
        place = (place + scatter) % count
        pair, part = divmod(row, half)
        number = _class_of(classes, PAIRS, pair)
        many = classes[number, COUNT]
        rank = classes[number, FIRST] + (pair - classes[number, PAIRS]) // many
        own = (pair - classes[number, PAIRS]) % many
        eliminated = 2 * part + (own & 1)
        keys[fields[0, WORD], i] |= np.uint64(own * stride + rank % stride) << np.uint64(fields[0, SHIFT])
        keys[fields[1, WORD], i] |= np.uint64(eliminated) << np.uint64(fields[1, SHIFT])
        group = (rank * step + shift) % groups
        for variable in range(2, fields.shape[0]):
            size = fields[variable, SIZE]
            keys[fields[variable, WORD], i] |= np.uint64(group % size) << np.uint64(fields[variable, SHIFT])
            group //= size
        values[i] = value_of(seed, rank, own, many, eliminated)


@jit
def fill_in_order(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    start: int,
    classes: NDArray[np.int64],
    fields: NDArray[np.int64],
    settings: NDArray[np.int64],
) -> None:
    """Rows ``start`` and following of a sorted table, as many as there are keys; settings as for :func:`fill_rows`.

    values : likewise, or none, where keys are all that is wanted. What all rows of a group share is computed once.
    """
    seed, half, stride = settings[0], settings[1], settings[2]
    words, count = keys.shape
    group_key = np.empty(words, dtype=np.uint64)
    worths = np.empty(2 * half, dtype=np.int64)
    own_word, own_shift = fields[0, WORD], np.uint64(fields[0, SHIFT])
    e_word, e_shift = fields[1, WORD], np.uint64(fields[1, SHIFT])
    pair, part = divmod(start, half)
    number = _class_of(classes, PAIRS, pair)
    many = classes[number, COUNT]
    rank = classes[number, FIRST] + (pair - classes[number, PAIRS]) // many
    own = (pair - classes[number, PAIRS]) % many
    i = 0
    while i < count:
        group_key[:] = np.uint64(0)
        group = rank
        for variable in range(2, fields.shape[0]):
            size = fields[variable, SIZE]
            group_key[fields[variable, WORD]] |= np.uint64(group % size) << np.uint64(fields[variable, SHIFT])
            group //= size
        if len(values):
            worth = mixed(seed, rank, 1) % 1000
            for e in range(2 * half):
                worths[e] = worth + mixed(seed, rank, 2 + e) % 1000
        turn, rest = (own + rank) % many, rank % stride
        while own < many and i < count:
            own_bits = np.uint64(own * stride + rest) << own_shift
            while part < half and i < count:
                e = 2 * part + (own & 1)
                for word in range(words):
                    keys[word, i] = group_key[word]
                keys[own_word, i] |= own_bits
                keys[e_word, i] |= np.uint64(e) << e_shift
                if len(values):
                    values[i] = worths[e] + turn
                part += 1
                i += 1
            part = 0
            own += 1
            turn += 1
            if turn == many:
                turn = 0
        own = 0
        rank += 1
        while number + 1 < classes.shape[0] and classes[number + 1, FIRST] <= rank:
            number += 1
        many = classes[number, COUNT]


@jit
def digest_rows(keys: NDArray[np.uint64], values: NDArray[np.int64]) -> np.uint64:
    """A sum over rows, modulo 2^64, of a number that looks random and follows from a row's key and value.

    It does not depend on the order of the rows, nor on how they are cut: sums of parts add up to that of the whole.
    """
    total = np.uint64(0)
    for row in range(len(values)):
        word = _finalised(np.uint64(values[row]))
        for place in range(keys.shape[0]):
            word = _finalised(word ^ keys[place, row])
        total += word
    return total


@helper
def read_field(keys: NDArray[np.uint64], row: int, fields: NDArray[np.int64], variable: int) -> int:
    """Value index of a variable of a row."""
    word = keys[fields[variable, WORD], row] >> np.uint64(fields[variable, SHIFT])
    number: int = np.int64(word & np.uint64(fields[variable, MASK]))  # type: ignore[assignment]
    return number


@helper
def read_rank(
    keys: NDArray[np.uint64], row: int, fields: NDArray[np.int64], first: int, settings: NDArray[np.int64]
) -> int:
    """Rank of a row's group; its variables are ``first`` and following. Negative for no group."""
    groups, back, shift = settings[3], settings[6], settings[5]
    group, scale = 0, 1
    for variable in range(first, fields.shape[0]):
        group += read_field(keys, row, fields, variable) * scale
        scale *= fields[variable, SIZE]
    if group >= groups:
        return -1
    rank: int = ((group - shift + groups) % groups) * back % groups
    return rank


@helper
def _own_of(number: int, rank: int, stride: int, count: int) -> int:
    """Own value that a value index stands for; -1 where the group has none such."""
    own, rest = divmod(number, stride)
    return own if rest == rank % stride and own < count else -1


@helper
def _add_row(sums: NDArray[np.uint64], number: int) -> None:
    word = np.uint64(number)
    sums[0] += np.uint64(1)
    sums[1] += word
    sums[2] += word * word


@jit
def check_join(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    fields: NDArray[np.int64],
    classes1: NDArray[np.int64],
    classes2: NDArray[np.int64],
    settings1: NDArray[np.int64],
    settings2: NDArray[np.int64],
    joined: NDArray[np.int64],
    sums: NDArray[np.uint64],
    eliminates: bool,
) -> int:
    """Check rows of a join sum, or of a join with the variable ``e`` marginalised out, one by one.

    fields : of own value 1, own value 2, the eliminated variable (of a join sum), the group's variables. joined : int64
    (pieces, 3), first rank, and result rows before and of each rank, where both class lists are constant; see
    ``oocbe.stress.segments``. sums : count, sum of row numbers and of their squares are added here, modulo 2^64.
    Returns the first row that is wrong, or -1.
    """
    half = settings1[1]
    first = 2 if eliminates else 3
    # Rows of a result are mostly grouped, so what all rows of a rank share is kept: terms of e, and the best of each
    # parity.
    of_rank: Any = np.int64(-1)
    count1: Any = np.int64(0)
    count2: Any = np.int64(0)
    before: Any = np.int64(0)
    shared: Any = np.int64(0)
    worths, best = np.empty(2 * half, dtype=np.int64), np.empty(2, dtype=np.int64)
    for row in range(len(values)):
        rank = read_rank(keys, row, fields, first, settings1)
        if rank < 0:
            return row
        if rank != of_rank:
            of_rank = rank
            count1, count2 = _own_count(classes1, rank), _own_count(classes2, rank)
            shared = mixed(settings1[0], rank, 1) % 1000 + mixed(settings2[0], rank, 1) % 1000
            best[:] = 0
            for e in range(2 * half):
                worths[e] = mixed(settings1[0], rank, 2 + e) % 1000 + mixed(settings2[0], rank, 2 + e) % 1000
                best[e & 1] = max(best[e & 1], worths[e])
            piece = _class_of(joined, 0, rank)
            before = joined[piece, 1] + (rank - joined[piece, 0]) * joined[piece, 2]
        own1 = _own_of(read_field(keys, row, fields, 0), rank, settings1[2], count1)
        own2 = _own_of(read_field(keys, row, fields, 1), rank, settings2[2], count2)
        if own1 < 0 or own2 < 0 or (own1 ^ own2) & 1:
            return row
        parity = own1 & 1
        # Own values of each parity, and the number of this pair among its group's pairs.
        even1, even2 = (count1 + 1) >> 1, (count2 + 1) >> 1
        many2 = count2 >> 1 if parity else even2
        pair = (own1 >> 1) * many2 + (own2 >> 1) + (even1 * even2 if parity else 0)
        expected = shared + (own1 + rank) % count1 + (own2 + rank) % count2
        part, per = 0, 1
        if eliminates:
            expected += best[parity]
        else:
            e = read_field(keys, row, fields, 2)
            part, per = e >> 1, half
            if e & 1 != parity or part >= half:
                return row
            expected += worths[e]
        if values[row] != expected:
            return row
        _add_row(sums, (before + pair) * per + part)
    return -1


@jit
def check_maximum(
    keys: NDArray[np.uint64],
    values: NDArray[Any],
    fields: NDArray[np.int64],
    classes: NDArray[np.int64],
    settings: NDArray[np.int64],
    reduced: NDArray[np.int64],
    sums: NDArray[np.uint64],
) -> int:
    """Check rows of a marginalisation over the own variable: ``fields`` of the variable ``e`` and those of the group.

    reduced, sums : as ``joined`` and ``sums`` of :func:`check_join`. Returns the first row that is wrong, or -1.
    """
    half = settings[1]
    for row in range(len(values)):
        rank = read_rank(keys, row, fields, 1, settings)
        e = read_field(keys, row, fields, 0)
        if rank < 0 or e >= 2 * half:
            return row
        best = best_own(rank, _own_count(classes, rank), e & 1)
        expected = mixed(settings[0], rank, 1) % 1000 + best + mixed(settings[0], rank, 2 + e) % 1000
        if best < 0 or values[row] != expected:
            return row
        piece = _class_of(reduced, 0, rank)
        before = reduced[piece, 1] + (rank - reduced[piece, 0]) * reduced[piece, 2]
        _add_row(sums, before + (e if reduced[piece, 2] > half else e >> 1))
    return -1
