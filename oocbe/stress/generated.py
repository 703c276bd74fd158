"""Rows of a sorted synthetic table, generated at each read instead of stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oocbe.model.row_numbers import even_ranges, key_number
from oocbe.model.semiring import MAX_SUM
from oocbe.stress.kernels.cpu.synthetic import fill_in_order
from oocbe.stress.tables import SyntheticTable

STRETCHES, LEAST_STRETCH = 1 << 10, 1 << 12
"""Limit of the number of stretches, at whose edges the rows can be cut, and least number of rows of one."""


class GeneratedRows:
    """Rows of the groups of some ranks; a :class:`oocbe.execution.key_cuts.KeyedRows`.

    Parameters
    ----------
    table : sorted. low, high : the first rank, and the one behind the last.

    Attributes
    ----------
    scope, semiring : of the table. stretch_rows : rows of a stretch.
    Others as for :class:`oocbe.execution.sources.Source`.
    """

    def __init__(self, table: SyntheticTable, low: int, high: int) -> None:
        assert table.is_sorted
        self.layout, self.dtype, self.is_sorted = table.layout, table.value_dtype(np.dtype(np.int32)), True
        self.scope, self.semiring = self.layout.scope, MAX_SUM
        self._table, self._first = table, table.first_row(low)
        self.rows = table.first_row(high) - self._first
        self.stretch_rows = max(LEAST_STRETCH, -(-self.rows // STRETCHES))

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[np.signedinteger] | None) -> None:
        """Make rows from ``start`` on; see :class:`oocbe.execution.sources.Source`."""
        table = self._table
        given = np.empty(0, dtype=self.dtype) if values is None else values
        fill_in_order(keys, given, self._first + start, table.classes, table.fields, table.settings)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of ``most`` rows; see :class:`oocbe.execution.sources.Source`."""
        return even_ranges(self.rows, most)

    @property
    def stretch_count(self) -> int:
        """Number of stretches."""
        return -(-self.rows // self.stretch_rows)

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; all rows for one behind the last."""
        return min(stretch * self.stretch_rows, self.rows)

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""
        return self._key(self.stretch_start(stretch)), self._key(self.stretch_start(stretch + 1) - 1)

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""
        start = self.stretch_start(stretch)
        return self._keys(start, self.stretch_start(stretch + 1) - start)

    def _key(self, row: int) -> int:
        return key_number(self._keys(row, 1), 0)

    def _keys(self, start: int, count: int) -> NDArray[np.uint64]:
        keys = np.empty((self.layout.words, count), dtype=np.uint64)
        self.read_into(start, keys, None)
        return keys
