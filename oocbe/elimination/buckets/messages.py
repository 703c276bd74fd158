"""Storage of messages from their creation to the end of the backward pass.

Every message is used twice: joined once in its receiving bucket, and queried for one row in the backward pass. Before
the join it must be fast to read; afterwards its location does not matter. So messages stay in memory while they fit.
Then joined messages are written to stored tables in a scratch folder, followed by waiting ones. A message computed in
pieces is on disk from the start. With a checkpoint, every message is published there when it is complete and kept for a
resumed run; a large one is read back, whole or in pieces, for its receiving bucket. Device messages stay on the device
while it has room, because the backward pass reads only a few of their rows.

A plan simulates the same accounting with predicted sizes (:mod:`oocbe.elimination.plan.bucket_forecast`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.complete_tables.conversion import row_pieces
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.engine.decision import MainMemory
from oocbe.model.settings.tuning import tuning
from oocbe.tables import disk
from oocbe.tables.complete import CompleteTable
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout, Schema
from oocbe.tables.residence import host_rows, host_values, is_on_device, stays_on_device, to_host
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredCompleteTable, StoredTable
from oocbe.tables.table import Table

if TYPE_CHECKING:
    from oocbe.elimination.runs.checkpoint import OrderCheckpoint


class AccountedMessage(Protocol):
    """Interface of an accounted message."""

    @property
    def nbytes(self) -> int:
        """Bytes of its table."""

    @property
    def is_in_memory(self) -> bool:
        """Whether it is in memory, main memory or the device's."""

    @property
    def is_on_device(self) -> bool:
        """Whether it is in a device's memory."""


AnyHeld = TypeVar("AnyHeld", bound=AccountedMessage)


class HeldMessages(Generic[AnyHeld]):
    """Messages in memory.

    memory_limit : bytes of main memory that messages may take together.
    in_memory : bytes of main memory taken by messages.
    waiting : messages that are not joined yet. queried : joined messages, queried only for single rows.
        Messages no longer in memory may still be listed.
    """

    def __init__(self, memory_limit: int) -> None:
        self.memory_limit = memory_limit
        self.in_memory = 0
        self.waiting: list[AnyHeld] = []
        self.queried: list[AnyHeld] = []

    @property
    def free(self) -> int:
        """Bytes of the limit that are free now."""
        return self.memory_limit - self.in_memory

    def room(self, besides: Sequence[AnyHeld]) -> MainMemory:
        """The memory as input of a decision; messages in ``besides`` are not movable."""

        def movable() -> Iterator[int]:
            for messages in (self.queried, self.waiting):
                there = [m for m in sorted(messages, key=lambda m: m.nbytes) if m.is_in_memory]
                yield from (m.nbytes for m in reversed(there) if not _stays(m, besides))

        return MainMemory(self.memory_limit, self.free, movable)

    def drop(self, message: AnyHeld) -> None:
        """Remove a message from the accounting, whose table has another owner, or is gone."""
        self.in_memory -= message.nbytes if message.is_in_memory and not message.is_on_device else 0
        for messages in (self.queried, self.waiting):
            messages[:] = [m for m in messages if m is not message]

    def move_out(self, wanted: int, besides: Sequence[AnyHeld], move: Callable[[AnyHeld, bool], None]) -> None:
        """Move messages until ``wanted`` bytes of the limit are free.

        Joined messages are moved first, then waiting ones except ``besides``; the largest first.

        move : moves a message out of main memory and reduces ``in_memory``; receives whether it has been joined.
        """
        if self.free >= wanted:
            return
        for messages in (self.queried, self.waiting):
            messages.sort(key=lambda m: m.nbytes)
            messages[:] = [m for m in messages if m.is_in_memory]
            kept = [m for m in messages if _stays(m, besides)]
            others = [m for m in messages if not any(m is other for other in kept)]
            while others and self.free < wanted:
                move(others.pop(), messages is self.queried)
            messages[:] = others + kept


def _stays(message: AnyHeld, besides: Sequence[AnyHeld]) -> bool:
    return message.is_on_device or any(message is other for other in besides)


