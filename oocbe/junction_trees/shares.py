"""From posteriors of message rows to posteriors of variables: the rows to sum for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.kernels.cpu.blocks import take_shares


@dataclass(frozen=True, eq=False)
class Shares:
    """Arguments of :func:`oocbe.junction_trees.kernels.cpu.blocks.take_shares` for some targets; attributes as there.

    Attributes
    ----------
    out_start : int64 (targets + 1,); the last is the number of values of all.
    """

    begin: NDArray[np.int64]
    rows: NDArray[np.int64]
    map_start: NDArray[np.int64]
    maps: NDArray[np.int32]
    out_start: NDArray[np.int64]

    def take(self, posteriors: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add the shares of a block of cases to ``out``, float64 (cases, values of all targets)."""
        take_shares(posteriors, self.begin, self.rows, self.map_start, self.maps, self.out_start, out)


def shares_of(tree: CompiledTree, targets: Sequence[int]) -> Shares:
    """The shares of some variables, given by index."""
    arrays, places = tree.arrays, tree.shape.places
    begin, rows, map_start = [], [], []
    maps: list[NDArray[np.int32]] = []
    end = 0
    for v in targets:
        separator = int(places.separator[v])
        if separator < 0:
            begin.append(int(tree.variable_start[v]))
            rows.append(tree.problem.sizes[v])
            map_start.append(-1)
            continue
        begin.append(int(arrays.message_start[separator]))
        own = tree.rows[separator]
        rows.append(own.separator_rows)
        map_start.append(end)
        maps.append(tree.values(separator, v)[own.groups[:-1]].astype(np.int32))
        end += own.separator_rows
    sizes = [tree.problem.sizes[v] for v in targets]
    return Shares(
        np.array(begin, dtype=np.int64),
        np.array(rows, dtype=np.int64),
        np.array(map_start, dtype=np.int64),
        np.concatenate([np.empty(0, dtype=np.int32), *maps]),
        np.cumsum([0, *sizes]).astype(np.int64),
    )
