"""Lookup tables for scans of packed rows, and scans of parts of a table by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import run_all
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.kernels.cpu.table_rows import scan_keys
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables.layout import Layout

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
