"""Relations of XCSP3 as tables: all assignments of an expression's variables are evaluated at once, and rows shared.

Instances of a group are the same expression over other variables; where these have the same domains, the rows are those
of the first one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import (
    LARGEST,
    VARIABLE,
    Expression,
    Integers,
    Unread,
    bounds_of,
    call,
    evaluate,
    variable,
)
from oocbe.formats.xcsp_variables import Domain, Variables
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Constraint, LinearConstraint

MOST_EVALUATED = 2**27
"""Assignments of all relations of a file together."""

MOST_LISTED = 2**26
"""Values in the rows of all tables together, of which instances of a group share theirs."""


@dataclass(eq=False)
class RelationTables:
    """Tables, the ``constraints``, over a file's variables and those made for expressions."""

    variables: Variables
    constraints: list[Constraint] = field(default_factory=list)
    _tables: dict[tuple[Expression, tuple[int, ...]], tuple[NDArray[np.int64], bool]] = field(default_factory=dict)
    _evaluated: int = 0
    _listed: int = 0

    def values(self, v: int) -> Integers:
        """Values of a variable, ascending."""
        return self.domain(v).values

    def domain(self, v: int) -> Domain:
        """The domain of a variable."""
        return self.variables.domains[v]

    def cells(self, expression: Expression) -> int:
        """Assignments of an expression's variables."""
        return math.prod(len(self.values(v)) for v in expression.scope)

    def evaluate(self, expression: Expression, values: Sequence[Integers]) -> Integers:
        """An array with an axis for each variable of the scope, which has the given values."""
        template = expression.template
        bounds_of(template, [(int(own[0]), int(own[-1])) for own in values])
        shape = tuple(map(len, values))
        self._evaluated += math.prod(shape)
        if self._evaluated > MOST_EVALUATED:
            raise Unread(f"expressions that have more than {MOST_EVALUATED:,} assignments together")
        columns = np.ix_(*values) if values else ()
        return np.broadcast_to(evaluate(template, columns), shape)

    def _keep(self, key: tuple[Expression, tuple[int, ...]], rows: NDArray[np.int64], allowed: bool) -> None:
        """Keep the rows of a table for all instances; Unread where those of all tables are too many."""
        self._listed += rows.size
        if self._listed > MOST_LISTED:
            raise Unread(f"tables of more than {MOST_LISTED:,} values together")
        self._tables[key] = np.ascontiguousarray(rows), allowed

    def add_table(self, expression: Expression) -> None:
        """A constraint that lists the assignments that are allowed, or those that are not, whichever are fewer."""
        domains = [self.domain(v) for v in expression.scope]
        key = (expression.template, tuple(map(id, domains)))
        if key not in self._tables:
            holds = self.evaluate(expression, [own.values for own in domains]) != 0
            allowed = 2 * int(np.count_nonzero(holds)) <= holds.size
            rows = np.argwhere(holds == allowed) if holds.ndim else np.zeros((int(holds == allowed), 0), dtype=np.int64)
            self._keep(key, rows, allowed)
        rows, allowed = self._tables[key]
        if allowed or len(rows):
            self.constraints.append(Constraint(expression.scope, rows, allowed))

    def add_function(self, one: Expression, other: Expression, most: int, is_equal: bool = True) -> bool:
        """Add that a variable equals an expression, or differs from it, as a table of at most so many rows.

        False where neither side is a variable alone, or the rows are too many.
        """
        left, right = (one, other) if one.operator == VARIABLE else (other, one)
        if left.operator != VARIABLE or left.value in right.scope or self.cells(right) > most:
            return False
        domains = [self.domain(v) for v in right.scope]
        key = (call("eq", variable(len(domains)), right.template), (*map(id, domains), id(self.domain(left.value))))
        if key not in self._tables:
            found = self.evaluate(right, [own.values for own in domains])
            values = self.values(left.value)
            place = np.minimum(np.searchsorted(values, found), len(values) - 1)
            fits = values[place] == found
            rows = np.argwhere(fits) if fits.ndim else np.zeros((int(fits), 0), dtype=np.int64)
            self._keep(key, np.concatenate([rows, place[fits].reshape(-1, 1)], axis=1), True)
        rows = self._tables[key][0]
        if is_equal or len(rows):
            self.constraints.append(Constraint((*right.scope, left.value), rows, is_equal))
        return True


