"""A table of allowed rows as bit sets, for repeated propagation: Compact-Table (Demeulenaere et al. 2016).

Its construction, with a bit for each row and value, costs as much as several scans of the rows. A change of the domains
then costs the non-empty words of 64 rows, and backtracking costs the changed words. :mod:`oocbe.propagation.fixpoint`
chooses between bit sets and scans by their bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.propagation.domains import Domains
from oocbe.propagation.kernels.cpu.bit_sets import BitTable, Trail, build_supports, filter_values, undo, update_rows
from oocbe.propagation.tables import reduce_counts
from oocbe.runtime.deadline import check_deadline, current_flag


def bytes_of(codes: NDArray[Any], sizes: list[int]) -> int:
    """Memory that a table's bit sets take."""
    words = -(-len(codes) // 64)
    has_stars = any((codes[:, c] == size).any() for c, size in enumerate(sizes))
    return 8 * words * sum(sizes) * (1 + has_stars)


class CompactTable:
    """A table of all feasible rows, short or not, as reversible sparse bit sets."""

    is_idempotent = True

    def __init__(self, scope: tuple[int, ...], codes: NDArray[Any], domains: Domains, name: str) -> None:
        self.scope, self.name = scope, name
        axes = np.array(scope, dtype=np.int64)
        sizes = (domains.offsets[axes + 1] - domains.offsets[axes]).tolist()
        starts = np.cumsum([0, *sizes], dtype=np.int64)
        words = max(1, -(-len(codes) // 64))
        supports = np.zeros((int(starts[-1]), words), dtype=np.uint64)
        has_stars = any((codes[:, c] == size).any() for c, size in enumerate(sizes))
        owned = np.zeros_like(supports) if has_stars else supports
        check_deadline()
        build_supports(codes, starts, supports, owned)
        current = np.full(words, np.iinfo(np.uint64).max, dtype=np.uint64)
        if len(codes) % 64:
            current[-1] = np.uint64((1 << len(codes) % 64) - 1)
        current[len(codes) // 64 + (len(codes) % 64 > 0) :] = 0
        self._table = BitTable(
            domains.offsets[axes],
            starts,
            supports,
            owned,
            current,
            np.arange(words, dtype=np.int32),
            np.array([words if len(codes) else 0], dtype=np.int64),
            np.zeros(int(starts[-1]), dtype=np.int32),
            np.ones(int(starts[-1]), dtype=np.uint8),
            np.full(words, -1, dtype=np.int64),
        )
        self._trail = Trail(*_room(words), np.zeros(1, dtype=np.int64))
        self._level = 0
        self._levels: list[tuple[int, int, NDArray[np.uint8]]] = []
        self._removed = np.zeros(len(scope), dtype=np.int64)
        self._gone = np.zeros(max(sizes), dtype=np.int32)
        self._left = np.zeros(max(sizes), dtype=np.int32)

    @property
    def cost(self) -> int:
        """Non-empty words, times the number of values."""
        return int(self._table.limit[0]) * len(self._table.residues)

    @property
    def rows_left(self) -> int:
        """Rows that are still possible."""
        return int(np.bitwise_count(self._table.current).sum())

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove the values that no row has."""
        stop = current_flag()
        table = self._table
        needed = int(self._trail.count[0]) + len(table.current)
        if needed > len(self._trail.words):
            more = _room(2 * needed)
            more[0][: len(self._trail.words)] = self._trail.words
            more[1][: len(self._trail.contents)] = self._trail.contents
            self._trail = Trail(*more, self._trail.count)
        update_rows(table, domains.alive, self._level, self._trail, self._gone, self._left, stop)
        if stop[0] != 0:
            check_deadline()
        if not table.limit[0]:
            return None
        filter_values(table, domains.alive, self._removed)
        return reduce_counts(self.scope, self._removed, domains)

    def push(self) -> None:
        """Begin a level of a search; :meth:`pop` restores this state."""
        self._levels.append((int(self._trail.count[0]), int(self._table.limit[0]), self._table.seen.copy()))
        self._level += 1

    def pop(self) -> None:
        """Restore the state at the start of the last level."""
        first, limit, seen = self._levels.pop()
        self._level += 1  # what changes from here on goes on the trail anew
        undo(self._table, self._trail, first)
        self._table.limit[0] = limit
        self._table.seen[:] = seen


def _room(words: int) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    return np.zeros(words, dtype=np.int32), np.zeros(words, dtype=np.uint64)
