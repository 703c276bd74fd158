"""Radix partition: cuts the rows of several sources at the same keys into parts that fit.

Rows are partitioned by some *common* variables. Their key bits, most significant first, are processed one *window* at a
time: a sequential pass over a source sorts each run of rows by the bits of the window (the kernels' stable radix sort)
and writes it to a scratch file, with the first row of each *digit* (value of the window's bits). Neighbouring digits
are then combined to parts that fit; the rows of a part are a slice of each run. A digit that does not fit alone is
partitioned again by the following bits, so skew costs passes only over the rows concerned. Stable passes and ascending
digits preserve the order of rows: the concatenated parts are sorted by the common variables, ties as in the source.

A source sorted by the common variables is not written again: its runs are ranges of its own rows. If all sources are
sorted, or concatenations of sorted runs, and pieces hold several chunks of each, no pass is needed. The index of a
table on disk has the first and the last key of each chunk. If sources are sorted by the same *common* variables, the
first key of a chunk cuts all of them alike, and between two such keys a source has at most the rows of the overlapping
chunks. So cuts are chosen from the indices, and only the chunks that a cut intersects are read, once, to find the row.

A scratch file is written once by several threads, read by row numbers, and deleted with its last reference. Rows are
stored in *runs*, as appended, each column separately. A number is stored as its distance from the column's minimum, in
the bytes needed for the largest distance: the disk then takes less time than for whole words. Each *segment* of a run
(rows that are later read together) has a checksum, which is verified whenever the segment is read whole.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import Buffers, SliceSource, Source, StoredRows, row_bytes, sliced
from oocbe.kernels.interface import Backend
from oocbe.model.row_numbers import even_ranges, key_number, stretches_of
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.checksums import crc32
from oocbe.runtime.tracing.recorder import READER, WRITER, span
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from oocbe.tables.layout import WORD_BITS, Layout, merged_ranges, move_plan, range_masks


class _Column(NamedTuple):
    """A run's column in the file: distances of numbers from ``base``, of ``size`` bytes, from ``offset`` on."""

    base: np.uint64
    size: int
    offset: int


