"""Bytes of a file, compressed or not: bounded when reading, all or nothing when writing.

A compressed file of a few kilobytes can decompress to terabytes. It is therefore decompressed block by block, and given
up as soon as the sum passes a limit (``OOCBE_MAX_INPUT_BYTES``, or a share of the memory limit); what the decompressor
takes itself is capped as well.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from oocbe.errors import FormatError, ResourceError, UsageError
from oocbe.model.results.failure import FULL_DISK
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_values import parse_count
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.faults import before
from oocbe.runtime.memory import REMEDY
from oocbe.runtime.memory import current as current_limit
from oocbe.runtime.plain_files import OPEN_FILES, PipeReader, kind_of, opened
from oocbe.runtime.temporary_names import replace, temporary_beside
from oocbe.runtime.urls import refuse_url

DEFAULT_MAX_INPUT_BYTES = 4 * 2**30
"""Largest decompressed input where ``OOCBE_MAX_INPUT_BYTES`` names no other."""

INPUT_SHARE = 0.5
"""Share of the memory limit that an input's bytes may take: what is read of them stays when they are gone."""

BLOCK_BYTES = 2**20
"""Bytes that are read or decompressed at a time."""

COMPRESSED_BYTES = 2**16
"""Compressed bytes that are decoded at a time: ``xz`` takes some 20 ms for them, and an interruption waits so long."""

XZ_MEMORY_BYTES = range(80 * 2**20, 256 * 2**20)
"""Least and largest limit on what decompression takes: ``xz -9`` needs 65 MiB, and a header may ask for 4 GiB."""

STANDARD_STREAM = "-"
"""In the place of a path: standard input, or output."""

COMPRESSIONS = (".gz", ".xz")
"""Suffixes of compressed files."""

_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00"}
"""First bytes of a compressed file, by its suffix."""


def without_compression(path: str | Path) -> Path:
    """The path less a ``.gz`` or ``.xz`` at its end."""
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


def max_input_bytes(argument: int | None = None) -> int:
    """The limit on an input's decompressed size: the argument, ``OOCBE_MAX_INPUT_BYTES`` or 4 GiB."""
    if argument is None:
        setting = os.environ.get("OOCBE_MAX_INPUT_BYTES")
        return DEFAULT_MAX_INPUT_BYTES if setting is None else parse_count("OOCBE_MAX_INPUT_BYTES", setting)
    return parse_count("max_bytes", argument)


def check_there(path: str | Path) -> None:
    """Refuse (UsageError) a name that nothing has, or neither a file nor a pipe, whatever the name promises."""
    if str(path) == STANDARD_STREAM:
        return
    refuse_url(path, "a problem")
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise UsageError(f"{path}: cannot be read: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path}: cannot be read: {folder_description(Path(path))}")
    if (kind := kind_of(mode)) is not None and not stat.S_ISFIFO(mode):
        raise UsageError(f"{path}: cannot be read: is no file but {kind}")


def read_bytes(path: str | Path, limit: int | None = None, may_wait: bool = False) -> bytes:
    """All (decompressed) bytes of a file, or of a pipe of the shell.

    The first bytes decide the compression; a file named ``.gz`` or ``.xz`` must have that compression.

    may_wait : whether a pipe with a name is read as well, which is waited for until somebody writes into it.

    Raises UsageError: the file cannot be opened, or is none; TimeLimitError: the deadline came; FormatError: the
    archive is damaged or truncated, or the content is larger than the limit; ResourceError: the content takes more than
    its share of the memory limit: of the block that this runs in (:class:`oocbe.runtime.memory.MemoryLimit`), outside
    of all of the default one.
    """
    limit = max_input_bytes(limit)
    path = Path(path)
    memory = current_limit()
    most = default_memory_limit() if memory is None else memory.limit
    content = io.BytesIO()
    try:
        with _opened(path, may_wait) as file:
            for block in _decompressed(path, file, int(INPUT_SHARE * most)):
                check_deadline()
                total = content.tell() + len(block)
                if total > limit:
                    raise FormatError(
                        path,
                        None,
                        f"the content is larger than {limit:,} bytes, the limit on an input's decompressed size; "
                        "if it is what it should be, raise OOCBE_MAX_INPUT_BYTES",
                    )
                if total > INPUT_SHARE * most:
                    raise ResourceError(
                        f"{path}: the content is larger than {int(INPUT_SHARE * most):,} bytes, which reading may take "
                        f"of the memory limit of {most:,} bytes; {REMEDY}. {_size(path)}OOCBE_MAX_INPUT_BYTES, the "
                        f"limit on the decompressed size, is {limit:,}"
                    )
                content.write(block)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    return content.getvalue()  # no copy


