"""Order of a bucket's axes that makes the inner loop contiguous in every function.

The inner loop runs over some of the result's axes, the *run*. It is fast if each function either has all of them, as
contiguous cells, or none: its value is then constant in the run. Other functions are copied (transposed, or repeated
along absent axes), as is the result if its order differs. Candidates for the run are the result's fastest axes, and for
each set of functions the axes of exactly these, in the order of the result and in that of the largest function. The
candidate with the lowest estimated cost is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oocbe.kernels.bucket_axes import Axis, merged
from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.interface import CompleteFunction

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
    best = min((_judge(run, functions, sizes, kept) for run in _runs(functions, sizes, kept)), key=lambda c: c.cost)
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


def _runs(functions: Sequence[CompleteFunction], sizes: Sequence[int], kept: int) -> Iterator[tuple[int, ...]]:
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
