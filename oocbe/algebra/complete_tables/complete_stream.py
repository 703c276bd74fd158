"""A bucket of complete tables of any size: eliminated piece by piece, in streams.

Each piece reads the boxes that it needs of large functions, from
memory or from disk, and sees its part of the small ones where they are. One piece at a time has the kernels, which use
all threads; meanwhile another one reads, and the caller writes what came before. Integers are what they would be in one
piece, bit for bit; floats may differ in their last bits where three or more of them are combined, or many are summed
up: in which order a kernel does so depends on the bucket's size.

A *box* is a range of values of each variable, in main memory or on disk. It is a set of *runs* of contiguous cells of
equal length: a run covers the fastest variables whose whole domain is in the box, and the range of the next one. From
disk, long runs are read one by one; a chunk with many short runs is decoded once.

A bucket has one or two large messages and many small functions. Each joined cell would look all of them up, so the
small ones are joined among themselves first, and into a larger one that has all their variables: that costs a pass
over a table far smaller than the bucket's joined one, and leaves two or three functions to combine a cell.

The result's cells are cut along its variables from the one that changes slowest: values of the first few are fixed, one
after the other, and the next one is cut into ranges. Pieces laid end to end are then the result. Where even one cell of
the result takes too much, because much is eliminated at once, or where that reads less, the eliminated variables are
cut in the same way, and the results of these parts marginalised.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.execution.pipeline import run_in_order
from oocbe.kernels.cpu.complete.complete_copy import copy_function
from oocbe.kernels.interface import CompleteBackend, CompleteFunction, steps_of
from oocbe.model.results.numerals import format_bytes
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.tracing.recorder import KERNELS, phase, span
from oocbe.tables.complete import CompleteTable
from oocbe.tables.numbers import converted
from oocbe.tables.stored import AnyComplete

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


@dataclass(frozen=True)
class CellFunction:
    """A function read by boxes: ``scope`` with the fastest variable first, and ``source`` of its values."""

    scope: tuple[int, ...]
    source: AnyComplete


class CompleteStream:
    """A bucket eliminated in pieces.

    separator : variable indices of the result, the fastest first. eliminated : those that are marginalised out.
    sizes : domain size of each variable.
    functions : small ones, which stay in memory. tables : those that are read by boxes.
    dtype : of the result; functions have it, tables are converted.
    kernels : gives those for so many joined cells. room : how large a piece may be, of all streams together.
    streams : pieces in memory at a time, at most; None: as many as pay.
    saves_reading : whether eliminated variables are cut where less is read then. cuts : the pieces.
    Raises ResourceError: memory has no room for the smallest piece.
    """

    def __init__(
        self,
        separator: Sequence[int],
        eliminated: Sequence[int],
        sizes: Mapping[int, int],
        functions: Sequence[BucketFunction],
        tables: Sequence[CellFunction],
        semiring: Semiring,
        dtype: np.dtype[Any],
        kernels: Callable[[int], CompleteBackend],
        room: CellRoom,
        streams: int | None = None,
        saves_reading: bool = False,
    ) -> None:
        self._separator, self._eliminated, self._sizes = tuple(separator), tuple(eliminated), sizes
        self._functions, self._tables = functions, tables
        self._semiring, self._dtype, self._kernels = semiring, dtype, kernels
        most = tuning().under_way
        self._streams = most if streams is None else min(streams, most)
        each = replace(room, piece_bytes=room.piece_bytes // self._streams)
        read = tuple((t.scope, max(t.source.dtype.itemsize, dtype.itemsize)) for t in tables)
        stored = tuple(not isinstance(t.source, CompleteTable) for t in tables) if saves_reading else ()
        self.cuts = CompleteCuts(self._separator, self._eliminated, read, sizes, dtype.itemsize, each, stored)
        if self.cuts.least_bytes > each.piece_bytes:
            raise ResourceError(
                f"a piece of one cell over {len(self._separator)} variables takes "
                f"{format_bytes(self.cuts.least_bytes)}, each of {self._streams} streams has "
                f"{format_bytes(each.piece_bytes)} (limit {format_bytes(room.piece_bytes)}); raise the limit"
            )
        self._readers = [_BoxReader(t, self.cuts.repeats(t.scope)) for t in tables]
        self._turn = Lock()

    def values(self) -> Generator[NDArray[Any], None, None]:
        """The result's values in memory, in the order of its cells; CorruptDataError, TimeLimitError of the kernels."""
        pieces = (partial(self._piece, ranges) for ranges in self.cuts.ranges())
        with closing(run_in_order(pieces, self._streams)) as results:
            yield from results

    def _piece(self, ranges: Ranges, stream: int) -> Iterator[NDArray[Any]]:
        made: NDArray[Any] | None = None
        for part in self.cuts.parts():
            values = self._part({**ranges, **part})
            made = values if made is None else self._semiring.marginalise(made, values, out=made)
        assert made is not None
        yield made

    def _part(self, ranges: Ranges) -> NDArray[Any]:
        sizes = {v: high - low for v, (low, high) in ranges.items()}
        sizes = {v: sizes.get(v, size) for v, size in self._sizes.items()}
        functions = [self._seen(f, ranges) for f in self._functions]
        for reader in self._readers:
            with phase("read"):
                values = reader.read(self._sizes, ranges)
            values = converted(values, self._dtype, self._semiring, "a table of the bucket", may_round=True)
            steps = steps_of([sizes[v] for v in reader.scope])
            functions.append(BucketFunction(reader.scope, values, steps))
        kept = [v for v in self._separator if v not in ranges or sizes[v] > 1]
        gone = [v for v in self._eliminated if v not in ranges or sizes[v] > 1]
        joined = int(np.prod([sizes[v] for v in (*kept, *gone)], dtype=object))
        with self._turn, span(KERNELS, "eliminate piece"):
            kernels = self._kernels(joined)
            bucket = CompleteBucket(kept, gone, sizes, self._semiring, self._dtype, kernels)
            return kernels.download(bucket.eliminate([_without_ones(f, ranges, sizes) for f in functions]))

    def _seen(self, function: BucketFunction, ranges: Ranges) -> BucketFunction:
        """The part of a function in memory: another first value, no copy."""
        steps = zip(function.scope, function.strides, strict=True)
        first = sum(ranges[v][0] * step for v, step in steps if v in ranges)
        return BucketFunction(function.scope, function.values[first:], function.strides)


