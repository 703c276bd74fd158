"""Domains of all variables as flags in one array, for compiled loops and devices; problems reduced to such domains.

Small tables are propagated in batches, for problems with thousands of constraints of a few rows each: separate calls
would cost many times the work on the rows. Here tables of equal arity are concatenated, and a round counts, for all
affected tables, the remaining rows with each value. A value is removed where no allowed row has it, or where forbidden
rows have it with all assignments of the other variables. Rounds continue with the tables whose variables have changed,
to the fixpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.runtime.deadline import check_deadline


@dataclass(eq=False)
class Domains:
    """Values left of each variable.

    offsets : int64 (variables + 1,), where each variable's flags begin.
    alive : uint8 (values,), 1 for each value that is left.
    counts : int64 (variables,), how many are left.
    """

    offsets: NDArray[np.int64]
    alive: NDArray[np.uint8]
    counts: NDArray[np.int64]

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Domains:
        """Domains with all values."""
        counts = np.array(sizes, dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return cls(offsets, np.ones(int(offsets[-1]), dtype=np.uint8), counts)

    @cached_property
    def scratch(self) -> NDArray[np.uint8]:
        """Scratch flags of a loop, one a value; their content is undefined between uses."""
        return np.empty_like(self.alive)

    @cached_property
    def counters(self) -> NDArray[np.int64]:
        """Scratch numbers of a loop, one a value; their content is undefined between uses."""
        return np.empty(len(self.alive), dtype=np.int64)

    def flags(self, v: int) -> NDArray[np.uint8]:
        """A variable's flags, a view."""
        return self.alive[self.offsets[v] : self.offsets[v + 1]]

    def values(self, v: int) -> NDArray[np.int64]:
        """The values that a variable has left, ascending."""
        return np.flatnonzero(self.flags(v))

    def keep(self, v: int, values: NDArray[np.bool_]) -> int:
        """Remove all unflagged values; returns their number."""
        flags = self.flags(v)
        flags &= values
        lost = int(self.counts[v]) - int(np.count_nonzero(flags))
        self.counts[v] -= lost
        return lost


Table = TypeVar("Table", Constraint, ShortTable)


def reduced(model: CompactProblem, domains: Domains) -> CompactProblem:
    """The problem over the remaining values, at least one a variable; labels identify the original values.

    Rows with removed values are left out, and so are constraints that forbid nothing any more. Solutions, values and
    the meaning of labels stay.
    """
    problem = model.problem
    if (domains.counts == np.diff(domains.offsets)).all():
        return model
    places = ValuePlaces(domains)
    variables = tuple(_shrunk(variable, domains.values(v)) for v, variable in enumerate(problem.variables))
    tables = (places.table(c) for c in problem.constraints)
    linear = []
    for constraint in problem.linear_constraints:
        columns = tuple(
            column[domains.values(v)] for v, column in zip(constraint.scope, constraint.coefficients, strict=True)
        )
        smaller = replace(constraint, coefficients=columns)
        if smaller.can_bind:
            linear.append(smaller)
    left = replace(
        problem,
        variables=variables,
        functions=tuple(places.function(f) for f in problem.functions),
        constraints=tuple(c for c in tables if c.allowed or len(c.tuples)),
        linear_constraints=tuple(linear),
        day=None,  # whose photographs have all their values
    )
    short = tuple(t for t in map(places.table, model.short_tables) if t.allowed or len(t.tuples))
    return CompactProblem(left, short, model.left_out)


class ValuePlaces:
    """Index of each value in the smaller domain of its variable, or -1."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._is_whole: list[bool] = (domains.counts == np.diff(domains.offsets)).tolist()
        flags = domains.alive.astype(np.int64)
        numbers = np.cumsum(flags) - flags
        first = np.repeat(numbers[domains.offsets[:-1]], np.diff(domains.offsets)) if len(flags) else numbers
        self._place = np.where(flags > 0, numbers - first, -1)

    def is_whole(self, scope: tuple[int, ...]) -> bool:
        """Whether some variables have all their values."""
        return all(self._is_whole[v] for v in scope)

    def rows(
        self, scope: tuple[int, ...], tuples: NDArray[np.int64], is_short: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows in the smaller domains, and their original indices."""
        check_deadline()
        if self.is_whole(scope):
            return tuples, np.ones(len(tuples), dtype=bool)
        offsets = self._domains.offsets[list(scope)]
        if is_short:
            places = np.where(tuples == ANY, ANY, self._place[offsets + np.maximum(tuples, 0)])
            stays = ((tuples == ANY) | (places >= 0)).all(axis=1)
        else:
            places = self._place[offsets + tuples]
            stays = (places >= 0).all(axis=1)
        return places[stays], stays

    def table(self, table: Table) -> Table:
        """A constraint over the values left."""
        tuples, _ = self.rows(table.scope, table.tuples, isinstance(table, ShortTable))
        return table if tuples is table.tuples else replace(table, tuples=tuples)

    def function(self, function: Function) -> Function:
        """A function over the values left."""
        tuples, stays = self.rows(function.scope, function.tuples)
        if tuples is function.tuples:
            return function
        return replace(function, tuples=tuples, values=function.values[stays])


def _shrunk(variable: Variable, values: NDArray[np.int64]) -> Variable:
    if len(values) == variable.size:
        return variable
    return Variable(variable.name, len(values), tuple(variable.label(value) for value in values.tolist()))


TableRows = tuple[tuple[int, ...], NDArray[np.int64], bool]
"""Scope, rows int64 (rows, arity) without repetition, and whether these are the allowed ones."""


def may_remove(table: TableRows, sizes: Sequence[int]) -> bool:
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
    def of(cls, tables: Sequence[TableRows]) -> _SameArity:
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

    def __init__(self, tables: Sequence[TableRows], domains: Domains) -> None:
        of_arity: dict[int, list[TableRows]] = {}
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

    @property
    def _all(self) -> list[NDArray[np.int64]]:
        """All tables of each group."""
        return [np.arange(len(group.scopes)) for group in self._groups]

    def changes(self, domains: Domains) -> bool:
        """Whether :meth:`filter` would remove a value or fail; ``domains`` are undefined afterwards."""
        before = np.count_nonzero(domains.alive)
        removed = (group.remove(domains, tables) for group, tables in zip(self._groups, self._all, strict=True))
        return not all(removed) or bool(np.count_nonzero(domains.alive) < before)

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values to the fixpoint; returns the changed variables, None where a table has no row left."""
        before = domains.counts.copy()
        due = self._all
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
