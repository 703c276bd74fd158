"""The arrays of a stored table during writing: files are recorded, packed chunks are encoded by several threads.

Packed arrays form an ordinary Zarr v3 group. Its metadata are a few lines of JSON, which are written here: importing
Zarr takes half a second. Forms encoded by Zarr are in :mod:`oocbe.tables.zarr_arrays`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import run_all
from oocbe.runtime.tracing.recorder import WRITER, span
from oocbe.tables.chunk_files import CODEC_NAMES, PACKED
from oocbe.tables.codec import encode
from oocbe.tables.disk import write_file
from oocbe.tables.faults import fault_point
from oocbe.tables.manifest import FileRecord, Manifest

if TYPE_CHECKING:
    from oocbe.tables.disk_budget import DiskBudget


class FileRecorder:
    """Writes the files of a folder, enters each into a manifest, and counts its bytes against a disk budget.

    Files are written in place, as the whole folder has a temporary name until it is complete.
    """

    def __init__(self, root: Path, manifest: Manifest, budget: DiskBudget) -> None:
        self._root, self._manifest, self._budget = root, manifest, budget
        self._made = {root}

    def record(self, key: str, data: bytes | memoryview) -> None:
        """Write and record a file; thread-safe for different files."""
        path = self._root / key
        known = self._manifest.files.get(key)
        self._budget.take(len(data) - (known.size if known else 0), path)
        with span(WRITER, "checksum of file"):
            self._manifest.files[key] = FileRecord.of(data)
        if path.parent not in self._made:
            # Never the root: after an error it is removed while other threads are still writing.
            for folder in reversed([f for f in path.parents if f.is_relative_to(self._root) and f != self._root]):
                folder.mkdir(exist_ok=True)
            self._made.add(path.parent)
        write_file(path, data)
        if "/c/" in key:
            fault_point("table:chunk")


class NewArrays(Protocol):
    """The arrays of a table that is being written."""

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows from row ``start`` on (the number of rows so far, a multiple of the chunk size)."""

    def describe(self, attributes: dict[str, Any]) -> None:
        """Set the final size of the arrays and the attributes of the group."""


class PackedArrays:
    """A group of packed arrays; see :class:`NewArrays`.

    Parameters
    ----------
    names, dtypes : of the arrays, those of values last. chunk_rows : of each chunk but the last.
    """

    def __init__(
        self, files: FileRecorder, names: Sequence[str], dtypes: Sequence[np.dtype[Any]], chunk_rows: int
    ) -> None:
        self._files, self._names, self._dtypes, self._chunk_rows = files, names, dtypes, chunk_rows
        self._rows = 0

    def append(self, start: int, keys: NDArray[np.uint64], values: NDArray[Any]) -> None:
        """Write rows; see :class:`NewArrays`."""
        self._rows = start + len(values)
        columns = [*keys, *([values] if values.ndim == 1 else values.T)]
        calls = [
            (f"{name}/c/{(start + low) // self._chunk_rows}", column[low : low + self._chunk_rows])
            for low in range(0, len(values), self._chunk_rows)
            for name, column in zip(self._names, columns, strict=True)
        ]
        run_all(self._write, calls)

    def extend(self, rows: int) -> None:
        """Count rows whose chunks :meth:`write_packed` writes."""
        self._rows += rows

    def write_packed(self, chunk: int, column: int, words: NDArray[np.uint64]) -> None:
        """Write a packed chunk of a column; thread-safe for different chunks."""
        self._files.record(f"{self._names[column]}/c/{chunk}", words.data.cast("B"))

    def describe(self, attributes: dict[str, Any]) -> None:
        """Write the metadata; see :class:`NewArrays`."""
        for name, dtype in zip(self._names, self._dtypes, strict=True):
            self._describe(f"{name}/", array_metadata(self._rows, dtype, self._chunk_rows))
        self._describe("", {"attributes": attributes, "zarr_format": 3, "node_type": "group"})

    def _describe(self, folder: str, metadata: dict[str, Any]) -> None:
        self._files.record(f"{folder}zarr.json", json.dumps(metadata, indent=2).encode())

    def _write(self, name: str, column: NDArray[Any]) -> None:
        with span(WRITER, "encode", bytes=column.nbytes):
            chunk = encode(column)
        self._files.record(name, chunk.data.cast("B"))


def array_metadata(rows: int, dtype: np.dtype[Any], chunk_rows: int) -> dict[str, Any]:
    """Zarr v3 metadata of an array of packed chunks (Zarr v3 core specification, "Array metadata")."""
    return {
        "shape": [rows],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_rows]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": dtype.type(0).item(),
        "codecs": [{"name": name} for name in CODEC_NAMES[PACKED]],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
