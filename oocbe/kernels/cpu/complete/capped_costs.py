"""Complete tables of costs in fixed point, between 0 and a cap for forbidden cells: addition in place, and reduction.

A small table is traversed in step with a large one whose variables include its own. The large one is split into
*blocks* of adjacent cells. The matching cells of the small one have the same relative positions in all blocks, listed
once in ``inner``, and differ in their start (*bases*). If the large table's fastest axes are all absent from the small
one, or are its fastest axes too, they form a *run* without positions: its ``step`` is 0 or 1, and loops are vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.threads import LARGEST_CALL, SMALLEST_SHARE, run_all, thread_count

BLOCK_CELLS = 1 << 11
"""Minimum cells of a block, if the table is large enough: its positions take 16 KiB."""

LEAST_RUN = 8
"""Minimum cells of a run: shorter runs do not pay for a loop of their own."""


def add_capped(target: NDArray[Any], part: NDArray[Any], axes: Sequence[tuple[int, int]], cap: int, limit: int) -> None:
    """Add a small table to a large one in place; cells at or above the limit, before or after, are set to the cap.

    target : int32 or int64 (cells,), in 0 to ``cap``. part : of that dtype, in -``cap`` to ``cap``, such that no sum
        is negative.
    axes : of the target, the fastest first: size, and stride of the part along it (0, or contiguous). limit : at most
        ``cap``; the dtype holds twice the cap.
    Raises TimeLimitError: the deadline of the enclosing block came; some cells are then already updated.
    """
    walk, number = _walk(axes), target.dtype.type
    count = len(walk.blocks)
    pieces = _pieces(len(target), count)
    cuts = [count * i // pieces for i in range(pieces + 1)]
    arrays = (target, part, *walk, number(cap), number(limit))
    run_all(_add, [(*arrays, *cut) for cut in pairwise(cuts)])


def least_capped(table: NDArray[Any], axes: Sequence[tuple[int, int]], cells: int, cap: int) -> NDArray[Any]:
    """Minima of a large table's cells that match each of ``cells`` cells of a small one; as :func:`add_capped`."""
    out = np.full(cells, cap, dtype=table.dtype)
    walk = _walk(axes)
    # Blocks with the same base write to the same cells, others to disjoint ones.
    by_base = np.argsort(walk.bases, kind="stable")
    walk = walk._replace(blocks=walk.blocks[by_base], bases=walk.bases[by_base])
    starts = np.append(np.flatnonzero(np.diff(walk.bases, prepend=-1)), len(walk.bases))
    groups = len(starts) - 1
    pieces = _pieces(len(table), groups)
    cuts = [int(starts[groups * i // pieces]) for i in range(pieces + 1)]
    run_all(_lower, [(out, table, *walk, *cut) for cut in pairwise(cuts)])
    return out


class _Traversal(NamedTuple):
    """Joint traversal of a small and a large table (see the module); fields as in :func:`_add`."""

    blocks: NDArray[np.int64]
    bases: NDArray[np.int64]
    inner: NDArray[np.int64]
    run: int
    step: int


def _pieces(cells: int, most: int) -> int:
    """Number of calls for a pass over ``cells`` cells, at most ``most``."""
    return max(1, min(most, max(min(thread_count(), cells // SMALLEST_SHARE), cells // LARGEST_CALL)))


def _walk(axes: Sequence[tuple[int, int]]) -> _Traversal:
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
    return _Traversal(np.arange(len(bases), dtype=np.int64), bases, inner, run, along)


def _further(places: NDArray[np.int64], size: int, step: int) -> NDArray[np.int64]:
    """Positions along one more, slower axis."""
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
    """Add a small table to a large one; cells at or above the limit, before or after, are set to the cap.

    target, part, cap, limit : as for :func:`add_capped`, the latter two of the target's dtype.
    blocks, bases : int64, numbers of blocks of the target, and start of the part's positions in each.
    inner : int64 (runs of a block,). run : cells of a run. step : of the part along a run, 0 or 1.
    first, last : range of indices in ``blocks``.
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
    """Lower ``out``, a small table of the same dtype, to minima of a large one's matching cells; as :func:`_add`."""
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
