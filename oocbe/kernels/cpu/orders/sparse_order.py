"""Greedy elimination orders of graphs of up to millions of vertices, with neighbourhoods as lists.

The criteria are those of :mod:`oocbe.kernels.cpu.orders.greedy_order`. A heap holds the scores. Scores of vertices with
few neighbours are updated at every change, others when they reach the top. Ties go to the next vertex by number, from
a random start: what is close in a file is close in memory. Vertices with very many neighbours (*hubs*) come last, in
ascending order of degree: visits of such lists at each step would take time quadratic in the number of vertices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import MIN_DEGREE, MIN_FILL

EAGER_DEGREE = 64
"""Maximum number of neighbours of a vertex whose score is updated immediately."""

HUB_DEGREE, HUB_ROOTS = 256.0, 4.0
"""Degree above which a vertex is a hub: the first, plus the second times the square root of the number of vertices."""

SPARE = 4
"""Spare capacity of each neighbour list."""


@helper
def _is_before(key: Any, tie: Any, u: Any, v: Any) -> Any:
    return key[u] < key[v] or (key[u] == key[v] and tie[u] < tie[v])


@helper
def _placed(heap: Any, place: Any, key: Any, tie: Any, size: Any, v: Any) -> None:
    """Restore the heap after a change of a vertex's key."""
    i = place[v]
    while i > 0 and _is_before(key, tie, v, heap[(i - 1) >> 1]):
        heap[i] = heap[(i - 1) >> 1]
        place[heap[i]] = i
        i = (i - 1) >> 1
    while True:
        below = 2 * i + 1
        if below >= size:
            break
        if below + 1 < size and _is_before(key, tie, heap[below + 1], heap[below]):
            below += 1
        if not _is_before(key, tie, heap[below], v):
            break
        heap[i] = heap[below]
        place[heap[i]] = i
        i = below
    heap[i] = v
    place[v] = i


@helper
def _live(pool: Any, begin: Any, length: Any, is_gone: Any, v: Any) -> Any:
    """Drop eliminated vertices from a vertex's list; returns the number left."""
    end = begin[v]
    for i in range(begin[v], begin[v] + length[v]):
        if is_gone[pool[i]] == 0:
            pool[end] = pool[i]
            end += 1
    length[v] = end - begin[v]
    return length[v]


@helper
def _score(
    pool: Any, begin: Any, length: Any, is_gone: Any, degree: Any, weights: Any, criterion: Any, stamp: Any, v: Any
) -> Any:
    """Score of the elimination of a vertex; ``stamp[0]`` counts calls, the rest marks vertices with them."""
    if criterion == MIN_DEGREE:
        return np.float64(degree[v])
    count = _live(pool, begin, length, is_gone, v)
    stamp[0] += 1
    tick = stamp[0]
    total, squares = 0.0, 0.0
    for i in range(begin[v], begin[v] + count):
        u = pool[i]
        stamp[u + 1] = tick
        weight = 1.0 if criterion == MIN_FILL else weights[u]
        total += weight
        squares += weight * weight
    score = total * total - squares
    for i in range(begin[v], begin[v] + count):
        u = pool[i]
        weight = 1.0 if criterion == MIN_FILL else weights[u]
        for k in range(begin[u], begin[u] + length[u]):
            w = pool[k]
            if stamp[w + 1] == tick:
                score -= weight * (1.0 if criterion == MIN_FILL else weights[w])
    return max(0.0, 0.5 * score)


