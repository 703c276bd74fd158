"""File operations of stored tables and run directories: the only module that writes, synchronises and renames.

Tests inject faults here: a hook runs before each operation and may raise the error of a failing or full disk, or
shorten a write. To *publish* a file (:func:`publish_file`) is to write it under a temporary name, force it to disk,
rename it and force its folder to disk: the name always refers to the whole file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from oocbe.errors import UsageError
from oocbe.model.results.failure import FULL_DISK as FULL_DISK
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.faults import before, fault_point
from oocbe.runtime.faults import hooked as hooked
from oocbe.runtime.plain_files import open_plain
from oocbe.runtime.temporary_names import keep_mode, temporary_name
from oocbe.runtime.temporary_names import remove as remove
from oocbe.runtime.tracing.recorder import READER, WRITER, span
from oocbe.runtime.urls import refuse_url
from oocbe.tables.object_path import ObjectPath, Place

ADVICE_BYTES = 1 << 17
"""Bytes per advice call: Linux reads ahead at most the disk's setting at a time, 128 KiB by default."""

RENAME_EXCHANGE, AT_FDCWD = 2, -100
"""Constants of Linux: exchange two names; resolve relative names from the working folder."""

SYNC_FILE_RANGE_WRITE = 2
"""Flag of Linux: start write-back without waiting for its end."""


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a whole file, over any previous one; not forced to disk. Short writes are continued.

    Write-back of a large file starts at once. Forcing many files to disk at the end then takes tens of microseconds
    each, and the disk does not wait for the journal of each file, as when forcing one at a time.
    """
    before("create", path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with span(WRITER, "write file", bytes=len(data)), _opened(path, flags) as handle:
        write_at(handle, memoryview(data), 0, path)
        # If the disk fails meanwhile, Linux reports this when the file is forced to disk later, unless it has dropped
        # the file from its cache; then only the checksum reveals it on reading.
        if len(data) >= tuning().small_bytes:
            _sync_file_range()(handle, 0, 0, SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """The system call: file, offset, bytes (0: all behind) and flags."""
    found = ctypes.CDLL(None).sync_file_range
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


def read_file(path: Place, size: int) -> bytes:
    """The first ``size`` bytes of a file, fewer if it is shorter; the last part of the path must not be a link.

    OSError if it is unreadable, or not a file (:mod:`oocbe.runtime.plain_files`).
    """
    if isinstance(path, ObjectPath):
        with span(READER, "read object") as timed:
            data = path.read(size)
            timed.note(bytes=len(data))
            return data
    before("read", path)
    with span(READER, "read file") as timed, _opened(path) as handle, open(handle, "rb", closefd=False) as file:
        data = file.read(min(size, os.fstat(handle).st_size))  # read allocates a buffer of this size
        timed.note(bytes=len(data))
        return data


def read_file_into(path: Place, target: memoryview, offset: int = 0) -> int:
    """Read a file from an offset into memory, up to its size; returns the bytes read; OSError: none, or no file."""
    if isinstance(path, ObjectPath):
        data = memoryview(read_file(path, offset + len(target)))[offset:]
        target[: len(data)] = data
        return len(data)
    before("read", path)
    with span(READER, "read file") as timed, _opened(path) as handle:
        done = _read_at(handle, target, offset)
        timed.note(bytes=done)
        return done


def open_nameless(folder: Path, name: str) -> int:
    """Open a new nameless file for reading and writing, which disappears whenever and however the process ends.

    Where the file system lacks such files, it briefly has a :func:`temporary_name`; other processes may then remove it.
    """
    before("create", folder)
    with suppress(AttributeError, OSError):  # the flag exists on Linux only, for some file systems
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    path = folder / temporary_name(name)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        path.unlink(missing_ok=True)
    except OSError:
        os.close(handle)
        raise
    return handle


def write_at(handle: int, data: memoryview, offset: int, path: Path) -> None:
    """Write bytes at an offset of an open file; short writes are continued. ``path`` is for the hook."""
    while len(data):
        most = before("write", path)
        written = os.pwrite(handle, data if most is None else data[:most], offset)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        data, offset = data[written:], offset + written


def read_at(handle: int, data: memoryview, offset: int, path: Path) -> int:
    """Read bytes at an offset of an open file; returns their number. ``path`` is for the hook."""
    before("read", path)
    return _read_at(handle, data, offset)


def _read_at(handle: int, data: memoryview, offset: int) -> int:
    done = 0
    while done < len(data):
        count = os.preadv(handle, [data[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def copy_file(path: Path, target: Path, buffer: memoryview) -> None:
    """Copy a file's bytes to a new file, one buffer at a time; not forced to disk."""
    before("read", path)
    before("create", target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with _opened(path) as source, _opened(target, flags) as handle:
        offset = 0
        while count := _read_at(source, buffer, offset):
            write_at(handle, buffer[:count], offset, target)
            offset += count


def will_need(path: Place) -> None:
    """Have the system read a file into its cache in the background."""
    if isinstance(path, ObjectPath):
        return
    with suppress(OSError), _opened(path) as handle:  # a later read of the file reports the error
        for start in range(0, os.fstat(handle).st_size, ADVICE_BYTES):
            os.posix_fadvise(handle, start, ADVICE_BYTES, os.POSIX_FADV_WILLNEED)


def synchronise(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to disk."""
    before("synchronise", path)
    with _opened(path, os.O_RDONLY) as handle, span(WRITER, "force to disk"):
        os.fsync(handle)


def rename(path: Path, target: Path) -> None:
    """Rename a file or folder on the same disk; not forced to disk (see :func:`synchronise`)."""
    before("rename", target)
    path.rename(target)


def replace_folder(path: Path, target: Path) -> None:
    """Exchange a folder with an existing one, whose permissions it gets: at once where the system can."""
    keep_mode(path, target)
    before("rename", target)
    if (exchange := _renameat2()) is not None:
        names = os.fsencode(path), os.fsencode(target)
        if exchange(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            return
    aside = target.with_name(temporary_name(target.name))
    target.rename(aside)
    try:
        path.rename(target)
    except OSError:
        aside.rename(target)
        raise
    with suppress(FileNotFoundError):  # another process removed it as a killed process's leftover
        aside.rename(path)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """The system call: two folders and names, and flags; None where missing."""
    found = getattr(ctypes.CDLL(None), "renameat2", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder if it is missing, and force its name to disk."""
    if path.is_dir():
        return
    before("folder", path)
    path.mkdir(mode, exist_ok=True)
    synchronise(path.parent)


def make_folder_of_user(path: Path, mode: int = 0o777) -> None:
    """Make a folder named by the user, and its parents, if missing.

    Raises UsageError: a file, or a dangling link, has its name or a parent's; OSError: it cannot be made.
    """
    refuse_url(path, "a work folder, or one for scratch,")
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{path}: is a file (or a link that leads nowhere), or lies in one; name a folder") from None


def publish_file(path: Path, data: bytes, what: str) -> None:
    """Write a file atomically: if the process is killed, its name refers to the whole new file or to the previous one.

    what : prefix of the fault points passed (:mod:`oocbe.runtime.faults`).
    """
    fault_point(f"{what}:begin")
    partial = path.with_name(temporary_name(path.name))
    try:
        write_file(partial, data)
        fault_point(f"{what}:written")
        synchronise(partial)
        fault_point(f"{what}:synchronised")
        rename(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fault_point(f"{what}:renamed")
    synchronise(path.parent)
    fault_point(f"{what}:done")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder, links not followed."""
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(Path(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the disk of a path, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


@contextmanager
def _opened(path: Path, flags: int | None = None) -> Iterator[int]:
    """A file that is open within the block; errors have its name, which system calls on open files omit.

    flags : of the system call; None: a plain file for reading (:mod:`oocbe.runtime.plain_files`), not through a link.
    """
    try:
        if flags is None:
            handle = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
        else:
            handle = os.open(path, flags | os.O_CLOEXEC, 0o666)
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise error if error.filename else OSError(error.errno, error.strerror, str(path)) from None
