"""The arrays of a stored table in the form of columns, one a variable, whose chunks Zarr encodes.

Imported only for writing such a table: importing zarr takes half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr import open_group
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from oocbe.tables.column_form import columns_of
from oocbe.tables.layout import Layout
from oocbe.tables.new_arrays import FileRecorder

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer


class RecordingStore(LocalStore):  # type: ignore[misc]
    """A local store whose files are written and recorded by a :class:`oocbe.tables.new_arrays.FileRecorder`."""

    def __init__(self, root: Path, files: FileRecorder) -> None:
        super().__init__(root)
        self._files = files
        self._written: set[str] = set()

    async def set(self, key: str, value: Buffer) -> None:
        """Write and record a file."""
        self._written.add(key)
        await asyncio.to_thread(self._files.record, key, value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write and record a file that has not been written yet."""
        if key not in self._written:
            await self.set(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write and record a file."""
        self._written.add(key)
        self._files.record(key, value.to_bytes())


class ZarrArrays:
    """A group of arrays written by Zarr; see :class:`oocbe.tables.new_arrays.NewArrays`.

    The array objects are kept, because arrays reopened by name lose the setting to write chunks of zeros.

    Parameters
    ----------
    layout : of the keys. Others as for :class:`oocbe.tables.new_arrays.PackedArrays`.
    """

    def __init__(
        self,
        root: Path,
        files: FileRecorder,
        layout: Layout,
        names: Sequence[str],
        dtypes: Sequence[np.dtype[Any]],
        chunk_rows: int,
    ) -> None:
        self._layout = layout
        self._group = open_group(RecordingStore(root, files), mode="a", zarr_format=3)
        self._arrays = [
            self._group.create_array(
                name,
                shape=(0,),
                chunks=(chunk_rows,),
                dtype=dtype,
                config={"write_empty_chunks": True},
                compressors=ZstdCodec(level=3),
            )
            for name, dtype in zip(names, dtypes, strict=True)
        ]

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows; see :class:`oocbe.tables.new_arrays.NewArrays`."""
        columns = [*columns_of(self._layout, keys), values]
        for array, column in zip(self._arrays, columns, strict=True):
            array.resize((start + len(values),))
            array[start:] = column

    def describe(self, attributes: dict[str, Any]) -> None:
        """Set the attributes of the group."""
        self._group.attrs.put(attributes)
