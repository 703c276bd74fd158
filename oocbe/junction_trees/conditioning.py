"""Reduced trees for many cases that observe the same variables.

Such a tree omits the observed variables, so that its cliques are narrower and often much smaller. A factor with both
observed and hidden variables becomes an *input*: a message whose rows are the assignments of the hidden variables, and
whose numbers are the slice of the factor for the case's observed values.

A hidden variable that is no target and occurs only in its own conditional probability table is *barren*: the table sums
to 1 for all values of its parents, so that variable and table can be dropped, and then perhaps the parents (Shachter
1986). Only factors that sum to 1 up to rounding are dropped; files print rounded numbers, and other factors are kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import HEURISTICS
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.errors import ResourceError, UnsupportedError
from oocbe.junction_trees.compiled import CompiledTree, tree_of
from oocbe.junction_trees.query_elimination.factors import (
    MOST_CELLS,
    DenseFactor,
    adds_up_to_one,
    dense_factor,
    relevant,
)
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.junction_trees.weights import WeightTable, value_kind
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem


@dataclass(frozen=True, eq=False)
class ConditionedInput:
    """A factor with observed and hidden variables.

    observed : indices of its observed variables, in the problem. sizes : of these.
    weights : float64 (rows, assignments of the observed variables), between 0 and 1.
    """

    observed: tuple[int, ...]
    sizes: tuple[int, ...]
    weights: NDArray[np.float64]

    def columns(self, observed: NDArray[np.int64]) -> NDArray[np.int64]:
        """The column of the weights that each case picks, from value indices (cases, variables of the problem)."""
        columns = np.zeros(len(observed), dtype=np.int64)
        for v, size in zip(self.observed, self.sizes, strict=True):
            columns = columns * size + observed[:, v]
        return columns


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A tree of the variables that are neither observed nor dropped.

    tree : the reduced tree. hidden : index in the problem of each variable of it.
    inputs : of the tree. scalars : factors without hidden variables, one row each.
    """

    tree: CompiledTree
    hidden: tuple[int, ...]
    inputs: tuple[ConditionedInput, ...]
    scalars: tuple[ConditionedInput, ...]


def condition(
    tree: CompiledTree | StoredTree, observed: Collection[int], targets: Collection[int], most_cost: float, memory: int
) -> Conditioned | None:
    """The reduced tree for some observed variables; None where there is none, or one sweep costs too much.

    targets : variables that must not be pruned. most_cost : work of a sweep from which on the result is None
        (:attr:`oocbe.junction_trees.compiled.CompiledTree.work`).
    memory : limit of the tree's rows, in bytes.
    """
    problem = without_zeros(tree.problem)
    seen = set(observed)
    parts: list[Function | Constraint] = [*problem.functions, *problem.constraints]
    cells = (math.prod(problem.sizes[v] for v in p.scope) for p in parts if not seen.isdisjoint(p.scope))
    if tree.is_log or problem.linear_constraints or max(cells, default=0) > MOST_CELLS:
        return None
    kept, gone = _relevant(problem, parts, seen, set(targets))
    hidden = tuple(v for v in range(len(problem.variables)) if v not in seen and v not in gone)
    number = {v: i for i, v in enumerate(hidden)}
    functions, constraints, mixed = [], [], []
    for part in kept:
        if seen & set(part.scope):
            factor = dense_factor(problem, part)
            if factor is None:
                return None
            mixed.append(factor)
            scope = tuple(number[v] for v in part.scope if v in number)
            # The constraint forbids nothing; it adds the edges of the scope to the primal graph.
            constraints.append(Constraint(scope, np.zeros((0, len(scope)), dtype=np.int64)))
        elif isinstance(part, Function):
            functions.append(Function(tuple(number[v] for v in part.scope), part.tuples, part.values, part.default))
        else:
            constraints.append(Constraint(tuple(number[v] for v in part.scope), part.tuples, part.allowed))
    left = replace(
        problem,
        variables=tuple(problem.variables[v] for v in hidden),
        functions=tuple(functions),
        constraints=tuple(c for c in constraints if c.scope),
    )
    order, separators = _order(left, [number[v] for v in tree.order if v in number])
    tables: list[WeightTable] = []
    inputs: list[ConditionedInput] = []
    scalars: list[ConditionedInput] = []
    logarithm = 0.0
    place = {hidden[v]: i for i, v in enumerate(order)}
    for factor in mixed:
        table, made = _input(problem, factor, place, seen, number, len(inputs))
        logarithm += factor.logarithm
        if table is None:
            scalars.append(made)
        else:
            tables.append(table)
            inputs.append(made)
    has_zeros = any(c.tuples.size for c in constraints) or any(t.values is not None for t in tables)
    if not has_zeros and most_cost < _least_work(left, order, separators):
        return None
    try:
        made_tree = tree_of(left, order, separators, memory, inputs=tables)
    except (ResourceError, UnsupportedError):
        return None
    if made_tree.is_log or not made_tree.is_possible or made_tree.work > most_cost:
        return None
    made_tree = replace(made_tree, logarithm=made_tree.logarithm + logarithm)
    return Conditioned(made_tree, hidden, tuple(inputs), tuple(scalars))


