"""Domains of all variables as flags in one array, for compiled loops and devices; problems reduced to such domains.

Small tables are propagated in batches, for problems with thousands of constraints of a few rows each: separate calls
would cost many times the work on the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.propagation.kernels.cpu.table_rows import FAILED, UNFINISHED, filter_tables
from oocbe.runtime.deadline import check_deadline, current_flag


@dataclass(eq=False)
class Domains:
    """Values left of each variable.

    offsets : int64 (variables + 1,), where each variable's flags begin.
    alive : uint8 (values,), 1 for each value that is left. counts : int64 (variables,), how many are left.
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


class TableBatch:
    """Tables of allowed and of forbidden rows, each over one variable at least; a
    :class:`~oocbe.propagation.tables.Propagator` of domains that only shrink.
    """

    name = "a table constraint"
    is_idempotent = True

    def __init__(self, tables: Sequence[TableRows], domains: Domains) -> None:
        arities = [len(scope) for scope, _, _ in tables]
        self._scopes = np.array([*chain.from_iterable(scope for scope, _, _ in tables)], dtype=np.int64)
        self._scope_starts = np.cumsum([0, *arities])
        self._cells = np.concatenate([rows.ravel() for _, rows, _ in tables])
        self._cell_starts = np.cumsum([0, *(rows.size for _, rows, _ in tables)])
        self._allowed = np.array([is_allowed for _, _, is_allowed in tables], dtype=np.bool_)
        # The tables of each variable, end to end.
        order = np.argsort(self._scopes, kind="stable")
        self._owner = np.repeat(np.arange(len(tables)), arities)
        self._uses = self._owner[order]
        self._use_starts = np.searchsorted(self._scopes[order], np.arange(len(domains.counts) + 1))
        self.scope = tuple(np.flatnonzero(np.diff(self._use_starts)).tolist())
        self.cost = len(self._cells)
        self._seen: NDArray[np.int64] | None = None

    def push(self) -> None:
        """Nothing to save: no rows are dropped."""

    def pop(self) -> None:
        """Mark all tables for propagation."""
        self._seen = None

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values to the fixpoint; returns the changed variables, None where a table has no row left.

        Raises TimeLimitError: the deadline of the enclosing block came.
        """
        before, is_due = domains.counts.copy(), np.ones(len(self._allowed), dtype=np.bool_)
        if self._seen is not None:
            is_due[:] = False
            is_due[self._owner[(domains.counts != self._seen)[self._scopes]]] = True
        due = np.flatnonzero(is_due)
        queue = np.resize(due, len(is_due))
        tables = self._scopes, self._scope_starts, self._cells, self._cell_starts, self._allowed
        own = domains.offsets, domains.alive, domains.counts, domains.counters
        end = filter_tables(*tables, self._uses, self._use_starts, *own, queue, len(due), is_due, current_flag())
        if end == UNFINISHED:
            check_deadline()
        self._seen = None if end == FAILED else domains.counts.copy()
        return None if end == FAILED else np.flatnonzero(domains.counts != before).tolist()
