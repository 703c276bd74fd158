"""Rows of a clique drawn at random, given the row of its separator."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit


@jit
def draw_rows(
    tree: Any, clique: Any, reads: Any, messages: Any, is_log: Any, above: Any, uniform: Any, out: Any
) -> None:
    """Draw a row for each sample, with its probability among the rows of its group.

    Parameters
    ----------
    tree : :class:`oocbe.junction_trees.arrays.TreeArrays`; its weights are logarithms where ``is_log``.
    reads : int64, the edges that the clique multiplies. messages : float64 (message rows,), the output of collecting.
    above : int64 (samples,), row of the separator of each, counted from the separator's first.
    uniform : float64 (samples,), between 0 and 1. out : int64 (samples,), row of each, counted from the clique's first.
    """
    start = tree.row_start[clique]
    group = tree.group_start[clique]
    weights, groups, maps = tree.weights, tree.groups, tree.maps
    edge_map, edge_message = tree.edge_map, tree.edge_message
    own = tree.message_start[clique]
    sums = np.empty(tree.row_start[clique + 1] - start)
    is_asked = np.zeros(tree.message_start[clique + 1] - own, dtype=np.bool_)
    for s in above:
        is_asked[s] = True
    for s in range(len(is_asked)):
        if not is_asked[s]:
            continue
        total = 0.0
        for row in range(groups[group + s], groups[group + s + 1]):
            x = weights[row]
            if is_log:
                x -= messages[own + s]
            for e in range(len(reads)):
                of = messages[edge_message[reads[e]] + maps[edge_map[reads[e]] + row - start]]
                x = x + of if is_log else x * of
            total += np.exp(x) if is_log else x
            sums[row - start] = total
    for i in range(len(above)):
        low = groups[group + above[i]] - start
        high = groups[group + above[i] + 1] - start - 1
        wanted = uniform[i] * sums[high]
        while low < high:
            middle = (low + high) // 2
            if sums[middle] > wanted:
                high = middle
            else:
                low = middle + 1
        out[i] = low
