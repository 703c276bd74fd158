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
root that is not negligible are repeated in logarithms: these are not scaled, nothing underflows, and each row costs an
exponential. A clique may then maximise over its rows instead of summing.

**Pieces.** The rows of a clique are in memory, or come piece by piece from disk. One loop, :func:`_visit`, goes over
the rows of a range of groups (the rows of one row of the separator), and adds them to the clique's message, or their
probabilities to its edges.

Sweeps for one case skip zeros from the evidence: a row's product ends at the first zero factor, and downwards,
groups of rows with a zero separator row are skipped; many cases do not share such zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.graphs import turned

LEAST, GREATEST = 2.0**-100, 2.0**100
"""Range of a message's greatest number; a message outside of it is scaled."""

TINY = 2.0**-600
"""Bound of the underflow error of a product of scaled numbers, with a margin for many factors."""


@helper
def _visit(
    rows: Any, read: Any, message: Any, is_log: Any, is_down: Any, is_best: Any, clears: Any, written: Any, stop: Any
) -> None:
    """Add the products of some groups of rows to the clique's message, or to the probabilities of edges.

    rows : weights and groups of the clique's rows, and the range of groups.
    read : maps; by edge where the entry of row 0 is in them, and where the rows of its message begin; number of edges;
        messages, float64 (message rows, cases).
    message : the clique's, float64 (message rows, cases), and the row of the first group; on the way down it is that of
        the parent, and is read. Then its greatest numbers, float64 (cases,), which are raised on the way up.
    is_log, is_down : whether weights and messages are logarithms, and whether the sweep goes down: True or None, so
        that the loop is compiled for each case apart, without the other branches.
    is_best : whether the message is the maximum of the products, in logarithms only. clears : whether sums of the
        message begin at 0.
    written : by edge, as in ``read``, where probabilities are added; number of edges; probabilities, as messages; then
        ``expected`` and ``scale``, see :func:`distribute_piece`.
    stop : int64 (1,); the loop ends when it is not 0.
    """
    weights, groups, first, last = rows
    maps, places, offsets, count, messages = read
    own, s, peak = message
    targets, target_offsets, target_count, posteriors, expected, scale = written
    width = own.shape[1]
    product, best, total = np.empty(width), np.empty(width), np.empty(width)
    nothing = 0.0 if is_log is None else -np.inf
    for g in range(first, last):
        if stop[0] != 0:
            break
        if clears:
            for b in range(width):
                own[s, b] = nothing
        if is_log is not None and is_down is None:
            for b in range(width):
                best[b] = own[s, b]
                total[b] = 1.0 if best[b] > -np.inf else 0.0
        for row in range(groups[g], groups[g + 1]):
            weight = weights[row]
            if is_log is not None:
                for b in range(width):
                    product[b] = weight
                for e in range(count):
                    i = offsets[e] + maps[places[e] + row]
                    for b in range(width):
                        product[b] += messages[i, b]
            elif count == 0:
                for b in range(width):
                    product[b] = weight
            elif count == 1:
                i = offsets[0] + maps[places[0] + row]
                for b in range(width):
                    product[b] = weight * messages[i, b]
            else:
                i = offsets[0] + maps[places[0] + row]
                j = offsets[1] + maps[places[1] + row]
                for b in range(width):
                    product[b] = weight * messages[i, b] * messages[j, b]
                for e in range(2, count - 1, 2):
                    i = offsets[e] + maps[places[e] + row]
                    j = offsets[e + 1] + maps[places[e + 1] + row]
                    for b in range(width):
                        product[b] *= messages[i, b] * messages[j, b]
                if count & 1:
                    i = offsets[count - 1] + maps[places[count - 1] + row]
                    for b in range(width):
                        product[b] *= messages[i, b]
            if is_down is None:
                if is_log is None:
                    for b in range(width):
                        own[s, b] += product[b]
                    continue
                for b in range(width):
                    x = product[b]
                    if x > best[b]:
                        total[b] = 1.0 if is_best else total[b] * np.exp(best[b] - x) + 1.0
                        best[b] = x
                    elif x > -np.inf and not is_best:
                        total[b] += np.exp(x - best[b])
                continue
            if is_log is not None:
                for b in range(width):
                    x = product[b] + own[s, b]
                    product[b] = np.exp(x) if x > -np.inf else 0.0
            else:
                for b in range(width):
                    product[b] *= own[s, b]
            for e in range(0, target_count - 1, 2):
                i = target_offsets[e] + maps[targets[e] + row]
                j = target_offsets[e + 1] + maps[targets[e + 1] + row]
                for b in range(width):
                    posteriors[i, b] += product[b]
                    posteriors[j, b] += product[b]
            if target_count & 1:
                i = target_offsets[target_count - 1] + maps[targets[target_count - 1] + row]
                for b in range(width):
                    posteriors[i, b] += product[b]
            if len(expected):
                for b in range(width):
                    if product[b] < np.inf:  # else the case is repeated in logarithms
                        expected[row] += product[b] * scale[b]
        if is_down is None:
            for b in range(width):
                if is_log is not None and best[b] > -np.inf:
                    own[s, b] = best[b] if is_best else best[b] + np.log(total[b])
                peak[b] = max(peak[b], own[s, b])
        s += 1


