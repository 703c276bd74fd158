"""Joint posteriors of several variables, whether or not a clique has them all.

The variable with the largest domain is asked for, and the others are observed: a case more for each combination of
their values. The probability of that evidence, relative to that of the case, times the posterior is the joint one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError
from oocbe.junction_trees.batches import sweep_cases
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import UNOBSERVED, Cases

MOST_NUMBERS = 1 << 27
"""Numbers of a joint posterior, all cases together: one GiB."""


def joint_of_cases(tree: CompiledTree, cases: Cases, variables: Sequence[int]) -> NDArray[np.float64]:
    """Joint posteriors of different variables: float64 (cases, size of each), 0 in impossible cases.

    Raises
    ------
    LimitError : more numbers than :data:`MOST_NUMBERS`.
    """
    sizes = tree.problem.sizes
    shape = [sizes[v] for v in variables]
    numbers = float(np.prod(shape, dtype=np.float64))
    if len(cases) * numbers > MOST_NUMBERS:
        raise LimitError(
            f"{tree.problem.name}: the joint posterior of {len(variables)} variables has {numbers:.3g} numbers a "
            f"case, more than {MOST_NUMBERS:,} in all; ask for fewer variables or cases at a time"
        )
    asked = max(variables, key=lambda v: sizes[v])
    others = [v for v in variables if v != asked]
    combinations = np.indices([sizes[v] for v in others]).reshape(len(others), -1).T
    many = len(combinations)
    observed = np.repeat(cases.observed, many, axis=0)
    likelihoods = {v: np.repeat(given, many, axis=0) for v, given in cases.likelihoods.items()}
    contradicts = np.zeros(len(observed), dtype=bool)
    for v, values in zip(others, np.tile(combinations, (len(cases), 1)).T, strict=True):
        contradicts |= (observed[:, v] != UNOBSERVED) & (observed[:, v] != values)
        observed[:, v] = values
    found = np.zeros((len(observed), sizes[asked]))
    logarithms = np.full(len(observed), -np.inf)
    left = np.flatnonzero(~contradicts)
    part = Cases(observed[left], {v: given[left] for v, given in likelihoods.items()})
    found[left], logarithms[left] = sweep_cases(tree, part, [asked])
    weights = logarithms.reshape(len(cases), many)
    greatest = weights.max(axis=1, keepdims=True)
    shares = np.exp(weights - np.where(greatest == -np.inf, 0.0, greatest))
    total = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    joint = (shares[:, :, None] * found.reshape(len(cases), many, -1)).reshape(
        len(cases), *(sizes[v] for v in others), sizes[asked]
    )
    axes = [*others, asked]
    return np.ascontiguousarray(joint.transpose(0, *(1 + axes.index(v) for v in variables)))
