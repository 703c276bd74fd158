"""One pass over a table, in memory or on disk: which rows have only values that are left, and which values they have.

Nothing is kept of the table but a piece for each thread, or two on a device, so it may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.kernels import backend_for
from oocbe.kernels.cpu.propagation.table_rows import scan_keys
from oocbe.kernels.cpu.threads import run_all
from oocbe.propagation.large_tables import SCANNED_ROWS
from oocbe.streaming.sources import HeldRows, Source, source_of
from oocbe.system.deadline import current_flag, look
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

PIECE_ROWS = 1 << 20
"""Rows that a thread reads and scans at a time."""

GROUP_BITS = 14
"""Bits of neighbouring columns of a key that share one look at a flag: 16 KiB of flags. 6 columns of 7 bits took half
the time that a look a column did."""

GROUP_SHARE = 6
"""Flags of a group are not more than the rows divided by two to this."""

DEVICE_PIECE_ROWS = 1 << 24
"""Rows that are read from disk and brought to a device at a time: 134 MB a key word, enough for all who read."""

HELD_PIECE_BYTES = 1 << 25
"""Bytes of keys in main memory that are brought to a device at a time: half a millisecond of the bus, which nothing is
on before the first piece has been copied to pinned memory."""


@dataclass(frozen=True, eq=False)
class Scan:
    """What a scan found.

    Attributes
    ----------
    rows_left : rows that have only values that are left.
    supported : bool (size,) of each variable, by name: the values that such rows have.
    """

    rows_left: int
    supported: dict[str, NDArray[np.bool_]]


def scan(
    table: Table | StoredTable | PackedTable,
    left: Mapping[str, ArrayLike] | None = None,
    backend: str | None = None,
) -> Scan:
    """Scan a table's rows.

    Parameters
    ----------
    left : by the name of a variable of the scope, bool (size,): which of its values are left; all of those that are not
        named.
    backend : ``cpu``, ``cuda``, ``auto`` or None for what ``OOCBE_BACKEND`` says.

    Raises
    ------
    ModelError : a variable that is not in the scope, or flags of another number than it has values. UsageError : there
        is no CUDA device where one is asked for. TimeLimitError : at the deadline.
    """
    layout = table.layout
    flags = _flags(layout, left or {})
    source = source_of(table)
    if source.rows and layout.scope and backend_for(source.rows // SCANNED_ROWS, backend).name == "cuda":
        found = _on_device(source, table, flags)
        if found is not None:
            return found
    return _by_threads(source, table, flags)


def _flags(layout: Layout, left: Mapping[str, ArrayLike]) -> list[NDArray[np.bool_]]:
    """Flags of each variable of a scope."""
    for name in left:
        layout.place(name)  # raises where it is not there
    found = []
    for name, size in zip(layout.scope, layout.sizes, strict=True):
        flags = np.asarray(left.get(name, np.ones(size, dtype=bool)), dtype=bool)
        if flags.shape != (size,):
            raise ModelError(f"scan: variable {name} has {size} values, its flags are of shape {flags.shape}")
        found.append(flags)
    return found


def _by_threads(source: Source, table: Any, flags: list[NDArray[np.bool_]]) -> Scan:
    layout = source.layout
    width = 1 << max((field.bits for field in layout.fields), default=0)
    alive = np.zeros((len(flags), width), dtype=np.uint8)
    for row, own in zip(alive, flags, strict=True):
        row[: len(own)] = own
    fields = np.array([(f.word, f.shift, f.mask) for f in layout.fields], dtype=np.uint64).reshape(-1, 3)
    groups, group_flags = _groups(layout, flags, source.rows)
    stop = current_flag()
    wanted, lock = alive.reshape(-1).copy(), Lock()

    def piece(low: int, high: int) -> int:
        if isinstance(source, HeldRows):
            keys, first = table.keys, low
        else:
            keys, first = np.empty((layout.words, high - low), dtype=np.uint64), 0
            source.read_into(low, keys, None)
        with lock:
            own = wanted.copy()  # what other pieces have seen needs no look here
        left: int = scan_keys(keys, first, first + high - low, groups, group_flags, fields, np.uint64(width), own, stop)
        with lock:
            np.bitwise_and(wanted, own, out=wanted)
        return left

    rows_left = sum(run_all(piece, source.ranges(PIECE_ROWS)))
    if stop[0] != 0:
        look()
    seen = alive & ~wanted.reshape(alive.shape)
    return Scan(rows_left, _named(layout, seen.view(bool)))


def _groups(layout: Layout, flags: list[NDArray[np.bool_]], rows: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Columns that have lost values, those side by side in a key together; as :func:`scan_keys` takes them.

    One look at a flag for several columns: for how many, bytes of flags and rows to be scanned bound.
    """
    most = min(GROUP_BITS, rows.bit_length() - GROUP_SHARE)
    places: list[tuple[int, int, int, int]] = []
    joined: list[NDArray[np.uint8]] = []
    for field, own in sorted(zip(layout.fields, flags, strict=True), key=lambda pair: (pair[0].word, pair[0].shift)):
        if own.all():
            continue
        codes = np.zeros(1 << field.bits, dtype=np.uint8)
        codes[: len(own)] = own
        if places:
            word, shift, bits, first = places[-1]
            if (word, shift + bits) == (field.word, field.shift) and bits + field.bits <= most:
                places[-1] = word, shift, bits + field.bits, first
                joined[-1] = (codes[:, None] & joined[-1]).reshape(-1)
                continue
        places.append((field.word, field.shift, field.bits, 0))
        joined.append(codes)
    firsts = np.cumsum([0, *map(len, joined)]).tolist()
    groups = [
        (word, shift, (1 << bits) - 1, first) for (word, shift, bits, _), first in zip(places, firsts, strict=False)
    ]
    return np.array(groups, dtype=np.uint64).reshape(-1, 4), np.concatenate([np.zeros(0, dtype=np.uint8), *joined])


