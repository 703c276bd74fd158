"""Values that no optimal assignment needs, because another value of the same variable is never worse.

Where putting b in the place of a costs nothing more whatever the other variables do, each assignment with a has one
with b that is no dearer, and a can go: one optimal assignment is left. Search calls it *dead-end elimination* (Desmet,
De Maeyer, Hazes and Lasters 1992, *The dead-end elimination theorem and its use in protein side-chain positioning*;
taking the difference for each assignment of the neighbours is Goldstein's, 1994, *Efficient rotamer elimination applied
to protein side-chains and related spin glasses*) and *soft neighbourhood substitutability* (Lecoutre, Roussel and
Dehani 2012, *WCSP integration of soft neighborhood substitutability*; de Givry, Prestwich and O'Sullivan 2013,
*Dead-end elimination for weighted CSP*). What holds function by function holds for their sum: a substitution's *loss*
in a function is the largest difference over all that the others can do while a is permitted, and where the losses add
up to nothing or less, a goes. Moving costs between functions and variables changes no difference, so nothing is to be
gained by doing it after dual ascent; removing values of the neighbours does.

This is for one optimal assignment only. Counts, the k best and marginals need all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.value_dominance import add_worst_losses

Rows = tuple[NDArray[Any], NDArray[np.bool_]]
"""Costs of a function and where they are permitted, (values of the variable, all that the others can do)."""


def values_needed(size: int, functions: Sequence[Rows], rounding: float = 0.0) -> NDArray[np.int64]:
    """The values of a variable that an optimal assignment may need; none where all are forbidden.

    Parameters
    ----------
    size : values of the variable. functions : all those over it, int64 or float64.
    rounding : what a sum of floats can be off by; a smaller gain counts only where no single function loses.
    """
    is_integral = all(values.dtype.kind == "i" for values, _ in functions)
    losses = np.zeros((size, size), dtype=np.int64 if is_integral else np.float64)
    blocked, costs_more = np.zeros((size, size), dtype=bool), np.zeros((size, size), dtype=bool)
    is_left = np.ones(size, dtype=bool)
    for values, permitted in functions:
        is_left &= permitted.any(axis=1)
        add_worst_losses(values, permitted, losses, blocked, costs_more)
    is_no_worse = ~blocked & ((losses <= 0 if is_integral else losses < -rounding) | ~costs_more)
    np.fill_diagonal(is_no_worse, False)
    for a in np.flatnonzero(is_left & is_no_worse.any(axis=1)):
        is_left[a] = not (is_no_worse[a] & is_left).any()
    found: NDArray[np.int64] = np.flatnonzero(is_left)
    return found
