"""Sweeps over a junction tree in logarithms, for numbers beyond the range of float64, and for best assignments.

The sweeps of :mod:`oocbe.junction_trees.kernels.cpu.sweeps` with logarithms for weights and messages: messages are not
scaled, nothing underflows, and each row costs an exponential. A clique may maximise over its rows instead of summing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit


@jit
def collect_logs(tree: Any, cliques: Any, read_start: Any, reads: Any, maximised: Any, messages: Any, stop: Any) -> Any:
    """Logarithms of messages from cliques to their parents, for every case.

    Parameters
    ----------
    tree, cliques, read_start, reads, stop : as for :func:`oocbe.junction_trees.kernels.cpu.sweeps.collect`; weights are
        logarithms.
    maximised : bool (cliques of the tree,), whether a clique's message is the maximum of a group's rows, not their sum.
    messages : float64 (message rows, cases), -inf for 0.
    """
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message = tree.edge_map, tree.edge_message
    row_start, message_start, group_start = tree.row_start, tree.message_start, tree.group_start
    width = messages.shape[1]
    best = np.empty(width)
    total = np.empty(width)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c = cliques[n]
        out = message_start[c]
        group = group_start[c] - out
        for s in range(out, message_start[c + 1]):
            if stop[0] != 0:
                break
            for b in range(width):
                best[b] = -np.inf
                total[b] = 0.0
            for row in range(groups[group + s], groups[group + s + 1]):
                for b in range(width):
                    x = weights[row]
                    for e in range(read_start[n], read_start[n + 1]):
                        edge = reads[e]
                        x += messages[edge_message[edge] + maps[edge_map[edge] + row - row_start[c]], b]
                    if x > best[b]:
                        total[b] = total[b] * np.exp(best[b] - x) + 1.0
                        best[b] = x
                    elif x > -np.inf:
                        total[b] += np.exp(x - best[b])
            for b in range(width):
                if best[b] == -np.inf or maximised[c]:
                    messages[s, b] = best[b]
                else:
                    messages[s, b] = best[b] + np.log(total[b])


@jit
def distribute_logs(
    tree: Any,
    cliques: Any,
    read_start: Any,
    reads: Any,
    write_start: Any,
    writes: Any,
    messages: Any,
    posteriors: Any,
    expected: Any,
    stop: Any,
) -> Any:
    """Posterior probabilities from the roots downwards, for every case.

    Parameters are those of :func:`oocbe.junction_trees.kernels.cpu.sweeps.distribute` without ``logs``; messages are
    the output of :func:`collect_logs`, those of roots negated. Posteriors are probabilities, messages down are
    logarithms.
    """
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message, edge_rows, edge_sender = tree.edge_map, tree.edge_message, tree.edge_rows, tree.edge_sender
    row_start, message_start, group_start = tree.row_start, tree.message_start, tree.group_start
    width = messages.shape[1]
    total = np.empty(width)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c = cliques[n]
        first, last = write_start[n], write_start[n + 1]
        for place in range(first, last):
            edge = writes[place]
            for s in range(edge_message[edge], edge_message[edge] + edge_rows[edge]):
                for b in range(width):
                    posteriors[s, b] = 0.0
        own = message_start[c]
        group = group_start[c] - own
        for s in range(own, message_start[c + 1]):
            if stop[0] != 0:
                break
            for row in range(groups[group + s], groups[group + s + 1]):
                for b in range(width):
                    x = weights[row] + messages[s, b]
                    for e in range(read_start[n], read_start[n + 1]):
                        edge = reads[e]
                        x += messages[edge_message[edge] + maps[edge_map[edge] + row - row_start[c]], b]
                    share = np.exp(x) if x > -np.inf else 0.0
                    for place in range(first, last):
                        edge = writes[place]
                        posteriors[edge_message[edge] + maps[edge_map[edge] + row - row_start[c]], b] += share
                    if len(expected):
                        expected[row] += share
        for place in range(first, last):
            edge = writes[place]
            begin, end = edge_message[edge], edge_message[edge] + edge_rows[edge]
            for b in range(width):
                total[b] = 0.0
            for s in range(begin, end):
                for b in range(width):
                    total[b] += posteriors[s, b]
            is_child = edge_sender[edge] < len(row_start) - 1
            for s in range(begin, end):
                for b in range(width):
                    share = posteriors[s, b] / total[b] if total[b] > 0.0 else 0.0
                    posteriors[s, b] = share
                    if is_child:
                        messages[s, b] = np.log(share) - messages[s, b] if share > 0.0 else -np.inf