@jit
def scale_message(message: Any, begin: Any, end: Any, bound: Any, total: Any, peak: Any, loss: Any, log: Any) -> None:
    """Scale a message that has left the range, and bound its underflow error.

    message : float64 (message rows, cases); its rows from ``begin`` to ``end`` are scaled.
    bound : float64 (cases,), of its greatest number. total : float64 (cases,), losses of the messages that it reads.
    peak : float64 (cases,), its greatest number, before and after. loss, log : float64 (cases,), written.
    """
    width = message.shape[1]
    scaled = False
    for b in range(width):
        log[b] = 0.0
        loss[b] = (bound[b] * total[b] + (end - begin) * TINY) / peak[b] if peak[b] > 0.0 else np.inf
        scaled = scaled or (peak[b] > 0.0 and (peak[b] < LEAST or peak[b] > GREATEST))
    if scaled:
        factor = np.ones(width)
        for b in range(width):
            if peak[b] > 0.0:
                log[b] = np.log(peak[b])
                factor[b] = 1.0 / peak[b]
                peak[b] = 1.0
        for s in range(begin, end):
            for b in range(width):
                message[s, b] *= factor[b]


@jit
def finish_shares(posteriors: Any, messages: Any, begin: Any, end: Any, is_child: Any, is_log: Any) -> None:
    """Divide the probabilities of an edge's rows by their sum, and replace a child's message by the one down to it.

    posteriors, messages : float64 (message rows, cases); ``messages`` logarithms where ``is_log``.
    begin, end : range of the edge's rows.
    """
    width = posteriors.shape[1]
    total = np.zeros(width)
    for s in range(begin, end):
        for b in range(width):
            total[b] += posteriors[s, b]
    for b in range(width):
        total[b] = 1.0 / total[b] if total[b] > 0.0 else 0.0
    for s in range(begin, end):
        for b in range(width):
            share = posteriors[s, b] * total[b]
            posteriors[s, b] = share
            if is_child:
                if is_log is not None:
                    messages[s, b] = np.log(share) - messages[s, b] if share > 0.0 else -np.inf
                else:
                    messages[s, b] = share / messages[s, b] if share > 0.0 else 0.0


@helper
def _locate(tree: Any, clique: Any, edges: Any, places: Any, offsets: Any) -> None:
    """Write where the map of each edge has the entry of row 0, and where the rows of its message begin."""
    for e in range(len(edges)):
        # Shifted by the clique's first row, so that row numbers index maps and weights alike.
        places[e] = tree.edge_map[edges[e]] - tree.row_start[clique]
        offsets[e] = tree.edge_message[edges[e]]


