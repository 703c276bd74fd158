"""A table in parts: tables of rows, and a manifest that lists them in the order of their rows.

Several processes each write some of the rows, as an ordinary table in a folder of the future table (named by
:class:`PartsWriter`); in a sorted table, each part has one range of keys. The coordinating process then lists the parts
with the checksums of their manifests. That list is the commit; nothing is rewritten. Unlisted parts are leftovers of
processes that were killed, or whose work another process finished first.

For reading it is an ordinary table (:class:`oocbe.tables.stored.StoredTable`): its chunks are those of its parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

from oocbe.errors import CorruptDataError, ModelError
from oocbe.model.semiring import Semiring
from oocbe.tables import disk
from oocbe.tables.chunk_files import ChunkIndex, arrays_of
from oocbe.tables.group import attributes_of, check_files, check_table_attributes, layout_of, made_of, table_attributes
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import MANIFEST_NAME, PART_NAME, PARTS, ROWS, FileRecord, Manifest, PartRecord
from oocbe.tables.object_path import Place
from oocbe.tables.writer import ArrayFiles, FolderSettings, FolderWriter, StoredTableWriter

_SHARED = ("scope", "sizes", "words", "semiring", "dtype", "limbs")
"""Attributes common to a table and its parts."""


class PartWriter(StoredTableWriter):
    """Writes one part. A removed folder is not recreated (OSError): its parts are not needed.

    writer : the worker, recorded in the part's attributes (:mod:`oocbe.execution.cluster.segment_files`); None: none.
    """

    writer: str | None = None
    _makes_parents = False

    def _attributes(self) -> dict[str, Any]:
        attributes = super()._attributes()
        return attributes if self.writer is None else {**attributes, "writer": self.writer}


class PartsWriter(FolderWriter):
    """Collects the parts of one table, written by other processes, and publishes them at the end of its ``with`` block.

    Each part is written as a table at a path of :meth:`part_path` (or one with that prefix), and then listed by
    :meth:`add`, in any order. Unlisted parts are removed. Otherwise as for its base.

    Parts are sorted, and ordered by keys; or ordered by explicit positions, in which case the table counts as sorted if
    its rows are.

    layout, dtype, semiring, limbs : of the table and all parts. settings : as for its base.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout,
        dtype: DTypeLike,
        semiring: Semiring,
        limbs: int = 0,
        **settings: Unpack[FolderSettings],
    ) -> None:
        super().__init__(path, PARTS, **settings)
        self.layout, self.semiring = layout, semiring
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._limbs = limbs
        self._numbers = self._taken = 0
        self._longest = 1
        self._extents: list[list[int] | None] = []
        self._positions: dict[str, int] = {}
        self._are_sorted = True

    @property
    def folder(self) -> Path:
        """Folder of the parts until the table is published."""
        return self._folder

    def part_path(self) -> Path:
        """A path for one more part, unique among all processes."""
        self._numbers += 1
        return self._folder / f"part-{self._numbers:06d}-{os.urandom(4).hex()}"

    def add(self, path: Path, position: int | None = None) -> PartRecord:
        """List a complete part, after opening and checking it.

        position : among the parts; given for all of them, or for none, in which case all must be sorted.

        Raises CorruptDataError: not a table of this layout, dtype and semiring, or its rows are not sorted; DiskError:
        its bytes exceed the disk budget.
        """
        manifest = Manifest.read(path)
        attributes = _attributes_of_part(path, manifest, self._attributes(0, 1, None, position is None))
        record = _record_of(path.name, manifest, attributes)
        size = disk.size_of(path)
        self._budget.take(size, path)
        self._taken += size
        self._manifest.parts.append(record)
        if position is not None:
            self._positions[record.name] = position
        self._are_sorted = self._are_sorted and attributes["sorted"]
        self._extents.append(attributes.get("extent"))
        self._longest = max(self._longest, attributes["chunk_rows"])
        self.rows += record.rows
        return record

    def _finish(self) -> None:
        parts = self._manifest.parts
        parts.sort(key=lambda part: self._positions.get(part.name, part.first_key))
        is_sorted = self._are_sorted and all(one.last_key < other.first_key for one, other in pairwise(parts))
        if not self._positions:
            for one, other in pairwise(parts):
                if one.last_key >= other.first_key:
                    raise ModelError(f"{self.path}: {one.name} and {other.name} have keys of one range")
        listed = {part.name for part in parts}
        for entry in self._folder.iterdir():
            if entry.is_dir() and entry.name not in listed:
                disk.remove(entry)
        extents = [extent for extent in self._extents if extent is not None]
        extent = [min(low for low, _ in extents), max(high for _, high in extents)] if extents else None
        attributes = self._attributes(self.rows, self._longest, extent, is_sorted)
        try:
            ArrayFiles(self._folder, self._manifest, self._budget, {}, 1).describe({"oocbe": attributes})
            self._seal([self._folder / "zarr.json"], [])
        except OSError as error:
            raise self._disk_error(error) from None

    def _attributes(self, rows: int, chunk_rows: int, extent: list[int] | None, is_sorted: bool) -> dict[str, Any]:
        of_table = self.layout, self.semiring, self.dtype
        return table_attributes(*of_table, rows, chunk_rows, is_sorted, self._limbs, extent)

    @property
    def _bytes_taken(self) -> int:
        return self._taken + super()._bytes_taken