class ScratchFile:
    """Rows of a layout and dtype in a budget's folder, for this object's lifetime; DiskError: no file can be made."""

    def __init__(self, budget: DiskBudget, layout: Layout, dtype: np.dtype[Any]) -> None:
        self.layout, self.dtype, self.is_sorted = layout, dtype, False
        self.rows = 0
        self._words = np.dtype(np.uint32 if dtype.itemsize == 4 else np.uint64)  # a value's bits
        self._starts = [0]
        self._runs: list[list[_Column]] = []
        self._segments: dict[int, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
        self._end = 0
        self._lock = Lock()
        self._file = NamelessFile(budget, "scratch file")

    def append(self, keys: NDArray[np.uint64], values: NDArray[Any], bounds: NDArray[np.int64]) -> int:
        """Write a run; thread-safe.

        keys, values : the run's rows. bounds : segment bounds in the run, int64, ascending from 0 to its rows.
        Returns int : the run's first row in this file.
        Raises DiskError: the disk, or its permitted share, is full.
        """
        words = [np.ascontiguousarray(column) for column in keys] + [np.ascontiguousarray(values).view(self._words)]
        narrowest = [_narrowest(column) for column in [*keys, values]]
        sizes = [len(values) * size for _, size in narrowest]
        nbytes = sum(sizes)
        with self._lock:
            number, start = len(self._runs), self.rows
            offsets = accumulate(sizes, initial=self._end)
            run = [_Column(base, size, offset) for (base, size), offset in zip(narrowest, offsets, strict=False)]
            self._runs.append(run)
            self.rows += len(values)
            self._starts.append(self.rows)
            self._end += nbytes
        with span(WRITER, "write scratch", bytes=nbytes):
            for column, how in zip(words, run, strict=True):
                self._write(column, how)
        with span(WRITER, "checksum of scratch"):
            sums = [[_checksum(column[low:high]) for column in words] for low, high in pairwise(bounds.tolist())]
        self._segments[number] = bounds, np.array(sums, dtype=np.uint32).reshape(-1, len(words))
        return start

    def _write(self, words: NDArray[Any], how: _Column) -> None:
        from oocbe.kernels.cpu.packing.fields import narrow

        buffer = np.empty(min(len(words), tuning().stretch_rows) * how.size, dtype=np.uint8)
        for first in range(0, len(words), tuning().stretch_rows):
            stripe = words[first : first + tuning().stretch_rows]
            data = buffer[: len(stripe) * how.size]
            narrow(stripe, how.base, how.size, data)
            # The whole column is counted with its first stripe, so that an error reports its whole size.
            self._file.write(data.data, how.offset + first * how.size, more=0 if first else len(words) * how.size)

    def read_into(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following, of one run or several, into the caller's arrays; see ``Source``."""
        targets = [*keys] if values is None else [*keys, values.view(self._words)]
        for number, low, rows in stretches_of(self._starts, start, keys.shape[1]):
            columns = [column[rows] for column in targets]
            run = self._runs[number][: len(columns)]
            with span(READER, "read scratch", bytes=len(columns[0]) * sum(how.size for how in run)):
                for column, how in zip(columns, run, strict=True):
                    self._read(column, how, low)
            with span(READER, "check scratch"):
                self._verify(number, low, columns)

    def _read(self, words: NDArray[Any], how: _Column, low: int) -> None:
        from oocbe.kernels.cpu.packing.fields import widen

        rows = min(len(words), tuning().stretch_rows)
        buffer = np.empty(rows * how.size, dtype=np.uint8)
        for first in range(0, len(words), tuning().stretch_rows):
            stripe = words[first : first + rows]
            data = buffer[: len(stripe) * how.size]
            self._file.read(data.data, how.offset + (low + first) * how.size)
            widen(data, how.base, how.size, stripe)

    def _verify(self, run: int, low: int, columns: Sequence[NDArray[Any]]) -> None:
        """Verify the checksums of the segments of a run that were read whole, from its row ``low`` on."""
        bounds, sums = self._segments[run]
        high = low + len(columns[0])
        segment = int(bounds.searchsorted(low))
        while segment < len(sums) and bounds[segment + 1] <= high:
            rows = slice(int(bounds[segment]) - low, int(bounds[segment + 1]) - low)
            for column, expected in zip(columns, sums[segment].tolist(), strict=False):
                if _checksum(column[rows]) != expected:
                    raise CorruptDataError(f"{self._file.name}: rows of run {run:,} changed since they were written")
            segment += 1

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows: whole runs if they are small enough."""
        for first, last in pairwise(self._starts):
            for low, high in even_ranges(last - first, most):
                yield first + low, first + high


def _narrowest(column: NDArray[Any]) -> tuple[np.uint64, int]:
    """The minimum of a column, and the fewest bytes for the distances from it; floats are unchanged."""
    if column.dtype.kind == "f" or len(column) == 0:
        return np.uint64(0), column.dtype.itemsize
    low, high = int(column.min()), int(column.max())
    return np.uint64(low % (1 << 64)), max(1, -(-(high - low).bit_length() // 8))


def _checksum(column: NDArray[Any]) -> int:
    return crc32(column.view(np.uint8).data)


@runtime_checkable
class KeyedRows(Source, Protocol):
    """Sorted rows that can be cut by their keys without a pass over them. They consist of stretches, all of the same
    number of rows except the last.
    """

    @property
    def stretch_rows(self) -> int:
        """Maximum rows of a stretch."""

    @property
    def stretch_count(self) -> int:
        """Number of stretches."""

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; the number of rows for the index after the last."""

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""

    def keys_of(self, stretch: int) -> NDArray[np.uint64]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""


class KeyIndex:
    """Index of a sorted source's common keys; a key is one number, the last common variable most significant.

    source : sorted, with the common variables most significant, in their order. common : the variables.
    budget : of the memory for a stretch's keys during the search for a row.
    firsts, lasts : numbers of the first and the last row of each stretch (a chunk) of the source.
    end : a number above all keys.
    """

    def __init__(self, source: KeyedRows, common: Sequence[str], budget: Budget) -> None:
        self.source, self._budget = source, budget
        self._fields: list[tuple[int, int, int]] = []
        place = 0
        for field in map(source.layout.field, common):
            self._fields.append((WORD_BITS * field.word + field.shift, field.mask, place))
            place += field.bits
        self.end = 1 << place
        edges = [tuple(map(self._number, source.edge_keys(stretch))) for stretch in range(source.stretch_count)]
        self.firsts, self.lasts = ([edge[side] for edge in edges] for side in (0, 1))

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return self.source.rows

    def samples(self, fewest: int) -> Iterator[tuple[int, int]]:
        """Ascending key numbers from the first row's, and the rows from each to the next one.

        fewest : approximate minimum of samples, if the source has the rows: if there are fewer stretches than a quarter
            of it, their keys are read, one stretch at a time.
        """
        stretches = max(1, self.source.stretch_count)
        within = -(-fewest // stretches) if 4 * stretches < fewest else 1
        for stretch in range(self.source.stretch_count):
            start, stop = self.source.stretch_start(stretch), self.source.stretch_start(stretch + 1)
            if within <= 1:
                yield self.firsts[stretch], stop - start
                continue
            with self._budget.reserve("cutting sorted tables", 8 * self.source.layout.words * (stop - start)):
                keys = self.source.keys_of(stretch)
                for low, high in even_ranges(stop - start, max(1, (stop - start) // within)):
                    yield self._number(key_number(keys, low)), high - low

    def most_rows(self, low: int, high: int) -> int:
        """Upper limit of the rows with a number from ``low`` up to ``high``, exclusive."""
        stretches = bisect_left(self.firsts, high) - bisect_left(self.lasts, low)
        return min(max(0, stretches) * self.source.stretch_rows, self.source.rows)

    def place(self, number: int) -> int:
        """The first row whose number is not below this one; reads at most one stretch."""
        stretch = bisect_left(self.lasts, number)
        start = self.source.stretch_start(stretch)
        if stretch == len(self.lasts):
            return self.source.rows
        if number <= self.firsts[stretch]:
            return start
        nbytes = 8 * self.source.layout.words * self.source.stretch_rows
        with self._budget.reserve("cutting sorted tables", nbytes):
            keys = self.source.keys_of(stretch)
            rows = range(keys.shape[1])
            return start + bisect_left(rows, number, key=lambda row: self._number(key_number(keys, row)))

    def _number(self, key: int) -> int:
        return sum((key >> shift & mask) << place for shift, mask, place in self._fields)


def cut_alike(
    indices: Sequence[KeyIndex], fits: Callable[[Sequence[int]], bool]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges of rows of each source with the same range of common keys, in ascending order.

    fits : whether these numbers of rows of the sources fit together. A range in which no chunk begins is not cut, even
        if it does not fit.
    """
    end = max(index.end for index in indices)
    numbers = sorted({number for index in indices for number in index.firsts} | {end})
    chosen = [numbers[0]]
    for before, number in pairwise(numbers):
        if before > chosen[-1] and not fits([index.most_rows(chosen[-1], number) for index in indices]):
            chosen.append(before)
    chosen.append(end)
    places = ([index.place(number) for index in indices] for number in chosen)
    for low, high in pairwise(places):
        yield tuple(zip(low, high, strict=True))


class OrderedSlice:
    """A range of rows of a table on disk, sorted by some variables; a ``KeyedRows``.

    Its stretches are the chunks, clipped to the range.

    source : the table. low, high : half-open range of rows. order : the variables by which rows are sorted, the most
        significant last; its keys need not ascend.
    """

    def __init__(self, source: StoredRows, low: int, high: int, order: tuple[str, ...]) -> None:
        self.layout, self.dtype, self.rows = source.layout, source.dtype, high - low
        self.is_sorted = source.is_sorted
        self.stretch_rows = source.stretch_rows
        self.order = order
        self._source, self._low, self._high = source, low, high
        table = source.table
        self._chunk = table.chunk_at(low) if low < high else 0
        self.stretch_count = table.chunk_at(high - 1) + 1 - self._chunk if low < high else 0

    def read_into(self, start: int, keys: NDArray[Any], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following; see :class:`oocbe.execution.sources.Source`."""
        self._source.read_into(self._low + start, keys, values)

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """Ranges of ``most`` rows; see :class:`oocbe.execution.sources.Source`."""
        return even_ranges(self.rows, most)

    def stretch_start(self, stretch: int) -> int:
        """First row of a stretch; the number of rows for the index after the last."""
        start = self._source.stretch_start(self._chunk + stretch)
        return min(max(start, self._low), self._high) - self._low

    def edge_keys(self, stretch: int) -> tuple[int, int]:
        """Keys of the first and the last row of a stretch."""
        first, stop = self.stretch_start(stretch), self.stretch_start(stretch + 1)
        return self._source.key(self._low + first), self._source.key(self._low + stop - 1)

    def keys_of(self, stretch: int) -> NDArray[Any]:
        """Keys of all rows of a stretch, uint64 (words, rows)."""
        start, stop = (self._low + self.stretch_start(number) for number in (stretch, stretch + 1))
        chunk = self._chunk + stretch
        begin = self._source.stretch_start(chunk)
        return self._source.keys_of(chunk)[:, start - begin : stop - begin]


class LaidEndToEnd:
    """The concatenated rows of several sources of one layout and dtype; see :class:`oocbe.execution.sources.Source`.

    sources : at least one.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._starts = [0, *accumulate(source.rows for source in sources)]
        self.layout, self.dtype, self.rows = sources[0].layout, sources[0].dtype, self._starts[-1]
        self.is_sorted = len(sources) == 1 and sources[0].is_sorted

    def read_into(self, start: int, keys: NDArray[Any], values: NDArray[Any] | None) -> None:
        """Rows ``start`` and following; see :class:`oocbe.execution.sources.Source`."""
        for number, skipped, rows in stretches_of(self._starts, start, keys.shape[1]):
            self.sources[number].read_into(skipped, keys[:, rows], None if values is None else values[rows])

    def ranges(self, most: int) -> Iterator[tuple[int, int]]:
        """All rows cut into ranges of at most ``most`` rows, none across two sources."""
        for start, source in zip(self._starts, self.sources, strict=False):
            for low, high in source.ranges(most):
                yield start + low, start + high


def runs_in_order(source: Source, common: tuple[str, ...]) -> list[KeyedRows]:
    """The components of a concatenated source, or the source itself, if all are sorted by ``common`` and can be cut.

    common : the variables, the most significant last. Returns an empty list if one source is not.
    """
    found = []
    for run in source.sources if isinstance(source, LaidEndToEnd) else [source]:
        order = run.layout.scope if run.is_sorted else run.order if isinstance(run, OrderedSlice) else ()
        if not isinstance(run, KeyedRows) or order[len(order) - len(common) :] != common:
            return []
        found.append(run)
    return found


Item = TypeVar("Item")


@dataclass(frozen=True)
class JoinInput:
    """A source with the requirements of an operation.

    source : the rows. scope : its variables in the order required by the operation, the least significant first.
    common : variables to partition by, the least significant first; most significant in the order of the result.
    cost : total bytes of an operation for a row of a part.
    """

    source: Source
    scope: tuple[str, ...]
    common: tuple[str, ...]
    cost: int

    @property
    def rows(self) -> int:
        """Rows of the source."""
        return self.source.rows

    def blocks(self, rows: int) -> Iterator[JoinInput]:
        """The source's rows in order, in blocks of at most ``rows`` rows."""
        for low, high in self.source.ranges(rows):
            yield replace(self, source=sliced(self.source, low, high))

    @property
    def in_order(self) -> bool:
        """Whether the source is sorted by the common variables already."""
        count = len(self.common)
        return not count or (self.source.is_sorted and self.source.layout.scope[-count:] == self.common)

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Word and bit, in the source's layout, of each bit of the common variables, the most significant first."""
        fields = [self.source.layout.field(name) for name in reversed(self.common)]
        return [(f.word, f.shift + bit) for f in fields for bit in reversed(range(f.bits))]


class BitWindow(NamedTuple):
    """Bits of the common variables: ``first`` to ``last`` of :attr:`JoinInput.places`, 64 at most."""

    first: int
    last: int

    def ranges(self, ordered: JoinInput) -> list[tuple[int, int, int]]:
        """The bits in a source's layout as (word, shift, bits), the least significant first."""
        return merged_ranges((word, bit, 1) for word, bit in reversed(ordered.places[self.first : self.last]))

    def plan(self, ordered: JoinInput) -> NDArray[np.int64]:
        """Moves that gather the bits in one word."""
        moves, place = [], 0
        for word, shift, bits in self.ranges(ordered):
            moves.append([word, shift, bits, 0, place])
            place += bits
        return np.array(moves, dtype=np.int64).reshape(-1, 5)

    def masks(self, ordered: JoinInput) -> NDArray[np.uint64]:
        """Ones at the bits, uint64 (words,)."""
        return range_masks(ordered.source.layout.words, self.ranges(ordered))


@dataclass(frozen=True)
class Part:
    """All rows of each source in a range of common keys, as slices; ``fits``: in a piece; else they share one key."""

    inputs: tuple[JoinInput, ...]
    fits: bool


class _Segments:
    """Segments of a partitioned source, in the order of its rows.
    ``ordered`` is that source. ``digits``, ``starts``, ``counts``, (segments,): each one's digit, first row, rows."""

    def __init__(
        self, ordered: JoinInput, digits: NDArray[np.uint64], starts: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> None:
        self._ordered, self._starts, self._counts = ordered, starts, counts
        self._by_digit = np.argsort(digits, kind="stable")
        self._sorted = digits[self._by_digit]

    def totals(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Digits, ascending, and the rows of each."""
        digits, firsts = np.unique(self._sorted, return_index=True)
        return digits, np.add.reduceat(self._counts[self._by_digit], firsts)

    def of(self, digits: NDArray[np.uint64]) -> JoinInput:
        """The rows with one of the digits, which ascend."""
        firsts = np.searchsorted(self._sorted, digits)
        many = np.searchsorted(self._sorted, digits, side="right") - firsts
        ends = np.cumsum(many)
        places = np.arange(ends[-1]) + np.repeat(firsts - (ends - many), many)
        chosen = np.sort(self._by_digit[places])
        return replace(
            self._ordered, source=SliceSource(self._ordered.source, self._starts[chosen], self._counts[chosen])
        )


def parts(
    inputs: Sequence[JoinInput], space: MemoryPlan, kernels: Backend, first: int = 0, outermost: bool = True
) -> Iterator[Part]:
    """Cut sources at the same keys into parts, in ascending order of the common variables.

    Common keys missing in a source are omitted.

    inputs : sources, with the same common variables. first : the first bit of the common variables that may differ.
    outermost : whether no piece is in memory yet.
    """
    inputs = tuple(inputs)
    if any(ordered.rows == 0 for ordered in inputs):
        return
    if space.fits([(ordered.rows, ordered.cost) for ordered in inputs]):
        yield Part(inputs, fits=True)
        return
    costs = [ordered.cost for ordered in inputs]
    if first == len(inputs[0].places):
        yield Part(inputs, fits=False)
        return
    indices = _indices(inputs, space)
    if indices:
        counts = [len(own) for own in indices]

        def fits(rows: Sequence[int]) -> bool:
            return space.fits([(sum(own), cost) for own, cost in zip(_grouped(rows, counts), costs, strict=True)])

        for bounds in cut_alike([index for own in indices for index in own], fits):
            slices = [
                replace(ordered, source=_cut_runs([index.source for index in own], ranges))
                for ordered, own, ranges in zip(inputs, indices, _grouped(bounds, counts), strict=True)
            ]
            yield from parts(slices, space, kernels, outermost=False)
        return
    window = _next_window(inputs, first, _bits_wanted(inputs, space), kernels)
    runs = [_Partition(ordered, window, space, kernels, outermost) for ordered in inputs]
    given_up = max(run.given_up for run in runs)
    partitioned = [run.segments(given_up) for run in runs]
    del runs
    totals = [segments.totals() for segments in partitioned]
    common = totals[0][0]
    for digits, _ in totals[1:]:
        common = np.intersect1d(common, digits, assume_unique=True)
    sizes = [rows[np.searchsorted(digits, common)] for digits, rows in totals]
    for low, high in _fitting(sizes, costs, space):
        cut = tuple(segments.of(common[low:high]) for segments in partitioned)
        if high - low > 1:
            yield Part(cut, fits=True)
        else:
            yield from parts(cut, space, kernels, window.last - given_up, outermost=False)


def _indices(inputs: Sequence[JoinInput], space: MemoryPlan) -> list[list[KeyIndex]]:
    """Indices of each source's runs, for cuts into pieces of several chunks; empty if one source cannot be cut so."""
    found = [runs_in_order(ordered.source, ordered.common) for ordered in inputs]
    sizes = [sum(min(run.rows, tuning().under_way * run.stretch_rows) for run in runs) for runs in found]
    if not all(found) or not space.fits([(rows, o.cost) for rows, o in zip(sizes, inputs, strict=True)]):
        return []
    return [[KeyIndex(run, o.common, space.budget) for run in runs] for runs, o in zip(found, inputs, strict=True)]


def _grouped(items: Sequence[Item], counts: Sequence[int]) -> list[Sequence[Item]]:
    """Items of all runs, grouped by source."""
    ends = list(itertools.accumulate(counts))
    return [items[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _cut_runs(runs: Sequence[Source], ranges: Sequence[tuple[int, int]]) -> Source:
    """The concatenation of a range of rows of each run."""
    slices = [sliced(run, low, high) for run, (low, high) in zip(runs, ranges, strict=True) if low < high]
    if len(slices) == 1:
        return slices[0]
    return LaidEndToEnd(slices) if slices else sliced(runs[0], 0, 0)


def _fitting(sizes: Sequence[NDArray[np.int64]], costs: Sequence[int], space: MemoryPlan) -> Iterator[tuple[int, int]]:
    """Ranges of digits whose rows fit together in a piece; a single digit even if it does not fit."""
    low = 0
    taken = [0] * len(sizes)
    for digit in range(len(sizes[0])):
        wanted = [rows + int(size[digit]) for rows, size in zip(taken, sizes, strict=True)]
        if digit > low and not space.fits(list(zip(wanted, costs, strict=True))):
            yield low, digit
            low, wanted = digit, [int(size[digit]) for size in sizes]
        taken = wanted
    if low < len(sizes[0]):
        yield low, len(sizes[0])


def _bits_wanted(inputs: Sequence[JoinInput], space: MemoryPlan) -> int:
    """Number of bits with which digits of equal sizes fill at most half a piece."""
    pieces = sum(ordered.rows * ordered.cost for ordered in inputs) / max(1, space.piece_bytes)
    if space.piece_rows is not None:
        pieces = max(pieces, *(ordered.rows / space.piece_rows for ordered in inputs))
    return min(tuning().most_window_bits, max(tuning().window_bits, math.ceil(math.log2(2 * max(1.0, pieces)))))


def _next_window(inputs: Sequence[JoinInput], first: int, wanted: int, kernels: Backend) -> BitWindow:
    """The shortest window in which ``wanted`` bits vary in a sample of the sources."""
    bits = min(64, len(inputs[0].places) - first)
    ones = 0
    for ordered in inputs:
        sample = kernels.upload(_sample(ordered.source))
        keys = kernels.download(kernels.permute(sample, BitWindow(first, first + bits).plan(ordered), 1))[0]
        ones |= int(np.bitwise_or.reduce(keys ^ keys[0]))
    taken, varying = 0, 0
    while taken < bits and varying < wanted:
        taken += 1
        varying += ones >> (bits - taken) & 1
    return BitWindow(first, first + taken)


def _sample(source: Source) -> NDArray[np.uint64]:
    """Keys from the beginning, the middle and the end of a source."""
    count = min(tuning().few_rows, source.rows)
    stretches = []
    for start in (0, (source.rows - count) // 2, source.rows - count):
        stretches.append(np.empty((source.layout.words, count), dtype=np.uint64))
        source.read_into(start, stretches[-1], None)
    return np.concatenate(stretches, axis=1)


class _Run(NamedTuple):
    """Digits of a run: digits, their bounds in the run, number of ignored lowest bits, the run's first row."""

    digits: NDArray[np.uint64]
    bounds: NDArray[np.int64]
    given_up: int
    start: int


class _Partition:
    """One source, partitioned by the bits of a window, whose lowest ``given_up`` bits are ignored."""

    def __init__(
        self, ordered: JoinInput, window: BitWindow, space: MemoryPlan, kernels: Backend, outermost: bool
    ) -> None:
        source = ordered.source
        self.ordered, self.window, self.kernels = ordered, window, kernels
        self.layout = source.layout if ordered.in_order else source.layout.select(ordered.scope)
        self.written = ordered
        cost = 8 * source.layout.words + 12 if ordered.in_order else run_cost(source)
        with space.partition_memory(cost, outermost) as run_rows:
            self.scratch: ScratchFile | None = None
            if not ordered.in_order:
                self.scratch = ScratchFile(space.disk, self.layout, source.dtype)
                self.written = replace(ordered, source=self.scratch)
            self.buffers = [Buffers() for _ in range(space.streams)]
            pieces = (partial(self._write_run, *rows) for rows in source.ranges(run_rows))
            self._runs = list(run_in_order(pieces, space.streams))
            self.buffers.clear()
        self.given_up = max(run.given_up for run in self._runs)

    def segments(self, given_up: int) -> _Segments:
        """All runs' segments, ignoring this number of lowest bits."""
        shift = np.uint64(given_up)
        return _Segments(
            self.written,
            np.concatenate([run.digits for run in self._runs]) >> shift << shift,
            np.concatenate([run.start + run.bounds[:-1] for run in self._runs]),
            np.concatenate([np.diff(run.bounds) for run in self._runs]),
        )

    def _write_run(self, start: int, stop: int, stream: int) -> Iterator[_Run]:
        """Sort some rows by the window's bits and write them to scratch; yields the starts of their digits."""
        kernels, buffers, source = self.kernels, self.buffers[stream], self.ordered.source
        if self.scratch is None:
            # Nothing to sort: only the starts of digits are needed, from the keys alone.
            keys = buffers.take("keys", (source.layout.words, stop - start), np.dtype(np.uint64))
            source.read_into(start, keys, None)
            yield _Run(*self._digits(kernels.upload(keys)), start)
            return
        table = buffers.load("run", source, start, stop)
        keys, values = kernels.upload(table.keys), kernels.upload(table.values)
        moved = self.layout.scope != source.layout.scope
        if moved:
            keys = kernels.permute(keys, move_plan(source.layout, self.layout), self.layout.words)
        keys, values = kernels.sort_rows(keys, values, self.window.ranges(self.written), own=moved)
        digits, bounds, given_up = self._digits(keys)
        first = self.scratch.append(kernels.download(keys), kernels.download(values), bounds)
        yield _Run(digits, bounds, given_up, first)

    def _digits(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
        """Digits of rows sorted by the window's bits, bounds of their rows, and the number of ignored lowest bits."""
        kernels, window = self.kernels, self.window
        starts = kernels.group_starts(keys, window.masks(self.written))
        heads = kernels.upload(np.ascontiguousarray(kernels.download(keys[:, starts[:-1]])))
        digits = kernels.download(kernels.permute(heads, window.plan(self.written), 1))[0]
        bounds = kernels.download(starts)
        given_up = 0
        while len(digits) > tuning().few_rows:
            given_up += 1
            digits = digits >> np.uint64(1)
            kept = np.flatnonzero(np.append(True, digits[1:] != digits[:-1]))
            digits, bounds = digits[kept], np.append(bounds[:-1][kept], bounds[-1])
        return digits << np.uint64(given_up), bounds, given_up


def run_cost(source: Source) -> int:
    """Bytes a row for sorting a run: rows as read, moved, sorted, and the starts of digits."""
    return 3 * row_bytes(source.layout, source.dtype) + 8
