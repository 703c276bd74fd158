"""Preprocessing of incomplete tables (Bistaffa, Bombieri and Farinelli 2016, algorithm 3).

Fields are moved to the places that the operation needs, rows sorted on the bits that matter (a stable radix sort of
just those), and groups of rows that occur in one of two tables only are dropped. A table whose rows are in that order
already is not sorted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.tables.layout import Layout, field_masks, merged_ranges, move_plan
from oocbe.tables.table import Table

FILTER_BITS = 20
"""Bits of the filter: 128 KiB, which the second-level cache of a core holds."""

FILTER_RATIO = 4
"""Rows of the larger table for each row of the smaller one, at least: at 2, the filter costs as much as it saves (a
million rows with half a million, all of them partners)."""

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier of Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4)."""


@dataclass(frozen=True)
class Arranged:
    """A table's rows in the layout and order that an operation needs.

    Attributes
    ----------
    layout : where the fields are now.
    keys, values : the rows; may be the table's own arrays, and are not to be written to.
    """

    layout: Layout
    keys: NDArray[np.uint64]
    values: NDArray[Any]


def arrange(
    table: Table,
    scope: Sequence[str],
    order: Sequence[str],
    dtype: np.dtype[Any],
    backend: Backend,
    piece_rows: int | None = None,
) -> Arranged:
    """Bring a table's fields into the order of ``scope`` and its rows into the order of some of them.

    Parameters
    ----------
    table : any table.
    scope : all its variables, the least significant place first.
    order : variables to sort by, the least significant first.
    dtype : dtype of the values wanted.
    """
    layout = table.layout.select(scope)
    values = table.values.astype(dtype, copy=False)
    moved = layout.scope != table.scope
    keys = table.keys
    if moved:
        keys = backend.permute(keys, move_plan(table.layout, layout), layout.words, piece_rows)
    if not order or (table.is_sorted and table.scope[-len(order) :] == tuple(order)):
        return Arranged(layout, keys, values)
    ranges = merged_ranges(map(layout.field, order))
    return Arranged(layout, *backend.sort_rows(keys, values, ranges, piece_rows, own=moved))


def match(
    table1: Arranged, table2: Arranged, shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> MatchedGroups:
    """Groups that two tables have in common; both have ``shared`` in their lowest places and are sorted by it."""
    # In the lowest places of both, their bits are at the same ones: words that only one table has hold none of them.
    masks = field_masks(table1.layout, shared)[: table2.layout.words]
    return backend.common_groups(table1.keys, table2.keys, masks, piece_rows)


def without_lonely(
    tables: Sequence[Table], shared: Sequence[str], backend: Backend, piece_rows: int | None = None
) -> list[Table]:
    """Two tables of a join, the larger one without most rows that have no partner in a much smaller one.

    A bitmap contains the smaller table's values of the shared variables, hashed where they have more than
    :data:`FILTER_BITS` bits (Bloom 1970): moving and sorting the dropped rows costs more than this pass over them.
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
