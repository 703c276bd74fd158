"""Which messages a sweep has to compute, given what is observed and what is asked.

A clique below which nothing is observed sends the same message whatever the case: the *prior* one, computed once. And
posteriors are only brought down to where something is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.arrays import Places
from oocbe.junction_trees.cliques import Clique


@dataclass(frozen=True, eq=False)
class Program:
    """What a sweep visits; arrays as the loops take them (:mod:`oocbe.kernels.cpu.trees.sweeps`).

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

    def with_ancestors(self, cliques: Iterable[int]) -> set[int]:
        """Some cliques and all above them."""
        found: set[int] = set()
        for clique in cliques:
            above: int | None = clique
            while above is not None and above not in found:
                found.add(above)
                above = self.cliques[above].parent
        return found

    def program(
        self,
        observed: Collection[int],
        targets: Iterable[int],
        rows_of: Iterable[int] = (),
        stale: Iterable[int] | None = None,
    ) -> Program:
        """The sweep for some observed variables, after which the posteriors of some targets are known.

        Parameters
        ----------
        rows_of : cliques whose rows need probabilities as well.
        stale : cliques whose messages must be computed; None: those below which something is observed.
        """
        places = self.places
        inputs: list[list[int]] = [[] for _ in self.cliques]
        for v in observed:
            inputs[places.clique[v]].append(int(places.edge[v]))
        for clique, edge in zip(places.input_clique.tolist(), places.input_edge.tolist(), strict=True):
            inputs[clique].append(edge)
        # What is observed comes first: a product of one case ends with the first factor that is 0.
        read = [[*inputs[c], *(int(places.child_edge[k]) for k in below)] for c, below in enumerate(self.children)]
        if stale is None:
            stale = {*(int(places.clique[v]) for v in observed), *places.input_clique.tolist()}
        collected = sorted(self.with_ancestors(stale))
        written: list[list[int]] = [[] for _ in self.cliques]
        visited = set(rows_of)
        for v in targets:
            separator = int(places.separator[v])
            if separator < 0:
                visited.add(int(places.clique[v]))
                written[places.clique[v]].append(int(places.edge[v]))
            else:
                parent = self.cliques[separator].parent
                assert parent is not None
                visited.add(parent)
                written[parent].append(int(places.child_edge[separator]))
        distributed = sorted(self.with_ancestors(visited), reverse=True)
        for c in distributed:
            parent = self.cliques[c].parent
            if parent is not None:
                written[parent].append(int(places.child_edge[c]))
        writes = [sorted(set(written[c])) for c in distributed]
        return Program(
            np.array(collected, dtype=np.int64),
            *_rows(read[c] for c in collected),
            np.array(distributed, dtype=np.int64),
            *_rows(read[c] for c in distributed),
            *_rows(writes),
        )


def _rows(lists: Iterable[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each list begins in all of them laid end to end, and these."""
    known = list(lists)
    starts = np.cumsum([0, *map(len, known)]).astype(np.int64)
    return starts, np.array([e for own in known for e in own], dtype=np.int64)
