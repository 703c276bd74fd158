"""Batched propagation of small tables, for problems with thousands of constraints of a few rows each.

Separate calls would cost many times the work on the rows. Here tables of equal arity are concatenated, and a round
counts, for all affected tables, the remaining rows with each value. A value is removed where no allowed row has it, or
where forbidden rows have it with all assignments of the other variables. Rounds continue with the tables whose
variables have changed, to the fixpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.propagation.domains import Domains
from oocbe.runtime.deadline import check_deadline

Table = tuple[tuple[int, ...], NDArray[np.int64], bool]
"""Scope, rows int64 (rows, arity) without repetition, and whether these are the allowed ones."""


def may_remove(table: Table, sizes: Sequence[int]) -> bool:
    """Whether a table has rows for removing a value, or failing, while domains have these sizes (of all variables).

    Rows that are all there support every value; as forbidden rows, they are enough for a value only where there is
    one for each assignment of the other variables.
    """
    scope, rows, is_allowed = table
    own = [sizes[v] for v in scope]
    cells = math.prod(own)
    return len(rows) < cells if is_allowed else len(rows) >= cells // max(own, default=1)


@dataclass(frozen=True, eq=False)
class _SameArity:
    """Tables of as many columns, end to end: ``scopes`` is int64 (tables, arity), and ``rows`` int64 (rows, arity).
    ``starts``, int64 (tables + 1,), has the first row of each, and ``allowed`` is bool (tables,)."""

    scopes: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    allowed: NDArray[np.bool_]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> _SameArity:
        lengths = np.array([0, *(len(rows) for _, rows, _ in tables)], dtype=np.int64)
        return cls(
            np.array([scope for scope, _, _ in tables], dtype=np.int64),
            np.cumsum(lengths),
            np.concatenate([rows for _, rows, _ in tables]),
            np.array([is_allowed for _, _, is_allowed in tables], dtype=np.bool_),
        )

    def remove(self, domains: Domains, due: NDArray[np.int64]) -> bool:
        """Clear the flags of values without support in some tables; False where one table has no support at all."""
        first, lengths = self.starts[due], np.diff(self.starts)[due]
        owner = np.repeat(np.arange(len(due)), lengths)
        rows = self.rows[np.arange(len(owner)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)]
        scopes, allowed = self.scopes[due], self.allowed[due]
        offsets = domains.offsets[scopes]
        stays = domains.alive[offsets[owner] + rows].all(axis=1)
        owner, rows = owner[stays], rows[stays]
        counts = domains.counts[scopes].astype(np.float64)
        left = np.bincount(owner, minlength=len(due))
        if (left == np.where(allowed, 0.0, counts.prod(axis=1))).any():
            return False
        for axis in range(scopes.shape[1]):
            sizes = domains.offsets[scopes[:, axis] + 1] - offsets[:, axis]
            begin = np.cumsum(sizes) - sizes
            listed = np.bincount(begin[owner] + rows[:, axis], minlength=int(sizes.sum()))
            others = np.delete(counts, axis, axis=1).prod(axis=1)
            goes = np.flatnonzero(listed == np.repeat(np.where(allowed, 0.0, others), sizes))
            table = np.searchsorted(begin, goes, side="right") - 1
            domains.alive[offsets[table, axis] + goes - begin[table]] = 0
        return True


class TableBatch:
    """Tables of allowed and of forbidden rows, each over one variable at least; a
    :class:`~oocbe.propagation.tables.Propagator` of domains that only shrink.
    """

    name = "a table constraint"
    is_idempotent = True

    def __init__(self, tables: Sequence[Table], domains: Domains) -> None:
        of_arity: dict[int, list[Table]] = {}
        for table in tables:
            of_arity.setdefault(len(table[0]), []).append(table)
        self._groups = [_SameArity.of(group) for group in of_arity.values()]
        self.scope = tuple(sorted({v for scope, _, _ in tables for v in scope}))
        self.cost = sum(rows.size for _, rows, _ in tables)
        self._seen: NDArray[np.int64] | None = None
        # Of each group, the tables of each variable, end to end.
        self._tables_of = []
        for group in self._groups:
            order = np.argsort(group.scopes, axis=None, kind="stable")
            starts = np.searchsorted(group.scopes.ravel()[order], np.arange(len(domains.counts) + 1))
            self._tables_of.append((starts, order // group.scopes.shape[1]))

    def push(self) -> None:
        """Nothing to save: no rows are dropped."""

    def pop(self) -> None:
        """Mark all tables for propagation."""
        self._seen = None

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values to the fixpoint; returns the changed variables, None where a table has no row left."""
        before = domains.counts.copy()
        due = [np.arange(len(group.scopes)) for group in self._groups]
        if self._seen is not None:
            due = self._waiting(np.flatnonzero(domains.counts != self._seen))
        while any(map(len, due)):
            check_deadline()
            last = domains.counts.copy()
            for group, tables in zip(self._groups, due, strict=True):
                if len(tables) and not group.remove(domains, tables):
                    return None
                if len(tables):
                    domains.counts[:] = np.add.reduceat(domains.alive, domains.offsets[:-1], dtype=np.int64)
            changed = np.flatnonzero(domains.counts != last)
            if (domains.counts[changed] == 0).any():
                break
            due = self._waiting(changed)
        self._seen = domains.counts.copy()
        return np.flatnonzero(domains.counts != before).tolist()

    def _waiting(self, changed: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The tables of some variables, of each group."""
        found = []
        for starts, tables in self._tables_of:
            parts = [tables[starts[v] : starts[v + 1]] for v in changed.tolist()]
            found.append(np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64))
        return found
