"""Tables of many feasible rows, scanned by several threads or a device.

Each variable has one flag a value, and one more where some cell stands for every value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels import backend_for
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.domains import Domains
from oocbe.propagation.kernels.cpu.table_rows import scan_keys
from oocbe.propagation.tables import AllowedRows, Propagator
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables.layout import Layout

if TYPE_CHECKING:
    from oocbe.propagation.kernels.cuda.table_rows import DeviceTable


Keys = NDArray[np.uint64]


class KeyScan:
    """A scan of a table's packed rows, part by part, on any threads.

    Parameters
    ----------
    layout : of the keys. flags : bool of each column, one a code: which are left. rows : of the whole table.
    """

    def __init__(self, layout: Layout, flags: Sequence[NDArray[np.bool_]], rows: int) -> None:
        self._fields = np.array([(f.word, f.shift, f.mask) for f in layout.fields], dtype=np.uint64).reshape(-1, 3)
        width = 1 << max((field.bits for field in layout.fields), default=0)
        self._alive = np.zeros((len(flags), width), dtype=np.uint8)
        for row, own in zip(self._alive, flags, strict=True):
            row[: len(own)] = own
        self._groups, self._flags = _groups(layout, flags, rows)
        self._width = np.uint64(width)
        self._wanted, self._lock = self._alive.reshape(-1).copy(), Lock()
        self._stop = current_flag()

    def part(self, keys: Keys, low: int, high: int, kept: Keys) -> int:
        """Scan rows ``low`` to ``high`` of keys, uint64 (words, rows); how many have only codes that are left.

        kept : uint64 (words, any number), filled with the keys of these rows if it has room for all of them.
        """
        with self._lock:
            wanted = self._wanted.copy()  # codes seen in other parts need no lookup here
        left: int = scan_keys(
            keys, low, high, self._groups, self._flags, self._fields, self._width, wanted, kept, self._stop
        )
        with self._lock:
            np.bitwise_and(self._wanted, wanted, out=self._wanted)
        return left

    def run(self, part: Callable[..., int], calls: Iterable[tuple[int, ...]]) -> list[int]:
        """Call a function that scans parts on threads; returns the results.

        Raises
        ------
        TimeLimitError : at the deadline; partial results are then useless.
        """
        found = run_all(part, calls)
        if self._stop[0] != 0:
            check_deadline()
        return found

    def seen(self) -> NDArray[np.bool_]:
        """Codes of the remaining rows, bool (columns, width); a column uses as many entries as it has flags."""
        return (self._alive & ~self._wanted.reshape(self._alive.shape)).view(np.bool_)


def _groups(
    layout: Layout, flags: Sequence[NDArray[np.bool_]], rows: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Columns that have lost codes, in groups of neighbours in a key, in the form of :func:`scan_keys`.

    A group shares one flag lookup. The bytes of its flags and the rows to be scanned limit its size.
    """
    most = min(tuning().flag_bits, rows.bit_length() - tuning().flag_row_bits)
    places: list[tuple[int, int, int]] = []
    joined: list[NDArray[np.uint8]] = []
    for field, own in sorted(zip(layout.fields, flags, strict=True), key=lambda pair: (pair[0].word, pair[0].shift)):
        if own.all():
            continue
        codes = np.zeros(1 << field.bits, dtype=np.uint8)
        codes[: len(own)] = own
        if places:
            word, shift, bits = places[-1]
            if (word, shift + bits) == (field.word, field.shift) and bits + field.bits <= most:
                places[-1] = word, shift, bits + field.bits
                joined[-1] = (codes[:, None] & joined[-1]).reshape(-1)
                continue
        places.append((field.word, field.shift, field.bits))
        joined.append(codes)
    firsts = np.cumsum([0, *map(len, joined)]).tolist()
    groups = [(word, shift, (1 << bits) - 1, first) for (word, shift, bits), first in zip(places, firsts, strict=False)]
    return np.array(groups, dtype=np.uint64).reshape(-1, 4), np.concatenate([np.zeros(0, dtype=np.uint8), *joined])


class SharedRows:
    """Rows shared by any number of constraints, packed at the first use.

    Parameters
    ----------
    codes : as of :func:`~oocbe.propagation.tables.codes_of`. sizes : values of each column's variable.

    Attributes
    ----------
    codes : as given. layout : fields for the codes, one more than values where a cell stands for every value.
    """

    def __init__(self, codes: NDArray[Any], sizes: Sequence[int]) -> None:
        self.codes = codes
        has_any = [False] * len(sizes)
        if codes.size and codes.max() >= min(sizes):  # one pass in memory order; it suffices for most tables
            has_any = [bool((codes[:, column] == size).any()) for column, size in enumerate(sizes)]
        names = tuple(map(str, range(len(sizes))))
        self.layout = Layout(names, tuple(size + has for size, has in zip(sizes, has_any, strict=True)))
        self._on_device: DeviceTable | None = None

    @cached_property
    def keys(self) -> Keys:
        """Packed rows, uint64 (words, rows)."""
        return self.layout.pack(self.codes)

    def on_device(self) -> DeviceTable:
        """The rows packed on the current device, for a constraint of its own."""
        from oocbe.propagation.kernels.cuda.table_rows import DeviceTable

        if self._on_device is None:
            self._on_device = DeviceTable.packed(self.codes, [(f.word, f.shift, f.bits) for f in self.layout.fields])
        return self._on_device.twin()


