"""One complete table reduced, or multiplied by a smaller one, in its memory order, at the speed of reading it.

These are the reduction and the scattering of junction trees (Bistaffa, Farinelli and Bombieri, algorithm 2), and the
last step of a bucket eliminated in parts. The threads of a block read runs of the table's first axes, contiguously for
any result axes; the cells of a run that contribute to the same result are reduced at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.bucket_axes import Axis, cells, largest_divisor
from oocbe.kernels.cuda.complete.operation import CellOperation
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.model.semiring import Marginalisation

THREADS = 256
"""Threads of a block, as in the source."""

MOST_RUN, LEAST_RUN = 8 * THREADS, THREADS
"""Maximum and minimum cells of a run."""

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
    run, outer = _cut(axes)
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
    low, high = _cut(axes)
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


def _cut(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
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
