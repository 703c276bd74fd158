"""Joint posteriors of several variables, whether or not they share a clique.

The variable with the largest domain is the target, and the others are observed: one extra case for each combination of
their values. The joint posterior is the target's posterior times the probability of that evidence relative to the case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline

MOST_NUMBERS = 1 << 27
"""Maximum numbers of a joint posterior of all cases together: one GiB, and as much again while it is computed."""

Sweep = Callable[[Cases, Sequence[int]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Signature of :meth:`oocbe.junction_trees.query_engine.QueryEngine.sweep`."""


def joint_of_cases(problem: Problem, sweep: Sweep, cases: Cases, variables: Sequence[int]) -> NDArray[np.float64]:
    """Joint posteriors of different variables: float64 (cases, size of each), 0 in impossible cases.

    Raises
    ------
    LimitError : more numbers than :data:`MOST_NUMBERS`. TimeLimitError : the deadline passed.
    """
    sizes = problem.sizes
    shape = [sizes[v] for v in variables]
    numbers = float(np.prod(shape, dtype=np.float64))
    if len(cases) * numbers > MOST_NUMBERS:
        raise LimitError(
            f"{problem.name}: the joint posterior of {len(variables)} variables has {numbers:.3g} numbers a "
            f"case, more than {MOST_NUMBERS:,} in all; ask for fewer variables or cases at a time"
        )
    largest = max(variables, key=lambda v: sizes[v])
    others = [v for v in variables if v != largest]
    many = math.prod(sizes[v] for v in others)
    found = np.zeros((len(cases) * many, sizes[largest]))
    logarithms = np.full(len(found), -np.inf)
    length = max(1, tuning().joint_piece_numbers // len(sizes))
    for first in range(0, len(found), length):
        check_deadline()
        rows = np.arange(first, min(first + length, len(found)))
        own, combinations = np.divmod(rows, many)
        part = cases.some(own)
        contradicts = np.zeros(len(rows), dtype=bool)
        for v in reversed(others):
            combinations, values = np.divmod(combinations, sizes[v])
            contradicts |= (part.observed[:, v] != UNOBSERVED) & (part.observed[:, v] != values)
            part.observed[:, v] = values
        left = np.flatnonzero(~contradicts)
        found[rows[left]], logarithms[rows[left]] = sweep(part.some(left), [largest])
    weights = logarithms.reshape(len(cases), many)
    greatest = weights.max(axis=1, keepdims=True)
    shares = np.exp(weights - np.where(greatest == -np.inf, 0.0, greatest))
    total = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    found *= shares.reshape(-1, 1)
    joint = found.reshape(len(cases), *(sizes[v] for v in others), sizes[largest])
    axes = [*others, largest]
    return np.ascontiguousarray(joint.transpose(0, *(1 + axes.index(v) for v in variables)))
