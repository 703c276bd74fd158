"""Filter of a table by a hard constraint given as forbidden tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from oocbe.algebra.inputs import placed_tables
from oocbe.tables.columns import check_values
from oocbe.tables.layout import Layout
from oocbe.tables.moves import move_plan
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.algebra.inputs import TableLike
    from oocbe.kernels.interface import Backend


def drop_forbidden(
    table: TableLike,
    scope: Mapping[str, int],
    tuples: ArrayLike,
    *,
    piece_rows: int | None = None,
    backend: Backend | str | None = None,
) -> Table:
    """Rows of a table that contain none of the forbidden tuples, in their order.

    Parameters
    ----------
    table : in memory or stored.
    scope : the constraint's variables and domain sizes, all of them in the table's scope.
    tuples : integers (tuples, len(scope)), columns in the constraint's scope order.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.

    Raises
    ------
    ModelError : a variable outside the table's scope or with another domain size, a value outside its domain.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> drop_forbidden(f, {"x": 2}, [[1]]).to_dict()
    {(0, 0): 1}
    """
    place = placed_tables(backend, table)
    (t,), kernels = place.tables, place.kernels
    part = Layout(tuple(scope), tuple(scope.values()))
    plan = move_plan(t.layout, part, part.scope)
    rows = np.asarray(tuples, dtype=np.int64).reshape(-1, len(scope)) if scope else np.asarray(tuples, dtype=np.int64)
    if scope:
        check_values(f"constraint over {part.scope}", rows, part)
    if len(rows) == 0:
        return table if isinstance(table, Table) else place.to_caller(t)
    parts = kernels.permute(t.keys, plan, part.words, piece_rows)
    keys, values = kernels.drop_forbidden(t.keys, t.values, parts, part.pack(rows), part.bits, piece_rows)
    return place.to_caller(replace(t, keys=keys, values=values))
