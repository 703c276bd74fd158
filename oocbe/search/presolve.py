"""The presolved problem: variables, values and functions removed where that costs nothing.

Reduction of tables (:mod:`oocbe.bounds.row_reduction`) helps elimination, too: a removed value shrinks every message
over its variable, and decomposed functions shrink separators. Random spin glasses and pedigrees lose nine tenths or
more of the rows of elimination. Packing problems are left unchanged: linear programs bound them by cliques of
conflicts, which sums of functions would hide.

If all tables are small, the reduced problem is eliminated at once. A bucket of the engine takes a millisecond or two
whatever its size: it is planned, laid out and joined, and its message is stored. Chains, circuits and family trees have
thousands of buckets of a few dozen cells each. Here their tables are added directly, as in reduction, in a tenth of
that time; only the best values are kept, a byte each. Given an order, table sizes are bounded in advance: a table has
at most as many cells as its variables have assignments.

Searches over rows run before all other solvers; their results and forecasts, and results of bounded searches, are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from oocbe.bounds import row_tables
from oocbe.bounds.row_reduction import Reduction, eliminated
from oocbe.bounds.row_tables import LISTED_SHARE, ScopeTables
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.orders.order import HEURISTICS, speed_of
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.elimination.outcome import attempts_note, blank_result, linear_note, usage_note
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.reformulation import Negation, Reformulation, negated
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import LinearHandling, Result, Status
from oocbe.model.semiring import Marginalisation
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, check_deadline
from oocbe.search.searches import RowProblem, Searches
from oocbe.search.subsolver import SharedBounds, Statistics

FEW_ROWS = 500_000.0
"""Predicted rows up to which elimination finishes before a first attempt: 0.1 to 0.2 s."""

PREPARATION_SECONDS = 1.0
"""Time limit of the sample of a plan beyond its order search, in seconds; a solve's preparation may take longer."""

SAMPLE_SECONDS = 0.3
"""Time limit, in seconds, of the sample search from which a plan forecasts the searches."""


def rows_to_come(problem: Problem, options: SolveOptions) -> str:
    """Forecast of the first searches of a min-sum problem, from a sample; empty if a solve would make none."""
    known = SharedBounds(problem, options.gap, lambda *_: None)
    rows = Searches(problem, options, known, Deadline())
    rows.load()
    seconds = PREPARATION_SECONDS + options.order_seconds
    most = seconds if options.time_limit is None else min(seconds, options.time_limit)
    try:
        with Deadline(most):
            rows.first(SAMPLE_SECONDS)
    except RequestedEndError:
        raise
    except TimeLimitError:
        if not rows.seconds:
            return f"depth-first search (a sample of it takes more than {most:.3g} s)"
    if not rows.seconds:
        return ""
    if known.is_closed:
        return f"depth-first search, which ends it (a sample did, in {rows.seconds:.2g} s)"
    if rows.expected < math.inf:
        return f"depth-first search ({rows.expected:.2g} s expected)"
    return f"depth-first search (a sample of {rows.seconds:.2g} s did not show how long it takes)"


def opening_result(problem: Problem, rows: Searches, options: SolveOptions, known: SharedBounds) -> Result | None:
    """The result of depth-first search before all other solvers; None if it does not close the problem.

    problem : the original one. rows : of the problem in min-sum. known : bounds in min-sum, updated.
    Raises TimeLimitError: the deadline came.
    """
    rows.load()
    rows.open()
    if not known.is_closed:
        return None
    statistics = Statistics()
    rows.report(statistics)
    result = result_of_bounds(problem, options, known, statistics, "cpu")
    return replace(result, seconds={**statistics.seconds, "rows": rows.seconds})


