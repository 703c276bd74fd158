"""What both writers of distributed problems need: every part of a problem as tables with costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.plain_names import refuse_bounds
from oocbe.model.parts import Constraint, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.runtime.deadline import check_deadline

MOST_VALUES = 1 << 20
"""Values that the domains of a file may have together: a range of a few characters can ask for gigabytes of labels."""

MOST_CELLS = 1 << 20
"""Assignments of a linear constraint that is written as a table, at most."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """One part of a problem: costs of the listed tuples, and of all others.

    Attributes
    ----------
    name : of the constraint. scope : variable indices.
    tuples : int64 (rows, arity). values : of each, int64 or float64; None where the listed ones are forbidden.
    default : of all other tuples; None where they are forbidden.
    """

    name: str
    scope: tuple[int, ...]
    tuples: NDArray[np.int64]
    values: NDArray[Any] | None
    default: int | float | None


def cost_tables(problem: Problem, format_name: str) -> list[CostTable]:
    """All parts of a problem, its constant over its first variable; UnsupportedError where the format has no form."""
    semiring = problem.semiring
    if semiring.combination is not Combination.ADD or not semiring.selects:
        raise UnsupportedError(
            f"{problem.name}: {format_name} has costs to minimise or utilities to maximise; the semiring is "
            f"{semiring.name}"
        )
    refuse_bounds(problem, format_name)
    if not problem.variables:
        raise UnsupportedError(f"{problem.name}: {format_name} needs a variable, and there is none")
    return list(_tables(problem, format_name))


def _tables(problem: Problem, format_name: str) -> Iterator[CostTable]:
    constant = problem.constant
    for number, f in enumerate(problem.functions):
        check_deadline()
        if f.scope:
            yield CostTable(f"f{number}", f.scope, f.tuples, f.values, f.default)
            continue
        value = f.value_at(())
        if value is None:
            raise UnsupportedError(f"{problem.name}: function {number} forbids everything; nothing is left to write")
        constant = constant + value
    if constant:
        every = np.arange(problem.sizes[0]).reshape(-1, 1)
        values = np.full(len(every), constant)
        yield CostTable("constant", (0,), every, values, None)
    hard: tuple[Constraint | LinearConstraint, ...] = (*problem.constraints, *problem.linear_constraints)
    for number, c in enumerate(hard):
        check_deadline()
        if isinstance(c, LinearConstraint):
            if np.prod([float(problem.sizes[v]) for v in c.scope]) > MOST_CELLS:
                raise UnsupportedError(
                    f"{problem.name}: {c.name} over {len(c.scope)} variables is too large for {format_name}, which has "
                    "tables only"
                )
            permitted = np.argwhere(c.to_array()) if c.scope else np.zeros((int(c.capacity >= 0), 0), dtype=np.int64)
            c = Constraint(c.scope, permitted, allowed=True)
        if not c.scope:
            if not c.permits(()):
                raise UnsupportedError(
                    f"{problem.name}: constraint {number} forbids everything; nothing is left to write"
                )
            continue
        zeros = np.zeros(len(c.tuples), dtype=np.int64)
        yield CostTable(f"c{number}", c.scope, c.tuples, zeros if c.allowed else None, None if c.allowed else 0)
