"""Preprocessing of incomplete tables (Bistaffa, Bombieri and Farinelli 2016, algorithm 3).

Fields are moved to the places that the operation needs, rows sorted on the bits that matter (a stable radix sort of
just those), and groups of rows that occur in one of two tables only are dropped. A table whose rows are in that order
already is not sorted again. Rows without a partner in a much smaller table are dropped before they are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.tables.layout import Layout, field_masks, merged_ranges, move_plan
from oocbe.tables.table import Table

FILTER_BITS = 20
"""Bits of the filter's hashes: its table takes 1 MiB, which the second-level cache of a core holds."""

FILTER_RATIO = 4
"""Rows of the larger table for each row of the smaller one, at least: at 2, the filter costs as much as it saves (a
million rows with half a million, all of them partners)."""

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier of Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4)."""


def arrange(
    table: Table,
    scope: Sequence[str],
    order: Sequence[str],
    dtype: np.dtype[Any],
    backend: Backend,
    piece_rows: int | None = None,
) -> Table:
    """A table with its fields in the order of ``scope`` and its rows in the order of some of them.

    The rows may be the table's own arrays, and are not to be written to.

    table : any table.
    scope : all its variables, the least significant place first.
    order : variables to sort by, the least significant first.
    dtype : dtype of the values wanted.
    """
    layout = table.layout.select(scope)
    moved = layout.scope != table.scope
    keys, values = table.keys, table.values.astype(dtype, copy=False)
    if moved:
        keys = backend.permute(keys, move_plan(table.layout, layout), layout.words, piece_rows)
    if order and not (table.is_sorted and table.scope[-len(order) :] == tuple(order)):
        ranges = merged_ranges(map(layout.field, order))
        keys, values = backend.sort_rows(keys, values, ranges, piece_rows, own=moved)
    return Table(layout, keys, values, table.semiring)


def match(
    table1: Table, table2: Table, shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> MatchedGroups:
    """Groups that two tables have in common; both have ``shared`` in their lowest places and are sorted by it."""
    # In the lowest places of both, their bits are at the same ones: words that only one table has hold none of them.
    masks = field_masks(table1.layout, shared)[: table2.layout.words]
    return backend.common_groups(table1.keys, table2.keys, masks, piece_rows)


def without_lonely(
    tables: Sequence[Table], shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> list[Table]:
    """Two tables of a join, the larger one without most rows that have no partner in a much smaller one.

    A filter contains the smaller table's values of the shared variables, hashed if they have more than
    :data:`FILTER_BITS` bits (Bloom 1970). Moving and sorting the dropped rows would cost more than this pass over them.
    The tables are returned as they are where the filter does not pay, and on other backends than the CPU's.

    tables : two tables, in main memory. shared : the variables that both have.
    """
    found = list(tables)
    small, large = sorted(range(2), key=lambda i: tables[i].rows)
    rows = tables[small].rows
    is_worthwhile = FILTER_RATIO * rows <= tables[large].rows and 2 * rows <= 1 << FILTER_BITS
    if backend.name != "cpu" or not shared or not rows or not is_worthwhile:
        return found
    part = tables[small].layout.select(shared)
    bits = min(part.bits, FILTER_BITS)
    is_absent = np.ones(1 << bits, dtype=np.bool_)
    is_absent[_hashed(tables[small], part, bits, backend, piece_rows)] = False
    absent = np.flatnonzero(is_absent).astype(np.uint64)
    if 2 * len(absent) < 1 << bits:
        return found
    table = tables[large]
    hashes = _hashed(table, part, bits, backend, piece_rows)[np.newaxis]
    keys, values = backend.drop_forbidden(table.keys, table.values, hashes, absent[np.newaxis], bits, piece_rows)
    found[large] = replace(table, keys=keys, values=values)
    return found


def _hashed(table: Table, part: Layout, bits: int, backend: Backend, piece_rows: int | None) -> NDArray[np.uint64]:
    """Values of the part's variables as numbers of so many bits, uint64 (rows,)."""
    keys = backend.permute(table.keys, move_plan(table.layout, part, part.scope), part.words, piece_rows)
    total: NDArray[np.uint64] = keys[0]
    if part.bits <= bits:
        return total
    total = total * MULTIPLIER
    for word in keys[1:]:
        total = (total ^ (total >> np.uint64(32)) ^ word) * MULTIPLIER
    return total >> np.uint64(64 - bits)
