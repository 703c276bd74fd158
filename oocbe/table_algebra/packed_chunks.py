"""Rows on the device that become packed chunks there: many at once, so that the host waits once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oocbe.kernels.arrays import host_array
from oocbe.kernels.cpu.packing.bit_pack import best_rotation
from oocbe.tables.codec import SAMPLE_ROWS, SAMPLES

SAMPLED_ROWS = 1 << 14
"""Rows whose keys decide how chunks are rotated, where rows are in no order."""


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
    return int(best_rotation(host_array(column[:SAMPLED_ROWS]), SAMPLE_ROWS, SAMPLES))


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
