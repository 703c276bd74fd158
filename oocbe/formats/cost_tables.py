"""Tables with costs between files and problems: what listed costs charge and forbid, all parts of a problem as tables.

Further common parts of writers: names without marks, and the refusal of bounds that a format does not have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.model.model_checks import Values
from oocbe.model.parts import Constraint, Function, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.runtime.deadline import check_deadline

MOST_VALUES = 1 << 20
"""Values that the domains of a file may have together: a range of a few characters can ask for gigabytes of labels."""

MOST_CELLS = 1 << 20
"""Assignments of a linear constraint that is written as a table, at most."""


def parts_of(
    scope: tuple[int, ...],
    tuples: NDArray[np.int64],
    costs: Values,
    permitted: NDArray[np.bool_],
    default: int | float | None,
    cells: int,
) -> Iterator[Function | Constraint]:
    """Costs and forbidden tuples of a table; parts without an effect are left out.

    tuples : int64 (rows, arity), different ones. costs, permitted : (rows,), of each; any number where not permitted.
    default : of tuples that are not listed; None: they are forbidden. cells : assignments of the scope.
    """
    costs, kept = costs[permitted], tuples[permitted]
    if default is None:
        if costs.any():
            yield Function(scope, kept, costs, None)
        elif len(kept) < cells:
            yield Constraint(scope, kept, allowed=True)
        return
    if not permitted.all():
        yield Constraint(scope, tuples[~permitted])
    if default != 0 or costs.any():
        yield Function(scope, kept, costs, default)


def parts_of_listed(
    scope: tuple[int, ...],
    tuples: NDArray[np.int64],
    costs: Sequence[int | float],
    default: int | float | None,
    cells: int,
) -> Iterator[Function | Constraint]:
    """The same of costs some of which are infinite, and forbid; OverflowError for an integer beyond 64 bits."""
    permitted = np.array([not isinstance(cost, float) or math.isfinite(cost) for cost in costs], dtype=bool)
    finite = [cost if is_kept else 0 for cost, is_kept in zip(costs, permitted.tolist(), strict=True)]
    is_integral = all(isinstance(cost, int) for cost in finite)
    values: Values = np.array(finite, dtype=np.int64) if is_integral else np.array(finite, dtype=np.float64)
    return parts_of(scope, tuples, values, permitted, default, cells)


@dataclass(frozen=True, eq=False)
class CostTable:
    """One part of a problem: costs of the listed tuples, and of all others.

    name : of the constraint. what : the part, for messages. scope : variable indices.
    tuples : int64 (rows, arity). values : of each, int64 or float64; None where the listed ones are forbidden.
    default : of all other tuples; None where they are forbidden.
    """

    name: str
    what: str
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
    constant, found = problem.constant, []
    for table in tables_of(problem, format_name):
        if table.scope:
            found.append(table)
            continue
        value = table.values[0].item() if table.values is not None and len(table.values) else table.default
        if value is None or (table.values is None and len(table.tuples)):
            raise UnsupportedError(f"{problem.name}: {table.what} forbids everything; nothing is left to write")
        constant = constant + value
    if constant:
        every = np.arange(problem.sizes[0]).reshape(-1, 1)
        found.append(CostTable("constant", "the constant", (0,), every, np.full(len(every), constant), None))
    return found


def tables_of(problem: Problem, format_name: str) -> Iterator[CostTable]:
    """All parts of a problem but its constant; UnsupportedError for a linear constraint over too many assignments."""
    for number, f in enumerate(problem.functions):
        check_deadline()
        yield CostTable(f"f{number}", f"function {number}", f.scope, f.tuples, f.values, f.default)
    for number, c in enumerate(problem.hard_parts):
        check_deadline()
        if isinstance(c, LinearConstraint):
            if math.prod(problem.sizes[v] for v in c.scope) > MOST_CELLS:
                raise UnsupportedError(
                    f"{problem.name}: {c.name} over {len(c.scope)} variables has more than {MOST_CELLS:,} assignments, "
                    f"and {format_name} has tables only; write it as .wcsp"
                )
            permitted = np.argwhere(c.to_array()) if c.scope else np.zeros((int(c.capacity >= 0), 0), dtype=np.int64)
            c = Constraint(c.scope, permitted, allowed=True)
        values, default = (np.zeros(len(c.tuples), dtype=np.int64), None) if c.allowed else (None, 0)
        yield CostTable(f"c{number}", f"constraint {number}", c.scope, c.tuples, values, default)


def plain_names(names: Iterable[str], marks: re.Pattern[str], refused: re.Pattern[str]) -> list[str]:
    """The names with ``_`` for each character that the format does not read; no two of them are alike.

    marks : matches each such character. refused : matches names that get a ``_`` in front.
    """
    given = list(names)
    plain = [marks.sub("_", name) for name in given]
    plain = [f"_{name}" if not name or refused.match(name) else name for name in plain]
    taken = {name for name, own in zip(given, plain, strict=True) if name == own}
    left = set(taken)
    for place, name in enumerate(plain):
        if name in left and name == given[place]:
            left.remove(name)
            continue
        number = 1
        while plain[place] in taken:
            number += 1
            plain[place] = f"{name}_{number}"
        taken.add(plain[place])
    return plain


def refuse_bounds(problem: Problem, format_name: str) -> None:
    """Raise :class:`UnsupportedError` where a problem has an upper or lower bound that its sums may reach."""
    if side := problem.reachable_bound:
        bound = problem.upper_bound if side == "upper" else problem.lower_bound
        raise UnsupportedError(
            f"{problem.name}: the {side} bound {bound} may bind, and {format_name} has none; write it as .cfn, "
            "or, in Python, problem.below(None) without it"
        )
