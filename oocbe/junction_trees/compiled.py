"""A compiled junction tree, immutable: cliques, their rows, and the flat arrays of the kernels' sweeps.

Rows of all cliques are numbered consecutively, and so are those of all messages: first each clique's message to its
parent, with a row for each row of its separator; then each variable's evidence, with a row for each value; then inputs
(:mod:`oocbe.junction_trees.conditioning`). An *edge* is an incoming message of a clique, from a child, a variable or an
input. Its map gives the message row of each row of the clique. The evidence of a variable enters one clique, the one
with the fewest rows.

A sweep computes the messages that observed variables and targets need. A clique without evidence in its subtree sends
the same message in every case: the *prior* message, computed once. Posteriors are distributed only to cliques that
targets need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import OrderChoice, judge_order, longest_search, search_orders
from oocbe.errors import ModelError
from oocbe.junction_trees.kernels.cpu.visits import list_visits
from oocbe.junction_trees.support import Clique, CliqueDone, CliqueRows, children_of, clique_rows, cliques_of
from oocbe.junction_trees.weights import Weights, WeightTable, log_of, weights_of
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, current, looked


class TreeArrays(NamedTuple):
    """The arrays of a tree that a sweep reads.

    weights : float64 (rows,), of all cliques concatenated, the greatest of each between 1 and 2.
    row_start : int64 (cliques + 1,), where each clique's rows begin.
    groups : int64, for each clique where the rows of each row of its separator begin, and where the last ones end.
    group_start : int64 (cliques,), where each clique's groups begin.
    message_start : int64 (cliques + 1,), where the rows of each clique's message begin.
    norms : float64 (cliques,), greatest sum of weights of a group.
    maps : int32, of all edges concatenated, numbers of a message's rows.
    edge_map : int64 (edges,), where each edge's map begins.
    edge_message, edge_rows : int64 (edges,), where the rows of its message begin, and how many there are.
    edge_sender : int64 (edges,), number of the child; or the number of cliques plus that of the variable; or that of
        cliques and variables plus that of the input.
    """

    weights: NDArray[np.float64]
    row_start: NDArray[np.int64]
    groups: NDArray[np.int64]
    group_start: NDArray[np.int64]
    message_start: NDArray[np.int64]
    norms: NDArray[np.float64]
    maps: NDArray[np.int32]
    edge_map: NDArray[np.int64]
    edge_message: NDArray[np.int64]
    edge_rows: NDArray[np.int64]
    edge_sender: NDArray[np.int64]


class Places(NamedTuple):
    """The edges, cliques and separators of each variable and input.

    edge : by variable, the number of the edge of its evidence. clique : by variable, the clique of that edge.
    child_edge : by clique, the number of the edge from it to its parent; -1 for a root.
    separator : by variable, the clique with the smallest separator (in rows) that has the variable, if it has fewer
        rows than ``clique``; else -1.
    input_edge, input_clique : by input, the number of its edge, and the clique of that.
    """

    edge: NDArray[np.int64]
    clique: NDArray[np.int64]
    child_edge: NDArray[np.int64]
    separator: NDArray[np.int64]
    input_edge: NDArray[np.int64]
    input_clique: NDArray[np.int64]


def tree_arrays(
    sizes: Sequence[int],
    cliques: Sequence[Clique],
    rows: Sequence[CliqueRows],
    is_log: bool,
    input_rows: Sequence[int] = (),
) -> tuple[TreeArrays, Places, float]:
    """The arrays of a tree, the places of its variables, and a logarithm.

    The logarithm is that of the product of the cliques' divisors, which are powers of two. Weights that are logarithms
    (``is_log``) are not divided, and their norms are meaningless. Without rows (every assignment has weight 0), arrays
    and places are empty.

    input_rows : rows of each input.
    """
    if not rows:
        cliques = ()
        sizes = ()
    clique_of, separator_of = _homes(len(sizes), cliques, rows)
    message_start = np.cumsum([0, *(r.separator_rows for r in rows)])
    variable_start = message_start[-1] + np.cumsum([0, *sizes])
    input_start = variable_start[-1] + np.cumsum([0, *input_rows])
    input_edge = np.full(len(input_rows), -1)
    input_clique = np.full(len(input_rows), -1)
    edges: list[tuple[int, int, int]] = []  # where its message begins, rows, sender
    maps: list[NDArray[np.int32]] = []
    edge = np.full(len(sizes), -1)
    child_edge = np.full(len(cliques), -1)
    homed: list[list[int]] = [[] for _ in cliques]
    for v, home in enumerate(clique_of):
        homed[home].append(v)
    for number, (clique, own) in enumerate(looked(zip(cliques, rows, strict=True))):
        for child, numbers in own.numbers.items():
            child_edge[child] = len(edges)
            edges.append((int(message_start[child]), rows[child].separator_rows, child))
            maps.append(numbers)
        for v in homed[number]:
            edge[v] = len(edges)
            edges.append((int(variable_start[v]), sizes[v], len(cliques) + v))
            maps.append(own.values[clique.variables.index(v)].astype(np.int32))
        for i, numbers in own.inputs.items():
            input_edge[i], input_clique[i] = len(edges), number
            edges.append((int(input_start[i]), input_rows[i], len(cliques) + len(sizes) + i))
            maps.append(numbers)
    exponents = [0 if is_log else math.frexp(float(r.weights.max()))[1] - 1 for r in rows]
    row_start = np.cumsum([0, *(r.rows for r in rows)])
    weights = np.empty(row_start[-1])
    for own, exponent, first, last in looked(zip(rows, exponents, row_start, row_start[1:], strict=False)):
        np.ldexp(own.weights, -exponent, out=weights[first:last])
    groups = [r.groups + start for r, start in zip(rows, row_start, strict=False)]
    flat = np.array(edges, dtype=np.int64).reshape(-1, 3)
    arrays = TreeArrays(
        weights,
        row_start,
        joined(groups, np.int64),
        np.cumsum([0, *map(len, groups)])[:-1],
        message_start,
        np.array(
            [
                float(np.add.reduceat(weights[first:last], own.groups[:-1]).max())
                for own, first, last in looked(zip(rows, row_start, row_start[1:], strict=False))
            ]
        ),
        joined(maps, np.int32),
        np.cumsum([0, *map(len, maps)])[:-1],
        *(np.ascontiguousarray(column) for column in flat.T),
    )
    homes = np.array([clique_of, separator_of], dtype=np.int64)
    places = Places(edge, homes[0], child_edge, homes[1], input_edge, input_clique)
    return arrays, places, math.log(2) * sum(exponents)


def joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Arrays concatenated, converted to a dtype."""
    return np.concatenate([np.empty(0, dtype=dtype), *(p.ravel() for p in parts)]).astype(dtype, copy=False)


