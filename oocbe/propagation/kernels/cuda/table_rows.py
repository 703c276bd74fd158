"""Scans of packed rows on the device: the launches of :file:`table_rows.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.arrays import host_array
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import kernel, launch, or_null
from oocbe.kernels.cuda.transfer.memory import with_retry

SOURCE = "table_rows"
"""Name of the CUDA source."""

THREADS = 256
"""Threads of a block."""

TILES = {1: 8 * THREADS, 2: 4 * THREADS}
"""Rows that a block takes at a time, by the words of a key; twice its threads where there are more words."""

RESIDENT_BLOCKS = 6
"""Blocks of a multiprocessor, where each one's shared memory is small enough."""

BLOCK_BYTES = 1024
"""Shared memory that each block takes besides its own."""

PACKED_ROWS = 1 << 24
"""Rows that are packed on the device at a time."""

KeyField = tuple[int, int, int]
"""Where a column is in a key: word, shift, bits."""


def most_slots() -> int:
    """Values of all columns, each column's rounded up to a power of two, that a block has shared memory for."""
    nbytes = int(cupy().cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
    return (nbytes - 8) * 8 // 9


class Scanner:
    """Scans rows of one layout with one set of values left; counts and supported values of all scans add up.

    Parameters
    ----------
    fields : of each column. alive : uint8 (slots,), ``2^bits`` a column, one column after the other: 1 for each value
        that is left, 0 for others and where a column has fewer values.
    """

    @with_retry
    def __init__(self, fields: Sequence[KeyField], alive: NDArray[np.uint8]) -> None:
        starts = slot_starts(fields)
        described = [
            (word, shift, (1 << bits) - 1, start)
            for (word, shift, bits), start in zip(fields, starts.tolist(), strict=False)
        ]
        self._columns = np.array(described, dtype=np.uint32)
        self._slots = int(starts[-1])
        self._words = 1 + max(word for word, _, _ in fields)
        self._alive = cupy().asarray(alive)
        # One array comes back: the count's two words, then a bit a slot.
        bits = -(-self._slots // 32)
        self._found = cupy().zeros(2 + bits, dtype=np.uint32)
        self._shared_bytes = 4 * (-(-self._slots // 4) + bits)
        self._function = kernel(SOURCE, "scan_rows", COLUMNS=len(fields), WORDS=self._words)
        if self._function.max_dynamic_shared_size_bytes < self._shared_bytes:
            self._function.max_dynamic_shared_size_bytes = self._shared_bytes
        device = cupy().cuda.runtime.getDevice()
        most = _shared_bytes(device) // (self._shared_bytes + BLOCK_BYTES)
        self._blocks = max(1, min(RESIDENT_BLOCKS, most)) * multiprocessors(device)

    def scan(self, keys: Sequence[Any], ballots: Any = None) -> None:
        """Queue a scan.

        Parameters
        ----------
        keys : device uint64 (rows,) for each word, at equal distances in memory.
        ballots : device uint32, :func:`ballot_words` of the rows: a bit a row that is left, overwritten; or None.
        """
        rows = len(keys[0])
        stride = (int(keys[-1].data.ptr) - int(keys[0].data.ptr)) // 8 // max(1, self._words - 1)
        blocks = min(-(-rows // tile_of(self._words)), self._blocks)
        launch(
            self._function, blocks, THREADS, keys[0], rows, stride, self._columns, self._alive,
            self._slots, self._found[2:], or_null(ballots), self._found, shared_bytes=self._shared_bytes,
        )  # fmt: skip

    def read(self) -> tuple[int, NDArray[np.bool_]]:
        """How many rows have only values that are left, and which values these rows have, bool (slots,)."""
        found = host_array(self._found)
        bits = np.unpackbits(found[2:].view(np.uint8), bitorder="little")
        return int(found[:2].view(np.uint64)[0]), bits[: self._slots].view(np.bool_)


class DeviceTable:
    """Packed rows in device memory.

    Parameters
    ----------
    keys : device uint64 (words, rows). fields : of each column.

    Attributes
    ----------
    rows : number of rows. fields : as given.
    """

    def __init__(self, keys: Any, fields: Sequence[KeyField]) -> None:
        self._keys, self.fields = keys, tuple(fields)
        self.rows = int(keys.shape[1])
        self._ballots: Any = None

    @classmethod
    @with_retry
    def packed(cls, codes: NDArray[Any], fields: Sequence[KeyField]) -> DeviceTable:
        """Rows of codes, unsigned integers (rows, columns), packed into fields."""
        module = cupy()
        keys = module.zeros((1 + max(word for word, _, _ in fields), len(codes)), dtype=np.uint64)
        for begin in range(0, len(codes), PACKED_ROWS):
            piece = module.asarray(codes[begin : begin + PACKED_ROWS])
            rows = slice(begin, begin + len(piece))
            for column, (word, shift, _) in enumerate(fields):
                keys[word, rows] |= piece[:, column].astype(np.uint64) << np.uint64(shift)
        return cls(keys, fields)

    def twin(self) -> DeviceTable:
        """The same rows in the same memory, to be scanned and shrunk apart from this one."""
        return DeviceTable(self._keys, self.fields)

    @with_retry
    def scan(self, alive: NDArray[np.uint8]) -> tuple[int, NDArray[np.bool_]]:
        """How many rows have only values that are left, and which values these have; arrays as of :class:`Scanner`."""
        scanner = Scanner(self.fields, alive)
        self._ballots = cupy().empty(ballot_words(self.rows, self._keys.shape[0]), dtype=np.uint32)
        scanner.scan(list(self._keys), self._ballots)
        return scanner.read()

    @with_retry
    def kept(self) -> DeviceTable:
        """The rows that the last scan left."""
        flags = cupy().unpackbits(self._ballots.view(np.uint8), bitorder="little")[: self.rows]
        return DeviceTable(cupy().ascontiguousarray(self._keys[:, cupy().flatnonzero(flags)]), self.fields)


def slot_starts(fields: Sequence[KeyField]) -> NDArray[np.int64]:
    """Where each column's flags begin, and how many there are of all, int64 (columns + 1,)."""
    return np.cumsum([0, *(1 << bits for _, _, bits in fields)], dtype=np.int64)


def tile_of(words: int) -> int:
    """Rows that a block takes at a time, by the words of a key."""
    return TILES.get(words, 2 * THREADS)


def ballot_words(rows: int, words: int) -> int:
    """Words of a bit a row, whole tiles."""
    return -(-rows // tile_of(words)) * tile_of(words) // 32


@cache
def _shared_bytes(device: int) -> int:
    return int(cupy().cuda.Device(device).attributes["MaxSharedMemoryPerMultiprocessor"])
