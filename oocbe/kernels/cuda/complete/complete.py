"""Join and elimination of complete tables on the device: choice of the kernel and its arguments.

If two sides share eliminated axes and have result axes of their own, a tile of the result is a matrix product over the
semiring (:mod:`oocbe.kernels.cuda.complete.complete_product`); otherwise each thread computes a result cell
(:file:`complete.cu`). Long eliminated axes are eliminated in parts first, whose results are kept as separate cells, so
that all multiprocessors are busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.bucket_axes import Axis, bucket_axes, cells, largest_divisor, merged
from oocbe.kernels.cuda.complete.complete_product import LEAST_SHARED, MOST_SHARED, find_product, multiply
from oocbe.kernels.cuda.complete.complete_runs import reduce_runs, scatter_cells
from oocbe.kernels.cuda.complete.operation import CellOperation
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.semiring import Combination

MOST_FUNCTIONS = 8
"""Maximum number of functions of one launch."""

MANY_USES = 64
"""Minimum uses of each value of a join for which functions are joined beforehand."""

MOST_CELLS = 1 << 32
"""Maximum cells of a product's functions. Outside products they may be larger: only the cells of a tile, and the values
of the inner eliminated axis, have offsets of 32 bits."""

THREADS = 256
"""Threads of a block, as in the source."""

TILE_CELLS = 1024
"""Maximum result cells of a block at a time."""

LEAST_TILE_CELLS = 128
"""Minimum result cells of a block at a time."""

STAGED_BYTES = 20 << 10
"""Shared memory for the functions' values at one place, in bytes; the next place takes as much."""

LONG_INNER = 64
"""Maximum values of an eliminated axis with contiguous reads; longer axes are eliminated in parts."""

FEW_CELLS, MANY_ELIMINATED = 1 << 16, 1 << 10
"""Maximum result cells, and minimum eliminated cells, for a parallel elimination in parts."""


def eliminate_complete(
    functions: Sequence[CompleteFunction],
    sizes: Sequence[int],
    eliminated: int,
    combination: int,
    marginalisation: int,
    dtype: np.dtype[Any],
    piece_rows: int | None = None,
) -> Any:
    """One bucket of complete tables; see :meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`."""
    operation = CellOperation.of(combination, marginalisation, np.dtype(dtype))
    if not functions:
        one = cupy().full(1, 0 if combination == Combination.ADD else 1, dtype=operation.dtype)
        functions = [CompleteFunction(one, (0,) * len(sizes))]
    values = [function.values for function in functions]
    kept, gone = bucket_axes([function.strides for function in functions], sizes, eliminated)
    return _eliminate(values, kept, gone, operation)


def _eliminate(values: list[Any], kept: list[Axis], gone: list[Axis], operation: CellOperation) -> Any:
    while len(values) > 2:
        pair, span = _smallest_join(values, [*kept, *gone])
        if len(values) <= MOST_FUNCTIONS and span * MANY_USES > cells(kept) * cells(gone):
            break
        values, kept, gone = _joined(values, kept, gone, pair, operation)
    in_runs = _in_runs(values, kept, gone, operation)
    return _by_cells(values, kept, gone, operation) if in_runs is None else in_runs


def _by_cells(values: list[Any], kept: list[Axis], gone: list[Axis], operation: CellOperation) -> Any:
    """The result by the kernels for single cells or tiles."""
    product = find_product(kept, gone, operation) if is_near([*kept, *gone], len(values)) else None
    if product is not None and cells(gone) > MOST_SHARED:
        # Parts of the longest eliminated axis, if it has any.
        product = product if largest_divisor(max(axis.size for axis in gone), MOST_SHARED) >= LEAST_SHARED else None
    part = _part(kept, gone, product is not None)
    if part is not None:
        return _in_parts(values, kept, gone, part, operation)
    out = cupy().empty(cells(kept), dtype=operation.dtype)
    if product is not None:
        multiply(product, values, out, operation)
    else:
        _run(values, kept, gone, out, operation)
    return out


def _in_runs(values: list[Any], kept: list[Axis], gone: list[Axis], operation: CellOperation) -> Any:
    """The result for one large table, reduced or multiplied by another one, in memory order; None for other buckets."""
    if len(values) == 2 and not gone:
        return scatter_cells(values, kept, operation)
    if len(values) != 1 or not gone:
        return None
    parts = reduce_runs(values[0], kept, gone, operation)
    if parts is None or len(parts) == 1:
        return None if parts is None else parts[0]
    count, result = parts.shape
    flat = [Axis(result, (1, 1))] if result > 1 else []
    return _by_cells([parts.reshape(-1)], flat, [Axis(count, (result, 0))], operation)


