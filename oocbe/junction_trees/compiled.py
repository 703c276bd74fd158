"""A compiled junction tree, immutable: cliques, their rows, and the arrays for sweeps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import OrderChoice, judge_order, longest_search, search_orders
from oocbe.errors import ModelError
from oocbe.junction_trees.arrays import Places, TreeArrays, TreeShape, tree_arrays
from oocbe.junction_trees.cliques import Clique, children_of, cliques_of
from oocbe.junction_trees.support import CliqueDone, CliqueRows, clique_rows
from oocbe.junction_trees.weights import Weights, WeightTable, weights_of
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, current, looked

LEAST_WEIGHT = 2.0**-600
"""Smallest weight of a clique relative to its greatest; below it, the tree is made in log space."""


@dataclass(frozen=True, eq=False)
class CompiledTree:
    """A problem's cliques with all rows that are not zero.

    problem : the problem; its values are weights or (log-sum-exp) logarithms of them.
    order : variables as they were eliminated.
    shape : the tree without its rows. rows : of the cliques; none if every assignment has weight 0.
    arrays : for sweeps; weights are logarithms where ``is_log``.
    logarithm : natural logarithm of the factor divided out of all weights; -inf if every assignment has weight 0.
    is_log : whether weights are logarithms.
    seconds : wall time by phase: ``order`` and ``rows``.
    input_rows : rows of each input, see :mod:`oocbe.junction_trees.conditioning`.
    """

    problem: Problem
    order: tuple[int, ...]
    shape: TreeShape
    rows: tuple[CliqueRows, ...]
    arrays: TreeArrays
    logarithm: float
    is_log: bool
    seconds: dict[str, float]
    input_rows: tuple[int, ...] = ()

    @cached_property
    def variable_start(self) -> NDArray[np.int64]:
        """Start of the message rows of each variable's values, then the end of all: int64 (variables + 1,)."""
        sizes = np.array([0, *self.problem.sizes], dtype=np.int64)
        starts: NDArray[np.int64] = self.arrays.message_start[-1] + np.cumsum(sizes)
        return starts

    @cached_property
    def variable_starts(self) -> list[int]:
        """:attr:`variable_start` as Python integers."""
        starts: list[int] = self.variable_start.tolist()
        return starts

    @cached_property
    def input_start(self) -> NDArray[np.int64]:
        """Start of the message rows of each input, then the end of all messages: int64 (inputs + 1,)."""
        counts = np.array([0, *self.input_rows], dtype=np.int64)
        starts: NDArray[np.int64] = self.variable_start[-1] + np.cumsum(counts)
        return starts

    @property
    def message_rows(self) -> int:
        """Rows of all messages."""
        return int(self.input_start[-1])

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """Cliques without a parent."""
        return np.array([c for c, clique in enumerate(self.shape.cliques) if clique.parent is None], dtype=np.int64)

    @cached_property
    def log_arrays(self) -> TreeArrays:
        """The arrays with logarithms of the weights."""
        with np.errstate(divide="ignore"):
            return self.arrays if self.is_log else self.arrays._replace(weights=np.log(self.arrays.weights))

    @property
    def is_possible(self) -> bool:
        """Whether any assignment has a nonzero weight."""
        return self.logarithm > -np.inf

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques without their rows, children before their parents."""
        return self.shape.cliques

    @property
    def work(self) -> float:
        """Cost of a sweep per case: rows of all cliques plus entries of all maps."""
        return float(self.total_rows + len(self.arrays.maps))

    @property
    def total_rows(self) -> int:
        """Rows of all cliques."""
        return len(self.arrays.weights)

    @property
    def width(self) -> int:
        """Variables of the largest clique, less one."""
        return max((len(c.variables) for c in self.shape.cliques), default=1) - 1

    def values(self, clique: int, variable: int) -> NDArray[Any]:
        """Value index of a variable in each row of a clique that has it."""
        found: NDArray[Any] = self.rows[clique].values[self.shape.cliques[clique].variables.index(variable)]
        return found


def find_order(problem: Problem, wanted: str | Sequence[str], seconds: float, seed: int) -> OrderChoice:
    """An order from a search, from a file, or from the names of all variables.

    Raises ModelError: names that are no permutation of the variables; UsageError, FormatError: a file that cannot be
    used.
    """
    if isinstance(wanted, str):
        deadline = current() or Deadline()
        longest = longest_search(seconds, deadline.remaining)
        least = min(seconds, deadline.remaining)
        work = tuning().tree_cell_work
        return search_orders(problem, wanted, least, seed, cell_work=work, deadline=deadline, longest=longest)[0]
    index = {v.name: number for number, v in enumerate(problem.variables)}
    unknown = [name for name in wanted if name not in index]
    if unknown:
        raise ModelError(f"{problem.name}: order: there is no variable {unknown[0]!r}")
    if len(set(wanted)) != len(wanted) or len(wanted) != len(index):
        raise ModelError(f"{problem.name}: order: expected each of the {len(index)} variables once")
    return judge_order(problem, [index[name] for name in wanted], "given", seed)


def tree_of(
    problem: Problem,
    order: Sequence[int],
    separators: Sequence[Sequence[int]],
    memory: int,
    *,
    is_log: bool = False,
    merge: bool = True,
    inputs: Sequence[WeightTable] = (),
    clique_done: CliqueDone | None = None,
) -> CompiledTree:
    """Make a problem's tree from an order and the separators of its buckets.

    problem : its values are weights that are multiplied, or (log-sum-exp) logarithms of weights.
    memory : limit of the tree's rows, in bytes.
    is_log : whether to use logarithms always; else only where weights exceed the range of float64.
    merge : see :func:`oocbe.junction_trees.cliques.cliques_of`. clique_done : progress callback.
    inputs : tables of inputs, in the order of their numbers; their scopes must be within those of the problem.
    Raises ResourceError: the cliques' rows do not fit the memory; UnsupportedError: see
    :func:`oocbe.junction_trees.weights.weights_of`.
    """
    begin = time.perf_counter()
    cliques = cliques_of(order, separators, merge)
    weights = weights_of(problem, order, is_log)
    weights = replace(weights, tables=(*weights.tables, *inputs))
    rows: list[CliqueRows] = []
    if weights.logarithm > -np.inf:
        rows = clique_rows(problem.sizes, cliques, weights, memory, problem.name, clique_done)
        if not is_log and _leaves_range(weights, rows):
            weights = weights_of(problem, order, True)
            weights = replace(weights, tables=(*weights.tables, *inputs))
            rows = clique_rows(problem.sizes, cliques, weights, memory, problem.name, clique_done)
    is_possible = bool(rows) and all(r.rows for r in rows)
    if not is_possible and problem.variables:
        rows = []
    cells = [math.prod(problem.sizes[v] for v in table.scope) for table in inputs]
    input_rows = tuple(n if t.values is None else t.values.shape[1] for n, t in zip(cells, inputs, strict=True))
    logarithm = weights.logarithm if is_possible or not problem.variables else -math.inf
    tree = assembled(problem, order, cliques, rows, logarithm, weights.is_log, input_rows)
    return replace(tree, seconds={"rows": time.perf_counter() - begin})


def assembled(
    problem: Problem,
    order: Sequence[int],
    cliques: tuple[Clique, ...],
    rows: Sequence[CliqueRows],
    logarithm: float,
    is_log: bool,
    input_rows: tuple[int, ...] = (),
) -> CompiledTree:
    """The tree of some rows; parameters as the attributes of :class:`CompiledTree`.

    rows : of the cliques; none where every assignment has weight 0. logarithm : of the factor divided out of them.
    """
    arrays, places, divided = tree_arrays(problem.sizes, cliques, rows, is_log, input_rows)
    shape = TreeShape(cliques, children_of(cliques), places)
    shared = tuple(sharing(rows, arrays, places))
    return CompiledTree(problem, tuple(order), shape, shared, arrays, logarithm + divided, is_log, {}, input_rows)


def sharing(rows: Sequence[CliqueRows], arrays: TreeArrays, places: Places) -> list[CliqueRows]:
    """The rows of cliques with weights and maps that are views of a tree's arrays instead of copies."""
    found = []
    for number, own in enumerate(looked(rows)):
        weights = arrays.weights[arrays.row_start[number] : arrays.row_start[number + 1]]
        begins = {child: int(arrays.edge_map[places.child_edge[child]]) for child in own.numbers}
        numbers = {child: arrays.maps[begin : begin + own.rows] for child, begin in begins.items()}
        found.append(CliqueRows(own.values, own.groups, numbers, {}, weights))
    return found


def _leaves_range(weights: Weights, rows: Sequence[CliqueRows]) -> bool:
    """Whether linear weights are too small for further products in float64."""
    least = [t.weights.min() for t in weights.tables if t.weights is not None]
    least += [r.weights.min() / r.weights.max() for r in rows if r.rows and r.weights.max() > 0]
    least += [0.0 for r in rows if r.rows and not r.weights.max() > 0]
    return bool(least) and float(min(least)) < LEAST_WEIGHT
