"""Tables of so many feasible rows that one thread should not scan them alone: several threads do, or a device.

Each variable has a flag a value, and one more where some cell stands for every value; as many as a field of bits can
say, so that no code is beyond them. Threads have as many for each variable, which spares them looking up where those of
a variable begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels import backend_for
from oocbe.kernels.cpu.propagation.table_rows import scan_part
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.propagation.domains import Domains
from oocbe.propagation.tables import AllowedRows, Propagator
from oocbe.system.deadline import current_flag, look
from oocbe.tables.layout import Layout

LARGE_ROWS = 1 << 16
"""Rows from which a table is scanned by several threads."""

PART_ROWS = 1 << 18
"""Rows that a thread scans at a time."""

SCANNED_ROWS = 16
"""Rows to be scanned that say as much for a device as a row to be joined does, where the backend is ``auto``."""


def allowed_rows(
    scope: tuple[int, ...], codes: NDArray[Any], domains: Domains, name: str, backend: str | None = "cpu"
) -> Propagator:
    """A table of all feasible rows, scanned where that is quickest.

    codes : as of :func:`~oocbe.propagation.tables.codes_of`. backend : as for the network.

    Raises
    ------
    UsageError : there is no CUDA device where one is asked for. ResourceError : its memory ran out.
    """
    if scope and len(codes) and backend_for(len(codes) // SCANNED_ROWS, backend).name == "cuda":
        from oocbe.kernels.cuda.propagation.table_rows import most_slots

        layout = _layout(scope, codes, domains)
        if sum(1 << field.bits for field in layout.fields) <= most_slots():
            return DeviceRows(scope, codes, name, layout)
    if len(codes) < LARGE_ROWS or not scope:
        return AllowedRows(scope, codes, domains, name)
    return ThreadedRows(scope, codes, name, _layout(scope, codes, domains))


class _LargeTable:
    """What is the same wherever rows are scanned.

    Parameters
    ----------
    rows : how many there are. widths : flags of each column.

    Attributes
    ----------
    rows_left : how many are left.
    """

    is_idempotent = True

    def __init__(self, scope: tuple[int, ...], rows: int, name: str, widths: Sequence[int]) -> None:
        self.scope, self.name = scope, name
        self.rows_left = rows
        self._starts = np.cumsum([0, *widths], dtype=np.int64)

    @property
    def cost(self) -> int:
        """Cells of the rows left."""
        return self.rows_left * len(self.scope)

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove the values that no row has."""
        alive = np.zeros(self._starts[-1], dtype=np.uint8)
        for v, start, end in zip(self.scope, self._starts, self._starts[1:], strict=False):
            flags = domains.flags(v)
            alive[start : start + len(flags)] = flags
            alive[start + len(flags) : end] = 1  # a cell for every value; no row has the codes behind it
        self.rows_left, seen = self._scan(alive)
        if self.rows_left == 0:
            return None
        changed = []
        for v, start, end in zip(self.scope, self._starts, self._starts[1:], strict=False):
            size = len(domains.flags(v))
            if not seen[start + size : end].any() and domains.keep(v, seen[start : start + size]):
                changed.append(v)
        return changed

    def _scan(self, alive: NDArray[np.uint8]) -> tuple[int, NDArray[np.bool_]]:
        """Rows that have only codes that are left, and which codes these have; one flag a code."""
        raise NotImplementedError


class ThreadedRows(_LargeTable):
    """A table in parts, each of which is reordered by itself as rows go."""

    def __init__(self, scope: tuple[int, ...], codes: NDArray[Any], name: str, layout: Layout) -> None:
        self._width = 1 << max(field.bits for field in layout.fields)
        super().__init__(scope, len(codes), name, [self._width] * len(scope))
        self._codes = np.ascontiguousarray(codes).reshape(-1)
        parts = row_ranges(len(codes), PART_ROWS)
        self._lows = [low for low, _ in parts]
        self._sizes = [high - low for low, high in parts]
        self._left = self._sizes
        self._rows = np.empty(len(codes), dtype=np.int32 if len(codes) < 2**31 else np.int64)
        self._levels: list[list[int]] = []

    def push(self) -> None:
        """Remember how many rows of each part are left."""
        self._levels.append(self._left)

    def pop(self) -> None:
        """Set back how many rows are left."""
        self._left = self._levels.pop()
        self.rows_left = sum(self._left)

    def _scan(self, alive: NDArray[np.uint8]) -> tuple[int, NDArray[np.bool_]]:
        arity, width = len(self.scope), np.uint64(self._width)
        seen = np.zeros((len(self._lows), len(alive)), dtype=np.uint8)
        stop = current_flag()
        calls = (
            (self._codes, arity, self._rows, low, left, left == size, width, alive, seen[part], stop)
            for part, (low, left, size) in enumerate(zip(self._lows, self._left, self._sizes, strict=True))
            if left
        )
        found = iter(run_all(scan_part, calls))
        if stop[0] != 0:
            look()
        self._left = [next(found) if left else 0 for left in self._left]
        return sum(self._left), np.bitwise_or.reduce(seen, axis=0).view(np.bool_)


class DeviceRows(_LargeTable):
    """A table in a device's memory, packed; it shrinks when half of its rows are gone."""

    def __init__(self, scope: tuple[int, ...], codes: NDArray[Any], name: str, layout: Layout) -> None:
        from oocbe.kernels.cuda.propagation.table_rows import DeviceTable

        super().__init__(scope, len(codes), name, [1 << field.bits for field in layout.fields])
        self._table = DeviceTable.packed(codes, layout.fields)
        self._levels: list[tuple[DeviceTable, int]] = []

    def push(self) -> None:
        """Remember which rows are left."""
        self._levels.append((self._table, self.rows_left))

    def pop(self) -> None:
        """Go back to them."""
        self._table, self.rows_left = self._levels.pop()

    def _scan(self, alive: NDArray[np.uint8]) -> tuple[int, NDArray[np.bool_]]:
        left, seen = self._table.scan(alive)
        if 0 < left <= self._table.rows // 2:
            self._table = self._table.kept()
        return left, seen


def _layout(scope: Sequence[int], codes: NDArray[Any], domains: Domains) -> Layout:
    """Fields for the codes of a table: one more than values where a cell stands for every value."""
    sizes = np.diff(domains.offsets)[list(scope)]
    has_any = (codes == sizes).any(axis=0)
    return Layout(tuple(map(str, range(len(scope)))), tuple((sizes + has_any).tolist()))
