"""The messages that a sweep computes, given observed variables and targets.

A clique without evidence in its subtree sends the same message in every case: the *prior* message, computed once.
Posteriors are distributed only to cliques that targets need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.arrays import Places
from oocbe.junction_trees.cliques import Clique
from oocbe.junction_trees.kernels.cpu.visits import list_visits


class Program(NamedTuple):
    """The cliques and edges that a sweep visits, as arrays for :mod:`oocbe.junction_trees.kernels.cpu.sweeps`.

    Attributes
    ----------
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
    """A tree without its rows.

    Attributes
    ----------
    cliques : children before their parents. children : of each clique. places : of variables.
    """

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

        Parameters
        ----------
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
