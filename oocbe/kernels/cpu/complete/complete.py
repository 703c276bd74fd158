"""Join and elimination of complete tables on the CPU: choice of the method for a bucket.

A large bucket is arranged so that its inner loop runs over adjacent cells of every function
(:mod:`oocbe.kernels.cpu.complete.complete_arrange`, :mod:`oocbe.kernels.cpu.complete.complete_dense`). If the result is
small and much is eliminated, the elimination has two steps: some eliminated axes are kept in the first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.complete_arrange import arrange, without_ones
from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.cpu.complete.complete_dense import CODES, eliminate_dense
from oocbe.kernels.cpu.complete.complete_general import eliminate_general
from oocbe.kernels.interface import CompleteFunction, steps_of

SMALL_CELLS = 1 << 13
"""Minimum joined cells of a bucket that is arranged."""

FEW_CELLS = 256
"""Minimum result cells for an inner loop over the result's axes alone."""


def eliminate_complete(
    functions: Sequence[CompleteFunction],
    sizes: Sequence[int],
    eliminated: int,
    combination: int,
    marginalisation: int,
    dtype: np.dtype[Any],
    piece_rows: int | None = None,
) -> NDArray[Any]:
    """One bucket of complete tables; see :meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`."""
    dtype = np.dtype(dtype)
    codes = (combination, marginalisation, dtype, piece_rows)
    slim, lengths, gone = without_ones(functions, sizes, eliminated)
    joined = math.prod(lengths)
    kept = len(lengths) - gone
    depends = any(any(f.strides[:kept]) for f in slim)
    if joined < SMALL_CELLS or codes[:2] not in CODES:
        return eliminate_general(slim, lengths, gone, *codes)
    cells = math.prod(lengths[:kept])
    if slim and cells < FEW_CELLS and gone and joined // cells >= FEW_CELLS:
        return _in_two_steps(slim, lengths, gone, *codes)
    if not depends:
        return eliminate_general(slim, lengths, gone, *codes)
    bucket = arrange(slim, lengths, gone)
    values = eliminate_dense(bucket, *codes)
    if bucket.order is None:
        return values
    made = steps_of([lengths[axis] for axis in bucket.order])
    strides = dict(zip(bucket.order, made, strict=True))
    back = CompleteFunction(values, tuple(strides[axis] for axis in range(kept)))
    return copy_function(back, lengths[:kept])


def _in_two_steps(
    functions: Sequence[CompleteFunction],
    sizes: Sequence[int],
    eliminated: int,
    combination: int,
    marginalisation: int,
    dtype: np.dtype[Any],
    piece_rows: int | None,
) -> NDArray[Any]:
    """Eliminate all axes but one (or as many as make a good run) first, then the rest."""
    codes = (combination, marginalisation, dtype, piece_rows)
    kept = len(sizes) - eliminated

    def closeness(axis: int) -> tuple[int, int]:
        # Among axes that make a good run, prefer that with the smallest stride of the largest function.
        largest = max(functions, key=lambda f: len(f.values))
        return (min(sizes[axis], FEW_CELLS), -largest.strides[axis])

    order = sorted(range(kept, len(sizes)), key=closeness, reverse=True)
    first = order[:1]
    while math.prod(sizes[a] for a in [*range(kept), *first]) < FEW_CELLS and len(first) < len(order) - 1:
        first = order[: len(first) + 1]
    axes = [*first, *range(kept), *order[len(first) :]]
    moved = [replace(f, strides=tuple(f.strides[a] for a in axes)) for f in functions]
    lengths = [sizes[a] for a in axes]
    if len(first) == eliminated:
        # The first step would eliminate nothing and only materialise the join.
        return eliminate_general(functions, sizes, eliminated, *codes)
    partial = eliminate_complete(moved, lengths, eliminated - len(first), *codes)
    left = lengths[: kept + len(first)]
    steps = steps_of(left)
    second = CompleteFunction(partial, (*steps[len(first) :], *steps[: len(first)]))
    return eliminate_general([second], [*left[len(first) :], *left[: len(first)]], len(first), *codes)
