"""A table's folder: manifest, attributes, required arrays, and reading; for tables of rows and complete tables.

A thread that alternates between reading and decoding leaves the disk idle, and disks reach full speed only with several
requests at a time. During sequential reads of chunks, the next ones are therefore announced to the system
(``posix_fadvise``), which reads them into its file cache without additional threads or memory of this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError, ModelError
from oocbe.model.semiring import SEMIRINGS, Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.checksums import crc32
from oocbe.tables import disk
from oocbe.tables.chunk_files import ChunkIndex, array_metadata, codec_of, read_rows
from oocbe.tables.layout import Layout, check_integers
from oocbe.tables.manifest import COMPLETE, FORMAT_VERSION, MANIFEST_NAME, Manifest
from oocbe.tables.numbers import LIMB_BITS, MOST_LIMBS, VALUE_DTYPES
from oocbe.tables.object_path import ObjectPath, Place
from oocbe.tables.objects import InStores

LARGEST_CHUNK_ROWS = 1 << 26
"""Maximum rows of a chunk: keeps its keys far below the codec's limit of 2 GiB."""

Made = TypeVar("Made")


class StoredGroup(InStores):
    """Common base of tables of rows and complete tables on disk: metadata, checks, and reading of chunks.

    path : its folder, or the prefix of its objects in a store (:mod:`oocbe.tables.objects`).
    layout, semiring : of the table. dtype : of the values. rows : number of rows, or of feasible cells.
    extent : least and greatest (feasible) value of integers if there are rows, else None.
    """

    def __init__(self, path: Place, manifest: Manifest, attributes: Mapping[str, Any], index: ChunkIndex) -> None:
        self.path = path
        self.layout = layout_of(attributes)
        self.semiring: Semiring = SEMIRINGS[attributes["semiring"]]
        self.dtype: np.dtype[Any] = np.dtype(attributes["dtype"])
        self.rows = int(attributes["rows"])
        self.extent: tuple[int, int] | None = tuple(attributes["extent"]) if "extent" in attributes else None
        self._manifest, self._index = manifest, index
        self._read_ahead = ReadAhead(self.chunk_count, self.stored_bytes // max(1, self.chunk_count))

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        raise NotImplementedError

    @property
    def stored_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return self._manifest.files_bytes

    @property
    def manifest_checksum(self) -> int:
        """CRC-32 of the manifest, which covers the whole table."""
        return crc32(self._manifest.render())

    def verify(self) -> None:
        """Read every file and compare it with its checksum, one at a time and without decoding it.

        Raises
        ------
        CorruptDataError : names the first file that is missing or damaged.
        """
        for name in self._manifest.files:
            self._manifest.read_file(self.path, name)

    def _read_columns(self, columns: Mapping[str, NDArray[Any]], start: int, stop: int, alone: bool) -> None:
        """Decode items ``start`` to ``stop`` into contiguous arrays; ``alone``: no read ahead, as nothing follows."""
        from oocbe.kernels.cpu.threads import run_all

        if start == stop:
            return
        index = self._index
        wanted = range(index.at(start), index.at(stop - 1) + 1)
        for chunk in () if alone else self._read_ahead.after(wanted.start, wanted.stop):
            for name in columns:
                disk.will_need(self.path / index.file(name, chunk))
        calls = []
        for chunk in wanted:
            first = index.start(chunk)
            rows = index.start(chunk + 1) - first
            low, high = max(start, first), min(stop, first + rows)
            for name, column in columns.items():
                calls.append((index.file(name, chunk), rows, column[low - start : high - start], low - first))
        run_all(lambda *arguments: read_rows(self.path, self._manifest, *arguments), calls)


def is_table(folder: Place) -> bool:
    """Whether a folder or URL is a stored table, even a damaged or incomplete one."""
    if isinstance(folder, ObjectPath):
        if folder.name.lower().endswith(".parquet"):
            return False
        try:
            return bool((folder / "table.json").read(1))
        except FileNotFoundError:
            return next(iter(folder.below()), None) is None  # an empty place: report a missing table
        except OSError:
            return True  # opening it reports the error
    return any((folder / name).exists() for name in (MANIFEST_NAME, "zarr.json"))


def attributes_of(folder: Place, manifest: Manifest) -> dict[str, Any]:
    """A table's attributes from its folder, of unchecked types; CorruptDataError: missing or damaged."""
    found = read_json(folder, manifest, "zarr.json").get("attributes")
    attributes = found.get("oocbe") if isinstance(found, dict) else None
    if not isinstance(attributes, dict):
        raise CorruptDataError(f"{folder / 'zarr.json'}: no attributes of a table")
    return attributes


def made_of(folder: Place, make: Callable[[], Made]) -> Made:
    """Result of ``make``, a constructor from attributes; :class:`CorruptDataError` if they are not a table's."""
    try:
        return make()
    except (KeyError, TypeError, ValueError, ModelError) as error:
        raise CorruptDataError(f"{folder / 'zarr.json'}: attributes that no table has ({error!r})") from None


def check_files(
    folder: Place, manifest: Manifest, arrays: Mapping[str, np.dtype[Any]], rows: int, chunk_rows: int
) -> None:
    """Check that exactly the files of a table are listed and present, and that its arrays have the right metadata.

    arrays : dtype by name.

    Raises CorruptDataError: names the first file that fails.
    """
    chunks = -(-rows // chunk_rows)
    is_listed = len(manifest.files) == 1 + len(arrays) * (1 + chunks)
    if is_listed:  # else forged attributes could ask for a set of any size
        names = {"zarr.json"} | {f"{name}/zarr.json" for name in arrays}
        is_listed = set(manifest.files) == names | {f"{name}/c/{chunk}" for name in arrays for chunk in range(chunks)}
    if not is_listed:
        raise CorruptDataError(f"{folder}: the manifest lists other files than a table of {rows:,} rows has")
    if manifest.form != COMPLETE and not chunks == len(manifest.first_keys) == len(manifest.last_keys):
        listed = len(manifest.first_keys)
        raise CorruptDataError(f"{folder}: the manifest lists {listed:,} chunks, {rows:,} rows have {chunks:,}")
    for name in manifest.files:
        manifest.checked(folder, name)
    for name, dtype in arrays.items():
        metadata = read_json(folder, manifest, f"{name}/zarr.json")
        wanted = array_metadata(rows, dtype, chunk_rows, codec_of(manifest.form))
        differs = any(metadata.get(item) != wanted[item] for item in ("shape", "data_type", "chunk_grid"))
        if differs or _codec_names(metadata) != _codec_names(wanted):
            raise CorruptDataError(f"{folder / name / 'zarr.json'}: not the array {name} of this table")


def _codec_names(metadata: Mapping[str, Any]) -> list[object] | None:
    """Names of an array's codecs; None if the metadata is malformed."""
    codecs = metadata.get("codecs")
    if not isinstance(codecs, list) or not all(isinstance(codec, dict) for codec in codecs):
        return None
    return [codec.get("name") for codec in codecs]


def layout_of(attributes: Mapping[str, Any]) -> Layout:
    """The layout of attributes; ValueError or ModelError for invalid labels."""
    labels = {name: tuple(own) for name, own in attributes.get("labels", {}).items()}
    for name, own in labels.items():
        check_integers(name, own)
        if not all(isinstance(label, str | int) for label in own) or len(set(own)) != len(own):
            raise ValueError("labels that are neither text nor integers, or one twice")
    return Layout(tuple(attributes["scope"]), tuple(attributes["sizes"]), labels)


def table_attributes(
    layout: Layout,
    semiring: Semiring,
    dtype: np.dtype[Any],
    rows: int,
    chunk_rows: int,
    is_sorted: bool | None = None,
    limbs: int = 0,
    extent: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Attributes that every new table has; those of a table of rows where ``is_sorted`` is given."""
    of_rows = is_sorted is not None
    attributes: dict[str, Any] = {"version": FORMAT_VERSION, "scope": list(layout.scope), "sizes": list(layout.sizes)}
    if layout.labels:
        attributes["labels"] = {name: list(own) for name, own in layout.labels.items()}
    attributes |= {"words": layout.words} if of_rows else {}
    attributes |= {"semiring": semiring.name, "dtype": dtype.name, "rows": rows, "chunk_rows": chunk_rows}
    attributes |= ({"sorted": is_sorted} if of_rows else {}) | ({"limbs": limbs} if limbs else {})
    return attributes if extent is None else {**attributes, "extent": list(extent)}


def read_json(folder: Place, manifest: Manifest, name: str) -> dict[str, Any]:
    """Content of a metadata file; :class:`CorruptDataError` if it is invalid."""
    if name not in manifest.files:
        raise CorruptDataError(f"{folder}: the manifest does not list {name}")
    data = manifest.read_file(folder, name)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"{folder / name}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise CorruptDataError(f"{folder / name}: not a JSON object")
    return content


def check_table_attributes(attributes: Mapping[str, Any], is_complete: bool = False) -> None:
    """Check types and ranges that the constructor does not check; ValueError if they are impossible."""
    integers = (attributes["rows"], attributes["chunk_rows"], *attributes["sizes"])
    if not all(type(number) is int for number in integers):
        raise ValueError("a number of another type")
    if not all(isinstance(name, str) for name in attributes["scope"]):
        raise ValueError("a variable name that is no text")
    if attributes["dtype"] not in {d.name for d in VALUE_DTYPES}:
        raise ValueError(f"value dtype {attributes['dtype']!r}")
    layout, most = layout_of(attributes), (1 << 48) - 1
    if is_complete:
        # Before the product of many sizes is computed.
        most = layout.complete_rows if sum(size.bit_length() - 1 for size in layout.sizes) < 48 else most + 1
    if not 0 <= attributes["rows"] <= most < 1 << 48 or not 1 <= attributes["chunk_rows"] <= LARGEST_CHUNK_ROWS:
        raise ValueError("rows, cells or chunk rows out of range")
    if not is_complete:
        _check_attributes_of_rows(attributes, layout)
    if "extent" in attributes:
        low, high = attributes["extent"]
        limit = 1 << max(LIMB_BITS * attributes.get("limbs", 0), 63)
        if type(low) is not int or type(high) is not int or not -(1 << 63) <= low <= high < limit:
            raise ValueError("extent out of range")


def _check_attributes_of_rows(attributes: Mapping[str, Any], layout: Layout) -> None:
    flags = (attributes["sorted"], attributes.get("duplicates", False))
    if type(attributes["words"]) is not int or not all(type(flag) is bool for flag in flags):
        raise ValueError("a number or flag of another type")
    if not isinstance(attributes.get("writer", ""), str):
        raise ValueError("a writer that is no text")
    if layout.words != attributes["words"]:
        raise ValueError("scope and words do not fit")
    limbs = attributes.get("limbs", 0)
    if type(limbs) is not int or not 0 <= limbs <= MOST_LIMBS or (limbs and attributes["dtype"] != "int64"):
        raise ValueError("limbs out of range")
    if attributes["rows"] and attributes["dtype"].startswith("int") and "extent" not in attributes:
        raise ValueError("integers without an extent")


class ReadAhead:
    """Determines the chunks to announce, from those being read; thread-safe.

    Reads count as sequential if they begin near the end of the previous one (threads overtake one another) or at the
    first chunk. Other reads announce nothing.

    chunks : of the table. chunk_bytes : average bytes of one on disk.
    """

    def __init__(self, chunks: int, chunk_bytes: int) -> None:
        self._chunks = chunks
        self._ahead = max(1, tuning().transfer_bytes // max(1, chunk_bytes))
        self._reached = self._announced = 0
        self._lock = Lock()

    def after(self, first: int, last: int) -> range:
        """Chunks to announce before chunks ``first`` to ``last`` (excluded) are read."""
        with self._lock:
            if first == 0:
                self._reached = self._announced = 0
            elif abs(first - self._reached) > tuning().in_flight * (last - first):
                self._reached = self._announced = last
                return range(0)
            self._reached = max(self._reached, last)
            begin = max(self._announced, first)
            self._announced = max(self._announced, min(self._chunks, last + self._ahead))
            return range(begin, self._announced)
