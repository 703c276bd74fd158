"""Which form a message takes: complete (values only) or incomplete (feasible rows with their keys).

By memory, a complete table is cheaper where the feasible share of its assignments, its density, is above the value's
share of a row's bytes. By time it is cheaper far below that: a joined cell of complete tables costs a small part of
what a joined row costs. So a message is complete where its values take up to :data:`FAVOUR` times the bytes of its
rows.

The plan forecasts densities from the predicted rows (:mod:`oocbe.elimination.orders.order`). The forward pass measures
them: of what a bucket joins, and of each message once it is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocbe.elimination.preparation.linear import carried_in_rows
from oocbe.elimination.preparation.ranges import float_sum_bounds, sum_bound
from oocbe.model.infeasible import largest_feasible
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Semiring
from oocbe.tables.layout import WORD_BITS, Layout

COMPLETE, INCOMPLETE = "complete", "incomplete"

FAVOUR = 4.0
"""How many times the bytes of the rows a complete table may take."""

CELLS_A_ROW = 2000.0
"""Joined cells of complete tables that take the time of one predicted row of incomplete ones, in small problems, where
a row costs half a microsecond to two (see ``ROWS_A_SECOND``)."""

LARGEST_SHARE = 4
"""Complete tables are favoured up to a quarter of the memory: a bucket's inputs, and the next message, lie beside it.
Beyond that they must be smaller than the rows, and go through the disk in pieces where memory has no room."""


def is_cheaper_complete(cells: int, rows: float, words: int, itemsize: int, favour: float = FAVOUR) -> bool:
    """Whether a message of so many assignments, of which so many are feasible, is cheaper as a complete table.

    words, itemsize : of a row's key, and bytes of a value. favour : see :data:`FAVOUR`; 1 where only memory counts.
    """
    return cells * itemsize <= favour * rows * (words * WORD_BITS // 8 + itemsize)


def may_be_complete(problem: Problem, semiring: Semiring, dtype: np.dtype[Any]) -> bool:
    """Whether every sum that can arise differs from the value of what is infeasible (:mod:`oocbe.model.infeasible`)."""
    if semiring.combination is Combination.MULTIPLY:
        return True
    if dtype.kind == "f":
        return not any(map(math.isinf, float_sum_bounds(problem)))
    return sum_bound(problem) <= largest_feasible(dtype)


def forecast(layout: Layout, rows: float, dtype: np.dtype[Any], tables: str, memory: int) -> str:
    """Form that the plan expects of a message.

    Parameters
    ----------
    layout : of the message. rows : predicted. dtype : of the values. tables : see :func:`possible_tables`.
    memory : bytes for all tables.
    """
    if tables != "auto":
        return tables
    cells = layout.complete_rows
    size = cells * dtype.itemsize
    favour = FAVOUR if size * LARGEST_SHARE <= memory else 1.0
    return COMPLETE if is_cheaper_complete(cells, rows, layout.words, dtype.itemsize, favour) else INCOMPLETE


def possible_tables(problem: Problem, semiring: Semiring, dtype: np.dtype[Any], tables: str) -> str:
    """The option for the form of tables, without ``auto`` where no message can be complete.

    Rows that carry what they consume of linear constraints are rows, whatever the option says.
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
    cells_a_row: float = CELLS_A_ROW,
) -> float:
    """What an order is predicted to cost, in rows: joined cells of complete buckets count as a part of a row.

    sizes : domain size of each variable. tables : see :func:`possible_tables`. cells_a_row : that cost what a row does.
    """
    work = 0.0
    for v, separator, rows in zip(order, separators, predicted_rows, strict=True):
        joined = math.prod(sizes[u] for u in separator) * sizes[v] / cells_a_row
        form = tables
        if tables == "auto" and joined < rows:
            layout = Layout(tuple(map(str, separator)), tuple(sizes[u] for u in separator))
            form = forecast(layout, rows, dtype, tables, memory)
        work += joined if form == COMPLETE else rows
    return work
