"""Pieces of a clique's rows: their layout in a file, reading and checks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.junction_trees.cliques import Clique
from oocbe.junction_trees.kernels.cpu.piece_sweeps import number_rows
from oocbe.junction_trees.weights import value_kind
from oocbe.runtime.checksums import crc32
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables import disk

SEGMENT_NAME = "rows-{:06d}"
"""Name of a segment's file, by its number."""


class Piece(NamedTuple):
    """The location and the content of a piece.

    segment, offset, size, checksum : of its bytes.
    rows : number of rows. first_row : number of its first in the clique.
    first_group, groups : first separator row and number of separator rows; the first may continue the piece before.
    """

    segment: int
    offset: int
    size: int
    checksum: int
    rows: int
    first_row: int
    first_group: int
    groups: int


@dataclass(frozen=True, eq=False)
class StoredClique:
    """A clique with rows on disk.

    clique : its variables. sizes : of their domains. children : numbers of the cliques below.
    child_scopes : variables of each child's separator. child_rows : rows of each.
    is_complete : whether it is dense, so that only weights are stored.
    rows, separator_rows : their numbers. pieces : of its rows, in order.
    exponent : weights are divided by 2**exponent when they are read, so that the greatest is between 1 and 2; 0 for
        logarithms. norm : greatest sum of the divided weights of a group.
    kind : dtype of value indices.
    """

    clique: Clique
    sizes: tuple[int, ...]
    children: tuple[int, ...]
    child_scopes: tuple[tuple[int, ...], ...]
    child_rows: tuple[int, ...]
    is_complete: bool
    kind: np.dtype[Any]
    rows: int = 0
    separator_rows: int = 0
    pieces: tuple[Piece, ...] = ()
    exponent: int = 0
    norm: float = 0.0

    @classmethod
    def of(
        cls, sizes: Sequence[int], clique: Clique, children: Sequence[int], found: Sequence[StoredClique], **rows: Any
    ) -> StoredClique:
        """A clique from those ``found`` below it, domain sizes, and the attributes that describe its ``rows``."""
        return cls(
            clique=clique,
            sizes=tuple(sizes[v] for v in clique.variables),
            children=tuple(children),
            child_scopes=tuple(found[c].clique.shared for c in children),
            child_rows=tuple(found[c].separator_rows for c in children),
            kind=value_kind(sizes),
            **rows,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of memory per row while a sweep processes its piece: as stored, and its maps."""
        stored = 8 if self.is_complete else 12 + len(self.sizes) * self.kind.itemsize + 4 * len(self.children)
        return stored + 8 + 4 * (1 + len(self.children) + len(self.sizes))


class PieceRows:
    """The rows of a piece.

    weights : float64 (rows,). groups : int64 (groups + 1,), where the rows of each row of the separator begin.
    first_row, first_group : as :class:`Piece`.
    """

    def __init__(self, owner: StoredClique, piece: Piece, data: NDArray[np.uint8], is_log: bool) -> None:
        self._owner = owner
        self.first_row, self.first_group = piece.first_row, piece.first_group
        rows = piece.rows
        self.weights = data[: 8 * rows].view(np.float64)
        least = float(self.weights.min())
        if not np.isfinite(self.weights).all() or (least <= 0 and not is_log):
            raise ValueError("weights that are none")
        if owner.exponent:
            self.weights *= 2.0**-owner.exponent  # in place, because the array is the caller's own
        if owner.is_complete:
            if len(data) != 8 * rows:
                raise ValueError("another number of bytes than its rows take")
            group_rows = math.prod(owner.sizes[owner.clique.separator :])
            bounds = np.arange(piece.first_group, piece.first_group + piece.groups + 1) * group_rows - piece.first_row
            self.groups: NDArray[np.int64] = np.clip(bounds, 0, rows)
            if self.groups[0] or self.groups[-1] != rows or (np.diff(self.groups) < 1).any():
                raise ValueError("another number of groups than its rows have")
            return
        children, end = len(owner.children), 8 * rows
        self._children = data[end : (end := end + 4 * children * rows)].view(np.int32).reshape(children, rows)
        lengths = data[end : (end := end + 4 * piece.groups)].view(np.int32)
        values = data[end:].view(owner.kind)
        if values.size != len(owner.sizes) * rows or lengths.min() < 1 or int(lengths.sum()) != rows:
            raise ValueError("another number of bytes, or groups, than its rows take")
        self._values = values.reshape(-1, rows)
        for own, size in zip(self._values, owner.sizes, strict=True):
            if own.max() >= size:
                raise ValueError("values that its variables have not")
        for numbers, most in zip(self._children, owner.child_rows, strict=True):
            if numbers.min() < 0 or numbers.max() >= most:
                raise ValueError("rows of a message that are none")
        self.groups = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    @property
    def up(self) -> NDArray[np.int64]:
        """The row of the separator of each row: int64 (rows,)."""
        return self.first_group + np.repeat(np.arange(len(self.groups) - 1), np.diff(self.groups))

    def numbers(self, *tables: tuple[int | str, Sequence[int]]) -> NDArray[np.int32]:
        """For each table, the number of its matching row for each row of the piece: int32 (tables, rows).

        tables : number of the sending child, and scope; for a dense clique, only the scope is used.
        """
        owner, found = self._owner, np.empty((len(tables), len(self.weights)), dtype=np.int32)
        if owner.is_complete:
            strides = np.array([strides_of(owner, scope) for _, scope in tables], dtype=np.int64)
            sizes = np.array(owner.sizes, dtype=np.int64)
            number_rows(self.first_row, sizes, strides.reshape(len(tables), len(sizes)), found, current_flag())
            check_deadline()
            return found
        for own, (child, scope) in zip(found, tables, strict=True):
            if child in owner.children:
                own[:] = self._children[owner.children.index(int(child))]
            else:
                (v,) = scope
                own[:] = self._values[owner.clique.variables.index(v)]
        return found

    def values(self, v: int) -> NDArray[np.int32]:
        """Value index of one of the clique's variables in each row."""
        found: NDArray[np.int32] = self.numbers(("variable", (v,)))[0]
        return found


def strides_of(owner: StoredClique, scope: Sequence[int]) -> list[int]:
    """Strides of the row number of a dense table, by variable of the clique."""
    sizes = dict(zip(owner.clique.variables, owner.sizes, strict=True))
    return [
        math.prod(sizes[u] for u in scope[scope.index(v) + 1 :]) if v in scope else 0 for v in owner.clique.variables
    ]


def packed(
    weights: NDArray[np.float64], children: NDArray[np.int32], lengths: NDArray[np.int32], values: NDArray[Any]
) -> list[memoryview]:
    """The bytes of a piece of a sparse clique, part by part.

    children : int32 (children, rows), rows of their messages. lengths : int32 (groups,), rows of each row of the
    separator. values : (variables, rows).
    """
    parts: list[NDArray[Any]] = [weights, children, lengths, values]
    return [np.ascontiguousarray(part).data.cast("B") for part in parts if part.size]


def open_segment(path: Path) -> int:
    """Open a new segment for writing; an earlier one is truncated."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def write_parts(handle: int, parts: Sequence[memoryview], offset: int, path: Path) -> tuple[int, int]:
    """Write the bytes of a piece at an offset of an open segment; returns their number and their checksum."""
    size, checksum = 0, 0
    for part in parts:
        disk.write_at(handle, part, offset + size, path)
        checksum = crc32(part, checksum)
        size += len(part)
    return size, checksum


def read_pieces(
    folder: Path, owner: StoredClique, is_log: bool, pieces: Sequence[Piece] | None = None
) -> Iterator[PieceRows]:
    """A clique's rows, some ``pieces`` or all, one at a time; CorruptDataError: damaged; TimeLimitError."""
    for piece in owner.pieces if pieces is None else pieces:
        check_deadline()
        path = folder / SEGMENT_NAME.format(piece.segment)
        data = read_bytes(path, piece)
        try:
            rows = PieceRows(owner, piece, data, is_log)
        except ValueError as error:
            raise CorruptDataError(f"{path}: {error}; compile the tree again") from None
        yield rows


def read_bytes(path: Path, piece: Piece) -> NDArray[np.uint8]:
    """The bytes of a piece: uint8 (bytes,); CorruptDataError if they do not match their checksum."""
    data = np.empty(piece.size, dtype=np.uint8)
    try:
        found = disk.read_file_into(path, data.data, piece.offset)
    except OSError as error:
        raise CorruptDataError(f"{path}: cannot be read ({error.strerror}); compile the tree again") from None
    if found < piece.size:
        raise CorruptDataError(f"{path}: ends before byte {piece.offset + piece.size:,}; compile the tree again")
    if crc32(data.data) != piece.checksum:
        raise CorruptDataError(f"{path}: damaged, its checksum does not hold; compile the tree again")
    return data