def is_worth_a_device(rows: int, backend: str | None) -> bool:
    """Whether tables of so many rows justify a device.

    Raises
    ------
    UsageError : there is no CUDA device where one is asked for.
    """
    return rows > 0 and backend_for(rows // tuning().scanned_rows_a_row, backend).name == "cuda"


def allowed_rows(
    scope: tuple[int, ...], rows: SharedRows, domains: Domains, name: str, backend: str | None = "cpu"
) -> Propagator:
    """A table of all feasible rows, scanned by the quickest of one thread, several threads and a device.

    backend : as for the network.

    Raises
    ------
    UsageError : there is no CUDA device where one is asked for. ResourceError : its memory ran out.
    """
    count = len(rows.codes)
    if scope and is_worth_a_device(count, backend):
        from oocbe.propagation.kernels.cuda.table_rows import most_slots

        if sum(1 << field.bits for field in rows.layout.fields) <= most_slots():
            return DeviceRows(scope, rows, name)
    if count < tuning().large_table_rows or not scope:
        return AllowedRows(scope, rows.codes, domains, name)
    return ThreadedRows(scope, rows, name)


class _LargeTable:
    """Common part of scans on threads and devices.

    Attributes
    ----------
    rows_left : number of remaining rows.
    """

    is_idempotent = True

    def __init__(self, scope: tuple[int, ...], rows: SharedRows, name: str) -> None:
        self.scope, self.name = scope, name
        self.rows_left = len(rows.codes)
        self._layout = rows.layout

        self._rows: Any = None
        self._levels: list[tuple[Any, int]] = []

    @property
    def cost(self) -> int:
        """Cells of the rows left."""
        return self.rows_left * len(self.scope)

    def push(self) -> None:
        """Remember which rows are left."""
        self._levels.append((self._rows, self.rows_left))

    def pop(self) -> None:
        """Go back to them."""
        self._rows, self.rows_left = self._levels.pop()

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove the values that no row has."""
        flags = []
        for v, size in zip(self.scope, self._layout.sizes, strict=True):
            own = domains.flags(v).astype(bool)
            flags.append(np.append(own, True) if size > len(own) else own)  # a cell for every value
        self.rows_left, seen = self._scan(flags)
        if self.rows_left == 0:
            return None
        changed = []
        for v, size, own in zip(self.scope, self._layout.sizes, seen, strict=True):
            values = len(domains.flags(v))
            if not own[values:size].any() and domains.keep(v, own[:values]):
                changed.append(v)
        return changed

    def _scan(self, flags: list[NDArray[np.bool_]]) -> tuple[int, Sequence[NDArray[np.bool_]]]:
        """Number of rows with remaining codes only, and the codes of these rows; one flag a code."""
        raise NotImplementedError


class ThreadedRows(_LargeTable):
    """A table in parts of packed rows; a part is compacted when half of its rows are removed."""

    def __init__(self, scope: tuple[int, ...], rows: SharedRows, name: str) -> None:
        super().__init__(scope, rows, name)
        keys = rows.keys
        self._rows = [keys[:, low:high] for low, high in row_ranges(keys.shape[1], tuning().scan_part_rows)]

    def _scan(self, flags: list[NDArray[np.bool_]]) -> tuple[int, Sequence[NDArray[np.bool_]]]:
        before: list[Keys] = self._rows
        scanned = KeyScan(self._layout, flags, sum(keys.shape[1] for keys in before))
        parts = list(before)

        def part(number: int) -> int:
            keys = before[number]
            rows = keys.shape[1]
            kept = np.empty((len(keys), rows // 2), dtype=np.uint64)
            left = scanned.part(keys, 0, rows, kept)
            if left <= rows // 2:
                parts[number] = kept[:, :left].copy()
            return left

        left = sum(scanned.run(part, ((number,) for number in range(len(parts)))))
        parts = [keys for keys in parts if keys.shape[1]]
        if len(parts) > 1 and sum(keys.shape[1] for keys in parts) <= tuning().scan_part_rows:
            parts = [np.concatenate(parts, axis=1)]
        self._rows = parts
        return left, list(scanned.seen())


class DeviceRows(_LargeTable):
    """A packed table in device memory; it is compacted when half of its rows are removed."""

    def __init__(self, scope: tuple[int, ...], rows: SharedRows, name: str) -> None:
        super().__init__(scope, rows, name)
        self._rows = rows.on_device()

    def _scan(self, flags: list[NDArray[np.bool_]]) -> tuple[int, Sequence[NDArray[np.bool_]]]:
        widths = [1 << field.bits for field in self._layout.fields]
        starts = np.cumsum([0, *widths])
        alive = np.zeros(starts[-1], dtype=np.uint8)
        for start, own in zip(starts, flags, strict=False):
            alive[start : start + len(own)] = own
        left, seen = self._rows.scan(alive)
        if 0 < left <= self._rows.rows // 2:
            self._rows = self._rows.kept()
        return left, np.split(seen, starts[1:-1])
