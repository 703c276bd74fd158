"""One pass over a table, in memory or on disk: which rows have remaining values only, and the values of these rows.

Only one piece for each thread, or two on a device, is in memory, so the table may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocbe.errors import ModelError
from oocbe.execution.sources import InMemorySource, Source, source_of
from oocbe.kernels import backend_for
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.large_tables import KeyScan
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


@dataclass(frozen=True, eq=False)
class Scan:
    """What a scan found.

    Attributes
    ----------
    rows_left : number of rows with remaining values only.
    supported : bool (size,) of each variable, by name: the values of these rows.
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
    left : by the name of a variable of the scope, bool (size,): its remaining values; default: all.
    backend : ``cpu``, ``cuda``, ``auto`` or None for what ``OOCBE_BACKEND`` says.

    Raises
    ------
    ModelError : a variable that is not in the scope, or flags of another number than it has values. UsageError : there
        is no CUDA device where one is asked for. TimeLimitError : at the deadline.
    """
    layout = table.layout
    flags = _flags(layout, left or {})
    source = source_of(table)
    if source.rows and layout.scope and backend_for(source.rows // tuning().scanned_rows_a_row, backend).name == "cuda":
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
    scanned = KeyScan(layout, flags, source.rows)
    nothing = np.empty((layout.words, 0), dtype=np.uint64)

    def piece(low: int, high: int) -> int:
        if isinstance(source, InMemorySource):
            return scanned.part(table.keys, low, high, nothing)
        keys = np.empty((layout.words, high - low), dtype=np.uint64)
        source.read_into(low, keys, None)
        return scanned.part(keys, 0, high - low, nothing)

    rows_left = sum(scanned.run(piece, source.ranges(tuning().scan_piece_rows)))
    return Scan(rows_left, _named(layout, scanned.seen()))


def _named(layout: Layout, seen: Any) -> dict[str, NDArray[np.bool_]]:
    """Flags by variable, of as many values as each has."""
    return {name: np.array(own[:size]) for name, size, own in zip(layout.scope, layout.sizes, seen, strict=True)}


def _on_device(source: Source, table: Any, flags: list[NDArray[np.bool_]]) -> Scan | None:
    """The scan on the device; None where the flags have no room there."""
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor
    from oocbe.propagation.kernels.cuda.table_rows import Scanner, most_slots

    layout = source.layout
    widths = [1 << field.bits for field in layout.fields]
    if sum(widths) > most_slots():
        return None
    alive = np.zeros(sum(widths), dtype=np.uint8)
    starts = np.cumsum([0, *widths])
    for start, own in zip(starts, flags, strict=False):
        alive[start : start + len(own)] = own
    pieces: list[list[Any]]
    if isinstance(source, InMemorySource):
        held_rows = tuning().scan_held_bytes // (8 * layout.words)
        pieces = [[*table.keys[:, low:high]] for low, high in source.ranges(held_rows)]
    else:
        pieces = [[_Rows(source, low, high)] for low, high in source.ranges(tuning().scan_device_rows)]
    with Conveyor(pieces, brings_back=False) as conveyor:
        scanner = Scanner([(f.word, f.shift, f.bits) for f in layout.fields], alive)

        def queue(number: int, columns: list[Any]) -> None:
            check_deadline()
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

        ends = [*range(0, self._high - self._low, tuning().scan_piece_rows), self._high - self._low]
        return [(8 * len(keys) * (b - a), part(a, b)) for a, b in pairwise(ends)]
