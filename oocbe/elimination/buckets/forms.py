"""Permitted message forms of a problem, complete or incomplete, and the cost of orders with the cheaper forms.

The form of each message is decided when its bucket is processed, from measured densities
(:mod:`oocbe.elimination.engine.decision`). Orders are compared earlier, from predicted rows alone
(:mod:`oocbe.elimination.orders.order`).
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.engine.decision import COMPLETE, INCOMPLETE, BucketSizes, Input, Place, expected_form
from oocbe.elimination.preparation.ranges import float_sum_bounds
from oocbe.errors import ValueRangeError
from oocbe.model.infeasible import largest_feasible
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import WORD_BITS, bits_for, key_words


def may_be_complete(problem: Problem, semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether every possible sum differs from the infeasible value (:mod:`oocbe.model.infeasible`)."""
    if semiring.combination is Combination.MULTIPLY:
        return True
    if dtype.kind == "f":
        return not any(map(math.isinf, float_sum_bounds(problem)))
    return problem.magnitude <= largest_feasible(dtype)


def checked_tables(problem: Problem, semiring: Semiring, dtype: np.dtype[Any], tables: str) -> str:
    """The option for the form of tables; ``auto`` becomes ``incomplete`` if no message can be complete.

    Raises ValueRangeError: ``complete`` is requested and sums could reach the infeasible value.
    """
    if tables == INCOMPLETE or may_be_complete(problem, semiring, dtype):
        return tables
    if tables == COMPLETE:
        raise ValueRangeError(
            f"{problem.name}: sums of its values in {dtype.name} leave no room for what is infeasible in complete "
            "tables; use --tables auto, or give the costs as floating-point numbers"
        )
    return INCOMPLETE


def supported_representations(problem: Problem, semiring: Semiring, dtype: np.dtype[Any], tables: str) -> str:
    """The option for the form of tables, without ``auto`` if no message can be complete.

    If rows carry consumption of linear constraints, the result is ``incomplete`` regardless of the option.
    """
    if carried_in_rows(problem):
        return INCOMPLETE
    return INCOMPLETE if tables == "auto" and not may_be_complete(problem, semiring, dtype) else tables


def expected_work(
    sizes: Sequence[int],
    order: Sequence[int],
    separators: Sequence[Sequence[int]],
    predicted_rows: Sequence[float],
    dtype: np.dtype[Any],
    tables: str,
    memory: int,
    cells_a_row: float | None = None,
    most: float = math.inf,
) -> float:
    """Predicted cost of an order, in rows; a joined cell of a complete bucket counts as a fraction of a row.

    sizes : domain size of each variable. tables : see :func:`supported_representations`.
    memory : the memory limit, regardless of the process's current use: orders do not depend on that.
    cells_a_row : cells that cost as much as a row; None: the value for small problems in
        :class:`oocbe.model.settings.tuning.Tuning`.
    most : the sum stops once it exceeds this, and then covers only part of the buckets.
    """
    work, bits = 0.0, [bits_for(size) for size in sizes]
    cells_a_row = cells_a_row or tuning().cells_a_row
    received: defaultdict[int, list[Input]] = defaultdict(list)
    for v, separator, rows in zip(order, separators, predicted_rows, strict=True):
        if work > most:
            break
        cells = math.prod([sizes[u] for u in separator])
        joined = min(cells * sizes[v], sys.float_info.max) / cells_a_row
        form = tables
        if tables == "auto":
            row_bytes = key_words([bits[u] for u in separator]) * WORD_BITS // 8 + dtype.itemsize
            bucket = BucketSizes(cells, cells * sizes[v], dtype.itemsize, row_bytes, rows, received.pop(v, ()))
            form = expected_form(bucket, memory)
            if separator:
                is_complete, listed = form == COMPLETE, round(rows) * row_bytes
                nbytes = cells * dtype.itemsize if is_complete else listed
                message = Input(cells, round(rows), nbytes, listed, is_complete, Place.MAIN_MEMORY)
                received[separator[0]].append(message)
            joined = min(joined, rows)
        work += joined if form == COMPLETE else rows
    return work
