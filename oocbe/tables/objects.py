"""Tables in object stores: on S3, Google's or Azure's storage, or behind a web server, through obstore.

A table's files are objects below a prefix of its own: ``URL/data-<16 digits>/``, with the structure of a table's folder
on disk. One small object, ``URL/table.json``, names the prefix. It is written last, and only if it does not exist: that
is the commit. Readers therefore see a whole table or none, one of two concurrent writers gets the error that the table
exists, and the files of a killed writer are never read (a rule of the store may remove them).

Files are read on demand, limited to the sizes in the manifest, and each is checked. Opening a table does not check that
all files exist, as that would take one request per file.

For pyarrow they are a file system without read-ahead or cache: pyarrow reads what it needs, by the size of its own
buffer, each time by one request. The memory for a file is therefore the same as for one on disk.
"""

from __future__ import annotations

import io
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from oocbe.errors import CorruptDataError, DiskError, UsageError
from oocbe.model.settings.tuning import tuning
from oocbe.tables import disk
from oocbe.tables.manifest import MANIFEST_NAME, OF_PARQUET, Manifest, read_record, render_record
from oocbe.tables.object_path import ObjectPath, Place, place_named

POINTER_NAME, POINTER_FORMAT, LARGEST_POINTER = "table.json", "oocbe-object-table", 1 << 16
"""The object that refers to the table's files: its name, its format, and its maximum size in bytes."""

DATA_NAME = re.compile(r"data-[0-9a-f]{16}")
"""Pattern of the prefixes of a table's files; excludes names that lead out of the table."""


def place_of(path: str | Path | ObjectPath) -> Place:
    """Location of a table's files: the folder itself, or the prefix named by an object store's ``table.json``.

    Raises UsageError: nothing exists at a URL, or an object instead of a prefix; CorruptDataError: an incomplete table,
    or a damaged or unreadable ``table.json``; UnsupportedError: obstore is not installed, or has no driver for the URL.
    """
    place = path if isinstance(path, ObjectPath) else place_named(path)
    if isinstance(path, ObjectPath) or isinstance(place, Path):
        return place
    try:
        content = read_record(place / POINTER_NAME, POINTER_FORMAT, LARGEST_POINTER)
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
    """Common base of tables on disk and in object stores: location and upload."""

    if TYPE_CHECKING:
        path: Place
        _manifest: Manifest
        open: Any

    @property
    def folder(self) -> Path:
        """The table's folder; UsageError for a table in an object store."""
        if isinstance(self.path, ObjectPath):
            raise UsageError(f"{self.path} is in an object store; this operation needs a folder")
        return self.path

    def upload(self, url: str) -> Self:
        """Write the table to an object store, unchanged, and open it there.

        Raises
        ------
        UsageError : a table of that name exists. DiskError : the store refuses. UnsupportedError : obstore is not
            installed, or has no driver for the URL. CorruptDataError : a file of the table is unreadable.
        """
        place = ObjectPath.of(url)
        data = place / f"data-{os.urandom(8).hex()}"
        _refuse_existing(place)
        begun: list[ObjectPath] = []

        def copy(name: str) -> None:
            source = self.path / name
            try:
                content = disk.read_file(source, -1 if isinstance(source, Path) else 1 << 62)
            except OSError as error:
                raise CorruptDataError(f"{source}: cannot be read ({error.strerror})") from None
            begun.append(data / name)
            (data / name).create(content)

        try:
            with ThreadPoolExecutor(tuning().in_flight, thread_name_prefix="oocbe-objects") as pool:
                for _ in pool.map(copy, [*self._manifest.files, MANIFEST_NAME]):
                    pass
            content = {"format": POINTER_FORMAT, "version": 1, "folder": data.name}
            (place / POINTER_NAME).create(render_record(content))
        except BaseException as error:
            with ThreadPoolExecutor(tuning().in_flight) as pool, suppress(OSError):
                list(pool.map(ObjectPath.remove, begun))
            if isinstance(error, FileExistsError):
                raise UsageError(f"{place} exists already, written meanwhile; choose another name") from None
            if isinstance(error, OSError):
                raise DiskError(f"{place}: cannot be written: {error.strerror} ({error.filename})") from None
            raise
        uploaded: Self = self.open(url)
        return uploaded


def _refuse_existing(place: ObjectPath) -> None:
    try:
        (place / POINTER_NAME).read(1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiskError(f"{place}: cannot be listed: {error.strerror}") from None
    raise UsageError(f"{place} exists already; choose another name")


class ObjectReader(io.RawIOBase):
    """An object as a seekable file for reading; FileNotFoundError: none; OSError, with the reason: refused."""

    def __init__(self, place: ObjectPath) -> None:
        super().__init__()
        self._place, self._at, self._size = place, 0, place.size()

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def size(self) -> int:
        """Bytes of the object; called by pyarrow."""
        return self._size

    def tell(self) -> int:
        """Position of the next byte to read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next byte to read."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The next bytes; fewer at the end."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = self._place.read_range(self._at, stop) if stop > self._at else b""
        self._at += len(data)
        return data


@cache
def filesystem_of(root: str) -> Any:
    """A read-only pyarrow.fs.FileSystem of a bucket, with keys as paths."""
    from pyarrow import fs

    class Handler(fs.FileSystemHandler):  # type: ignore[misc]
        """File system interface of pyarrow."""

        def get_type_name(self) -> str:
            return "obstore"

        def normalize_path(self, path: str) -> str:
            return path.strip("/")

        def get_file_info(self, paths: list[str]) -> list[Any]:
            return [self._info(path.strip("/")) for path in paths]

        def _info(self, key: str) -> Any:
            place = ObjectPath(root, key)
            try:
                return fs.FileInfo(key, fs.FileType.File, size=place.size())
            except FileNotFoundError:
                is_there = next(iter(place.below()), None) is not None
                return fs.FileInfo(key, fs.FileType.Directory if is_there else fs.FileType.NotFound)

        def get_file_info_selector(self, selector: Any) -> list[Any]:
            found = ObjectPath(root, selector.base_dir.strip("/")).below()
            return [fs.FileInfo(place.key, fs.FileType.File, size=size) for place, size in found]

        def open_input_file(self, path: str) -> Any:
            import pyarrow

            return pyarrow.PythonFile(ObjectReader(ObjectPath(root, path.strip("/"))), mode="r")

        open_input_stream = open_input_file

        def _refuse(self, *_: object) -> None:
            raise NotImplementedError("this file system only reads")

        create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
        move = copy_file = open_output_stream = open_append_stream = _refuse

    Handler.__abstractmethods__ = frozenset()
    return fs.PyFileSystem(Handler())


def refuse_existing(place: ObjectPath) -> None:
    """Refuse (UsageError) an existing object, or a prefix with objects; DiskError if the store cannot be queried."""
    try:
        if next(iter(place.below()), None) is None:
            place.size()
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiskError(f"{place}: cannot be listed: {error.strerror}") from None
    raise UsageError(f"{place} exists already; remove it, choose another name, or overwrite it (overwrite)")


def upload_file(file: Path, place: ObjectPath) -> None:
    """Write a file as an object, replacing an existing one; DiskError if the store refuses."""
    try:
        place.upload(file, tuning().transfer_bytes, tuning().under_way)
    except OSError as error:
        raise DiskError(f"{place}: cannot be written: {error.strerror}") from None
