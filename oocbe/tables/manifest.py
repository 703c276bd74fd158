"""The manifest of a stored table: every file with its size and checksum, and the first and last key of each chunk.

Zarr reads a missing chunk as its fill value and cannot tell two swapped chunks apart; the manifest can. It is written
last, so a folder without one is not a table. It is a *record*: a small JSON file with its own checksum, accepted only
byte for byte as :meth:`Manifest.render` gives it. Every changed bit is therefore detected, in the content as in its
formatting.
"""

from __future__ import annotations

import errno
import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from oocbe.errors import CorruptDataError, UnsupportedError
from oocbe.runtime.checksums import crc32
from oocbe.runtime.plain_files import plain_status
from oocbe.runtime.tracing.recorder import READER, span
from oocbe.tables.disk import read_file, read_file_into
from oocbe.tables.object_path import ObjectPath, Place

PART_NAME = re.compile(r"part-[0-9a-z-]+")
"""Names of the folders of parts: no path leads out of the table by one."""

MANIFEST_NAME = "manifest.json"
"""Name of the file that describes a stored table."""

OF_PARQUET = "of Parquet, StoredTable.from_parquet or `oocbe convert` makes one"
"""Advice in the error for a file in the place of a stored table."""

FORMAT_NAME = "oocbe-table"
"""Format name in a manifest."""

FORMAT_VERSION = 6
"""Version of the format, the only one that is read; versions 1 to 5 were one number a form.

It rises when the meaning of an existing form changes. A further form keeps it: older programs refuse the form by name.
"""

ROWS, COMPLETE, COLUMNS, PARTS = "rows", "complete", "columns", "parts"
"""Forms of a table: packed keys and values; values of all cells (:mod:`oocbe.tables.stored`); one array a
variable, for other programs (:mod:`oocbe.tables.chunk_files`); tables of rows, end to end (:mod:`oocbe.tables.parts`).
"""

LARGEST_RECORD = 1 << 28
"""Bytes above which a record is not even read: the manifest of a million chunks takes a tenth of this."""


class FileRecord(NamedTuple):
    """Expected content of a file: its number of bytes and their CRC-32."""

    size: int
    checksum: int

    @classmethod
    def of(cls, data: bytes | memoryview) -> FileRecord:
        """Record of some bytes."""
        return cls(len(data), crc32(data))


class PartRecord(NamedTuple):
    """A part of a table: its folder, its rows, and the CRC-32 of its manifest, and so of everything that it is.

    ``first_key``, ``last_key``: of its first and last row, each as one number (word 0 least significant).
    """

    name: str
    rows: int
    first_key: int
    last_key: int
    checksum: int


