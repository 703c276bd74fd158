"""Marginalisation of a table that is where the kernels work (Bistaffa et al. 2016, algorithm 5: maximisation)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.arrange import arrange
from oocbe.algebra.inputs import check_result
from oocbe.algebra.ranges import reduced_dtype
from oocbe.kernels.interface import Backend
from oocbe.tables.layout import Layout
from oocbe.tables.moves import field_masks
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table


def reduce_table(table: Table, gone: Sequence[str], kernels: Backend, piece_rows: int | None = None) -> Table:
    """A table with variables marginalised out, sorted; layout as :func:`oocbe.maximise` gives it.

    Raises
    ------
    ValueRangeError : a sum could leave int64, or has left the range of floats.
    """
    layout, terms = reduced_layout(table, gone)
    dtype = reduced_dtype(table.values, table.semiring, terms)
    keys, values = reduced_rows(table, gone, dtype, kernels, piece_rows)
    return check_result(Table(layout, keys, values, table.semiring, is_sorted=True), table)


def reduced_layout(table: Table | PackedTable, gone: Sequence[str]) -> tuple[Layout, int]:
    """Layout of what is left of a table, and how many rows at most become one."""
    sizes = [table.layout.sizes[table.layout.place(name)] for name in gone]
    kept = [name for name in table.scope if name not in gone]
    return table.layout.select(kept), min(prod(sizes), max(1, table.rows))


def reduced_rows(
    table: Table, gone: Sequence[str], dtype: np.dtype[Any], kernels: Backend, piece_rows: int | None = None
) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Keys and values of a table with variables marginalised out, sorted; the table is where the kernels work."""
    kept = tuple(name for name in table.scope if name not in gone)
    last = tuple(name for name in table.scope if name in gone)
    rows = arrange(table, (*kept, *last), kept, dtype, kernels, piece_rows)
    masks = field_masks(table.layout.select(kept), kept)
    starts = kernels.group_starts(rows.keys, field_masks(rows.layout, kept), piece_rows)
    return kernels.reduce_groups(rows.keys, rows.values, starts, masks, table.semiring.marginalisation, piece_rows)
