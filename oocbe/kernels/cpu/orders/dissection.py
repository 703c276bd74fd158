"""Nested dissection: small separators of a graph by maximum flows, and those of the parts that they leave.

The flows are those of FlowCutter (Hamann and Strasser 2018, *Graph bisection with Pareto optimization*; Strasser 2017,
*Computing tree decompositions with FlowCutter*): between two vertices, each other one with the capacity 1. Where no
path is left, the vertices at which the residual paths of one side end are a minimum separator. The smaller side then
takes all that it reaches, and one vertex of its separator, so that each separator is more balanced, and possibly larger
than the one before. That vertex is one that opens no path if possible, and the farthest from the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

NONE = -1
"""In place of a vertex, a half, a side, a distance or a cell: there is none."""

LEAST_SHARE = 0.2
"""Share of the vertices from which the smaller part of a separator counts as balanced."""

DEPTH = 48
"""Most separators within one another."""


@helper
def _reach(side: Any, starts: Any, neighbours: Any, cell: Any, own: Any, end: Any, seen: Any, via: Any, queue: Any,
           head: Any, tail: Any, back: Any) -> Any:  # fmt: skip
    """Residual search from one side, whose queue of halves of vertices is filled from head to tail.

    A half of a vertex v is 2 v + 1 where a path from the side leaves it, and 2 v where it enters. Returns the new tail,
    and the half of the other side's end that a path reaches, or -1.
    """
    while head < tail:
        half = queue[head]
        head += 1
        v = half >> 1
        if half & 1:
            for i in range(starts[v], starts[v + 1]):
                w = neighbours[i]
                if cell[w] != own or seen[side, 2 * w] != 0:
                    continue
                seen[side, 2 * w] = 1
                back[2 * w] = half
                if end[w] == 1 - side:
                    seen[side, 2 * w] = 0
                    return tail, 2 * w
                queue[tail] = 2 * w
                tail += 1
            following = 2 * v if end[v] == NONE and via[0, v] >= 0 else NONE
        else:
            following = 2 * v + 1 if via[0, v] < 0 else 2 * via[side, v] + 1
        if following >= 0 and seen[side, following] == 0:
            seen[side, following] = 1
            back[following] = half
            queue[tail] = following
            tail += 1
    return tail, NONE


@helper
def _augment(side: Any, half: Any, end: Any, via: Any, back: Any, path: Any) -> None:
    """One more unit of flow along the path that ends with a half."""
    length = 0
    while half >= 0:
        path[length] = half
        length += 1
        half = back[half]
    for i in range(length - 1, 0, -1):
        v, w = path[i] >> 1, path[i - 1] >> 1
        if path[i] & 1 and not path[i - 1] & 1:
            if v == w:  # the flow through v is gone
                via[0, v] = via[1, v] = NONE
                continue
            if end[v] == NONE:
                via[1 - side, v] = w
            if end[w] == NONE:
                via[side, w] = v


@helper
def _forget(side: Any, kept: Any, starting: Any, tails: Any, seen: Any, queues: Any) -> None:
    """Let the search of a side begin again from its ends."""
    for i in range(kept[side], tails[side]):
        seen[side, queues[side, i]] = 0
    tails[side], starting[side] = kept[side], 0


@helper
def _distances(starts: Any, neighbours: Any, cell: Any, own: Any, first: Any, distance: Any, queue: Any) -> Any:
    """Edges to each vertex of a cell from one of them; returns the number reached, and the last one."""
    distance[first] = 0
    queue[0], head, tail = first, 0, 1
    while head < tail:
        v = queue[head]
        head += 1
        for i in range(starts[v], starts[v + 1]):
            w = neighbours[i]
            if cell[w] == own and distance[w] < 0:
                distance[w] = distance[v] + 1
                queue[tail] = w
                tail += 1
    return tail, queue[tail - 1]


@helper
def _separator(starts: Any, neighbours: Any, cell: Any, own: Any, members: Any, pair: Any, least: Any, best: Any,
               work: Any, hurry: Any, stop: Any) -> Any:  # fmt: skip
    """The separator with the least expansion (vertices over those of the smaller part) between two vertices.

    members : of the cell. least : expansion to be below. best : uint8, by number in ``members``; 1: in the separator,
    if there is a better one. work : arrays by vertex, for use here. Returns the expansion.
    """
    end, via, seen, queues, back, distance, path = work
    many = len(members)
    for v in members:
        end[v] = via[0, v] = via[1, v] = NONE
        seen[:, 2 * v : 2 * v + 2] = 0
        distance[:, v] = NONE
    tails, kept = np.ones(2, dtype=np.int64), np.ones(2, dtype=np.int64)  # halves reached, and those for good
    for side in range(2):
        _distances(starts, neighbours, cell, own, pair[side], distance[side], path)
        end[pair[side]] = side
        queues[side, 0] = 2 * pair[side] + 1
        seen[side, 2 * pair[side]] = seen[side, 2 * pair[side] + 1] = 1
        back[side, 2 * pair[side] + 1] = NONE
    flow, starting = 0, np.zeros(2, dtype=np.int64)
    while not (stop[0] != 0 or hurry[0] != 0):
        tails[0], found = _reach(
            0, starts, neighbours, cell, own, end, seen, via, queues[0], starting[0], tails[0], back[0]
        )
        if found >= 0:
            _augment(0, found, end, via, back[0], path)
            flow += 1
            if flow >= least * (many - flow) / 2:
                break
            for side in range(2):
                _forget(side, kept, starting, tails, seen, queues)
            continue
        starting[0] = tails[0]
        tails[1], _ = _reach(
            1, starts, neighbours, cell, own, end, seen, via, queues[1], starting[1], tails[1], back[1]
        )
        starting[1] = tails[1]
        sizes = np.zeros(2, dtype=np.int64)
        for side in range(2):
            for i in range(tails[side]):
                half = queues[side, i]
                sizes[side] += half & 1 and seen[side, half ^ 1] != 0
        side = 0 if sizes[0] <= sizes[1] else 1
        rest = many - flow - sizes[side]
        small = min(rest, sizes[side])
        if small > 0 and flow < least * small and (small >= LEAST_SHARE * (many - flow) or least == np.inf):
            least = flow / small if small >= LEAST_SHARE * (many - flow) else np.inf
            for i in range(many):
                v = members[i]
                best[i] = seen[side, 2 * v] != 0 and seen[side, 2 * v + 1] == 0
        if sizes[side] >= rest or flow >= least * (many - flow) / 2:
            break
        chosen, score = NONE, -np.inf
        for i in range(tails[side]):
            v = queues[side, i] >> 1
            if queues[side, i] & 1 or seen[side, 2 * v + 1] != 0:
                continue
            far = distance[1 - side, v] - distance[side, v] - (many if seen[1 - side, 2 * v] != 0 else 0)
            if far > score:
                is_next = False
                for k in range(starts[v], starts[v + 1]):
                    is_next |= cell[neighbours[k]] == own and end[neighbours[k]] == 1 - side
                if not is_next:
                    chosen, score = v, far
        if chosen < 0:
            break
        for i in range(tails[side]):
            half = queues[side, i]
            if seen[side, half ^ 1] != 0 and end[half >> 1] == NONE:
                end[half >> 1] = side
        seen[side, 2 * chosen + 1] = 1
        end[chosen] = side
        queues[side, tails[side]] = 2 * chosen + 1
        back[side, 2 * chosen + 1] = NONE
        tails[side] += 1
        kept[side] = tails[side]
        if seen[1 - side, 2 * chosen] != 0:  # the other side has passed it when it was no end
            _forget(1 - side, kept, starting, tails, seen, queues)
    return least


@jit
def dissect(starts: Any, neighbours: Any, leaf: Any, pairs: Any, seed: Any, hurry: Any, stop: Any) -> Any:
    """Rank of each vertex in a nested dissection, int64 (vertices,): 0 in a part that is not divided, and more in a
    separator than in all parts that it leaves.

    starts, neighbours : the graph. leaf : most vertices of a part that is not divided. pairs : of ends of flows that
        are tried for each separator.
    hurry, stop : int64 (1,); if one is nonzero, no part is divided any more.
    """
    np.random.seed(seed)
    count = len(starts) - 1
    depth, cell = np.full(count, DEPTH, dtype=np.int64), np.zeros(count, dtype=np.int64)
    seen, back = np.zeros((2, 2 * count), dtype=np.uint8), np.empty((2, 2 * count), dtype=np.int64)
    via, queues = np.empty((2, count), dtype=np.int64), np.empty((2, 2 * count), dtype=np.int64)
    distance, end = np.full((2, count), NONE, dtype=np.int64), np.empty(count, dtype=np.int64)
    path, members = np.empty(2 * count, dtype=np.int64), np.arange(count)
    work = (end, via, seen, queues, back, distance, path)
    parts = [(0, count, 0)]  # first and last place in members, depth
    cells, pair = 0, np.empty(2, dtype=np.int64)
    while len(parts) > 0 and not (stop[0] != 0 or hurry[0] != 0):
        first, last, level = parts.pop()
        own = members[first:last].copy()
        for v in own:
            distance[0, v] = NONE
        many, _ = _distances(starts, neighbours, cell, cell[own[0]], own[0], distance[0], path)
        if many < last - first:  # not connected: one component, and the rest
            members[first : first + many] = path[:many]
            rest, cells = first + many, cells + 1
            for v in own:
                if distance[0, v] < 0:
                    members[rest] = v
                    rest += 1
            for v in path[:many]:
                cell[v] = cells
            parts.append((first + many, last, level))
            parts.append((first, first + many, level))
            continue
        if many <= leaf or level == DEPTH:
            continue
        best, least = np.zeros(many, dtype=np.uint8), np.inf
        for _ in range(pairs):
            pair[0] = own[np.random.randint(many)]
            pair[1] = own[np.random.randint(many)]
            if pair[0] == pair[1]:
                continue
            least = _separator(starts, neighbours, cell, cell[own[0]], own, pair, least, best, work, hurry, stop)
        size = np.int64(best.sum())
        if size == 0:
            continue
        place = first
        for i in range(many):
            if best[i] != 0:
                depth[own[i]], cell[own[i]] = level, NONE
            else:
                members[place] = own[i]
                place += 1
        if place > first:
            parts.append((first, place, level + 1))
    deepest = 0
    for v in range(count):
        deepest = max(deepest, depth[v] + 1 if depth[v] < DEPTH else 0)
    return np.maximum(0, deepest - depth)
