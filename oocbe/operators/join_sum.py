"""Join sum: all rows of two tables that agree on their shared variables, values combined (⊕ of bucket elimination)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocbe.errors import ResourceError
from oocbe.operators.arrange import arrange, match
from oocbe.operators.inputs import check_pair, workplace
from oocbe.operators.ranges import joined_dtype
from oocbe.tables.layout import Layout
from oocbe.tables.moves import move_plan
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.kernels.interface import Backend
    from oocbe.operators.inputs import TableLike


def join_sum(
    table1: TableLike, table2: TableLike, *, piece_rows: int | None = None, backend: Backend | str | None = None
) -> Table:
    """Join two tables on their shared variables.

    Both are preprocessed by :mod:`oocbe.operators.arrange`; then each output row is gathered from its two input rows
    (Bistaffa, Bombieri and Farinelli 2016, algorithm 4).

    Parameters
    ----------
    table1, table2 : tables in memory or stored, of one semiring; scopes may be disjoint, equal or empty.
    piece_rows : rows that a kernel call works on; None: the backend's choice. The result does not depend on it.
    backend : the kernels, or ``auto``, ``cpu`` or ``cuda``; None: what ``OOCBE_BACKEND`` says, or ``auto``.

    Returns
    -------
    Table : scope = shared variables (in the first table's order), the rest of the first table's, the rest of the
        second's, the least significant first. Rows are grouped by the shared variables, not sorted within a group.

    Raises
    ------
    ModelError : different semirings, or a variable with different domain sizes.
    ValueRangeError : a joined value could leave int64.
    ResourceError : the joined rows do not fit in memory.

    Examples
    --------
    >>> from oocbe.tables.table import Table
    >>> f = Table.from_rows({"x": 2, "y": 2}, [[0, 0], [1, 0], [1, 1]], [1, 2, 3])
    >>> g = Table.from_rows({"y": 2, "z": 2}, [[0, 1]], [10])
    >>> join_sum(f, g).to_dict()
    {(0, 0, 1): 11, (0, 1, 1): 12}
    """
    place = workplace(backend, table1, table2)
    (t1, t2), kernels = place.tables, place.kernels
    shared = check_pair(t1, t2)
    dtype = joined_dtype(t1.values, t2.values, t1.semiring)
    own1 = tuple(name for name in t1.scope if name not in shared)
    own2 = tuple(name for name in t2.scope if name not in shared)
    first = arrange(t1, (*shared, *own1), shared, dtype, kernels, piece_rows)
    second = arrange(t2, (*shared, *own2), shared, dtype, kernels, piece_rows)
    groups = match(first, second, shared, kernels, piece_rows)
    layout = Layout(
        (*shared, *own1, *own2), (*first.layout.sizes, *(t2.layout.sizes[t2.layout.place(n)] for n in own2))
    )
    added = kernels.permute(second.keys, move_plan(second.layout, layout, own2), layout.words, piece_rows)
    try:
        keys, values = kernels.join_rows(
            first.keys, first.values, added, second.values, groups, layout.words, t1.semiring.combination, piece_rows
        )
    except MemoryError:
        needed = groups.joined_rows * (8 * layout.words + dtype.itemsize)
        raise ResourceError(
            f"joining {t1!r} and {t2!r} gives {groups.joined_rows:,} rows, {format_bytes(needed)}, more than the "
            "memory left; eliminate a variable in the same step (join_maximise), which writes no joined row"
        ) from None
    return place.hand_over(Table(layout, keys, values, t1.semiring, is_sorted=len(values) < 2))
