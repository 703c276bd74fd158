"""Proof by tables of the rest after the steps of a certificate: a forward pass that stores sums only.

Variables are assigned one after the other. Partial assignments with equal state for all later variables share a row,
which keeps their least cost and least bound. Rows whose bound exceeds the limit are dropped. Like the checker, this
module uses no part of the engine and verifies its input; it is separate because few certificates need it.
"""

from __future__ import annotations

from itertools import product

from oocbe.certificates.check_certificate import WORK, Proof, members, need


def nothing_better(proof: Proof, order: list[int]) -> bool:
    """Whether tables along an order show that nothing below the limit is left.

    proof : after its steps, the last of which gives the bound. order : all variables, in the order of assignment.
    Raises ValueError: an invalid order, or tables with more rows than the checker's limit.
    """
    need(sorted(order) == list(range(len(proof.sizes))), "the order is not one of all variables")
    (constant, sums, least), late = proof.bound, set(order)
    known: list[int] = []
    fixed = sum(default for scope, _, default in proof.functions if not scope)
    states: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]]
    states = {((), (0,) * len(proof.linear)): (fixed, constant)}
    for v in order:
        known, before, states, late = [*known, v], states, {}, late - {v}
        rest = proof.most - sum(least[u] for u in late)
        due = [([known.index(u) for u in s], t, d) for s, t, d in proof.functions if v in s and late.isdisjoint(s)]
        needed = {u for s, _, _ in proof.functions if not late.isdisjoint(s) for u in s}
        for ((old, used), (cost, low)), x in product(before.items(), members(proof.mask[v] & proof.alive)):
            proof.work, new = proof.work + 1, (*old, x - proof.first[v])
            need(proof.work < WORK, "this takes too long to check")
            costs = [table.get(tuple(new[j] for j in axes), default) for axes, table, default in due]
            used = tuple(u + use.get(x, 0) for u, (use, _) in zip(used, proof.linear, strict=True))
            fits = all(u <= room for u, (_, room) in zip(used, proof.linear, strict=True))
            if None not in costs and fits and low + sums[x] <= rest:
                key = tuple(a for a, u in zip(new, known, strict=True) if u in needed), used
                now = cost + sum(costs), low + sums[x]
                states[key] = tuple(map(min, now, states.get(key, now)))
        known = [u for u in known if u in needed]
    return all(cost >= proof.limit for cost, _ in states.values())
