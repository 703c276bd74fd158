"""Marginalisation of groups of adjacent rows on the device, also while other values are looked up for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.buckets.filters import drop_forbidden
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch
from oocbe.kernels.cuda.packing.fields import packed_plans, permute
from oocbe.kernels.cuda.pairs.groups import group_starts
from oocbe.kernels.cuda.pairs.selection import find_tiles, packed_masks
from oocbe.kernels.cuda.pairs.sort import sort_rows
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.model.semiring import Semiring

THREADS = 256
"""Threads of a block, as in the source."""

ROWS_A_BLOCK, LOOKED_UP_A_BLOCK = 4096, 1024
"""Rows of a block, as in the source."""

CACHED_BYTES, PARTITION_BITS = 1 << 25, 8
"""Largest array for which the second-level cache collects writes in any order. For a larger one, rows are partitioned
by so many bits first."""


def reduce_groups(
    keys: Any,
    values: Any,
    starts: Any,
    masks: NDArray[np.uint64],
    marginalisation: int,
    piece_rows: int | None = None,
    looked_up: tuple[Any, ...] = (),
    combination: int = 0,
) -> tuple[Any, Any]:
    """One row a group; see :meth:`oocbe.kernels.interface.Backend.reduce_groups`.

    looked_up : a plan, its moves, and an array: a row's value is combined with the array's at its moved key before.

    Sums of floats are added in an order that depends on row numbers only: results are reproducible.
    """
    rows, groups = len(values), len(starts) - 1
    out_keys = cupy().empty((len(masks), groups), dtype=np.uint64)
    out_values = cupy().empty(groups, dtype=values.dtype)
    if groups == 0:
        return out_keys, out_values
    tile = LOOKED_UP_A_BLOCK if looked_up else ROWS_A_BLOCK
    blocks = -(-rows // tile)
    tiles = find_tiles(starts, tile, blocks)
    carries, carried = cupy().empty(blocks, dtype=values.dtype), cupy().empty(blocks, dtype=np.int64)
    codes = int(marginalisation), int(combination), bool(looked_up)
    launch(
        _kernel("reduce_tiles", values.dtype, *codes), blocks, THREADS,
        keys, values, rows, starts, groups, packed_masks(masks), len(masks), tiles, out_keys, out_values, carries,
        carried, *looked_up,
    )  # fmt: skip
    warps = -(-blocks // (THREADS // 32))
    launch(_kernel("add_carries", values.dtype, *codes), warps, THREADS, carries, carried, blocks, starts, out_values)
    return out_keys, out_values


def _kernel(function: str, dtype: np.dtype[Any], marginalisation: int, combination: int, looks_up: bool) -> Any:
    return kernel(
        "reduce", function, VALUE=C_TYPES[dtype], MARGINALISATION=marginalisation, COMBINATION=combination,
        LOOKUP=int(looks_up),
    )  # fmt: skip


@with_retry
def reduce_looked_up(
    rows: tuple[Any, Any], groups: NDArray[np.uint64], masks: NDArray[np.uint64], part: tuple[Any, Any],
    place: NDArray[np.int64], bits: int, is_complete: bool, is_sorted: bool, semiring: Semiring,
) -> tuple[Any, Any]:  # fmt: skip
    """Join of a table with another one over some of its variables, with groups of adjacent rows marginalised.

    rows, part : keys and values of the tables, all on the device, values of one dtype.
    groups : mask of the key bits that are equal in a group. masks : of the result's words.
    place : moves of the rows' fields to the other table's keys, which differ and have one word and so many bits.
    is_complete, is_sorted : whether the other table has all assignments, and ascending keys.

    Returns keys uint64 (words of ``masks``, groups with a partner) and values.
    Raises ResourceError: device memory ran out.
    """
    keys, values = part
    if not is_complete:
        rows = drop_forbidden(*rows, permute(rows[0], place, 1), keys, bits, keeps=True)
    if not is_sorted and values.dtype.itemsize << bits > CACHED_BYTES:
        keys, values = sort_rows(keys, values, [(0, bits - PARTITION_BITS, PARTITION_BITS)])
    codes = int(semiring.marginalisation), int(semiring.combination)
    cells, blocks = cupy().empty(1 << bits, dtype=values.dtype), -(-len(values) // THREADS)
    write = _kernel("write_cells", values.dtype, *codes, True)
    launch(write, blocks, THREADS, keys, values, len(values), cells)
    starts, looked_up = group_starts(rows[0], groups), (*packed_plans(place)[0], cells)
    return reduce_groups(*rows, starts, masks, codes[0], looked_up=looked_up, combination=codes[1])