@jit
def collect(
    tree: Any,
    cliques: Any,
    read_start: Any,
    reads: Any,
    is_log: Any,
    maximised: Any,
    messages: Any,
    peaks: Any,
    losses: Any,
    logs: Any,
    stop: Any,
) -> Any:
    """Messages from cliques to their parents, for every case.

    tree : :class:`oocbe.junction_trees.compiled.TreeArrays`; weights are logarithms where ``is_log``.
    cliques : int64, those that send a message, children before parents.
    read_start : int64 (cliques + 1,), reads : int64, the edges that each multiplies.
    is_log : True if messages are logarithms, -inf for 0; else None.
    maximised : bool (cliques of the tree,), whether a clique's message is the maximum of a group's rows, not their sum.
    messages : float64 (message rows, cases); rows of likelihoods, and of cliques that are not listed, are read; those
        of the cliques' separators are written.
    peaks, losses : float64 (cliques of the tree + variables, cases), of each message its greatest number, and a bound
        of its error relative to that; read and written likewise, but not in logarithms.
    logs : float64 (cliques of the tree, cases), logarithm of the divisor of each message; written likewise.
    stop : int64 (1,); the sweep ends when it is not 0.
    """
    message_start, group_start = tree.message_start, tree.group_start
    width = messages.shape[1]
    total = np.empty(width)
    bound = np.empty(width)
    peak = np.empty(width)
    none = np.empty(0)
    places, offsets = np.empty((2, len(tree.edge_map) + 1), dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c, edges = cliques[n], reads[read_start[n] : read_start[n + 1]]
        for b in range(width):
            total[b] = 0.0
            bound[b] = tree.norms[c]
            peak[b] = 0.0
        _locate(tree, c, edges, places, offsets)
        for edge in edges:
            sender = tree.edge_sender[edge]
            for b in range(width):
                total[b] += losses[sender, b]
                bound[b] *= peaks[sender, b]
        out, end, group = message_start[c], message_start[c + 1], group_start[c]
        rows = (tree.weights, tree.groups, group, group + end - out)
        read = (tree.maps, places, offsets, len(edges), messages)
        written = (places, offsets, 0, messages, none, none)
        _visit(rows, read, (messages, out, peak), is_log, None, maximised[c], True, written, stop)
        if is_log is None:
            scale_message(messages, out, end, bound, total, peak, losses[c], logs[c])
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
    is_log: Any,
    messages: Any,
    logs: Any,
    posteriors: Any,
    expected: Any,
    stop: Any,
) -> Any:
    """Posterior probabilities from the roots downwards, for every case.

    tree, reads, is_log, stop : as for :func:`collect`, of these cliques, parents before children.
    cliques : int64, those whose rows get their probabilities.
    write_start : int64 (cliques + 1,), writes : int64, edges of each for which they are summed.
    messages : output of :func:`collect`; rows of a root's separator hold the reciprocal of its message. Rows of written
        edges to children are replaced by the messages down.
    logs : output of :func:`collect`; they undo the scaling of each clique's message in the products of its rows.
    posteriors : float64 (message rows, cases), where the probabilities of written edges are stored, never logarithms.
    expected : float64 (rows,), to which each row's probabilities are added, all cases together; empty: unused.
    """
    edge_message, edge_rows = tree.edge_message, tree.edge_rows
    message_start, group_start = tree.message_start, tree.group_start
    width = messages.shape[1]
    scale = np.empty(width)
    places, offsets, targets, target_offsets = np.empty((4, len(tree.edge_map) + 1), dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c, edges = cliques[n], reads[read_start[n] : read_start[n + 1]]
        written = writes[write_start[n] : write_start[n + 1]]
        _locate(tree, c, edges, places, offsets)
        _locate(tree, c, written, targets, target_offsets)
        for edge in written:
            posteriors[edge_message[edge] : edge_message[edge] + edge_rows[edge]] = 0.0
        own, end, group = message_start[c], message_start[c + 1], group_start[c]
        for b in range(width):
            scale[b] = np.exp(-logs[c, b])
        rows = (tree.weights, tree.groups, group, group + end - own)
        read = (tree.maps, places, offsets, len(edges), messages)
        added = (targets, target_offsets, len(written), posteriors, expected, scale)
        _visit(rows, read, (messages, own, scale), is_log, True, False, False, added, stop)
        for edge in written:
            begin, end = edge_message[edge], edge_message[edge] + edge_rows[edge]
            finish_shares(posteriors, messages, begin, end, tree.edge_sender[edge] < len(tree.norms), is_log)


@jit
def collect_piece(
    weights: Any,
    groups: Any,
    first_group: Any,
    maps: Any,
    offsets: Any,
    incoming: Any,
    is_log: Any,
    maximises: Any,
    out: Any,
    peak: Any,
    stop: Any,
) -> None:
    """Add a piece's products to the message of its clique.

    weights : float64 (rows,). groups : int64 (groups + 1,), where the rows of each row of the message begin.
    first_group : the first of these rows. maps : int32 (edges, rows), row of each edge. offsets : int64 (edges, or
        more), where the rows of each edge begin in ``incoming``, float64 (rows of all edges, cases).
    is_log : True if all are logarithms, -inf for 0; else None. maximises : the maximum of the products, not their sum.
    out : float64 (message rows, cases), added to. peak : float64 (cases,), raised to the greatest sum.
    stop : int64 (1,); the function returns early when it is not 0.
    """
    edges, length = maps.shape
    places, none = np.arange(edges) * length, np.empty(0)
    rows, read = (weights, groups, 0, len(groups) - 1), (maps.reshape(-1), places, offsets, edges, incoming)
    written = (places, offsets, 0, incoming, none, none)
    _visit(rows, read, (out, first_group, peak), is_log, None, maximises, False, written, stop)


@jit
def distribute_piece(
    weights: Any,
    groups: Any,
    first_group: Any,
    maps: Any,
    offsets: Any,
    incoming: Any,
    is_log: Any,
    down: Any,
    scale: Any,
    posteriors: Any,
    expected: Any,
    stop: Any,
) -> None:
    """Add the probabilities of a piece's rows to those of the rows of all edges.

    down : float64 (message rows, cases), the message from the parent; of a root the reciprocal of its own message.
    scale : float64 (cases,), factor from products of the clique to probabilities: the reciprocal of the divisor of its
        own message.
    posteriors : float64 (rows of all edges, cases), added to, never logarithms, and not scaled.
    expected : float64 (rows,), to which the probabilities of the rows are added, all cases together; empty: unused.
    The rest is as for :func:`collect_piece`.
    """
    edges, length = maps.shape
    places = np.arange(edges) * length
    rows, read = (weights, groups, 0, len(groups) - 1), (maps.reshape(-1), places, offsets, edges, incoming)
    added = (places, offsets, edges, posteriors, expected, scale)
    _visit(rows, read, (down, first_group, scale), is_log, True, False, False, added, stop)


@jit
def enter_evidence(messages: Any, prior: Any, observed: Any, start: Any, nothing: Any, everything: Any) -> None:
    """Set a block's messages to those without evidence, and the rows of observed variables to their evidence.

    messages : float64 (message rows, cases), written. prior : float64 (message rows,).
    observed : int64 (cases, observed variables), value indices, negative where a case does not observe a variable.
    start : int64 (observed variables, 2), where the rows of each variable's values begin and end.
    nothing, everything : the representations of the likelihoods 0 and 1.
    """
    rows, width = messages.shape
    for row in range(rows):
        for b in range(width):
            messages[row, b] = prior[row]
    for i in range(len(start)):
        for row in range(start[i, 0], start[i, 1]):
            for b in range(width):
                value = observed[b, i]
                messages[row, b] = everything if value < 0 or row - start[i, 0] == value else nothing


@jit
def take_shares(posteriors: Any, begin: Any, rows: Any, map_start: Any, maps: Any, out_start: Any, out: Any) -> None:
    """Sum probabilities of rows to probabilities of values, for each case of a block.

    posteriors : float64 (message rows, cases).
    begin, rows : int64 (targets,), first row and number of rows of each target.
    map_start : int64 (targets,), where each one's map begins in ``maps``, int32: the value of each row; -1: rows are
        values.
    out_start : int64 (targets,), where the values of each begin in a row of ``out``, float64 (cases, values of all).
    """
    width = posteriors.shape[1]
    for t in range(len(begin)):
        for i in range(rows[t]):
            value = out_start[t] + (i if map_start[t] < 0 else maps[map_start[t] + i])
            for b in range(width):
                out[b, value] += posteriors[begin[t] + i, b]


@jit
def collect_one(
    tree: Any, cliques: Any, read_start: Any, reads: Any, messages: Any, peaks: Any, losses: Any, logs: Any, stop: Any
) -> Any:
    """Messages from cliques to their parents; parameters as for many cases, without the axis of cases."""
    weights, maps, groups = tree.weights, tree.maps, tree.groups
    message_start, group_start = tree.message_start, tree.group_start
    places, offsets = np.empty((2, len(tree.edge_map) + 1), dtype=np.int64)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c, edges = cliques[n], reads[read_start[n] : read_start[n + 1]]
        count = len(edges)
        total = 0.0
        bound = tree.norms[c]
        _locate(tree, c, edges, places, offsets)
        for edge in edges:
            total += losses[tree.edge_sender[edge]]
            bound *= peaks[tree.edge_sender[edge]]
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
    edge_message, edge_rows = tree.edge_message, tree.edge_rows
    message_start, group_start = tree.message_start, tree.group_start
    places, offsets, targets, target_offsets = np.empty((4, len(tree.edge_map) + 1), dtype=np.int64)
    messages_of_case, posteriors_of_case = messages.reshape(-1, 1), posteriors.reshape(-1, 1)
    for n in range(len(cliques)):
        if stop[0] != 0:
            break
        c, edges = cliques[n], reads[read_start[n] : read_start[n + 1]]
        written = writes[write_start[n] : write_start[n + 1]]
        count, target_count = len(edges), len(written)
        _locate(tree, c, edges, places, offsets)
        _locate(tree, c, written, targets, target_offsets)
        for edge in written:
            posteriors[edge_message[edge] : edge_message[edge] + edge_rows[edge]] = 0.0
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
                for e in range(target_count):
                    posteriors[target_offsets[e] + maps[targets[e] + row]] += product
        for edge in written:
            begin, end = edge_message[edge], edge_message[edge] + edge_rows[edge]
            is_child = tree.edge_sender[edge] < len(tree.norms)
            finish_shares(posteriors_of_case, messages_of_case, begin, end, is_child, None)


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

    tree : :class:`oocbe.junction_trees.compiled.TreeArrays`; its weights are logarithms where ``is_log``.
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
