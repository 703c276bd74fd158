"""A stored table as columns: one array per variable, compressed with zstd, readable by any Zarr library.

Keys are unpacked on writing and packed on reading, which takes longer than the packed form: this form is for exchange.
An array has the name of its variable if that is a valid file name, otherwise ``column_N``; the attribute ``columns``
lists the names in the order of the scope.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.tables.chunk_files import VALUES_NAME
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import Manifest, describe
from oocbe.tables.object_path import Place

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

    Raises
    ------
    CorruptDataError : a chunk is missing or damaged.
    """
    from oocbe.kernels.cpu.threads import run_all

    keys[:] = 0
    stop = start + keys.shape[1]

    def read_one(chunk: int) -> None:
        first = chunk * chunk_rows
        low, high = max(start, first), min(stop, first + chunk_rows)
        part = slice(low - start, high - start)
        if len(keys):
            read_chunk(folder, manifest, layout, chunk, chunk_rows, low - first, keys[:, part])
        if values is not None:
            column = decoded(folder, manifest, f"{VALUES_NAME}/c/{chunk}", values.dtype, chunk_rows)
            values[part] = column[low - first : high - first]

    run_all(read_one, [(chunk,) for chunk in range(start // chunk_rows, -(-stop // chunk_rows))])


def read_chunk(
    folder: Place, manifest: Manifest, layout: Layout, chunk: int, chunk_rows: int, start: int, keys: NDArray[np.uint64]
) -> None:
    """Pack rows from ``start`` on of a chunk into the caller's keys uint64 (words, rows), which must be zero.

    Raises
    ------
    CorruptDataError : a file is missing or damaged, or has a value outside its variable's domain.
    """
    for name, field, size in zip(column_names(layout), layout.fields, layout.sizes, strict=True):
        file = f"{name}/c/{chunk}"
        column = decoded(folder, manifest, file, column_dtype(size), chunk_rows)[start : start + keys.shape[1]]
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
            raise CorruptDataError(f"{describe(file)} has a value outside 0 to {size - 1}: {folder / file}")
        keys[field.word] |= column.astype(np.uint64) << np.uint64(field.shift)


def decoded(folder: Place, manifest: Manifest, name: str, dtype: np.dtype[Any], rows: int) -> NDArray[Any]:
    """All ``rows`` items of a chunk, including the padding behind an array's end; errors as for :func:`read_chunk`."""
    from numcodecs import zstd

    out = np.zeros(rows, dtype=dtype)
    try:
        zstd.decompress(manifest.read_file(folder, name), out)  # more bytes than the array holds are an error
    except (RuntimeError, ValueError) as error:
        raise CorruptDataError(f"{describe(name)} cannot be decoded: {error}: {folder / name}") from None
    return out
