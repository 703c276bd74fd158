"""The folder in which a tree is made on disk, in a form from which another process can resume.

    .NAME.unfinished/     beside the tree to be, which is this folder renamed
        lock              held while a process works there
        order.json        digest of the problem, requested order, order and cliques
        rows-000000       a segment: pieces of rows, concatenated
        rows-000000.json  offset and checksum of each, and where to resume; written when the segment is synced
        …
        function_tuples … the problem's arrays
        tree.json         the record of a whole tree, written last

A segment without a record, or whose bytes differ from its record, is made again, and so are all later segments.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError, UsageError
from oocbe.junction_trees.compiled import joined
from oocbe.junction_trees.kernels.cpu.clique_rows import number_rows
from oocbe.junction_trees.support import Clique
from oocbe.junction_trees.weights import value_kind
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.checksums import crc32
from oocbe.runtime.deadline import check_deadline, current_flag, looked
from oocbe.runtime.faults import fault_point
from oocbe.runtime.plain_files import plain_status
from oocbe.runtime.urls import refuse_url
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.manifest import read_record, render_record
from oocbe.tables.scratch import LOCK_NAME, FolderLock

RECORD_NAME = "tree.json"
"""Name of the file that describes a stored tree."""

FORMAT_NAME = "oocbe-tree"
"""Name of the format in the record."""

PROBLEM_DTYPES: dict[str, np.dtype[Any]] = {
    "function_tuples": np.dtype(np.int64),
    "function_values": np.dtype(np.float64),
    "constraint_tuples": np.dtype(np.int64),
}
"""Dtypes of a problem's arrays."""


def is_tree(folder: Path) -> bool:
    """Whether a folder's record names the format of a junction tree."""
    return (folder / RECORD_NAME).exists()


def problem_arrays(problem: Problem) -> dict[str, NDArray[Any]]:
    """The numbers of a problem, concatenated by kind."""
    functions, constraints = problem.functions, problem.constraints
    return {
        "function_tuples": joined([f.tuples for f in functions], PROBLEM_DTYPES["function_tuples"]),
        "function_values": joined([f.values for f in functions], PROBLEM_DTYPES["function_values"]),
        "constraint_tuples": joined([c.tuples for c in constraints], PROBLEM_DTYPES["constraint_tuples"]),
    }


def describe_problem(problem: Problem) -> dict[str, Any]:
    """The part of a record that describes a problem, without its arrays."""
    assert not problem.linear_constraints  # nor bounds; both have been converted to tables
    assert problem.upper_bound is None and problem.lower_bound is None
    return {
        "name": problem.name,
        "variables": [[v.name, v.size, None if v.labels is None else list(v.labels)] for v in problem.variables],
        "semiring": problem.semiring.name,
        "constant": float(problem.constant),
        "functions": [[list(f.scope), len(f.values), _number(f.default)] for f in problem.functions],
        "constraints": [[list(c.scope), len(c.tuples), c.allowed] for c in problem.constraints],
    }


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Write and sync arrays to files; returns dtype, bytes and checksum of each, for the record; OSError."""
    files = {}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        disk.write_file(folder / name, data)
        disk.synchronise(folder / name)
        files[name] = [array.dtype.str, len(data), crc32(data)]
    return files


def read_array(folder: Path, name: str, dtype: str, size: int, checksum: int) -> NDArray[Any]:
    """An array written by :func:`write_arrays`; CorruptDataError if it differs from the record."""
    path = folder / name
    kind = np.dtype(dtype)
    if Path(name).name != name or kind.hasobject or size % kind.itemsize:
        raise CorruptDataError(f"{path}: {RECORD_NAME} has no usable record of it; compile the tree again")
    try:
        found = plain_status(path).st_size
    except OSError as error:
        why = "missing" if isinstance(error, FileNotFoundError) else error.strerror
        raise CorruptDataError(f"{path}: {why}; compile the tree again") from None
    if found != size:
        raise CorruptDataError(f"{path}: has {found:,} bytes instead of {size:,}; compile the tree again")
    array: NDArray[Any] = np.empty(size // kind.itemsize, dtype=kind)
    try:
        if size:
            disk.read_file_into(path, array.data.cast("B"))
    except OSError as error:
        raise CorruptDataError(f"{path}: cannot be read ({error.strerror})") from None
    if crc32(array.data.cast("B") if size else b"") != checksum:
        raise CorruptDataError(f"{path}: damaged, its checksum does not hold; compile the tree again")
    return array


class Taker:
    """Takes numbers from the front of an array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._place = array, 0

    def take(self, count: int) -> NDArray[Any]:
        """The next numbers; ValueError if there are too few."""
        if count < 0 or self._place + count > len(self._array):
            raise ValueError("an array is too short")
        self._place += count
        return self._array[self._place - count : self._place]

    def end(self) -> None:
        """Raise ValueError if numbers are left."""
        if self._place != len(self._array):
            raise ValueError("an array is too long")


