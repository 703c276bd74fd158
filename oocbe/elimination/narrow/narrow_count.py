"""The exact number of feasible assignments of a problem that is eliminated in one loop.

The loop computes counts of up to 62 bits; longer ones are Python integers. An order that follows a path from one end to
the other makes nearly all counts long. So orders with shallow bucket trees are used
(:func:`oocbe.kernels.cpu.orders.sparse_order.sparse_order`, ``floor``), which make few counts long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.narrow.flat_tables import constants_of
from oocbe.elimination.narrow.narrow_problem import NarrowProblem
from oocbe.elimination.preparation.zeros import zeros_forbid
from oocbe.kernels.cpu.buckets.narrow_buckets import count_within
from oocbe.runtime.deadline import check_deadline, current_flag


def count_feasible(narrow: NarrowProblem) -> int:
    """The number of feasible assignments.

    Raises
    ------
    TimeLimitError : the deadline of the current block passed.
    """
    constants, is_impossible = constants_of(narrow.problem)
    if is_impossible or (zeros_forbid(narrow.semiring) and 0 in constants):
        return 0
    order, sizes, starts, members, cell_starts, input_starts, inputs = narrow.layout
    values, permitted = narrow.cells(np.int64)
    values[: len(narrow.tables.permitted)] = narrow.tables.permitted
    is_large = np.zeros(len(order), dtype=np.uint8)
    count_within(narrow.layout, values, permitted, is_large, current_flag())
    check_deadline()
    factors = len(narrow.tables.starts) - 1
    large: dict[int, NDArray[Any]] = {}

    def scope(table: int) -> list[int]:
        found: list[int] = members[starts[table] : starts[table + 1]].tolist()
        return found

    for p in np.flatnonzero(is_large).tolist():
        check_deadline()
        axes = [int(order[p]), *scope(factors + p)]
        shape = [int(sizes[v]) for v in axes]
        permits: Any = np.ones(shape, dtype=np.int64)
        by_scope: dict[tuple[int, ...], list[NDArray[Any]]] = {}
        for q in inputs[input_starts[p] : input_starts[p + 1]].tolist():
            own = scope(q)
            cells = large.pop(q, None)
            if cells is None:
                cells = values[cell_starts[q] : cell_starts[q + 1]].reshape([sizes[v] for v in own], order="F")
            placed = cells.transpose(sorted(range(len(own)), key=lambda i: axes.index(own[i])))
            spread = placed.reshape([sizes[v] if v in own else 1 for v in axes])
            if q < factors:
                permits *= spread
            else:
                by_scope.setdefault(tuple(sorted(own)), []).append(spread.astype(object))
        # Factors with the fewest digits first: a hub may have a hundred thousand factors over itself alone.
        products = sorted(map(_product, by_scope.values()), key=lambda cells: int(cells.max()).bit_length())
        joined = np.where(permits == 0, 0, permits.astype(object))
        for product in products:
            joined = joined * product
        large[factors + p] = np.asarray(joined.sum(axis=0), dtype=object)
    ends = factors + np.flatnonzero(narrow.is_last())
    return int(_product([int(large[q]) if q in large else int(values[cell_starts[q]]) for q in ends.tolist()]))


def _product(factors: list[Any]) -> Any:
    """The product of integers or integer arrays, pairing similar lengths first; 1 for an empty list."""
    while len(factors) > 1:
        check_deadline()
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(factors) // 2 * 2 :]
    return factors[0] if factors else 1