def composed(folder: Place, manifest: Manifest, attributes: Mapping[str, Any]) -> tuple[Manifest, ChunkIndex]:
    """The files and chunks of all parts of a table as one manifest, and the chunk index.

    Checks every part's metadata and the presence of all its files; contents are checked on reading.

    Raises CorruptDataError: a part is missing or damaged, or does not belong to this table.
    """
    made_of(folder, lambda: check_table_attributes(attributes))
    whole = Manifest(dict(manifest.files), form=PARTS, parts=manifest.parts)
    if set(manifest.files) != {"zarr.json"} or manifest.first_keys or manifest.last_keys:
        raise CorruptDataError(f"{folder}: the manifest lists other files than a table of parts has")
    chunks: list[tuple[str, int, int, str | None]] = []
    before = -1
    for record in manifest.parts:
        path = folder / record.name
        if not PART_NAME.fullmatch(record.name) or path.is_symlink():
            raise CorruptDataError(f"{path}: not a folder of this table; restore or rewrite the table")
        part = Manifest.read(path)
        own = _attributes_of_part(path, part, attributes)
        if _record_of(record.name, part, own) != record or (attributes["sorted"] and record.first_key <= before):
            raise CorruptDataError(f"{path}: not the part that {folder / MANIFEST_NAME} lists; rewrite the table")
        before = record.last_key
        arrays = arrays_of(layout_of(own), np.dtype(own["dtype"]), limbs=own.get("limbs", 0))
        check_files(path, part, arrays, record.rows, own["chunk_rows"])
        whole.files[f"{record.name}/{MANIFEST_NAME}"] = FileRecord.of(part.render())
        whole.files |= {f"{record.name}/{name}": file for name, file in part.files.items()}
        whole.first_keys += part.first_keys
        whole.last_keys += part.last_keys
        chunks.append((record.name, record.rows, own["chunk_rows"], own.get("writer")))
    rows, longest = sum(part.rows for part in manifest.parts), max((n for *_, n, _ in chunks), default=1)
    if attributes["rows"] != rows or attributes["chunk_rows"] != longest:
        raise CorruptDataError(f"{folder}: its attributes are not those of its parts; rewrite the table")
    return whole, ChunkIndex(chunks)


def _attributes_of_part(path: Place, manifest: Manifest, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a part, checked against those of the table; CorruptDataError if they differ."""
    attributes = attributes_of(path, manifest)
    made_of(path, lambda: check_table_attributes(attributes))
    own, shared = ([found.get(name) for name in _SHARED] for found in (attributes, whole))
    is_out_of_order = whole["sorted"] and not attributes["sorted"]
    if manifest.form != ROWS or own != shared or is_out_of_order or not attributes["rows"]:
        raise CorruptDataError(f"{path}: not a part of {path.parent}")
    return attributes


def _record_of(name: str, manifest: Manifest, attributes: Mapping[str, Any]) -> PartRecord:
    """The table manifest's entry for a part with rows."""
    if not manifest.first_keys:
        raise CorruptDataError(f"{name}: a part without keys")
    checksum = FileRecord.of(manifest.render()).checksum
    return PartRecord(name, attributes["rows"], manifest.first_keys[0], manifest.last_keys[-1], checksum)
