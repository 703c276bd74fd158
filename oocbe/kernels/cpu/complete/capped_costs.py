"""Complete tables of costs in fixed point, between 0 and a cap that stands for "never": added in place, and reduced.

A small table is gone through in step with a large one whose variables contain its own. The large one is cut into
*blocks* of neighbouring cells, in all of which the small one's places are the same but for where they begin (*bases*):
they are listed once, in ``inner``. Where the large table's fastest axes are all missing from the small one, or are its
fastest axes as well, they are a *run* that needs no places: its ``step`` is 0 or 1 then, and loops become vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import LARGEST_CALL, SMALLEST_SHARE, run_all, thread_count

BLOCK_CELLS = 1 << 11
"""Cells of a block at least, where the table has so many: their places take 16 KiB."""

LEAST_RUN = 8
"""Cells of a run at least: shorter ones are not worth a loop of their own."""


def add_capped(target: NDArray[Any], part: NDArray[Any], axes: Sequence[tuple[int, int]], cap: int, limit: int) -> None:
    """Add a small table to a large one in place: cells that have been or come to the limit are at the cap afterwards.

    Parameters
    ----------
    target : int32 or int64 (cells,), in 0 to ``cap``. part : of that dtype, in -``cap`` to ``cap``, such that no sum
        is negative.
    axes : of the target, the fastest first: size, and how far apart the part's cells are along it, 0 or what makes it
        contiguous. limit : at most ``cap``, twice which the dtype can hold.

    Raises
    ------
    TimeLimitError : the deadline of the block that this runs in came; some cells have their sums by then.
    """
    walk, number = _walk(axes), target.dtype.type
    count = len(walk.blocks)
    pieces = _pieces(len(target), count)
    cuts = [count * i // pieces for i in range(pieces + 1)]
    arrays = (target, part, *walk.arrays, number(cap), number(limit))
    run_all(_add, [(*arrays, *cut) for cut in pairwise(cuts)])


def least_capped(table: NDArray[Any], axes: Sequence[tuple[int, int]], cells: int, cap: int) -> NDArray[Any]:
    """The least of a large table's cells that agree with each of so many of a small one; as :func:`add_capped`."""
    out = np.full(cells, cap, dtype=table.dtype)
    walk = _walk(axes)
    # Blocks with the same base write to the same cells, others to other cells.
    by_base = np.argsort(walk.bases, kind="stable")
    walk = _Walk(walk.blocks[by_base], walk.bases[by_base], walk.inner, walk.run, walk.step)
    starts = np.append(np.flatnonzero(np.diff(walk.bases, prepend=-1)), len(walk.bases))
    groups = len(starts) - 1
    pieces = _pieces(len(table), groups)
    cuts = [int(starts[groups * i // pieces]) for i in range(pieces + 1)]
    run_all(_lower, [(out, table, *walk.arrays, *cut) for cut in pairwise(cuts)])
    return out


@dataclass(frozen=True)
class _Walk:
    """How a small table is gone through in step with a large one (see the module); fields as in :func:`_add`."""

    blocks: NDArray[np.int64]
    bases: NDArray[np.int64]
    inner: NDArray[np.int64]
    run: int
    step: int

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (self.blocks, self.bases, self.inner, self.run, self.step)


def _pieces(cells: int, most: int) -> int:
    """Into how many calls a pass over so many cells is divided."""
    return max(1, min(most, max(min(thread_count(), cells // SMALLEST_SHARE), cells // LARGEST_CALL)))


def _walk(axes: Sequence[tuple[int, int]]) -> _Walk:
    run, used, along = 1, 0, 0
    if axes:
        along = int(axes[0][1] != 0)
        while used < len(axes) and axes[used][1] == along * run:
            run *= axes[used][0]
            used += 1
    if run < LEAST_RUN:
        run, used, along = 1, 0, 0
    cells, inner = run, np.zeros(1, dtype=np.int64)
    while used < len(axes) and cells < BLOCK_CELLS:
        inner = _further(inner, *axes[used])
        cells *= axes[used][0]
        used += 1
    bases = np.zeros(1, dtype=np.int64)
    for axis in axes[used:]:
        bases = _further(bases, *axis)
    return _Walk(np.arange(len(bases), dtype=np.int64), bases, inner, run, along)


def _further(places: NDArray[np.int64], size: int, step: int) -> NDArray[np.int64]:
    """Places along one more axis, slower than those before."""
    return (np.arange(size, dtype=np.int64)[:, None] * step + places).ravel()


@jit
def _add(
    target: NDArray[Any],
    part: NDArray[Any],
    blocks: NDArray[Any],
    bases: NDArray[Any],
    inner: NDArray[Any],
    run: int,
    step: int,
    cap: Any,
    limit: Any,
    first: int,
    last: int,
) -> None:
    """Add a small table to a large one: cells that have been or come to the limit are at the cap from then on.

    Parameters
    ----------
    target, part, cap, limit : as for :func:`add_capped`, the latter two of the target's dtype.
    blocks, bases : int64, numbers of blocks of the target, and where the part's places begin in each.
    inner : int64 (runs of a block,). run : cells of a run. step : of the part along a run, 0 or 1.
    first, last : places in ``blocks`` to go through.
    """
    count = len(inner)
    for b in range(first, last):
        place, base = blocks[b] * count * run, bases[b]
        if run == 1:
            for i in range(count):
                before = target[place + i]
                now = before + part[base + inner[i]]
                target[place + i] = cap if max(before, now) >= limit else now
        else:
            for i in range(count):
                start, own = place + i * run, base + inner[i]
                if step == 0:
                    more = part[own]
                    for j in range(run):
                        before = target[start + j]
                        target[start + j] = cap if max(before, before + more) >= limit else before + more
                else:
                    for j in range(run):
                        before = target[start + j]
                        now = before + part[own + j]
                        target[start + j] = cap if max(before, now) >= limit else now


@jit
def _lower(
    out: NDArray[Any],
    table: NDArray[Any],
    blocks: NDArray[Any],
    bases: NDArray[Any],
    inner: NDArray[Any],
    run: int,
    step: int,
    first: int,
    last: int,
) -> None:
    """Lower a small table to the least of a large one's cells that agree with each of its own; as :func:`_add`.

    out : (cells of the small table,), of the dtype of ``table``.
    """
    count = len(inner)
    for b in range(first, last):
        place, base = blocks[b] * count * run, bases[b]
        if run == 1:
            for i in range(count):
                own = base + inner[i]
                out[own] = min(out[own], table[place + i])
        else:
            for i in range(count):
                start, own = place + i * run, base + inner[i]
                if step == 0:
                    least = out[own]
                    for j in range(run):
                        least = min(least, table[start + j])
                    out[own] = least
                else:
                    for j in range(run):
                        out[own + j] = min(out[own + j], table[start + j])
