"""Every kind of damage to a stored table is detected: no file may be missing, cut, swapped or changed."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from oocbe.errors import CorruptDataError, UnsupportedError
from oocbe.tables.manifest import FORMAT_VERSION, MANIFEST_NAME, FileRecord, Manifest, render_record
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

FILES = [
    "manifest.json", "zarr.json", "key_0/zarr.json", "key_1/zarr.json", "values/zarr.json",
    *(f"{array}/c/{chunk}" for array in ("key_0", "key_1", "values") for chunk in range(3)),
]  # fmt: skip
CHUNKS = [name for name in FILES if "/c/" in name]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A table of three chunks."""
    path = tmp_path_factory.mktemp("stored") / "table"
    tuples = [[i * 13 % 50, i * 7, i] for i in range(20)]
    table = Table.from_rows({"a": 64, "b": 1 << 40, "c": 1 << 30}, tuples, np.arange(20) * 3)
    return StoredTable.save(path, table, chunk_rows=7).path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "table")


def read_all(path):
    return StoredTable.open(path).to_table()


def test_the_list_of_files_is_complete(original):
    assert {str(p.relative_to(original)) for p in original.rglob("*") if p.is_file()} == set(FILES)
    assert read_all(original).rows == 20


@pytest.mark.parametrize("name", FILES)
def test_deleted(path, name):
    (path / name).unlink()
    with pytest.raises(CorruptDataError) as error:
        read_all(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", CHUNKS)
def test_deleted_after_opening(path, name):
    stored = StoredTable.open(path)
    (path / name).unlink()
    with pytest.raises(CorruptDataError, match=rf"chunk {name[-1]} of {name.split('/')[0]} is missing"):
        stored.to_table()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_truncated(path, name, kept):
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: int(len(data) * kept) if isinstance(kept, float) else kept])
    with pytest.raises(CorruptDataError):
        read_all(path)


@pytest.mark.parametrize("name", FILES)
def test_lengthened(path, name):
    with (path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(CorruptDataError):
        read_all(path)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere(path, name):
    data = bytearray((path / name).read_bytes())
    for place in range(0, len(data), max(1, len(data) // 24)):
        data[place] ^= 1 << place % 8
        (path / name).write_bytes(data)
        with pytest.raises(CorruptDataError):
            read_all(path)
        data[place] ^= 1 << place % 8
    (path / name).write_bytes(data)
    assert read_all(path).rows == 20


@pytest.mark.parametrize("other", ["key_0/c/0", "values/c/1"])
@pytest.mark.parametrize("name", ["key_0/c/1", "key_1/c/1"])
def test_swapped_chunks(path, name, other):
    first, second = (path / name).read_bytes(), (path / other).read_bytes()
    assert first != second
    (path / name).write_bytes(second)
    (path / other).write_bytes(first)
    with pytest.raises(CorruptDataError, match="chunk"):
        read_all(path)


def test_the_message_names_chunk_and_file(path):
    data = bytearray((path / "values/c/2").read_bytes())
    data[-1] ^= 1
    (path / "values/c/2").write_bytes(data)
    stored = StoredTable.open(path)
    assert stored.read(0, 14).rows == 14
    with pytest.raises(CorruptDataError, match=r"chunk 2 of values is damaged.*values/c/2"):
        stored.read(14, 20)


def test_a_link_out_of_the_table_is_refused(path, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(path / "key_0/c/1", outside)
    (path / "key_0/c/1").symlink_to(outside)
    with pytest.raises(CorruptDataError, match="not a plain file inside the table"):
        StoredTable.open(path)


def test_a_linked_folder_out_of_the_table_is_refused(path, tmp_path):
    shutil.move(path / "key_0", tmp_path / "outside")
    (path / "key_0").symlink_to(tmp_path / "outside")
    with pytest.raises(CorruptDataError, match="not a plain file inside the table"):
        StoredTable.open(path)


def test_a_folder_without_manifest_is_no_table(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CorruptDataError, match=r"no manifest\.json|no such folder"):
            StoredTable.open(path)


def rewrite(path, name, change):
    """Change a JSON file and make manifest and checksums agree with it: an attack rather than an accident."""
    manifest = Manifest.read(path)
    content = json.loads((path / name).read_bytes())
    change(content)
    data = json.dumps(content).encode()
    (path / name).write_bytes(data)
    manifest.files[name] = FileRecord.of(data)
    (path / MANIFEST_NAME).write_bytes(manifest.render())


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("rows", 1 << 60), ("rows", -1), ("rows", "20"), ("rows", 21), ("rows", 22), ("rows", (1 << 48) - 1),
        ("rows", True), ("chunk_rows", 0), ("chunk_rows", 1 << 62), ("chunk_rows", 8), ("dtype", "object"),
        ("dtype", "int32"), ("dtype", None), ("words", 1), ("sizes", [64, 1 << 40]), ("sizes", [64, 1 << 40, -1]),
        ("scope", ["a", "a", "b"]), ("scope", [1, 2, 3]), ("semiring", "max-min"), ("sorted", 1),
        ("extent", [3, 2]), ("extent", [0.5, 2]), ("extent", [0, 1 << 63]), ("extent", 7), ("extent", [1]),
    ],
)  # fmt: skip
def test_impossible_attributes_are_refused(path, item, value):
    rewrite(path, "zarr.json", lambda content: content["attributes"]["oocbe"].update({item: value}))
    with pytest.raises(CorruptDataError):
        StoredTable.open(path)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("data_type", "float64"), ("shape", [1 << 40]), ("codecs", [{"name": "bytes"}]),
        ("codecs", None), ("codecs", ["bytes"]), ("codecs", 7), ("shape", None),
        ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [1 << 30]}}),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(path, item, value):
    rewrite(path, "key_1/zarr.json", lambda content: content.update({item: value}))
    with pytest.raises(CorruptDataError, match="key_1"):
        StoredTable.open(path)


