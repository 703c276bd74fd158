"""Every file operation of stored tables and run directories: the one place that writes, synchronises and renames.

Being one place, it can be broken on purpose: a hook sees each operation before it happens and may raise what a failing
or full disk raises, or shorten a write. A file is *published* (:func:`publish_file`) by writing it under a temporary
name, forcing it to disk, renaming it and forcing its folder to disk: whoever finds the name finds the whole file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from oocbe.errors import UsageError
from oocbe.runtime.file_hook import before
from oocbe.runtime.file_hook import hooked as hooked
from oocbe.runtime.plain_files import open_plain
from oocbe.runtime.temporary_names import keep_mode, temporary_name
from oocbe.runtime.tracing.recorder import READER, WRITER, span
from oocbe.runtime.urls import refuse_url
from oocbe.tables.faults import fault_point
from oocbe.tables.object_path import ObjectPath, Place

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk, a quota or a file size limit that is used up."""

ADVICE_BYTES = 1 << 17
"""Linux reads no more ahead at a time than the disk's setting, which is 128 KiB unless somebody changed it."""

LARGE_BYTES = 1 << 17
"""Files of so many bytes begin their way to the disk when they are written."""

RENAME_EXCHANGE, AT_FDCWD = 2, -100
"""Let two names change places, and take relative ones from the working folder (Linux)."""

SYNC_FILE_RANGE_WRITE = 2
"""Begin to write, and do not wait for the end (Linux)."""


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file whole, over what is there; not forced to disk. A short write is carried on with.

    Of a large file the system begins at once to bring it to the disk: forcing many of them there at the end takes tens
    of microseconds each then, and a disk is not held up by the journal of each file as by forcing one at a time.
    """
    before("create", path)
    with span(WRITER, "write file", bytes=len(data)):
        _write(path, data)


def _write(path: Path, data: bytes | memoryview) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        rest = memoryview(data)
        while len(rest):
            most = before("write", path)
            written = os.write(handle, rest if most is None else rest[:most])
            if written == 0:
                raise OSError(errno.EIO, "nothing was written", str(path))
            rest = rest[written:]
        if len(data) >= LARGE_BYTES:
            _begin_writing(handle)
    except OSError as error:
        raise _naming(error, path) from None
    finally:
        os.close(handle)


def _begin_writing(handle: int) -> None:
    """Have the system begin to bring what was written to the disk, if it can; nothing is promised.

    Where the disk fails meanwhile, Linux tells whoever forces the file there later, unless it has dropped the file from
    its cache since: then only the checksum shows it, when the file is read.
    """
    if (begin := _sync_file_range()) is not None:
        begin(handle, 0, 0, SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The system's call, of file, offset, bytes (0: all behind) and what to do; None where there is none such."""
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


def read_file(path: Place, size: int) -> bytes:
    """The first ``size`` bytes of a file, fewer where it is shorter; the last part of the path may be no link.

    OSError where it cannot be read, or is no file (:mod:`oocbe.runtime.plain_files`).
    """
    if isinstance(path, ObjectPath):
        with span(READER, "read object") as timed:
            data = path.read(size)
            timed.note(bytes=len(data))
            return data
    before("read", path)
    try:
        with span(READER, "read file") as timed:
            handle = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as file:
                data = file.read(min(size, os.fstat(handle).st_size))  # a buffer of so many bytes is made for it
            timed.note(bytes=len(data))
            return data
    except OSError as error:
        raise _naming(error, path) from None


def read_file_into(path: Place, target: memoryview, offset: int = 0) -> int:
    """A file from an offset on in the caller's memory, and no more than that; returns the bytes that were there.

    OSError where it cannot be read, or is no file.
    """
    if isinstance(path, ObjectPath):
        data = memoryview(read_file(path, offset + len(target)))[offset:]
        target[: len(data)] = data
        return len(data)
    before("read", path)
    try:
        with span(READER, "read file") as timed:
            handle = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                done = _read_at(handle, target, offset)
            finally:
                os.close(handle)
            timed.note(bytes=done)
            return done
    except OSError as error:
        raise _naming(error, path) from None


