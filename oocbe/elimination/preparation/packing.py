"""Recognition of packing and supply problems: unary costs, and hard constraints on conflicting values."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.listed_factors import ListedFactor, harmful_slots, slots_of, starts_of
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import looked


def is_packing(problem: Problem, are_penalties_hard: bool = False) -> bool:
    """Whether all costs are unary, and most variables have a value without conflicts with any other value.

    Then feasible assignments are trivial to find, and linear programs over cliques of conflicts give the better bound.
    If hard constraints permit no such values, their propagation is most of the work.

    Parameters
    ----------
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
