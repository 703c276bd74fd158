"""A compiled tree as flat arrays, the input of the kernels.

Rows of all cliques are numbered consecutively, and so are those of all messages: first each clique's message to its
parent, with a row for each row of its separator; then each variable's evidence, with a row for each value; then inputs
(:mod:`oocbe.junction_trees.conditioning`). An *edge* is an incoming message of a clique, from a child, a variable or an
input. Its map gives the message row of each row of the clique. The evidence of a variable enters one clique, the one
with the fewest rows.

A sweep computes the messages that observed variables and targets need. A clique without evidence in its subtree sends
the same message in every case: the *prior* message, computed once. Posteriors are distributed only to cliques that
targets need."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.cliques import Clique
from oocbe.junction_trees.kernels.cpu.visits import list_visits
from oocbe.junction_trees.support import CliqueRows
from oocbe.runtime.deadline import looked


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

    edge : by variable, the number of the edge of its evidence.
    clique : by variable, the clique of that edge.
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
    if isinstance(of, np.ndarray):
        return of
    return np.fromiter(of, dtype=np.int64, count=len(of))
