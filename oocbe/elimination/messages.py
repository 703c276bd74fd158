"""Where messages live between the bucket that makes them and the end of the backward pass.

Every message is needed twice: joined once in the bucket it goes to, and asked for one row in the backward pass. Until
it is joined it must be quick to read; afterwards it may be anywhere. So messages stay in memory while they fit; beyond
that, those already joined are written to stored tables in a scratch folder. With a work folder given, every message is
written there as soon as it is made and read back when its bucket comes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from oocbe.errors import ResourceError
from oocbe.kernels.cpu.search import find_row
from oocbe.operators.bucket_engine import to_host
from oocbe.tables.table import Table, format_bytes

if TYPE_CHECKING:
    from oocbe.tables.stored import StoredTable

SETTLING_CHECKS, SETTLING_SECONDS = 10, 0.02
"""After an interruption: Zarr writes on threads of its own, and a file under way makes its folder anew once removed."""


@dataclass
class Message:
    """A message, in memory or on disk.

    Attributes
    ----------
    scope : variable indices, the variable eliminated first at the front; the layout has the same order.
    rows, nbytes : of the table.
    is_filtered : whether the constraints that its scope covers have been applied; not so in a problem's own tables.
    """

    scope: tuple[int, ...]
    rows: int
    nbytes: int
    is_filtered: bool = True
    _table: Table | None = None
    _stored: StoredTable | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are held in memory."""
        return self._table is not None

    def table(self) -> Table:
        """The rows in memory, read from disk where they are not."""
        if self._table is not None:
            return self._table
        assert self._stored is not None
        return self._stored.to_table()

    def value_at(self, assignment: dict[int, int]) -> int | float | None:
        """Value of the row that an assignment of (at least) the scope's variables selects; None where there is none."""
        source = self._table if self._table is not None else self._stored
        assert source is not None
        indices = np.array([[assignment[v] for v in self.scope]], dtype=np.int64)
        key = source.layout.pack(indices)[:, 0]
        if self._table is None:
            assert self._stored is not None
            return self._stored.find(key)
        self._table = to_host(self._table)
        row = find_row(self._table.keys, key)
        if row < 0:
            return None
        value: int | float = self._table.values[row].item()
        return value


class MessageStore:
    """Keeps the messages of one forward pass; a context manager that leaves nothing on disk.

    Parameters
    ----------
    memory_limit : bytes that messages in memory may take together.
    workdir : folder for stored messages; None: one below the system's scratch folder, made when first needed.
    chunk_rows : rows of a chunk of a stored message.
    """

    def __init__(self, memory_limit: int, workdir: Path | None = None, chunk_rows: int = 1 << 20) -> None:
        self.memory_limit = memory_limit
        self.in_memory = 0
        self._write_all = workdir is not None
        self._parent = workdir
        self._chunk_rows = chunk_rows
        self._folder: Path | None = None
        self._joined: list[Message] = []
        self._written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(interrupted=kind is not None)

    @property
    def free(self) -> int:
        """Bytes of the limit that are free now."""
        return self.memory_limit - self.in_memory

    @property
    def spillable(self) -> int:
        """Bytes of joined messages in memory, which :meth:`make_room` can write to disk."""
        return sum(m.nbytes for m in self._joined)

    def add(self, scope: tuple[int, ...], table: Table, is_filtered: bool = True) -> Message:
        """Keep a new message, or a problem's own table; ``is_filtered`` as in :class:`Message`.

        Raises
        ------
        ResourceError : the disk is full.
        """
        message = Message(scope, table.rows, table.nbytes, is_filtered, _table=table)
        self.in_memory += table.nbytes
        if self._write_all:
            self._write(message)
        return message

    def joined(self, message: Message) -> None:
        """Note that a message has been joined: from now on it is only asked for single rows."""
        if message._table is not None:
            message._table = to_host(message._table)  # device memory is for what is still to be joined
            self._joined.append(message)

    def make_room(self, wanted: int) -> None:
        """Write joined messages to disk, the largest first, until ``wanted`` bytes of the limit are free."""
        self._joined.sort(key=lambda m: m.nbytes)
        while self._joined and self.free < wanted:
            self._write(self._joined.pop())

    def close(self, interrupted: bool = False) -> None:
        """Remove everything that was written; ``interrupted``: perhaps in the middle of a write."""
        if self._folder is None:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        for _ in range(SETTLING_CHECKS if interrupted else 0):
            time.sleep(SETTLING_SECONDS)
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _write(self, message: Message) -> None:
        from oocbe.tables.stored import StoredTable

        assert message._table is not None
        if self._folder is None:
            self._folder = self._make_folder()
        path = self._folder / f"message-{self._written:05d}"
        self._written += 1
        message._stored = StoredTable.save(path, to_host(message._table), chunk_rows=self._chunk_rows)
        message._table = None
        self.in_memory -= message.nbytes

    def _make_folder(self) -> Path:
        try:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="oocbe-", dir=self._parent))
        except OSError as error:
            where = self._parent or tempfile.gettempdir()
            raise ResourceError(
                f"no folder for messages beyond {format_bytes(self.memory_limit)} can be made in {where} ({error}); "
                "choose another with --workdir"
            ) from None
