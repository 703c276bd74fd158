"""The presolved problem: variables, values and functions removed where that costs nothing.

What rows with bounds of their own begin with (:mod:`oocbe.bounds.row_reduction`) pays for elimination, too: removing
a value makes every message smaller that it would be in, and functions that fall apart make separators smaller. Random
spin glasses and pedigrees lose nine tenths and more of the rows that elimination would have. Problems of packing stay
as they are: linear programs bound them by their cliques of conflicts, which sums of functions hide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.orders.order import HEURISTICS
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.negate import negated
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.beam_search_scheduler import BeamSearchScheduler
from oocbe.search.row_results import FEW_ROWS, is_wide

if TYPE_CHECKING:
    from oocbe.bounds.row_reduction import Reduction
    from oocbe.bounds.row_tables import Tables

MANY_VARIABLES = 256
"""Number of variables from which no problem counts as easy. A bucket takes at least some milliseconds with overhead;
a variable removed by presolve takes a tenth of one."""

MOST_LISTED = 1 << 20
"""Maximum number of cells of all remaining functions. They are listed with values, some dozens of bytes each."""


@dataclass(frozen=True)
class PresolvedProblem:
    """What is left of a problem.

    Attributes
    ----------
    original : the whole problem. problem : what is left, in the same semiring. reduction : the way back.
    """

    original: Problem
    problem: Problem
    reduction: Reduction

    @property
    def done(self) -> Reduction:
        """The reduction of what is left, from which nothing more goes."""
        sizes = self.reduction.tables.problem.sizes
        return replace(self.reduction, variables=tuple(range(len(sizes))), steps=(), sizes=sizes)

    @property
    def summary(self) -> str:
        """Summary of the removals, for plans and results."""
        return f"reduced to {self.reduction.summary} before the search"

    def lift(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """An assignment of the whole problem that is worth what one of what is left is."""
        return self.reduction.complete(assignment)

    def lifted(self, result: Result) -> Result:
        """A result of the whole problem; variables that went before come first in the order."""
        from oocbe.bounds.row_reduction import Elimination

        eliminated = [step for step in self.reduction.steps if isinstance(step, Elimination)]
        variables = self.reduction.variables
        order: tuple[int, ...] = ()
        if len(result.order) == len(variables):  # rows have no order
            order = (*(step.variable for step in eliminated), *(variables[v] for v in result.order))
        value, bound = result.value, result.bound
        assignment = None if result.assignment is None else self.lift(result.assignment)
        if assignment is not None and not self.original.is_integral:
            value = self.original.evaluate(assignment)  # sums of the same floats in another order
            if bound is not None and value is not None:
                is_lower = self.original.semiring.marginalisation is Marginalisation.MIN
                bound = min(bound, value) if is_lower else max(bound, value)
        return replace(
            result,
            value=value,
            bound=bound,
            assignment=assignment,
            variables=self.original.variables,
            order=order,
            width=max([result.width, *(len(step.scope) for step in eliminated)]),
            notes=(self.summary, *result.notes),
        )


def is_easy(problem: Problem, graph: Callable[[], PrimalGraph] | None = None) -> bool:
    """Whether elimination of a problem of some variables is over in a moment even with complete tables.

    That is known along one greedy order in a fraction of the time in which orders are looked for and judged. What
    linear constraints over many variables add to rows is not.

    graph : makes the problem's graph, where somebody keeps that.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came.
    """
    if len(problem.variables) >= MANY_VARIABLES or any(is_wide(c, problem.sizes) for c in problem.linear_constraints):
        return False
    made = PrimalGraph(problem) if graph is None else graph()
    order = HEURISTICS["min-fill"](made, 0, FEW_ROWS * max(problem.sizes, default=1))
    rows = made.cells_along(order) / made.sizes[order]
    return float(rows.sum()) <= FEW_ROWS


def presolve(
    problem: Problem, options: SolveOptions, rows: BeamSearchScheduler | None = None
) -> PresolvedProblem | None:
    """What is left of a problem that is not easy, and of which one optimal assignment is wanted.

    None where something that is asked for is about the whole problem, and where nothing goes.

    Parameters
    ----------
    problem : in min-sum or max-sum. rows : of the same in min-sum, where they are to come: they begin with its
        reduction.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came.
    """
    if options.order != "auto" or not options.dominance or options.workdir is not None:
        return None
    is_maximised = problem.semiring.marginalisation is Marginalisation.MAX
    target = negated(problem) if is_maximised else problem
    if target.linear_constraints:
        return None
    from oocbe.elimination.preparation.packing import is_packing, is_supply  # an easy solve has ended before

    if is_packing(target, are_penalties_hard=True) or is_supply(target):
        return None
    from oocbe.bounds.row_tables import LISTED_SHARE
    from oocbe.search.small_tables import eliminated_whole

    reduction = (rows or BeamSearchScheduler(target, options, Deadline())).reduction
    if reduction is None or reduction.tables.linear:
        return None
    reduction = eliminated_whole(reduction, options)
    found = reduction.tables
    if not reduction.steps or found.is_impossible or sum(part.values.size for part in found.parts) > MOST_LISTED:
        return None
    if found.listed_bytes > LISTED_SHARE * message_memory(options):
        return None
    left = _listed(found, problem.upper_bound)
    if is_maximised:
        left = replace(negated(left), semiring=problem.semiring)
    return PresolvedProblem(problem, left, reduction)


def _listed(tables: Tables, upper_bound: int | float | None) -> Problem:
    """Tables as functions and constraints."""
    functions: list[Function] = []
    constraints: list[Constraint] = []
    constant = tables.constant
    for part in tables.parts:
        values, permitted = part.values, part.permitted
        if permitted.all():
            differs = values != part.least
            functions.append(Function(part.scope, np.argwhere(differs), values[differs], part.least))
        elif (values[permitted] == part.least).all():
            is_allowed = 2 * int(np.count_nonzero(permitted)) < permitted.size
            listed = np.argwhere(permitted if is_allowed else ~permitted)
            constraints.append(Constraint(part.scope, listed, is_allowed))
            constant += part.least
        else:
            functions.append(Function(part.scope, np.argwhere(permitted), values[permitted]))
    return replace(
        tables.problem,
        functions=tuple(functions),
        constraints=tuple(constraints),
        constant=constant,
        upper_bound=upper_bound,
    )
