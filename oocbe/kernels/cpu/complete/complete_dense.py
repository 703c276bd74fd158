"""Join and elimination of complete functions over runs of contiguous cells: the vectorised inner loops.

In a run each function is either *dense* (contiguous cells as in the result) or *flat* (one value). Flat functions are
combined first, one value for each combination of the eliminated axes. Then four combinations at a time are folded into
the run: four loads, additions and maxima for one load and store of the accumulator, all vectorised. The tile length
keeps the cells of all combinations in the second-level cache, where other runs that share them hit, as in a product of
matrices.

A run has some of the result's axes. Other functions are copied (transposed, or repeated along absent axes), as is the
result if its order differs. Candidates for the run are the result's fastest axes, and for each set of functions the
axes of exactly these, in the order of the result and in that of the largest function. The candidate with the lowest
estimated cost is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.bucket_axes import Axis, merged
from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.cpu.jit import helper, inline, jit
from oocbe.kernels.cpu.native import array_at, greatest, least, plus, times
from oocbe.kernels.cpu.threads import run_all, tiled_ranges
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation

COPIED = 12.0
"""Cost of copying a cell, in joined cells: these are processed 16 at a time, copied ones are gathered one by one."""

RUN_OVERHEAD = 600.0
"""Cost of starting a run, in joined cells: some 40 nanoseconds."""

TERM_OVERHEAD = 60.0
"""Cost of one combination of the eliminated axes in a run, in joined cells."""

LONGEST_PREFIX = 1 << 12
"""Maximum cells of a run of the result's fastest axes, along which functions are repeated."""


@dataclass(frozen=True)
class Arrangement:
    """A bucket with a contiguous inner loop.

    functions : strides of (run, outer axes of the result, eliminated axes); along the run 1 or 0.
    sizes : of those axes. eliminated : number of eliminated axes, the last ones.
    order : the result's axes in the order of computation, or None for their own order.
    """

    functions: tuple[CompleteFunction, ...]
    sizes: tuple[int, ...]
    eliminated: int
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class _Candidate:
    run: tuple[int, ...]
    cost: float
    copied: tuple[int, ...]


def without_ones(
    functions: Sequence[CompleteFunction], sizes: Sequence[int], eliminated: int
) -> tuple[list[CompleteFunction], list[int], int]:
    """A bucket without its axes of size 1."""
    kept = [a for a, n in enumerate(sizes) if n > 1]
    gone = sum(a >= len(sizes) - eliminated for a in kept)
    slim = [replace(f, strides=tuple(f.strides[a] for a in kept)) for f in functions]
    return slim, [sizes[a] for a in kept], gone


def arrange(functions: Sequence[CompleteFunction], sizes: Sequence[int], eliminated: int) -> Arrangement:
    """Choose the run and copy the functions that need it; at least one axis is kept, and no size is 1."""
    kept = len(sizes) - eliminated
    best = min(
        (_judge(run, functions, sizes, kept) for run in _candidate_runs(functions, sizes, kept)), key=lambda c: c.cost
    )
    order = (*best.run, *(a for a in range(kept) if a not in best.run))
    axes = (*order, *range(kept, len(sizes)))
    made = [
        _copied(f, best.run, axes, sizes) if number in best.copied else _seen(f, best.run, axes)
        for number, f in enumerate(functions)
    ]
    lengths = [math.prod(sizes[a] for a in best.run), *(sizes[a] for a in axes[len(best.run) :])]
    made, lengths, gone = _merged(made, lengths, eliminated)
    return Arrangement(tuple(made), tuple(lengths), gone, None if order == tuple(range(kept)) else order)


def _merged(
    functions: list[CompleteFunction], sizes: list[int], eliminated: int
) -> tuple[list[CompleteFunction], list[int], int]:
    """A bucket with adjacent axes merged if they are contiguous in every function, except for the run."""
    first_gone = len(sizes) - eliminated
    axes = [Axis(size, tuple(f.strides[a] for f in functions)) for a, size in enumerate(sizes)]
    gone = merged(axes[first_gone:])
    fewer = [axes[0], *merged(axes[1:first_gone]), *gone]
    made = [replace(f, strides=tuple(axis.strides[number] for axis in fewer)) for number, f in enumerate(functions)]
    return made, [axis.size for axis in fewer], len(gone)


def _candidate_runs(
    functions: Sequence[CompleteFunction], sizes: Sequence[int], kept: int
) -> Iterator[tuple[int, ...]]:
    for end in range(1, kept + 1):
        if any(any(f.strides[:end]) for f in functions):
            yield tuple(range(end))
        if math.prod(sizes[:end]) >= LONGEST_PREFIX:
            break
    classes: dict[tuple[int, ...], list[int]] = {}
    for axis in range(kept):
        having = tuple(number for number, f in enumerate(functions) if f.strides[axis])
        classes.setdefault(having, []).append(axis)
    for having, axes in classes.items():
        if not having:
            continue
        yield tuple(axes)
        largest = max(having, key=lambda number: _cells(functions[number], sizes))
        ordered = sorted(axes, key=lambda axis: functions[largest].strides[axis])
        for end in range(1, len(ordered) + 1):
            yield tuple(ordered[:end])