def checked_cliques(record: Mapping[str, Any], variables: int) -> tuple[Clique, ...]:
    """The cliques of a record; ValueError if they are no tree over so many variables."""
    cliques = tuple(Clique(tuple(v), int(separator), parent) for v, separator, parent in record["cliques"])
    for number, clique in enumerate(cliques):
        parent = clique.parent
        if not 0 <= clique.separator < len(clique.variables) or len(set(clique.variables)) < len(clique.variables):
            raise ValueError(f"clique {number} is none")
        if parent is None and clique.separator:
            raise ValueError(f"clique {number} has a separator and no parent")
        if parent is not None:
            if not number < parent < len(cliques):
                raise ValueError(f"clique {number} comes after its parent")
            if not set(clique.shared) <= set(cliques[parent].variables):
                raise ValueError(f"clique {number} shares other variables with its parent")
    if sorted(v for clique in cliques for v in clique.own) != list(range(variables)):
        raise ValueError("cliques do not have each variable once")
    return cliques


def read_problem(record: Mapping[str, Any], takers: Mapping[str, Taker]) -> Problem:
    """The problem of a record; ValueError, KeyError, TypeError or an error of the model if it is invalid."""
    for name, _, labels in record["variables"]:
        if not all(isinstance(text, str) for text in (name, *(labels or ()))):
            raise ValueError(f"variable {name!r} has a name or a label that is no text")
    variables = tuple(
        Variable(name, size, None if labels is None else tuple(labels)) for name, size, labels in record["variables"]
    )
    functions = []
    for scope, count, default in record["functions"]:
        tuples = takers["function_tuples"].take(len(scope) * count).reshape(count, len(scope))
        functions.append(Function(tuple(scope), tuples, takers["function_values"].take(count), default))
    constraints = []
    for scope, count, allowed in record["constraints"]:
        tuples = takers["constraint_tuples"].take(len(scope) * count).reshape(count, len(scope))
        constraints.append(Constraint(tuple(scope), tuples, bool(allowed)))
    return Problem(
        variables,
        tuple(functions),
        tuple(constraints),
        constant=record["constant"],
        semiring=record["semiring"],
        name=record["name"],
    )


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
            kind=found[0].kind if found else value_kind(sizes),  # one for all cliques
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
    for piece in looked(owner.pieces if pieces is None else pieces):
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


ORDER_NAME, ORDER_FORMAT = "order.json", "oocbe-tree-order"
"""File name and format name of the record that identifies the tree."""

SEGMENT_FORMAT = "oocbe-tree-rows"
"""Format name of the record of a segment."""

VERSION = 1
"""Version of both records."""


def unfinished(target: Path) -> Path:
    """The folder in which a tree of that name is made."""
    return target.with_name(f".{target.name}.unfinished")


def check_new(target: str | Path) -> None:
    """Raise UsageError if the path of a new tree exists, or its parent folder does not."""
    path = Path(target).absolute()
    if path.exists() or path.is_symlink():
        raise UsageError(f"{target}: exists already; remove it, or name another folder for the tree")
    if not path.parent.is_dir():
        raise UsageError(f"{target}: the folder {path.parent} does not exist; make it first")


class Made(NamedTuple):
    """A piece, and the data recorded when it was made.

    clique : number of the clique. piece : of its rows.
    last : value indices of the separator's last row in it. then : where to resume: the number of the next row, or the
        values of the first variables of the next range.
    peak : greatest weight. sums : of the weights of the first, the last, and the greatest group.
    """

    clique: int
    piece: Piece
    last: tuple[int, ...]
    then: tuple[int, ...]
    peak: float
    sums: tuple[float, float, float]