def result_of_bounds(
    problem: Problem, options: SolveOptions, known: SharedBounds, statistics: Statistics, backend: str
) -> Result:
    """The result without times and memory, after a bounded search of a min-sum problem (perhaps a negated one).

    problem : the original problem, in its own semiring. known, statistics : of the solved problem.
    """
    sign = 1 if problem.semiring.marginalisation is Marginalisation.MIN else -1
    value, bound, assignment = known.value, known.lower, known.assignment
    status: Status = "limit"
    if known.is_closed:
        bound = None
        status = "optimal"
        if value is None:
            status, bound = ("infeasible", None) if options.ub is None else ("nothing-better", options.ub)
    notes: tuple[str, ...] = ()
    if statistics.attempts:
        notes += (attempts_note(statistics.attempts),)
    if status == "limit":
        notes += (statistics.stopped or f"ended within the gap of {options.gap}",)
    handling: LinearHandling = "none"
    if problem.linear_constraints:
        handling = "enforced"
        if status == "limit" and statistics.spoiled:
            handling = "relaxed"
            notes = (*(notes if statistics.stopped else notes[:-1]), linear_note(problem))
        elif assignment is not None and usage_note(problem, assignment):
            notes += (usage_note(problem, assignment),)
    return blank_result(
        problem,
        options,
        status,
        backend,
        value=None if value is None else sign * value,
        bound=None if bound is None else (bound if status == "nothing-better" else sign * bound),
        assignment=assignment,
        width=statistics.width,
        order=statistics.order,
        largest_message_rows=statistics.largest_rows,
        total_rows=statistics.total_rows,
        dtype=statistics.dtype or value_dtype(problem, problem.semiring).name,
        linear_constraints=handling,
        notes=notes,
        bounds=statistics.bounds,
        solvers=statistics.solvers,
    )


MANY_VARIABLES = 256
"""Number of variables from which no problem counts as easy. A bucket takes at least some milliseconds with overhead;
a variable removed by presolve takes a tenth of one."""

MOST_LISTED = 1 << 20
"""Maximum number of cells of all remaining functions. They are listed with values, some dozens of bytes each."""


@dataclass(frozen=True)
class PresolvedProblem(Reformulation):
    """A presolved problem in the same semiring. reduction : of its tables, with the steps of postsolve."""

    reduction: Reduction
    name: str = field(default="reduction", kw_only=True)
    keeps_counts = False

    @property
    def done(self) -> Reduction:
        """The identity reduction of the reduced problem."""
        sizes = self.reduction.tables.problem.sizes
        return replace(self.reduction, variables=tuple(range(len(sizes))), steps=(), sizes=sizes)

    @property
    def summary(self) -> str:
        """Summary of the removals, for plans and results."""
        return f"reduced to {self.reduction.summary} before the search"

    def lift(self, assignment: Sequence[int], /) -> tuple[int, ...]:
        """An assignment of the whole problem with the value of one of the reduced problem."""
        return self.reduction.complete(assignment)

    def lower(self, assignment: Sequence[int], /) -> tuple[int, ...] | None:
        """The values of the variables left in an assignment of the whole problem; None with a removed value."""
        left = self.reduction.restricted(assignment)
        return None if -1 in left else left

    def lift_order(self, order: Sequence[int], /) -> tuple[int, ...]:
        """An order of the whole problem, eliminated variables first; a search over rows has none."""
        variables = self.reduction.variables
        if len(order) != len(variables):
            return ()
        return (*(step.variable for step in self.reduction.eliminated), *(variables[v] for v in order))

    def result(self, result: Result) -> Result:
        """A result of the whole problem."""
        found, original = super().result(result), self.original
        value, bound = found.value, found.bound
        if found.assignment is not None and not original.is_integral:
            value = original.evaluate(found.assignment)  # sums of the same floats in another order
            if bound is not None and value is not None:
                bound = min(bound, value) if found.sense == "min" else max(bound, value)
        width = max([result.width, *(len(step.scope) for step in self.reduction.eliminated)])
        return replace(found, value=value, bound=bound, width=width, notes=(self.summary, *result.notes))


