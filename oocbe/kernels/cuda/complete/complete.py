"""Join and elimination of complete tables on the device: choice of the kernel and its arguments.

If two sides share eliminated axes and have result axes of their own, a tile of the result is a matrix product over the
semiring (:file:`complete_product.cu`); otherwise each thread computes a result cell (:file:`complete.cu`). Long
eliminated axes are eliminated in parts first, whose results are kept as separate cells, so that all multiprocessors are
busy.

One table reduced, or multiplied by a smaller one, is read in its memory order (:file:`complete_runs.cu`), at the speed
of reading it: the reduction and the scattering of junction trees (Bistaffa, Farinelli and Bombieri, algorithm 2), and
the last step of a bucket eliminated in parts. The threads of a block read runs of the table's first axes, contiguously
for any result axes; the cells of a run that contribute to the same result are reduced at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.bucket_axes import Axis, bucket_axes, cells, largest_divisor, merged
from oocbe.kernels.cuda.buckets.flags import pack
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch
from oocbe.kernels.cuda.pairs.selection import counted, empty_bits
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import CompleteFunction
from oocbe.model.infeasible import infeasible_value, largest_feasible
from oocbe.model.semiring import Combination, Marginalisation, Semiring

THREADS = 256
"""Threads of a block, as in the source."""

MOST_RUN, LEAST_RUN = 8 * THREADS, THREADS
"""Maximum and minimum cells of a run: the last axes of a table that one block reads."""

LEAST_CELLS = 1 << 18
"""Minimum cells of a table for which runs repay their plan."""

BLOCKS = 8
"""Blocks per multiprocessor: the number of resident blocks."""

FEW_RESULTS = 64
"""Minimum table cells per result cell: below it the end of a run dominates, and one thread per result cell reads faster
(0.77 of a copy's speed on an H200, where this kernel has 0.47 to 0.67)."""

MOST_AGAIN = 1 << 25
"""Maximum bytes of a smaller function that is read repeatedly, for each value of an outer axis that it lacks: it stays
in the second-level cache."""

MOST_PLACES = 1 << 32
"""Limit of the cells of the smaller function that is multiplied, for 32-bit offsets."""

MOST_GONE = 1 << 31
"""Limit of outer eliminated cells, which have 32-bit numbers."""


def reduce_runs(values: Any, kept: Sequence[Axis], gone: Sequence[Axis], operation: CellOperation) -> Any:
    """A table's cells marginalised over some axes; None if the kernel does not suit the table.

    kept, gone : axes with strides in the table and in the result, the latter 0 for eliminated ones.

    Returns (parts, result cells), in the order of the result's strides; the parts remain to be marginalised.
    """
    axes = _as_it_lies([*kept, *gone])
    if axes is None or operation.marginalisation == Marginalisation.LOG_SUM_EXP or not gone:
        return None
    if cells(kept) * FEW_RESULTS > cells(axes):
        return None
    run, outer = _run_and_outer(axes)
    # One thread per result cell reads up to three times as fast if all eliminated axes come last.
    if cells(run) < LEAST_RUN or (len(axes) == 2 and axes[0].strides[-1]):
        return None
    outer_kept = [axis for axis in outer if axis.strides[-1]]
    outer_gone = [axis for axis in outer if not axis.strides[-1]]
    kept_runs, gone_runs = cells(outer_kept), cells(outer_gone)
    if gone_runs >= MOST_GONE:
        return None
    steps, step = [], 1
    for axis in run:
        steps.append(step)
        step *= axis.size
    own = [(axis.size, place, axis.strides[-1]) for axis, place in zip(run, steps, strict=True)]
    kept_places = _places([(size, place) for size, place, out in own if out])
    out_places = _places([(size, out) for size, _, out in own if out])
    gone_places = _places([(size, place) for size, place, out in own if not out])
    busy = BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice())
    slices = max(1, min(gone_runs, -(-busy // kept_runs)))
    result = cells(kept)
    is_next = bool((out_places == np.arange(len(out_places))).all())
    plan = [
        cells(run), len(kept_places), len(gone_places), int(is_next), len(outer_kept), len(outer_gone),
        kept_runs, gone_runs, slices, result,
        *kept_places.tolist(), *out_places.tolist(), *gone_places.tolist(),
        *(axis.size for axis in outer_kept),
        *(axis.strides[0] for axis in outer_kept),
        *(axis.strides[-1] for axis in outer_kept),
        *(axis.size for axis in outer_gone),
        *(axis.strides[0] for axis in outer_gone),
    ]  # fmt: skip
    out = cupy().empty((slices, result), dtype=operation.dtype)
    function = kernel("complete_runs", "reduce_runs", **operation.definitions, CELLS=_cells_a_thread(cells(run)))
    launch(function, min(kept_runs * slices, busy), THREADS, values, cupy().array(plan, dtype=np.int64), out)
    return out


def scatter_cells(values: Sequence[Any], kept: Sequence[Axis], operation: CellOperation) -> Any:
    """Join of two functions, one with all result cells in order, else None; ``kept``: axes with all strides."""
    whole = [number for number in (0, 1) if all(axis.strides[number] == axis.strides[-1] for axis in kept)]
    if not whole:
        return None
    table, other = whole[0], 1 - whole[0]
    axes = _as_it_lies(kept, table)
    if axes is None:
        return None
    low, high = _run_and_outer(axes)
    if cells(low) < LEAST_RUN:
        return None
    is_again = values[other].nbytes > MOST_AGAIN and any(axis.strides[other] == 0 for axis in high)
    if is_again or len(values[other]) >= MOST_PLACES:
        return None
    plan = [
        cells(low), len(low), len(high), cells(high),
        *(axis.size for axis in low), *(axis.strides[other] for axis in low),
        *(axis.size for axis in high), *(axis.strides[other] for axis in high),
    ]  # fmt: skip
    out = cupy().empty(cells(kept), dtype=operation.dtype)
    busy = BLOCKS * multiprocessors(cupy().cuda.runtime.getDevice())
    function = kernel("complete_runs", "scatter_cells", **operation.definitions, CELLS=_cells_a_thread(MOST_RUN))
    launch(
        function, min(-(-cells(kept) // MOST_RUN), busy), THREADS,
        values[table], values[other], cupy().array(plan, dtype=np.int64), out, operation.infeasible, operation.limit,
    )  # fmt: skip
    return out


def _as_it_lies(axes: Sequence[Axis], number: int = 0) -> list[Axis] | None:
    """Axes in memory order of a function; None if its cells are few, or not contiguous."""
    ordered = sorted(axes, key=lambda axis: axis.strides[number])
    step = 1
    for axis in ordered:
        if axis.strides[number] != step:
            return None
        step *= axis.size
    return ordered if step >= LEAST_CELLS else None


def _run_and_outer(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes of a run and the outer axes; one axis may be split."""
    low: list[Axis] = []
    taken = 1
    for number, axis in enumerate(axes):
        if taken * axis.size <= MOST_RUN:
            low.append(axis)
            taken *= axis.size
            continue
        part = largest_divisor(axis.size, MOST_RUN // taken)
        if part == 1:
            return low, list(axes[number:])
        first, rest = axis.cut(part)
        return [*low, first], [rest, *axes[number + 1 :]]
    return low, []


def _places(axes: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Offsets of the cells of some axes, (size, stride) each, the first axis fastest."""
    places = np.zeros(1, dtype=np.int64)
    for size, stride in axes:
        places = (np.arange(size, dtype=np.int64)[:, None] * stride + places[None, :]).ravel()
    return places


def _cells_a_thread(run: int) -> int:
    """Cells per thread for a run; at most 8."""
    return -(-run // THREADS)


LEAST_SHARED = 2
"""Minimum eliminated cells for a computation in tiles."""

LEAST_SIDE = 32
"""Minimum rows and columns of the product for well-filled tiles."""

LEAST_CONTIGUOUS, MUCH_SHARED = 8, 32
"""Minimum contiguous results: shorter runs are written piecemeal, which only many eliminated cells repay."""

LARGE_TILE, SMALL_TILE = 128, 64
"""Rows or columns of a tile, in words; the small tile is used for sides that fit it."""

MOST_OF_A_SIDE = 4
"""Maximum number of functions of one side."""

MOST_BATCHES, BLOCKS_A_MULTIPROCESSOR = 32, 32
"""Maximum batch cells of a block, and minimum number of blocks per multiprocessor: blocks loop over batch cells only
beyond that number."""

SLICE, MOST_SHARED = 8, 512
"""Maximum eliminated cells in shared memory at a time, and in total."""

VALUES_A_THREAD = 64
"""Results of a thread in 32-bit words; half as many for 64-bit values."""


@dataclass(frozen=True)
class Product:
    """A bucket as a product of two sides.

    left, right : numbers of the functions of each side.
    batch, rows, columns, shared : axes of both sides and the result, of the left side and the result, of the right side
        and the result, and of both sides but not the result.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    batch: list[Axis]
    rows: list[Axis]
    columns: list[Axis]
    shared: list[Axis]


def find_product(kept: Sequence[Axis], gone: Sequence[Axis], operation: CellOperation) -> Product | None:
    """The bucket as the product with the most rows and columns; None if it is too small, or no product."""
    is_sum = operation.combination == Combination.ADD
    possible = (
        operation.marginalisation in (Marginalisation.MIN, Marginalisation.MAX)
        if is_sum
        else operation.marginalisation in (Marginalisation.MAX, Marginalisation.SUM)
    )
    if not possible or not kept or cells(gone) < LEAST_SHARED:
        return None
    functions = len(kept[0].strides) - 1
    pairs = [(f, g) for f in range(functions) for g in range(functions) if f != g]
    best = max(
        (found for f, g in pairs if (found := _sides(kept, gone, f, g)) is not None),
        key=lambda found: min(cells(found.rows), cells(found.columns)),
        default=None,
    )
    if best is None or min(cells(best.rows), cells(best.columns)) < LEAST_SIDE:
        return None
    scattered = best.columns[0].size < LEAST_CONTIGUOUS and cells(gone) < MUCH_SHARED
    return None if scattered else best


def _sides(kept: Sequence[Axis], gone: Sequence[Axis], f: int, g: int) -> Product | None:
    """Function f on the left and g on the right; None unless the result's fastest axis is the right side's alone."""
    sides = ["batch"] * len(kept)
    for number, axis in enumerate(kept):
        if axis.strides[f] and not axis.strides[g]:
            sides[number] = "row"
        elif axis.strides[g] and not axis.strides[f]:
            sides[number] = "column"
    functions = len(kept[0].strides) - 1
    left, right = [f], [g]
    for other in range(functions):
        if other in (f, g):
            continue
        touched = {
            side: [n for n, axis in enumerate(kept) if sides[n] == side and axis.strides[other]]
            for side in ("row", "column")
        }
        if touched["row"] and touched["column"]:
            spare = min(("row", "column"), key=lambda side: cells([kept[n] for n in touched[side]]))
            for number in touched.pop(spare):
                sides[number] = "batch"
            (left if spare == "column" else right).append(other)
        else:
            # A function of neither joins the side with fewer functions.
            to_left = bool(touched["row"]) or (not touched["column"] and len(left) <= len(right))
            (left if to_left else right).append(other)
    if sides[0] != "column" or max(len(left), len(right)) > MOST_OF_A_SIDE:
        return None

    def of(side: str) -> list[Axis]:
        return merged([axis for axis, found in zip(kept, sides, strict=True) if found == side])

    return Product(tuple(left), tuple(right), of("batch"), of("row"), of("column"), list(gone))


def multiply(product: Product, values: Sequence[Any], out: Any, operation: CellOperation) -> None:
    """Compute a product's result ``out`` (result cells,), from the values of each function."""
    dtype = operation.dtype
    order, result = (*product.left, *product.right), len(values)
    groups = [
        (product.batch, (*order, result)),
        (product.rows, (*product.left, result)),
        (product.columns, (*product.right, result)),
        (product.shared, order),
    ]
    plan = [len(axes) for axes, _ in groups] + [cells(axes) for axes, _ in groups]
    for axes, arrays in groups:
        plan += [axis.size for axis in axes] + [axis.strides[f] for f in arrays for axis in axes]
    tile_rows = LARGE_TILE if cells(product.rows) > SMALL_TILE else SMALL_TILE
    packed = dtype.itemsize == 2 and operation.combination == Combination.ADD
    words = LARGE_TILE if cells(product.columns) > (LARGE_TILE if packed else SMALL_TILE) else SMALL_TILE
    if dtype.itemsize == 8:
        words = SMALL_TILE  # twice the registers a value
    tile_columns = words * (2 if packed else 1)
    threads = tile_rows * words // (VALUES_A_THREAD // (2 if dtype.itemsize == 8 else 1))
    shared = cells(product.shared)
    definitions: dict[str, Definition] = {
        **operation.definitions,
        "VALUE_BITS": 8 * dtype.itemsize,
        "VALUE_FLOATS": int(dtype.kind == "f"),
        "LEFTS": len(product.left),
        "RIGHTS": len(product.right),
        # The minimum number of slices, of equal size.
        "SLICE": -(-shared // -(-shared // SLICE)),
        "TILE_ROWS": tile_rows,
        "TILE_COLUMNS": tile_columns,
        "LEFT_ALONG": _is_along(product.shared, product.left),
        "RIGHT_ALONG": _is_along(product.shared, product.right),
    }
    tiles = -(-cells(product.rows) // tile_rows) * -(-cells(product.columns) // tile_columns)
    busy = BLOCKS_A_MULTIPROCESSOR * multiprocessors(cupy().cuda.runtime.getDevice())
    batches = max(1, min(MOST_BATCHES, cells(product.batch) * tiles // busy))
    blocks = -(-cells(product.batch) // batches) * tiles
    pointers = np.array([values[f].data.ptr for f in order], dtype=np.uint64)
    multiplies = operation.combination == Combination.MULTIPLY
    # The semiring's zero on the left, combined with a value of 0 on the right, changes no result.
    absent = dtype.type(0) if multiplies else operation.infeasible
    launch(
        kernel("complete_product", "multiply", **definitions), blocks, threads,
        pointers, cupy().asarray(np.array(plan, dtype=np.int64)), batches, out, absent, absent,
        operation.infeasible, operation.limit,
    )  # fmt: skip


def _is_along(shared: Sequence[Axis], side: Sequence[int]) -> int:
    """Whether the shared axis is contiguous in memory."""
    return int(bool(shared) and any(shared[0].strides[f] == 1 for f in side))


@dataclass(frozen=True)
class CellOperation:
    """A semiring's operations on values of a dtype.

    combination, marginalisation : codes of :mod:`oocbe.model.semiring`. dtype : of all values.
    infeasible, limit : scalars of the dtype; see :mod:`oocbe.model.infeasible`. limit 0: no limit.
    """

    combination: int
    marginalisation: int
    dtype: np.dtype[Any]
    infeasible: Any
    limit: Any

    @classmethod
    def of(cls, combination: int, marginalisation: int, dtype: np.dtype[Any]) -> CellOperation:
        """The operation of a semiring on a dtype."""
        sums = dtype.kind == "i" and combination == Combination.ADD
        infeasible = infeasible_value(dtype, combination, marginalisation)
        limit = dtype.type(largest_feasible(dtype) if sums else 0)
        return cls(int(combination), int(marginalisation), dtype, infeasible, limit)

    @property
    def definitions(self) -> dict[str, Definition]:
        """Compile-time definitions of the kernels of complete tables."""
        return {
            "VALUE": "short" if self.dtype.itemsize == 2 else C_TYPES[self.dtype],
            "COMBINATION": self.combination,
            "MARGINALISATION": self.marginalisation,
        }


MOST_FUNCTIONS = 8
"""Maximum number of functions of one launch."""

MANY_USES = 64
"""Minimum uses of each value of a join for which functions are joined beforehand."""

MOST_CELLS = 1 << 32
"""Maximum cells of a product's functions. Outside products they may be larger: only the cells of a tile, and the values
of the inner eliminated axis, have offsets of 32 bits."""

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


UNITS = 4
"""Cells per thread, as in the source."""

UNLIKE, AT_MOST, AT_LEAST = range(3)
"""Codes of the tests for feasible values, as in the source."""


def cells_of_rows(keys: Any, values: Any, fields: NDArray[np.int64], cells: int, semiring: Semiring) -> Any:
    """Values of a complete table (cells,) with the rows' values, infeasible elsewhere.

    keys : uint64 (words, rows). values : (rows,). fields : as for
        :func:`oocbe.kernels.cpu.complete.complete_copy.cells_of_rows`.
    """
    rows = len(values)
    filler = infeasible_value(values.dtype, semiring.combination, semiring.marginalisation)
    out = cupy().full(cells, filler, dtype=values.dtype)
    word, shift, bits, step = fields.T.astype(np.uint64)
    masks = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)
    buffer, places = pack([word, shift, masks, step])
    described = [int(buffer.data.ptr) + 8 * place for place in places]
    arguments = (keys, values, rows, *described, len(fields), out)
    launch(_kernel("write_rows", values), -(-rows // THREADS), THREADS, *arguments)
    return out


def rows_of_cells(
    values: Any, sizes: NDArray[np.int64], steps: NDArray[np.int64], places: NDArray[np.int64], semiring: Semiring
) -> tuple[Any, Any]:
    """Keys uint64 (words, rows), ascending, and values (rows,) of the feasible cells.

    values : (cells,), in any order of the variables.
    sizes, steps : int64 (variables,), domain sizes and strides in cells, the least significant variable first.
    places : int64 (variables, 2), word and shift of each variable's field, the words in ascending order.
    """
    codes = (semiring.combination, semiring.marginalisation)
    function = CompleteFunction(values, tuple(steps.tolist()))
    ordered = eliminate_complete([function], sizes.tolist(), 0, *codes, values.dtype)
    cells, words = len(ordered), int(places[-1, 0]) + 1 if len(places) else 1
    bits = empty_bits(cells)
    blocks = -(-cells // (THREADS * UNITS))
    launch(_kernel("mark_feasible", values), blocks, THREADS, ordered, cells, *_test(values.dtype, semiring), bits)
    marked = counted(bits, cells)
    keys = cupy().empty((words, marked.count), dtype=np.uint64)
    kept = cupy().empty(marked.count, dtype=values.dtype)
    buffer, at = pack([sizes, places[:, 0], places[:, 1]])
    described = [int(buffer.data.ptr) + 8 * place for place in at]
    launch(
        _kernel("list_cells", values), blocks, THREADS,
        ordered, cells, bits, marked.before, marked.count, *described, len(sizes), words, keys, kept,
    )  # fmt: skip
    return keys, kept


@with_retry
def count_feasible(values: Any, semiring: Semiring) -> int:
    """Number of feasible values (cells,) of a complete table."""
    count = cupy().zeros(1, dtype=np.uint64)
    busy = 8 * multiprocessors(cupy().cuda.runtime.getDevice())
    blocks = min(busy, -(-len(values) // (THREADS * UNITS)))
    arguments = (values, len(values), *_test(values.dtype, semiring), count)
    launch(_kernel("count_feasible", values), blocks, THREADS, *arguments)
    return int(count[0])


def _test(dtype: np.dtype[Any], semiring: Semiring) -> tuple[int, Any]:
    """Test for feasible values of a dtype, and its reference value; see :mod:`oocbe.model.infeasible`."""
    if semiring.combination is Combination.MULTIPLY or dtype.kind == "f":
        return UNLIKE, infeasible_value(dtype, semiring.combination, semiring.marginalisation)
    limit = largest_feasible(dtype)
    if semiring.marginalisation is Marginalisation.MIN:
        return AT_MOST, dtype.type(limit)
    return AT_LEAST, dtype.type(-limit)


def _kernel(name: str, values: Any) -> Any:
    return kernel("complete_rows", name, VALUE="short" if values.dtype.itemsize == 2 else C_TYPES[values.dtype])
