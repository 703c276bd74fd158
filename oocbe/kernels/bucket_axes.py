"""Axes of a bucket of complete functions: those that lie alike in all functions are one, large ones are cut in two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Axis:
    """One axis of a bucket.

    Attributes
    ----------
    size : values along it.
    strides : how far apart neighbours lie in each function, and, where it is asked for, in the result last (0 for an
        eliminated axis).
    """

    size: int
    strides: tuple[int, ...]

    def cut(self, low: int) -> tuple[Axis, Axis]:
        """Two axes in its place, the first of ``low`` values; the second one's last step may go beyond the end."""
        return Axis(low, self.strides), Axis(-(-self.size // low), tuple(stride * low for stride in self.strides))

    def without_result(self) -> Axis:
        """The axis as an eliminated one."""
        return Axis(self.size, (*self.strides[:-1], 0))


def bucket_axes(
    strides: Sequence[Sequence[int]], sizes: Sequence[int], eliminated: int
) -> tuple[list[Axis], list[Axis]]:
    """Axes of the result, fastest first, and eliminated axes; neighbours that lie alike everywhere are one.

    Parameters
    ----------
    strides : for each function, its stride along each axis.
    sizes, eliminated : as in :meth:`oocbe.kernels.interface.CompleteBackend.eliminate_complete`.
    """
    kept_count = len(sizes) - eliminated
    kept, step = [], 1
    for axis, size in enumerate(sizes[:kept_count]):
        kept.append(Axis(size, (*(row[axis] for row in strides), step)))
        step *= size
    gone = [Axis(sizes[a], (*(row[a] for row in strides), 0)) for a in range(kept_count, len(sizes))]
    # Eliminated axes have no order of their own: that of the function that has most of them merges best.
    gone.sort(key=lambda axis: (sum(s == 0 for s in axis.strides), [s for s in axis.strides if s]))
    return merged(kept), merged(gone)


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Axes with each pair of neighbours of which the second goes on where the first ends, everywhere, made one."""
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
    """Cells that some axes span."""
    return prod(axis.size for axis in axes)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor that is at most ``most``; 1 where there is no other."""
    return next(d for d in range(min(number, most), 0, -1) if number % d == 0)