def _without_ones(function: BucketFunction, ranges: Ranges, sizes: Mapping[int, int]) -> BucketFunction:
    """A function over those of its variables of which a piece has more than one value."""
    kept = [i for i, v in enumerate(function.scope) if v not in ranges or sizes[v] > 1]
    scope, strides = tuple(function.scope[i] for i in kept), tuple(function.strides[i] for i in kept)
    return BucketFunction(scope, function.values, strides)


class _BoxReader:
    """Reads boxes of one table; keeps the last one where neighbouring pieces need the same."""

    def __init__(self, table: CellFunction, keeps: bool) -> None:
        self.scope = table.scope
        self._source = table.source
        self._keeps = keeps
        self._kept: tuple[object, NDArray[Any]] | None = None
        self._lock = Lock()

    def read(self, sizes: Mapping[int, int], ranges: Ranges) -> NDArray[Any]:
        lengths = [sizes[v] for v in self.scope]
        box = tuple(ranges.get(v, (0, size)) for v, size in zip(self.scope, lengths, strict=True))
        if not self._keeps:
            return read_box(self._source, lengths, box)
        with self._lock:
            if self._kept is None or self._kept[0] != box:
                self._kept = None
                self._kept = box, read_box(self._source, lengths, box)
            return self._kept[1]


Box = tuple[tuple[int, int], ...]
"""For each variable, the fastest first, a half-open range (first value, last value + 1)."""


def run_of(sizes: Sequence[int], box: Box) -> tuple[int, int]:
    """Cells of a box's runs, and how many variables are whole in them; ``sizes``: the fastest variable first."""
    axis = 0
    while axis < len(sizes) and box[axis] == (0, sizes[axis]):
        axis += 1
    return math.prod(sizes[:axis]) * (box[axis][1] - box[axis][0] if axis < len(sizes) else 1), axis


def runs_of(sizes: Sequence[int], box: Box) -> tuple[NDArray[np.int64], int]:
    """First cells of a box's runs, int64 (runs,), ascending, and the cells of each run; sizes as for :func:`run_of`."""
    steps = steps_of(sizes)
    length, axis = run_of(sizes, box)
    starts = np.zeros(1, dtype=np.int64)
    if axis < len(sizes):
        starts += box[axis][0] * steps[axis]
    for later in range(axis + 1, len(sizes)):
        places = np.arange(*box[later], dtype=np.int64) * steps[later]
        starts = (starts[None, :] + places[:, None]).ravel()
    return starts, length


def box_cells(box: Box) -> int:
    """Cells of a box."""
    return math.prod(high - low for low, high in box)


def cells_touched(sizes: Sequence[int], box: Box, window: int) -> int:
    """Maximum number of decoded cells for reading a box, if whole windows of ``window`` cells are decoded."""
    length, _ = run_of(sizes, box)
    runs = box_cells(box) // max(1, length)
    return min(math.prod(sizes), runs * (length + 2 * window))


