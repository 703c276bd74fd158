"""The files of a stored table's chunks: read with every byte checked, decoded straight to where the rows are wanted.

Reading goes around Zarr, whose own way takes several copies: a file is read whole, compared with the manifest, checked
to claim no more than a chunk may have, and decoded into the caller's array. Threads do so for several files at once.

An index gives the chunk and file of each row. All chunks of a table but the last have the same number of rows. The
chunks of a table of parts (:mod:`oocbe.tables.parts`) are those of its parts in order; the last chunk of each part is
shorter.

The form of columns has one array per variable, compressed with zstd, readable by any Zarr library. Keys are unpacked on
writing and packed on reading, which takes longer than the packed form: the form of columns is for exchange. An array
has the name of its variable if that is a valid file name, otherwise ``column_N``; the attribute ``columns`` lists the
names in the order of the scope.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.runtime.tracing.recorder import READER, span
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import COLUMNS, ROWS, Manifest, describe
from oocbe.tables.object_path import Place

KEY_NAMES = "key_{}"
"""Folder of the chunks of a key word, by its number."""

VALUES_NAME = "values"
"""Folder of the chunks of values."""

LIMB_NAMES = "limb_{}"
"""Folder of the chunks of a limb of values, from the second on, by its number (:mod:`oocbe.tables.numbers`)."""


def value_names(limbs: int) -> list[str]:
    """Arrays of the values: one, and one more for each limb behind the first."""
    return [VALUES_NAME, *(LIMB_NAMES.format(limb) for limb in range(1, limbs))]


PACKED, ZSTD = "packed", "zstd"
"""Codecs of chunks on disk: of keys and values, and of one array a variable, for other programs."""

CODECS: dict[str, list[dict[str, Any]]] = {
    PACKED: [{"name": "oocbe.packed"}],
    ZSTD: [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    ],
}
"""Codecs of the arrays' metadata, with their settings, for each codec of chunks."""


def codec_of(form: str) -> str:
    """Codec of the chunks of a table of a form (:mod:`oocbe.tables.manifest`)."""
    return ZSTD if form == COLUMNS else PACKED


def array_metadata(rows: int, dtype: np.dtype[Any], chunk_rows: int, codec: str = PACKED) -> dict[str, Any]:
    """Zarr v3 metadata of an array (Zarr v3 core specification, "Array metadata"); ``codec``: of its chunks."""
    return {
        "shape": [rows],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_rows]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": dtype.type(0).item(),
        "codecs": CODECS[codec],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def encoded(column: NDArray[Any], codec: str, chunk_rows: int) -> bytes | memoryview:
    """The bytes of a chunk, (rows,), for :func:`read_rows` or :func:`read_zstd`; zstd pads it to ``chunk_rows``."""
    if codec == PACKED:
        from oocbe.tables.packed_codec import encode  # imports Numba: needed for writing only

        return encode(column).data.cast("B")
    from numcodecs import zstd

    padded = np.zeros(chunk_rows, dtype=column.dtype)
    padded[: len(column)] = column
    compressed: bytes = zstd.compress(padded, CODECS[codec][-1]["configuration"]["level"])
    return compressed


def read_rows(folder: Place, manifest: Manifest, name: str, rows: int, out: NDArray[Any], start: int) -> None:
    """Decode rows of a packed chunk.

    name : the chunk's file, such as ``key_0/c/3``. rows : rows in the chunk.
    out : (wanted rows,) of the array's dtype, contiguous; receives rows ``start`` and following.
    Raises CorruptDataError: missing, or not what the manifest says, or not a chunk of that many rows.
    """
    from oocbe.tables.packed_codec import decode

    data = manifest.read_file(folder, name)
    with _undecodable(folder, name), span(READER, "decode", bytes=out.nbytes):
        decode(data, rows, out, start)


def read_packed_into(
    folder: Place, manifest: Manifest, name: str, rows: int, itemsize: int, target: NDArray[np.uint64]
) -> None:
    """Read a chunk as it is packed into memory, uint64 (words,), with everything checked that unpacking relies on.

    itemsize : bytes of the array's items. The rest is as for :func:`read_rows`, errors too.
    """
    from oocbe.tables.packed_codec import checked

    manifest.read_file_into(folder, name, target.data.cast("B"))
    with _undecodable(folder, name):
        checked(target, rows, itemsize)


@contextmanager
def _undecodable(folder: Place, name: str) -> Iterator[None]:
    """Name the chunk that cannot be decoded."""
    try:
        yield
    except CorruptDataError as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None