@jit
def sparse_order(
    starts: Any,
    neighbours: Any,
    weights: Any,
    criterion: Any,
    seed: Any,
    factors: Any,
    most: Any,
    most_edges: Any,
    floor: Any,
    hurry: Any,
    give_up: Any,
    stop: Any,
) -> Any:
    """One greedy order and the number of assignments of its separators without hard constraints; ties go by number.

    starts, neighbours : the graph (:mod:`oocbe.kernels.cpu.orders.graphs`).
    weights, criterion, seed, factors, most, hurry, stop : as for
        :func:`oocbe.kernels.cpu.orders.greedy_order.greedy_order`.
    most_edges : limit of the total number of neighbours; beyond it the remaining vertices are in arbitrary order.
    floor : float64; minimum score. If positive, ties go to the vertex that is unchanged for longest, which gives
        shallow trees of messages.
    give_up : int64 (1,); a nonzero value has the effect of an exceeded limit.
    Returns int64 (vertices,) : the order. float64 : sum over separators of 2 ** total weight, without hubs.
    """
    np.random.seed(seed)
    count = len(starts) - 1
    order = np.empty(count, dtype=np.int64)
    is_gone, is_stale = np.zeros(count, dtype=np.uint8), np.zeros(count, dtype=np.uint8)
    begin, length, capacity = np.empty((3, count), dtype=np.int64)
    degree = np.zeros(count, dtype=np.int64)
    hub_degree = HUB_DEGREE + HUB_ROOTS * np.sqrt(count)
    for v in range(count):
        if starts[v + 1] - starts[v] > hub_degree:
            is_gone[v] = 1
    pool = np.empty(len(neighbours) + SPARE * count + 16, dtype=np.int32)
    end = 0
    for v in range(count):
        begin[v] = end
        if is_gone[v] == 0:
            for i in range(starts[v], starts[v + 1]):
                if is_gone[neighbours[i]] == 0:
                    pool[end] = neighbours[i]
                    end += 1
        length[v] = end - begin[v]
        degree[v] = length[v]
        capacity[v] = length[v] + SPARE
        end = begin[v] + capacity[v]
    stamp = np.zeros(count + 1, dtype=np.int64)
    touched, touches = np.empty(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    key, tie = np.empty(count), np.empty(count, dtype=np.int64)
    shift = np.int64(np.random.random() * count)
    for v in range(count):
        tie[v] = (v + shift) % count
    heap, place = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    size = 0
    for v in range(count):
        if is_gone[v] == 0:
            score = _score(pool, begin, length, is_gone, degree, weights, criterion, stamp, v)
            key[v] = factors[v] * max(floor, score)
            heap[size], place[v] = v, size
            size += 1
            _placed(heap, place, key, tie, size, v)
    together, step = 0.0, 0
    live = len(neighbours)
    while size > 0:
        if stop[0] != 0 or give_up[0] != 0 or together > most or live > most_edges:
            break
        if hurry[0] != 0 and criterion != MIN_DEGREE:
            criterion = MIN_DEGREE
            for i in range(size):
                key[heap[i]] = factors[heap[i]] * degree[heap[i]]
            for i in range(size):  # heapify: the prefix is always a heap
                _placed(heap, place, key, tie, i + 1, heap[i])
            is_stale[:] = 0
        v = heap[0]
        if is_stale[v] != 0:
            is_stale[v] = 0
            score = _score(pool, begin, length, is_gone, degree, weights, criterion, stamp, v)
            key[v] = factors[v] * max(floor, score)
            _placed(heap, place, key, tie, size, v)
            if heap[0] != v:
                continue
        size -= 1
        if size > 0:
            last = heap[size]
            heap[0], place[last] = last, 0
            _placed(heap, place, key, tie, size, last)
        order[step] = v
        step += 1
        many = _live(pool, begin, length, is_gone, v)
        is_gone[v] = 1
        live -= 2 * many
        bits, changes = 0.0, 0
        for i in range(begin[v], begin[v] + many):
            u = pool[i]
            bits += weights[u]
            degree[u] -= 1
            touched[changes] = u
            touches[u] = 2
            changes += 1
        together += 2.0**bits
        is_filled = False
        for i in range(many if many > 1 else 0):
            u = pool[begin[v] + i]
            own = _live(pool, begin, length, is_gone, u)
            stamp[0] += 1
            tick = stamp[0]
            stamp[u + 1] = tick
            for k in range(begin[u], begin[u] + own):
                stamp[pool[k] + 1] = tick
            missing = 0
            for k in range(begin[v], begin[v] + many):
                missing += stamp[pool[k] + 1] != tick
            if missing == 0:
                continue
            is_filled = True
            if own + missing > capacity[u]:
                room = 2 * (own + missing) + SPARE
                if end + room > len(pool):
                    larger = np.empty(2 * len(pool) + room, dtype=np.int32)
                    larger[:end] = pool[:end]
                    pool = larger
                pool[end : end + own] = pool[begin[u] : begin[u] + own]
                begin[u], capacity[u] = end, room
                end += room
            for k in range(begin[v], begin[v] + many):
                w = pool[k]
                if stamp[w + 1] != tick:
                    pool[begin[u] + length[u]] = w
                    length[u] += 1
            degree[u] = length[u]
            live += missing
        if criterion != MIN_DEGREE and is_filled:
            # A fill edge changes the score of the common neighbours of its ends.
            for i in range(many):
                u = pool[begin[v] + i]
                for k in range(begin[u], begin[u] + length[u]):
                    w = pool[k]
                    if touches[w] == 0:
                        touches[w] = 1
                        touched[changes] = w
                        changes += 1
                    elif touches[w] == 1:
                        touches[w] = 2
        for i in range(changes):
            u = touched[i]
            if touches[u] == 2:
                if criterion == MIN_DEGREE or degree[u] <= EAGER_DEGREE:
                    is_stale[u] = 0
                    score = _score(pool, begin, length, is_gone, degree, weights, criterion, stamp, u)
                    key[u] = factors[u] * max(floor, score)
                    if floor > 0.0:
                        tie[u] = count + step
                    _placed(heap, place, key, tie, size, u)
                else:
                    is_stale[u] = 1
            touches[u] = 0
    by_degree = np.argsort(np.array([starts[v + 1] - starts[v] for v in range(count)]), kind="mergesort")
    for is_hub in range(2):
        for v in by_degree:
            is_late = starts[v + 1] - starts[v] > hub_degree
            if (is_late and is_hub == 1) or (not is_late and is_hub == 0 and is_gone[v] == 0):
                order[step] = v
                step += 1
    return order, together
