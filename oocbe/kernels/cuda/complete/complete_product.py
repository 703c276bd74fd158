"""Buckets of complete functions that are matrix products over a semiring (:file:`complete_product.cu`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.kernels.bucket_axes import Axis, cells, merged
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import Definition, kernel, launch
from oocbe.model.semiring import Combination, Marginalisation

if TYPE_CHECKING:
    from oocbe.kernels.cuda.complete.operation import CellOperation

LEAST_SHARED = 2
"""Minimum eliminated cells for a computation in tiles."""

LEAST_SIDE = 32
"""Minimum rows and columns of the product for well-filled tiles."""

LEAST_RUN, MUCH_SHARED = 8, 32
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
    scattered = best.columns[0].size < LEAST_RUN and cells(gone) < MUCH_SHARED
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
