"""Compact-Table on the device: a batch of tables and their domains, and the launches of :file:`compact_tables.cu`.

A call is one cooperative launch. The device reads the flags of all values from host memory, filters tables until none
removes a value, and writes the remaining flags back. Nothing is copied. The host waits until a number appears in its
memory, so that a call takes some microseconds more than its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import PreparedLaunch, cooperative_kernel, packed, place_of
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import host_array

SOURCE = "compact_tables"
"""Name of the CUDA source."""

THREADS, WARPS = 512, 16
"""Threads and warps of a block, as in the source."""

TILE_WORDS = 512
"""Words of rows left that a block takes at a time at most."""

ALIGNED_WORDS = 8
"""Tables begin at multiples of so many words of rows left, and columns at multiples of as many rows."""

COLUMNS_A_WARP = 8
"""Columns of a word that a warp looks at, where others can share them."""

CHUNK = 16
"""Values whose flags a thread reads at once."""

ROOM_BYTES = 16
"""Shared memory of a block for 32 values of the largest variable: four words."""

LARGEST_DOMAIN = 1 << 16
"""Values of a variable at most: a block holds four bits for each in shared memory."""

NONE = (1 << 64) - 1
"""The result of a launch without a failure."""

PATIENCE = 1 << 12
"""Looks for an answer, some tenths of a millisecond, before the host waits for the device."""

CODE_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
"""C types of codes, by their number of bytes."""

DeviceCodes = Any
"""Codes of one table on the device, (columns, rows filled up), one column after the other."""


class ScanAnswer(NamedTuple):
    """Results of a call.

    lost : variables that lost values, in any order. failed_table : the first table without a row left, or None.
    failed_variable : the first variable without a value left where all tables have rows, or None. is_over : whether no
    table has to be filtered again; where one has, the rounds that were allowed are over.
    """

    lost: list[int]
    failed_table: int | None
    failed_variable: int | None
    is_over: bool


def filled_up(rows: int) -> int:
    """Rows of a column with those that fill it up."""
    return -(-rows // (32 * ALIGNED_WORDS)) * 32 * ALIGNED_WORDS


def pinned(dtype: Any, count: int) -> NDArray[Any]:
    """An array in the host's memory that the device reads and writes by itself; not set to anything."""
    memory = cupy().cuda.alloc_pinned_memory(max(1, count) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, count)