def test_a_chunk_that_claims_more_than_its_size_is_refused_before_decompression(path):
    manifest = Manifest.read(path)
    data = bytearray((path / "key_0/c/0").read_bytes())
    packed = data[:4] == b"OBPK"
    data[8 if packed else 4 : 16 if packed else 8] = (1 << 30).to_bytes(8 if packed else 4, "little")
    (path / "key_0/c/0").write_bytes(data)
    manifest.files["key_0/c/0"] = FileRecord.of(bytes(data))
    (path / MANIFEST_NAME).write_bytes(manifest.render())
    with pytest.raises(CorruptDataError, match=r"(claims 1,073,741,824 bytes|has 1,073,741,824 rows)"):
        read_all(path)


def test_names_outside_the_table_are_not_looked_at(path):
    manifest = Manifest.read(path)
    manifest.files["../outside"] = FileRecord(1, 1)
    (path / MANIFEST_NAME).write_bytes(manifest.render())
    with pytest.raises(CorruptDataError, match="lists other files"):
        StoredTable.open(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"\xff\xfe", b'{"content": 1}', b"[" * 100_000])
def test_rubbish_for_a_manifest(path, content):
    (path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(CorruptDataError, match="damaged"):
        StoredTable.open(path)


@pytest.mark.parametrize("version", [1, 2, 5, FORMAT_VERSION + 1])
def test_another_format_version_is_named_with_the_remedy(path, version):
    content = json.loads((path / MANIFEST_NAME).read_text())["content"]
    (path / MANIFEST_NAME).write_bytes(render_record(content | {"version": version}))
    expected = f"format version {version}; this program reads version {FORMAT_VERSION} only. Write the table again"
    with pytest.raises(UnsupportedError, match=expected):
        StoredTable.open(path)


@pytest.mark.parametrize(
    ("form", "error", "words"),
    [
        (None, CorruptDataError, "not a manifest of a table"),
        (["rows"], CorruptDataError, "not a manifest of a table"),
        ("later", UnsupportedError, "does not read the form 'later' of tables"),
    ],
)
def test_a_form_that_no_table_has(path, form, error, words):
    """A form of a later program is no damage: the manifest's checksum holds."""
    content = json.loads((path / MANIFEST_NAME).read_text())["content"]
    (path / MANIFEST_NAME).write_bytes(render_record(content | {"form": form}))
    with pytest.raises(error, match=words):
        StoredTable.open(path)


@pytest.mark.parametrize("attributes", [None, [], "oocbe", {}, {"oocbe": None}, {"oocbe": [1]}])
def test_no_attributes_of_a_table(path, attributes):
    rewrite(path, "zarr.json", lambda content: content.update({"attributes": attributes}))
    with pytest.raises(CorruptDataError, match="no attributes of a table"):
        StoredTable.open(path)


def test_metadata_nested_without_end(path):
    manifest, data = Manifest.read(path), b"[" * 200_000
    (path / "zarr.json").write_bytes(data)
    manifest.files["zarr.json"] = FileRecord.of(data)
    (path / MANIFEST_NAME).write_bytes(manifest.render())
    with pytest.raises(CorruptDataError, match="not JSON"):
        StoredTable.open(path)


@pytest.mark.parametrize("version", [None, "2", [2]])
def test_a_manifest_without_a_version(path, version):
    content = json.loads((path / MANIFEST_NAME).read_text())["content"]
    content |= {"version": version}
    if version is None:
        del content["version"]
    (path / MANIFEST_NAME).write_bytes(render_record(content))
    with pytest.raises(CorruptDataError, match="not a manifest of a table"):
        StoredTable.open(path)
