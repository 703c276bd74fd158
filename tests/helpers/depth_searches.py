"""Depth-first searches of small problems to their end, all that they report compared with the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from oocbe.bounds.row_reduction import Reduction, reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import Root, blank_node, laid_out
from oocbe.search.kernels.cpu.depth_first import AFTER, DECISION, IS, MOST_ROUNDS, VALUE, VARIABLE, restore
from oocbe.search.kernels.cpu.node_state import SearchNode
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import optimum

NO_GAP = SolveOptions().gap


def whole(problem: Problem) -> Reduction:
    """A problem as it is: reduction would leave little of a small one."""
    tables = ScopeTables.of(problem)
    assert tables is not None
    return Reduction(tables, tuple(range(len(problem.sizes))), (), problem.sizes)


def blank(root: Root) -> SearchNode:
    """A node that removes no dominated values, which would leave one of several best completions."""
    functions = len(root.network.function_start) - 1
    made = blank_node(root, np.zeros(functions, dtype=np.int64))
    return made._replace(margin=np.full_like(made.margin, -1))


def node_bounds(
    root: Root, variables: Sequence[int], rows: np.ndarray, passes: int, radius: int
) -> tuple[np.ndarray, np.ndarray]:
    """State and bound of the node of each row of values of some variables."""
    linear, node = laid_out(root.tables), blank(root)
    states, bounds = np.empty((len(rows), len(root.state)), dtype=np.int32), np.empty(len(rows), dtype=np.int64)
    for number, row in enumerate(rows):
        path = np.zeros((len(row), AFTER + 1), dtype=np.int64)
        path[:, VARIABLE], path[:, VALUE], path[:, DECISION] = variables, row, IS
        node.state[:], node.stale[:] = root.state, root.stale
        beside = (linear, node, root.bound, root.need, passes, radius, MOST_ROUNDS)
        bounds[number] = restore(root.network, *beside, path)
        states[number] = node.state
    return states, bounds


def begun(problem: Problem, memory: int = 1 << 30, is_reduced: bool = False) -> tuple[SharedBounds, DepthSearch]:
    """A search whose reports are checked; it has not begun yet."""
    best = optimum(problem)
    reduction = whole(problem)
    if is_reduced:
        reduction = reduced(reduction.tables)
    tolerance = 4 * reduction.tables.rounding
    ceiling = math.inf if problem.upper_bound is None else problem.upper_bound

    def check(lower, value, why, assignment):
        assert value is None or value >= best - tolerance, (problem.name, why, value, best)
        assert lower is None or lower <= min(best, ceiling) + tolerance or best == math.inf, (problem.name, why, lower)

    known = SharedBounds(problem, NO_GAP, check)
    return known, DepthSearch(reduction, known, memory)


def search(problem: Problem, memory: int = 1 << 30, is_reduced: bool = False) -> tuple[SharedBounds, DepthSearch]:
    """Run a search to its end."""
    known, made = begun(problem, memory, is_reduced)
    made.work(math.inf, Deadline())
    return known, made


def check_solved(problem: Problem, known: SharedBounds, made: DepthSearch) -> None:
    """Assert that a search has come to its end, with the optimum."""
    best = optimum(problem)
    assert made.is_over
    assert known.is_closed, problem.name
    if best == math.inf:
        assert known.value is None
    else:
        assert known.value == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert known.value == best or not problem.is_integral
