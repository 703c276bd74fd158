"""Rows on the device that become packed chunks there: measured together, so that the host waits once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.kernels.cpu.bit_pack import best_rotation
from oocbe.tables.codec import FRONT_WORDS, SAMPLE_ROWS, SAMPLES, front_word

if TYPE_CHECKING:
    from oocbe.kernels.cuda.bit_pack import Measured

SAMPLED_ROWS = 1 << 14
"""Rows whose keys decide how chunks are rotated, where rows are in no order."""


@dataclass(frozen=True)
class MeasuredChunk:
    """Rows on the device, about to be packed.

    Attributes
    ----------
    columns : each key word's, and the values', measured. payloads : words of payload of each.
    edge_keys : keys of the first and the last row, each as one number (word 0 least significant).
    extent : least and greatest value, where values are integers.
    """

    columns: list[Measured]
    payloads: list[int]
    edge_keys: tuple[int, int]
    extent: list[int]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].column)

    @property
    def sizes(self) -> list[int]:
        """Words of each column's packed chunk."""
        return [m.chunk_words(FRONT_WORDS, n) for m, n in zip(self.columns, self.payloads, strict=True)]

    def packed(self, number: int) -> Any:
        """A column's packed chunk on the device, uint64 (words,); the words of its front are not filled in."""
        return self.columns[number].packed(FRONT_WORDS, self.payloads[number])

    def front(self, number: int) -> tuple[int, int, int, int]:
        """The words of its front."""
        column = self.columns[number]
        return front_word(column.column.itemsize, column.rotation), self.rows, self.payloads[number], 0


def rotation_of(column: Any) -> int:
    """The rotation under which a column on the device packs best, by its first rows; 0 but for keys."""
    if column.dtype.kind != "u":
        return 0
    return int(best_rotation(column[:SAMPLED_ROWS].get(), SAMPLE_ROWS, SAMPLES))


def measured_chunks(parts: Sequence[tuple[Any, Any]], rotations: Sequence[int]) -> list[MeasuredChunk]:
    """Measure rows that become one chunk each, and wait once for what all of them need.

    Parameters
    ----------
    parts : keys uint64 (words, rows) and values (rows,) on the device, at least one row each.
    rotations : of each column, to the right.
    """
    from oocbe.kernels.cuda.bit_pack import measure
    from oocbe.kernels.cuda.readback import Readback

    measured, wanted = [], []
    for keys, values in parts:
        columns = [measure(column, rotation) for column, rotation in zip([*keys, values], rotations, strict=True)]
        measured.append(columns)
        wanted += [column.places[-1:] for column in columns]
        wanted += [word[:1].view(np.int64) for word in keys] + [word[-1:].view(np.int64) for word in keys]
        if values.dtype.kind != "f":
            wanted += [found.reshape(1).astype(np.int64) for found in (values.min(), values.max())]
    if not wanted:
        return []
    numbers = iter(Readback(*wanted).numbers().tolist())
    chunks = []
    for columns, (keys, values) in zip(measured, parts, strict=True):
        payloads = [next(numbers) for _ in columns]
        first, last = (_key([next(numbers) for _ in keys]) for _ in range(2))
        extent = [next(numbers) for _ in range(2)] if values.dtype.kind != "f" else []
        chunks.append(MeasuredChunk(columns, payloads, (first, last), extent))
    return chunks


def _key(words: Sequence[int]) -> int:
    """Key words, read as signed numbers, as one number."""
    return sum((word & (1 << 64) - 1) << 64 * place for place, word in enumerate(words))
