"""HiGHS through scipy: 0/1 columns, conflicts merged into clique rows, products as continuous columns."""

from __future__ import annotations

import math
import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from oocbe.model.problem import Problem

from .columns import Columns, make_columns, merge_conflicts
from .result import PeerResult, check_supported, make_result

NAME = "HiGHS"
OPTIMAL_STATUS, INFEASIBLE_STATUS = 0, 2  # scipy's codes


class _Rows:
    """Rows of a sparse matrix with lower and upper sides, as they are added."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.values: list[float] = []
        self.starts = [0]
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, columns: list[int], values: list[float], low: float, high: float) -> None:
        self.indices += columns
        self.values += values
        self.starts.append(len(self.indices))
        self.low.append(low)
        self.high.append(high)

    def constraint(self, width: int) -> LinearConstraint:
        shape = (len(self.low), width)
        return LinearConstraint(csr_array((self.values, self.indices, self.starts), shape=shape), self.low, self.high)


def solve(problem: Problem, seconds: float) -> PeerResult:
    """Minimise a min-sum problem of integers; costs beyond 2^53 would be rounded and are refused by HiGHS's bound."""
    check_supported(NAME, problem)
    begin = time.perf_counter()
    columns = make_columns(problem)
    if columns.impossible or not problem.variables:
        assignment: list[int] | None = None if columns.impossible or problem.evaluate([]) is None else []
        bound = None if assignment is None else float(columns.constant)
        return make_result(NAME, problem, assignment, True, bound, time.perf_counter() - begin)
    count = columns.first[-1]
    width = count + len(columns.products)
    costs = np.array([*columns.costs, *(cost for _, cost in columns.products)], dtype=np.float64)
    rows = _make_rows(columns)
    if problem.upper_bound is not None:
        limit = math.ceil(problem.upper_bound) - 1 - columns.constant
        used = np.flatnonzero(costs).tolist()
        rows.add(used, costs[used].tolist(), -np.inf, limit)
    result = milp(
        costs,
        integrality=np.arange(width) < count,
        bounds=Bounds(0, 1),
        constraints=rows.constraint(width),
        options={"time_limit": max(0.001, seconds - (time.perf_counter() - begin)), "mip_rel_gap": 0.0},
    )
    elapsed = time.perf_counter() - begin
    proven = result.status in (OPTIMAL_STATUS, INFEASIBLE_STATUS)
    bound = None if result.get("mip_dual_bound") is None else result.mip_dual_bound + columns.constant
    if result.x is None:
        return make_result(NAME, problem, None, proven, bound, elapsed)
    return make_result(NAME, problem, columns.assignment(result.x[:count]), proven, bound, elapsed)


def _make_rows(columns: Columns) -> _Rows:
    rows = _Rows()
    for a, b in zip(columns.first, columns.first[1:], strict=False):
        rows.add(list(range(a, b)), [1.0] * (b - a), 1, 1)
    cliques, others = merge_conflicts(columns)
    for clique in cliques:
        rows.add(list(clique), [1.0] * len(clique), -np.inf, 1)
    for conflict in others:
        rows.add(list(conflict), [1.0] * len(conflict), -np.inf, len(conflict) - 1)
    for row, coefficients, capacity in columns.rows:
        rows.add(row, [float(c) for c in coefficients], -np.inf, capacity)
    for place, (product, _) in enumerate(columns.products):
        # The product's column is at least the sum less all but one; its cost keeps it at the least.
        term = columns.first[-1] + place
        rows.add([*product, term], [1.0] * len(product) + [-1.0], -np.inf, len(product) - 1)
    return rows
