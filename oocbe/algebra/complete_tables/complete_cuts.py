"""Cut a bucket of complete tables into pieces that fit in memory.

The result's cells are cut along its variables from the one that changes slowest: values of the first few are fixed, one
after the other, and the next one is cut into ranges. Pieces laid end to end are then the result. Of each function a
piece needs the box with those values alone. Where even one cell of the result takes too much, because much is
eliminated at once, the eliminated variables are cut in the same way, and the results of these parts marginalised.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from oocbe.model.settings.tuning import tuning

Ranges = dict[int, tuple[int, int]]
"""For variables that are cut, the range of their values in a piece; all others have their whole domain."""

INPUT_COPIES, RESULT_COPIES = 2, 3
"""A function's box is read, then arranged for the kernel. A result is computed, put in order, and waits to be taken."""


@dataclass(frozen=True)
class CellRoom:
    """Limits on the size of a piece.

    Attributes
    ----------
    piece_bytes : of its functions, with all that is made of them, and its result.
    piece_cells : most cells of its result; None: as many as fit.
    """

    piece_bytes: int
    piece_cells: int | None = None


@dataclass(frozen=True)
class CompleteCuts:
    """Cut of a bucket into pieces.

    Attributes
    ----------
    separator : variables of the result, the fastest first. eliminated : the others.
    scopes : variables of each function that is read by boxes, and bytes of one of its values.
    sizes : domain size of each variable. itemsize : bytes of a value of the result. room : see :class:`CellRoom`.
    """

    separator: tuple[int, ...]
    eliminated: tuple[int, ...]
    scopes: tuple[tuple[tuple[int, ...], int], ...]
    sizes: Mapping[int, int]
    itemsize: int
    room: CellRoom

    @cached_property
    def depth(self) -> tuple[int, int]:
        """Cut variables (the slowest first, then eliminated ones) of which single values are taken, and how many
        values of the next one are taken at a time."""
        axes = self._axes
        fixed = bisect_left(range(len(axes)), True, key=lambda count: self._fits(count, 1))
        if fixed == len(axes):
            return fixed, 1  # as small as it gets
        low, high = 1, self.sizes[axes[fixed]]
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(fixed, middle) else (low, middle - 1)
        return fixed, low

    @property
    def fits(self) -> bool:
        """Whether the smallest piece fits."""
        return self._fits(*self.depth)

    @property
    def least_bytes(self) -> int:
        """Memory of the smallest piece."""
        return self._bytes(self._widths(*self.depth))

    @cached_property
    def pieces(self) -> int:
        """Number of pieces of the result."""
        return self._count(self.separator[::-1], 0)

    def ranges(self) -> Iterator[Ranges]:
        """Ranges of each piece of the result, in the order of its cells."""
        return self._ranges(self.separator[::-1], 0)

    def parts(self) -> Iterator[Ranges]:
        """Ranges of the eliminated variables, whose results are marginalised; one, without any, where all fit."""
        return self._ranges(self.eliminated[::-1], len(self.separator))

    def repeats(self, scope: Sequence[int]) -> bool:
        """Whether neighbouring pieces need the same box of a function."""
        cut = [v for v in self._axes[: self.depth[0] + 1] if self._width(v) < self.sizes[v]]
        return not cut or cut[-1] not in scope

    @property
    def _axes(self) -> tuple[int, ...]:
        return (*reversed(self.separator), *reversed(self.eliminated))

    def _width(self, variable: int) -> int:
        return self._widths(*self.depth).get(variable, self.sizes[variable])

    def _widths(self, fixed: int, block: int) -> dict[int, int]:
        axes = self._axes
        widths = dict.fromkeys(axes[:fixed], 1)
        if fixed < len(axes):
            widths[axes[fixed]] = block
        return widths

    def _fits(self, fixed: int, block: int) -> bool:
        widths = self._widths(fixed, block)
        most = self.room.piece_cells
        if most is not None and self._cells(self.separator, widths) > most:
            return False
        return self._bytes(widths) <= self.room.piece_bytes

    def _bytes(self, widths: Mapping[int, int]) -> int:
        read = sum(self._cells(scope, widths) * itemsize for scope, itemsize in self.scopes)
        made = self._cells(self.separator, widths)
        joined = made * self._cells(self.eliminated, widths)
        return INPUT_COPIES * read + (RESULT_COPIES * made + joined // tuning().fused_part) * self.itemsize

    def _cells(self, scope: Sequence[int], widths: Mapping[int, int]) -> int:
        return math.prod(widths.get(v, self.sizes[v]) for v in scope)

    def _steps(self, axes: Sequence[int], before: int) -> list[tuple[int, int]]:
        """Variables of some axes that are cut, and how many of their values are taken at a time."""
        fixed, block = self.depth
        cut = [(v, 1) for v in axes[: max(0, fixed - before)]]
        if 0 <= fixed - before < len(axes) and block < self.sizes[axes[fixed - before]]:
            cut.append((axes[fixed - before], block))
        return cut

    def _count(self, axes: Sequence[int], before: int) -> int:
        return math.prod(-(-self.sizes[v] // block) for v, block in self._steps(axes, before))

    def _ranges(self, axes: Sequence[int], before: int) -> Iterator[Ranges]:
        steps = self._steps(axes, before)
        firsts = [range(0, self.sizes[v], block) for v, block in steps]
        for chosen in product(*firsts):
            yield {
                v: (first, min(first + block, self.sizes[v])) for (v, block), first in zip(steps, chosen, strict=True)
            }