def _smallest_join(values: list[Any], axes: list[Axis]) -> tuple[tuple[int, int], int]:
    """The two functions with the smallest join, and its number of cells."""

    def span(pair: tuple[int, int]) -> int:
        return cells([axis for axis in axes if any(axis.strides[f] for f in pair)])

    pairs = [(f, g) for g in range(len(values)) for f in range(g)]
    best = min(pairs, key=span)
    return best, span(best)


def _joined(
    values: list[Any], kept: list[Axis], gone: list[Axis], pair: tuple[int, int], operation: CellOperation
) -> tuple[list[Any], list[Axis], list[Axis]]:
    """The bucket after the join of two functions; the join keeps contiguous axes of its functions contiguous."""
    f, g = pair
    along = any(axis.strides[n] == 1 for axis in gone for n in pair)
    axes = [*gone, *kept] if along else [*kept, *gone]
    step, own = 1, []
    strides: dict[int, int] = {}
    for axis in axes:
        if axis.strides[f] or axis.strides[g]:
            own.append(Axis(axis.size, (axis.strides[f], axis.strides[g], step)))
            strides[id(axis)] = step
            step *= axis.size
    result = cupy().empty(step, dtype=operation.dtype)
    _run([values[f], values[g]], merged(own), [], result, operation)

    def changed(axis: Axis) -> Axis:
        rest = [s for number, s in enumerate(axis.strides) if number not in pair]
        return Axis(axis.size, (*rest[:-1], strides.get(id(axis), 0), rest[-1]))

    rest = [v for number, v in enumerate(values) if number not in pair]
    return [*rest, result], merged([changed(a) for a in kept]), merged([changed(a) for a in gone])


def _part(kept: list[Axis], gone: list[Axis], is_product: bool) -> tuple[int, int] | None:
    """An eliminated axis and the number of its values to eliminate first, if a second step pays off."""
    if not gone:
        return None
    largest = max(range(len(gone)), key=lambda n: gone[n].size)
    if is_product and cells(gone) > MOST_SHARED:
        return largest, largest_divisor(gone[largest].size, MOST_SHARED)
    few = cells(kept) < FEW_CELLS and cells(gone) > MANY_ELIMINATED
    # Tiles that also read along the eliminated axis would hold only a few cells.
    along = not is_product and any(s == 1 for s in gone[0].strides) and gone[0].size > LONG_INNER
    if not few and not along:
        return None
    number = 0 if along else largest
    size = gone[number].size
    first = largest_divisor(size, LONG_INNER if along else MANY_ELIMINATED)
    return (number, first) if 1 < first < size or (first == size and len(gone) > 1 and few) else None


