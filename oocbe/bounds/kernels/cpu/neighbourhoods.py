"""Balls of literals: strongly connected literals, and the forbidden sets over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.jit import jit

_ONE = np.uint64(1)


@jit
def grow_neighbourhood(start: Any, links: Any, root_weight: Any, noise: Any, ball: Any) -> Any:
    """Grow a ball from a literal: repeatedly add the literal with the strongest links to it, while there is a link.

    Parameters
    ----------
    start : the first literal. links : float64 (literals, literals), strength of links, 0 for none.
    root_weight, noise : float64 (literals,), factors of a literal's strength.
    ball : int64 (size,), overwritten.

    Returns
    -------
    int : literals in the ball.
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

    Parameters
    ----------
    ball : int64 (size,), at most 64 literals.
    pairs : bool (literals, literals), forbidden pairs.
    set_start, set_literal : CSR of larger forbidden sets. of_start, of_set : CSR of the sets with a literal.
    place : int64 (literals,), scratch, all -1 before and after.
    hyper_start : int64 (size + 1,), overwritten.

    Returns
    -------
    (adjacent, hyper) : uint64 (size,) and, by ``hyper_start``, the uint64 sets with each literal whose members are all
        in the ball.
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
