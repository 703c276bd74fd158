"""Greedy elimination orders on the primal graph, with neighbourhoods as bit sets.

Eliminating a vertex joins its neighbours pairwise (the *fill*) and removes it; the neighbours it has at that moment are
the separator of its bucket. The three classic criteria pick the vertex with the fewest neighbours (min-degree), the
fewest fill edges (min-fill) or the least fill weighted by domain sizes (weighted min-fill); see Kjaerulff 1990 and
Koller and Friedman 2009, section 9.4.3.2. A *linear* order sweeps the graph from one end to the other instead: it
always eliminates a vertex of the frontier (the neighbours of what is gone), the one that brings in the fewest new
vertices. It makes one large message that travels, not a tree of them; on sparse tables either may have fewer rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit

U64 = np.uint64

MIN_DEGREE, MIN_FILL, WEIGHTED_MIN_FILL = 0, 1, 2
"""Codes of the greedy criteria."""


@jit
def count_bits(word: Any) -> Any:
    """Number of ones in a uint64."""
    word = word - ((word >> U64(1)) & U64(0x5555555555555555))
    word = (word & U64(0x3333333333333333)) + ((word >> U64(2)) & U64(0x3333333333333333))
    word = (word + (word >> U64(4))) & U64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * U64(0x0101010101010101)) >> U64(56))


@jit
def members_of(row: Any, out: Any) -> Any:
    """Write the members of a bit set (uint64 words) into out, ascending; return how many."""
    count = 0
    for w in range(len(row)):
        word = row[w]
        while word != U64(0):
            low = word & (~word + U64(1))
            out[count] = w * 64 + count_bits(low - U64(1))
            count += 1
            word ^= low
    return count


@jit
def list_members(sets: Any, order: Any) -> Any:
    """The members of separators, uint64 (variables, words), bucket by bucket, the one eliminated next at the front.

    Returns
    -------
    int64 (members of all,), and int64 (variables + 1,), where those of each bucket of ``order`` begin.
    """
    n = len(order)
    ends = np.zeros(n + 1, dtype=np.int64)
    begins = np.zeros(n + 1, dtype=np.int64)  # by variable, of the buckets whose separator has it
    members = np.empty(n, dtype=np.int64)
    for bucket in range(n):
        count = members_of(sets[order[bucket]], members)
        ends[bucket + 1] = ends[bucket] + count
        for i in range(count):
            begins[members[i] + 1] += 1
    for v in range(n):
        begins[v + 1] += begins[v]
    place = begins[:n].copy()
    having = np.empty(ends[n], dtype=np.int64)
    for bucket in range(n):
        for i in range(members_of(sets[order[bucket]], members)):
            v = members[i]
            having[place[v]] = bucket
            place[v] += 1
    place[:] = ends[:n]
    listed = np.empty(ends[n], dtype=np.int64)
    for v in order:
        for i in range(begins[v], begins[v + 1]):
            bucket = having[i]
            listed[place[bucket]] = v
            place[bucket] += 1
    return listed, ends


@helper
def _score(adjacency: Any, v: Any, weights: Any, criterion: Any, neighbours: Any) -> Any:
    """Criterion of eliminating v now; members of its neighbourhood are left in ``neighbours``."""
    degree = members_of(adjacency[v], neighbours)
    if criterion == MIN_DEGREE:
        return np.float64(degree)
    score = 0.0
    for i in range(degree):
        u = neighbours[i]
        for w in range(adjacency.shape[1]):
            missing = adjacency[v, w] & ~adjacency[u, w]
            if w == u >> 6:
                missing &= ~(U64(1) << U64(u & 63))
            if criterion == MIN_FILL:
                score += count_bits(missing)
            else:
                while missing != U64(0):
                    low = missing & (~missing + U64(1))
                    score += weights[u] * weights[w * 64 + count_bits(low - U64(1))]
                    missing ^= low
    return score * 0.5


@jit
def greedy_order(adjacency: Any, weights: Any, criterion: Any, seed: Any, factors: Any, most: Any, stop: Any) -> Any:
    """One greedy order and the assignments of its separators, hard constraints aside; ties are broken at random.

    Parameters
    ----------
    adjacency : uint64 (vertices, words), symmetric, zero diagonal; destroyed: row v ends as v's separator.
    weights : float64 (vertices,), for weighted min-fill: bits of the domain, say.
    criterion : one of the three codes above.
    seed : of the tie breaks. factors : float64 (vertices,), what the score of each vertex is multiplied by.
    most : float64; where the separators have more assignments together, the vertices left come in any order.
    stop : int64 (1,); set to another value than 0 it ends the search, with the vertices left in any order.

    Returns
    -------
    int64 (vertices,) : the order, the vertex eliminated first at the front. float64 : 2 to the power of each
        separator's weights, added up.
    """
    np.random.seed(seed)
    n, words = adjacency.shape
    order = np.empty(n, dtype=np.int64)
    alive = np.ones(n, dtype=np.uint8)
    stale = np.ones(n, dtype=np.uint8)
    scores = np.zeros(n, dtype=np.float64)
    neighbours = np.empty(n, dtype=np.int64)
    together = 0.0
    first = np.int64(np.random.random() * n)
    for step in range(n):
        if stop[0] != 0:
            place = step
            for left in range(n):
                if alive[left] != 0:
                    order[place] = left
                    place += 1
            break
        best: Any = -1
        best_score = np.inf
        ties = 0
        for i in range(n):
            v = first + i if first + i < n else first + i - n
            if alive[v] == 0:
                continue
            if stale[v]:
                scores[v] = _score(adjacency, v, weights, criterion, neighbours)
                stale[v] = 0
            if scores[v] == 0.0:
                best = v  # nothing can be better than no fill (or no neighbour), and there is no need to look on
                break
            score = scores[v] * factors[v]
            if score < best_score:
                best, best_score, ties = v, score, 1
            elif score == best_score:
                ties += 1
                if np.random.randint(ties) == 0:
                    best = v
        order[step] = best
        alive[best] = 0
        degree = members_of(adjacency[best], neighbours)
        bits = 0.0
        for i in range(degree):
            bits += weights[neighbours[i]]
        together += 2.0**bits
        if together > most:
            place = step + 1
            for left in range(n):
                if alive[left] != 0:
                    order[place] = left
                    place += 1
            break
        for i in range(degree):
            u = neighbours[i]
            stale[u] = 1
            for w in range(words):
                added = adjacency[best, w] & ~adjacency[u, w]
                if w == u >> 6:
                    added &= ~(U64(1) << U64(u & 63))
                adjacency[u, w] |= added
                if criterion == MIN_DEGREE:
                    continue
                # An edge between neighbours changes the fill of those outside that both its ends have in common.
                while added != U64(0):
                    low = added & (~added + U64(1))
                    added ^= low
                    x = w * 64 + count_bits(low - U64(1))
                    if x < u:
                        continue
                    for k in range(words):
                        common = adjacency[u, k] & adjacency[x, k]
                        while common != U64(0):
                            one = common & (~common + U64(1))
                            common ^= one
                            stale[k * 64 + count_bits(one - U64(1))] = 1
            adjacency[u, best >> 6] &= ~(U64(1) << U64(best & 63))
    return order, together


@jit
def separators_of(adjacency: Any, order: Any, stop: Any) -> Any:
    """Turn the primal graph (destroyed) into separators: row v ends as the separator of v's bucket.

    Where ``stop``, int64 (1,), is set to another value than 0, they are left unfinished.
    """
    n, words = adjacency.shape
    neighbours = np.empty(n, dtype=np.int64)
    for step in range(n):
        if stop[0] != 0:
            break
        v = order[step]
        degree = members_of(adjacency[v], neighbours)
        for i in range(degree):
            u = neighbours[i]
            for w in range(words):
                joined = adjacency[u, w] | adjacency[v, w]
                if w == u >> 6:
                    joined &= ~(U64(1) << U64(u & 63))
                if w == v >> 6:
                    joined &= ~(U64(1) << U64(v & 63))
                adjacency[u, w] = joined


@jit
def joined_bits(separators: Any, weights: Any) -> Any:
    """Weights of each vertex and its separator, uint64 (vertices, words), added up: float64 (vertices,)."""
    n = len(separators)
    neighbours = np.empty(n, dtype=np.int64)
    bits = np.empty(n, dtype=np.float64)
    for v in range(n):
        total = weights[v]
        for i in range(members_of(separators[v], neighbours)):
            total += weights[neighbours[i]]
        bits[v] = total
    return bits


@jit
def linear_order(adjacency: Any, weights: Any, seed: Any, most: Any, stop: Any) -> Any:
    """One linear order from a random peripheral vertex; see the module. The graph is not changed.

    Parameters
    ----------
    weights : float64 (vertices,), bits of the domains. most : bits; where a frontier has more, the vertices left are in
        any order, and where ``stop``, int64 (1,), is set to another value than 0.

    Returns
    -------
    int64 (vertices,) : the order. float64, twice : bits of the largest frontier, and of all together.
    """
    np.random.seed(seed)
    n = len(adjacency)
    order = np.empty(n, dtype=np.int64)
    alive = np.ones(n, dtype=np.uint8)
    frontier = np.zeros(n, dtype=np.uint8)
    words = adjacency.shape[1]
    outside = np.zeros(words, dtype=np.uint64)  # alive, and not in the frontier
    for v in range(n):
        outside[v >> 6] |= U64(1) << U64(v & 63)
    neighbours = np.empty(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    size, peak, total = 0.0, 0.0, 0.0
    for step in range(n):
        best = -1
        best_score = np.inf
        is_over = stop[0] != 0 or peak > most
        if is_over:
            for v in range(n):
                if alive[v] != 0:
                    best = v
                    break
        for v in range(n):
            if alive[v] == 0 or frontier[v] == 0 or is_over:
                continue
            score = np.random.random()
            for w in range(words):
                score += count_bits(adjacency[v, w] & outside[w])
            if score < best_score:
                best, best_score = v, score
        if best < 0:
            best = _peripheral(adjacency, alive, neighbours, queue, seen, step)
        order[step] = best
        alive[best] = 0
        outside[best >> 6] &= ~(U64(1) << U64(best & 63))
        if frontier[best] != 0:
            size -= weights[best]
        degree = members_of(adjacency[best], neighbours)
        for i in range(degree):
            u = neighbours[i]
            if alive[u] != 0 and frontier[u] == 0:
                size += weights[u]
            frontier[u] = 1
            outside[u >> 6] &= ~(U64(1) << U64(u & 63))
        peak = max(peak, size)
        total += size
    return order, peak, total


@jit
def best_linear_order(adjacency: Any, weights: Any, seed: Any, sweeps: Any, most: Any, stop: Any) -> Any:
    """Of several linear orders, the one whose largest frontier (in bits of its domains) is smallest.

    Where all have more than ``most`` bits, or ``stop``, int64 (1,), is set to another value than 0, it is one of them,
    in part of any order.
    """
    best = np.arange(len(adjacency))
    best_peak = np.inf
    best_total = np.inf
    for sweep in range(sweeps):
        order, peak, total = linear_order(adjacency, weights, seed + sweep, min(most, best_peak), stop)
        if peak < best_peak or (peak == best_peak and total < best_total):
            best_peak, best_total = peak, total
            best = order
    return best


@helper
def _peripheral(adjacency: Any, alive: Any, neighbours: Any, queue: Any, seen: Any, stamp: Any) -> Any:
    """A vertex far from a random one among those alive: among the last that three breadth-first searches reach."""
    n = len(alive)
    depth = np.zeros(n, dtype=np.int64)
    start = np.random.randint(n)
    while alive[start] == 0:
        start = (start + 1) % n
    for sweep in range(3):
        mark = stamp * 3 + sweep
        seen[start] = mark
        queue[0] = start
        depth[start] = 0
        head, tail = 0, 1
        while head < tail:
            degree = members_of(adjacency[queue[head]], neighbours)
            head += 1
            first = np.random.randint(degree) if degree > 0 else 0
            for i in range(degree):
                u = neighbours[(first + i) % degree]
                if alive[u] and seen[u] != mark:
                    seen[u] = mark
                    depth[u] = depth[queue[head - 1]] + 1
                    queue[tail] = u
                    tail += 1
        # Among the farthest, one with few neighbours: the first message then stays small.
        fewest = n
        last = tail
        while last > 0 and (depth[queue[last - 1]] == depth[queue[tail - 1]]):
            last -= 1
            degree = members_of(adjacency[queue[last]], neighbours)
            living = 0
            for i in range(degree):
                living += alive[neighbours[i]]
            if living < fewest:
                fewest = living
                start = queue[last]
    return start
