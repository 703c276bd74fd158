"""Files in object stores for pyarrow: a file system with requests through obstore.

Nothing is read ahead or cached: pyarrow reads what it needs, by the size of its own buffer, each time by one request.
The memory for a file is therefore the same as for one on disk.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

from oocbe.errors import DiskError, UsageError
from oocbe.model.settings.tuning import tuning
from oocbe.tables.object_path import ObjectPath


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
