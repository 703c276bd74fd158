"""The plan of a solve, with what a sample of rows says about the search by rows that goes before elimination."""

from __future__ import annotations

from dataclasses import replace

from oocbe.elimination.plan.plan import Plan, make_plan
from oocbe.elimination.preparation.negate import negated
from oocbe.elimination.search.row_rounds import FEW_ROWS, rows_to_come
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.pruning.dominance import applies_to
from oocbe.settings.options import SolveOptions


def plan_solve(problem: Problem, options: SolveOptions) -> Plan:
    """Choose an order, predict what it costs, and try some rows; errors as for :func:`make_plan`."""
    plan = make_plan(problem, options)
    semiring = options.semiring or problem.semiring
    if options.bounds != "auto" or not plan.bounds or not applies_to(semiring):
        return plan
    if sum(plan.choice.predicted_rows) <= FEW_ROWS:
        return plan
    target = problem.in_semiring(semiring)
    rows = rows_to_come(negated(target) if semiring.marginalisation is Marginalisation.MAX else target, options)
    return replace(plan, bounds=f"first {rows}; then {plan.bounds}") if rows else plan
