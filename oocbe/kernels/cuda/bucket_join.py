"""Buckets on the device: join all tables and lookups level by level, reduce the leaves, drop dominated rows.

The walk of :mod:`oocbe.kernels.cpu.bucket_join`, breadth first. The frontier is an array of items (a prefix of the
separator's key, and a row range of each table); a level turns it into the next one by two launches, count and write,
with a prefix sum between them. A unit of work is a row of the range of the level's first table, or a value of an
enumerating run, so a long range is shared by many threads and short ranges share a block. Where the next frontier would
not fit the device memory, the items are cut in two and each half is taken to its leaves: both halves' rows, laid end to
end, are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda import memory
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch

SOURCE = "bucket_join"
THREADS = 256
MOST_TABLES = 32
"""Tables of one bucket that a thread can follow, as in the source."""

FRONTIER_SHARE = 3
"""A new frontier may take this part (one third) of the free device memory: the old one and the leaves need room too."""


@dataclass(frozen=True)
class _Frontier:
    """Items: uint64 (words, items) key prefixes; uint32 (tables, items) first and one past the last row.

    ``widths``, int64 (items,), are the numbers of rows of the next level's driving table; None where none drives it.
    """

    keys: Any
    low: Any
    high: Any
    widths: Any

    @property
    def items(self) -> int:
        return int(self.keys.shape[1])

    def part(self, first: int, last: int) -> _Frontier:
        """Items first .. last - 1, copied: kernels want them contiguous."""
        keys, low, high = (cupy().ascontiguousarray(a[:, first:last]) for a in (self.keys, self.low, self.high))
        return _Frontier(keys, low, high, None if self.widths is None else self.widths[first:last])


class DeviceProgram:
    """A join program's arrays and the tables' addresses on the device.

    Parameters
    ----------
    runs, lookups, leaf : as in :class:`oocbe.operators.join_program.JoinProgram`.
    tables : device keys uint64 (words, rows) and values of each table; kept alive by this object.
    words : of the separator's keys.
    """

    def __init__(
        self,
        runs: tuple[NDArray[Any], ...],
        lookups: tuple[NDArray[Any], ...],
        leaf: tuple[Any, ...],
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
        self._buffer, places = _pack([addresses, parts, *lookups[1:], leaf[3]])
        base = int(self._buffer.data.ptr)
        self.tables_at, self.parts_at, *rest = [base + 8 * place for place in places]
        self.lookups_at, self.masks_at = rest[:-1], rest[-1]
        self.leaf_size, self.leaf_mask, self.mask_words = int(leaf[0]), int(leaf[1]), int(leaf[2])
        self.leaf_values = cupy().asarray(leaf[4])
        definitions: dict[str, str | int] = {
            "WORDS": words,
            "VALUE": C_TYPES[dtype],
            "COMBINATION": int(leaf[5]),
            "MARGINALISATION": int(leaf[6]),
        }
        self.kernel: Callable[[str], Any] = lambda name: kernel(SOURCE, name, **definitions)

    def join(self, row_limit: int) -> tuple[Any, Any] | None:
        """Keys uint64 (words, rows), ascending, and values (rows,), on the device; None beyond ``row_limit`` rows.

        Raises
        ------
        ResourceError : device memory ran out, although the work was cut into smaller pieces.
        """
        count = len(self.tables)
        rows = [[keys.shape[1]] for keys, _ in self.tables]
        driver = self._driver(0)
        root = _Frontier(
            cupy().zeros((self.words, 1), dtype=np.uint64),
            cupy().zeros((count, 1), dtype=np.uint32),
            cupy().asarray(np.array(rows, dtype=np.uint32).reshape(count, 1)),
            None if driver < 0 else cupy().asarray(np.array(rows[driver], dtype=np.int64)),
        )
        parts = self._descend(root, 0, row_limit)
        if parts is None:
            return None
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

    def _descend(self, frontier: _Frontier, level: int, row_limit: int) -> list[tuple[Any, Any]] | None:
        """Rows of all leaves below some items; None beyond the limit."""
        while level < len(self.run_word):
            if frontier.items == 0:
                return []
            following = self._try_expanding(frontier, level)
            if following is None:
                middle = frontier.items // 2
                first = self._descend(frontier.part(0, middle), level, row_limit)
                if first is None:
                    return None
                made = sum(len(v) for _, v in first)
                second = self._descend(frontier.part(middle, frontier.items), level, row_limit - made)
                return None if second is None else first + second
            frontier = following
            level += 1
        rows = self._reduce(frontier)
        return None if len(rows[1]) > row_limit else [rows]

    def _try_expanding(self, frontier: _Frontier, level: int) -> _Frontier | None:
        """The next frontier; None where it should be made in two halves for want of memory."""
        try:
            return self._expand(frontier, level)
        except Exception as error:
            if frontier.items < 2 or not memory.is_out_of_memory(error):
                raise
        memory.free_blocks()
        return None

    def _expand(self, frontier: _Frontier, level: int) -> _Frontier | None:
        """The next frontier; None where it should be made in two halves for want of memory."""
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
        struct = np.array(arguments, dtype=np.uint64)
        ballots, block_ends = self._count("count_children", struct, units)
        children = int(block_ends[-1]) if units else 0
        item_bytes = 8 * self.words + 8 * count
        if items > 1 and children * item_bytes > _free_memory() // FRONTIER_SHARE:
            return None
        keys = cupy().empty((self.words, children), dtype=np.uint64)
        low = cupy().empty((count, children), dtype=np.uint32)
        high = cupy().empty((count, children), dtype=np.uint32)
        driver = self._driver(level + 1)
        widths = None if driver < 0 else cupy().empty(children, dtype=np.int64)
        if children:
            written = (keys, low, high, children, driver, keys if widths is None else widths)
            launch(self.kernel("write_children"), _blocks(units), THREADS, struct, ballots, block_ends, *written)
        return _Frontier(keys, low, high, widths)

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
        struct = np.array(arguments, dtype=np.uint64)
        ballots, block_ends = self._count("reduce_leaves", struct, items, totals)
        return self._keep(frontier.keys, totals, ballots, block_ends)

    def _count(self, name: str, struct: NDArray[np.uint64], units: int, *outputs: Any) -> tuple[Any, Any]:
        """Launch a kernel that flags units; one bit a unit, and the inclusive prefix sum of the blocks' counts."""
        blocks = _blocks(units)
        ballots = cupy().empty(blocks * (THREADS // 32), dtype=np.uint32)
        counts = cupy().empty(blocks, dtype=np.int64)
        launch(self.kernel(name), blocks, THREADS, struct, *outputs, ballots, counts)
        return ballots, cupy().cumsum(counts)

    def _keep(self, keys: Any, values: Any, ballots: Any, block_ends: Any) -> tuple[Any, Any]:
        return keep_flagged(self.kernel, keys, values, ballots, block_ends)


def keep_flagged(
    kernels: Callable[[str], Any], keys: Any, values: Any, ballots: Any, block_ends: Any
) -> tuple[Any, Any]:
    """Rows whose flag is set, in their order; the inputs themselves where all are."""
    rows = len(values)
    kept = int(block_ends[-1]) if rows else 0
    if kept == rows:
        return keys, values
    kept_keys = cupy().empty((keys.shape[0], kept), dtype=np.uint64)
    kept_values = cupy().empty(kept, dtype=values.dtype)
    arguments = (keys, values, rows, ballots, block_ends, kept_keys, kept_values, kept)
    launch(kernels("keep_flagged"), _blocks(rows), THREADS, *arguments)
    return kept_keys, kept_values


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

    Parameters
    ----------
    keys : device uint64 (words, rows), ascending. values : device (rows,).
    fields : uint64 (variables, 3), word, shift and mask of each variable that can be substituted.
    start_offset, start, target, penalty : substitutions of value a of variable v are start[start_offset[v] + a] up to,
        not including, the next entry; see :mod:`oocbe.kernels.cpu.dominance`. penalty is int64 or float64.
    sign : 1 where small values are better, -1 where large ones are.
    """
    rows = len(values)
    columns = [np.ascontiguousarray(fields[:, i]) for i in range(3)]
    buffer, places = _pack([*columns, start_offset, start, target, penalty])
    word, shift, mask, offset, begin, to, worst = (int(buffer.data.ptr) + 8 * place for place in places)
    struct = np.array([word, shift, mask, offset, len(fields), begin, to, worst], dtype=np.uint64)
    struct = np.concatenate([struct, np.array([sign], dtype=np.int64).view(np.uint64)])
    definitions: dict[str, str | int] = {
        "WORDS": keys.shape[0],
        "VALUE": C_TYPES[values.dtype],
        "COMBINATION": 0,
        "MARGINALISATION": 0,
    }

    def kernels(name: str) -> Any:
        return kernel(SOURCE, name, **definitions)

    blocks = _blocks(rows)
    ballots = cupy().empty(blocks * (THREADS // 32), dtype=np.uint32)
    counts = cupy().empty(blocks, dtype=np.int64)
    launch(kernels("flag_undominated"), blocks, THREADS, keys, values, rows, struct, ballots, counts)
    return keep_flagged(kernels, keys, values, ballots, cupy().cumsum(counts))


def _pack(arrays: Sequence[NDArray[Any]]) -> tuple[Any, list[int]]:
    """Arrays of 8-byte elements in one device buffer (one copy instead of many), and where each begins."""
    places, end = [], 0
    for array in arrays:
        places.append(end)
        end += max(1, array.size)
    packed = np.zeros(end, dtype=np.uint64)
    for array, place in zip(arrays, places, strict=True):
        packed[place : place + array.size] = np.ascontiguousarray(array).reshape(-1).view(np.uint64)
    return cupy().asarray(packed), places


def _addresses(frontier: _Frontier) -> tuple[int, int, int]:
    return int(frontier.keys.data.ptr), int(frontier.low.data.ptr), int(frontier.high.data.ptr)


def _blocks(units: int) -> int:
    return -(-units // THREADS)


def _free_memory() -> int:
    """Bytes that may still be taken: what is left of the pool's limit, or of the device where that is less."""
    pool = cupy().get_default_memory_pool()
    left_on_device = int(cupy().cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    limit = int(pool.get_limit())
    return min(left_on_device, limit - memory.used_bytes()) if limit else left_on_device
