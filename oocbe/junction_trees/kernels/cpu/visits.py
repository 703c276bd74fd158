"""The visits of a sweep over a tree: cliques with their ancestors, and the edges that each reads and writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit


@jit
def list_visits(
    parent: Any,
    child_edge: Any,
    edge_start: Any,
    is_child: Any,
    is_always_read: Any,
    places: Any,
    observed: Any,
    targets: Any,
    rows_of: Any,
    stale: Any,
    is_stale_known: Any,
) -> Any:
    """The arrays of a :class:`oocbe.junction_trees.compiled.Program`, in the order of its attributes.

    parent : int64 (cliques,), of each clique, with a larger number; -1 for a root. child_edge : int64 (cliques,), the
        edge from it to its parent. edge_start : int64 (cliques + 1,), where the edges into each clique begin.
    is_child, is_always_read : bool (edges,), whether it comes from a child, and is read whatever the evidence.
    places : :class:`oocbe.junction_trees.compiled.Places`.
    observed, targets, rows_of, stale : int64, as for :meth:`oocbe.junction_trees.compiled.TreeShape.program`.
    is_stale_known : whether ``stale`` is given; else cliques with evidence in their subtrees are stale.
    Returns int64 arrays. Of the edges that a clique reads, those from children come last: a product ends at its first
    zero factor, and most zeros come from evidence.
    """
    cliques = len(parent)
    is_read = is_always_read.copy()
    is_written = np.zeros(len(is_read), dtype=np.bool_)
    is_stale, is_visited = np.zeros(cliques, dtype=np.bool_), np.zeros(cliques, dtype=np.bool_)
    for v in observed:
        is_read[places.edge[v]] = True
        if not is_stale_known:
            is_stale[places.clique[v]] = True
    for c in stale if is_stale_known else places.input_clique:
        is_stale[c] = True
    for c in rows_of:
        is_visited[c] = True
    for v in targets:
        below = places.separator[v]
        if below < 0:
            is_visited[places.clique[v]] = True
            is_written[places.edge[v]] = True
        else:  # summed from the separator below, which needs the rows of its parent
            is_visited[parent[below]] = True
            is_written[child_edge[below]] = True
    sending, visiting = 0, 0
    for c in range(cliques):
        above = parent[c]
        if is_stale[c]:
            sending += 1
            if above >= 0:
                is_stale[above] = True
        if is_visited[c]:
            visiting += 1
            if above >= 0:
                is_visited[above] = True
                is_written[child_edge[c]] = True
    collected = np.empty(sending, dtype=np.int64)
    collect_start = np.zeros(sending + 1, dtype=np.int64)
    collect_reads = np.empty(len(is_read), dtype=np.int64)
    n = 0
    for c in range(cliques):
        if is_stale[c]:
            collected[n] = c
            collect_start[n + 1] = _list_reads(c, edge_start, is_child, is_read, collect_reads, collect_start[n])
            n += 1
    distributed = np.empty(visiting, dtype=np.int64)
    read_start = np.zeros(visiting + 1, dtype=np.int64)
    reads = np.empty(len(is_read), dtype=np.int64)
    write_start = np.zeros(visiting + 1, dtype=np.int64)
    writes = np.empty(len(is_read), dtype=np.int64)
    n = 0
    for c in range(cliques - 1, -1, -1):
        if is_visited[c]:
            distributed[n] = c
            read_start[n + 1] = _list_reads(c, edge_start, is_child, is_read, reads, read_start[n])
            end = write_start[n]
            for edge in range(edge_start[c], edge_start[c + 1]):
                if is_written[edge]:
                    writes[end] = edge
                    end += 1
            write_start[n + 1] = end
            n += 1
    return (
        collected,
        collect_start,
        collect_reads[: collect_start[sending]],
        distributed,
        read_start,
        reads[: read_start[visiting]],
        write_start,
        writes[: write_start[visiting]],
    )


@helper
def _list_reads(c: Any, edge_start: Any, is_child: Any, is_read: Any, reads: Any, end: Any) -> Any:
    """Write the edges that a clique reads, from ``end`` on; returns their end."""
    for from_child in (False, True):
        for edge in range(edge_start[c], edge_start[c + 1]):
            if is_read[edge] and is_child[edge] == from_child:
                reads[end] = edge
                end += 1
    return end
