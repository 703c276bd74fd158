"""Copy a complete function into another axis order, or repeat it along absent axes: a tiled transposition.

The target is written run by run, each a stretch of contiguous cells. Runs are taken in the memory order of their
sources, so that a cache line read for one run is still cached when the next run needs an adjacent cell; tiles are small
enough for these lines to fit the second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.native import array_at
from oocbe.kernels.cpu.threads import run_all, tiled_ranges
from oocbe.kernels.interface import CompleteFunction

LEAST_RUN = 64
"""Minimum cells of a run, if the table is large enough: small axes are merged until then."""

TILE_CELLS = 1 << 11
"""Cells of a run that are copied at a time; their cache lines, if all are different, take 128 KiB."""

CONTIGUOUS = 8
"""Minimum contiguous cells in the source for a run to be copied in stretches."""


def copy_function(function: CompleteFunction, sizes: Sequence[int]) -> NDArray[Any]:
    """The function's values over all axes, contiguous, the first axis fastest; of its dtype.

    sizes : of the axes, in the target order; ``function.strides`` has 0 for axes along which the function is repeated.
    """
    axes = [(n, s) for n, s in zip(sizes, function.strides, strict=True) if n > 1]
    out = np.empty(math.prod(sizes), dtype=function.values.dtype)
    run, inner = 1, 0
    while inner < len(axes) and run < LEAST_RUN:
        run *= axes[inner][0]
        inner += 1
    places = np.zeros(1, dtype=np.int64)
    along = axes[0][1] if inner == 1 else 0  # one axis: all tiles share the positions of the first one
    for n, s in [(min(TILE_CELLS, run), along)] if inner == 1 else axes[:inner]:
        places = (np.arange(n, dtype=np.int64)[:, None] * s + places[None, :]).ravel()
    steps, step = [], run
    for n, s in axes[inner:]:
        steps.append((s, n, step))
        step *= n
    outer = np.array(sorted(steps), dtype=np.int64).reshape(-1, 3)
    stretch = axes[0][0] if axes and axes[0][1] == 1 and axes[0][0] >= CONTIGUOUS else 1
    runs = len(out) // run
    source = (function.values.ctypes.data, len(function.values))
    arrays = (*source, places, along, outer, stretch, run, out)
    calls = [(*arrays, *piece) for piece in tiled_ranges(run, TILE_CELLS, runs)]
    run_all(_copy_runs, calls)
    return out


@jit
def _copy_runs(
    address: int,
    length: int,
    places: NDArray[np.int64],
    along: int,
    outer: NDArray[np.int64],
    stretch: int,
    run: int,
    out: NDArray[Any],
    begin: int,
    end: int,
    first: int,
    last: int,
) -> None:
    """Cells ``begin`` to ``end`` of the runs ``first`` to ``last``, tile by tile.

    places : int64, positions of a run's cells in the source; if ``along`` is nonzero, those of its first tile.
    along : stride of a run's cells if it has one axis; otherwise 0.
    outer : int64 (outer axes, 3), stride in the source, size, and stride in the target; the first one changes fastest.
    """
    source = array_at(address, 0, length, out)
    axes = len(outer)
    digits = np.zeros(axes, dtype=np.int64)
    for low in range(begin, end, TILE_CELLS):
        high = min(end, low + TILE_CELLS)
        where = places[: high - low] if along else places[low:high]
        rest, base, target = first, low * along, low
        for axis in range(axes):
            rest, digits[axis] = divmod(rest, outer[axis, 1])
            base += digits[axis] * outer[axis, 0]
            target += digits[axis] * outer[axis, 2]
        for _ in range(first, last):
            into = out[target : target + high - low]
            if stretch == 1:
                for i in range(len(into)):
                    into[i] = source[base + where[i]]
            else:
                i = 0
                while i < len(into):
                    many = min(stretch - (low + i) % stretch, len(into) - i)
                    begins = base + where[i]
                    piece, origin = into[i : i + many], source[begins : begins + many]
                    for j in range(many):
                        piece[j] = origin[j]
                    i += many
            for axis in range(axes):  # next run: increment with carry
                base += outer[axis, 0]
                target += outer[axis, 2]
                digits[axis] += 1
                if digits[axis] < outer[axis, 1]:
                    break
                base -= outer[axis, 0] * outer[axis, 1]
                target -= outer[axis, 2] * outer[axis, 1]
                digits[axis] = 0
