"""Index of the chunks of a table on disk: chunk and file of each row.

All chunks of a table but the last have the same number of rows. The chunks of a table of parts
(:mod:`oocbe.tables.parts`) are those of its parts in order; the last chunk of each part is shorter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Protocol


class ChunkIndex(Protocol):
    """Rows, file and writer of each chunk."""

    def at(self, row: int) -> int:
        """Chunk of a row; at least the number of chunks for a row behind the last one."""

    def start(self, chunk: int) -> int:
        """First row of a chunk; the number of all rows for a chunk behind the last one."""

    def file(self, array: str, chunk: int) -> str:
        """Name of a chunk's file, relative to the table's folder."""

    def writer(self, chunk: int) -> str | None:
        """Worker that wrote a chunk (:mod:`oocbe.execution.cluster.ownership`); None: unknown."""


class EvenChunks:
    """Chunks of equal numbers of rows, except the last one.

    Parameters
    ----------
    rows : of the table. chunk_rows : of each chunk but the last. writer : of all of them.
    """

    def __init__(self, rows: int, chunk_rows: int, writer: str | None = None) -> None:
        self._rows, self._chunk_rows, self._writer = rows, chunk_rows, writer

    def at(self, row: int) -> int:
        """See :class:`ChunkIndex`."""
        return row // self._chunk_rows

    def start(self, chunk: int) -> int:
        """See :class:`ChunkIndex`."""
        return min(chunk * self._chunk_rows, self._rows)

    def file(self, array: str, chunk: int) -> str:
        """See :class:`ChunkIndex`."""
        return f"{array}/c/{chunk}"

    def writer(self, chunk: int) -> str | None:
        """See :class:`ChunkIndex`."""
        return self._writer


class PartChunks:
    """The chunks of parts, concatenated.

    Parameters
    ----------
    parts : folder, rows, rows per chunk and writer of each.
    """

    def __init__(self, parts: Iterable[tuple[str, int, int, str | None]]) -> None:
        self._files: list[tuple[str, int]] = []
        self._writers: dict[str, str | None] = {}
        counts: list[int] = []
        for folder, rows, chunk_rows, writer in parts:
            self._writers[folder] = writer
            chunks = -(-rows // chunk_rows)
            self._files += [(folder, chunk) for chunk in range(chunks)]
            counts += [min(chunk_rows, rows - chunk * chunk_rows) for chunk in range(chunks)]
        self._starts = [0, *accumulate(counts)]

    def at(self, row: int) -> int:
        """See :class:`ChunkIndex`."""
        return bisect_right(self._starts, row) - 1

    def start(self, chunk: int) -> int:
        """See :class:`ChunkIndex`."""
        return self._starts[min(chunk, len(self._files))]

    def file(self, array: str, chunk: int) -> str:
        """See :class:`ChunkIndex`."""
        folder, number = self._files[chunk]
        return f"{folder}/{array}/c/{number}"

    def writer(self, chunk: int) -> str | None:
        """See :class:`ChunkIndex`."""
        return self._writers[self._files[chunk][0]]