class TreeFolder:
    """A folder in which this process makes a tree; :meth:`close` releases its lock.

    target : path of the finished tree; it must not exist.
    UsageError : another process makes that tree, or the name cannot be used. DiskError : the folder cannot be made.
    path : the folder. made : by clique, its pieces in order.
    """

    def __init__(self, target: Path) -> None:
        refuse_url(target, "a junction tree")
        self.target = target.absolute()
        check_new(target)
        self.path = unfinished(self.target)
        self.budget = DiskBudget(self.path)
        self.made: defaultdict[int, list[Made]] = defaultdict(list)
        self._pending: list[Made] = []
        self._segment, self._offset, self._handle = 0, 0, -1
        with self.budget.failing(self.path):
            disk.make_folder_of_user(self.path, 0o700)
            self._lock = FolderLock.take(self.path)

    def close(self) -> None:
        """Release the lock; the folder stays."""
        self._close()
        self._lock.release()

    def begun(self) -> dict[str, Any] | None:
        """What :meth:`begin` wrote; None if there is nothing to resume; CorruptDataError: it is damaged."""
        try:
            content = read_record(self.path / ORDER_NAME, ORDER_FORMAT)
        except FileNotFoundError:
            return None
        except CorruptDataError as error:
            raise CorruptDataError(f"{error}; remove {self.path} to start anew") from None
        return content if content.get("version") == VERSION else None

    def begin(self, content: Mapping[str, Any]) -> None:
        """Write the record that identifies the tree, and discard earlier content."""
        with self.budget.failing(self.path):
            for entry in sorted(self.path.iterdir()):
                if entry.name != LOCK_NAME:
                    disk.remove(entry)
            data = render_record({"format": ORDER_FORMAT, "version": VERSION, **content})
            disk.publish_file(self.path / ORDER_NAME, data, "tree-order")

    def find_segments(self) -> None:
        """Reuse the leading segments that are intact, and remove all later ones."""
        while (found := self._sound_segment()) is not None:
            for made in found:
                self.made[made.clique].append(made)
            self._segment += 1
        kept = {LOCK_NAME, ORDER_NAME}
        for number in range(self._segment):
            kept |= {SEGMENT_NAME.format(number), f"{SEGMENT_NAME.format(number)}.json"}
        with self.budget.failing(self.path):
            for entry in sorted(self.path.iterdir()):
                if entry.name not in kept:
                    disk.remove(entry)

    def _sound_segment(self) -> list[Made] | None:
        name = SEGMENT_NAME.format(self._segment)
        try:
            content = read_record(self.path / f"{name}.json", SEGMENT_FORMAT)
            found = [
                Made(c, Piece(*piece), tuple(last), tuple(then), peak, (sums[0], sums[1], sums[2]))
                for c, piece, last, then, peak, sums in content["pieces"]
            ]
            for made in looked(found):
                read_bytes(self.path / name, made.piece)
        except (FileNotFoundError, CorruptDataError, KeyError, TypeError, ValueError):
            return None
        return found

    def append(self, parts: Sequence[memoryview], **what: Any) -> Made:
        """Write a piece; it is durable once its segment is (:meth:`publish`).

        what : fields of :class:`Made` and :class:`Piece` except its location.

        Raises DiskError: the disk is full, or fails.
        """
        path = self.path / SEGMENT_NAME.format(self._segment)
        size = sum(map(len, parts))
        with self.budget.failing(path, size):
            if self._handle < 0:
                fault_point("tree-segment:begin")
                self._handle = open_segment(path)
            size, checksum = write_parts(self._handle, parts, self._offset, path)
        where = {name: what.pop(name) for name in ("rows", "first_row", "first_group", "groups")}
        made = Made(piece=Piece(self._segment, self._offset, size, checksum, **where), **what)
        self._offset += size
        self.made[made.clique].append(made)
        self._pending.append(made)
        if self._offset >= tuning().buffered_bytes:
            self.publish()
        return made

    def publish(self) -> None:
        """Sync the written pieces, if any, and write their record."""
        if not self._pending:
            return
        name = SEGMENT_NAME.format(self._segment)
        data = render_record({"format": SEGMENT_FORMAT, "pieces": self._pending})
        with self.budget.failing(self.path / name):
            self._close()
            fault_point("tree-segment:written")
            disk.synchronise(self.path / name)
            fault_point("tree-segment:synchronised")
            disk.publish_file(self.path / f"{name}.json", data, "tree-rows")
        self._pending = []
        self._segment, self._offset = self._segment + 1, 0

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the record of the whole tree, and rename the folder to its final name."""
        with self.budget.failing(self.target):
            disk.publish_file(self.path / RECORD_NAME, render_record(dict(record)), "tree-record")
            disk.rename(self.path, self.target)
            fault_point("tree-folder:renamed")
            disk.synchronise(self.target.parent)
            records = [f"{SEGMENT_NAME.format(number)}.json" for number in range(self._segment)]
            for name in (*records, ORDER_NAME, LOCK_NAME):  # no longer needed, but harmless if left
                disk.remove(self.target / name)
            fault_point("tree-folder:done")

    def remove(self) -> None:
        """Remove the folder, if no tree is made."""
        self._close()
        disk.remove(self.path)

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
