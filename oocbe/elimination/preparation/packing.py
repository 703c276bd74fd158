"""Recognition of packing and supply problems: unary costs, and hard constraints on conflicting values."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.listed_factors import ListedFactor, harmful_slots, slots_of, starts_of
from oocbe.model.parts import Constraint, LinearConstraint
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import looked


def is_packing(problem: Problem, are_penalties_hard: bool = False) -> bool:
    """Whether all costs are unary, and most variables have a value without conflicts with any other value.

    Then feasible assignments are trivial to find, and linear programs over cliques of conflicts give the better bound.
    If hard constraints permit no such values, their propagation is most of the work.

    problem : in min-sum. are_penalties_hard : whether functions over several variables that cost 0 except in some rows
        count as constraints against these rows.
    """
    if any(len(f.scope) >= 2 for f in problem.functions) and not are_penalties_hard:
        return False
    parts: list[ListedFactor] = []
    forbidden: dict[int, list[tuple[tuple[int, ...], NDArray[np.int64]]]] = {}
    for c in looked(problem.constraints):
        if len(c.scope) >= 2 and c.allowed:
            parts.append(ListedFactor(c.scope, c.tuples, np.zeros(len(c.tuples)), 1.0))
        elif len(c.scope) >= 2:
            forbidden.setdefault(len(c.scope), []).append((c.scope, c.tuples))
    for f in looked(problem.functions):
        if len(f.scope) >= 2:
            if f.default != 0 or (f.values < 0).any():
                return False
            parts.append(ListedFactor(f.scope, f.tuples, f.values.astype(np.float64), 0.0))
    start = starts_of(problem.sizes)
    harmful = harmful_slots(parts, start, problem.sizes)
    for linear in looked(problem.linear_constraints):
        if linear.can_bind:
            for v, own in zip(linear.scope, linear.coefficients, strict=True):
                harmful[start[v] : start[v + 1]] |= own > own.min()
    for tables in forbidden.values():
        harmful[slots_of(tables, start).ravel()] = True
    safe = sum(not harmful[low:high].all() for low, high in pairwise(start))
    return 2 * safe >= len(problem.sizes)


def with_exclusions(problem: Problem) -> Problem:
    """The problem with a constraint for each two variables of a linear constraint that permits at most one of them more
    than its least amount, such as the bids for one good; other linear constraints are kept.

    problem : in any semiring.
    """
    linear: list[LinearConstraint] = []
    excluded: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for c in looked(problem.linear_constraints):
        if not c.can_bind:
            continue
        more = [np.flatnonzero(own > own.min()) for own in c.coefficients]
        room = c.capacity - c.least
        each = [own[a] - int(own.min()) for own, a in zip(c.coefficients, more, strict=True) if len(a)]
        least_two = sorted(int(amounts.min()) for amounts in each)[:2]
        if len(each) < 2 or sum(least_two) <= room or max(int(amounts.max()) for amounts in each) > room:
            linear.append(c)
            continue
        for (u, own), (v, other) in combinations(zip(c.scope, more, strict=True), 2):
            if len(own) and len(other):
                excluded.setdefault((u, v), set()).update(product(own.tolist(), other.tolist()))
    if not excluded:
        return problem
    pairs = [Constraint(scope, np.array(sorted(tuples))) for scope, tuples in excluded.items()]
    return replace(problem, constraints=(*problem.constraints, *pairs), linear_constraints=tuple(linear))


FEW_PAIRS = 2
"""Maximum number of forbidden pairs per value in a supply problem."""


def is_supply(problem: Problem) -> bool:
    """Whether all costs are unary, and hard constraints forbid few pairs of values.

    An example is the choice of open warehouses by customers: the linear program over such pairs is nearly integral, and
    gives a better bound at once than dual ascent after hundreds of passes, which split a warehouse's cost into as many
    parts as it has customers.

    problem : in min-sum.
    """
    if any(len(f.scope) >= 2 for f in problem.functions) or problem.linear_constraints:
        return False
    hard = [c for c in problem.constraints if len(c.scope) >= 2]
    if not hard or any(c.allowed or len(c.scope) > 2 for c in hard):
        return False
    return sum(len(c.tuples) for c in hard) <= FEW_PAIRS * sum(problem.sizes)
