"""Cut a bucket of complete tables into pieces that fit in memory.

The result's cells are cut along its variables from the one that changes slowest: values of the first few are fixed, one
after the other, and the next one is cut into ranges. Pieces laid end to end are then the result. Of each function a
piece needs the box with those values alone. Where even one cell of the result takes too much, because much is
eliminated at once, or where that reads less, the eliminated variables are cut in the same way, and the results of these
parts marginalised.
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


TRANSPOSED = 4
"""Passes of a transposition, for a function whose cut variables are not the slowest."""

PIECE = 1 << 16
"""Cells that move in the time that a piece takes whatever its size, about 3 ms."""


@dataclass(frozen=True)
class CellRoom:
    """Limits on the size of a piece.

    piece_bytes : of its functions, with all that is made of them, and its result.
    piece_cells : most cells of its result; None: as many as fit.
    """

    piece_bytes: int
    piece_cells: int | None = None


@dataclass(frozen=True)
class CompleteCuts:
    """Cut of a bucket into pieces.

    separator : variables of the result, the fastest first. eliminated : the others.
    scopes : variables of each function that is read by boxes, and bytes of one of its values.
    sizes : domain size of each variable. itemsize : bytes of a value of the result. room : see :class:`CellRoom`.
    stored : whether each function is on disk; eliminated variables are then also cut where less of these is read.
        Empty: only where nothing else fits.
    """

    separator: tuple[int, ...]
    eliminated: tuple[int, ...]
    scopes: tuple[tuple[tuple[int, ...], int], ...]
    sizes: Mapping[int, int]
    itemsize: int
    room: CellRoom
    stored: tuple[bool, ...] = ()

    @cached_property
    def widths(self) -> dict[int, int]:
        """How many values are taken at a time of each variable that is cut, the slowest first."""
        found, least = dict.fromkeys(self._axes, 1), math.inf
        for parts in self._cuts_of_parts():
            widths = self._least_cut(parts)
            if self._fits(widths) and (moved := self._moved(widths)) < least:
                found, least = widths, moved
            if least < math.inf and (not any(self.stored) or widths.keys() == parts.keys()):
                break
        return {v: found[v] for v in self._axes if found.get(v, self.sizes[v]) < self.sizes[v]}

    @property
    def least_bytes(self) -> int:
        """Memory of the smallest piece."""
        return self._bytes(self.widths)

    @cached_property
    def pieces(self) -> int:
        """Number of pieces of the result."""
        counts = self._counts(self.widths)
        return math.prod(counts[v] for v in self.separator)

    def ranges(self) -> Iterator[Ranges]:
        """Ranges of each piece of the result, in the order of its cells."""
        return self._ranges(self.separator)

    def parts(self) -> Iterator[Ranges]:
        """Ranges of the eliminated variables, whose results are marginalised; one, without any, where all fit."""
        return self._ranges(self.eliminated)

    def repeats(self, scope: Sequence[int]) -> bool:
        """Whether neighbouring pieces need the same box of a function."""
        return not self.widths or list(self.widths)[-1] not in scope

    @property
    def _axes(self) -> tuple[int, ...]:
        return (*reversed(self.separator), *reversed(self.eliminated))

    def _cuts_of_parts(self) -> Iterator[dict[int, int]]:
        """Ever smaller parts of the eliminated variables; the first one is all."""
        widths: dict[int, int] = {}
        yield widths
        for v in reversed(self.eliminated):
            width = self.sizes[v]
            while width > 1:
                width = -(-width // 2)
                widths = {**widths, v: width}
                yield widths

    def _least_cut(self, parts: dict[int, int]) -> dict[int, int]:
        """Parts with the largest pieces of the result that fit; of a function, one cut variable has a range at most, so
        that a box is contiguous where what is cut is slowest."""
        axes = self.separator[::-1]

        def widths(fixed: int, block: int) -> dict[int, int]:
            return dict.fromkeys(axes[:fixed], 1) | dict.fromkeys(axes[fixed : fixed + 1], block) | parts

        if self._fits(parts):
            return dict(parts)
        fixed = bisect_left(range(len(axes)), True, key=lambda count: self._fits(widths(count, 1)))
        if parts or fixed == len(axes):
            return widths(fixed, 1)
        sizes = range(self.sizes[axes[fixed]], 0, -1)
        return widths(fixed, sizes[bisect_left(sizes, True, key=lambda block: self._fits(widths(fixed, block)))])

    def _fits(self, widths: Mapping[int, int]) -> bool:
        most = self.room.piece_cells
        is_small = most is None or self._cells(self.separator, widths) <= most
        return is_small and self._bytes(widths) <= self.room.piece_bytes

    def _counts(self, widths: Mapping[int, int]) -> dict[int, int]:
        """Ranges of each variable, the slowest first."""
        return {v: -(-self.sizes[v] // widths.get(v, self.sizes[v])) for v in self._axes}

    def _moved(self, widths: Mapping[int, int]) -> int:
        """Cells of stored functions that are read, and of results that are marginalised; and the price of pieces."""
        counts = self._counts(widths)
        cut = [v for v in self._axes if counts[v] > 1]
        total = PIECE * math.prod(counts.values())
        total += 2 * self._cells(self.separator, {}) * (math.prod(counts[v] for v in self.eliminated) - 1)
        for scope in (scope for (scope, _), is_stored in zip(self.scopes, self.stored, strict=False) if is_stored):
            last = max((place for place, v in enumerate(cut) if v in scope), default=0)
            times = math.prod(counts[v] for v in cut[:last] if v not in scope)
            own = [v in cut for v in scope]
            total += self._cells(scope, {}) * (times + TRANSPOSED * (own != sorted(own)))
        return total

    def _bytes(self, widths: Mapping[int, int]) -> int:
        read = sum(self._cells(scope, widths) * itemsize for scope, itemsize in self.scopes)
        made = self._cells(self.separator, widths)
        joined = made * self._cells(self.eliminated, widths)
        copies = RESULT_COPIES + any(v in widths for v in self.eliminated)
        return INPUT_COPIES * read + (copies * made + joined // tuning().fused_part) * self.itemsize

    def _cells(self, scope: Sequence[int], widths: Mapping[int, int]) -> int:
        return math.prod(widths.get(v, self.sizes[v]) for v in scope)

    def _ranges(self, variables: Sequence[int]) -> Iterator[Ranges]:
        cut = {v: width for v, width in self.widths.items() if v in variables}
        for chosen in product(*(range(0, self.sizes[v], width) for v, width in cut.items())):
            yield {v: (first, min(first + cut[v], self.sizes[v])) for v, first in zip(cut, chosen, strict=True)}
