"""Upper limits of messages' rows from listed tables, which random probes ignore.

Probes (:mod:`oocbe.kernels.cpu.orders.estimate`) use pairwise constraints only. They ignore an incomplete function over
many variables with few rows, although a join never has more rows than the product of its inputs' rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import looked


def supports_of(problem: Problem) -> list[Constraint | Function]:
    """Constraints, and functions that permit their listed rows only."""
    return [*problem.constraints, *(f for f in problem.functions if f.default is None)]


def hidden_supports(problem: Problem, probed_size: int) -> list[Constraint | Function]:
    """Incomplete functions and constraints that probes ignore: not pairwise, or over large domains.

    probed_size : largest domain that is probed.
    """
    return [
        s
        for s in looked(supports_of(problem))
        if len(s.scope) != 2 or max(problem.sizes[v] for v in s.scope) > probed_size
    ]


def leaves_few(problem: Problem, support: Constraint | Function) -> bool:
    """Whether a support permits less than half of its assignments: estimates without it are then unreliable."""
    listed, complete = len(support.tuples), math.prod(problem.sizes[v] for v in support.scope)
    permitted = complete - listed if isinstance(support, Constraint) and not support.allowed else listed
    return 2 * permitted < complete


def extends_always(problem: Problem) -> bool:
    """Whether each variable has a value that no hard constraint forbids with any values of the other variables.

    Then every assignment of a separator that satisfies the constraints within it is a row of the message. Otherwise
    eliminated variables may permit far fewer: equalities with one variable make all others equal.
    """
    if problem.linear_constraints:
        return False
    free = [np.ones(size, dtype=np.bool_) for size in problem.sizes]
    for support in looked(supports_of(problem)):
        forbids = isinstance(support, Constraint) and not support.allowed
        others = math.prod(problem.sizes[v] for v in support.scope)
        for place, v in enumerate(support.scope):
            listed = np.bincount(support.tuples[:, place], minlength=problem.sizes[v])
            free[v] &= listed == (0 if forbids else others // problem.sizes[v])
    return all(values.any() for values in free)


def predictions_are_exact(problem: Problem) -> bool:
    """Whether every assignment is feasible: then each message has all assignments of its scope, for any order."""
    return (
        not problem.constraints
        and not any(c.can_bind for c in problem.linear_constraints)
        and all(
            f.default is not None or len(f.values) == math.prod(problem.sizes[v] for v in f.scope)
            for f in problem.functions
        )
    )


def row_limits(
    problem: Problem,
    supports: Sequence[Constraint | Function],
    order: Sequence[int],
    separators: Sequence[Sequence[int]],
    predicted: Sequence[float],
) -> list[float]:
    """Predicted rows of each message, limited by the rows of its inputs.

    Inputs are selected greedily, the one with the fewest rows per added variable first, until they cover the separator
    or no input has fewer rows than its added variables have assignments.

    supports : lists of feasible assignments; constraints that list forbidden ones are skipped.
    order : variable indices. separators : of each bucket. predicted : rows of each message; all by position.
    """
    position = {v: place for place, v in enumerate(order)}
    bits = [math.log2(max(1, size)) for size in problem.sizes]
    inputs: list[list[tuple[float, frozenset[int]]]] = [[] for _ in order]
    for support in supports:
        if support.scope and not (isinstance(support, Constraint) and not support.allowed):
            first = min(position[v] for v in support.scope)
            inputs[first].append((math.log2(max(1, len(support.tuples))), frozenset(support.scope)))
    limits = []
    for place in looked(range(len(order))):
        separator = frozenset(separators[place])
        left, rows, candidates = set(separator), 0.0, list(inputs[place])
        while left and candidates:
            price = [(size - sum(bits[u] for u in scope & left), i) for i, (size, scope) in enumerate(candidates)]
            gain, best = min(price)
            if gain >= 0:
                break
            size, scope = candidates.pop(best)
            rows += size
            left -= scope
        rows += sum(bits[u] for u in left)
        if len(separator) == len(left):
            limits.append(predicted[place])
        else:
            limits.append(min(predicted[place], 2.0 ** min(rows, 1000.0)))
        if separator:
            target = min(position[u] for u in separator)
            inputs[target].append((math.log2(max(1.0, limits[-1])), separator))
    return limits
