"""The Zarr v3 group of a stored table while it is written: metadata through Zarr, chunks encoded by several threads.

Only imported when a stored table is written: zarr takes half a second to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr import Group, open_group
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from oocbe.kernels.cpu.threads import run_all
from oocbe.tables.chunk_files import KEY_NAMES, PACKED, VALUES_NAME
from oocbe.tables.codec import encode
from oocbe.tables.manifest import FileRecord, Manifest
from oocbe.tables.zarr_codec import PackedCodec

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer


class RecordingStore(LocalStore):  # type: ignore[misc]
    """A local store that enters each file written into a manifest."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        super().__init__(root)
        self.manifest = manifest

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file and record it."""
        self.manifest.files[key] = FileRecord.of(value.to_bytes())
        await super().set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a file that is not there yet, and record it."""
        self.manifest.files.setdefault(key, FileRecord.of(value.to_bytes()))
        await super().set_if_not_exists(key, value)


class NewArrays:
    """A Zarr v3 group with one array a key word and one of values, while it is being written.

    The array objects are kept: one opened again by name would have lost the setting to write chunks of zeros.
    """

    def __init__(
        self, root: Path, manifest: Manifest, words: int, dtype: np.dtype[Any], chunk_rows: int, codec: str
    ) -> None:
        self._root = root
        self._manifest = manifest
        self._chunk_rows = chunk_rows
        self._codec = codec
        self._rows = 0
        self._group: Group = open_group(RecordingStore(root, manifest), mode="a", zarr_format=3)
        self._names = [*(KEY_NAMES.format(word) for word in range(words)), VALUES_NAME]
        self._arrays = [
            self._group.create_array(
                name,
                shape=(0,),
                chunks=(chunk_rows,),
                dtype=item,
                config={"write_empty_chunks": True},
                **_codecs(codec, item),
            )
            for name, item in zip(self._names, [*[np.dtype(np.uint64)] * words, dtype], strict=True)
        ]

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows behind the ``start`` rows there are (a multiple of the chunk size)."""
        self._rows = start + len(values)
        columns = [*keys, values]
        if self._codec != PACKED:
            for array, column in zip(self._arrays, columns, strict=True):
                array.resize((self._rows,))
                array[start:] = column
            return
        calls = [
            (f"{name}/c/{(start + low) // self._chunk_rows}", column[low : low + self._chunk_rows])
            for low in range(0, len(values), self._chunk_rows)
            for name, column in zip(self._names, columns, strict=True)
        ]
        run_all(self._write_packed, calls)

    def _write_packed(self, name: str, column: NDArray[Any]) -> None:
        data = encode(column).data.cast("B")
        self._manifest.files[name] = FileRecord.of(data)
        write_file(self._root / name, data)

    def describe(self, attributes: dict[str, Any]) -> None:
        """Give the arrays their final size and the group its attributes."""
        if self._codec == PACKED:
            for array in self._arrays:
                array.resize((self._rows,))
        self._group.attrs.put(attributes)


def write_file(path: Path, data: memoryview) -> None:
    """Write a new file, in a folder that is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _codecs(codec: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    if codec == PACKED:
        return {"serializer": PackedCodec(), "compressors": None}
    # Sorted keys share their high bytes: brought together by the shuffle they nearly vanish.
    blosc = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=dtype.itemsize)
    return {"compressors": [blosc, Crc32cCodec()]}
