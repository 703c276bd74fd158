"""Constraints that remove values from domains: tables of allowed or forbidden rows, and linear inequalities.

:meth:`Propagator.filter` removes the values without support in one constraint, and returns the changed variables. The
state (the remaining rows) only shrinks with the domains, so a propagator serves one descent of domains.

A table of allowed rows may be bit sets, for repeated propagation: Compact-Table (Demeulenaere et al. 2016). Its
construction, with a bit for each row and value, costs as much as several scans of the rows. A change of the domains
then costs the non-empty words of 64 rows, and backtracking costs the changed words. :mod:`oocbe.propagation.fixpoint`
chooses between bit sets and scans by their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.model.compact_problem import ANY
from oocbe.model.parts import LinearConstraint
from oocbe.propagation.domains import Domains
from oocbe.propagation.kernels.cpu.table_rows import (
    BitTable,
    Trail,
    build_supports,
    count_forbidden,
    filter_linear,
    filter_values,
    scan_table,
    undo,
    update_rows,
)
from oocbe.runtime.deadline import check_deadline, current_flag

EXACT_SUMS = 2**62
"""Sums of coefficients below it are computed with integers of 64 bits."""


class Propagator(Protocol):
    """A constraint that removes values."""

    scope: tuple[int, ...]
    name: str
    is_idempotent: bool
    """Whether a second call on unchanged domains removes nothing."""

    @property
    def cost(self) -> int:
        """Estimated steps of a call; cheap constraints are propagated first."""

    def push(self) -> None:
        """Save the state, for a trial."""

    def pop(self) -> None:
        """Restore the state of the last :meth:`push` not yet restored."""

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values; the variables that lost some, or None where nothing satisfies the constraint.

        A variable may be left without values: that is a contradiction, too. TimeLimitError at the deadline.
        """


class _RowTable:
    """A table's codes; the first ``rows_left`` of a permutation remain, and resetting it restores them."""

    def __init__(self, scope: tuple[int, ...], codes: NDArray[Any], domains: Domains, name: str) -> None:
        self.scope, self.name = scope, name
        self.rows_left = len(codes)
        self._codes = codes
        self._offsets = domains.offsets[list(scope)]
        self._sizes = domains.offsets[np.array(scope, dtype=np.int64) + 1] - self._offsets
        self._rows: NDArray[Any] | None = None
        self._levels: list[int] = []

    @property
    def cost(self) -> int:
        """Cells of the rows left."""
        return self.rows_left * len(self.scope)

    def push(self) -> None:
        """Remember how many rows are left."""
        self._levels.append(self.rows_left)

    def pop(self) -> None:
        """Set back how many rows are left."""
        self.rows_left = self._levels.pop()

    def _taken(self) -> tuple[NDArray[Any], NDArray[Any], int, bool, NDArray[np.int64], NDArray[np.int64]]:
        """Arguments of the loops: codes, rows, number left, whether rows need numbering, offsets of the flags."""
        is_whole = self._rows is None
        if self._rows is None:
            self._rows = np.empty(self.rows_left, dtype=np.int32 if self.rows_left < 2**31 else np.int64)
        return self._codes, self._rows, self.rows_left, is_whole, self._offsets, self._sizes