def open_nameless(folder: Path, name: str) -> int:
    """Open a new file for reading and writing that has no name, so that no way of ending a process leaves it behind.

    Where the file system has no such files, it has a :func:`temporary_name` for a moment; others may remove it then.
    """
    before("create", folder)
    with suppress(AttributeError, OSError):  # only Linux knows the flag, and not on all file systems
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
    """Write bytes at an offset of an open file; a short write is carried on with. ``path`` is for the hook."""
    while len(data):
        most = before("write", path)
        written = os.pwrite(handle, data if most is None else data[:most], offset)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        data, offset = data[written:], offset + written


def read_at(handle: int, data: memoryview, offset: int, path: Path) -> int:
    """Read bytes at an offset of an open file, and tell how many there were; ``path`` is for the hook."""
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
    """Copy a file's bytes to a new file, a buffer at a time; not forced to disk."""
    before("read", path)
    before("create", target)
    source = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            offset = 0
            while count := _read_at(source, buffer, offset):
                write_at(handle, buffer[:count], offset, target)
                offset += count
        finally:
            os.close(handle)
    except OSError as error:
        raise _naming(error, target) from None
    finally:
        os.close(source)


def will_need(path: Place) -> None:
    """Have the system read a file into its cache, if it can, while this goes on."""
    if isinstance(path, ObjectPath) or not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):  # whoever reads the file is told what is wrong with it
        handle = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            for start in range(0, os.fstat(handle).st_size, ADVICE_BYTES):
                os.posix_fadvise(handle, start, ADVICE_BYTES, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(handle)


def synchronise(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to disk."""
    before("synchronise", path)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with span(WRITER, "force to disk"):
            os.fsync(handle)
    except OSError as error:
        raise _naming(error, path) from None
    finally:
        os.close(handle)


def rename(path: Path, target: Path) -> None:
    """Give a file or folder another name on the same disk, and force that to disk."""
    before("rename", target)
    path.rename(target)


def replace_folder(path: Path, target: Path) -> None:
    """Let a folder and another one, with its permissions, change places.

    Where the system lets names change places there is a folder of the target's name all the time.
    """
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
    with suppress(FileNotFoundError):  # somebody took it for what a killed process has left, and removed it
        aside.rename(path)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """The system's call, of two folders and names and what to do; None where there is none such."""
    found = getattr(ctypes.CDLL(None), "renameat2", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder where there is none, and force its name to disk."""
    if path.is_dir():
        return
    before("folder", path)
    path.mkdir(mode, exist_ok=True)
    synchronise(path.parent)


def make_folder_of_user(path: Path, mode: int = 0o777) -> None:
    """Make a folder that the user has named, with those above it, where it is missing.

    Raises
    ------
    UsageError : a file, or a link that leads nowhere, has that name or that of a folder above.
    OSError : it cannot be made.
    """
    refuse_url(path, "a work folder, or one for scratch,")
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{path}: is a file (or a link that leads nowhere), or lies in one; name a folder") from None


def publish_file(path: Path, data: bytes, what: str) -> None:
    """Write a file so that its name holds the whole of it or what was there before, whenever the process is killed.

    what : prefix of the fault points passed (:mod:`oocbe.tables.faults`).
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


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing where there is nothing. Links are not followed.

    Also while an interrupted write, on a thread of its own, is still putting its last file there.
    """
    before("remove", path)
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.01)
    shutil.rmtree(path)


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
    """Bytes that this user may still write on the disk of a path, or of the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def _naming(error: OSError, path: Path) -> OSError:
    """An error with the file's name, which calls on an open file leave out."""
    return error if error.filename else OSError(error.errno, error.strerror, str(path))