def read_box(source: AnyComplete, sizes: Sequence[int], box: Box) -> NDArray[Any]:
    """Values of a box (cells of the box,), in the order of the source; read-only.

    A view for a single run in main memory, otherwise a copy.

    Raises CorruptDataError: the source is on disk and damaged.
    """
    starts, length = runs_of(sizes, box)
    if isinstance(source, CompleteTable):
        first = int(starts[0])
        if len(starts) == 1:
            return source.values[first : first + length]
        function = CompleteFunction(source.values[first:], steps_of(sizes))
        return copy_function(function, [high - low for low, high in box])
    out = np.empty(len(starts) * length, dtype=source.dtype)
    window = source.chunk_cells
    if length >= max(1, window // 2) or len(starts) == 1:
        for number, start in enumerate(starts.tolist()):
            source.read_into(start, out[number * length : (number + 1) * length])
        return out
    done, within = 0, np.arange(length, dtype=np.int64)
    while done < len(out):
        run, skipped = divmod(done, length)
        low = (int(starts[run]) + skipped) // window * window
        high = min(low + window, source.cells)
        last = int(np.searchsorted(starts, high))
        cells = (starts[run:last, None] + within).ravel()[skipped:]
        cells = cells[: np.searchsorted(cells, high)] - low
        out[done : done + len(cells)] = source.window(low, high)[cells]
        done += len(cells)
    return out


@dataclass(frozen=True)
class BucketFunction:
    """A function of a bucket.

    scope : variable indices, in any order. values : of the bucket's dtype, with :mod:`oocbe.model.infeasible` in it.
    strides : elements between neighbours along each variable of the scope.
    """

    scope: tuple[int, ...]
    values: NDArray[Any]
    strides: tuple[int, ...]

    def over(self, axes: Sequence[int]) -> CompleteFunction:
        """The function as the kernel sees it in a bucket with these axes."""
        steps = dict(zip(self.scope, self.strides, strict=True))
        return CompleteFunction(self.values, tuple(steps.get(v, 0) for v in axes))


class CompleteBucket:
    """Axes of a bucket, and how its functions are joined.

    separator : variable indices of the result, the fastest first. eliminated : those that are marginalised out.
    sizes : domain size of each variable, by index.
    """

    def __init__(
        self,
        separator: Sequence[int],
        eliminated: Sequence[int],
        sizes: Sequence[int] | Mapping[int, int],
        semiring: Semiring,
        dtype: np.dtype[Any],
        kernels: CompleteBackend,
    ) -> None:
        self._axes = (*separator, *eliminated)
        self._eliminated = len(eliminated)
        self._sizes, self._semiring, self._dtype, self._kernels = sizes, semiring, dtype, kernels

    @property
    def joined_cells(self) -> int:
        """Assignments of all its variables."""
        return math.prod(self._sizes[v] for v in self._axes)

    def eliminate(self, functions: Sequence[BucketFunction]) -> NDArray[Any]:
        """Values of the result (cells,), where the kernels work."""
        here = [BucketFunction(f.scope, self._kernels.upload(f.values), f.strides) for f in functions]
        return self._call(self.fused(here), self._axes, self._eliminated)

    def fused(self, functions: Sequence[BucketFunction]) -> list[BucketFunction]:
        """Fewer functions with the same combination, whose values are where the kernels work."""
        place = {v: i for i, v in enumerate(self._axes)}
        limit = max(tuning().few_rows, self.joined_cells // tuning().fused_part)
        groups: list[tuple[set[int], list[BucketFunction]]] = []
        # The largest first: a small one joins the group that grows least by it.
        for f in sorted(functions, key=lambda f: -self._cells(f.scope)):
            best, least = None, math.inf
            for group in groups:
                cells = self._cells(group[0] | set(f.scope))
                growth = cells / self._cells(group[0])
                if cells <= limit and growth < least and cells <= 2 * (self._cells(group[0]) + self._cells(f.scope)):
                    best, least = group, growth
            if best is None:
                groups.append((set(f.scope), [f]))
            else:
                best[0].update(f.scope)
                best[1].append(f)
        return [self._joined(sorted(scope, key=place.__getitem__), members) for scope, members in groups]

    def _joined(self, scope: Sequence[int], members: list[BucketFunction]) -> BucketFunction:
        if len(members) == 1:
            return members[0]
        values = self._call(members, scope, 0)
        return BucketFunction(tuple(scope), values, steps_of([self._sizes[v] for v in scope]))

    def _cells(self, scope: Sequence[int] | set[int]) -> int:
        return math.prod(self._sizes[v] for v in scope)

    def _call(self, functions: list[BucketFunction], axes: Sequence[int], eliminated: int) -> NDArray[Any]:
        return self._kernels.eliminate_complete(
            [f.over(axes) for f in functions],
            [self._sizes[v] for v in axes],
            eliminated,
            self._semiring.combination,
            self._semiring.marginalisation,
            self._dtype,
        )
