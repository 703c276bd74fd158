"""Values that no optimal assignment needs, because another value of the same variable is never worse.

If the substitution of b for a never raises the cost, whatever the values of other variables, each assignment with a has
one with b at no higher cost, and a is removed: at least one optimal assignment remains. This is called *dead-end
elimination* (Desmet, De Maeyer, Hazes and Lasters 1992, *The dead-end elimination theorem and its use in protein
side-chain positioning*; differences for each assignment of the neighbours are Goldstein's, 1994, *Efficient rotamer
elimination applied to protein side-chains and related spin glasses*) and *soft neighbourhood substitutability*
(Lecoutre, Roussel and Dehani 2012, *WCSP integration of soft neighborhood substitutability*; de Givry, Prestwich and
O'Sullivan 2013, *Dead-end elimination for weighted CSP*). A condition on each function is sufficient for their sum: the
*loss* of a substitution in a function is the largest difference over all assignments of the other variables that permit
a. If the losses sum to at most 0, a is removed. Cost moves between functions and variables change no difference, so
repetition after dual ascent gains nothing; removal of the neighbours' values does.

The removal keeps one optimal assignment only. Counts, the k best and marginals need all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.value_dominance import add_worst_losses

Rows = tuple[NDArray[Any], NDArray[np.bool_]]
"""Costs of a function and a mask of permitted cells, (values of the variable, assignments of the others)."""


def values_needed(size: int, functions: Sequence[Rows], rounding: float = 0.0) -> NDArray[np.int64]:
    """The values of a variable that an optimal assignment may need; none if all are forbidden.

    Parameters
    ----------
    size : values of the variable. functions : all functions over it, int64 or float64.
    rounding : maximum error of a sum of floats; a smaller gain counts only if no single function has a loss.
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