def _relevant(
    problem: Problem, parts: Sequence[Function | Constraint], seen: Collection[int], targets: Collection[int]
) -> tuple[list[Function | Constraint], set[int]]:
    """The parts that remain without barren variables, and the barren variables."""
    scopes = [[v for v in part.scope if v not in seen] for part in parts]
    left, gone = relevant(scopes, range(len(parts)), targets, lambda f, v: _adds_up_to_one(problem, parts[f], v))
    return [parts[f] for f in sorted(left)], set(gone)


def _adds_up_to_one(problem: Problem, part: Function | Constraint, v: int) -> bool:
    """Whether a function's weights sum to 1 over one variable, for all values of the others."""
    if not isinstance(part, Function) or math.prod(problem.sizes[u] for u in part.scope) > MOST_CELLS:
        return False
    factor = dense_factor(problem, part)
    return factor is not None and adds_up_to_one(factor.weights, part.scope.index(v), factor.logarithm)


def _order(problem: Problem, known: Sequence[int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """The better of a given order and a new greedy one, by the cells of their buckets, with its separators."""
    graph = PrimalGraph(problem)
    best: tuple[float, Any] = (math.inf, None)
    for order in (np.array(known, dtype=np.int64), HEURISTICS["weighted-min-fill"](graph, 0)):
        separators = graph.separators(order)
        cells = float(graph.joined_cells(order, separators).sum()) if len(order) else 0.0
        if cells < best[0]:
            best = (cells, (order.tolist(), separators.listed()))
    order, separators = best[1]
    return order, separators


def _least_work(problem: Problem, order: Sequence[int], separators: Sequence[Sequence[int]]) -> float:
    """Lower bound of a sweep's work if no function has zeros; else 0."""
    sizes = problem.sizes
    if any(f.default is None and len(f.values) < math.prod(sizes[v] for v in f.scope) for f in problem.functions):
        return 0.0
    return max((math.prod(sizes[u] for u in (v, *s)) for v, s in zip(order, separators, strict=True)), default=0)


def _input(
    problem: Problem,
    factor: DenseFactor,
    place: dict[int, int],
    seen: Collection[int],
    number: dict[int, int],
    own: int,
) -> tuple[WeightTable | None, ConditionedInput]:
    """A factor as an input, and the table of its rows; None if all its variables are observed."""
    hidden = sorted((v for v in factor.scope if v not in seen), key=place.__getitem__, reverse=True)
    observed = tuple(v for v in factor.scope if v in seen)
    axes = [factor.scope.index(v) for v in (*hidden, *observed)]
    shape = [problem.sizes[v] for v in hidden]
    cells = factor.weights.transpose(axes).reshape(math.prod(shape), -1)
    sizes = tuple(problem.sizes[v] for v in observed)
    if not hidden:
        return None, ConditionedInput(observed, sizes, cells)
    rows = np.flatnonzero((cells > 0).any(axis=1))
    values: NDArray[Any] | None = None
    if len(rows) < len(cells):
        values = np.array(np.unravel_index(rows, shape), dtype=value_kind(problem.sizes))
    table = WeightTable(tuple(number[v] for v in hidden), values, None, own)
    return table, ConditionedInput(observed, sizes, np.ascontiguousarray(cells[rows]))
