"""Radix partition: cuts the rows of several sources at the same keys into parts that fit.

Rows are partitioned by some *common* variables. Their key bits, most significant first, are processed one *window* at a
time: a sequential pass over a source sorts each run of rows by the bits of the window (the kernels' stable radix sort)
and writes it to a scratch file, with the first row of each *digit* (value of the window's bits). Neighbouring digits
are then combined to parts that fit; the rows of a part are a slice of each run. A digit that does not fit alone is
partitioned again by the following bits, so skew costs passes only over the rows concerned. Stable passes and ascending
digits preserve the order of rows: the concatenated parts are sorted by the common variables, ties as in the source.

A source sorted by the common variables is not written again: its runs are ranges of its own rows. If all sources are
sorted, or concatenations of sorted runs, and pieces hold several chunks of each, no pass is needed
(:mod:`oocbe.execution.key_cuts`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.execution.budget import MemoryPlan
from oocbe.execution.key_cuts import KeyIndex, LaidEndToEnd, cut_alike, runs_in_order
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.scratch import ScratchFile
from oocbe.execution.sources import Buffers, SliceSource, Source, row_bytes, sliced
from oocbe.kernels.interface import Backend
from oocbe.model.settings.tuning import tuning
from oocbe.tables.layout import merged_ranges, move_plan, range_masks

Item = TypeVar("Item")


@dataclass(frozen=True)
class JoinInput:
    """A source with the requirements of an operation.

    source : the rows.
    scope : its variables in the order required by the operation, the least significant first.
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
    ``ordered`` is that source. ``digits``, ``starts`` and ``counts``, each (segments,), are digit, first row and rows
    of each."""

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

    inputs : sources, with the same common variables.
    first : the first bit of the common variables that may differ.
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


class _Runs(NamedTuple):
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
            self._runs = list(run_in_order((_Run(self, *r).compute for r in source.ranges(run_rows)), space.streams))
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


def run_cost(source: Source) -> int:
    """Bytes a row for sorting a run: rows as read, moved, sorted, and the starts of digits."""
    return 3 * row_bytes(source.layout, source.dtype) + 8


class _Run:
    """Some rows of a source as a piece of work: sorted by the window's bits and written to scratch."""

    def __init__(self, partition: _Partition, start: int, stop: int) -> None:
        self._partition, self._start, self._stop = partition, start, stop

    def compute(self, stream: int) -> Iterator[_Runs]:
        """Write the run; yields the starts of its digits."""
        partition, kernels = self._partition, self._partition.kernels
        ordered, buffers = partition.ordered, partition.buffers[stream]
        source = ordered.source
        if partition.scratch is None:
            # Nothing to sort: only the starts of digits are needed, from the keys alone.
            shape = (source.layout.words, self._stop - self._start)
            keys = buffers.take("keys", shape, np.dtype(np.uint64))
            source.read_into(self._start, keys, None)
            yield _Runs(*_digits(kernels.upload(keys), partition), self._start)
            return
        table = buffers.load("run", source, self._start, self._stop)
        keys, values = kernels.upload(table.keys), kernels.upload(table.values)
        moved = partition.layout.scope != source.layout.scope
        if moved:
            keys = kernels.permute(keys, move_plan(source.layout, partition.layout), partition.layout.words)
        keys, values = kernels.sort_rows(keys, values, partition.window.ranges(partition.written), own=moved)
        digits, bounds, given_up = _digits(keys, partition)
        start = partition.scratch.append(kernels.download(keys), kernels.download(values), bounds)
        yield _Runs(digits, bounds, given_up, start)


def _digits(keys: NDArray[np.uint64], partition: _Partition) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
    """Digits of rows sorted by a window's bits, the bounds of their rows, and the number of ignored lowest bits."""
    kernels, window, written = partition.kernels, partition.window, partition.written
    starts = kernels.group_starts(keys, window.masks(written))
    heads = kernels.upload(np.ascontiguousarray(kernels.download(keys[:, starts[:-1]])))
    digits = kernels.download(kernels.permute(heads, window.plan(written), 1))[0]
    bounds = kernels.download(starts)
    given_up = 0
    while len(digits) > tuning().few_rows:
        given_up += 1
        digits = digits >> np.uint64(1)
        kept = np.flatnonzero(np.append(True, digits[1:] != digits[:-1]))
        digits, bounds = digits[kept], np.append(bounds[:-1][kept], bounds[-1])
    return digits << np.uint64(given_up), bounds, given_up
