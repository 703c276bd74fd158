"""The Zarr v3 group of a stored table while it is written: metadata through Zarr, chunks encoded by several threads.

Only imported when a stored table is written: zarr takes half a second to import.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr import Group, open_group
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from oocbe.kernels.cpu.threads import run_all
from oocbe.tables.chunk_files import KEY_NAMES, PACKED, ZSTD, value_names
from oocbe.tables.codec import encode
from oocbe.tables.column_form import column_dtype, column_names, columns_of
from oocbe.tables.disk import write_file
from oocbe.tables.faults import passing
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import FileRecord, Manifest
from oocbe.tables.zarr_codec import PackedCodec
from oocbe.tracing.recorder import WRITER, span

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

    from oocbe.tables.disk_budget import DiskBudget


class RecordingStore(LocalStore):  # type: ignore[misc]
    """A local store that enters each file written into a manifest and counts its bytes against a disk budget.

    The whole folder has a temporary name until it is complete, so files are written in place.
    """

    def __init__(self, root: Path, manifest: Manifest, budget: DiskBudget) -> None:
        super().__init__(root)
        self.manifest = manifest
        self.budget = budget
        self._made = {root}

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file and record it."""
        await asyncio.to_thread(self.record, key, value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a file that is not there yet, and record it."""
        if key not in self.manifest.files:
            await self.set(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write a file and record it."""
        self.record(key, value.to_bytes())

    def record(self, key: str, data: bytes | memoryview) -> None:
        """Write a file and record it; from any thread, each file from one."""
        path = self.root / key
        known = self.manifest.files.get(key)
        self.budget.take(len(data) - (known.size if known else 0), path)
        with span(WRITER, "checksum of file"):
            self.manifest.files[key] = FileRecord.of(data)
        if path.parent not in self._made:
            # Never the root: after an error it is removed while other threads still write.
            for folder in reversed([f for f in path.parents if f.is_relative_to(self.root) and f != self.root]):
                folder.mkdir(exist_ok=True)
            self._made.add(path.parent)
        write_file(path, data)
        if "/c/" in key:
            passing("table:chunk")


class NewArrays:
    """A Zarr v3 group with one array a key word, or a variable, and one of values, while it is being written.

    The array objects are kept: one opened again by name would have lost the setting to write chunks of zeros.
    """

    def __init__(
        self,
        root: Path,
        manifest: Manifest,
        layout: Layout,
        words: int,
        dtype: np.dtype[Any],
        chunk_rows: int,
        codec: str,
        budget: DiskBudget,
        limbs: int = 0,
    ) -> None:
        self._store = RecordingStore(root, manifest, budget)
        self._chunk_rows = chunk_rows
        self._codec = codec
        self._rows = 0
        self._group: Group = open_group(self._store, mode="a", zarr_format=3)
        self._layout = layout
        items: list[np.dtype[Any]]
        if codec == ZSTD:
            names, items = column_names(layout), [column_dtype(size) for size in layout.sizes]
        else:
            names, items = [KEY_NAMES.format(word) for word in range(words)], [np.dtype(np.uint64)] * words
        of_values = value_names(limbs)
        self._names = [*names, *of_values]
        self._arrays = [
            self._group.create_array(
                name,
                shape=(0,),
                chunks=(chunk_rows,),
                dtype=item,
                config={"write_empty_chunks": True},
                **_codecs(codec, item),
            )
            for name, item in zip(self._names, [*items, *[dtype] * len(of_values)], strict=True)
        ]

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows behind the ``start`` rows there are (a multiple of the chunk size)."""
        self._rows = start + len(values)
        columns = [*(columns_of(self._layout, keys) if self._codec == ZSTD else keys)]
        columns += [values] if values.ndim == 1 else list(values.T)
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

    def extend(self, rows: int) -> None:
        """Count rows whose chunks are written by :meth:`write_packed`."""
        self._rows += rows

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a packed chunk of a column; from any thread, each chunk from one."""
        self._store.record(f"{self._names[column]}/c/{chunk}", words.data.cast("B"))

    def _write_packed(self, name: str, column: NDArray[Any]) -> None:
        with span(WRITER, "encode", bytes=column.nbytes):
            chunk = encode(column)
        self._store.record(name, chunk.data.cast("B"))

    def describe(self, attributes: dict[str, Any]) -> None:
        """Give the arrays their final size and the group its attributes."""
        if self._codec == PACKED:
            for array in self._arrays:
                array.resize((self._rows,))
        self._group.attrs.put(attributes)


def _codecs(codec: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    if codec == PACKED:
        return {"serializer": PackedCodec(), "compressors": None}
    if codec == ZSTD:
        return {"compressors": ZstdCodec(level=3)}
    # Sorted keys share their high bytes: brought together by the shuffle they nearly vanish.
    blosc = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=dtype.itemsize)
    return {"compressors": [blosc, Crc32cCodec()]}
