"""Estimated seconds of the algorithms that answer queries, and the choice among them.

A case can be answered by a sweep over the tree's rows, by a sweep over the smaller tree of a group of cases
(:mod:`oocbe.junction_trees.conditioning`), or without rows by eliminating the relevant factors
(:mod:`oocbe.junction_trees.query_elimination`). Each choice compares estimates of this module.
"""

from __future__ import annotations

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.query_elimination.factors import written_out
from oocbe.junction_trees.query_elimination.groups import whole_cost
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.weights import weights_of
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning


def large_cost(problem: Problem) -> float | None:
    """Cells of a problem's tree if there are so many that it is made only on request; else None.

    Raises UnsupportedError: no tree can be made, see :func:`oocbe.junction_trees.weights.weights_of`.
    """
    scopes = [f.scope for f in problem.functions] + [c.scope for c in problem.constraints]
    if problem.linear_constraints or not problem.variables:
        return None
    cost = whole_cost(scopes, problem.sizes)
    if cost < tuning().large_tree_cells or written_out(problem) is None:
        return None
    weights_of(problem, range(len(problem.variables)), is_log=False)
    return cost


def making_seconds(cost: float) -> float:
    """Seconds to make a tree, from :func:`large_cost`."""
    return tuning().tree_cell_seconds * cost


def elimination_seconds(factors: int, cells: float = 0.0) -> float:
    """Seconds of an elimination of some factors; cells : joined ones of its plan, with the overhead of cliques."""
    return tuning().cell_seconds * (cells + tuning().clique_cells * factors)


def case_limit(tree: CompiledTree | StoredTree) -> float:
    """Maximum seconds of an elimination that is preferred to a sweep for one case; 0: none is."""
    seconds = tuning().cell_seconds * tree.work
    if isinstance(tree, StoredTree) or tree.is_log or not tree.is_possible or seconds < tuning().least_sweep_seconds:
        return 0.0
    return tuning().alternative_share * seconds


def group_limit(tree: CompiledTree, cases: int, case_seconds: float) -> float:
    """Maximum seconds of the eliminations for a group of cases that each take so many in a sweep; 0: none."""
    if tree.is_log or case_seconds < tuning().least_sweep_seconds:
        return 0.0
    return tuning().margin * min(_group_seconds(tree), cases * case_seconds)


def group_work(tree: CompiledTree | StoredTree, cases: int, case_seconds: float) -> float:
    """Maximum work of a sweep over a group's tree for which it is made; 0: for none."""
    return tuning().alternative_share * tree.work if cases * case_seconds >= _group_seconds(tree) else 0.0


def _group_seconds(tree: CompiledTree | StoredTree) -> float:
    return len(tree.problem.variables) * tuning().group_tree_variable_seconds
