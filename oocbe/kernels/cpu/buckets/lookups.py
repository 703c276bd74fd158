"""Merge small packed functions and constraints into fewer, larger lookups.

A *packed* function or constraint is a dense array with ``2 ** bits`` entries, indexed by the concatenated bit fields of
its scope (the variable eliminated first lowest). Entries for unused codes are forbidden, or one. The merge of several
over the union of their scopes replaces many lookups by one; the cost of a row in the join is its number of lookups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

U64 = np.uint64


@jit
def merge_constraints(
    pool: Any,
    offsets: Any,
    segment_start: Any,
    segment_shift: Any,
    segment_mask: Any,
    segment_place: Any,
    bits: Any,
    leaf_bits: Any,
    leaf_size: Any,
    step: Any,
    out: Any,
) -> Any:
    """Conjunction of packed constraints over a merged index and one more variable, as a bit set.

    pool : uint8, concatenated packed constraints (1: permitted). offsets : int64 (parts,), start of each.
    segment_start : int64 (parts + 1,); segments map bits of the merged index to each part's index.
    segment_shift, segment_mask, segment_place : uint64.
    bits : of the merged index.
    leaf_bits, leaf_size : the lowest bits of each part's index, and the values of the variable there; 0 and 1 for none.
    step : bits of the bit set for each merged index.
    out : uint64, overwritten; bit ``i * step + x`` is 1 if all parts permit the merged index i with the value x.
    """
    out[:] = 0
    for i in range(1 << bits):
        for x in range(leaf_size):
            permitted = True
            for part in range(len(offsets)):
                index = U64(0)
                for s in range(segment_start[part], segment_start[part + 1]):
                    index |= ((U64(i) >> segment_shift[s]) & segment_mask[s]) << segment_place[s]
                if pool[offsets[part] + np.int64((index << U64(leaf_bits)) | U64(x))] == 0:
                    permitted = False
                    break
            if permitted:
                place = i * step + x
                out[place >> 6] |= U64(1) << U64(place & 63)


@jit
def merge_functions(
    pool: Any,
    offsets: Any,
    segment_start: Any,
    segment_shift: Any,
    segment_mask: Any,
    segment_place: Any,
    bits: Any,
    leaf_bits: Any,
    leaf_size: Any,
    combination: Any,
    one: Any,
    out: Any,
) -> Any:
    """Combination of packed functions over the eliminated variable; out is (2 ** bits * leaf_size,)."""
    for i in range(1 << bits):
        for x in range(leaf_size):
            total = one
            for part in range(len(offsets)):
                index = U64(0)
                for s in range(segment_start[part], segment_start[part + 1]):
                    index |= ((U64(i) >> segment_shift[s]) & segment_mask[s]) << segment_place[s]
                value = pool[offsets[part] + np.int64((index << U64(leaf_bits)) | U64(x))]
                if combination == 0:
                    total += value
                else:
                    total *= value
            out[i * leaf_size + x] = total


@jit
def mark_free(bits: Any, own_bits: Any, slices: Any, out: Any) -> Any:
    """Mark the slices of a bit set that are all ones.

    bits : uint64, ``slices << own_bits`` bits. out : uint64 (max(1, slices / 64),), overwritten: bit i is 1 if the
        entries i << own_bits to ((i + 1) << own_bits) - 1 are all permitted.
    """
    out[:] = 0
    for i in range(slices):
        free = True
        for j in range(i << own_bits, (i + 1) << own_bits):
            if (bits[j >> 6] >> U64(j & 63)) & U64(1) == U64(0):
                free = False
                break
        if free:
            out[i >> 6] |= U64(1) << U64(i & 63)


@jit
def merge_bound_tables(
    tables: Any, offsets: Any, sizes: Any, groups: Any, places: Any, bits: Any, base: Any, out: Any
) -> Any:
    """Add small tables up over joint indices.

    tables : int64 or float64, concatenated. offsets, sizes : int64 (tables,), start and size of each.
    groups : int64 (tables,), the merged table of each.
    places, bits : int64 (tables,), the bits of the merged table's index that belong to each table.
    base : int64 (merged tables + 1,), start of each merged table in ``out``. out : zeros, overwritten.
    """
    for t in range(len(offsets)):
        first, last = base[groups[t]], base[groups[t] + 1]
        for i in range(last - first):
            x = (i >> places[t]) & ((1 << bits[t]) - 1)
            if x < sizes[t]:
                out[first + i] += tables[offsets[t] + x]
