"""What joins and marginalisations of synthetic tables must give, in closed form, and the check of a result against it.

Each row of a result is checked by itself: its own values must occur in its group and agree in parity, and its value is
computed anew from the generator. That all rows are there, each once, is seen from their number, known in closed form,
and from the sums of their consecutive numbers and of the squares of these, modulo 2^64; for a sorted result, whose keys
ascend strictly, the number of rows alone is proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.synthetic import check_join, check_maximum
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.synth.tables import SyntheticTable, field_rows
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

WORD = 1 << 64
"""Number of values of a 64-bit word: sums are compared modulo it."""


@dataclass(frozen=True)
class ResultCheck:
    """Whether a result is right.

    Attributes
    ----------
    rows, expected_rows : that it has, and must have.
    fault : what is wrong; empty for nothing.
    """

    rows: int
    expected_rows: int
    fault: str = ""


def joined_pieces(first: SyntheticTable, second: SyntheticTable) -> tuple[NDArray[np.int64], int]:
    """Ranges of ranks over which both tables' groups have constant sizes, and all matching pairs of own values.

    Returns int64 (ranges, 3): first rank, pairs before, pairs of each rank; and the number of pairs.
    """
    bounds = sorted({int(rank) for table in (first, second) for rank in table.classes[:, 0]})
    found, before = [], 0
    for low, high in zip(bounds, [*bounds[1:], first.groups], strict=True):
        count1, count2 = (
            int(t.classes[np.searchsorted(t.classes[:, 0], low, side="right") - 1, 1]) for t in (first, second)
        )
        pairs = -(-count1 // 2) * -(-count2 // 2) + (count1 // 2) * (count2 // 2)
        found.append([low, before, pairs])
        before += pairs * (high - low)
    return np.array(found, dtype=np.int64), before


def check_joined(result: StoredTable | Table, first: SyntheticTable, second: SyntheticTable) -> ResultCheck:
    """Check the join sum of two tables of one family; with ``e`` marginalised out where the result has no ``e``."""
    pieces, pairs = joined_pieces(first, second)
    eliminates = "e" not in result.layout
    expected = pairs if eliminates else pairs * (first.domain // 2)
    groups = first.layout.scope[2:]
    fields = field_rows(result.layout, (first.own, second.own, *(() if eliminates else ("e",)), *groups))
    tables = (first.classes, second.classes, first.settings, second.settings)

    def check(keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        wrong: int = check_join(keys, values, fields, *tables, pieces, sums, eliminates)
        return wrong

    verdict, sums = _check_rows(result, expected, check)
    wanted = [expected, expected * (expected - 1) // 2, expected * (expected - 1) * (2 * expected - 1) // 6]
    if not verdict.fault and sums != [number % WORD for number in wanted]:
        return ResultCheck(verdict.rows, expected, "rows are missing, or there twice: their numbers do not add up")
    return verdict


def check_marginalised(result: StoredTable | Table, table: SyntheticTable) -> ResultCheck:
    """Check the marginalisation of a table over its own variable."""
    last = [*(int(rank) for rank in table.classes[1:, 0]), table.groups]
    expected = sum(
        (high - int(low)) * (table.domain if count > 1 else table.domain // 2)
        for (low, count, _), high in zip(table.classes, last, strict=True)
    )
    fields = field_rows(result.layout, ("e", *table.layout.scope[2:]))

    def check(keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        wrong: int = check_maximum(keys, values, fields, table.classes, table.settings)
        return wrong

    if not result.is_sorted:
        return ResultCheck(result.rows, expected, "the result is not sorted")
    return _check_rows(result, expected, check)[0]


def _check_rows(result: StoredTable | Table, expected: int, check: Callable[..., int]) -> tuple[ResultCheck, list[int]]:
    """Run a check over all rows, by all threads; the sums of what it adds up."""
    if result.rows != expected:
        return ResultCheck(result.rows, expected, f"{result.rows:,} rows instead of {expected:,}"), []
    totals, start = np.zeros(3, dtype=np.uint64), 0
    for chunk in [result] if isinstance(result, Table) else result.chunks():
        pieces = row_ranges(chunk.rows)
        sums = np.zeros((len(pieces), 3), dtype=np.uint64)
        calls = [
            (np.ascontiguousarray(chunk.keys[:, low:high]), chunk.values[low:high], sums[i])
            for i, (low, high) in enumerate(pieces)
        ]
        for (low, _), wrong in zip(pieces, run_all(check, calls), strict=True):
            if wrong >= 0:
                row = start + low + wrong
                return ResultCheck(
                    result.rows, expected, f"row {row:,} is none of the result's, or has another value"
                ), []
        totals += sums.sum(axis=0)
        start += chunk.rows
    return ResultCheck(result.rows, expected), [int(total) for total in totals]
