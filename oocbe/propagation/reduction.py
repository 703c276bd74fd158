"""A problem reduced to smaller domains of the same variables."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.propagation.domains import Domains
from oocbe.runtime.deadline import check_deadline

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