def _judge(run: tuple[int, ...], functions: Sequence[CompleteFunction], sizes: Sequence[int], kept: int) -> _Candidate:
    cells = math.prod(sizes[a] for a in run)
    joined = math.prod(sizes)
    terms = math.prod(sizes[kept:])
    cost = joined * (1 + (TERM_OVERHEAD + RUN_OVERHEAD / terms) / cells)
    dense = 0
    copied = []
    for number, f in enumerate(functions):
        present = [a for a in run if f.strides[a]]
        dense += bool(present)
        if present and not _is_contiguous(f, run, sizes):
            copied.append(number)
            repeated = math.prod(sizes[a] for a in run if not f.strides[a])
            cost += COPIED * _cells(f, sizes) * repeated
    cost += 0.5 * joined * max(0, dense - 1)
    if run != tuple(range(len(run))):
        cost += COPIED * math.prod(sizes[:kept])
    return _Candidate(run, cost, tuple(copied))


def _is_contiguous(f: CompleteFunction, run: Sequence[int], sizes: Sequence[int]) -> bool:
    step = 1
    for axis in run:
        if f.strides[axis] != step:
            return False
        step *= sizes[axis]
    return True


def _cells(f: CompleteFunction, sizes: Sequence[int]) -> int:
    return math.prod(n for n, s in zip(sizes, f.strides, strict=True) if s)


def _seen(f: CompleteFunction, run: Sequence[int], axes: Sequence[int]) -> CompleteFunction:
    """The function with the run as one axis."""
    return replace(f, strides=(int(f.strides[run[0]] != 0), *(f.strides[a] for a in axes[len(run) :])))


def _copied(f: CompleteFunction, run: Sequence[int], axes: Sequence[int], sizes: Sequence[int]) -> CompleteFunction:
    """The function with the run as contiguous cells, followed by its other axes."""
    others = sorted((a for a in axes[len(run) :] if f.strides[a]), key=lambda a: f.strides[a])
    order = [*run, *others]
    values = copy_function(replace(f, strides=tuple(f.strides[a] for a in order)), [sizes[a] for a in order])
    steps, step = {}, math.prod(sizes[a] for a in run)
    for axis in others:
        steps[axis] = step
        step *= sizes[axis]
    return CompleteFunction(values, (1, *(steps.get(a, 0) for a in axes[len(run) :])))


MAX_PLUS, MIN_PLUS, MAX_TIMES, SUM_TIMES = range(4)
"""Codes of the operation pairs with loops of their own."""

CODES = {
    (Combination.ADD, Marginalisation.MAX): MAX_PLUS,
    (Combination.ADD, Marginalisation.MIN): MIN_PLUS,
    (Combination.MULTIPLY, Marginalisation.MAX): MAX_TIMES,
    (Combination.MULTIPLY, Marginalisation.SUM): SUM_TIMES,
}
"""Semirings with loops here."""


@inline
def _joined(code: Any, a: Any, b: Any) -> Any:
    return plus(a, b) if code in (MAX_PLUS, MIN_PLUS) else times(a, b)


@inline
def _better(code: Any, a: Any, b: Any) -> Any:
    if code in (MAX_PLUS, MAX_TIMES):
        return greatest(a, b)
    return least(a, b) if code == MIN_PLUS else plus(a, b)


@helper
def open_one(code: int, target: Any, a: Any, s: Any) -> None:
    """Initialise from one dense function."""
    for i in range(len(target)):
        target[i] = _joined(code, a[i], s)


@helper
def open_two(code: int, target: Any, a: Any, b: Any, s: Any) -> None:
    """Initialise from two dense functions."""
    for i in range(len(target)):
        target[i] = _joined(code, _joined(code, a[i], b[i]), s)


@helper
def join_into(code: int, target: Any, a: Any) -> None:
    """Combine a dense function with the target."""
    for i in range(len(target)):
        target[i] = _joined(code, target[i], a[i])


@helper
def fold_one(code: int, target: Any, a: Any, s: Any) -> None:
    """Reduce with one joined run."""
    for i in range(len(target)):
        target[i] = _better(code, target[i], _joined(code, a[i], s))


@helper
def fold_two(code: int, target: Any, a: Any, b: Any, s: Any) -> None:
    """Reduce with one joined run of two dense functions."""
    for i in range(len(target)):
        target[i] = _better(code, target[i], _joined(code, _joined(code, a[i], b[i]), s))


