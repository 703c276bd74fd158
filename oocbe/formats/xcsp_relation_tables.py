"""Relations of XCSP3 as tables: all assignments of an expression's variables are evaluated at once, and rows shared.

Instances of a group are the same expression over other variables; where these have the same domains, the rows are those
of the first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import VARIABLE, Expression, Integers, Unread, bounds_of, call, evaluate, variable
from oocbe.formats.xcsp_variables import Domain, Variables
from oocbe.model.parts import Constraint

MOST_EVALUATED = 2**27
"""Assignments of all relations of a file together."""

MOST_LISTED = 2**26
"""Values in the rows of all tables together, of which instances of a group share theirs."""


@dataclass(eq=False)
class RelationTables:
    """Tables over some variables.

    Attributes
    ----------
    variables : of the file, and those made for expressions. constraints : the tables.
    """

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
        """That a variable is what an expression says, or is not, as a table of at most so many rows.

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
