"""Estimates of the number of feasible assignments of each separator, by random probes (Knuth 1975).

A probe assigns a separator's variables in random order, each to a random value among those permitted by the pairwise
constraints with earlier variables; the product of the numbers of choices is an unbiased estimate of the number of
assignments that satisfy these constraints. Constraints over three or more variables are ignored, so the estimate is of
a superset.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from oocbe.kernels.cpu.interpreter import stands_in
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.orders.greedy_order import count_bits

U64 = np.uint64

MANY_USES = 256
"""Number of constraints of a variable above which a probe visits the other variables' constraints instead."""


@jit
def estimate_rows(
    starts: Any,
    separators: Any,
    sizes: Any,
    use_start: Any,
    neighbour: Any,
    offset: Any,
    masks: Any,
    probes: Any,
    seed: Any,
    otherwise: Any,
    most: Any,
    stop: Any,
) -> Any:
    """Estimated feasible rows of every separator, float64 (separators,).

    starts, separators : int64 (separators + 1,) and int32: start of each, and its variables.
    sizes : int64 (variables,); variables with more than 64 values count as unconstrained.
    use_start, neighbour, offset : CSR of pairwise constraints by variable; with u = x, the neighbour may take the
        values in masks[offset + x].
    masks : uint64. probes : random probes per separator. seed : of the probes.
    otherwise : float64 (separators,), cost of each bucket in another form than rows, in rows.
    most : float64; limit of the total cost, with the cheaper form of each bucket; beyond it the rest stays 0.
    stop : int64 (1,); a nonzero value has the same effect.
    """
    np.random.seed(seed)
    n = len(sizes)
    result = np.zeros(len(starts) - 1, dtype=np.float64)
    domain = np.zeros(n, dtype=np.uint64)
    stamp = np.full(n, -1, dtype=np.int64)
    members = np.empty(n, dtype=np.int64)
    tick = 0
    together = 0.0
    for v in range(len(result)):
        if stop[0] != 0:
            break
        count = starts[v + 1] - starts[v]
        for i in range(count):
            members[i] = separators[starts[v] + i]
        total = 0.0
        complete = 1.0
        for i in range(count):
            complete *= sizes[members[i]]
        if len(neighbour) == 0:
            total = complete * probes  # the result of every probe
        for _ in range(probes if len(neighbour) > 0 else 0):
            tick += 1
            for i in range(count - 1, 0, -1):
                j = np.random.randint(i + 1)
                members[i], members[j] = members[j], members[i]
            for i in range(count):
                u = members[i]
                stamp[u] = tick
                domain[u] = ~U64(0) if sizes[u] >= 64 else (U64(1) << U64(sizes[u])) - U64(1)
            weight = 1.0
            for i in range(count):
                u = members[i]
                if sizes[u] > 64:
                    weight *= sizes[u]
                    continue
                choices = count_bits(domain[u])
                if choices == 0:
                    weight = 0.0
                    break
                weight *= choices
                word = domain[u]
                for _skip in range(np.random.randint(choices)):
                    word &= word - U64(1)
                x = count_bits((word & (~word + U64(1))) - U64(1))
                stamp[u] = -1
                if use_start[u + 1] - use_start[u] > MANY_USES:
                    for k in range(i + 1, count):  # by the other variables' constraints
                        w = members[k]
                        for use in range(use_start[w], use_start[w + 1]):
                            for y in range(sizes[w] if neighbour[use] == u else 0):
                                if (masks[offset[use] + y] >> U64(x)) & U64(1) == U64(0):
                                    domain[w] &= ~(U64(1) << U64(y))
                    continue
                for use in range(use_start[u], use_start[u + 1]):
                    if stamp[neighbour[use]] == tick:
                        domain[neighbour[use]] &= masks[offset[use] + x]
            total += weight
        result[v] = min(complete, max(1.0, total / probes))
        together += min(result[v], otherwise[v])
        if together > most:
            break
    return result


@stands_in(estimate_rows)
def _estimate(*arguments: Any) -> Any:
    """The same with Python's integers, which its interpreter adds many times as fast as elements of arrays."""
    starts, separators, sizes, use_start, neighbour, offset, masks = (array.tolist() for array in arguments[:7])
    probes, seed, otherwise, most, stop = arguments[7:]
    np.random.seed(seed)
    result, together = np.zeros(len(starts) - 1, dtype=np.float64), 0.0
    pairs = list(zip(neighbour, offset, strict=True))
    uses = [pairs[begin:end] for begin, end in pairwise(use_start)]
    for v in range(len(result)):
        if stop[0] != 0:
            break
        members = separators[starts[v] : starts[v + 1]]
        complete = prod((sizes[u] for u in members), start=1.0)
        total = 0.0 if pairs else complete * probes
        for _ in range(probes if pairs else 0):
            for i in range(len(members) - 1, 0, -1):
                j = np.random.randint(i + 1)
                members[i], members[j] = members[j], members[i]
            left, weight = {u: (1 << sizes[u]) - 1 for u in members}, 1.0
            for u in members:
                word = left.pop(u)
                choices = word.bit_count()
                if choices == 0:
                    weight = 0.0
                    break
                weight *= choices
                if sizes[u] > 64:
                    continue
                for _skip in range(np.random.randint(choices)):
                    word &= word - 1
                x = (word & -word).bit_length() - 1
                for w, place in uses[u]:
                    if w in left:
                        left[w] &= masks[place + x]
            total += weight
        result[v] = min(complete, max(1.0, total / probes))
        together += min(result[v], otherwise[v])
        if together > most:
            break
    return result
