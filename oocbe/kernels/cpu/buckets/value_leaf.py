"""The leaves of a walk whose rows carry only a value, or a count of several limbs (:mod:`oocbe.tables.limbs`).

At a leaf (:mod:`oocbe.kernels.cpu.buckets.bucket_join`) each table's remaining rows differ in the eliminated variable
only. Its values that occur in all tables and are permitted by all constraints are joined with the functions, and
reduced to one value. Buckets of counts have no functions: a feasible tuple counts as one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.join_arrays import (
    Frontier,
    LeafArrays,
    LeafOutput,
    LeafPruning,
    LeafScratch,
    LookupArrays,
    SemiringCodes,
    TableArrays,
)
from oocbe.kernels.cpu.buckets.limb_leaf import add_product, loaded, multiplied
from oocbe.kernels.cpu.buckets.walk_steps import rows_of_leaf
from oocbe.kernels.cpu.jit import borrowing, inline
from oocbe.kernels.cpu.values import log_sum_exp

U64 = np.uint64


@inline
def join_values(
    tables: Any, leaf: Any, semiring: Any, limbs: Any, here: Any, places: Any, product: Any, out: Any, at: Any
) -> Any:
    """Value of one leaf: (whether any value of the variable is feasible, the reduced value).

    tables, leaf, semiring, here : ``TableArrays``, two parts of a ``JoinProgram``, and ``LeafRows``, of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    limbs : of the semiring; None for plain numbers.
    places : int64 (2, tables), overwritten.
    product, out, at : uint64 (2, limbs), overwritten, and flat values of rows, of the tables' dtype: a count is written
        to ``out[at : at + limbs]``.
    """
    keys, values, key_base, value_base = tables.keys, tables.values, tables.key_base, tables.value_base
    low, high, index, base = here.low, here.high, here.indices, here.base
    leaf_mask, leaf_size, leaf_masks, leaf_values = leaf.mask, leaf.size, leaf.masks, leaf.values
    combination, marginalisation = semiring.combination, semiring.marginalisation
    count_tables = len(key_base)
    pointer = places[0]
    block = -1
    allowed = U64(0)
    found = False
    total = values[0]
    candidates = leaf_size
    first_row = 0
    if count_tables > 0:
        first_row = low[0]
        candidates = high[0] - first_row
        for t in range(1, count_tables):
            pointer[t] = low[t]
    for candidate in range(candidates):
        x: Any = np.int64(candidate)
        if count_tables > 0:
            x = np.int64(keys[key_base[0] + first_row + candidate] & leaf_mask)
        if x >> 6 != block:
            block = x >> 6
            allowed = ~U64(0)
            for f in range(here.mask_from, here.mask_to):
                allowed &= leaf_masks[base[f] + index[f] * leaf.mask_words + block]
        if (allowed >> U64(x & 63)) & U64(1) == U64(0):
            continue
        value = semiring.one
        present = True
        if count_tables > 0:
            if limbs is None:
                value = values[value_base[0] + first_row + candidate]
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
                if limbs is None:
                    if combination == 0:
                        value += values[value_base[t] + p]
                    else:
                        value *= values[value_base[t] + p]
        if not present:
            continue
        if limbs is not None:
            filled = np.int64(1)
            product[0, 0] = U64(1)
            if count_tables > 0:
                first = value_base[0] + (first_row + candidate) * tables.limbs[0]
                filled = loaded(product, values, first, tables.limbs[0])
            for t in range(1, count_tables):
                first = value_base[t] + pointer[t] * tables.limbs[t]
                filled = multiplied(product, filled, values, first, tables.limbs[t])
            if not found:
                for i in range(limbs):
                    out[at + i] = 0
            add_product(product, filled, out, at)
            found = True
            continue
        for f in range(here.mask_to, here.function_to):
            looked_up = leaf_values[base[f] + index[f] * leaf_size + x]
            if combination == 0:
                value += looked_up
            else:
                value *= looked_up
        if not found:
            total = value
            found = True
        elif marginalisation == 0:
            total = min(total, value)
        elif marginalisation == 1:
            total = max(total, value)
        elif marginalisation == 2:
            total += value
        else:
            # In the dtype of the values: a float would turn integer totals into floats, too.
            total = values.dtype.type(log_sum_exp(total, value))
    return found, total


@borrowing
def join_value_leaves(
    tables: Any,
    lookups: Any,
    leaf: Any,
    semiring: Any,
    limbs: Any,
    pruning: Any,
    leaves: Any,
    filled: Any,
    scratch: Any,
    output: Any,
) -> Any:
    """Rows of the first ``filled`` leaves, at most one each; returns their number.

    All arguments but numbers are named tuples of :mod:`oocbe.kernels.cpu.buckets.join_arrays` as plain tuples.

    limbs : of the semiring, as an argument: for None, Numba removes the code for limbs; counts are not pruned.
    leaves : ``Frontier``. output : ``LeafOutput``, of sufficient capacity.
    """
    table_arrays, lookup, values = TableArrays(*tables), LookupArrays(*lookups), LeafArrays(*leaf)
    codes, bound, here = SemiringCodes(*semiring), LeafPruning(*pruning), Frontier(*leaves)
    work, rows = LeafScratch(*scratch), LeafOutput(*output)
    count = np.int64(0)
    for i in range(filled):
        key = here.keys[i]
        one = rows_of_leaf(lookup, here, i, work.indices)
        at = count if limbs is None else count * limbs
        found, total = join_values(table_arrays, values, codes, limbs, one, work.places, work.product, rows.values, at)
        if found and bound.prunes and here.reached[i] + total * bound.scale >= bound.slack:
            found = False
        if found:
            for w in range(len(key)):
                rows.keys[w, count] = key[w]
            if limbs is None:
                rows.values[count] = total
            count += 1
    return count