MOST_COEFFICIENTS = 2**26
"""Coefficients of all linear constraints together at most, one a value of each variable."""

Columns = dict[int, Integers]
"""Contribution of each value of each variable to a sum."""


@dataclass(eq=False)
class Sums:
    """Linear constraints over some variables; ``tables`` evaluates expressions."""

    tables: RelationTables
    linear: list[LinearConstraint] = field(default_factory=list)
    _products: dict[tuple[int, Expression | None, int], Integers] = field(default_factory=dict)
    _negatives: dict[int, tuple[Integers, Integers]] = field(default_factory=dict)
    _coefficients: int = 0

    def columns(
        self, expression: Expression, value_of: Callable[[Expression], int] | None = None
    ) -> tuple[Columns, int] | None:
        """An expression as a sum of what each variable adds, and a constant.

        value_of : makes variables of parts that have no such form; None: there is no result where there is one.
        """
        columns: Columns = {}
        offset = 0
        waiting = [(1, expression)]
        while waiting:
            factor, part = waiting.pop()
            parts = part.arguments
            if part.operator in ("add", "sub", "neg"):
                signs = {"add": [1] * len(parts), "sub": [1, -1], "neg": [-1]}[part.operator]
                waiting += [(factor * sign, own) for sign, own in zip(signs, parts, strict=True)][::-1]
            elif part.operator == "mul" and sum(bool(own.scope) for own in parts) == 1:
                times = math.prod(int(self.tables.evaluate(own, [])) for own in parts if not own.scope)
                waiting.append((factor * times, next(own for own in parts if own.scope)))
            elif not part.scope:
                offset += factor * int(self.tables.evaluate(part, []))
            elif len(part.scope) == 1:
                add_column(columns, part.scope[0], self._times(factor, part))
            elif value_of is None:
                return None
            else:
                made = value_of(part)
                add_column(columns, made, self._times(factor, variable(made)))
        return {v: column for v, column in columns.items() if column.any()}, offset

    def _times(self, factor: int, expression: Expression) -> Integers:
        """A number times an expression over one variable, for each of its values."""
        domain = self.tables.domain(expression.scope[0])
        is_plain = expression.operator == VARIABLE
        key = (factor, None if is_plain else expression.template, id(domain))
        if key not in self._products:
            values = domain.values if is_plain else self.tables.evaluate(expression, [domain.values])
            if abs(factor) * max(1, abs(int(values.min())), abs(int(values.max()))) > INT64.max:
                raise Unread("a coefficient times a value of more than 64 bits")
            self._products[key] = factor * values
        return self._products[key]

    def compare(self, operator: str, columns: Columns, offset: int, name: str) -> None:
        """Add that a sum plus a constant compares with 0 by the operator."""
        if operator in ("le", "lt", "eq"):
            self._add_at_most(columns, -offset - (operator == "lt"), name)
        if operator in ("ge", "gt", "eq"):
            self._add_at_most(
                {v: self._negative(column) for v, column in columns.items()}, offset - (operator == "gt"), name
            )

    def _negative(self, column: Integers) -> Integers:
        """A column's negative, once for all sums that have it."""
        found = self._negatives.get(id(column))
        if found is None:
            found = self._negatives[id(column)] = (column, -column)
        return found[1]

    def _add_at_most(self, columns: Columns, capacity: int, name: str) -> None:
        """A linear constraint; Unread where numbers leave 64 bits or are too many."""
        self._coefficients += sum(map(len, columns.values()))
        if self._coefficients > MOST_COEFFICIENTS:
            raise Unread(f"more than {MOST_COEFFICIENTS:,} values of variables in sums")
        if not INT64.min < capacity < INT64.max:
            raise Unread("a right-hand side of more than 64 bits")
        self.linear.append(LinearConstraint(tuple(columns), tuple(columns.values()), capacity, name))


def length(columns: Columns) -> int:
    """Values between the least and the greatest sum, both included."""
    return 1 + sum(int(column.max()) - int(column.min()) for column in columns.values())


def add_column(columns: Columns, v: int, column: Integers) -> None:
    """Add what the values of a variable add to what they add already."""
    known = columns.get(v)
    if known is None:
        columns[v] = column
        return
    if max(int(np.abs(known).max()), int(np.abs(column).max())) >= LARGEST:
        raise Unread("a coefficient times a value of more than 64 bits")
    columns[v] = known + column