def _named(layout: Layout, seen: Any) -> dict[str, NDArray[np.bool_]]:
    """Flags by variable, of as many values as each has."""
    return {name: np.array(own[:size]) for name, size, own in zip(layout.scope, layout.sizes, seen, strict=True)}


def _on_device(source: Source, table: Any, flags: list[NDArray[np.bool_]]) -> Scan | None:
    """The scan on the device; None where the flags have no room there."""
    from oocbe.kernels.cuda.propagation.table_rows import Scanner, most_slots
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor

    layout = source.layout
    widths = [1 << field.bits for field in layout.fields]
    if sum(widths) > most_slots():
        return None
    alive = np.zeros(sum(widths), dtype=np.uint8)
    starts = np.cumsum([0, *widths])
    for start, own in zip(starts, flags, strict=False):
        alive[start : start + len(own)] = own
    pieces: list[list[Any]]
    if isinstance(source, HeldRows):
        held_rows = HELD_PIECE_BYTES // (8 * layout.words)
        pieces = [[*table.keys[:, low:high]] for low, high in source.ranges(held_rows)]
    else:
        pieces = [[_Rows(source, low, high)] for low, high in source.ranges(DEVICE_PIECE_ROWS)]
    with Conveyor(pieces, brings_back=False) as conveyor:
        scanner = Scanner([(f.word, f.shift, f.bits) for f in layout.fields], alive)

        def queue(number: int, columns: list[Any]) -> None:
            look()
            scanner.scan(columns if len(columns) == layout.words else list(columns[0].reshape(layout.words, -1)))

        conveyor.pieces(queue)
        rows, seen = scanner.read()
    return Scan(rows, _named(layout, np.split(seen, starts[1:-1])))


class _Rows:
    """Rows of a source, read when the conveyor has room for them: words of their keys, one after the other."""

    dtype = np.dtype(np.uint64)

    def __init__(self, source: Source, low: int, high: int) -> None:
        self._source, self._low, self._high = source, low, high
        self.nbytes = 8 * source.layout.words * (high - low)

    def reads_into(self, target: NDArray[Any]) -> list[tuple[int, Any]]:
        """Calls that fill an array with parts of the rows, on any threads; and the bytes of each."""
        keys = target.reshape(self._source.layout.words, -1)

        def part(low: int, high: int) -> Any:
            return lambda: self._source.read_into(self._low + low, keys[:, low:high], None)

        ends = [*range(0, self._high - self._low, PIECE_ROWS), self._high - self._low]
        return [(8 * len(keys) * (b - a), part(a, b)) for a, b in pairwise(ends)]
