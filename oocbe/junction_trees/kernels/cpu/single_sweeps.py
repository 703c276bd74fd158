"""Sweeps over a junction tree for one case, which skip zeros from the evidence, and rows drawn from it.

The sweeps of :mod:`oocbe.junction_trees.kernels.cpu.sweeps` with one case. A row's product ends at the first zero
factor, and downwards, groups of rows with a zero separator row are skipped; many cases do not share such zeros.
Messages, peaks, losses and logarithms have the same meaning as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.junction_trees.kernels.cpu.sweeps import GREATEST, LEAST, TINY
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.orders.graphs import turned


@jit
def collect_one(
    tree: Any,
    cliques: Any,
    read_start: Any,
    reads: Any,
    messages: Any,
    peaks: Any,
    losses: Any,
    logs: Any,
    stop: Any,
) -> Any:
    """Messages from cliques to their parents; parameters as for many cases, without the axis of cases."""
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message, edge_sender = tree.edge_map, tree.edge_message, tree.edge_sender
    row_start, message_start, group_start, norms = tree.row_start, tree.message_start, tree.group_start, tree.norms
    places = np.empty(len(edge_map) + 1, dtype=np.int64)
    offsets = np.empty(len(edge_map) + 1, dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c = cliques[n]
        count = read_start[n + 1] - read_start[n]
        total = 0.0
        bound = norms[c]
        for e in range(count):
            edge = reads[read_start[n] + e]
            places[e] = edge_map[edge] - row_start[c]
            offsets[e] = edge_message[edge]
            total += losses[edge_sender[edge]]
            bound *= peaks[edge_sender[edge]]
        out = message_start[c]
        group = group_start[c] - out
        end = message_start[c + 1]
        peak = 0.0
        for s in range(out, end):
            if stop[0] != 0:
                break
            sums = 0.0
            for row in range(groups[group + s], groups[group + s + 1]):
                product = weights[row]
                for e in range(count):
                    product *= messages[offsets[e] + maps[places[e] + row]]
                    if product == 0.0:
                        break
                sums += product
            messages[s] = sums
            peak = max(peak, sums)
        logs[c] = 0.0
        losses[c] = (bound * total + (end - out) * TINY) / peak if peak > 0.0 else np.inf
        if peak > 0.0 and (peak < LEAST or peak > GREATEST):
            logs[c] = np.log(peak)
            for s in range(out, end):
                messages[s] /= peak
            peak = 1.0
        peaks[c] = peak


@jit
def evidence_one(tree: Any, roots: Any, messages: Any, losses: Any, logs: Any) -> Any:
    """The logarithm of the total weight, without that of the tree, -inf for none, and a bound of its error.

    roots : int64, cliques without a parent. The rest is the output of :func:`collect_one`.
    """
    logarithm, lost = 0.0, 0.0
    for log in logs:
        logarithm += log
    for root in roots:
        weight = messages[tree.message_start[root]]
        logarithm += np.log(weight) if weight > 0.0 else -np.inf
        lost += losses[root]
    return logarithm, lost


@jit
def distribute_one(
    tree: Any,
    roots: Any,
    cliques: Any,
    read_start: Any,
    reads: Any,
    write_start: Any,
    writes: Any,
    messages: Any,
    posteriors: Any,
    stop: Any,
) -> Any:
    """Posterior probabilities from the roots downwards; parameters as for many cases, without the axis of cases.

    roots : int64, cliques without a parent, with messages from collecting; this function takes their reciprocal.
    """
    for root in roots:
        s = tree.message_start[root]
        messages[s] = 1.0 / messages[s] if messages[s] > 0.0 else 0.0
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    edge_map, edge_message, edge_rows, edge_sender = tree.edge_map, tree.edge_message, tree.edge_rows, tree.edge_sender
    row_start, message_start, group_start = tree.row_start, tree.message_start, tree.group_start
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
        written = write_start[n + 1] - write_start[n]
        for e in range(written):
            edge = writes[write_start[n] + e]
            targets[e] = edge_map[edge] - row_start[c]
            target_offsets[e] = edge_message[edge]
            for s in range(edge_message[edge], edge_message[edge] + edge_rows[edge]):
                posteriors[s] = 0.0
        own = message_start[c]
        group = group_start[c] - own
        for s in range(own, message_start[c + 1]):
            if stop[0] != 0:
                break
            down = messages[s]
            if down == 0.0:
                continue
            for row in range(groups[group + s], groups[group + s + 1]):
                product = weights[row] * down
                for e in range(count):
                    product *= messages[offsets[e] + maps[places[e] + row]]
                    if product == 0.0:
                        break
                if product == 0.0:
                    continue
                for e in range(written):
                    posteriors[target_offsets[e] + maps[targets[e] + row]] += product
        for e in range(written):
            edge = writes[write_start[n] + e]
            begin, end = edge_message[edge], edge_message[edge] + edge_rows[edge]
            total = 0.0
            for s in range(begin, end):
                total += posteriors[s]
            scale = 1.0 / total if total > 0.0 else 0.0
            is_child = edge_sender[edge] < len(row_start) - 1
            for s in range(begin, end):
                share = posteriors[s] * scale
                posteriors[s] = share
                if is_child:
                    messages[s] = share / messages[s] if share > 0.0 else 0.0


@jit
def list_values(values: Any, size: Any) -> Any:
    """List rows by their value of a variable, or by another number.

    values : integers (rows,), at least 0 and below ``size``.
    Returns int32 (rows,), numbers of rows, ascending for each value; int64 (size + 1,), where those of each value
    begin.
    """
    ends, listed = turned(np.arange(len(values) + 1), values, size)
    return listed, ends


@jit
def draw_rows(
    tree: Any, clique: Any, reads: Any, messages: Any, is_log: Any, above: Any, uniform: Any, out: Any
) -> None:
    """Draw a row for each sample, with its probability among the rows of its group.

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
