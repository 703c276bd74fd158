"""Where messages live between the bucket that makes them and the end of the backward pass.

Every message is needed twice: joined once in the bucket it goes to, and asked for one row in the backward pass. Until
it is joined it must be quick to read; afterwards it may be anywhere. So messages stay in memory while they fit; beyond
that, those already joined are written to stored tables in a scratch folder. With a checkpoint, every message is
published there as soon as it is made and left there for a run that is resumed; a large one is then read back when its
bucket comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.search import find_row
from oocbe.operators.bucket_engine import to_host
from oocbe.tables.complete import CompleteTable
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.table import Table
from oocbe.tables.writer import key_number

if TYPE_CHECKING:
    from oocbe.elimination.checkpoint import OrderCheckpoint, PublishedMessage
    from oocbe.tables.layout import Layout
    from oocbe.tables.stored import StoredTable


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
    _table: Table | CompleteTable | None = None
    _stored: StoredTable | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether the rows are held in memory."""
        return self._table is not None

    @property
    def is_complete(self) -> bool:
        """Whether it is held as a complete table."""
        return isinstance(self._table, CompleteTable)

    def table(self) -> Table:
        """The rows in memory, read from disk where they are not, listed where they are a complete table's."""
        if isinstance(self._table, CompleteTable):
            return self._rows_of(self._table)
        if self._table is not None:
            return self._table
        assert self._stored is not None
        return self._stored.to_table()

    def complete(self, dtype: np.dtype[np.generic]) -> CompleteTable:
        """The message as a complete table of a dtype, the variable eliminated last changing fastest; made where it is
        none.

        Raises
        ------
        ResourceError : it does not fit in memory. ValueRangeError : a value that the dtype cannot hold.
        """
        if isinstance(self._table, CompleteTable):
            return self._table
        table = to_host(self.table())
        return CompleteTable.from_table(table, tuple(reversed(table.scope)), dtype)

    def values(self) -> NDArray[Any]:
        """Values of the rows, or of all cells, in memory."""
        return self._table.values if self._table is not None else self.table().values

    def _rows_of(self, table: CompleteTable) -> Table:
        return to_host(table).to_table(tuple(reversed(table.scope)))

    def value_at(self, assignment: dict[int, int]) -> int | float | None:
        """Value of the row that an assignment of (at least) the scope's variables selects; None where there is none."""
        if isinstance(self._table, CompleteTable):
            self._table = to_host(self._table)
            return self._table.value_at([assignment[v] for v in reversed(self.scope)])
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

    def rows_at(self, assignment: dict[int, int], bits: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Rows that an assignment selects where keys begin with a field of so many bits that is none of the scope's.

        Returns that field's values, ascending, and the rows' values.
        """
        source = self._table if self._table is not None else self._stored
        assert source is not None and not isinstance(source, CompleteTable)
        indices = np.array([[0, *(assignment[v] for v in self.scope)]], dtype=np.int64)
        first = key_number(source.layout.pack(indices), 0)
        last = first + (1 << bits) - 1
        if self._table is None:
            assert self._stored is not None
            table = self._stored.read_between(first, last)
        else:
            assert not isinstance(self._table, CompleteTable)
            table = self._table = to_host(self._table)
        begin = bisect_left(range(table.rows), first, key=lambda row: key_number(table.keys, row))
        end = bisect_right(range(table.rows), last, key=lambda row: key_number(table.keys, row))
        mask = np.uint64((1 << bits) - 1)
        return (table.keys[0, begin:end] & mask).astype(np.int64), table.values[begin:end]


class MessageStore:
    """Keeps the messages of one forward pass; a context manager that leaves nothing on disk but a checkpoint.

    Parameters
    ----------
    memory_limit : bytes that messages in memory may take together.
    workdir : parent of the scratch folder, which is made when first needed; every message is written there at once.
        None: below the system's scratch folder, and only what does not fit in memory.
    chunk_rows : rows of a chunk of a stored message.
    checkpoint : where messages are published and left, or None.
    max_disk : bytes that the scratch folder may take, or None; a checkpoint has a budget of its own, which counts then.
    """

    def __init__(
        self,
        memory_limit: int,
        workdir: Path | None = None,
        chunk_rows: int = 1 << 20,
        *,
        checkpoint: OrderCheckpoint | None = None,
        max_disk: int | None = None,
    ) -> None:
        self.memory_limit = memory_limit
        self.in_memory = 0
        self._checkpoint = checkpoint
        self._write_all = workdir is not None
        self._parent = default_parent() if workdir is None else workdir
        if checkpoint is not None:
            self._parent = checkpoint.folder.parent
        self._budget = DiskBudget(self._parent, max_disk) if checkpoint is None else checkpoint.budget
        self._chunk_rows = chunk_rows
        self._scratch: ScratchFolder | None = None
        self._scratch_bytes = 0
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

    def add(self, scope: tuple[int, ...], table: Table | CompleteTable, is_filtered: bool = True) -> Message:
        """Keep a new message, or a problem's own table; ``is_filtered`` as in :class:`Message`.

        Raises
        ------
        DiskError : the disk, or what may be used of it, is full.
        """
        message = Message(scope, table.rows, table.nbytes, is_filtered, _table=table)
        self.in_memory += table.nbytes
        if self._write_all:
            self._write(message)
        return message

    def publish(self, place: int, scope: tuple[int, ...], table: Table | CompleteTable, exponent: int) -> Message:
        """Keep the message of the bucket at ``place`` (from 0), in the checkpoint where there is one.

        exponent : of the power of two that the values were divided by. Errors as for :meth:`add`.
        """
        stored = None
        if self._checkpoint is not None:
            # On disk every message is rows: packed keys of a complete table take hardly any room there.
            rows = Message(scope, table.rows, table.nbytes, _table=table).table()
            stored = self._checkpoint.publish(place, scope, to_host(rows), exponent)
        if stored is not None:
            return Message(scope, table.rows, table.nbytes, _stored=stored)
        return self.add(scope, table) if scope else Message(scope, table.rows, table.nbytes, _table=table)

    def published(
        self, place: int, scope: tuple[int, ...], layout: Layout, dtype: np.dtype[np.generic]
    ) -> tuple[Message, int] | None:
        """The message that an earlier run published for the bucket at ``place``, checked, and its exponent; or None."""
        if self._checkpoint is None:
            return None
        found: PublishedMessage | None = self._checkpoint.published(place, scope, layout, dtype)
        if found is None:
            return None
        table = found.table
        if not isinstance(table, Table):
            return Message(scope, table.rows, table.nbytes, _stored=table), found.exponent
        message = self.add(scope, table) if scope else Message(scope, table.rows, table.nbytes, _table=table)
        return message, found.exponent

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Within the block, a caller's own tables of so many bytes count as messages in memory."""
        self.in_memory += nbytes
        try:
            yield
        finally:
            self.in_memory -= nbytes

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
        """Remove what was written but to a checkpoint; ``interrupted``: perhaps in the middle of a write."""
        if self._scratch is None:
            return
        self._scratch.close(interrupted)
        self._scratch = None
        self._budget.take(-self._scratch_bytes, self._parent)
        self._scratch_bytes = 0

    def _write(self, message: Message) -> None:
        from oocbe.tables.stored import StoredTable

        assert message._table is not None
        if self._scratch is None:
            self._scratch = ScratchFolder(self._parent)
        path = self._scratch.path / f"message-{self._written:05d}"
        self._written += 1
        table = to_host(message.table())
        used = self._budget.used
        message._stored = StoredTable.save(path, table, chunk_rows=self._chunk_rows, budget=self._budget)
        self._scratch_bytes += self._budget.used - used
        message._table = None
        self.in_memory -= message.nbytes
