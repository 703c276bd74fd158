"""Inner loops over runs of contiguous cells, one for each semiring: join one or several cells and reduce.

In all of them ``target`` (cells,) is a part of a run of the result, ``a`` and ``b`` are cells of dense functions of the
same length, and ``s`` is the combined value of the flat functions. Loops have no branches, so that they are vectorised.
"""

from __future__ import annotations

from typing import Any

from oocbe.kernels.cpu.jit import helper
from oocbe.kernels.cpu.native import greatest, least, plus, times
from oocbe.model.semiring import Combination, Marginalisation

MAX_PLUS, MIN_PLUS, MAX_TIMES, SUM_TIMES = range(4)
"""Codes of the operation pairs with loops of their own."""

CODES = {
    (Combination.ADD, Marginalisation.MAX): MAX_PLUS,
    (Combination.ADD, Marginalisation.MIN): MIN_PLUS,
    (Combination.MULTIPLY, Marginalisation.MAX): MAX_TIMES,
    (Combination.MULTIPLY, Marginalisation.SUM): SUM_TIMES,
}
"""Semirings with loops here."""


@helper
def open_one(code: int, target: Any, a: Any, s: Any) -> None:
    """Initialise from one dense function."""
    if code in (MAX_PLUS, MIN_PLUS):
        for i in range(len(target)):
            target[i] = plus(a[i], s)
    else:
        for i in range(len(target)):
            target[i] = times(a[i], s)


@helper
def open_two(code: int, target: Any, a: Any, b: Any, s: Any) -> None:
    """Initialise from two dense functions."""
    if code in (MAX_PLUS, MIN_PLUS):
        for i in range(len(target)):
            target[i] = plus(plus(a[i], b[i]), s)
    else:
        for i in range(len(target)):
            target[i] = times(times(a[i], b[i]), s)


@helper
def join_into(code: int, target: Any, a: Any) -> None:
    """Combine a dense function with the target."""
    if code in (MAX_PLUS, MIN_PLUS):
        for i in range(len(target)):
            target[i] = plus(target[i], a[i])
    else:
        for i in range(len(target)):
            target[i] = times(target[i], a[i])


@helper
def fold_one(code: int, target: Any, a: Any, s: Any) -> None:
    """Reduce with one joined run."""
    if code == MAX_PLUS:
        for i in range(len(target)):
            target[i] = greatest(target[i], plus(a[i], s))
    elif code == MIN_PLUS:
        for i in range(len(target)):
            target[i] = least(target[i], plus(a[i], s))
    elif code == MAX_TIMES:
        for i in range(len(target)):
            target[i] = greatest(target[i], times(a[i], s))
    else:
        for i in range(len(target)):
            target[i] = plus(target[i], times(a[i], s))


@helper
def fold_two(code: int, target: Any, a: Any, b: Any, s: Any) -> None:
    """Reduce with one joined run of two dense functions."""
    if code == MAX_PLUS:
        for i in range(len(target)):
            target[i] = greatest(target[i], plus(plus(a[i], b[i]), s))
    elif code == MIN_PLUS:
        for i in range(len(target)):
            target[i] = least(target[i], plus(plus(a[i], b[i]), s))
    elif code == MAX_TIMES:
        for i in range(len(target)):
            target[i] = greatest(target[i], times(times(a[i], b[i]), s))
    else:
        for i in range(len(target)):
            target[i] = plus(target[i], times(times(a[i], b[i]), s))


@helper
def fold_four(code: int, target: Any, a: Any, s: Any) -> None:
    """Reduce with four joined runs: ``a`` and ``s`` are quadruples."""
    a0, a1, a2, a3 = a
    s0, s1, s2, s3 = s
    if code == MAX_PLUS:
        for i in range(len(target)):
            x, y = greatest(plus(a0[i], s0), plus(a1[i], s1)), greatest(plus(a2[i], s2), plus(a3[i], s3))
            target[i] = greatest(target[i], greatest(x, y))
    elif code == MIN_PLUS:
        for i in range(len(target)):
            x, y = least(plus(a0[i], s0), plus(a1[i], s1)), least(plus(a2[i], s2), plus(a3[i], s3))
            target[i] = least(target[i], least(x, y))
    elif code == MAX_TIMES:
        for i in range(len(target)):
            x, y = greatest(times(a0[i], s0), times(a1[i], s1)), greatest(times(a2[i], s2), times(a3[i], s3))
            target[i] = greatest(target[i], greatest(x, y))
    else:
        for i in range(len(target)):
            x, y = plus(times(a0[i], s0), times(a1[i], s1)), plus(times(a2[i], s2), times(a3[i], s3))
            target[i] = plus(target[i], plus(x, y))
