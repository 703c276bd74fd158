"""Tables on the device from one form to the other, there: rows to a complete table and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oocbe.tables.complete import CompleteTable, check_feasible, key_fields, rows_listed, sizes_and_places
from oocbe.tables.table import Table


def written_out(table: Table, scope: Sequence[str]) -> CompleteTable:
    """Rows on the device as a complete table there, of the same dtype.

    scope : order of the variables, the fastest first.

    Raises
    ------
    ResourceError : device memory ran out. ValueRangeError : a value that the dtype cannot hold beside what is
        infeasible.
    """
    from oocbe.kernels.cuda.complete.complete_rows import cells_of_rows
    from oocbe.kernels.cuda.transfer.memory import with_retry

    layout = table.layout.select(scope)
    check_feasible(f"complete table over {layout.scope}", table.values, table.semiring)
    fields = key_fields(table.layout, layout)
    values = with_retry(cells_of_rows)(table.keys, table.values, fields, layout.complete_rows, table.semiring)
    return CompleteTable(layout, values, table.semiring)


def listed(table: CompleteTable, scope: Sequence[str]) -> Table:
    """The feasible assignments of a complete table on the device as rows there, sorted.

    scope : order of the variables, the least significant first. Values of int16 become int32.

    Raises
    ------
    ResourceError : device memory ran out.
    """
    from oocbe.kernels.cuda.complete.complete_rows import rows_of_cells
    from oocbe.kernels.cuda.transfer.memory import with_retry

    layout = table.layout.select(scope)
    steps = np.array(table.strides(layout.scope), dtype=np.int64)
    sizes, places = sizes_and_places(layout)
    keys, values = with_retry(rows_of_cells)(table.values, sizes, steps, places, table.semiring)
    return rows_listed(layout, keys, values, table.semiring)