def _size(path: Path) -> str:
    """A sentence on a file's size, if it has one."""
    return f"The file has {path.stat().st_size:,} bytes. " if path.is_file() else ""


@contextmanager
def _opened(path: Path, may_wait: bool) -> Iterator[BufferedReader]:
    """A file to read, or standard input, which is left open."""
    if str(path) != STANDARD_STREAM:
        with opened(path, may_wait) as file:
            yield file
        return
    if sys.stdin is None:
        raise UsageError(f"{path}: standard input is closed; name a file")
    try:
        handle = sys.stdin.fileno()
    except io.UnsupportedOperation:  # somebody has put other bytes in its place
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    yield BufferedReader(PipeReader(handle, is_owner=False))


def _decompressed(path: Path, file: BufferedReader, room: int) -> Iterator[bytes]:
    beginning = file.peek(max(map(len, _MAGIC.values())))  # a pipe cannot be read again
    kind = next((suffix for suffix, magic in _MAGIC.items() if beginning.startswith(magic)), None)
    promised = path.suffix.lower()
    if promised in COMPRESSIONS and kind != promised:
        raise FormatError(path, None, f"found no {promised} header, expected one for this suffix of the name")
    try:
        if kind == ".xz":
            yield from _unxz(file, room)
            return
        opening: AbstractContextManager[Any] = nullcontext(file) if kind is None else gzip.GzipFile(fileobj=file)
        with opening as plain:
            while block := plain.read(BLOCK_BYTES):
                yield block
    except EOFError:
        raise FormatError(path, None, f"the {kind} data end too early: the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        if "Memory usage limit" in str(error) and room < XZ_MEMORY_BYTES.stop:
            raise ResourceError(f"{path}: decompression needs more memory than the limit allows; {REMEDY}") from None
        raise FormatError(path, None, f"damaged {kind} data ({error})") from error


def _unxz(file: BinaryIO, room: int) -> Iterator[bytes]:
    # lzma.LZMAFile takes no memory limit, so its loop over concatenated streams is written out here.
    pending = file.read(BLOCK_BYTES)
    most = min(max(room, XZ_MEMORY_BYTES.start), XZ_MEMORY_BYTES.stop)
    while pending:
        decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=most)
        while not decompressor.eof:
            if decompressor.needs_input and not pending:
                pending = file.read(BLOCK_BYTES)
                if not pending:
                    raise EOFError
            if block := decompressor.decompress(pending, max_length=BLOCK_BYTES):
                yield block
            pending = b""
        # Streams may be followed by zero bytes up to a multiple of four, or by another stream.
        pending = decompressor.unused_data.lstrip(b"\0")
        while not pending and (block := file.read(BLOCK_BYTES)):
            pending = block.lstrip(b"\0")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file so that its name never shows half of it; ``.gz`` and ``.xz`` names are compressed.

    ``-`` is standard output. A link is followed; a pipe or a device is written into, never replaced. A file that is
    replaced leaves its permissions to the new one. UsageError where the folder cannot be written; ResourceError where
    the disk is full. What killed processes left of the same file is removed (:mod:`oocbe.runtime.temporary_names`).
    """
    size = f"; {len(data):,} bytes were to be written, before any compression"
    with published(path, size) as file, _compressing(path, file, 9) as target:
        for start in range(0, len(data), COMPRESSED_BYTES):
            target.write(data[start : start + COMPRESSED_BYTES])


def write_plain(path: str | Path, text: str) -> None:
    """Write a text, never compressed, and otherwise as :func:`write_bytes`."""
    with published(path) as file:
        file.write(text.encode())


@contextmanager
def text_written(path: str | Path) -> Iterator[TextIO]:
    """A file to be written as a stream of text, published at the end of the block as by :func:`write_bytes`."""
    with published(path) as file, _compressing(path, file, 6) as target:
        text = io.TextIOWrapper(target, "utf-8")
        yield text
        text.detach()


def _compressing(path: str | Path, file: BinaryIO, level: int) -> AbstractContextManager[Any]:
    """A stream into a file, compressed by its suffix (gzip: ``level``), without name or time, so equal bytes."""
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", compresslevel=level, fileobj=file, mtime=0)
    return lzma.LZMAFile(file, "wb") if suffix == ".xz" else nullcontext(file)


@contextmanager
def explaining(path: str | Path, size: str = "") -> Iterator[None]:
    """Within the block, system errors of writing a file become errors of oocbe. ``size``: for that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise ResourceError(f"{path}: the disk is full{size}. Free some space, or write elsewhere") from error
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _in_place_if_refused(path: Path) -> Iterator[None]:
    """Within the block, a folder that takes no other file for one that is there is no error."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EXDEV) or not path.is_file():
            raise


@contextmanager
def published(path: str | Path, size: str = "") -> Iterator[BinaryIO]:
    """A file that replaces a path at the end, or is written if its folder takes no other; ``size``: for errors."""
    refuse_url(path, "a file that is written")
    if str(path) == STANDARD_STREAM:
        sys.stdout.flush()
        text = io.BytesIO()
        yield getattr(sys.stdout, "buffer", text)
        sys.stdout.write(text.getvalue().decode())  # to a notebook's stream, which takes no bytes
        sys.stdout.flush()
        return
    path = Path(path)
    with explaining(path, size), ExitStack() as stack:
        # Not resolved: a pipe behind /dev/stdout has no path, and a file there is open.
        if path.exists() and (not path.is_file() or str(path.absolute()).startswith(OPEN_FILES)):
            yield stack.enter_context(path.open("wb"))
            return
        path = temporary = path.resolve()
        with _in_place_if_refused(path):
            temporary = stack.enter_context(temporary_beside(path))
        before("write", temporary)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            before("synchronise", temporary)
            os.fsync(file.fileno())
        with _in_place_if_refused(path):
            replace(temporary, path)
            temporary = path
        if temporary != path:
            shutil.copyfile(temporary, path)


RECORDS = {
    "tree.json": "a junction tree, no problem; `oocbe query` answers cases with it",
    "run.json": "a run directory, no problem; `oocbe inspect` shows its progress",
    "manifest.json": "a stored table, no problem; join it by oocbe.join_sum and its like, or write it as Parquet by "
    "`oocbe convert`",
}
"""Description of a folder, by the name of a file in it."""

SUFFIXES = {
    ".parquet": "a table, no problem; `oocbe join` and oocbe.aggregate join it with others",
    ".zst": "compressed by Zstandard, which is not read by oocbe; decompress it by `zstd -d`, or use .gz or .xz",
    ".csv": "a table, no problem; `oocbe query --cases` takes one of cases, `oocbe join` any",
    ".json": 'not a problem, as it does not begin with {"problem":, like cost function networks; `oocbe query '
    "--cases` takes cases, and `oocbe verify FILE SOLUTION` what a solve has printed",
    ".pre": "a pedigree, which is not read by oocbe; give it as .wcsp or .uai",
    ".bep": "a selection problem of satellites, which is not read by oocbe; give it as .wcsp or .cfn",
    ".cp": "the input of toulbar2's cp2wcsp, which is not read by oocbe; give the .wcsp that cp2wcsp makes of it",
    ".evid": "evidence, no problem; name it by --evidence",
    ".sol": "a solution, no problem; `oocbe verify FILE SOLUTION` judges it",
}
"""Description of a file that is no problem, by its suffix; unsupported formats of toulbar2 are among them."""


def folder_description(path: Path) -> str:
    """Description of a folder that is no problem, and the command that reads it."""
    for record, description in RECORDS.items():
        if (path / record).exists():
            return f"this is {description}"
    return "this is a folder, expected a file"
