"""Tables in object stores: on S3, Google's or Azure's storage, or behind a web server, through obstore.

A table's files are objects below a prefix that no other writer has: ``URL/data-<16 digits>/``, a table's folder as on
disk. One small object, ``URL/table.json``, names the prefix of the table. It is written last and only where there is
none: that is the commit. So readers see all of a table or nothing, one of two writers gets the error that the table
exists, and the files of a killed writer are never read (a rule of the store may remove them).

Files are read when they are needed, no more bytes of each than the manifest says, and each is checked. That all are
exist is not checked when a table is opened, as that would take a request for each.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from oocbe.errors import CorruptDataError, DiskError, UsageError
from oocbe.tables import disk
from oocbe.tables.manifest import MANIFEST_NAME, OF_PARQUET, Manifest
from oocbe.tables.object_path import ObjectPath, Place, place_named
from oocbe.tables.records import read_record, render_record

POINTER_NAME, POINTER_FORMAT, LARGEST_POINTER = "table.json", "oocbe-object-table", 1 << 16
"""The object that points to the table's files: its name, its format, and its maximum size in bytes."""

DATA_NAME = re.compile(r"data-[0-9a-f]{16}")
"""Names of the prefixes with a table's files: none leads out of the table."""

REQUESTS = 8
"""Objects that are written at a time: a store takes tens of milliseconds for each, however short."""


def place_of(path: str | Path | ObjectPath) -> Place:
    """Where the files of a table are: the folder itself, or what the pointer of an object store's table names.

    Raises
    ------
    UsageError : there is nothing at a URL, or an object where a table has a prefix. CorruptDataError : no whole table
        is there, or its pointer is damaged or cannot be read.
    UnsupportedError : obstore is not installed, or has no driver for the URL.
    """
    place = path if isinstance(path, ObjectPath) else place_named(path)
    if isinstance(path, ObjectPath) or isinstance(place, Path):
        return place
    try:
        content = read_record(place / POINTER_NAME, LARGEST_POINTER, POINTER_FORMAT)
    except FileNotFoundError:
        with suppress(OSError):
            place.size()
            raise UsageError(f"{place}: this is an object, expected a stored table; {OF_PARQUET}") from None
        found = None
        with suppress(OSError):  # web servers do not list
            found = next(iter(place.below()), None)
        if found is None:
            raise UsageError(f"{place}: there is no such table") from None
        raise CorruptDataError(f"{place}: no {POINTER_NAME}, so this is not a table, or it is still written") from None
    folder = content.get("folder")
    if content.get("version") != 1 or not isinstance(folder, str) or DATA_NAME.fullmatch(folder) is None:
        raise CorruptDataError(f"{place / POINTER_NAME}: names no table that this program reads")
    return place / folder


class InStores:
    """Common base of tables on disk and in object stores: their place, and upload."""

    if TYPE_CHECKING:
        path: Place
        _manifest: Manifest
        open: Any

    @property
    def folder(self) -> Path:
        """Its folder; UsageError for a table in an object store, which has none."""
        if isinstance(self.path, ObjectPath):
            raise UsageError(f"{self.path} is in an object store; what is asked for takes a folder")
        return self.path

    def upload(self, url: str) -> Self:
        """Write the table to an object store, as it is, and open it there.

        Raises
        ------
        UsageError : there is a table of that name. DiskError : the store does not take it. UnsupportedError : obstore
            is not installed, or has no driver for the URL. CorruptDataError : a file of the table cannot be read.
        """
        upload(self.path, [*self._manifest.files, MANIFEST_NAME], url)
        uploaded: Self = self.open(url)
        return uploaded


def upload(folder: Place, names: Iterable[str], url: str) -> None:
    """Write a table's files to an object store, as a table there.

    Parameters
    ----------
    names : of all files, relative to the folder, the manifest's as well.

    Raises
    ------
    UsageError : there is a table already. DiskError : the store does not take it. CorruptDataError : a file cannot be
        read. UnsupportedError : obstore is not installed, or has no driver for the URL.
    """
    place = ObjectPath.of(url)
    data = place / f"data-{secrets.token_hex(8)}"
    _refuse_existing(place)
    begun: list[ObjectPath] = []

    def copy(name: str) -> None:
        source = folder / name
        try:
            content = disk.read_file(source, -1 if isinstance(source, Path) else 1 << 62)
        except OSError as error:
            raise CorruptDataError(f"{source}: cannot be read ({error.strerror})") from None
        begun.append(data / name)
        (data / name).create(content)

    try:
        with ThreadPoolExecutor(REQUESTS, thread_name_prefix="oocbe-objects") as pool:
            for _ in pool.map(copy, names):
                pass
        content = {"format": POINTER_FORMAT, "version": 1, "folder": data.name}
        (place / POINTER_NAME).create(render_record(content))
    except BaseException as error:
        with ThreadPoolExecutor(REQUESTS) as pool, suppress(OSError):
            list(pool.map(ObjectPath.remove, begun))
        if isinstance(error, FileExistsError):
            raise UsageError(f"{place} exists already, written meanwhile; choose another name") from None
        if isinstance(error, OSError):
            raise DiskError(f"{place}: cannot be written: {error.strerror} ({error.filename})") from None
        raise


def _refuse_existing(place: ObjectPath) -> None:
    try:
        (place / POINTER_NAME).read(1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiskError(f"{place}: cannot be listed: {error.strerror}") from None
    raise UsageError(f"{place} exists already; choose another name")