@dataclass
class Manifest:
    """Files and chunk index of a stored table.

    files : name relative to the table's folder (with ``/``) to record.
    first_keys, last_keys : the key of each chunk's first and last row, as one number (word 0 least significant).
    form : :data:`ROWS`, :data:`COMPLETE`, :data:`COLUMNS` or :data:`PARTS`.
    parts : of a table of parts, in the order of their rows, whose chunks are listed in manifests of their own.
    """

    files: dict[str, FileRecord] = field(default_factory=dict)
    first_keys: list[int] = field(default_factory=list)
    last_keys: list[int] = field(default_factory=list)
    form: str = ROWS
    parts: list[PartRecord] = field(default_factory=list)
    _inside: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)  # folders looked at

    @property
    def files_bytes(self) -> int:
        """Bytes of all files that it names."""
        return sum(record.size for record in self.files.values())

    def render(self) -> bytes:
        """The one spelling of this manifest."""
        content: dict[str, object] = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "form": self.form,
            "files": {name: list(record) for name, record in self.files.items()},
            "first_keys": [f"{key:x}" for key in self.first_keys],
            "last_keys": [f"{key:x}" for key in self.last_keys],
        }
        if self.form == PARTS:
            content["parts"] = [[p.name, p.rows, f"{p.first_key:x}", f"{p.last_key:x}", p.checksum] for p in self.parts]
        return render_record(content)

    @classmethod
    def read(cls, folder: Place) -> Manifest:
        """Read and check the manifest of a table.

        Raises CorruptDataError: there is none, or it is damaged; UnsupportedError: another version or an unknown form.
        """
        path = folder / MANIFEST_NAME
        try:
            content = read_record(path, FORMAT_NAME)
        except FileNotFoundError:
            if isinstance(folder, Path) and not folder.exists():
                raise CorruptDataError(f"{folder}: there is no such folder; a stored table is one") from None
            if isinstance(folder, Path) and folder.is_file():
                raise CorruptDataError(
                    f"{folder}: this is a file, expected the folder of a stored table; {OF_PARQUET}"
                ) from None
            raise CorruptDataError(
                f"{folder}: no {MANIFEST_NAME}, so this is not a table, or its writing was cut short; write it again"
            ) from None
        except CorruptDataError as error:
            raise CorruptDataError(f"{error}; restore or rewrite the table") from None
        if content.get("version") != FORMAT_VERSION:
            if type(content.get("version")) is not int:
                raise CorruptDataError(f"{path}: not a manifest of a table (no version); restore or rewrite the table")
            raise UnsupportedError(
                f"{path}: format version {content['version']}; this program reads version {FORMAT_VERSION} only. Write "
                "the table again, or convert it to Parquet with the program that wrote it (oocbe convert)"
            )
        try:
            if type(form := content["form"]) is not str:
                raise ValueError(f"the form {form!r}")
            if form not in (ROWS, COMPLETE, COLUMNS, PARTS):
                raise UnsupportedError(
                    f"{path}: this program does not read the form {form!r} of tables; use the program that wrote it"
                )
            return cls(
                {str(name): FileRecord(int(size), int(crc)) for name, (size, crc) in content["files"].items()},
                [int(key, 16) for key in content["first_keys"]],
                [int(key, 16) for key in content["last_keys"]],
                form,
                [
                    PartRecord(str(name), int(rows), int(first, 16), int(last, 16), int(checksum))
                    for name, rows, first, last, checksum in content.get("parts", [])
                ],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(f"{path}: not a manifest of a table ({error})") from None

    def checked(self, folder: Place, name: str) -> Place:
        """Path of a listed file, once it is there with the right size, itself no link and inside the table.

        An object in a store is not looked for: that takes as long as to read it.

        Whether a link leads a folder out of the table is looked at once for each: thousands of files lie in the same.

        Raises CorruptDataError: missing, of another size, not a plain file, or in a folder that a link leads out of the
        table.
        """
        if isinstance(folder, ObjectPath):
            return folder / name
        path = folder / name
        try:
            status = plain_status(path)
        except OSError as error:
            why = error.strerror if error.errno == errno.EINVAL else "is missing"
            raise CorruptDataError(f"{describe(name)} {why}: {path}") from None
        if not stat.S_ISREG(status.st_mode) or not self._is_inside(folder, path.parent):
            raise CorruptDataError(f"{describe(name)} is not a plain file inside the table: {path}")
        size = self.files[name].size
        if status.st_size != size:
            raise CorruptDataError(f"{describe(name)} has {status.st_size:,} bytes instead of {size:,}: {path}")
        return path

    def _is_inside(self, folder: Path, parent: Path) -> bool:
        """Whether a folder is inside the table's even after links."""
        if parent not in self._inside and parent.resolve().is_relative_to(folder.resolve()):
            self._inside.add(parent)
        return parent in self._inside

    def read_file(self, folder: Place, name: str) -> bytes:
        """Content of a listed file, checked; reading takes no more memory than its record's size.

        Raises CorruptDataError: missing, unreadable, damaged, or not a plain file inside the folder.
        """
        path = self.checked(folder, name)
        with _unreadable(name, path):
            data = read_file(path, self.files[name].size + 1)
        self._verify(folder, name, data)
        return data

    def read_file_into(self, folder: Place, name: str, target: memoryview) -> None:
        """Content of a listed file, checked, into the caller's memory (bytes,), which it fills.

        Raises CorruptDataError: as for :meth:`read_file`, and where the file has another size than the memory.
        """
        path = self.checked(folder, name)
        if self.files[name].size != len(target):
            raise CorruptDataError(f"{describe(name)} should have {len(target):,} bytes: {path}")
        with _unreadable(name, path):
            size = read_file_into(path, target)
        self._verify(folder, name, target[:size])

    def _verify(self, folder: Place, name: str, data: bytes | memoryview) -> None:
        """Compare a file's bytes with its record; :class:`CorruptDataError` where they differ."""
        with span(READER, "check file"):
            is_same = FileRecord.of(data) == self.files[name]
        if not is_same:
            raise CorruptDataError(
                f"{describe(name)} is damaged (its checksum does not hold): {folder / name}; "
                "restore or rewrite the table"
            )


@contextmanager
def _unreadable(name: str, path: Place) -> Iterator[None]:
    """Name the file that the system does not read."""
    try:
        yield
    except FileNotFoundError:
        raise CorruptDataError(f"{describe(name)} is missing: {path}") from None
    except OSError as error:
        raise CorruptDataError(f"{describe(name)} cannot be read ({error.strerror}): {path}") from None


def describe(name: str) -> str:
    """A listed file in words: ``chunk 3 of key_0``."""
    array, _, chunk = name.partition("/c/")
    return f"chunk {chunk} of {array}" if chunk else f"metadata file {name}"


def render_record(content: dict[str, Any]) -> bytes:
    """The canonical bytes of a record."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'{{"checksum":{crc32(text.encode())},"content":{text}}}\n'.encode()


def read_record(path: Place, format_name: str, largest: int = LARGEST_RECORD) -> dict[str, Any]:
    """Content of a record with the given ``format``.

    largest : maximum size in bytes; larger files are not read.
    Raises FileNotFoundError: no such file; CorruptDataError: unreadable or damaged; the message names the file.
    """
    try:
        data = read_file(path, largest + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise CorruptDataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > largest:
        raise CorruptDataError(f"{path}: larger than any such file, over {largest:,} bytes")
    try:
        content = json.loads(data)["content"]
        damaged = render_record(content) != data or content["format"] != format_name
    except (ValueError, KeyError, TypeError, RecursionError):
        damaged = True
    if damaged:
        raise CorruptDataError(f"{path}: damaged, its checksum does not hold")
    return dict(content)
