"""Preprocessing of incomplete tables (Bistaffa, Bombieri and Farinelli 2016, algorithm 3).

Fields are moved to the places that the operation needs, rows sorted on the bits that matter (a stable radix sort of
just those), and groups of rows that occur in one of two tables only are dropped. A table whose rows are in that order
already is not sorted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import Backend, MatchedGroups
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks, merged_ranges, move_plan
from oocbe.tables.table import Table


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
