"""Pinned memory for results: the device writes the results directly into it.

Into memory that is not pinned, threads copy rows from pinned memory, and the system allocates it page by page. That is
slower than the bus (benchmarks/results/gpu_streaming.json). So a result's memory is pinned ahead of its rows
(:mod:`oocbe.kernels.cuda.transfer.pinned`). After the deletion of the result, it stays pinned for later ones, within a
limit (``result_pool_share`` of :mod:`oocbe.model.settings.tuning`). Results beyond the limit take ordinary memory.
:func:`result_memory` keeps memory of a known size in addition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.model.results.numerals import format_bytes
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_bytes
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.process_memory import resident_memory
from oocbe.runtime.stretches import ALIGNMENT, Bytes, Region, rounded, shorten

if TYPE_CHECKING:
    from oocbe.kernels.cuda.transfer.conveyor import Conveyor
    from oocbe.kernels.cuda.transfer.pinned import GrowingMemory

_regions: list[Region] = []
"""Memory of the open ``with`` blocks, the latest last."""


@contextmanager
def result_memory(size: int | str) -> Iterator[None]:
    """Keep pinned memory for results of operators that stream through a device, for the time of a ``with`` block.

    Tables that are results, packed ones too, take their place in it, one after the other, for as long as they live;
    those that find no room take fresh memory, as they do without this, and so do unpacked keys of several words. Tables
    may outlive the block, and with them their memory. It serves all threads; of several blocks that are open the one
    opened last counts.

    Parameters
    ----------
    size : bytes, or a text such as ``"32GiB"``; taken at once.

    Raises
    ------
    UsageError : not a size, or no device. ResourceError : there is no such memory, or the system does not pin it.

    Examples
    --------
    >>> with oocbe.result_memory("32GiB"):  # doctest: +SKIP
    ...     while more_to_do():
    ...         table = oocbe.join_maximise(table, next_table(), "x", backend="cuda")
    """
    from oocbe.kernels.cuda.transfer.pinned import pinned_region

    nbytes = parse_bytes("the memory for results", "" if size is None else size) or 0
    room = default_memory_limit() - resident_memory()
    if nbytes > room:
        raise ResourceError(
            f"memory for results: {format_bytes(nbytes)} of main memory, of which {format_bytes(room)} are left"
        )
    try:
        region = pinned_region(nbytes // ALIGNMENT * ALIGNMENT)
    except MemoryError as error:
        raise ResourceError(f"memory for results: {error}") from error
    _regions.append(region)
    try:
        yield
    finally:
        _regions.remove(region)
        region.close()


@dataclass(frozen=True)
class ColumnPool:
    """Columns of a result in kept memory, one-dimensional, as long as there is room, each in its ``stretches``."""

    columns: list[NDArray[Any]]
    stretches: list[Bytes]

    def shorten(self, counts: Sequence[int]) -> None:
        """Release the memory of each column beyond its count of items."""
        for column, stretch, count in zip(self.columns, self.stretches, counts, strict=True):
            shorten(stretch, count * column.itemsize)


def kept_columns(dtypes: Sequence[np.dtype[Any]], shares: Sequence[int] | None = None) -> ColumnPool | None:
    """Columns of some dtypes in the largest stretch that is free; None where no memory is kept, or none is left.

    shares : how the memory is shared out among the columns, in any unit; None: as many items for each.
    """
    region = next(reversed(_regions), None)
    if region is None:
        return None
    room = region.largest() - ALIGNMENT * len(dtypes)
    shares = [dtype.itemsize for dtype in dtypes] if shares is None else shares
    counts = [room * share // sum(shares) // dtype.itemsize for dtype, share in zip(dtypes, shares, strict=True)]
    enough = min(counts) > 0
    stretches = [region.take(n * dtype.itemsize) for n, dtype in zip(counts, dtypes, strict=True)] if enough else []
    taken = [stretch for stretch in stretches if stretch is not None]
    if not taken or len(taken) < len(dtypes):  # another thread was quicker
        return None
    return ColumnPool([stretch.view(dtype) for stretch, dtype in zip(taken, dtypes, strict=True)], taken)


SPARE = 1.02
"""Rows of a result for which memory is pinned, as a multiple of the expected ones."""


class ResultPool:
    """Pinned memory of deleted results, for later ones; thread-safe, including the deletion of arrays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[GrowingMemory] = []
        self._lent: list[GrowingMemory] = []
        # Arrays may be deleted at any moment, also within these methods: their memory is queued here.
        self._returned: deque[GrowingMemory] = deque()

    def take(self, sizes: Sequence[int], limit: int) -> list[GrowingMemory] | None:
        """Memory for columns of so many bytes each, and more than that; :meth:`lend` is called with each.

        None if pinned memory would exceed ``limit``; then all free memory is returned to the system.
        """
        from oocbe.kernels.cuda.transfer.pinned import GrowingMemory

        with self._lock:
            self._collect()
            within = sum(memory.pinned for memory in self._lent) + sum(sizes) <= limit
            found: list[GrowingMemory | None] = [None] * len(sizes)
            for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]) if within else ():
                # The one with the least room that is enough, or the largest.
                enough = [memory for memory in self._free if memory.pinned >= sizes[number]]
                best = (
                    min(enough, key=lambda m: m.pinned)
                    if enough
                    else max(self._free, key=lambda m: m.pinned, default=None)
                )
                if best is not None and len(best) >= 2 * sizes[number]:
                    self._free.remove(best)
                    found[number] = best
            total = sum(memory.pinned for memory in (*self._free, *self._lent)) + sum(sizes)
            while self._free and (not within or total > limit):
                total -= self._free[0].pinned
                self._free.pop(0).unpin()
            if not within:
                return None
            room = rounded(default_memory_limit())
            taken = [GrowingMemory(room) if memory is None else memory for memory in found]
            self._lent += taken
        return taken

    def lend(self, memory: GrowingMemory) -> Bytes:
        """Memory of :meth:`take` as an array; with the deletion of the last array over it, it is free again."""
        return memory.lend(partial(self._give_back, memory))

    def free_bytes(self) -> int:
        """Pinned memory without a result."""
        with self._lock:
            self._collect()
            return sum(memory.pinned for memory in self._free)

    def _give_back(self, memory: GrowingMemory) -> None:
        self._returned.append(memory)
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Put returned memory to the free one; the lock is held."""
        while self._returned:
            memory = self._returned.popleft()
            self._lent.remove(memory)
            if memory.used > memory.pinned:  # pages that are not pinned are only freed with all others
                memory.unpin()
            elif memory.pinned:
                self._free.append(memory)


_POOL = ResultPool()
"""The pool of this process."""


class PooledColumns:
    """Columns of a result in memory that is pinned ahead of it.

    dtypes : of the columns. memories : of the pool, one for each. limit : of their pinned bytes.
    columns : one-dimensional, for as many items as the reservations hold.
    """

    def __init__(self, dtypes: Sequence[np.dtype[Any]], memories: Sequence[GrowingMemory], limit: int) -> None:
        from oocbe.kernels.cuda.transfer.pinned import Pinning

        self._memories, self._pinning, self._limit = memories, Pinning(memories), limit
        self._wanted = [memory.pinned // dtype.itemsize for memory, dtype in zip(memories, dtypes, strict=True)]
        self.columns = [
            _POOL.lend(memory)[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
            for memory, dtype in zip(memories, dtypes, strict=True)
        ]

    @classmethod
    def expecting(cls, counts: Sequence[int], dtypes: Sequence[np.dtype[Any]]) -> PooledColumns | None:
        """Columns for approximately so many items; None if they are few, or exceed the limit of pinned memory."""
        sizes = [count * dtype.itemsize for count, dtype in zip(counts, dtypes, strict=True)]
        if sum(sizes) < tuning().least_pooled_bytes:
            return None
        limit = int(default_memory_limit() * tuning().result_pool_share)
        memories = _POOL.take(sizes, limit)
        return None if memories is None else cls(dtypes, memories, limit)

    def bring_back(
        self, conveyor: Conveyor, found: Sequence[Any], starts: Sequence[int], expected: Sequence[int]
    ) -> None:
        """Start columns on the device on their way to the items from ``starts`` on.

        expected : items of each whole column, approximately; so many are pinned by and by.
        """
        stops = [start + len(source) for start, source in zip(starts, found, strict=True)]
        most = list(map(max, stops, expected))
        if any(map(int.__gt__, most, self._wanted)):  # expectations vary a little, and small steps are slow
            wanted = [max(before, int(count * SPARE)) for before, count in zip(self._wanted, most, strict=True)]
            if sum(self._sizes(wanted)) <= self._limit:
                self._wanted = wanted
                self._pinning.want(self._sizes(wanted))
        sizes = self._sizes(stops)
        self._pinning.wait(sizes)
        sources: list[Any] = []
        targets: list[NDArray[Any]] = []
        for source, column, memory, start, size in zip(found, self.columns, self._memories, starts, sizes, strict=True):
            memory.used = size
            target = column[start : start + len(source)]
            # No copy crosses two steps of pinning.
            steps = [bound // column.itemsize - start for bound in memory.bounds]
            edges = [0, *(edge for edge in steps if 0 < edge < len(target)), len(target)]
            for part in map(slice, edges, edges[1:]):
                if (start + part.stop) * column.itemsize <= memory.pinned:
                    sources.append(source[part])
                    targets.append(target[part])
                else:
                    conveyor.bring_back([source[part]], [target[part]])
        if targets:
            conveyor.bring_back(sources, targets)

    def close(self) -> None:
        """No more items come."""
        self._pinning.close()

    def _sizes(self, counts: Sequence[int]) -> list[int]:
        return [count * column.itemsize for count, column in zip(counts, self.columns, strict=True)]
