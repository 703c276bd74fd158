"""Checks of single result rows over synthetic tables against the generator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.stress.kernels.cpu.synthetic import check_join, check_maximum, digest_rows
from oocbe.stress.tables import SyntheticTable, field_rows
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table


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


def reduced_pieces(table: SyntheticTable) -> tuple[NDArray[np.int64], int]:
    """The same of a table marginalised over its own variable, with rows of the result in place of pairs."""
    bounds = [*(int(rank) for rank in table.classes[1:, 0]), table.groups]
    found, before = [], 0
    for (low, count, _), high in zip(table.classes.tolist(), bounds, strict=True):
        rows = table.domain if count > 1 else table.domain // 2
        found.append([low, before, rows])
        before += rows * (high - low)
    return np.array(found, dtype=np.int64), before


SUMS = 4
"""Number of sums over rows, modulo 2^64: of ones, their consecutive numbers, the squares of these, and a digest of
keys and values (:func:`oocbe.stress.kernels.cpu.synthetic.digest_rows`)."""


class RowChecker(Protocol):
    """Checks rows of a result one by one; sent to workers unchanged."""

    @property
    def expected(self) -> int:
        """Number of rows of the whole result."""

    def __call__(self, layout: Layout, keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        """Number of the first wrong row, or -1; adds the rows' sums (:data:`SUMS`) to ``sums``, uint64 (SUMS,)."""


@dataclass(frozen=True)
class JoinedRows:
    """Checks rows of the join sum of two tables, with ``e`` marginalised out where it ``eliminates``."""

    first: SyntheticTable
    second: SyntheticTable
    eliminates: bool = True

    @property
    def expected(self) -> int:
        """See :class:`RowChecker`."""
        pairs = joined_pieces(self.first, self.second)[1]
        return pairs if self.eliminates else pairs * (self.first.domain // 2)

    def __call__(self, layout: Layout, keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        """See :class:`RowChecker`."""
        first, second = self.first, self.second
        names = (first.own, second.own, *(() if self.eliminates else ("e",)), *first.layout.scope[2:])
        tables = (first.classes, second.classes, first.settings, second.settings)
        fields, pieces = field_rows(layout, names), joined_pieces(first, second)[0]
        sums[-1] += digest_rows(keys, values.astype(np.int64, copy=False))
        wrong: int = check_join(keys, values, fields, *tables, pieces, sums, self.eliminates)
        return wrong


@dataclass(frozen=True)
class MarginalisedRows:
    """Checks rows of a table marginalised over its own variable."""

    table: SyntheticTable

    @property
    def expected(self) -> int:
        """See :class:`RowChecker`."""
        return reduced_pieces(self.table)[1]

    def __call__(self, layout: Layout, keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        """See :class:`RowChecker`."""
        table = self.table
        fields, pieces = field_rows(layout, ("e", *table.layout.scope[2:])), reduced_pieces(table)[0]
        sums[-1] += digest_rows(keys, values.astype(np.int64, copy=False))
        wrong: int = check_maximum(keys, values, fields, table.classes, table.settings, pieces, sums)
        return wrong


def check_tables(tables: Iterable[Table], checker: RowChecker) -> tuple[int, list[int]]:
    """Number of the first wrong row of tables laid end to end, or -1, and the sums of all rows; by all threads."""
    totals, start = np.zeros(SUMS, dtype=np.uint64), 0
    for chunk in tables:
        pieces = row_ranges(chunk.rows)
        sums = np.zeros((len(pieces), SUMS), dtype=np.uint64)
        calls = [
            (chunk.layout, np.ascontiguousarray(chunk.keys[:, low:high]), chunk.values[low:high], sums[i])
            for i, (low, high) in enumerate(pieces)
        ]
        for (low, _), wrong in zip(pieces, run_all(checker, calls), strict=True):
            if wrong >= 0:
                return start + low + wrong, []
        totals += sums.sum(axis=0)
        start += chunk.rows
    return -1, [int(total) for total in totals]
