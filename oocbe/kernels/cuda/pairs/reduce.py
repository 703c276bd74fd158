"""Marginalisation of groups of adjacent rows on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, Definition, kernel, launch
from oocbe.kernels.cuda.pairs.selection import find_tiles, packed_masks

THREADS = 256
"""Threads of a block, as in the source."""

ROWS_A_BLOCK = 4096
"""Rows of a block, as in the source."""


def reduce_groups(
    keys: Any,
    values: Any,
    starts: Any,
    masks: NDArray[np.uint64],
    marginalisation: int,
    piece_rows: int | None = None,
) -> tuple[Any, Any]:
    """One row a group; see :meth:`oocbe.kernels.interface.Backend.reduce_groups`.

    Sums of floats are added in an order that depends on row numbers only: results are reproducible.
    """
    rows, groups = len(values), len(starts) - 1
    out_keys = cupy().empty((len(masks), groups), dtype=np.uint64)
    out_values = cupy().empty(groups, dtype=values.dtype)
    if groups == 0:
        return out_keys, out_values
    blocks = -(-rows // ROWS_A_BLOCK)
    tiles = find_tiles(starts, ROWS_A_BLOCK, blocks)
    carries, carried = cupy().empty(blocks, dtype=values.dtype), cupy().empty(blocks, dtype=np.int64)
    definitions: dict[str, Definition] = {"VALUE": C_TYPES[values.dtype], "MARGINALISATION": int(marginalisation)}
    launch(
        kernel("reduce", "reduce_tiles", **definitions), blocks, THREADS,
        keys, values, rows, starts, groups, packed_masks(masks), len(masks), tiles, out_keys, out_values, carries,
        carried,
    )  # fmt: skip
    warps = -(-blocks // (THREADS // 32))
    function = kernel("reduce", "add_carries", **definitions)
    launch(function, warps, THREADS, carries, carried, blocks, starts, out_values)
    return out_keys, out_values