class MessageStore(HeldMessages[Message]):
    """Keeps the messages of one forward pass; a context manager that removes all its files except a checkpoint.

    memory_limit : bytes that messages in memory may take together.
    workdir : parent of the scratch folder, which is created on first use; every message is written there at once.
        None: the system's scratch folder is used, and only for messages that do not fit in memory.
    chunk_rows : rows of a chunk of a stored message. checkpoint : receives published messages and keeps them; or None.
    small_bytes : messages of at most this size stay in memory while they fit, even with a ``workdir``.
    max_disk : limit of the scratch folder in bytes, or None; a checkpoint's own budget replaces it.
    budget : the disk budget, and its folder.
    forgets : discards a joined message if its values can be recomputed, and returns whether it did; called when memory
        is short. None if all messages are needed.
    """

    def __init__(
        self,
        memory_limit: int,
        workdir: Path | None = None,
        chunk_rows: int = 1 << 20,
        *,
        checkpoint: OrderCheckpoint | None = None,
        max_disk: int | None = None,
        small_bytes: int = -1,
    ) -> None:
        super().__init__(memory_limit)
        self.forgets: Callable[[Message], bool] | None = None
        self._checkpoint = checkpoint
        self._kept_bytes: float = math.inf if workdir is None else small_bytes  # others are written at once
        self._parent = default_parent() if workdir is None else workdir
        if checkpoint is not None:
            self._parent = checkpoint.folder.parent
        self.budget = DiskBudget(self._parent, max_disk, is_scratch=True) if checkpoint is None else checkpoint.budget
        self._chunk_rows = chunk_rows
        self._scratch: ScratchFolder | None = None
        self._scratch_bytes = 0
        self._left_on_device: list[Message] = []
        self._written = 0
        # For a table that moves from the device to disk.
        self._part_bytes = max(1 << 20, int(memory_limit * tuning().chunk_share))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(interrupted=kind is not None)

    def add(self, scope: tuple[int, ...], table: Table | CompleteTable, is_filtered: bool = True) -> Message:
        """Keep a message or an own table; ``is_filtered`` as in :class:`Message`; DiskError: the disk is full."""
        message = Message(scope, table.rows, table.nbytes, is_filtered, _table=table)
        self.in_memory += message.main_memory
        if message.nbytes > self._kept_bytes:
            self._write(message)
        elif is_filtered:  # the problem's own tables stay in memory even if they are written
            self.waiting.append(message)
        return message

    def publish(self, place: int, scope: tuple[int, ...], table: Table | CompleteTable, exponent: int) -> Message:
        """Keep the message of the bucket at ``place`` (from 0), in the checkpoint if there is one.

        exponent : of the power of two by which the values were divided. Errors as for :meth:`add`.
        """
        if self._checkpoint is not None:
            if not self._checkpoint.embeds(table.nbytes):
                if isinstance(table, CompleteTable):
                    return self.publish_cells(
                        place, scope, Schema.of(table), host_values(table, self._part_bytes), exponent
                    )
                if is_on_device(table):
                    with self.new_table(place) as path:
                        stored = self.stored(path, table, host_rows(table, self._part_bytes))
                        return self.publish_written(place, scope, stored, exponent)
            host = to_host(table)
            # A small message is stored as rows in its record, regardless of its form.
            rows = Message(scope, host.rows, host.nbytes, _table=host).table()
            published = self._checkpoint.publish(place, scope, rows, exponent)
            if published is not None:
                return Message(scope, table.rows, table.nbytes, _stored=published)
        return self.add(scope, table) if scope else Message(scope, table.rows, table.nbytes, _table=table)

    def publish_cells(
        self, place: int, scope: tuple[int, ...], like: Schema, values: Iterable[NDArray[Any]], exponent: int
    ) -> Message:
        """Write a complete message to disk from pieces of values in the order of its cells; else as publish."""
        with self.new_table(place) as path:
            return self.publish_written(place, scope, self._stored_cells(path, like, values), exponent)

    @contextmanager
    def new_table(self, place: int | None = None) -> Iterator[Path]:
        """A path on disk for the table that the block writes there.

        place : of the bucket whose message the block publishes (:meth:`publish_written`); None: a scratch table for
            later use, removed by :meth:`remove_scratch`.

        Raises DiskError: the disk, or its permitted share, is full.
        """
        if place is not None and self._checkpoint is not None:
            with self._checkpoint.publishing(place) as path:
                yield path
            return
        if self._scratch is None:
            self._scratch = ScratchFolder(self._parent)
        path = self._scratch.path / f"message-{self._written:05d}"
        self._written += 1
        yield path  # if the block fails, the writer itself returns its bytes to the budget
        self._scratch_bytes += disk.size_of(path)

    def publish_written(
        self, place: int, scope: tuple[int, ...], stored: StoredTable | StoredCompleteTable, exponent: int
    ) -> Message:
        """Publish the message of the bucket at ``place``, whose table is already on disk; else as :meth:`publish`."""
        if self._checkpoint is not None:
            self._checkpoint.publish_table(place, scope, exponent, stored)
        return Message(scope, stored.rows, stored.nbytes, _stored=stored)

    def write_cells(self, like: Schema, values: Iterable[NDArray[Any]]) -> StoredCompleteTable:
        """Write a complete table from pieces, for later use; :meth:`remove_scratch` removes it."""
        with self.new_table() as path:
            return self._stored_cells(path, like, values)

    def write_scratch(self, head: Table, tables: Iterable[Table]) -> StoredTable:
        """Write a table from pieces, for later use; :meth:`remove_scratch` removes it. Errors as for add."""
        with self.new_table() as path:
            return self.stored(path, head, tables)

    def remove_scratch(self, table: StoredTable | StoredCompleteTable) -> None:
        """Remove a table of :meth:`write_scratch` or :meth:`write_cells`."""
        used = disk.size_of(table.folder)
        disk.remove(table.folder)
        self.budget.take(-used, self._parent)
        self._scratch_bytes -= used

    def published(
        self, place: int, scope: tuple[int, ...], layout: Callable[[], Layout], dtype: np.dtype[np.generic]
    ) -> tuple[Message, int] | None:
        """The verified message and exponent that an earlier run published for the bucket at ``place``; or None."""
        if self._checkpoint is None:
            return None
        found = self._checkpoint.published(place, scope, layout(), dtype)
        if found is None:
            return None
        table, exponent = found
        if not isinstance(table, Table):
            return Message(scope, table.rows, table.nbytes, _stored=table), exponent
        message = self.add(scope, table) if scope else Message(scope, table.rows, table.nbytes, _table=table)
        return message, exponent

    def joined(self, message: Message) -> None:
        """Mark a message as joined: from now on it is queried only for single rows."""
        if message._table is None or not message.is_filtered:  # see add
            return
        self.waiting = [m for m in self.waiting if m is not message]
        if stays_on_device(message._table, self):
            self._left_on_device.append(message)
        else:
            self._keep_joined(message)

    def free_device_memory(self) -> bool:
        """Forget joined messages on the device or move them to main memory; returns whether there were any."""
        has_any = bool(self._left_on_device)
        self._left_on_device = [message for message in self._left_on_device if not self._forget(message)]
        while self._left_on_device:
            message = self._left_on_device.pop()  # first, because moving it may run out of memory as well
            try:
                self._keep_joined(message)
            except BaseException:
                self._left_on_device.append(message)
                raise
        return has_any

    def move_to_main_memory(self, messages: Sequence[Message], as_rows: bool) -> None:
        """Move joined and waiting messages off the device; ``as_rows``: complete ones become rows there first."""
        self.free_device_memory()
        for message in messages:
            if message.is_on_device:
                if as_rows:
                    message.keep_as_rows()
                self._fetch(message, besides=[m for m in messages if m is not message])

    @property
    def left_on_device(self) -> int:
        """Bytes on the device that :meth:`free_device_memory` frees."""
        return sum(message.nbytes for message in self._left_on_device)

    def _keep_joined(self, message: Message) -> None:
        """Keep a joined message in main memory, in the smaller form if it comes from the device; other messages are
        moved to disk if there is no room."""
        if message.is_on_device:
            if self._forget(message):
                return
            message.keep_as_rows(tuning().smaller_share)
            self._fetch(message)
        if message.is_in_memory:
            self.queried.append(message)

    def _forget(self, message: Message) -> bool:
        """Forget a joined message if permitted; returns whether it was forgotten."""
        before = message.main_memory
        is_forgotten = self.forgets is not None and self.forgets(message)
        self.in_memory -= before if is_forgotten else 0
        return is_forgotten

    def _fetch(self, message: Message, besides: Sequence[Message] = ()) -> None:
        """Move a message from the device to main memory, or to disk if there is no room."""
        self.make_room(message.nbytes, besides)
        if self.free < message.nbytes:
            self._write(message)
            return
        message.move_to_main_memory()
        self.in_memory += message.main_memory

    def make_room(self, wanted: int, besides: Sequence[Message] = ()) -> None:
        """Write messages to disk until ``wanted`` bytes of the limit are free.

        Joined messages are written first, then waiting ones except ``besides``; the largest first.
        """

        def move(message: Message, is_joined: bool) -> None:
            if not is_joined or not self._forget(message):
                self._write(message)

        self.move_out(wanted, besides, move)

    def close(self, interrupted: bool = False) -> None:
        """Remove all files except a checkpoint's; ``interrupted``: a write may be incomplete."""
        self._left_on_device.clear()  # they are no longer needed
        if self._scratch is None:
            return
        self._scratch.close(interrupted)
        self._scratch = None
        self.budget.take(-self._scratch_bytes, self._parent)
        self._scratch_bytes = 0

    def _write(self, message: Message) -> None:
        """Write a message in memory to the scratch folder, in its form."""
        assert message._table is not None
        table = message._table
        if isinstance(table, CompleteTable):
            message._stored = self.write_cells(Schema.of(table), host_values(table, self._part_bytes))
        else:
            message._stored = self.write_scratch(table, host_rows(table, self._part_bytes))
        self.in_memory -= message.main_memory
        message._table = None
        message.nbytes = message._stored.nbytes

    def list_rows(self, messages: Sequence[Message]) -> None:
        """Write the complete tables among some messages to disk as rows, which can be read by key range."""
        for message in messages:
            if not message.is_complete:
                continue
            stored = message._stored
            source = message._table or stored
            assert isinstance(source, CompleteTable | StoredCompleteTable)
            layout = source.layout.select(tuple(reversed(source.scope)))
            keys, values = np.empty((layout.words, 0), dtype=np.uint64), np.empty(0, dtype=source.dtype)
            head = Table(layout, keys, values, source.semiring, is_sorted=True)
            room = int(max(self.free, self.memory_limit * tuning().small_share) * tuning().quarter_share)
            scratch = partial(self.scratch_cells, Schema.of(source))
            rows = self.write_scratch(head, row_pieces(source, layout.scope, room, scratch))
            if isinstance(source, CompleteTable):
                self.drop(message)
                self._left_on_device = [m for m in self._left_on_device if m is not message]
            elif self._scratch is not None and source.path.parent == self._scratch.path:
                self.remove_scratch(source)
            message._table, message._stored, message.nbytes = None, rows, rows.nbytes

    @contextmanager
    def scratch_cells(self, like: Schema, values: Iterable[NDArray[Any]]) -> Iterator[StoredCompleteTable]:
        """A complete table written from pieces, which exists within the block."""
        stored = self.write_cells(like, values)
        try:
            yield stored
        finally:
            self.remove_scratch(stored)

    def stored(self, path: Path, head: Table, tables: Iterable[Table]) -> StoredTable:
        """Write tables in the order of their keys as they are computed, concatenated into one.

        path : from :meth:`new_table`. head : a table with the common layout, dtype and semiring.
        """
        like, chunk_rows = (head.layout, head.values.dtype, head.semiring), self.rows_a_chunk(head.row_bytes)
        writer = StoredTable.create(path, *like, chunk_rows=chunk_rows, budget=self.budget, limbs=head.limbs)
        with writer:
            for table in tables:
                writer.append(table.keys, table.values)
        return StoredTable.open(path)

    def _stored_cells(self, path: Path, like: Schema, values: Iterable[NDArray[Any]]) -> StoredCompleteTable:
        chunk_cells = self.rows_a_chunk(like.dtype.itemsize)
        return StoredCompleteTable.save_pieces(path, *like, values, chunk_cells=chunk_cells, budget=self.budget)

    def rows_a_chunk(self, row_bytes: int) -> int:
        """Rows, or cells, of a chunk: small against the memory limit."""
        small = int(self.memory_limit * tuning().chunk_share) // row_bytes
        return min(self._chunk_rows, max(tuning().few_rows, small))
