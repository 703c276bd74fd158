"""The files of a stored table's chunks: read with every byte checked, decoded straight to where the rows are wanted.

Reading goes around Zarr, whose own way takes several copies: a file is read whole, compared with the manifest, checked
to claim no more than a chunk may have, and decoded into the caller's array. Threads do so for several files at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


PACKED, ZSTD = "packed", "zstd"
"""Codecs of chunks on disk: of keys and values, and of one array a variable, for other programs."""

CODEC_NAMES = {PACKED: ["oocbe.packed"], ZSTD: ["bytes", "zstd"]}
"""Codecs of the arrays' metadata."""


def read_rows(folder: Place, manifest: Manifest, name: str, rows: int, out: NDArray[Any], start: int) -> None:
    """Decode rows of a packed chunk.

    Parameters
    ----------
    name : the chunk's file, such as ``key_0/c/3``. rows : rows in the chunk.
    out : (wanted rows,) of the array's dtype, contiguous; receives rows ``start`` and following.

    Raises
    ------
    CorruptDataError : missing, or not what the manifest says, or not a chunk of that many rows.
    """
    from oocbe.tables.codec import decode

    data = manifest.read_file(folder, name)
    with _undecodable(folder, name), span(READER, "decode", bytes=out.nbytes):
        decode(data, rows, out, start)


def read_packed(folder: Place, manifest: Manifest, name: str, rows: int, itemsize: int) -> NDArray[np.uint64]:
    """A chunk as it is packed, uint64 (words,), with everything checked that unpacking relies on.

    itemsize : bytes of the array's items. The rest is as for :func:`read_rows`, errors too.
    """
    from oocbe.tables.codec import checked

    data = manifest.read_file(folder, name)
    with _undecodable(folder, name):
        return checked(data, rows, itemsize)[0]


def read_packed_into(
    folder: Place, manifest: Manifest, name: str, rows: int, itemsize: int, target: NDArray[np.uint64]
) -> None:
    """Read a chunk that is packed on disk, checked as by :func:`read_packed`, into memory: uint64 (words,)."""
    from oocbe.tables.codec import checked

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