class ChunkIndex:
    """Rows, file and writer of each chunk of a table: of its own, or of its parts, end to end.

    parts : folder (empty for the table's own), rows, rows of each chunk but the last, and writer of each.
    """

    def __init__(self, parts: Iterable[tuple[str, int, int, str | None]]) -> None:
        self._parts = list(parts)
        self._rows = [0, *accumulate(rows for _, rows, _, _ in self._parts)]
        self._chunks = [0, *accumulate(-(-rows // chunk_rows) for _, rows, chunk_rows, _ in self._parts)]

    def at(self, row: int) -> int:
        """Chunk of a row."""
        part = min(bisect_right(self._rows, row), len(self._parts)) - 1
        return self._chunks[part] + (row - self._rows[part]) // self._parts[part][2]

    def start(self, chunk: int) -> int:
        """First row of a chunk; the number of all rows for a chunk behind the last one."""
        part = self._part(chunk)
        return self._rows[part] + (chunk - self._chunks[part]) * self._parts[part][2] if part >= 0 else self._rows[-1]

    def file(self, array: str, chunk: int) -> str:
        """Name of a chunk's file, relative to the table's folder."""
        part = self._part(chunk)
        folder = self._parts[part][0]
        return f"{folder}{'/' * bool(folder)}{array}/c/{chunk - self._chunks[part]}"

    def writer(self, chunk: int) -> str | None:
        """Worker that wrote a chunk (:mod:`oocbe.execution.cluster.segment_files`); None: unknown."""
        return self._parts[self._part(chunk)][3]

    def _part(self, chunk: int) -> int:
        """The part that has a chunk; -1 for a chunk behind the last one."""
        return bisect_right(self._chunks, chunk) - 1 if chunk < self._chunks[-1] else -1


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Variable names that serve as array names: no separators, no dots, no characters that a file system could refuse."""


def column_names(layout: Layout) -> list[str]:
    """Names of the arrays of a layout's variables, unique also on case-insensitive file systems."""
    taken, names = {VALUES_NAME, "c"}, []
    for place, name in enumerate(layout.scope):
        own = name if _PLAIN_NAME.fullmatch(name) and name.lower() not in taken else f"column_{place}"
        while own.lower() in taken:
            own += "_"
        taken.add(own.lower())
        names.append(own)
    return names


def column_dtype(size: int) -> np.dtype[Any]:
    """Dtype of the array of a variable with ``size`` values."""
    return np.dtype(np.int32 if size <= 1 << 31 else np.int64)


def arrays_of(layout: Layout, dtype: np.dtype[Any], form: str = ROWS, limbs: int = 0) -> dict[str, np.dtype[Any]]:
    """Arrays of a table of a form by their names, with their dtypes: those of the keys, then those of the values."""
    keys = {}
    if form == COLUMNS:
        keys = {n: column_dtype(size) for n, size in zip(column_names(layout), layout.sizes, strict=True)}
    elif form == ROWS:
        keys = {KEY_NAMES.format(word): np.dtype(np.uint64) for word in range(layout.words)}
    return keys | dict.fromkeys(value_names(limbs), dtype)


def columns_of(layout: Layout, keys: NDArray[np.uint64]) -> list[NDArray[Any]]:
    """Value indices of each variable, (rows,) of :func:`column_dtype`, extracted from keys uint64 (words, rows)."""
    return [
        ((keys[f.word] >> np.uint64(f.shift)) & np.uint64(f.mask)).astype(column_dtype(size))
        for f, size in zip(layout.fields, layout.sizes, strict=True)
    ]


def read_columns(
    folder: Place,
    manifest: Manifest,
    layout: Layout,
    chunk_rows: int,
    start: int,
    keys: NDArray[np.uint64],
    values: NDArray[Any] | None,
) -> None:
    """Read rows from ``start`` on into the caller's keys (words, rows) and values (rows,), or None for keys alone.

    Keys without words, (0, rows): only values are read.

    Raises CorruptDataError: a file is missing or damaged, or has a value outside its variable's domain.
    """
    from oocbe.kernels.cpu.threads import run_all

    keys[:] = 0
    stop, names = start + keys.shape[1], column_names(layout)

    def read_one(chunk: int) -> None:
        first = chunk * chunk_rows
        low, high = max(start, first), min(stop, first + chunk_rows)
        part, rows = slice(low - start, high - start), slice(low - first, high - first)
        for name, field, size in zip(names, layout.fields, layout.sizes, strict=True) if len(keys) else ():
            file = f"{name}/c/{chunk}"
            column = read_zstd(folder, manifest, file, column_dtype(size), chunk_rows)[rows]
            if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
                raise CorruptDataError(f"{describe(file)} has a value outside 0 to {size - 1}: {folder / file}")
            keys[field.word, part] |= column.astype(np.uint64) << np.uint64(field.shift)
        if values is not None:
            values[part] = read_zstd(folder, manifest, f"{VALUES_NAME}/c/{chunk}", values.dtype, chunk_rows)[rows]

    run_all(read_one, [(chunk,) for chunk in range(start // chunk_rows, -(-stop // chunk_rows))])


def read_zstd(folder: Place, manifest: Manifest, name: str, dtype: np.dtype[Any], rows: int) -> NDArray[Any]:
    """All ``rows`` items of a zstd chunk, including the padding behind an array's end; errors as for `read_columns`."""
    from numcodecs import zstd

    out = np.zeros(rows, dtype=dtype)
    try:
        zstd.decompress(manifest.read_file(folder, name), out)  # more bytes than the array holds are an error
    except (RuntimeError, ValueError) as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None
    return out
