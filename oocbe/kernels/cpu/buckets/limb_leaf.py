"""Counts of several limbs (:mod:`oocbe.tables.numbers`) at the leaves of a walk.

If rows carry a consumption (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`), each product of two lists' rows is
added at once to the count of its sum of consumptions: in an array by consumption, or, if that would be mostly empty, in
ascending order, from a heap of the first list's rows, each with its next row of the other list. Products and sums are
those of unsigned integers (Knuth 1997, section 4.3.1, algorithms A and M). The caller guarantees that the sum, and so
every intermediate result, fits the result's limbs. Most counts have fewer limbs than the capacity, so trailing zeros
are not multiplied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_runs import GIVEN_UP, LISTS, NO_ROOM
from oocbe.kernels.cpu.jit import inline, without_allocation

U64 = np.uint64

HEAP, NEXT, SUMS = LISTS, LISTS + 1, LISTS + 2
"""Rows of ``WalkLists.amounts`` with the heap of a combination: numbers of rows, the least sum first; by number, the
next row of the other list, and the sum with it."""

DENSE_SHARE = 16
"""Sums are added in an array of all numbers between the least and the greatest if these are at most so many times the
rows of both lists, and no more than the products; a heap takes several times as long for each product."""

COUNT_LISTS = LISTS + 3
"""Rows of ``WalkLists.amounts`` for counts of limbs."""


@inline
def high_half(a: Any, b: Any) -> Any:
    """The upper 64 bits of the product of two unsigned numbers of 64 bits."""
    half, low = U64(32), U64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    cross = a1 * b0 + (a0 * b0 >> half)
    middle = a0 * b1 + (cross & low)
    return a1 * b1 + (cross >> half) + (middle >> half)


@without_allocation
def multiplied(product: Any, filled: Any, values: Any, first: Any, limbs: Any) -> Any:
    """Multiply a number by another one in place; returns its new number of limbs.

    product : uint64 (2, capacity), the number in row 0; row 1 is overwritten. The result is truncated to the capacity.
    filled : limbs of the number. values, first, limbs : the factor, ``values[first : first + limbs]``.
    """
    while limbs > 1 and U64(values[first + limbs - 1]) == U64(0):
        limbs -= 1
    room = product.shape[1]
    if limbs == 1:
        factor = U64(values[first])
        if factor == U64(1):
            return filled
        carry = U64(0)
        for i in range(filled):
            low = product[0, i] * factor
            high = high_half(product[0, i], factor)
            low += carry
            carry = high + U64(low < carry)
            product[0, i] = low
        if carry != U64(0) and filled < room:
            product[0, filled] = carry
            filled += 1
        return filled
    size = min(filled + limbs, room)
    for i in range(size):
        product[1, i] = U64(0)
    for j in range(limbs):
        factor = U64(values[first + j])
        carry = U64(0)
        for i in range(min(filled, size - j)):
            low = product[0, i] * factor
            high = high_half(product[0, i], factor)
            low += carry
            high += U64(low < carry)
            before = product[1, i + j]
            low += before
            high += U64(low < before)
            product[1, i + j] = low
            carry = high
        if filled + j < size:
            product[1, filled + j] = carry
    for i in range(size):
        product[0, i] = product[1, i]
    while size > 1 and product[0, size - 1] == U64(0):
        size -= 1
    return size


@without_allocation
def loaded(product: Any, values: Any, first: Any, limbs: Any) -> Any:
    """Copy a number to row 0 of ``product``, as for :func:`multiplied`; returns its limbs without leading zeros."""
    filled = min(limbs, product.shape[1])
    for i in range(filled):
        product[0, i] = U64(values[first + i])
    while filled > 1 and product[0, filled - 1] == U64(0):
        filled -= 1
    return filled


@without_allocation
def add_product(product: Any, filled: Any, out: Any, at: Any) -> None:
    """Add the number in row 0 of ``product``, of ``filled`` limbs, to ``out[at : at + capacity]``."""
    carry = U64(0)
    for i in range(product.shape[1]):
        if i >= filled and carry == U64(0):
            break
        before = U64(out[at + i])
        added = before + carry
        carry = U64(added < before)
        if i < filled:
            added += product[0, i]
            carry += U64(added < product[0, i])
        out[at + i] = out.dtype.type(added)


@inline
def _begin_row(lists: Any, target: Any, row: Any, amount: Any, limbs: Any) -> None:
    """Append a count of 0 to a list."""
    lists.amounts[target, row] = amount
    for i in range(row * limbs, (row + 1) * limbs):
        lists.worths[target, i] = 0


@without_allocation
def combine_counts(
    lists: Any, source: Any, size: Any, target: Any, tables: Any, t: Any, begin: Any, rows: Any, rule: Any, stop: Any
) -> Any:
    """All sums of a consumption of a list and one of a table, ascending, each with the sum of its products.

    lists : ``WalkLists``, with :data:`COUNT_LISTS` lists of consumptions; overwritten from :data:`HEAP` on.
    source, size : a list, and the number of its rows. target : the list that is written.
    tables, t, begin, rows : ``TableArrays``; the table, its first row, and their number, at least 1.
    rule : limit with all guard bits, guard bits, consumption bits of a key, maximum number of rows, and ``product`` as
        for :func:`multiplied`. stop : int64 (1,), read at each step.
    Returns rows of the target; ``GIVEN_UP`` if there are too many, or ``stop`` is set; ``NO_ROOM`` beyond its capacity.
    """
    amounts, worths, keys = lists.amounts, lists.worths, tables.keys
    limit, guards, mask, most, product = rule
    limbs, factor_limbs = product.shape[1], tables.limbs[t]
    first_key, first_value = tables.key_base[t] + begin, tables.value_base[t] + begin * factor_limbs
    least = amounts[source, 0] + np.int64(keys[first_key] & mask)
    span = amounts[source, size - 1] + np.int64(keys[first_key + rows - 1] & mask) - least + 1
    if span <= size * rows and span <= DENSE_SHARE * (size + rows):
        if span > amounts.shape[1]:
            return np.int64(NO_ROOM)
        for k in range(span):
            _begin_row(lists, target, k, least - 1, limbs)
        for i in range(size):
            if stop[0] != 0:
                return np.int64(GIVEN_UP)
            for row in range(rows):
                amount = amounts[source, i] + np.int64(keys[first_key + row] & mask)
                if (limit - amount) & guards == guards:
                    k = amount - least
                    amounts[target, k] = amount
                    length = loaded(product, worths[source], i * limbs, limbs)
                    length = multiplied(product, length, tables.values, first_value + row * factor_limbs, factor_limbs)
                    add_product(product, length, worths[target], k * limbs)
        filled = size - size
        for k in range(span):
            if amounts[target, k] >= least:
                amounts[target, filled] = amounts[target, k]
                for i in range(limbs):
                    worths[target, filled * limbs + i] = worths[target, k * limbs + i]
                filled += 1
        return filled if filled <= most else np.int64(GIVEN_UP)
    for i in range(size):
        amounts[HEAP, i] = i
        amounts[NEXT, i] = 0
        amounts[SUMS, i] = amounts[source, i] + np.int64(keys[first_key] & mask)
    filled, waiting = size - size, size
    while waiting > 0:
        if stop[0] != 0:
            return np.int64(GIVEN_UP)
        i = amounts[HEAP, 0]
        row, amount = amounts[NEXT, i], amounts[SUMS, i]
        if (limit - amount) & guards == guards:
            if filled == 0 or amounts[target, filled - 1] != amount:
                if filled == most:
                    return np.int64(GIVEN_UP)
                if filled == amounts.shape[1]:
                    return np.int64(NO_ROOM)
                _begin_row(lists, target, filled, amount, limbs)
                filled += 1
            length = loaded(product, worths[source], i * limbs, limbs)
            length = multiplied(product, length, tables.values, first_value + row * factor_limbs, factor_limbs)
            add_product(product, length, worths[target], (filled - 1) * limbs)
        if row + 1 < rows:
            amounts[NEXT, i] = row + 1
            amounts[SUMS, i] = amounts[source, i] + np.int64(keys[first_key + row + 1] & mask)
        else:
            waiting -= 1
            i = amounts[HEAP, waiting]
        place = np.int64(0)
        while 2 * place + 1 < waiting:
            below = 2 * place + 1
            if below + 1 < waiting and amounts[SUMS, amounts[HEAP, below + 1]] < amounts[SUMS, amounts[HEAP, below]]:
                below += 1
            if amounts[SUMS, amounts[HEAP, below]] >= amounts[SUMS, i]:
                break
            amounts[HEAP, place] = amounts[HEAP, below]
            place = below
        amounts[HEAP, place] = i
    return filled


@without_allocation
def merge_counts(lists: Any, one: Any, size: Any, other: Any, other_size: Any, target: Any, product: Any) -> Any:
    """Merge two lists into a third, with the sums of equal consumptions; returns its rows, or ``NO_ROOM``."""
    amounts, worths, limbs = lists.amounts, lists.worths, product.shape[1]
    i, j, filled = size - size, size - size, size - size
    while i < size or j < other_size:
        if filled == amounts.shape[1]:
            return np.int64(NO_ROOM)
        takes_one = i < size and (j == other_size or amounts[one, i] <= amounts[other, j])
        takes_other = j < other_size and (i == size or amounts[other, j] <= amounts[one, i])
        _begin_row(lists, target, filled, amounts[one, i] if takes_one else amounts[other, j], limbs)
        if takes_one:
            add_product(product, loaded(product, worths[one], i * limbs, limbs), worths[target], filled * limbs)
            i += 1
        if takes_other:
            add_product(product, loaded(product, worths[other], j * limbs, limbs), worths[target], filled * limbs)
            j += 1
        filled += 1
    return filled


@without_allocation
def write_counts(key: Any, lists: Any, source: Any, rows: Any, limbs: Any, output: Any, count: Any) -> Any:
    """Append a list to the output, with sufficient capacity; returns its new number of rows.

    key : uint64 (words,), of the separator. output, count : ``LeafOutput``, and its number of rows.
    """
    for row in range(rows):
        for w in range(len(key)):
            output.keys[w, count] = key[w]
        output.keys[0, count] |= U64(lists.amounts[source, row])
        for i in range(limbs):
            output.values[count * limbs + i] = lists.worths[source, row * limbs + i]
        count += 1
    return count
