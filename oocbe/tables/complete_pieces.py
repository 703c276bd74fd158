"""The rows of a complete table, piece by piece: what lists them all at once takes three times the table's memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.complete_rows import rows_of_cells
from oocbe.model.infeasible import feasible_mask
from oocbe.model.semiring import Semiring
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table


def sorted_pieces(table: CompleteTable, most_cells: int) -> Iterator[Table]:
    """Feasible rows of a complete table in main memory, sorted, its variable that changes fastest most significant.

    Each piece has the rows of at most ``most_cells`` cells, or of one variable's; pieces without rows are left out.
    """
    sizes, scope = table.layout.sizes, table.scope
    layout = table.layout.select(tuple(reversed(scope)))
    leading, cells = 0, table.cells
    while leading + 1 < len(sizes) and cells > most_cells:
        cells //= sizes[leading]
        leading += 1
    inner = table.layout.select(scope[leading:])
    fields = [layout.field(name) for name in scope[:leading]]
    for digits in product(*map(range, sizes[:leading])):
        first = sum(digit * step for digit, step in zip(digits, table.steps, strict=False))
        values = np.ascontiguousarray(table.values[first :: table.cells // cells])
        rows = CompleteTable(inner, values, table.semiring).to_table(tuple(reversed(inner.scope)))
        if rows.rows == 0:
            continue
        keys = np.zeros((layout.words, rows.rows), dtype=np.uint64)
        keys[: len(rows.keys)] = rows.keys
        for field, digit in zip(fields, digits, strict=True):
            keys[field.word] |= np.uint64(digit << field.shift)
        yield Table(layout, keys, rows.values, table.semiring, is_sorted=True)


def listed(layout: Layout, values: NDArray[Any], first: int, semiring: Semiring) -> Table:
    """Rows of the feasible ones among neighbouring cells of a complete table, sorted.

    layout : of all cells, the fastest variable least significant. values : of the cells from ``first`` on.
    """
    places = np.array([(f.word, f.shift) for f in layout.fields], dtype=np.int64).reshape(-1, 2)
    sizes = np.array(layout.sizes, dtype=np.int64)
    mask = feasible_mask(values, semiring.combination, semiring.marginalisation)
    keys, kept = rows_of_cells(values, mask, sizes, places, layout.words, first)
    return Table(layout, keys, kept, semiring, is_sorted=True)
