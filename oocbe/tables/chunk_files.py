"""The files of a stored table's chunks: read with every byte checked, decoded straight to where the rows are wanted.

Reading goes around Zarr, whose own way takes several copies: a file is read whole, compared with the manifest, checked
to claim no more than a chunk may have, and decoded into the caller's array. Threads do so for several files at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.runtime.tracing.recorder import READER, span
from oocbe.tables.manifest import Manifest, describe
from oocbe.tables.object_path import Place

KEY_NAMES = "key_{}"
"""Folder of the chunks of a key word, by its number."""

VALUES_NAME = "values"
"""Folder of the chunks of values."""

LIMB_NAMES = "limb_{}"
"""Folder of the chunks of a limb of values, from the second on, by its number (:mod:`oocbe.tables.limbs`)."""


def value_names(limbs: int) -> list[str]:
    """Arrays of the values: one, and one more for each limb behind the first."""
    return [VALUES_NAME, *(LIMB_NAMES.format(limb) for limb in range(1, limbs))]


PACKED, BLOSC, ZSTD = "packed", "blosc", "zstd"
"""Forms of a chunk on disk: since version 2 of the format, before that, and of version 4, one array a variable."""

CODEC_NAMES = {PACKED: ["oocbe.packed"], BLOSC: ["bytes", "blosc", "crc32c"], ZSTD: ["bytes", "zstd"]}
"""Codecs of the arrays' metadata, by the form of their chunks."""

BLOSC_HEADER, CRC_BYTES = 16, 4
"""Bytes of a Blosc frame's header, of which 4 to 8 are the size after decompression, and of the checksum behind it."""


def read_rows(
    folder: Place, manifest: Manifest, name: str, codec: str, rows: int, chunk_rows: int, out: NDArray[Any], start: int
) -> None:
    """Decode rows of a chunk.

    Parameters
    ----------
    name : the chunk's file, such as ``key_0/c/3``. codec : :data:`PACKED` or :data:`BLOSC`.
    rows : rows in the chunk. chunk_rows : rows of a full one.
    out : (wanted rows,) of the array's dtype, contiguous; receives rows ``start`` and following.

    Raises
    ------
    CorruptDataError : missing, or not what the manifest says, or not a chunk of that many rows.
    """
    data = manifest.read_file(folder, name)
    try:
        if codec == PACKED:
            from oocbe.tables.codec import decode

            with span(READER, "decode", bytes=out.nbytes):
                decode(data, rows, out, start)
        else:
            out[:] = _blosc_decoded(data, out.dtype, chunk_rows)[start : start + len(out)]
    except CorruptDataError as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None


def read_packed(
    folder: Place, manifest: Manifest, name: str, codec: str, rows: int, chunk_rows: int, dtype: np.dtype[Any]
) -> NDArray[np.uint64]:
    """A chunk as it is packed, uint64 (words,), with everything checked that unpacking relies on.

    dtype : of the array. The rest is as for :func:`read_rows`, errors too.
    """
    from oocbe.tables.codec import checked, encode

    if codec != PACKED:
        column = np.empty(rows, dtype=dtype)
        read_rows(folder, manifest, name, codec, rows, chunk_rows, column, 0)
        return encode(column)
    try:
        return checked(manifest.read_file(folder, name), rows, dtype.itemsize)[0]
    except CorruptDataError as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None


def read_packed_into(
    folder: Place, manifest: Manifest, name: str, rows: int, itemsize: int, target: NDArray[np.uint64]
) -> None:
    """Read a chunk that is packed on disk, checked as by :func:`read_packed`, into memory: uint64 (words,)."""
    from oocbe.tables.codec import checked

    manifest.read_file_into(folder, name, target.data.cast("B"))
    try:
        checked(target, rows, itemsize)
    except CorruptDataError as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None


def _blosc_decoded(data: bytes, dtype: np.dtype[Any], chunk_rows: int) -> NDArray[Any]:
    expected = chunk_rows * dtype.itemsize
    claimed = int.from_bytes(data[4:8], "little") if len(data) >= BLOSC_HEADER + CRC_BYTES else -1
    if claimed != expected:
        raise CorruptDataError(f"it claims {claimed:,} bytes, not {expected:,}")
    from numcodecs import blosc

    try:
        decoded = blosc.decompress(data[:-CRC_BYTES])
    except (RuntimeError, ValueError) as error:
        raise CorruptDataError(str(error)) from None
    return np.frombuffer(decoded, dtype=dtype)
