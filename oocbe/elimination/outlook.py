"""The plan of a solve, with what a sample of rows says about the search by rows that goes before elimination."""

from __future__ import annotations

from dataclasses import replace

from oocbe.bucket_engine.decision import COMPLETE
from oocbe.elimination.narrow.narrow_plan import narrow_plan
from oocbe.elimination.narrow.narrow_problem import narrow_problem
from oocbe.elimination.plan.plan import Plan, make_plan
from oocbe.elimination.preparation.arity import narrowed
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.elimination.preparation.negate import negated
from oocbe.elimination.preparation.penalties import with_penalties_forbidden
from oocbe.elimination.preparation.propagated import propagated, what_went
from oocbe.elimination.search.row_results import FEW_ROWS, rows_to_come
from oocbe.elimination.search.smaller import is_easy, smaller
from oocbe.elimination.search.sums_of_logarithms import prefers_logarithms
from oocbe.errors import RequestedEndError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.pruning.dominance import applies_to
from oocbe.settings.options import SolveOptions
from oocbe.system.deadline import Deadline

REDUCTION_SECONDS = 1.0
"""Of reduction beyond those that an order is searched for."""


def plan_solve(problem: Problem, options: SolveOptions) -> Plan:
    """Propagate, reduce, choose an order, predict what it costs, and try some rows; errors as for :func:`make_plan`."""
    semiring = options.semiring or problem.semiring
    whole = narrowed(problem.in_semiring(semiring))
    if (narrow := narrow_problem(whole, options)) is not None:
        return narrow_plan(narrow, options)
    problem, left = propagated(with_penalties_forbidden(whole, options), options)
    if left.removed and (narrow := narrow_problem(problem, options)) is not None:
        return replace(narrow_plan(narrow, options), propagation=what_went(left))
    if prefers_logarithms(problem, options):
        problem = in_logarithms(problem)
        options, semiring = replace(options, semiring=None), problem.semiring
    target, said = problem.in_semiring(semiring), what_went(left)
    is_bounded = options.bounds == "auto" and options.tables != COMPLETE and applies_to(semiring)
    if is_bounded and not is_easy(target):
        target, reduced = _reduced(target, options)
        said = "; ".join(filter(None, (said, reduced)))
    plan = replace(make_plan(target, options), propagation=said)
    if not is_bounded:
        return plan
    if sum(plan.choice.predicted_rows) <= FEW_ROWS:
        return plan
    rows = rows_to_come(negated(target) if semiring.marginalisation is Marginalisation.MAX else target, options)
    return replace(plan, bounds=f"first {rows}; then {plan.bounds}") if rows else plan


def _reduced(problem: Problem, options: SolveOptions) -> tuple[Problem, str]:
    """What reduction leaves of a problem that is not easy, and a sentence about that; the problem where nothing goes.

    A plan does not take as long as a solve may: a reduction that takes longer than the order is left out.
    """
    seconds = REDUCTION_SECONDS + options.order_seconds
    try:
        with Deadline(seconds):
            found = smaller(problem, options)
    except RequestedEndError:
        raise
    except TimeLimitError:
        return problem, f"not reduced before, which a solve does, as that takes longer than {seconds:.3g} s"
    return (problem, "") if found is None else (found.problem, found.said)
