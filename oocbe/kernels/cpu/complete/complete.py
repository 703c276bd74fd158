"""Join and elimination of complete tables on the CPU: choice of the method for a bucket.

A large bucket is arranged so that its inner loop runs over adjacent cells of every function
(:mod:`oocbe.kernels.cpu.complete.complete_dense`). If the result is
small and much is eliminated, the elimination has two steps: some eliminated axes are kept in the first one.

Log-sum-exp, and small buckets, for which planning a faster method would cost more than it saves, are computed cell by
cell, for functions with any strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.cpu.complete.complete_dense import CODES, arrange, clamp, eliminate_dense, without_ones
from oocbe.kernels.cpu.interpreter import stands_in
from oocbe.kernels.cpu.jit import helper, jit
from oocbe.kernels.cpu.native import array_at
from oocbe.kernels.cpu.threads import LARGEST_CALL, row_ranges, run_all, thread_count
from oocbe.kernels.interface import CompleteFunction, steps_of
from oocbe.model.infeasible import SUMMANDS, infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation

ADD = int(Combination.ADD)
MIN = int(Marginalisation.MIN)
MAX = int(Marginalisation.MAX)
LOG_SUM_EXP = int(Marginalisation.LOG_SUM_EXP)

LARGEST_PIECE = LARGEST_CALL >> 7
"""Maximum joined cells of a call: with an exponential each, they take many times as long as a row."""

RUN_CELLS = 1024
"""Result cells, adjacent along the first axis, that are accumulated together in the first-level cache."""


def eliminate_general(
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
    kept = len(sizes) - eliminated
    run = sizes[0] if kept else 1
    if eliminated > 1 and run * math.prod(sizes[max(kept, 1) :]) > LARGEST_PIECE:
        # A run is one call, which would have one thread and no end at a deadline: eliminate one axis less, then it.
        rules = (combination, marginalisation, dtype)
        partly = eliminate_general(functions, sizes, eliminated - 1, *rules, piece_rows)
        rest = sizes[: kept + 1]
        return eliminate_general([CompleteFunction(partly, steps_of(rest))], rest, 1, *rules, piece_rows)
    out = np.empty(math.prod(sizes[:kept]), dtype=dtype)
    if not functions:
        functions = [CompleteFunction(np.full(1, 0 if combination == ADD else 1, dtype=dtype), (0,) * len(sizes))]
    strides = np.array([f.strides for f in functions], dtype=np.int64).reshape(len(functions), len(sizes))
    values = np.array([(f.values.ctypes.data, len(f.values)) for f in functions], dtype=np.int64)
    limit = largest_feasible(dtype) if dtype.kind == "i" and combination == ADD else 0
    infeasible = infeasible_value(dtype, combination, marginalisation)
    # Plain integers: Numba takes 20 microseconds or more a call to type an enumeration's member
    codes = (int(combination), int(marginalisation))
    bounds = (dtype.type(limit if marginalisation == MIN else -limit), limit > 0)
    arrays = (values, strides, np.array(sizes, dtype=np.int64), kept, *codes, infeasible, *bounds)
    runs = len(out) // run
    if piece_rows is None and math.prod(sizes) >= LARGEST_PIECE * thread_count():
        piece_rows = len(out) * LARGEST_PIECE // math.prod(sizes)
    pieces = row_ranges(runs, None if piece_rows is None else max(1, piece_rows // run))
    run_all(_eliminate, [(*arrays, out, *piece) for piece in pieces])  # the functions keep their values alive
    return out


@jit
def _eliminate(
    values: NDArray[np.int64],
    strides: NDArray[np.int64],
    sizes: NDArray[np.int64],
    kept: int,
    combination: int,
    marginalisation: int,
    infeasible: Any,
    limit: Any,
    clamps: bool,
    out: NDArray[Any],
    first: int,
    last: int,
) -> None:
    """Runs ``first`` to ``last``, of first-axis cells each; ``values``: int64 (functions, 2), address and length."""
    functions, axes = strides.shape
    run = sizes[0] if kept > 0 else 1
    joined, greatest = np.empty(RUN_CELLS, dtype=out.dtype), np.empty(RUN_CELLS, dtype=out.dtype)
    base, digits = np.empty(functions, dtype=np.int64), np.empty(axes, dtype=np.int64)
    cells, codes = 1, (combination, marginalisation, infeasible, limit, clamps)
    for axis in range(kept, axes):
        cells *= sizes[axis]
    for number in range(first, last):
        rest = number
        for axis in range(1, kept):
            rest, digits[axis] = divmod(rest, sizes[axis])
        for start in range(0, run, RUN_CELLS):
            many = min(RUN_CELLS, run - start)
            target = out[number * run + start : number * run + start + many]
            # log-sum-exp computes the maximum of each cell first, so that no exponential overflows.
            for turn in range(2 if marginalisation == LOG_SUM_EXP else 1):
                for inner in range(cells):
                    rest = inner
                    for axis in range(kept, axes):
                        rest, digits[axis] = divmod(rest, sizes[axis])
                    for f in range(functions):
                        base[f] = start * strides[f, 0] if kept > 0 else 0
                        for axis in range(min(1, kept), axes):
                            base[f] += digits[axis] * strides[f, axis]
                    _join(values, base, strides, kept, *codes, joined[:many])
                    _accumulate(target, greatest[:many], joined[:many], marginalisation, turn, inner == 0)
            if marginalisation == LOG_SUM_EXP:
                _take_logarithm(target, greatest[:many])
            elif clamps:
                clamp(target, marginalisation, infeasible, limit)


@stands_in(_eliminate)
def _eliminate_at_once(*arguments: Any) -> None:
    """The same: NumPy adds all result cells at once, one combination of eliminated values after the other."""
    values, strides, sizes, kept, combination, marginalisation, infeasible, limit, clamps, out, first, last = arguments
    shape, run = tuple(sizes[::-1].tolist()), int(sizes[0]) if kept else 1
    own, gone = slice(first * run, last * run), shape[: len(shape) - kept]
    target, greatest = out[own], out[own]
    views = [
        as_strided(array_at(address, 0, count, out), shape, steps[::-1] * out.itemsize)
        for (address, count), steps in zip(values.tolist(), strides, strict=True)
    ]
    for turn in range(2 if marginalisation == LOG_SUM_EXP else 1):
        for inner in range(math.prod(gone)):
            cell = np.unravel_index(inner, gone)
            joined = np.array(views[0][cell])
            for f in range(1, len(views)):
                if combination != ADD:
                    joined *= views[f][cell]
                    continue
                if f >= SUMMANDS and clamps:
                    _clamp_at_once(joined, marginalisation, infeasible, limit)
                joined += views[f][cell]
            part = joined.reshape(-1)[own]
            if marginalisation == LOG_SUM_EXP and turn == 0:
                greatest = part if inner == 0 else np.where(part > greatest, part, greatest)
            elif marginalisation == LOG_SUM_EXP:
                term = np.where(greatest > -np.inf, np.exp(part - greatest), 0.0)
                target[:] = term if inner == 0 else target + term
            elif inner == 0:
                target[:] = part
            elif marginalisation in (MIN, MAX):
                np.copyto(target, part, where=part > target if marginalisation == MAX else part < target)
            else:
                target += part
    if marginalisation == LOG_SUM_EXP:
        target[:] = np.where(greatest > -np.inf, greatest + np.log(target), -np.inf)
    elif clamps:
        _clamp_at_once(target, marginalisation, infeasible, limit)


def _clamp_at_once(values: NDArray[Any], marginalisation: int, infeasible: Any, limit: Any) -> None:
    values[values > limit if marginalisation == MIN else values < limit] = infeasible


@helper
def _join(
    values: NDArray[np.int64],
    base: NDArray[np.int64],
    strides: NDArray[np.int64],
    kept: int,
    combination: int,
    marginalisation: int,
    infeasible: Any,
    limit: Any,
    clamps: bool,
    joined: NDArray[Any],
) -> None:
    """Combine one run of all functions."""
    for f in range(len(values)):
        source, place = array_at(values[f, 0], 0, values[f, 1], joined), base[f]
        stride = strides[f, 0] if kept > 0 else 0
        if f == 0:
            for i in range(len(joined)):
                joined[i] = source[place + i * stride]
        elif combination == ADD:
            if f >= SUMMANDS and clamps:
                clamp(joined, marginalisation, infeasible, limit)
            if stride == 1:
                for i in range(len(joined)):
                    joined[i] += source[place + i]
            else:
                for i in range(len(joined)):
                    joined[i] += source[place + i * stride]
        else:
            for i in range(len(joined)):
                joined[i] *= source[place + i * stride]


@helper
def _accumulate(
    target: NDArray[Any], greatest: NDArray[Any], joined: NDArray[Any], marginalisation: int, turn: int, opens: bool
) -> None:
    """Marginalise a joined run into a run of the result; ``opens`` : whether it is the first one."""
    if marginalisation == LOG_SUM_EXP:
        for i in range(len(joined)):
            if turn == 0:
                greatest[i] = joined[i] if opens else max(greatest[i], joined[i])
            else:
                # If all are infeasible, so is the greatest, and its difference with itself would be NaN.
                term = math.exp(joined[i] - greatest[i]) if greatest[i] > -np.inf else 0.0
                target[i] = term if opens else target[i] + term
    elif opens:
        for i in range(len(joined)):
            target[i] = joined[i]
    elif marginalisation == MAX:
        for i in range(len(joined)):
            target[i] = max(target[i], joined[i])
    elif marginalisation == MIN:
        for i in range(len(joined)):
            target[i] = min(target[i], joined[i])
    else:
        for i in range(len(joined)):
            target[i] += joined[i]


@helper
def _take_logarithm(target: NDArray[Any], greatest: NDArray[Any]) -> None:
    for i in range(len(target)):
        target[i] = greatest[i] + math.log(target[i]) if greatest[i] > -np.inf else -np.inf


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
