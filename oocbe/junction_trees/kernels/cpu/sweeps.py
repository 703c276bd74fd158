"""Sweeps over a junction tree for several cases at once: messages up to the roots, and posteriors down again.

Cases are the last axis of all messages: the overhead of a clique's row (finding its message rows) is then paid once for
all of them, and the arithmetic runs over neighbouring numbers.

Upwards, a clique's message is, for each separator row, the sum over the clique's rows of weight times incoming messages
(Shafer and Shenoy 1990). Downwards, a clique's rows get their posterior probabilities; their sums by row of a child's
separator, divided by the child's message, are the message back (Jensen, Lauritzen and Olesen 1990). It overwrites the
child's message, which is not needed again.

**Range.** A message is scaled if its greatest number has left a range, and the logarithms of the divisors are summed by
case. The remaining underflow is bounded: a message's *loss* is a bound of the error of its numbers relative to its
greatest one, and grows with each clique by as much as the message is smaller than it could be. Cases with a loss at a
root that is not negligible are repeated in logarithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

LEAST, GREATEST = 2.0**-100, 2.0**100
"""Range of a message's greatest number; a message outside of it is scaled."""

TINY = 2.0**-600
"""Bound of the underflow error of a product of scaled numbers, with a margin for many factors."""


@jit
def collect(
    tree: Any, cliques: Any, read_start: Any, reads: Any, messages: Any, peaks: Any, losses: Any, logs: Any, stop: Any
) -> Any:
    """Messages from cliques to their parents, for every case.

    Parameters
    ----------
    tree : :class:`oocbe.junction_trees.arrays.TreeArrays`.
    cliques : int64, those that send a message, children before parents.
    read_start : int64 (cliques + 1,), reads : int64, the edges that each multiplies.
    messages : float64 (message rows, cases); rows of likelihoods, and of cliques that are not listed, are read; those
        of the cliques' separators are written.
    peaks, losses : float64 (cliques of the tree + variables, cases), of each message its greatest number, and a bound
        of its error relative to that; read and written likewise.
    logs : float64 (cliques of the tree, cases), logarithm of the divisor of each message; written likewise.
    stop : int64 (1,); the sweep ends when it is not 0.
    """
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message, edge_sender = tree.edge_map, tree.edge_message, tree.edge_sender
    row_start, message_start, group_start, norms = tree.row_start, tree.message_start, tree.group_start, tree.norms
    width = messages.shape[1]
    product = np.empty(width)
    total = np.empty(width)
    bound = np.empty(width)
    peak = np.empty(width)
    places = np.empty(len(edge_map) + 1, dtype=np.int64)
    offsets = np.empty(len(edge_map) + 1, dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c = cliques[n]
        count = read_start[n + 1] - read_start[n]
        for b in range(width):
            total[b] = 0.0
            bound[b] = norms[c]
        for e in range(count):
            edge = reads[read_start[n] + e]
            # Shifted by the clique's first row, so that row numbers index maps and weights alike.
            places[e] = edge_map[edge] - row_start[c]
            offsets[e] = edge_message[edge]
            sender = edge_sender[edge]
            for b in range(width):
                total[b] += losses[sender, b]
                bound[b] *= peaks[sender, b]
        out = message_start[c]
        group = group_start[c] - out
        rows = message_start[c + 1] - out
        for b in range(width):
            peak[b] = 0.0
        for s in range(out, out + rows):
            if stop[0] != 0:
                break
            for b in range(width):
                messages[s, b] = 0.0
            for row in range(groups[group + s], groups[group + s + 1]):
                row_weight = weights[row]
                if count == 0:
                    for b in range(width):
                        product[b] = row_weight
                elif count == 1:
                    i = offsets[0] + maps[places[0] + row]
                    for b in range(width):
                        product[b] = row_weight * messages[i, b]
                else:
                    i = offsets[0] + maps[places[0] + row]
                    j = offsets[1] + maps[places[1] + row]
                    for b in range(width):
                        product[b] = row_weight * messages[i, b] * messages[j, b]
                    for e in range(2, count - 1, 2):
                        i = offsets[e] + maps[places[e] + row]
                        j = offsets[e + 1] + maps[places[e + 1] + row]
                        for b in range(width):
                            product[b] *= messages[i, b] * messages[j, b]
                    if count & 1:
                        i = offsets[count - 1] + maps[places[count - 1] + row]
                        for b in range(width):
                            product[b] *= messages[i, b]
                for b in range(width):
                    messages[s, b] += product[b]
            for b in range(width):
                peak[b] = max(peak[b], messages[s, b])
        scaled = False
        for b in range(width):
            if peak[b] > 0.0:
                losses[c, b] = (bound[b] * total[b] + rows * TINY) / peak[b]
                scaled = scaled or peak[b] < LEAST or peak[b] > GREATEST
                logs[c, b] = 0.0
            else:
                losses[c, b] = np.inf
                logs[c, b] = 0.0
        if scaled:
            for b in range(width):
                product[b] = 1.0
                if peak[b] > 0.0:
                    logs[c, b] = np.log(peak[b])
                    product[b] = 1.0 / peak[b]
                    peak[b] = 1.0
            for s in range(out, out + rows):
                for b in range(width):
                    messages[s, b] *= product[b]
        for b in range(width):
            peaks[c, b] = peak[b]


@jit
def distribute(
    tree: Any,
    cliques: Any,
    read_start: Any,
    reads: Any,
    write_start: Any,
    writes: Any,
    messages: Any,
    logs: Any,
    posteriors: Any,
    expected: Any,
    stop: Any,
) -> Any:
    """Posterior probabilities from the roots downwards, for every case.

    Parameters
    ----------
    tree, reads, stop : as for :func:`collect`, of the cliques listed here, whose order is parents before children.
    cliques : int64, those whose rows get their probabilities.
    write_start : int64 (cliques + 1,), writes : int64, edges of each for which they are summed.
    messages : output of :func:`collect`; rows of a root's separator hold the reciprocal of its message. Rows of written
        edges to children are replaced by the messages down.
    logs : output of :func:`collect`; they undo the scaling of each clique's message in the products of its rows.
    posteriors : float64 (message rows, cases), where the probabilities of written edges are stored.
    expected : float64 (rows,), to which each row's probabilities are added, all cases together; empty: unused.
    """
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message, edge_rows, edge_sender = tree.edge_map, tree.edge_message, tree.edge_rows, tree.edge_sender
    row_start, message_start, group_start, norms = tree.row_start, tree.message_start, tree.group_start, tree.norms
    width = messages.shape[1]
    product = np.empty(width)
    total = np.empty(width)
    places = np.empty(len(edge_map) + 1, dtype=np.int64)
    offsets = np.empty(len(edge_map) + 1, dtype=np.int64)
    targets = np.empty(len(edge_map) + 1, dtype=np.int64)
    target_offsets = np.empty(len(edge_map) + 1, dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c = cliques[n]
        count = read_start[n + 1] - read_start[n]
        for e in range(count):
            edge = reads[read_start[n] + e]
            places[e] = edge_map[edge] - row_start[c]
            offsets[e] = edge_message[edge]
        first, last = write_start[n], write_start[n + 1]
        written = last - first
        for place in range(first, last):
            edge = writes[place]
            targets[place - first] = edge_map[edge] - row_start[c]
            target_offsets[place - first] = edge_message[edge]
            for s in range(edge_message[edge], edge_message[edge] + edge_rows[edge]):
                for b in range(width):
                    posteriors[s, b] = 0.0
        own = message_start[c]
        group = group_start[c] - own
        if len(expected):
            for b in range(width):
                total[b] = np.exp(-logs[c, b])
        for s in range(own, message_start[c + 1]):
            if stop[0] != 0:
                break
            for row in range(groups[group + s], groups[group + s + 1]):
                row_weight = weights[row]
                if count == 0:
                    for b in range(width):
                        product[b] = row_weight
                elif count == 1:
                    i = offsets[0] + maps[places[0] + row]
                    for b in range(width):
                        product[b] = row_weight * messages[i, b]
                else:
                    i = offsets[0] + maps[places[0] + row]
                    j = offsets[1] + maps[places[1] + row]
                    for b in range(width):
                        product[b] = row_weight * messages[i, b] * messages[j, b]
                    for e in range(2, count - 1, 2):
                        i = offsets[e] + maps[places[e] + row]
                        j = offsets[e + 1] + maps[places[e + 1] + row]
                        for b in range(width):
                            product[b] *= messages[i, b] * messages[j, b]
                    if count & 1:
                        i = offsets[count - 1] + maps[places[count - 1] + row]
                        for b in range(width):
                            product[b] *= messages[i, b]
                for b in range(width):
                    product[b] *= messages[s, b]
                for e in range(0, written - 1, 2):
                    i = target_offsets[e] + maps[targets[e] + row]
                    j = target_offsets[e + 1] + maps[targets[e + 1] + row]
                    for b in range(width):
                        posteriors[i, b] += product[b]
                        posteriors[j, b] += product[b]
                if written & 1:
                    i = target_offsets[written - 1] + maps[targets[written - 1] + row]
                    for b in range(width):
                        posteriors[i, b] += product[b]
                if len(expected):
                    for b in range(width):
                        if product[b] < np.inf:  # else the case is repeated in logarithms
                            expected[row] += product[b] * total[b]
        for place in range(first, last):
            edge = writes[place]
            begin, end = edge_message[edge], edge_message[edge] + edge_rows[edge]
            for b in range(width):
                total[b] = 0.0
            for s in range(begin, end):
                for b in range(width):
                    total[b] += posteriors[s, b]
            for b in range(width):
                total[b] = 1.0 / total[b] if total[b] > 0.0 else 0.0
            is_child = edge_sender[edge] < len(norms)
            for s in range(begin, end):
                for b in range(width):
                    share = posteriors[s, b] * total[b]
                    posteriors[s, b] = share
                    if is_child:
                        messages[s, b] = share / messages[s, b] if share > 0.0 else 0.0
