"""The leaf of a walk whose rows are counts of several limbs (:mod:`oocbe.tables.limbs`).

The candidates are those of :mod:`oocbe.kernels.cpu.buckets.value_leaf`. Products and sums are those of unsigned
integers (Knuth 1997, section 4.3.1, algorithms A and M). The caller guarantees that the sum, and so every intermediate
result, fits the result's limbs. Most counts have fewer limbs than the capacity, so trailing zeros are not multiplied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import inline, without_allocation

U64 = np.uint64


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

    Parameters
    ----------
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
def join_limbs(tables: Any, leaf: Any, here: Any, places: Any, product: Any, out: Any, at: Any) -> Any:
    """Count of one leaf: returns whether any value is feasible. The count is then ``out[at : at + limbs]``.

    Parameters
    ----------
    tables, leaf, here : ``TableArrays``, a part of a ``JoinProgram``, and ``LeafRows``, of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`. The bucket has no functions: a feasible tuple counts as one.
    places : int64 (2, tables), overwritten. product : uint64 (2, limbs), overwritten.
    out : flat values of rows, of the tables' dtype.
    """
    keys, values, key_base, value_base = tables.keys, tables.values, tables.key_base, tables.value_base
    low, high, index, base = here.low, here.high, here.indices, here.base
    leaf_mask, leaf_masks = leaf.mask, leaf.masks
    table_limbs, count_tables = tables.limbs, len(key_base)
    limbs = product.shape[1]
    pointer = places[0]
    block = np.int64(-1)
    allowed = U64(0)
    found = False
    candidates = np.int64(leaf.size)
    first_row = np.int64(0)
    if count_tables > 0:
        first_row = low[0]
        candidates = high[0] - first_row
        for t in range(1, count_tables):
            pointer[t] = low[t]
    for candidate in range(candidates):
        x = np.int64(candidate)
        if count_tables > 0:
            x = np.int64(keys[key_base[0] + first_row + candidate] & leaf_mask)
        if x >> 6 != block:
            block = x >> 6
            allowed = ~U64(0)
            for f in range(here.mask_from, here.mask_to):
                allowed &= leaf_masks[base[f] + index[f] * leaf.mask_words + block]
        if (allowed >> U64(x & 63)) & U64(1) == U64(0):
            continue
        present = True
        for t in range(1, count_tables):
            p = pointer[t]
            end = high[t]
            offset = key_base[t]
            while p < end and np.int64(keys[offset + p] & leaf_mask) < x:
                p += 1
            pointer[t] = p
            if p == end or np.int64(keys[offset + p] & leaf_mask) != x:
                present = False
                break
        if not present:
            continue
        filled = np.int64(1)
        product[0, 0] = U64(1)
        if count_tables > 0:
            filled = min(table_limbs[0], limbs)
            first = value_base[0] + (first_row + candidate) * table_limbs[0]
            for i in range(filled):
                product[0, i] = U64(values[first + i])
            while filled > 1 and product[0, filled - 1] == U64(0):
                filled -= 1
        for t in range(1, count_tables):
            filled = multiplied(product, filled, values, value_base[t] + pointer[t] * table_limbs[t], table_limbs[t])
        if not found:
            found = True
            for i in range(limbs):
                out[at + i] = 0
        carry = U64(0)
        for i in range(limbs):
            if i >= filled and carry == U64(0):
                break
            before = U64(out[at + i])
            added = before + carry
            carry = U64(added < before)
            if i < filled:
                added += product[0, i]
                carry += U64(added < product[0, i])
            out[at + i] = out.dtype.type(added)
    return found
