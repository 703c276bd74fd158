"""Axes of a bucket of complete functions: those of equal memory order in all are merged, large ones split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Axis:
    """An axis of a bucket: ``size``, and strides in the functions and, last, if wanted, the result (0: eliminated)."""

    size: int
    strides: tuple[int, ...]

    def cut(self, low: int) -> tuple[Axis, Axis]:
        """Split the axis in two, the first of ``low`` values; the second one's last step may exceed the end."""
        return Axis(low, self.strides), Axis(-(-self.size // low), tuple(stride * low for stride in self.strides))

    def without_result(self) -> Axis:
        """The axis as an eliminated axis."""
        return Axis(self.size, (*self.strides[:-1], 0))


def bucket_axes(
    strides: Sequence[Sequence[int]], sizes: Sequence[int], eliminated: int
) -> tuple[list[Axis], list[Axis]]:
    """Axes of the result, fastest first, and eliminated axes; neighbours contiguous in all functions are merged.

    strides : for each function, its stride along each axis.
    sizes, eliminated : as in :meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`.
    """
    kept_count = len(sizes) - eliminated
    kept, step = [], 1
    for axis, size in enumerate(sizes[:kept_count]):
        kept.append(Axis(size, (*(row[axis] for row in strides), step)))
        step *= size
    gone = [Axis(sizes[a], (*(row[a] for row in strides), 0)) for a in range(kept_count, len(sizes))]
    # Eliminated axes may be reordered: the order of the function with most of them merges best.
    gone.sort(key=lambda axis: (sum(s == 0 for s in axis.strides), [s for s in axis.strides if s]))
    return merged(kept), merged(gone)


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Axes with each pair of neighbours merged if the second continues the first in all functions."""
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        last = found[-1] if found else None
        if last is not None and all(b == a * last.size for a, b in zip(last.strides, axis.strides, strict=True)):
            found[-1] = Axis(last.size * axis.size, last.strides)
        else:
            found.append(axis)
    return found


def cells(axes: Sequence[Axis]) -> int:
    """Number of cells that some axes span."""
    return prod(axis.size for axis in axes)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of at most ``most``."""
    return next(d for d in range(min(number, most), 0, -1) if number % d == 0)
