"""Which rows of a table on disk are in which chunk, and in which file.

Chunks of a table are alike but for the last one. Those of a table of parts (:mod:`oocbe.tables.parts`) are those of its
parts, one part after the other, the last of each shorter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Protocol


class ChunkIndex(Protocol):
    """Where rows are."""

    def at(self, row: int) -> int:
        """The chunk that has a row; how many chunks there are, or more, for a row behind all."""

    def start(self, chunk: int) -> int:
        """First row of a chunk; all rows for one behind the last chunk."""

    def file(self, array: str, chunk: int) -> str:
        """Name of a chunk's file, relative to the table's folder."""

    def writer(self, chunk: int) -> str | None:
        """The worker that wrote a chunk (:mod:`oocbe.execution.cluster.ownership`); None where nobody says."""


class EvenChunks:
    """Chunks of as many rows but for the last one.

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
    """The chunks of parts, laid end to end.

    Parameters
    ----------
    parts : folder, rows, rows a chunk and writer of each.
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