def is_easy(problem: Problem, graph: Callable[[], PrimalGraph] | None = None) -> bool:
    """Whether elimination with complete tables takes a negligible time.

    One greedy order decides this in a fraction of the time of an order search. Rows added by linear constraints over
    many variables cannot be predicted: such problems are not easy.

    graph : returns the cached primal graph of the problem, if there is one.

    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    if len(problem.variables) >= MANY_VARIABLES:
        return False
    bound = [c for c in problem.linear_constraints if c.can_bind]
    if any(math.prod(problem.sizes[v] for v in c.scope) > row_tables.LARGEST_LINEAR for c in bound):
        return False
    made = PrimalGraph(problem) if graph is None else graph()
    order = HEURISTICS["min-fill"](made, 0, FEW_ROWS * max(problem.sizes, default=1))
    rows = made.cells_along(order) / made.sizes[order]
    return float(rows.sum()) <= FEW_ROWS


def presolve(problem: Problem, options: SolveOptions, form: RowProblem | None = None) -> PresolvedProblem | None:
    """The presolved problem, if the problem is not easy and one optimal assignment is requested.

    None if an option concerns the whole problem, or if nothing can be removed.

    problem : in min-sum or max-sum. form : the problem in min-sum, whose reduction is reused, or None.
    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    if options.order != "auto" or not options.dominance or options.workdir is not None:
        return None
    target = Negation.of(problem).problem if form is None else form.problem
    if target.linear_constraints:
        return None
    from oocbe.elimination.preparation.packing import is_packing, is_supply  # loaded late: easy solves do not need it

    if is_packing(target, are_penalties_hard=True) or is_supply(target):
        return None

    reduction = (form or RowProblem(target)).reduction
    if reduction is None or reduction.tables.linear:
        return None
    reduction = eliminated_whole(reduction, options)
    found = reduction.tables
    if not reduction.steps or found.is_impossible or sum(part.values.size for part in found.parts) > MOST_LISTED:
        return None
    if found.listed_bytes > LISTED_SHARE * message_memory(options):
        return None
    left = _listed(found, target.upper_bound)
    return PresolvedProblem(problem, left if target is problem else negated(left), reduction)


def _listed(tables: ScopeTables, upper_bound: int | float | None) -> Problem:
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


CELLS_A_SECOND = 2e8
"""Cells added up per second. The engine is many times faster on a large bucket."""

BUCKET_SECONDS, BEGIN_SECONDS = 0.0008, 0.05
"""Time of a bucket of the engine, and of the preceding search and judgement of orders, in seconds. Both were chosen by
the limit of cells that they give: with four times as many cells, elimination took colourings, weighted 2-SAT and
arrangements from searches that are five to seven times as fast."""

LARGEST = 1 << 24
"""Maximum cells of one function. Limits and signals are checked after each function."""

CELL_BYTES = 40
"""Working memory per cell, in bytes: the sum, the permitted flag, and copies of both."""

MOST_VARIABLES = 1 << 13
"""Maximum number of variables. Greedy orders of slightly more take a second."""

SEEDS = 2
"""Number of orders per heuristic. The order with the fewest cells is used."""


def eliminated_whole(reduction: Reduction, options: SolveOptions) -> Reduction:
    """The reduction after elimination of all variables but one.

    Unchanged if a table would be too large, if the engine would be as fast, if incomplete tables are requested, or if
    the problem is infeasible.

    Raises TimeLimitError: the deadline of the enclosing block came.
    """
    tables, memory = reduction.tables, message_memory(options)
    count = len(tables.problem.variables)
    if not 1 < count <= MOST_VARIABLES or tables.is_impossible or options.tables == INCOMPLETE:
        return reduction
    graph = ScopeGraph(tables.problem.name, [part.scope for part in tables.parts], tables.problem.sizes)
    spared = BEGIN_SECONDS + BUCKET_SECONDS * count
    most = spared / (1 / CELLS_A_SECOND - 1 / speed_of(options.backend).cells)
    best, fewest = None, min(most, memory)  # kept best values take a byte each
    for name in ("min-fill", "weighted-min-fill"):
        for seed in range(SEEDS):
            check_deadline()
            order = HEURISTICS[name](graph, seed, most)
            cells = graph.cells_along(order)
            if cells.max() <= min(LARGEST, memory // CELL_BYTES) and cells.sum() <= fewest:
                best, fewest = order, float(cells.sum())
    if best is None:
        return reduction
    whole = eliminated(reduction, best.tolist())
    return reduction if whole.tables.is_impossible else whole