class AllowedRows(_RowTable):
    """A table of all feasible rows, short or not: one pass over the remaining rows finds the supported values."""

    is_idempotent = True

    def __init__(self, scope: tuple[int, ...], codes: NDArray[Any], domains: Domains, name: str) -> None:
        super().__init__(scope, codes, domains, name)
        self._removed = np.zeros(len(scope), dtype=np.int64)

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove the values that no row has."""
        stop = current_flag()
        left = scan_table(*self._taken(), domains.alive, domains.scratch, self._removed, stop)
        if stop[0] != 0:
            check_deadline()
        self.rows_left = left
        return reduce_counts(self.scope, self._removed, domains) if self.rows_left else None


class ForbiddenRows(_RowTable):
    """Distinct forbidden rows: a value is removed where they cover all assignments of the other variables."""

    is_idempotent = False

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove the values all of whose assignments are forbidden."""
        sizes = [int(domains.counts[v]) for v in self.scope]
        changed: list[int] = []
        if math.prod(sizes) // max(sizes, default=1) > self.rows_left:
            return changed  # too few rows for any value
        stop = current_flag()
        left = count_forbidden(*self._taken(), domains.alive, domains.counters, stop)
        if stop[0] != 0:
            check_deadline()
        self.rows_left = left
        if math.prod(sizes) == self.rows_left:
            return None
        for v, size in zip(self.scope, sizes, strict=True):
            counts = domains.counters[domains.offsets[v] : domains.offsets[v + 1]]
            if domains.keep(v, counts < math.prod(sizes) // size):
                changed.append(v)
        return changed


class _WithoutMemory:
    """Base of propagators without state."""

    def push(self) -> None:
        """Nothing to save."""

    def pop(self) -> None:
        """Nothing to restore."""


class ForbiddenPatterns(_WithoutMemory):
    """Forbidden rows with cells for every value, too many to be written out: each row is propagated separately.

    A value is removed where one row forbids it for all values of the others; several rows together may forbid more.
    """

    is_idempotent = False

    def __init__(self, scope: tuple[int, ...], tuples: NDArray[np.int64], name: str) -> None:
        self.scope, self.name = scope, name
        self._tuples = tuples
        self.cost = tuples.size

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values that a row with one open cell forbids."""
        changed = []
        columns = self._tuples.T
        covers = np.empty(columns.shape, dtype=bool)
        for axis, v in enumerate(self.scope):
            left = domains.values(v)
            covers[axis] = (columns[axis] == ANY) | ((len(left) == 1) & (columns[axis] == left[:1].sum()))
        open_cells = (~covers).sum(axis=0)
        if (open_cells == 0).any():
            return None
        for axis, v in enumerate(self.scope):
            values = columns[axis][(open_cells == 1) & ~covers[axis]]
            kept = np.ones(domains.offsets[v + 1] - domains.offsets[v], dtype=bool)
            kept[values] = False
            if domains.keep(v, kept):
                changed.append(v)
        return changed


class LinearFilter(_WithoutMemory):
    """A linear inequality over values: removes values beyond the capacity left by the others' cheapest values."""

    is_idempotent = True

    def __init__(self, linear: LinearConstraint, domains: Domains) -> None:
        check_deadline()  # a system has thousands
        self.scope, self.name = linear.scope, linear.name
        self._capacity = linear.capacity
        self._columns = linear.coefficients
        self._offsets = domains.offsets[list(linear.scope)]
        self._starts = np.cumsum([0, *map(len, linear.coefficients)], dtype=np.int64)
        self.cost = int(self._starts[-1])
        largest = sum(max(-low, high) for low, high in zip(*linear.ends, strict=True))
        self._is_small = 2 * largest + abs(linear.capacity) < EXACT_SUMS
        self._flat = np.concatenate([np.zeros(0, dtype=np.int64), *linear.coefficients]) if self._is_small else None
        self._least = np.zeros(len(self.scope), dtype=np.int64)
        self._removed = np.zeros(len(self.scope), dtype=np.int64)

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values that exceed the capacity."""
        if (domains.counts[list(self.scope)] == 0).any():
            return None
        if self._flat is None:
            return self._filter_large(domains)
        room = filter_linear(
            self._flat, self._starts, self._offsets, self._capacity, domains.alive, self._least, self._removed
        )
        return reduce_counts(self.scope, self._removed, domains) if room >= 0 else None

    def _filter_large(self, domains: Domains) -> list[int] | None:
        """The same with Python integers, for sums beyond 64 bits."""
        least = [int(c[domains.values(v)].min()) for v, c in zip(self.scope, self._columns, strict=True)]
        room = self._capacity - sum(least)
        if room < 0:
            return None
        changed = []
        for v, column, low in zip(self.scope, self._columns, least, strict=True):
            kept = np.array([int(c) - low <= room for c in column.tolist()], dtype=bool)
            if domains.keep(v, kept):
                changed.append(v)
        return changed


def codes_of(tuples: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[Any]:
    """Rows as the loops read them: the smallest unsigned integers, a variable's size for every value."""
    dtype = np.min_scalar_type(max(sizes, default=0))
    codes = tuples.astype(dtype)
    if tuples.size and tuples.min() == ANY:
        np.copyto(codes, np.array(sizes, dtype=dtype), where=tuples == ANY)
    return codes


def reduce_counts(scope: tuple[int, ...], removed: NDArray[np.int64], domains: Domains) -> list[int]:
    """Subtract a loop's removals from the counts; returns the changed variables."""
    changed = []
    for v, lost in zip(scope, removed.tolist(), strict=True):
        if lost:
            domains.counts[v] -= lost
            changed.append(v)
    return changed


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