@helper
def fold_four(code: int, target: Any, a: Any, s: Any) -> None:
    """Reduce with four joined runs: ``a`` and ``s`` are quadruples."""
    a0, a1, a2, a3 = a
    s0, s1, s2, s3 = s
    for i in range(len(target)):
        x = _better(code, _joined(code, a0[i], s0), _joined(code, a1[i], s1))
        y = _better(code, _joined(code, a2[i], s2), _joined(code, a3[i], s3))
        target[i] = _better(code, target[i], _better(code, x, y))


ADD = int(Combination.ADD)
MIN = int(Marginalisation.MIN)

TILE_BYTES = 1 << 18
"""Bytes of a dense function read by a tile of runs: a quarter of a common second-level cache."""

LEAST_TILE = 256
"""Minimum cells of a tile, for any number of eliminated combinations."""

MOST_TILE_BYTES = 1 << 14
"""Maximum bytes of a result tile: it is updated several times and stays in the first-level cache."""


def eliminate_dense(
    bucket: Arrangement, combination: int, marginalisation: int, dtype: np.dtype[Any], piece_rows: int | None = None
) -> NDArray[Any]:
    """Result cells in the arrangement's order. Marginalisation is min, max or sum, and some function is dense."""
    kept = len(bucket.sizes) - bucket.eliminated
    run = bucket.sizes[0]
    outer = np.array(bucket.sizes[1:kept], dtype=np.int64)
    runs = int(np.prod(outer, dtype=np.int64))
    functions = sorted(bucket.functions, key=lambda f: -f.strides[0])
    dense = sum(f.strides[0] for f in functions)
    steps = np.array([f.strides[1:kept] for f in functions], dtype=np.int64).reshape(len(functions), len(outer))
    offsets = np.stack([_offsets(f.strides[kept:], bucket.sizes[kept:]) for f in functions])
    addresses = np.array([(f.values.ctypes.data, len(f.values)) for f in functions], dtype=np.int64)
    out = np.empty(runs * run, dtype=dtype)
    limit = largest_feasible(dtype) if dtype.kind == "i" and combination == ADD else 0
    codes = (
        int(combination),  # plain, as for eliminate_general
        int(marginalisation),
        infeasible_value(dtype, combination, marginalisation),
        dtype.type(limit if marginalisation == MIN else -limit),
    )
    terms = offsets.shape[1]
    tile = max(LEAST_TILE, min(MOST_TILE_BYTES, TILE_BYTES // terms) // dtype.itemsize)
    if piece_rows is not None:
        tile = min(tile, max(1, piece_rows))
    one = dtype.type(0 if combination == ADD else 1)
    code = CODES[Combination(combination), Marginalisation(marginalisation)]
    arrays = (
        addresses,
        dense,
        one,
        code,
        steps,
        offsets,
        outer,
        *codes,
        limit > 0,
        run,
        tile,
        out.ctypes.data,
        out[:0],
    )
    calls = [(*arrays, *piece) for piece in tiled_ranges(run, tile, runs, terms)]
    run_all(_runs, calls)
    return out


def _offsets(strides: tuple[int, ...], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Offset of each combination of the eliminated axes, relative to the first: int64 (combinations,)."""
    places = np.zeros(1, dtype=np.int64)
    for n, s in zip(sizes, strides, strict=True):
        places = (np.arange(n, dtype=np.int64)[:, None] * s + places[None, :]).ravel()
    return places


@jit
def _runs(
    addresses: NDArray[np.int64],
    dense: int,
    one: Any,
    code: int,
    steps: NDArray[np.int64],
    offsets: NDArray[np.int64],
    outer: NDArray[np.int64],
    combination: int,
    marginalisation: int,
    infeasible: Any,
    limit: Any,
    clamps: bool,
    run: int,
    tile: int,
    out_address: int,
    like: NDArray[Any],
    begin: int,
    end: int,
    first: int,
    last: int,
) -> None:
    """Cells ``begin`` to ``end`` of the runs ``first`` to ``last``, tile by tile."""
    functions = len(offsets)
    base, digits = np.empty(functions, dtype=np.int64), np.zeros(len(outer), dtype=np.int64)
    flat = np.full(offsets.shape[1], one, dtype=like.dtype)
    buffer = np.empty(tile if dense > 2 else 1, dtype=like.dtype)
    for low in range(begin, end, tile):
        high = min(end, low + tile)
        base[:] = 0
        rest = first
        for axis in range(len(outer)):
            rest, digits[axis] = divmod(rest, outer[axis])
            for f in range(functions):
                base[f] += digits[axis] * steps[f, axis]
        for number in range(first, last):
            if dense < functions:
                _join_flat(
                    addresses, dense, base, offsets, combination, marginalisation, infeasible, limit, clamps, flat
                )
            # Not a slice, which counts references with locked instructions.
            target = array_at(out_address, number * run + low, high - low, flat)
            if dense == 1:
                _one_dense(addresses[0, 0], base[0] + low, offsets[0], flat, code, target)
            elif dense == 2:
                _two_dense(addresses, base, low, offsets, flat, code, target)
            else:
                _more_dense(
                    addresses, dense, base, low, offsets, flat, code, marginalisation, infeasible, limit, clamps,
                    buffer[: high - low], target,
                )  # fmt: skip
            if clamps:
                clamp(target, marginalisation, infeasible, limit)
            for axis in range(len(outer)):  # next run: increment with carry
                digits[axis] += 1
                for f in range(functions):
                    base[f] += steps[f, axis]
                if digits[axis] < outer[axis]:
                    break
                for f in range(functions):
                    base[f] -= steps[f, axis] * outer[axis]
                digits[axis] = 0


@helper
def _join_flat(
    addresses: NDArray[np.int64],
    dense: int,
    base: NDArray[np.int64],
    offsets: NDArray[np.int64],
    combination: int,
    marginalisation: int,
    infeasible: Any,
    limit: Any,
    clamps: bool,
    flat: NDArray[Any],
) -> None:
    """Combine the flat functions: a value for each combination of the eliminated axes."""
    for f in range(dense, len(offsets)):
        source = array_at(addresses[f, 0], 0, addresses[f, 1], flat)
        for term in range(len(flat)):
            value = source[base[f] + offsets[f, term]]
            if f == dense:
                flat[term] = value
            elif combination == ADD:
                flat[term] = plus(flat[term], value)
            else:
                flat[term] = times(flat[term], value)
        if clamps and f > dense:
            clamp(flat, marginalisation, infeasible, limit)


@helper
def _more_dense(
    addresses: NDArray[np.int64],
    dense: int,
    base: NDArray[np.int64],
    low: int,
    offsets: NDArray[np.int64],
    flat: NDArray[Any],
    code: int,
    marginalisation: int,
    infeasible: Any,
    limit: Any,
    clamps: bool,
    buffer: NDArray[Any],
    target: NDArray[Any],
) -> None:
    """Join and reduce three or more dense functions with the flat ones: all but the last into a buffer first."""
    many = len(target)
    for term in range(len(flat)):
        for f in range(dense - 1):
            source = array_at(addresses[f, 0], base[f] + offsets[f, term] + low, many, target)
            if f == 0:
                for i in range(many):
                    buffer[i] = source[i]
            else:
                join_into(code, buffer, source)
                if clamps and f % 2 == 0:
                    clamp(buffer, marginalisation, infeasible, limit)
        last = dense - 1
        source = array_at(addresses[last, 0], base[last] + offsets[last, term] + low, many, target)
        if term == 0:
            open_two(code, target, buffer, source, flat[term])
        else:
            fold_two(code, target, buffer, source, flat[term])


@helper
def _one_dense(
    address: int, first: int, offsets: NDArray[np.int64], flat: NDArray[Any], code: int, target: Any
) -> None:
    """Join and reduce one dense function with the flat ones."""
    many, terms = len(target), len(offsets)
    open_one(code, target, array_at(address, first + offsets[0], many, target), flat[0])
    term = 1
    while term + 4 <= terms:
        four = (
            array_at(address, first + offsets[term], many, target),
            array_at(address, first + offsets[term + 1], many, target),
            array_at(address, first + offsets[term + 2], many, target),
            array_at(address, first + offsets[term + 3], many, target),
        )
        fold_four(code, target, four, (flat[term], flat[term + 1], flat[term + 2], flat[term + 3]))
        term += 4
    while term < terms:
        fold_one(code, target, array_at(address, first + offsets[term], many, target), flat[term])
        term += 1


@helper
def _two_dense(
    addresses: NDArray[np.int64],
    base: NDArray[np.int64],
    low: int,
    offsets: NDArray[np.int64],
    flat: NDArray[Any],
    code: int,
    target: NDArray[Any],
) -> None:
    """Join and reduce two dense functions with the flat ones."""
    many = len(target)
    for term in range(offsets.shape[1]):
        a = array_at(addresses[0, 0], base[0] + offsets[0, term] + low, many, target)
        b = array_at(addresses[1, 0], base[1] + offsets[1, term] + low, many, target)
        if term == 0:
            open_two(code, target, a, b, flat[term])
        else:
            fold_two(code, target, a, b, flat[term])


@helper
def clamp(values: NDArray[Any], marginalisation: int, infeasible: Any, limit: Any) -> None:
    """Replace integer sums beyond the feasible range by the infeasible value."""
    if marginalisation == MIN:
        for i in range(len(values)):
            values[i] = infeasible if values[i] > limit else values[i]
    else:
        for i in range(len(values)):
            values[i] = infeasible if values[i] < limit else values[i]
