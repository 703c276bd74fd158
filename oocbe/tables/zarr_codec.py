"""Packed chunks (:mod:`oocbe.tables.codec`) as codecs that Zarr and numcodecs find through their entry points.

With oocbe installed, any Zarr v3 library for Python reads the arrays of a stored table. A chunk at an array's end may
hold fewer rows than the chunk's shape; the rest reads as zeros, which Zarr cuts off.

Zarr also writes tables in the form of columns (:class:`ZarrArrays`). This module is imported only for that, and by
Zarr: importing zarr takes half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numcodecs.abc import Codec
from numpy.typing import NDArray
from zarr import open_group
from zarr.abc.codec import ArrayBytesCodec
from zarr.codecs import ZstdCodec
from zarr.registry import register_codec
from zarr.storage import LocalStore

from oocbe.errors import CorruptDataError
from oocbe.tables.chunk_files import columns_of
from oocbe.tables.codec import CODEC_NAME, decode, encode, rows_in
from oocbe.tables.folder_writer import FileRecorder
from oocbe.tables.layout import Layout

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer


DTYPES = tuple(np.dtype(name) for name in ("uint64", "int64", "int32", "float64", "float32"))
"""Dtypes that the codec packs."""


@dataclass(frozen=True)
class PackedCodec(ArrayBytesCodec):  # type: ignore[misc]
    """Zarr v3 codec from an array of one dimension to packed bytes; it has no settings."""

    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The codec that an array's metadata name; ValueError for settings that it does not have."""
        if data.get("name") != CODEC_NAME or data.get("configuration"):
            raise ValueError(f"codec {CODEC_NAME} without a configuration expected, not {data}")
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """What an array's metadata say of it."""
        return {"name": CODEC_NAME}

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        """Refuse arrays that cannot be packed."""
        if len(shape) != 1 or dtype.to_native_dtype() not in DTYPES:
            raise ValueError(f"codec {CODEC_NAME} packs one dimension of {', '.join(d.name for d in DTYPES)}")

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        data = chunk_bytes.to_bytes()
        rows = rows_in(data)
        if rows > chunk_spec.shape[0]:
            raise CorruptDataError(f"a packed chunk claims {rows:,} rows, more than its {chunk_spec.shape[0]:,}")
        out = np.zeros(chunk_spec.shape, dtype=chunk_spec.dtype.to_native_dtype())
        decode(data, rows, out[:rows])
        return chunk_spec.prototype.nd_buffer.from_numpy_array(out)

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return chunk_spec.prototype.buffer.from_bytes(encode(chunk_array.as_numpy_array()).tobytes())

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Not known before packing."""
        raise NotImplementedError


class PackedNumcodec(Codec):  # type: ignore[misc]
    """The codec's bytes under numcodecs' interface.

    dtype : name of the items' dtype, which a bare buffer does not tell.
    """

    codec_id = "oocbe_packed"

    def __init__(self, dtype: str = "uint64") -> None:
        self.dtype = str(np.dtype(dtype))
        if np.dtype(dtype) not in DTYPES:
            raise ValueError(f"codec {self.codec_id} packs {', '.join(d.name for d in DTYPES)}, not {dtype}")

    def encode(self, buf: Any) -> bytes:
        """Pack a buffer of items."""
        return encode(np.frombuffer(buf, dtype=self.dtype)).tobytes()

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Unpack into a new array, or into the bytes of ``out``."""
        data = memoryview(buf).cast("B")
        rows = rows_in(data)
        if rows > LARGEST_ROWS:
            raise CorruptDataError(f"a packed chunk claims {rows:,} rows")
        target = np.empty(rows, dtype=self.dtype) if out is None else np.frombuffer(out, dtype=self.dtype)
        decode(data, rows, target)
        return target if out is None else out


LARGEST_ROWS = 1 << 28
"""Maximum rows of a buffer, whose claim cannot be checked; 2 GiB are the most that numcodecs' own compressors take."""

register_codec(CODEC_NAME, PackedCodec)


class RecordingStore(LocalStore):  # type: ignore[misc]
    """A local store whose files are written and recorded by a :class:`oocbe.tables.folder_writer.FileRecorder`."""

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
    """A group of arrays written by Zarr; see :class:`oocbe.tables.folder_writer.NewArrays`.

    The array objects are kept, because arrays reopened by name lose the setting to write chunks of zeros.

    Parameters
    ----------
    layout : of the keys. Others as for :class:`oocbe.tables.folder_writer.PackedArrays`.
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
        """Write rows; see :class:`oocbe.tables.folder_writer.NewArrays`."""
        columns = [*columns_of(self._layout, keys), values]
        for array, column in zip(self._arrays, columns, strict=True):
            array.resize((start + len(values),))
            array[start:] = column

    def describe(self, attributes: dict[str, Any]) -> None:
        """Set the attributes of the group."""
        self._group.attrs.put(attributes)
