"""Packed chunks (:mod:`oocbe.tables.packed_codec`) as a codec that Zarr finds through its entry point.

With oocbe installed, any Zarr v3 library for Python reads the arrays of a stored table. A chunk at an array's end may
hold fewer rows than the chunk's shape; the rest reads as zeros, which Zarr cuts off.

This module is imported only by Zarr: importing zarr takes half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.registry import register_codec

from oocbe.errors import CorruptDataError
from oocbe.tables.packed_codec import CODEC_NAME, decode, encode, rows_in

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
        """The codec's entry in an array's metadata."""
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


register_codec(CODEC_NAME, PackedCodec)
