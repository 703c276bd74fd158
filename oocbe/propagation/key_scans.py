"""What a scan of packed rows looks up, and scans of parts of a table by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import run_all
from oocbe.propagation.kernels.cpu.table_rows import scan_keys
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables.layout import Layout

Keys = NDArray[np.uint64]

GROUP_BITS = 14
"""Bits of neighbouring columns of a key that share one look at a flag: 16 KiB of flags. 6 columns of 7 bits took half
the time that a look a column did."""

GROUP_SHARE = 6
"""Flags of a group are not more than the rows divided by two to this."""


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
            wanted = self._wanted.copy()  # what other parts have seen needs no look here
        left: int = scan_keys(
            keys, low, high, self._groups, self._flags, self._fields, self._width, wanted, kept, self._stop
        )
        with self._lock:
            np.bitwise_and(self._wanted, wanted, out=self._wanted)
        return left

    def run(self, part: Callable[..., int], calls: Iterable[tuple[int, ...]]) -> list[int]:
        """Have threads call a function that scans parts; what each returns.

        Raises
        ------
        TimeLimitError : at the deadline; nothing that was found is of use then.
        """
        found = run_all(part, calls)
        if self._stop[0] != 0:
            check_deadline()
        return found

    def seen(self) -> NDArray[np.bool_]:
        """Which codes rows left have, bool (columns, width), of which a column uses as many as it has flags."""
        return (self._alive & ~self._wanted.reshape(self._alive.shape)).view(np.bool_)


def _groups(
    layout: Layout, flags: Sequence[NDArray[np.bool_]], rows: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Columns that have lost codes, those side by side in a key together; as :func:`scan_keys` takes them.

    One look at a flag for several columns: for how many, bytes of flags and rows to be scanned bound.
    """
    most = min(GROUP_BITS, rows.bit_length() - GROUP_SHARE)
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
