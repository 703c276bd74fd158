"""Published messages of one elimination order, from which a resumed run continues after a killed one.

The messages of an order live in a folder of the run directory. Bucket 12's is a stored table ``message-00012`` and a
record ``message-00012.json`` that is written last: place, scope, rows, the exponent of its scaling, the checksum of the
table and the run it belongs to. Without a sound record there is no message; a record or table that belongs elsewhere
does not fit its place. A small message has no table: its rows are in the record, because what a table of a few rows
costs is its files, each forced to disk. Every message is published and kept to the end, also one that has been joined:
the backward pass reads a row of each, and a damaged message is recomputed from its factors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oocbe.errors import CorruptDataError, OocbeError
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import read_record, render_record
from oocbe.tables.stored import StoredCompleteTable, StoredTable, open_table
from oocbe.tables.table import Table

RECORD_FORMAT = "oocbe-message"
"""Format name in the record of a message."""


class OrderCheckpoint:
    """Publishes and finds the messages of one order.

    folder : of this order; made when the first message is published.
    run : identifies the run whose messages these are. semiring : of the messages.
    budget : counts what is written. chunk_rows : rows of a chunk of a stored message.
    damaged : called with a sentence about each message that exists but is unusable.
    found : messages that were there and sound.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        semiring: Semiring,
        budget: DiskBudget,
        chunk_rows: int,
        damaged: Callable[[str], None],
    ) -> None:
        self.folder, self.budget = folder, budget
        self.found = 0
        self._run, self._semiring, self._chunk_rows, self._damaged = run, semiring, chunk_rows, damaged

    @staticmethod
    def embeds(nbytes: int) -> bool:
        """Whether a message of so many bytes of keys and values is put into its record."""
        return nbytes <= tuning().small_bytes

    def publish(self, place: int, scope: tuple[int, ...], table: Table, exponent: int) -> StoredTable | None:
        """Put the message of the bucket at ``place`` (from 0) on disk, to be found by a run that is resumed.

        Returns the table on disk, or None for a message so small that it is better kept in memory, too.

        Raises DiskError: it cannot be written; what was published before stays.
        """
        with self.publishing(place, table.nbytes) as path:
            if not self.embeds(table.nbytes):
                stored = StoredTable.save(path, table, chunk_rows=self._chunk_rows, budget=self.budget)
                self.publish_table(place, scope, exponent, stored)
                return stored
            content = {"keys": _text_of(table.keys), "values": _text_of(table.values)}
            self._record(place, scope, table.rows, exponent, content)
        return None

    @contextmanager
    def publishing(self, place: int, nbytes: int | None = None) -> Iterator[Path]:
        """A path for a message's table, which the block writes there and then publishes (:meth:`publish_table`).

        What lies there before is damaged or has no record, and goes. nbytes : of the message, where known.

        Raises DiskError: it cannot be written.
        """
        path = self._path(place)
        with self.budget.failing(path, nbytes):
            disk.make_folder(self.folder, 0o700)
            # The record goes first.
            for leftover in (self._record_path(place), path):
                if leftover.exists() or leftover.is_symlink():
                    self.budget.take(-disk.size_of(leftover), leftover)
                    disk.remove(leftover)
                    disk.synchronise(self.folder)
            yield path

    def publish_table(
        self, place: int, scope: tuple[int, ...], exponent: int, stored: StoredTable | StoredCompleteTable
    ) -> None:
        """Put the record of a message on disk whose table has been written to the path that :meth:`publishing` gave."""
        self._record(place, scope, stored.rows, exponent, {"table": stored.manifest_checksum})

    def _record(
        self, place: int, scope: tuple[int, ...], rows: int, exponent: int, content: Mapping[str, object]
    ) -> None:
        record = {
            "format": RECORD_FORMAT,
            "run": self._run,
            "place": place,
            "scope": list(scope),
            "rows": rows,
            "exponent": exponent,
            **content,
        }
        data = render_record(record)
        self.budget.take(len(data), self._record_path(place))
        disk.publish_file(self._record_path(place), data, "message")

    def published(
        self, place: int, scope: tuple[int, ...], layout: Layout, dtype: np.dtype[np.generic]
    ) -> tuple[StoredTable | StoredCompleteTable | Table, int] | None:
        """The message of a place if sound, every byte checked, and of this scope, layout and dtype; else None.

        It is on disk, or in memory if in its record. With it comes the exponent of the 2 that divided its values.
        """
        record_path = self._record_path(place)
        try:
            if self.folder.is_symlink():
                raise CorruptDataError(f"{self.folder}: a link, which nothing in a run directory is")
            record = read_record(record_path, RECORD_FORMAT)
            if (record["run"], record["place"], record["scope"]) != (self._run, place, list(scope)):
                raise CorruptDataError(f"{record_path}: belongs to another bucket or run")
            table = self._embedded(record, layout, dtype) if "keys" in record else self._stored(place, record)
            wanted = layout.select(layout.scope[::-1]) if isinstance(table, StoredCompleteTable) else layout
            if table.rows != record["rows"] or table.layout != wanted or table.dtype != dtype:
                raise CorruptDataError(f"{record_path}: its table is none of this bucket's")
            message = table, int(record["exponent"])
        except FileNotFoundError:
            return None
        except (OocbeError, KeyError, ValueError, TypeError) as error:
            self._damaged(f"message {place + 1}: {error}")
            return None
        self.found += 1
        return message

    def _stored(self, place: int, record: dict[str, Any]) -> StoredTable | StoredCompleteTable:
        path = self._path(place)
        if path.is_symlink():
            raise CorruptDataError(f"{path}: a link, which nothing in a run directory is")
        stored = open_table(path)
        is_sorted = isinstance(stored, StoredCompleteTable) or stored.is_sorted
        if stored.manifest_checksum != record["table"] or not is_sorted:
            raise CorruptDataError(f"{path}: not the table that {self._record_path(place).name} describes")
        stored.verify()
        return stored

    def _embedded(self, record: dict[str, Any], layout: Layout, dtype: np.dtype[np.generic]) -> Table:
        keys = np.frombuffer(base64.b64decode(record["keys"], validate=True), dtype="<u8")
        values = np.frombuffer(base64.b64decode(record["values"], validate=True), dtype=dtype.newbyteorder("<"))
        return Table(
            layout,
            keys.reshape(layout.words, -1).astype(np.uint64) if len(values) else np.empty((layout.words, 0), np.uint64),
            values.astype(dtype),
            self._semiring,
            is_sorted=True,
        )

    def _path(self, place: int) -> Path:
        return self.folder / f"message-{place + 1:05d}"

    def _record_path(self, place: int) -> Path:
        return self.folder / f"message-{place + 1:05d}.json"


def _text_of(array: np.ndarray[Any, Any]) -> str:
    """Little-endian bytes of an array in base 64."""
    return base64.b64encode(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()).decode()