def pinned_flags(flags: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy of flags in such memory, filled up to whole chunks with zeros behind its end."""
    whole = pinned(np.uint8, -(-len(flags) // CHUNK) * CHUNK)
    whole[: len(flags)] = flags
    whole[len(flags) :] = 0
    return whole[: len(flags)]


@with_retry
def upload_codes(codes: NDArray[Any], itemsize: int) -> DeviceCodes:
    """A table's codes, unsigned integers (rows, columns), on the device, of so many bytes each."""
    module = cupy()
    there = module.zeros((codes.shape[1], filled_up(len(codes))), dtype=f"u{itemsize}")
    there[:, : len(codes)] = module.asarray(codes).T
    return there


class CompactTables:
    """Tables and domains on CuPy's current device, with slots for the levels of a search.

    scopes : variables of each table, one at least. codes : of each table, of one itemsize; tables may share them.
    rows : of each table, one at least. offsets : int64 (variables + 1,), where each variable's flags begin.
    flags, counts : the host's domains; uint8 (values,) by :func:`pinned_flags`, int64 (variables,) by :func:`pinned`.
    """

    @with_retry
    def __init__(
        self,
        scopes: Sequence[Sequence[int]],
        codes: Sequence[DeviceCodes],
        rows: Sequence[int],
        offsets: NDArray[np.int64],
        flags: NDArray[np.uint8],
        counts: NDArray[np.int64],
    ) -> None:
        module = cupy()
        variables, values = len(offsets) - 1, int(offsets[-1])
        words = np.cumsum([0, *(filled_up(count) // 32 for count in rows)])
        arities = [len(scope) for scope in scopes]
        column_variables = np.concatenate([np.asarray(scope, dtype=np.int64) for scope in scopes])
        share = 1
        while share < WARPS and COLUMNS_A_WARP * share < max(arities):
            share *= 2
        room = -(-int(np.diff(offsets).max(initial=1)) // 32)  # words of the largest variable's flags
        code_type = CODE_TYPES[codes[0].itemsize]
        function, blocks = cooperative_kernel(SOURCE, "filter_tables", THREADS, ROOM_BYTES * room, CODE=code_type)
        tile = TILE_WORDS
        while tile > WARPS // share and -(-int(words[-1]) // tile) < blocks // 2:
            tile //= 2
        tile_counts = [-(-(int(end) - int(begin)) // tile) for begin, end in pairwise(words)]
        tile_words = [first + tile * k for first, count in zip(words, tile_counts, strict=False) for k in range(count)]
        chunk_variables = np.searchsorted(offsets, np.arange(0, values, CHUNK), side="right") - 1
        memory, starts = _joined(codes)
        self._arrays = {
            name: module.asarray(np.asarray(array, dtype=np.int64))
            for name, array in {
                "columns": np.cumsum([0, *arities]),
                "words": words,
                "code_starts": starts,
                "column_variables": column_variables,
                "column_tables": np.repeat(np.arange(len(arities)), arities),
                "offsets": offsets,
                "uses": np.searchsorted(np.sort(column_variables), np.arange(variables + 1)),
                "columns_of": np.argsort(column_variables, kind="stable"),
                "tile_tables": np.repeat(np.arange(len(arities)), tile_counts),
                "tile_words": tile_words,
                "chunk_variables": chunk_variables,
            }.items()
        }
        self._memory = memory
        tables = packed(
            SOURCE, "Tables", codes=memory, **self._arrays, tables=len(arities), variables=variables, values=values,
            tiles=len(tile_words), tile_size=tile, share=share,
        )  # fmt: skip
        self._values, self._words = values, words
        self._alive = module.full((1, -(-values // 32) + 1), 0xFFFFFFFF, dtype=np.uint32)
        self._current = module.asarray(_all_rows(rows, words))[None]
        self._scratch = {
            "changed": module.zeros(variables, dtype=np.uint64),
            "waiting": module.zeros(2 * len(arities), dtype=np.uint64),
            "inhabited": module.zeros(len(arities), dtype=np.uint64),
            "reported": module.zeros(variables, dtype=np.uint64),
            "supported": module.zeros(len(column_variables), dtype=np.int64),
            "report": module.asarray(np.array([0, NONE, NONE, 0], dtype=np.uint64)),
            "arrived": module.zeros(2, dtype=np.uint32),
        }
        self._state = packed(SOURCE, "State", **self._levels(), **self._scratch)
        self._lost, self._answer = pinned(np.int64, variables), pinned(np.uint64, 6)
        self._answer[:] = 0
        # Numbers are read and written one by one: views of memory do that in a tenth of the time that arrays take.
        self._look, self._reported = memoryview(self._answer), memoryview(self._lost)  # type: ignore[arg-type]
        addresses = [array.ctypes.data for array in (flags, counts, self._lost, self._answer)]
        self._held = flags, counts
        self._call = packed(
            SOURCE, "Call", **dict(zip(("flags", "counts", "lost", "answer"), addresses, strict=True)), source=0,
            target=0, first_round=1, number=0, most=1, all=1,
        )  # fmt: skip
        self._varying = memoryview(self._call)[place_of(SOURCE, "Call", "source") :]  # type: ignore[arg-type]
        self._launch = PreparedLaunch(
            function, max(1, min(blocks, max(len(tile_words), variables))), THREADS,
            (tables, self._state, self._call, np.array([room], dtype=np.int64)), ROOM_BYTES * room,
        )  # fmt: skip
        self._number, self._round, self._is_over = 0, 1, True

    def filter(self, source: int, target: int, most: int, asks_all: bool) -> ScanAnswer:
        """Filter tables, for so many rounds at most; waits for the result.

        The host's flags and counts are changed with what goes.

        source : slot of what was left at the last filtering of the domains; target : where to keep what is left now.
        asks_all : whether all tables are filtered; else those with a variable that lost values since, and, after an
            unfinished call, its remaining ones.
        """
        if target >= len(self._alive):
            self._more_slots(target + 1)
        self._number += 1
        first = self._round if self._is_over else self._round - 1
        varying = self._varying
        varying[0], varying[1], varying[2], varying[3] = source, target, first, self._number
        varying[4], varying[5] = most, asks_all
        self._launch()
        self._wait()
        lost, table, variable, again, reached, _ = self._look.tolist()
        self._is_over = again != reached
        self._round = reached + 1
        return ScanAnswer(
            self._reported[:lost].tolist(),
            None if table == NONE else table,
            None if variable == NONE else variable,
            self._is_over,
        )

    def rows_left(self, slot: int) -> NDArray[np.int64]:
        """Rows left of each table, int64 (tables,)."""
        return np.array(
            [
                int(np.bitwise_count(host_array(self._current[slot, begin:end])).sum())
                for begin, end in zip(self._words, self._words[1:], strict=False)
            ],
            dtype=np.int64,
        )

    def _wait(self) -> None:
        look, number, left = self._look, self._number, PATIENCE
        while look[5] != number and left:
            left -= 1
        if not left:
            self._launch.stream.synchronize()  # raises what went wrong there

    def _levels(self) -> dict[str, Any]:
        """Members of the state that are slots."""
        return {
            "alive": self._alive,
            "current": self._current,
            "alive_stride": self._alive.shape[1],
            "current_stride": self._current.shape[1],
        }

    @with_retry
    def _more_slots(self, needed: int) -> None:
        module = cupy()
        more = [module.empty((2 * needed, array.shape[1]), dtype=np.uint32) for array in (self._alive, self._current)]
        for array, larger in zip((self._alive, self._current), more, strict=True):
            larger[: len(array)] = array
        self._alive, self._current = more
        self._state[:] = packed(SOURCE, "State", **self._levels(), **self._scratch)


def _joined(codes: Sequence[DeviceCodes]) -> tuple[Any, list[int]]:
    """Codes of all tables end to end, and where each column's begin; those that tables share are there once."""
    starts: list[int] = []
    places: dict[int, int] = {}
    parts, end = [], 0
    for table in codes:
        if id(table) not in places:
            places[id(table)] = end
            parts.append(table.reshape(-1))
            end += table.size
        starts += [places[id(table)] + column * table.shape[1] for column in range(len(table))]
    return parts[0] if len(parts) == 1 else cupy().concatenate(parts), starts


def _all_rows(rows: Sequence[int], words: NDArray[np.int64]) -> NDArray[np.uint32]:
    """A bit for each row of each table."""
    found = np.zeros(int(words[-1]), dtype=np.uint32)
    for count, first in zip(rows, words.tolist(), strict=False):
        found[first : first + count // 32] = 0xFFFFFFFF
        if count % 32:
            found[first + count // 32] = (1 << count % 32) - 1
    return found
