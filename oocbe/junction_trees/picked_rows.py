"""Rows of cliques that agree with the evidence; a sweep for one case reads only these.

A row in which an observed variable has another value contributes nothing. Rows are indexed by the values of a variable
when it is first observed; a clique uses the list of the observed variable that leaves the fewest rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.kernels.cpu.edge_lists import list_values
from oocbe.junction_trees.kernels.cpu.single_sweeps import Picked

LEAST_ROWS = 512
"""Number of rows up to which a clique is always read completely, without lists."""

MOST_LISTED = 1 << 26
"""Limit of the rows in all lists together, four bytes each; beyond it, no further lists are made."""


class RowLists:
    """Lists of a tree's rows by the values of variables that have been observed."""

    def __init__(self, tree: CompiledTree) -> None:
        self._tree = tree
        self._lists: dict[tuple[int, int], tuple[NDArray[np.int32], list[int]]] = {}  # by variable and clique
        self._listed = 0

    def choose(self, values: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """By clique, the variable and value that select its rows; ``values`` : observed value by variable index."""
        chosen: dict[int, tuple[int, int]] = {}
        fewest: dict[int, int] = {}
        for v, value in values.items():
            for clique in self._cliques[v]:
                known = self._lists.get((v, clique)) or self._list(v, clique)
                if known is not None:
                    count = known[1][value + 1] - known[1][value]
                    if clique not in chosen or count < fewest[clique]:
                        chosen[clique], fewest[clique] = (v, value), count
        return chosen

    def picked(self, chosen: Mapping[int, tuple[int, int]]) -> Picked | None:
        """The rows of a selection made by :meth:`choose`; None: all."""
        if not chosen:
            return None
        begin = np.full(len(self._tree.rows), -1, dtype=np.int64)
        end = begin.copy()
        parts, total = [], 0
        for clique, (v, value) in chosen.items():
            rows, ends = self._lists[v, clique]
            parts.append(rows[ends[value] : ends[value + 1]])
            begin[clique] = total
            total += len(parts[-1])
            end[clique] = total
        return Picked(begin, end, np.concatenate(parts), self._group)

    @cached_property
    def _cliques(self) -> list[list[int]]:
        """By variable, the large cliques that have it."""
        found: list[list[int]] = [[] for _ in self._tree.problem.variables]
        for number, (clique, rows) in enumerate(zip(self._tree.cliques, self._tree.rows, strict=True)):
            if rows.rows >= LEAST_ROWS:
                for v in clique.variables:
                    found[v].append(number)
        return found

    @cached_property
    def _group(self) -> NDArray[np.int32]:
        """Of each row, the number of its group in its clique."""
        sizes = [np.diff(rows.groups) for rows in self._tree.rows]
        return np.concatenate([np.repeat(np.arange(len(own), dtype=np.int32), own) for own in sizes])

    def _list(self, v: int, clique: int) -> tuple[NDArray[np.int32], list[int]] | None:
        """Make a list, and the bounds of the rows of each value; None if the lists would exceed their limit."""
        values = self._tree.values(clique, v)
        if self._listed + len(values) > MOST_LISTED:
            return None
        self._listed += len(values)
        listed, ends = list_values(values, self._tree.problem.sizes[v])
        self._lists[v, clique] = listed, ends.tolist()
        return self._lists[v, clique]
