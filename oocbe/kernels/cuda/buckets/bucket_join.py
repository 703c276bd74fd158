"""Buckets on the device: join all tables and lookups level by level, and reduce the leaves.

The walk of :mod:`oocbe.kernels.cpu.buckets.bucket_join`, breadth first. The frontier is an array of items (a prefix of
the separator's key, and a row range of each table); a level turns it into the next one by two launches, count and
write, with a prefix sum between them. A unit of work is a row of the range of the level's first table, or a value of an
enumerating run, so a long range is shared by many threads and short ranges share a block. Where the next frontier would
not fit the device memory, the items are cut in two and each half is taken to its leaves: both halves' rows, laid end to
end, are sorted.

With a bound, a unit makes no child where the bound on its prefix reaches the slack of its level. An item carries that
bound; what the values of the joined rows add to it is a function of the row ranges alone, so that nothing else needs to
be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch, or_null
from oocbe.kernels.cuda.pruning.flags import THREADS, blocks_for, flag, keep_flagged, pack
from oocbe.kernels.cuda.transfer import memory
from oocbe.system.deadline import look
from oocbe.system.pieces import run_piece

SOURCE = "bucket_join"
MOST_TABLES = 32
"""Tables of one bucket that a thread can follow, as in the source."""

FRONTIER_SHARE = 3
"""A new frontier may take this part (one third) of the free device memory: the old one and the leaves need room too."""


class RowLimitError(Exception):
    """A join passes the rows that it may come to."""


class _NoRoomError(Exception):
    """The next frontier is better made in two halves, for want of memory."""


def _found_no_room(error: Exception) -> bool:
    return isinstance(error, _NoRoomError)


@dataclass(frozen=True)
class _Frontier:
    """Items: uint64 (words, items) key prefixes; uint32 (tables, items) first and one past the last row.

    ``widths``, int64 (items,), are the numbers of rows of the next level's driving table; None where none drives it.
    ``totals``, int64 or float64 (items,), are bounds on the items; None where nothing is pruned.
    """

    keys: Any
    low: Any
    high: Any
    widths: Any
    totals: Any

    @property
    def items(self) -> int:
        return int(self.keys.shape[1])

    def part(self, first: int, last: int) -> _Frontier:
        """Items first .. last - 1, copied: kernels want them contiguous."""
        keys, low, high = (cupy().ascontiguousarray(a[:, first:last]) for a in (self.keys, self.low, self.high))
        widths, totals = (None if a is None else a[first:last] for a in (self.widths, self.totals))
        return _Frontier(keys, low, high, widths, totals)


@dataclass
class _Descent:
    """Items on their way to the leaves.

    Attributes
    ----------
    frontier : as far as they have come. level : that drives the next one.
    """

    frontier: _Frontier
    level: int

    def halves(self) -> Iterator[_Descent]:
        """The items in two, each copied when its turn has come."""
        items = self.frontier.items
        for first, last in ((0, items // 2), (items // 2, items)):
            yield _Descent(self.frontier.part(first, last), self.level)


class DeviceProgram:
    """A join program's arrays and the tables' addresses on the device.

    Parameters
    ----------
    runs, lookups, leaf, bounds : as in :class:`oocbe.bucket_engine.join_program.JoinProgram`.
    tables : device keys uint64 (words, rows) and values of each table; kept alive by this object.
    words : of the separator's keys.
    """

    def __init__(
        self,
        runs: tuple[NDArray[Any], ...],
        lookups: tuple[NDArray[Any], ...],
        leaf: tuple[Any, ...],
        bounds: tuple[Any, ...],
        tables: Sequence[tuple[Any, Any]],
        words: int,
        dtype: np.dtype[Any],
    ) -> None:
        self.words, self.dtype, self.tables = words, dtype, tables
        self.run_word, self.run_shift, self.run_mask, self.run_size, self.part_start = runs[:5]
        self.part_table = runs[5]
        self.level_start = lookups[0]
        addresses = np.array(
            [[keys.data.ptr, keys.shape[1], values.data.ptr] for keys, values in tables], dtype=np.uint64
        ).reshape(-1, 3)
        parts = np.stack([runs[5].astype(np.uint64), runs[6].astype(np.uint64), runs[7]], axis=1)
        self.prunes = len(bounds[6]) > 0
        self.bound_start, self.slack, self.scale = bounds[0], bounds[6], bounds[7]
        self._buffer, places = pack([addresses, parts, *bounds[1:6], leaf[3], *lookups[1:]])
        base = int(self._buffer.data.ptr)
        self.tables_at, self.parts_at, *rest = [base + 8 * place for place in places]
        self.bounds_at, self.masks_at, self.lookups_at = rest[:5], rest[5], rest[6:]
        self.least = _least_values(tables, bounds[5].dtype) if self.prunes else None
        self.leaf_size, self.leaf_mask, self.mask_words = int(leaf[0]), int(leaf[1]), int(leaf[2])
        self.leaf_values = cupy().asarray(leaf[4])
        definitions: dict[str, str | int] = {
            "WORDS": words,
            "VALUE": C_TYPES[dtype],
            "COMBINATION": int(leaf[5]),
            "MARGINALISATION": int(leaf[6]),
            "PRUNES": int(self.prunes),
        }
        self.kernel: Callable[[str], Any] = lambda name: kernel(SOURCE, name, **definitions)

    def join(self, row_limit: int) -> tuple[Any, Any]:
        """Keys uint64 (words, rows), ascending, and values (rows,), on the device.

        Raises
        ------
        RowLimitError : more than ``row_limit`` rows.
        cupy's OutOfMemoryError : device memory ran out, although the work was cut into smaller pieces.
        """
        count = len(self.tables)
        rows = [[keys.shape[1]] for keys, _ in self.tables]
        driver = self._driver(0)
        root = _Frontier(
            cupy().zeros((self.words, 1), dtype=np.uint64),
            cupy().zeros((count, 1), dtype=np.uint32),
            cupy().asarray(np.array(rows, dtype=np.uint32).reshape(count, 1)),
            None if driver < 0 else cupy().asarray(np.array(rows[driver], dtype=np.int64)),
            None if self.least is None else self.least.sum(keepdims=True) * self.scale,
        )
        parts: list[tuple[Any, Any]] = []
        made = 0
        for part in run_piece(_Descent(root, 0), self._descend, _Descent.halves, _found_no_room):
            parts.append(part)
            made += len(part[1])
            if made > row_limit:
                raise RowLimitError
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cupy().empty((self.words, 0), dtype=np.uint64), cupy().empty(0, dtype=self.dtype)
        return cupy().concatenate([k for k, _ in parts], axis=1), cupy().concatenate([v for _, v in parts])

    def _driver(self, level: int) -> int:
        """Table whose rows are a level's units of work; -1 where none takes part, or at the leaves."""
        if level >= len(self.run_word) or self.part_start[level] == self.part_start[level + 1]:
            return -1
        return int(self.part_table[self.part_start[level]])

    def _descend(self, descent: _Descent) -> Sequence[tuple[Any, Any]]:
        """Rows of all leaves below some items; what has been done when it fails is not done again."""
        while descent.level < len(self.run_word):
            look()
            if descent.frontier.items == 0:
                return ()
            descent.frontier = self._try_expanding(descent.frontier, descent.level)
            descent.level += 1
        return (self._reduce(descent.frontier),)

    def _try_expanding(self, frontier: _Frontier, level: int) -> _Frontier:
        """The next frontier; _NoRoomError where memory runs out, and there are items to halve."""
        try:
            return self._expand(frontier, level)
        except Exception as error:
            if frontier.items < 2 or not memory.is_out_of_memory(error):
                raise
        memory.free_blocks()
        raise _NoRoomError

    def _expand(self, frontier: _Frontier, level: int) -> _Frontier:
        """The next frontier; _NoRoomError where it would take too much of the memory that is free."""
        items, count = frontier.items, len(self.tables)
        part_from, part_to = int(self.part_start[level]), int(self.part_start[level + 1])
        size = int(self.run_size[level])
        unit_end = None
        if frontier.widths is not None:
            unit_end = cupy().cumsum(frontier.widths)
            units = int(unit_end[-1])
        else:
            units = items * size
        arguments = [
            self.tables_at,
            self.parts_at + 24 * part_from,
            part_to - part_from,
            count,
            *self.lookups_at[:10],
            int(self.level_start[level]),
            int(self.level_start[level + 1]),
            int(self.run_word[level]),
            int(self.run_shift[level]),
            int(self.run_mask[level]),
            size,
            *_addresses(frontier),
            items,
            0 if unit_end is None else int(unit_end.data.ptr),
            units,
        ]
        struct = self._with_bounds(arguments, level, level + 1, self.slack[level + 1 : level + 2], frontier.totals)
        ballots, block_ends = flag(self.kernel("count_children"), units, struct)
        children = int(block_ends[-1]) if units else 0
        item_bytes = 8 * self.words + 8 * count + 8 * self.prunes
        if items > 1 and children * item_bytes > _free_memory() // FRONTIER_SHARE:
            raise _NoRoomError
        keys = cupy().empty((self.words, children), dtype=np.uint64)
        low = cupy().empty((count, children), dtype=np.uint32)
        high = cupy().empty((count, children), dtype=np.uint32)
        driver = self._driver(level + 1)
        widths = None if driver < 0 else cupy().empty(children, dtype=np.int64)
        totals = cupy().empty(children, dtype=self.slack.dtype) if self.prunes else None
        if children:
            written = (keys, low, high, children, driver, or_null(widths), or_null(totals))
            launch(self.kernel("write_children"), blocks_for(units), THREADS, struct, ballots, block_ends, *written)
        return _Frontier(keys, low, high, widths, totals)

    def _reduce(self, frontier: _Frontier) -> tuple[Any, Any]:
        """Rows of the leaves that have a value."""
        items, levels = frontier.items, len(self.run_word)
        segment_start, _, word, shift, mask, place, base = self.lookups_at[:7]
        mask_from, function_from, function_to = (int(self.level_start[levels + i]) for i in range(3))
        arguments = [
            self.tables_at,
            len(self.tables),
            segment_start,
            word,
            shift,
            mask,
            place,
            base,
            self.masks_at,
            int(self.leaf_values.data.ptr),
            mask_from,
            function_from,
            function_to,
            self.leaf_size,
            self.leaf_mask,
            self.mask_words,
            *_addresses(frontier),
            items,
        ]
        totals = cupy().empty(items, dtype=self.dtype)
        struct = self._with_bounds(arguments, 0, levels, self.slack[-1:], None)
        ballots, block_ends = flag(self.kernel("reduce_leaves"), items, struct, totals)
        return keep_flagged(self.kernel, frontier.keys, totals, ballots, block_ends)

    def _with_bounds(
        self, arguments: list[Any], first: int, last: int, slack: NDArray[Any], totals: Any
    ) -> NDArray[np.uint64]:
        """Arguments and the bound's tables of some levels as the kernels' struct; all zero where nothing is pruned."""
        bounds = np.zeros(11, dtype=np.uint64)
        if self.prunes:
            bounds[:2] = self.bound_start[first], self.bound_start[last]
            bounds[2:7] = self.bounds_at
            bounds[7:8] = slack.view(np.uint64)
            bounds[8:9] = np.array([self.scale], dtype=slack.dtype).view(np.uint64)
            bounds[9] = 0 if self.least is None else self.least.data.ptr
            bounds[10] = 0 if totals is None else totals.data.ptr
        return np.concatenate([np.array(arguments, dtype=np.uint64), bounds])


def _least_values(tables: Sequence[tuple[Any, Any]], dtype: np.dtype[Any]) -> Any:
    """Least value of each table, on the device; none of them is empty."""
    least = cupy().zeros(len(tables), dtype=dtype)
    for number, (_, values) in enumerate(tables):
        least[number] = values.min()
    return least


def _addresses(frontier: _Frontier) -> tuple[int, int, int]:
    return int(frontier.keys.data.ptr), int(frontier.low.data.ptr), int(frontier.high.data.ptr)


def _free_memory() -> int:
    """Bytes that may still be taken: what is left of the pool's limit, or of the device where that is less."""
    pool = cupy().get_default_memory_pool()
    left_on_device = int(cupy().cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    limit = int(pool.get_limit())
    return min(left_on_device, limit - memory.used_bytes()) if limit else left_on_device
