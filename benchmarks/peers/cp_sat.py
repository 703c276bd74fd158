"""OR-tools CP-SAT: a Boolean for each value, conflicts as clauses, capacities as linear constraints.

Conflicts are not merged into at-most-one cliques: CP-SAT does that itself, and better. With two workers it proved
SPOT5 instance 5 in 0.9 s from clauses, and not in 20 s from the cliques that serve the MIP well.
"""

from __future__ import annotations

import math
import time

from ortools.sat.python import cp_model

from oocbe.model.problem import Problem

from .columns import make_columns
from .result import PeerResult, check_supported, make_result

NAME = "CP-SAT"


def solve(problem: Problem, seconds: float, workers: int = 0) -> PeerResult:
    """Minimise a min-sum problem of integers; ``workers`` 0 uses every core."""
    check_supported(NAME, problem)
    begin = time.perf_counter()
    columns = make_columns(problem)
    if columns.impossible:
        return make_result(NAME, problem, None, True, None, time.perf_counter() - begin)
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(columns.first[-1])]
    for a, b in zip(columns.first, columns.first[1:], strict=False):
        model.add_exactly_one(chosen[a:b])
    for conflict in columns.conflicts:
        model.add_bool_or(~chosen[c] for c in conflict)
    for row, coefficients, capacity in columns.rows:
        model.add(cp_model.LinearExpr.weighted_sum([chosen[c] for c in row], coefficients) <= capacity)
    terms = [chosen[c] for c, cost in enumerate(columns.costs) if cost]
    weights = [cost for cost in columns.costs if cost]
    for product, cost in columns.products:
        # Costs are positive, so minimising pulls the term down: only one direction of the equivalence is needed.
        term = model.new_bool_var("")
        model.add_bool_or([term, *(~chosen[c] for c in product)])
        terms.append(term)
        weights.append(cost)
    objective = cp_model.LinearExpr.weighted_sum(terms, weights) + columns.constant
    if problem.upper_bound is not None:
        model.add(objective <= math.ceil(problem.upper_bound) - 1)
    model.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.max_time_in_seconds = max(0.001, seconds - (time.perf_counter() - begin))
    status = solver.solve(model)
    elapsed = time.perf_counter() - begin
    proven = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        bound = None if status == cp_model.INFEASIBLE else solver.best_objective_bound
        return make_result(NAME, problem, None, proven, bound, elapsed)
    assignment = columns.assignment([solver.boolean_value(c) for c in chosen])
    return make_result(NAME, problem, assignment, proven, solver.best_objective_bound, elapsed)
