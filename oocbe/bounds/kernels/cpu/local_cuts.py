"""Exact maximisation over the feasible sets of a few literals, and separation of a point by a facet.

A *ball* is at most 64 literals with the forbidden sets over them. Its feasible sets span a polytope. Column generation
finds a facet that separates a point, with exact maximisation as the oracle (*local cuts*: Applegate, Bixby, Chvátal,
Cook 2001; for stable sets Rebennack et al. 2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.orders.greedy_order import count_bits

_ZERO, _ONE = np.uint64(0), np.uint64(1)
"""Words of sets: Numba computes in float64 where a uint64 meets a signed integer."""

EPSILON = 1e-7
"""Tolerance for equal sums during separation; the right-hand side of the inequality is exact in any case."""


@helper
def heaviest(
    weights: Any,
    adjacent: Any,
    hyper_start: Any,
    hyper: Any,
    use: Any,
    room: Any,
    candidates: Any,
    chosen: Any,
    lower: Any,
    node_limit: Any,
) -> Any:
    """Heaviest feasible set among candidates, by branch and bound over greedy clique covers.

    weights : int64 or float64 (literals,). adjacent : uint64 (literals,), forbidden pairs.
    hyper_start, hyper : CSR; for each literal the larger forbidden sets with it, as uint64.
    use, room : int64 (resources, literals) and (resources,), at least 0; consumption of each resource by a literal, and
        its capacity (less the consumption of ``chosen``).
    candidates : uint64, eligible literals, each compatible with ``chosen``. chosen : uint64, literals fixed in the set
        (without their weight, with their conflicts).
    lower : only heavier sets are sought. node_limit : maximum number of nodes.
    Returns (weight, set, complete) : the heaviest set, or ``lower`` and 0 if none is heavier; whether it was complete.
    """
    count = len(weights)
    order = np.empty((count + 1, count), dtype=np.int64)
    bound = np.empty((count + 1, count), dtype=weights.dtype)
    size = np.zeros(count + 1, dtype=np.int64)
    pool = np.zeros(count + 1, dtype=np.uint64)
    taken = np.zeros(count + 1, dtype=np.uint64)
    value = np.zeros(count + 1, dtype=weights.dtype)
    members = np.empty(count, dtype=np.int64)
    resources = len(room)
    left_over = np.zeros((count + 1, resources), dtype=np.int64)
    for r in range(resources):
        left_over[0, r] = room[r]
    best, best_set = lower, _ZERO
    depth = 0
    pool[0], taken[0], value[0] = candidates, chosen, 0
    is_new = True
    nodes = 0
    while depth >= 0:
        if is_new:
            nodes += 1
            if nodes > node_limit:
                return best, best_set, False
            if value[depth] > best:
                best, best_set = value[depth], taken[depth]
            # Clique cover; within a clique in ascending order of weight, so that a literal's bound uses its own weight.
            rest = pool[depth]
            filled, sum_before = 0, value[depth]
            while rest != _ZERO:
                common = rest
                length = 0
                while common != _ZERO:
                    v = count_bits((common & (~common + _ONE)) - _ONE)  # the lowest
                    rest &= ~(_ONE << np.uint64(v))
                    common &= adjacent[v]
                    place = length
                    while place > 0 and weights[members[place - 1]] > weights[v]:
                        members[place] = members[place - 1]
                        place -= 1
                    members[place] = v
                    length += 1
                for i in range(length):
                    order[depth, filled] = members[i]
                    bound[depth, filled] = sum_before + weights[members[i]]
                    filled += 1
                sum_before += weights[members[length - 1]]
            size[depth] = filled
            is_new = False
        if size[depth] == 0 or bound[depth, size[depth] - 1] <= best:
            depth -= 1
            continue
        size[depth] -= 1
        v = order[depth, size[depth]]
        bit = _ONE << np.uint64(v)
        pool[depth] &= ~bit
        fits = True
        for r in range(resources):
            if use[r, v] > left_over[depth, r]:
                fits = False
        if not fits:
            continue
        now = taken[depth] | bit
        left = pool[depth] & ~adjacent[v]
        for e in range(hyper_start[v], hyper_start[v + 1]):
            missing = hyper[e] & ~now
            if missing & (missing - _ONE) == _ZERO:
                left &= ~missing
        depth += 1
        for r in range(resources):
            left_over[depth, r] = left_over[depth - 1, r] - use[r, v]
        pool[depth], taken[depth], value[depth] = left, now, value[depth - 1] + weights[v]
        is_new = True
    return best, best_set, True


@jit
def separate(
    point: Any,
    adjacent: Any,
    hyper_start: Any,
    hyper: Any,
    use: Any,
    room: Any,
    iterations: Any,
    node_limit: Any,
    weights: Any,
) -> Any:
    """Weights w of the inequality ``w . x <= 1``, valid for all feasible sets, that a point violates most.

    The dual minimises the total weight of feasible sets that cover the point. :func:`heaviest` generates its columns;
    the simplex method keeps the inverse of the basis and starts from single literals.

    point : float64 (literals,), all positive. adjacent, hyper_start, hyper, use, room : as for :func:`heaviest`.
    iterations, node_limit : limits of the simplex method and of each maximisation; beyond them the search gives up.
    weights : float64 (literals,), overwritten.
    Returns float : w . point - 1, in floating-point accuracy; 0 if the point is not cut off, or the search gave up.
    """
    count = len(point)
    inverse = np.eye(count)
    covered = point.copy()
    price = np.ones(count)
    entering = np.empty(count)
    everything = ~_ZERO if count == 64 else (_ONE << np.uint64(count)) - _ONE
    for _ in range(iterations):
        total = 0.0
        negative, place = -EPSILON, -1
        for i in range(count):
            weights[i] = 0.0
            for j in range(count):
                weights[i] += price[j] * inverse[j, i]
            total += weights[i] * point[i]
            if weights[i] < negative:
                negative, place = weights[i], i
        if total <= 1 + EPSILON:
            return 0.0
        cost = 0.0
        if place >= 0:
            for i in range(count):
                entering[i] = -inverse[i, place]
        else:
            for i in range(count):
                weights[i] = max(0.0, weights[i])
            lower = 1 + EPSILON
            _, members, complete = heaviest(
                weights, adjacent, hyper_start, hyper, use, room, everything, _ZERO, lower, node_limit
            )
            if members == _ZERO:
                return total - 1 if complete else 0.0
            cost = 1.0
            for i in range(count):
                entering[i] = 0.0
            while members != _ZERO:
                v = count_bits((members & (~members + _ONE)) - _ONE)  # the lowest
                members &= members - _ONE
                for i in range(count):
                    entering[i] += inverse[i, v]
        leaving, ratio = -1, np.inf
        for i in range(count):
            if entering[i] > 1e-9:
                quotient = covered[i] / entering[i]
                if quotient < ratio - 1e-12 or (quotient < ratio + 1e-12 and entering[i] > entering[leaving]):
                    leaving, ratio = i, quotient
        if leaving < 0:
            return 0.0
        pivot = entering[leaving]
        for j in range(count):
            inverse[leaving, j] /= pivot
        covered[leaving] = ratio
        for i in range(count):
            if i != leaving and entering[i] != 0.0:
                factor = entering[i]
                covered[i] = max(0.0, covered[i] - factor * ratio)
                for j in range(count):
                    inverse[i, j] -= factor * inverse[leaving, j]
        price[leaving] = cost
    return 0.0


@jit
def lift(
    weights: Any, count: Any, adjacent: Any, hyper_start: Any, hyper: Any, use: Any, room: Any, node_limit: Any
) -> Any:
    """Lift literals into an inequality over the first ``count``, each with its largest valid weight.

    weights : int64 (literals,), overwritten from ``count`` on (initially 0); 0 stays if a literal's search gives up.
    adjacent, hyper_start, hyper, use, room, node_limit : as for :func:`heaviest`.
    Returns int : the right-hand side, exact; 0 if it is not positive, or its search gave up.
    """
    inside = ~_ZERO if count == 64 else (_ONE << np.uint64(count)) - _ONE
    limit, _, complete = heaviest(
        weights, adjacent, hyper_start, hyper, use, room, inside, _ZERO, np.int64(0), node_limit
    )
    if not complete:
        return np.int64(0)
    left = np.empty(len(room), dtype=np.int64)
    for v in range(count, len(weights)):
        bit = _ONE << np.uint64(v)
        is_possible = True
        for r in range(len(room)):
            left[r] = room[r] - use[r, v]
            is_possible &= left[r] >= 0
        if not is_possible:
            weights[v] = limit
            inside |= bit
            continue
        most, _, complete = heaviest(
            weights, adjacent, hyper_start, hyper, use, left, inside & ~adjacent[v], bit, np.int64(0), node_limit
        )
        if complete and most < limit:
            weights[v] = limit - most
            inside |= bit
    return limit


@jit
def grow_neighbourhood(start: Any, links: Any, root_weight: Any, noise: Any, ball: Any) -> Any:
    """Grow a ball from a literal: repeatedly add the literal with the strongest links to it, while there is a link.

    start : the first literal. links : float64 (literals, literals), strength of links, 0 for none.
    root_weight, noise : float64 (literals,), factors of a literal's strength. ball : int64 (size,), overwritten.
    Returns int : literals in the ball.
    """
    n = len(links)
    is_free = np.ones(n, dtype=np.uint8)
    pull = np.empty(n, dtype=np.float64)
    for v in range(n):
        pull[v] = links[start, v] * noise[v]
    is_free[start] = 0
    ball[0] = start
    count = 1
    while count < len(ball):
        best, most = -1, -1.0
        for v in range(n):
            if is_free[v] and pull[v] * root_weight[v] > most:
                best, most = v, pull[v] * root_weight[v]
        if best < 0 or pull[best] <= 0.0:
            break
        is_free[best] = 0
        ball[count] = best
        count += 1
        for v in range(n):
            pull[v] += links[best, v] * noise[v]
    return count


@jit
def pack_subproblem(
    ball: Any, pairs: Any, set_start: Any, set_literal: Any, of_start: Any, of_set: Any, place: Any, hyper_start: Any
) -> Any:
    """Forbidden sets over a ball's literals, as bit sets of positions in the ball.

    ball : int64 (size,), at most 64 literals. pairs : bool (literals, literals), forbidden pairs.
    set_start, set_literal : CSR of larger forbidden sets. of_start, of_set : CSR of the sets with a literal.
    place : int64 (literals,), scratch, all -1 before and after. hyper_start : int64 (size + 1,), overwritten.
    Returns (adjacent, hyper) : uint64 (size,) and, by ``hyper_start``, the uint64 sets with each literal whose members
    are all in the ball.
    """
    size = len(ball)
    adjacent = np.zeros(size, dtype=np.uint64)
    for i in range(size):
        place[ball[i]] = i
        for j in range(size):
            if pairs[ball[i], ball[j]]:
                adjacent[i] |= _ONE << np.uint64(j)
    hyper = np.empty(0, dtype=np.uint64)
    total = 0
    for sweep in range(2):  # the first sweep counts
        if sweep == 1:
            hyper = np.empty(total, dtype=np.uint64)
        total = 0
        for i in range(size):
            hyper_start[i] = total
            for use in range(of_start[ball[i]], of_start[ball[i] + 1]):
                members = np.uint64(0)
                is_inside = True
                for e in range(set_start[of_set[use]], set_start[of_set[use] + 1]):
                    at = place[set_literal[e]]
                    if at < 0:
                        is_inside = False
                        break
                    members |= _ONE << np.uint64(at)
                if is_inside:
                    if sweep == 1:
                        hyper[total] = members
                    total += 1
        hyper_start[size] = total
    for i in range(size):
        place[ball[i]] = -1
    return adjacent, hyper
