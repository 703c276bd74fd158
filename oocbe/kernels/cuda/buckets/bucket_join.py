"""Bucket joins on the device: join all tables and lookups level by level, and reduce the leaves.

This is the walk of :mod:`oocbe.kernels.cpu.buckets.bucket_join`, breadth first. The frontier is an array of items (a
prefix of the separator's key, and a row range of each table); a level computes the next one with two launches, count
and write, and a prefix sum between them. A unit of work is a row of the range of the level's first table, so that long
ranges are shared by many threads and short ranges share a block. Where ranges are long for the values of the run, a
unit is a value, which is searched for in the range of each table, as in a run without a table. If the next frontier
exceeds the device memory, the items are halved and each half is processed to its leaves: the concatenated rows of both
halves are sorted.

With a bound, a unit whose bound reaches the slack of its level makes no child. An item stores its bound; the
contribution of the joined rows is a function of the row ranges, so nothing else is stored.

Several GPUs share a long join without a bound: each takes a part of the items of the first large frontier, with copies
of the tables' rows in their ranges, and the rows of the parts are concatenated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.join_arrays import JoinProgram
from oocbe.kernels.cuda import modules
from oocbe.kernels.cuda.buckets.flags import THREADS, blocks_for, flag, keep_flagged, pack
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.gpus import GpuError, gpus, on_gpus
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch, or_null
from oocbe.kernels.cuda.pairs.selection import COUNTS, find_tiles, summed
from oocbe.kernels.cuda.transfer import memory
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.pieces import Worklist

SOURCE = "bucket_join"
DEVICE_LIMBS = 8
"""Maximum limbs of counts that are joined on the device: each number is a compilation, and registers are scarce."""

MOST_TABLES = 32
"""Maximum number of tables of one bucket, as in the source."""

FRONTIER_SHARE = 3
"""Divisor of free device memory: a new frontier takes up to one third. The old one and the leaves need room too."""

SMALL_FRONTIER = 1 << 20
"""Bytes of a frontier that is allocated without a query of the free memory, which takes as long as a launch."""

ROWS_A_SEARCH = 2
"""Rows of the driving table that a level reads in the time of a search for one value of the run (H200: 1 to 3 are
equally fast, 8 takes a tenth longer)."""

SEARCHED_ITEMS = 1 << 16
"""Maximum items of a frontier in which blocks search for their first ones; for more, a launch finds them. Not tuned."""

SHARED_ITEMS, MOST_SHARED_ITEMS = 1 << 16, 1 << 26
"""Limits of the items of a frontier that several GPUs share: so many are divided evenly, and copied quickly."""

SHARED_SECONDS = 0.2
"""Minimum expected time of a join that they share: the copies of tables and rows take some 10 milliseconds a gigabyte.
"""

ITEM_SECONDS = 2.5e-11
"""Approximate seconds of a row of the largest table in a level: 1.1e-11 and 2.6e-11 in two buckets on an H200."""


class RowLimitError(Exception):
    """A join exceeds its limit of rows."""


class _NoRoomError(Exception):
    """The next frontier must be computed in two halves, for lack of memory."""


@dataclass(frozen=True)
class _Frontier:
    """Items: uint64 (words, items) key prefixes; uint32 (tables, items) first and one past the last row.

    ``widths``, int64 (items,), are the numbers of rows of the next level's driving table; None if there is none.
    ``totals``, int64 or float64 (items,), are bounds on the items; None without pruning.
    """

    keys: Any
    low: Any
    high: Any
    widths: Any
    totals: Any

    @property
    def items(self) -> int:
        return int(self.keys.shape[1])

    @property
    def arrays(self) -> tuple[Any, Any, Any, Any, Any]:
        """All arrays, in the order of the fields."""
        return self.keys, self.low, self.high, self.widths, self.totals

    def part(self, first: int, last: int) -> _Frontier:
        """Items first .. last - 1, copied: kernels need contiguous arrays."""
        keys, low, high = (cupy().ascontiguousarray(a[:, first:last]) for a in (self.keys, self.low, self.high))
        widths, totals = (None if a is None else a[first:last] for a in (self.widths, self.totals))
        return _Frontier(keys, low, high, widths, totals)


@dataclass
class _Descent:
    """Items between the root and the leaves: the current frontier, and the level of the next step."""

    frontier: _Frontier
    level: int

    def halves(self) -> Iterator[_Descent]:
        """The items in two halves, each copied when it is processed."""
        items = self.frontier.items
        for first, last in ((0, items // 2), (items // 2, items)):
            yield _Descent(self.frontier.part(first, last), self.level)


class DeviceProgram:
    """A join program's arrays and the tables' addresses on the device.

    program : the bucket, without consumption in its rows.
    tables : device keys uint64 (words, rows) and values of each table, (rows,), or (rows, limbs) of counts
        (:mod:`oocbe.tables.numbers`) if the program makes counts; kept alive by this object.
    words : of the separator's keys. dtype : of the values. may_share : whether other GPUs may take parts of the work.
    """

    def __init__(
        self,
        program: JoinProgram,
        tables: Sequence[tuple[Any, Any]],
        words: int,
        dtype: np.dtype[Any],
        may_share: bool = True,
    ) -> None:
        self._may_share = may_share and bool(tables) and not program.prunes
        self.words, self.dtype, self.tables = words, dtype, tables
        self.program, self.runs, self.prunes = program, program.runs, program.prunes
        addresses = np.array(
            [[keys.data.ptr, keys.shape[1], values.data.ptr] for keys, values in tables], dtype=np.uint64
        ).reshape(-1, 3)
        runs = program.runs
        parts = np.stack([runs.part_table.astype(np.uint64), runs.part_word.astype(np.uint64), runs.part_shift], axis=1)
        # The fields of the source's structs of the same names; arrays by address.
        groups = [
            [getattr(group, field) for field in modules.members(SOURCE, type(group).__name__)]
            for group in (program.lookups, program.leaf, program.bounds)
        ]
        host = [field for group in groups for field in group if isinstance(field, np.ndarray)]
        limbs = np.array([v.shape[1] if v.ndim == 2 else 1 for _, v in tables], dtype=np.int64)
        # The first frontier's arrays share the copy, as even a short copy takes as long as a launch.
        root = self._root_arrays()
        self._buffer, places = pack([addresses, parts, limbs, *host, *root])
        at = (int(self._buffer.data.ptr) + 8 * place for place in places)
        self.tables_at, self.parts_at, self.limbs_at = next(at), next(at), next(at)
        self.lookups, self.leaf, self.bounds = (
            [next(at) if isinstance(field, np.ndarray) else modules.word(field) for field in group] for group in groups
        )
        self._least = _least_values(tables, program.bounds.entries.dtype) if self.prunes else None
        keys, low, high, widths = (
            self._buffer[place:].view(array.dtype)[: array.size].reshape(array.shape)
            for array, place in zip(root, places[-len(root) :], strict=True)
        )
        self._root = _Frontier(
            keys,
            low,
            high,
            widths if widths.size else None,
            None if self._least is None else self._least.sum(keepdims=True) * program.bounds.scale,
        )
        known = {"tables": self.tables_at, "table_count": len(tables), "lookups": self.lookups}
        self._level = modules.Struct(SOURCE, "Level", **known)
        self._bounds = modules.Struct(SOURCE, "Bounds", arrays=self.bounds, least=self._least)
        self._definitions: dict[str, str | int] = {
            "WORDS": words,
            "VALUE": C_TYPES[dtype],
            "COMBINATION": program.semiring.combination,
            "MARGINALISATION": program.semiring.marginalisation,
            "PRUNES": int(self.prunes),
            "LIMBS": program.semiring.limbs or 0,
        }

    def _root_arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The root item: its key, the first and one past the last row of each table, and its width."""
        rows = np.array([[keys.shape[1]] for keys, _ in self.tables], dtype=np.uint32).reshape(-1, 1)
        driver = self._driver(0)
        widths = rows[driver] if driver >= 0 else rows[:0, 0]
        return np.zeros((self.words, 1), dtype=np.uint64), np.zeros_like(rows), rows, widths.astype(np.int64)

    def kernel(self, name: str) -> Any:
        """A kernel of the source, for this program's words, values and semiring."""
        return kernel(SOURCE, name, **self._definitions)

    def join(self, row_limit: int) -> tuple[Any, Any]:
        """Keys uint64 (words, rows), ascending, and values (rows,) or (rows, limbs), on the device.

        Raises RowLimitError: more than ``row_limit`` rows; cupy's OutOfMemoryError: device memory ran out.
        """
        may_share = self._may_share
        parts = self._parts(_Descent(self._root, 0), row_limit)
        if len(parts) == 1 and may_share == self._may_share:
            return parts[0]
        try:
            return self._concatenated(parts)
        except Exception as error:
            if self._may_share == may_share or not memory.is_out_of_memory(error):
                raise
        parts.clear()
        memory.free_blocks()
        return self.join(row_limit)  # by this device alone, which needs no copy of the rows

    def _concatenated(self, parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Rows of several parts on any devices, on the current one."""
        rows = sum(len(values) for _, values in parts)
        keys, values = cupy().empty((self.words, rows), dtype=np.uint64), self._values(rows)
        place = 0
        for part_keys, part_values in parts:
            end = place + len(part_values)
            for target, source in zip([*keys[:, place:end], values[place:end]], [*part_keys, part_values], strict=True):
                target.data.copy_from_device_async(source.data, source.nbytes)
            place = end
        cupy().cuda.get_current_stream().synchronize()  # before other devices reuse the memory of their parts
        return keys, values

    def _parts(self, whole: _Descent, row_limit: int) -> list[tuple[Any, Any]]:
        """Keys and values of all leaves below some items, in parts, which may be on several devices; errors as for
        :meth:`join`."""
        parts: list[tuple[Any, Any]] = []
        made = 0
        worklist = Worklist(whole, _Descent.halves, lambda error: isinstance(error, _NoRoomError))
        for descent in worklist:
            with worklist:
                leaves = self._descend(descent, row_limit)
                parts += leaves
                made += sum(len(values) for _, values in leaves)
            del descent  # frees its memory before the next one is copied
            if made > row_limit:
                raise RowLimitError
        return parts

    def _driver(self, level: int) -> int:
        """Table whose rows are a level's units of work; -1 for an enumerating level, or at the leaves."""
        part_start = self.runs.part_start
        if level >= self.program.levels or part_start[level] == part_start[level + 1]:
            return -1
        return int(self.runs.part_table[part_start[level]])

    def _descend(self, descent: _Descent, row_limit: int) -> Sequence[tuple[Any, Any]]:
        """Rows of all leaves below some items; after a failure, finished levels are not repeated."""
        while descent.level < self.program.levels:
            check_deadline()
            if descent.frontier.items == 0:
                return ()
            numbers = self._gpus(descent)
            if len(numbers) > 1 and (shared := self._shared(descent, numbers, row_limit)) is not None:
                return shared
            descent.frontier = self._try_expanding(descent.frontier, descent.level)
            descent.level += 1
        return (self._reduce(descent.frontier),)

    def _gpus(self, descent: _Descent) -> list[int]:
        """Numbers of the GPUs that share some items, if that pays; the current one first."""
        items = descent.frontier.items
        if not self._may_share or not SHARED_ITEMS <= items <= MOST_SHARED_ITEMS:
            return []
        rows = max(items, *(keys.shape[1] for keys, _ in self.tables))
        seconds = rows * (self.program.levels - descent.level) * ITEM_SECONDS
        return gpus(seconds) if seconds > SHARED_SECONDS else []

    def _shared(self, descent: _Descent, numbers: Sequence[int], row_limit: int) -> list[tuple[Any, Any]] | None:
        """Rows of all leaves below some items by several GPUs, in their memory; None if one of them fails."""
        self._may_share = False  # also after a failure
        level, found = descent.level, [list[tuple[Any, Any]]() for _ in numbers]

        def work(position: int) -> None:
            program, (frontier, tables) = self, shares[position]
            if position:
                tables = [(_copied(keys), _copied(values)) for keys, values in tables]
                program = DeviceProgram(self.program, tables, self.words, self.dtype, may_share=False)
                frontier = _Frontier(*(None if a is None else _copied(a) for a in frontier.arrays))
            found[position] = program._parts(_Descent(frontier, level), row_limit)
            cupy().cuda.get_current_stream().synchronize()

        try:
            shares = self._shares(descent.frontier, len(numbers))
            cupy().cuda.get_current_stream().synchronize()
            on_gpus(numbers, work, lambda: None)
        except Exception as error:
            if not isinstance(error, GpuError) and not memory.is_out_of_memory(error):
                raise
            logging.getLogger("oocbe").warning("%s; one GPU joins the bucket", error)
            return None
        return [part for parts in found for part in parts]

    def _shares(self, frontier: _Frontier, count: int) -> list[tuple[_Frontier, list[tuple[Any, Any]]]]:
        """Items in parts with similar numbers of rows of the largest table, each with the rows of the tables in its
        ranges; the first part has all rows."""
        largest = max(range(len(self.tables)), key=lambda number: self.tables[number][0].shape[1])
        rows = cupy().cumsum(frontier.high[largest].astype(np.int64) - frontier.low[largest])
        wanted = int(rows[-1]) * np.arange(1, count) // count
        cuts = cupy().searchsorted(rows, cupy().asarray(wanted)).tolist()
        shares = []
        for first, last in pairwise([0, *cuts, frontier.items]):
            part, tables = frontier.part(first, last), list(self.tables)
            if first and part.items:
                bounds = np.array([part.low.min(axis=1).get(), part.high.max(axis=1).get()], dtype=np.int64).T.tolist()
                base = cupy().array([[low] for low, _ in bounds], dtype=np.uint32)
                part = replace(part, low=part.low - base, high=part.high - base)
                tables = [(k[:, low:high], v[low:high]) for (k, v), (low, high) in zip(tables, bounds, strict=True)]
            shares.append((part, tables))
        return shares

    def _try_expanding(self, frontier: _Frontier, level: int) -> _Frontier:
        """The next frontier; _NoRoomError if memory runs out and there are items to halve."""
        try:
            return self._expand(frontier, level)
        except Exception as error:
            if frontier.items < 2 or not memory.is_out_of_memory(error):
                raise
        memory.free_blocks()
        raise _NoRoomError

    def _expand(self, frontier: _Frontier, level: int) -> _Frontier:
        """The next frontier; _NoRoomError if it would take too large a share of the free memory."""
        items, count = frontier.items, len(self.tables)
        runs, level_start = self.runs, self.program.lookups.level_start
        part_from, part_to = int(runs.part_start[level]), int(runs.part_start[level + 1])
        size = int(runs.size[level])
        unit_start = first_items = None
        if (widths := frontier.widths) is not None:
            (unit_start,), total = summed(COUNTS, (widths, widths, 1))
            units, values = int(total.numbers()[0]), int(runs.mask[level]) + 1
            if items * values * ROWS_A_SEARCH < units:
                size = values
            elif items > SEARCHED_ITEMS:
                first_items = find_tiles(unit_start, THREADS, blocks_for(units))
        if size:
            units = items * size
        column = shift = low = 0
        if (driver := self._driver(level)) >= 0:
            rows = self.tables[driver][0]
            column = int(rows.data.ptr) + 8 * int(runs.part_word[part_from]) * rows.shape[1]
            shift, low = int(runs.part_shift[part_from]), int(frontier.low.data.ptr) + 4 * driver * items
        struct = self._level.packed(
            driver=column,
            driver_shift=shift,
            driver_low=low,
            parts=self.parts_at + 24 * part_from,
            part_count=part_to - part_from,
            filter_from=int(level_start[level]),
            filter_to=int(level_start[level + 1]),
            word=int(runs.word[level]),
            shift=int(runs.shift[level]),
            mask=int(runs.mask[level]),
            size=size,
            item_keys=frontier.keys,
            item_low=frontier.low,
            item_high=frontier.high,
            items=items,
            unit_start=unit_start,
            units=units,
            first_items=first_items,
            bounds=self._bounds_of(level, level + 1, level + 1, frontier.totals),
        )
        flagged = flag(self.kernel("count_children"), units, struct)
        children = flagged.count
        item_bytes = 8 * self.words + 8 * count + 8 * self.prunes
        needed = children * item_bytes
        if items > 1 and needed > SMALL_FRONTIER and needed > _free_memory() // FRONTIER_SHARE:
            raise _NoRoomError
        keys = cupy().empty((self.words, children), dtype=np.uint64)
        low = cupy().empty((count, children), dtype=np.uint32)
        high = cupy().empty((count, children), dtype=np.uint32)
        driver = self._driver(level + 1)
        widths = None if driver < 0 else cupy().empty(children, dtype=np.int64)
        totals = cupy().empty(children, dtype=self.program.bounds.entries.dtype) if self.prunes else None
        if children:
            written = (keys, low, high, children, driver, or_null(widths), or_null(totals))
            arguments = (struct, flagged.bits, flagged.before, *written)
            launch(self.kernel("write_children"), blocks_for(units), THREADS, *arguments)
        return _Frontier(keys, low, high, widths, totals)

    def _reduce(self, frontier: _Frontier) -> tuple[Any, Any]:
        """Rows of the leaves with a value."""
        items, levels = frontier.items, self.program.levels
        mask_from, function_from, function_to = self.program.lookups.level_start[levels:].tolist()
        struct = modules.packed(
            SOURCE,
            "Leaf",
            tables=self.tables_at,
            limbs=self.limbs_at,
            table_count=len(self.tables),
            lookups=self.lookups,
            leaf=self.leaf,
            mask_from=mask_from,
            function_from=function_from,
            function_to=function_to,
            item_keys=frontier.keys,
            item_low=frontier.low,
            item_high=frontier.high,
            items=items,
            bounds=self._bounds_of(0, levels, levels + 1, None),
        )
        values = self._values(items)
        return keep_flagged(
            self.kernel, frontier.keys, values, flag(self.kernel("reduce_leaves"), items, struct, values)
        )

    def _values(self, rows: int) -> Any:
        """Uninitialised values for some rows."""
        limbs = self.program.semiring.limbs
        return cupy().empty((rows, limbs) if limbs else rows, dtype=self.dtype)

    def _bounds_of(self, first: int, last: int, slack: int, totals: Any) -> list[int]:
        """The bound's tables of some levels, and the index of their slack; zeros without pruning."""
        if not self.prunes:
            return [0] * modules.words(SOURCE, "Bounds")
        bounds = self.program.bounds
        return self._bounds.words(
            first=int(bounds.level_start[first]),
            last=int(bounds.level_start[last]),
            slack=bounds.slack[slack],
            totals=totals,
        )


def _least_values(tables: Sequence[tuple[Any, Any]], dtype: np.dtype[Any]) -> Any:
    """Least value of each table, on the device; none of them is empty."""
    least = cupy().zeros(len(tables), dtype=dtype)
    for number, (_, values) in enumerate(tables):
        least[number] = values.min()
    return least


def _free_memory() -> int:
    """Available bytes: the rest of the pool's limit, or of the device if that is less."""
    pool = cupy().get_default_memory_pool()
    left_on_device = int(cupy().cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    limit = int(pool.get_limit())
    return min(left_on_device, limit - memory.used_bytes()) if limit else left_on_device


def _copied(array: Any) -> Any:
    """A copy, on the current device, of an array on any device whose last axes are contiguous; not awaited."""
    copy = cupy().empty(array.shape, dtype=array.dtype)
    pairs = [(copy, array)] if array.flags.c_contiguous else zip(copy, array, strict=True)
    for target, source in pairs:
        target.data.copy_from_device_async(source.data, source.nbytes)
    return copy


def drop_dominated(
    keys: Any,
    values: Any,
    fields: NDArray[Any],
    start_offset: NDArray[np.int64],
    start: NDArray[np.int64],
    target: NDArray[np.int64],
    penalty: NDArray[Any],
    sign: int,
) -> tuple[Any, Any]:
    """Rows that no substitution of one variable dominates, on the device, in their order.

    keys : device uint64 (words, rows), ascending. values : device (rows,).
    fields : uint64 (variables, 3), word, shift and mask of each substitutable variable.
    start_offset, start, target, penalty : substitutions of value a of variable v are start[start_offset[v] + a] up to,
        not including, the next entry; see :mod:`oocbe.kernels.cpu.buckets.dominance`. penalty is int64 or float64.
    sign : 1 if small values are better, -1 if large ones are.
    """
    rows = len(values)
    columns = [np.ascontiguousarray(fields[:, i]) for i in range(3)]
    buffer, places = pack([*columns, start_offset, start, target, penalty])
    word, shift, mask, offset, begin, to, worst = (int(buffer.data.ptr) + 8 * place for place in places)
    struct = np.array([word, shift, mask, offset, len(fields), begin, to, worst], dtype=np.uint64)
    struct = np.concatenate([struct, np.array([sign], dtype=np.int64).view(np.uint64)])

    def kernels(name: str) -> Any:
        return kernel("dominance", name, WORDS=keys.shape[0], VALUE=C_TYPES[values.dtype])

    return keep_flagged(kernels, keys, values, flag(kernels("flag_undominated"), rows, keys, values, rows, struct))