def _in_parts(
    values: list[Any], kept: list[Axis], gone: list[Axis], part: tuple[int, int], operation: CellOperation
) -> Any:
    """Eliminate some values of one axis, then the rest from the partial results."""
    number, first = part
    inner, outer = gone[number].cut(first)
    later = [axis for place, axis in enumerate(gone) if place != number] + ([outer] if outer.size > 1 else [])
    result_cells, step = cells(kept), cells(kept)
    waiting = []
    for axis in later:
        waiting.append(Axis(axis.size, (*axis.strides[:-1], step)))
        step *= axis.size
    partial = _eliminate(values, [*kept, *waiting], [inner.without_result()], operation)
    flat = [Axis(result_cells, (1, 1))] if result_cells > 1 else []
    return _eliminate([partial], flat, [Axis(step // result_cells, (result_cells, 0))], operation)


def _run(values: list[Any], kept: list[Axis], gone: list[Axis], out: Any, operation: CellOperation) -> None:
    """One launch of the kernel with one thread per result cell."""
    bucket = _Tiles.of(kept, gone, len(values), operation.dtype.itemsize)
    place_bytes = (len(values) + 2) * 8
    busy = 4 * multiprocessors(cupy().cuda.runtime.getDevice())
    batch = max(1, min(bucket.threads, -(-bucket.high_cells // busy), (6 << 10) // place_bytes))
    blocks = min(-(-bucket.high_cells // batch), 4 * busy)
    definitions = {"FUNCTIONS": len(values), "CELLS": bucket.cells_a_thread, "STAGED": int(bucket.is_staged)}
    function = kernel("complete", "eliminate", **operation.definitions, **definitions)
    room_bytes = bucket.staged_values * operation.dtype.itemsize + 16 * len(values)  # each function's buffer is aligned
    pointers = np.array([v.data.ptr for v in values], dtype=np.uint64)
    launch(
        function, blocks, bucket.threads,
        pointers, cupy().asarray(bucket.plan), batch, out,
        operation.infeasible, operation.limit,
        shared_bytes=batch * place_bytes + 16 + 2 * room_bytes,
    )  # fmt: skip


@dataclass(frozen=True)
class _Tiles:
    """A bucket in the form of :file:`complete.cu`, which describes ``plan``, int64; ``high_cells`` counts its tiles.
    ``threads`` and ``cells_a_thread`` are those of a block. ``is_staged`` tells whether functions are read through
    shared memory, and ``staged_values`` is its size in values."""

    plan: NDArray[np.int64]
    high_cells: int
    threads: int
    cells_a_thread: int
    is_staged: bool
    staged_values: int

    @classmethod
    def of(cls, kept: list[Axis], gone: list[Axis], functions: int, itemsize: int) -> _Tiles:
        """Tiles of a bucket's result."""
        inner, *outer = near_first(gone, functions) if gone else [Axis(1, (0,) * (functions + 1))]
        along = [f for f in range(functions) if inner.size > 1 and inner.strides[f] == 1] if not outer else []
        room = STAGED_BYTES // itemsize // max(1, len(along)) // inner.size if along else TILE_CELLS
        busy = 2 * multiprocessors(cupy().cuda.runtime.getDevice())
        wanted = min(TILE_CELLS, max(LEAST_TILE_CELLS, cells(kept) // busy), max(32, room))
        low, high, chunk, whole = _cut(kept, wanted, functions)
        low_cells = cells(low)
        staged, cut = _staged(low, inner, along, bool(whole))
        staged_values = sum(n * (chunk if c else 1) for n, c in zip(staged, cut, strict=True))
        if staged_values * itemsize > STAGED_BYTES:
            staged, cut, staged_values = [0] * functions, [0] * functions, 0
        head = [
            len(low), len(high), len(outer), low_cells, cells(high), cells(outer), inner.size,
            low_cells // chunk, chunk, whole,
        ]  # fmt: skip
        plan = [
            *head,
            *_described(low, functions),
            *_described(high, functions + 1),
            *_described(outer, functions),
            *inner.strides[:functions],
            *staged,
            *cut,
        ]
        cells_a_thread = 1 if low_cells <= 128 else 2 if low_cells <= 512 else 4
        threads = min(THREADS, -(-low_cells // cells_a_thread // 32) * 32)
        return cls(
            np.array(plan, dtype=np.int64), head[4], max(32, threads), cells_a_thread, staged_values > 0, staged_values
        )


def is_near(axes: Sequence[Axis], functions: int) -> bool:
    """Whether offsets within each function along some axes have 32 bits in total."""
    return all(sum((axis.size - 1) * axis.strides[f] for axis in axes) < MOST_CELLS for f in range(functions))


def near_first(gone: list[Axis], functions: int) -> list[Axis]:
    """Eliminated axes, the first one with offsets of 32 bits: split if necessary."""
    inner, *outer = gone
    if is_near([inner], functions) and inner.size < MOST_CELLS:
        return gone
    farthest = max(1, *inner.strides[:functions])
    near = largest_divisor(inner.size, min(MOST_CELLS - 1, (MOST_CELLS - 1) // farthest + 1))
    return [*inner.cut(near), *outer]


def _described(axes: list[Axis], arrays: int) -> list[int]:
    """Sizes, and for each array its strides."""
    return [axis.size for axis in axes] + [axis.strides[f] for f in range(arrays) for axis in axes]


def _cut(kept: list[Axis], wanted: int, functions: int) -> tuple[list[Axis], list[Axis], int, int]:
    """Low and high axes, the values of the last low axis in a tile, and its total values if it was cut, otherwise 0."""
    low: list[Axis] = []
    taken = 1
    for number, axis in enumerate(kept):
        room = wanted // taken
        first, rest = axis.cut(min(room, axis.size))
        if not is_near([*low, first], functions):
            return low, kept[number:], 1, 0
        if axis.size <= room:
            low.append(axis)
            taken *= axis.size
            continue
        if room < 2 or (taken >= LEAST_TILE_CELLS and 2 * taken > wanted):
            return low, kept[number:], 1, 0
        return [*low, first], [rest, *kept[number + 1 :]], room, axis.size
    return low, [], 1, 0


def _staged(low: list[Axis], inner: Axis, along: list[int], is_cut: bool) -> tuple[list[int], list[int]]:
    """For each function the number of values that a tile reads, if they are contiguous, without the cut axis; whether
    it has that axis."""
    functions = len(inner.strides) - 1
    staged, cut = [0] * functions, [0] * functions
    for f in along:
        step = inner.size
        for axis in low:
            if axis.strides[f] == 0:
                continue
            if axis.strides[f] != step:
                break
            step *= axis.size
        else:
            has_cut = is_cut and low[-1].strides[f] > 0
            staged[f], cut[f] = step // (low[-1].size if has_cut else 1), int(has_cut)
    return staged, cut