def _homes(variables: int, cliques: Sequence[Clique], rows: Sequence[CliqueRows]) -> tuple[list[int], list[int]]:
    """By variable, the smallest clique and the smallest separator (in rows) that have it; see :class:`Places`."""
    clique_of, separator_of = [-1] * variables, [-1] * variables
    for number, clique in enumerate(looked(cliques)):
        for v in clique.variables:
            if clique_of[v] < 0 or rows[number].rows < rows[clique_of[v]].rows:
                clique_of[v] = number
    for number, clique in enumerate(looked(cliques)):
        for v in clique.shared:
            least = rows[clique_of[v]].rows if separator_of[v] < 0 else rows[separator_of[v]].separator_rows
            if rows[number].separator_rows < least:
                separator_of[v] = number
    return clique_of, separator_of


class Program(NamedTuple):
    """The cliques and edges that a sweep visits, as arrays for :mod:`oocbe.junction_trees.kernels.cpu.sweeps`.

    collected : cliques that send a message, children before parents; collect_start, collect_reads : edges of each.
    distributed : cliques whose rows get probabilities, parents before children; read_start, reads, write_start,
        writes : edges of each.
    """

    collected: NDArray[np.int64]
    collect_start: NDArray[np.int64]
    collect_reads: NDArray[np.int64]
    distributed: NDArray[np.int64]
    read_start: NDArray[np.int64]
    reads: NDArray[np.int64]
    write_start: NDArray[np.int64]
    writes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TreeShape:
    """A tree without rows: its cliques, children before parents, their children, and places of variables."""

    cliques: tuple[Clique, ...]
    children: tuple[tuple[int, ...], ...]
    places: Places

    @cached_property
    def _edges(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The first arguments of :func:`oocbe.junction_trees.kernels.cpu.visits.list_visits`."""
        places, count = self.places, len(self.places.child_edge)
        parent = np.array([-1 if c.parent is None else c.parent for c in self.cliques[:count]], dtype=np.int64)
        below = np.flatnonzero(parent >= 0)
        child_edge = places.child_edge.astype(np.int64)
        into = np.empty(len(below) + len(places.edge) + len(places.input_edge), dtype=np.int64)
        into[child_edge[below]] = parent[below]
        into[places.edge], into[places.input_edge] = places.clique, places.input_clique
        is_child, is_always_read = np.zeros((2, len(into)), dtype=np.bool_)
        is_child[child_edge[below]] = is_always_read[child_edge[below]] = is_always_read[places.input_edge] = True
        return parent, child_edge, np.searchsorted(into, np.arange(count + 1)), is_child, is_always_read

    def program(
        self,
        observed: Collection[int],
        targets: Sequence[int] | NDArray[np.int64],
        rows_of: Collection[int] = (),
        stale: Collection[int] | None = None,
    ) -> Program:
        """The sweep for some observed variables that computes the posteriors of some targets.

        rows_of : cliques whose rows need probabilities as well.
        stale : cliques whose messages must be computed; None: those with evidence in their subtrees.
        """
        seen, wanted, rows = _indices(observed), _indices(targets), _indices(rows_of)
        sending = _indices(() if stale is None else stale)
        return Program(*list_visits(*self._edges, self.places, seen, wanted, rows, sending, stale is not None))


def _indices(of: Collection[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return of if isinstance(of, np.ndarray) else np.fromiter(of, dtype=np.int64, count=len(of))


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
    is_log : whether weights are logarithms. seconds : wall time by phase: ``order`` and ``rows``.
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
        return self.arrays if self.is_log else self.arrays._replace(weights=log_of(self.arrays.weights))

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
    merge : see :func:`oocbe.junction_trees.support.cliques_of`. clique_done : progress callback.
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
