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

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oocbe.errors import CorruptDataError, UsageError
from oocbe.junction_trees.stored.pieces import SEGMENT_NAME, Piece, open_segment, read_bytes, write_parts
from oocbe.junction_trees.stored_problem import RECORD_NAME
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.faults import fault_point
from oocbe.runtime.urls import refuse_url
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.folder_lock import LOCK_NAME, FolderLock
from oocbe.tables.manifest import read_record, render_record

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
    """A folder in which this process makes a tree; a context manager that releases its lock.

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
        try:
            disk.make_folder_of_user(self.path, 0o700)
            self._lock = FolderLock.take(self.path)
        except OSError as error:
            raise self.budget.failure(error, str(self.path)) from None

    def __enter__(self) -> TreeFolder:
        return self

    def __exit__(self, *_: object) -> None:
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
        try:
            for entry in sorted(self.path.iterdir()):
                if entry.name != LOCK_NAME:
                    disk.remove(entry)
            data = render_record({"format": ORDER_FORMAT, "version": VERSION, **content})
            disk.publish_file(self.path / ORDER_NAME, data, "tree-order")
        except OSError as error:
            raise self.budget.failure(error, str(self.path)) from None

    def find_segments(self) -> None:
        """Reuse the leading segments that are intact, and remove all later ones."""
        while (found := self._sound_segment()) is not None:
            for made in found:
                self.made[made.clique].append(made)
            self._segment += 1
        kept = {LOCK_NAME, ORDER_NAME}
        for number in range(self._segment):
            kept |= {SEGMENT_NAME.format(number), f"{SEGMENT_NAME.format(number)}.json"}
        try:
            for entry in sorted(self.path.iterdir()):
                if entry.name not in kept:
                    disk.remove(entry)
        except OSError as error:
            raise self.budget.failure(error, str(self.path)) from None

    def _sound_segment(self) -> list[Made] | None:
        name = SEGMENT_NAME.format(self._segment)
        try:
            content = read_record(self.path / f"{name}.json", SEGMENT_FORMAT)
            found = [
                Made(c, Piece(*piece), tuple(last), tuple(then), peak, (sums[0], sums[1], sums[2]))
                for c, piece, last, then, peak, sums in content["pieces"]
            ]
            for made in found:
                check_deadline()
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
        try:
            if self._handle < 0:
                fault_point("tree-segment:begin")
                self._handle = open_segment(path)
            size, checksum = write_parts(self._handle, parts, self._offset, path)
        except OSError as error:
            raise self.budget.failure(error, str(path), size) from None
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
        try:
            self._close()
            fault_point("tree-segment:written")
            disk.synchronise(self.path / name)
            fault_point("tree-segment:synchronised")
            disk.publish_file(self.path / f"{name}.json", data, "tree-rows")
        except OSError as error:
            raise self.budget.failure(error, str(self.path / name)) from None
        self._pending = []
        self._segment, self._offset = self._segment + 1, 0

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the record of the whole tree, and rename the folder to its final name."""
        try:
            disk.publish_file(self.path / RECORD_NAME, render_record(dict(record)), "tree-record")
            disk.rename(self.path, self.target)
            fault_point("tree-folder:renamed")
            disk.synchronise(self.target.parent)
            records = [f"{SEGMENT_NAME.format(number)}.json" for number in range(self._segment)]
            for name in (*records, ORDER_NAME, LOCK_NAME):  # no longer needed, but harmless if left
                disk.remove(self.target / name)
            fault_point("tree-folder:done")
        except OSError as error:
            raise self.budget.failure(error, str(self.target)) from None

    def remove(self) -> None:
        """Remove the folder, if no tree is made."""
        self._close()
        disk.remove(self.path)

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
