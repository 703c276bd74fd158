"""Zarr stores under a stored table: one that records what it writes, one that checks what it reads.

Only imported when a stored table's rows are written or read: zarr takes half a second to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr import Group, open_group
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from oocbe.errors import CorruptDataError
from oocbe.tables.manifest import FileRecord, Manifest, describe

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

KEY_NAMES = "key_{}"
VALUES_NAME = "values"
BLOSC_HEADER = 16
"""Bytes of a Blosc frame's header; bytes 4 to 8 are the size after decompression."""


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


class VerifiedStore(LocalStore):  # type: ignore[misc]
    """A read-only local store that gives out no byte which the manifest does not vouch for.

    chunk_bytes : for each array, what a chunk must decompress to; a frame that claims more is refused before any memory
    is taken for it.
    """

    def __init__(self, root: Path, manifest: Manifest, chunk_bytes: dict[str, int]) -> None:
        super().__init__(root, read_only=True)
        self.manifest = manifest
        self.chunk_bytes = chunk_bytes

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a whole listed file and check it; None for files that are not listed, whether there or not."""
        if key not in self.manifest.files:
            if "/c/" in key:
                raise CorruptDataError(f"{describe(key)} is not in the manifest: {self.root / key}")
            return None
        self.manifest.checked(self.root, key)
        found = await super().get(key, prototype)
        if found is None:
            raise CorruptDataError(f"{describe(key)} is missing: {self.root / key}")
        data = found.to_bytes()
        self.manifest.verify(self.root, key, data)
        expected = self.chunk_bytes.get(key.partition("/c/")[0], 0) if "/c/" in key else None
        if expected is not None:
            claimed = int.from_bytes(data[4:8], "little") if len(data) >= BLOSC_HEADER else -1
            if claimed != expected:
                raise CorruptDataError(f"{describe(key)} claims {claimed:,} bytes, not {expected:,}: {self.root / key}")
        return found if byte_range is None else await super().get(key, prototype, byte_range)


class NewArrays:
    """A Zarr v3 group with one array a key word and one of values, while it is being written.

    The array objects are kept: one opened again by name would have lost the setting to write chunks of zeros.
    """

    def __init__(self, root: Path, manifest: Manifest, words: int, dtype: np.dtype[Any], chunk_rows: int) -> None:
        self._group: Group = open_group(RecordingStore(root, manifest), mode="a", zarr_format=3)
        self._arrays = [
            self._group.create_array(
                name,
                shape=(0,),
                chunks=(chunk_rows,),
                dtype=item,
                # Sorted keys share their high bytes: brought together by the shuffle they nearly vanish.
                compressors=[
                    BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=item.itemsize),
                    Crc32cCodec(),
                ],
                config={"write_empty_chunks": True},
            )
            for name, item in [
                *((KEY_NAMES.format(w), np.dtype(np.uint64)) for w in range(words)),
                (VALUES_NAME, dtype),
            ]
        ]

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows behind the ``start`` rows there are (a multiple of the chunk size)."""
        for array, column in zip(self._arrays, [*keys, values], strict=True):
            array.resize((start + len(column),))
            array[start:] = column

    def describe(self, attributes: dict[str, Any]) -> None:
        """Give the group its attributes."""
        self._group.attrs.put(attributes)


def open_arrays(root: Path, manifest: Manifest, words: int, itemsize: int, chunk_rows: int) -> tuple[list[Any], Any]:
    """The key arrays and the value array of a stored table, for reading with every check."""
    sizes = {KEY_NAMES.format(word): 8 * chunk_rows for word in range(words)} | {VALUES_NAME: itemsize * chunk_rows}
    group = open_group(VerifiedStore(root, manifest, sizes), mode="r", zarr_format=3, use_consolidated=False)
    return [group[KEY_NAMES.format(word)] for word in range(words)], group[VALUES_NAME]
