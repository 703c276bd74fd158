"""Packed rows on their way to the device and back: unpacked there as they arrive, results packed there as they leave.

Whole packed chunks (:mod:`oocbe.tables.codec`) are transferred: where a piece begins or ends inside a chunk, the
neighbouring piece has that chunk too, and each unpacks the rows that are its own. Results become chunks many at once,
so that the host waits once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.arrays import host_array
from oocbe.kernels.cpu.packing.bit_pack import best_rotation
from oocbe.model.settings.tuning import tuning
from oocbe.tables.codec import SAMPLE_ROWS, SAMPLES
from oocbe.tables.packed import ChunkFiles, PackedTable


def packed_words(table: PackedTable, start: int, stop: int) -> list[NDArray[np.uint64] | ChunkFiles]:
    """Words of each column that rows ``start`` to ``stop`` need on the device."""
    first, last = table.covering(start, stop)
    return [column.chunks(first, last) for column in table.columns]


class DeviceChunk(NamedTuple):
    """Rows of a packed table that are on the device.

    Attributes
    ----------
    table : the table. start, stop : the rows.
    columns : uint64 (words,) each, on the device: what :func:`packed_words` names.
    """

    table: PackedTable
    start: int
    stop: int
    columns: Sequence[Any]


def unpacked(pieces: Sequence[DeviceChunk]) -> list[tuple[Any, Any]]:
    """Rows of packed tables on the device: keys uint64 (words, rows) and values (rows,) of each."""
    from oocbe.kernels.cuda.device import cupy
    from oocbe.kernels.cuda.packing.bit_pack import Wanted, unpack

    found: list[tuple[Any, Any]] = []
    parts: list[Wanted] = []
    for table, start, stop, columns in pieces:
        keys = cupy().empty((table.layout.words, stop - start), dtype=np.uint64)
        values = cupy().empty(stop - start, dtype=table.dtype)
        found.append((keys, values))
        first, last = table.covering(start, stop)
        rows = table.row_starts[first : last + 1].tolist()
        for column, words, out in zip(table.columns, columns, [*keys, values], strict=True):
            places = column.starts[first : last + 1].tolist()
            begin = places[0]
            for (low, high), (source, end) in zip(pairwise(rows), pairwise(places), strict=True):
                target = out[max(start, low) - start : min(stop, high) - start]
                parts.append(Wanted(words[source - begin : end - begin], high - low, target, max(0, start - low)))
    unpack(parts)
    return found


@dataclass(frozen=True)
class PackedChunk:
    """Rows on the device, packed.

    Attributes
    ----------
    columns : each key word's, and the values' packed chunk, uint64 (words,), neighbours in the device's memory.
    rows : number of rows.
    edge_keys : keys of the first and the last row, each as one number (word 0 least significant).
    extent : least and greatest value, where values are integers.
    """

    columns: list[Any]
    rows: int
    edge_keys: tuple[int, int]
    extent: tuple[int, int] | None


def rotation_of(column: Any) -> int:
    """The rotation under which a column on the device packs best, by its first rows; 0 but for keys."""
    if column.dtype.kind != "u":
        return 0
    return int(best_rotation(host_array(column[: tuning().rotation_sample_rows]), SAMPLE_ROWS, SAMPLES))


def packed_chunks(parts: Sequence[tuple[Any, Any]], rotations: Sequence[int]) -> list[PackedChunk]:
    """Pack rows that become one chunk each; waits once for what all of them need.

    Parameters
    ----------
    parts : keys uint64 (words, rows) and values (rows,) on the device, at least one row each.
    rotations : of each column, to the right.

    Raises
    ------
    ResourceError : the device's memory ran out.
    """
    from oocbe.kernels.cuda.packing.bit_pack import Column, Measured
    from oocbe.kernels.cuda.transfer.memory import with_retry

    if not parts:
        return []
    width = len(rotations)
    columns = [
        Column(items, rotation)
        for keys, values in parts
        for items, rotation in zip([*keys, values], rotations, strict=True)
    ]
    measured = with_retry(Measured)(columns)
    summaries = measured.summaries()
    chunks = with_retry(measured.packed)()
    found = []
    for number, (_, values) in enumerate(parts):
        own = slice(number * width, (number + 1) * width)
        *keys, last = summaries[own]
        edges = _key([key.first for key in keys]), _key([key.last for key in keys])
        found.append(PackedChunk(chunks[own], len(values), edges, last.extent))
    return found


def _key(words: Sequence[int]) -> int:
    """Key words as one number."""
    return sum(word << 64 * place for place, word in enumerate(words))
