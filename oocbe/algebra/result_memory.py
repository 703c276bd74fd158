"""Pinned memory kept for results: the device writes the results directly into it.

A result's memory is usually fresh: the system hands it out page by page, and threads copy rows into it from pinned
memory. That is slower than the bus (benchmarks/results/gpu_streaming.json). Kept memory pays off for a sequence of
operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ResourceError
from oocbe.model.settings.machine import default_memory_limit, resident_memory
from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.stretches import ALIGNMENT, Bytes, Region, shorten
from oocbe.tables.table import format_bytes

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

    nbytes = parse_bytes("the memory for results", size) or 0
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
    """Columns of a result in kept memory.

    Attributes
    ----------
    columns : one-dimensional, as long as there is room for. stretches : the memory of each.
    """

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
