"""The device's sort around the library that it calls, on machines without a device: that is NumPy's here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.kernels import backend_named
from oocbe.kernels.cuda.pairs import sort
from oocbe.kernels.cuda.pairs.sort import sort_rows
from tests.helpers.pretended_cupy import pretended_cupy

CPU = backend_named("cpu")
ROWS = 500


class DoubleBuffer:
    """Stands for the library's."""

    def __init__(self, current, alternate):
        self.arrays, self.selector = [current, alternate], 0


def array_at(lent) -> np.ndarray:
    """The array that the library was given the address of."""
    return np.asarray(SimpleNamespace(__array_interface__=lent.__cuda_array_interface__))


def pretended_sort(*, temp_storage, d_in_keys, d_out_keys, d_in_values, d_out_values, **named):
    """By NumPy, into the other of two buffers, and without a trace of the first where that may be overwritten."""
    begin, end = named["begin_bit"], named["end_bit"]
    assert named["stream"].__cuda_stream__() == (0, 77)
    if temp_storage is None:
        return end
    assert temp_storage.nbytes >= end
    pairs = (d_in_keys, d_in_values) if d_out_keys is None else ()
    if pairs:
        (d_in_keys, d_out_keys), (d_in_values, d_out_values) = (p.arrays[:: 1 - 2 * p.selector] for p in pairs)
    keys, out_keys, values, out_values = map(array_at, (d_in_keys, d_out_keys, d_in_values, d_out_values))
    order = np.argsort(keys >> np.uint64(begin) & np.uint64((1 << (end - begin)) - 1), kind="stable")
    out_keys[:], out_values[:] = keys[order], values[order]
    for pair in pairs:
        pair.selector = 1 - pair.selector
    if pairs:
        keys[:], values[:] = 0, 0
    return end


@pytest.fixture
def pretended(monkeypatch):
    with pretended_cupy() as module:
        module.cuda.get_current_stream = lambda: SimpleNamespace(ptr=77)
        module.cuda.Device = lambda: SimpleNamespace(compute_capability="90")
        monkeypatch.setattr(sort, "_compiled", lambda capability, payload_bytes: pretended_sort)
        monkeypatch.setattr(sort, "import_module", lambda name: SimpleNamespace(DoubleBuffer=DoubleBuffer))
        sort.is_available.cache_clear()
        yield module
        sort.is_available.cache_clear()


RANGES = {
    1: [[(0, 0, 64)], [(0, 40, 3), (0, 0, 21)], [(0, 5, 2), (0, 50, 1), (0, 20, 3)], [(0, 7, 0)], []],
    3: [[(1, 30, 5), (0, 0, 64), (2, 0, 64)], [(2, 3, 9), (2, 20, 9), (0, 0, 4), (0, 50, 6)]],
}


def check_like_the_cpu(module, words, ranges, dtype, own) -> None:
    given = np.random.default_rng(1).integers(0, 1 << 64, (words, ROWS), dtype=np.uint64)
    keys, values = module.asarray(given.copy()), module.asarray(np.arange(ROWS, dtype=dtype))
    found_keys, found_values = sort_rows(keys, values, ranges, own=own)
    expected_keys, expected_values = CPU.sort_rows(given, np.arange(ROWS, dtype=dtype), ranges)
    assert np.array_equal(found_keys, expected_keys)
    assert np.array_equal(found_values, expected_values)
    assert found_values.dtype == dtype
    assert np.array_equal(values, np.arange(ROWS))
    assert own or np.array_equal(keys, given)


@pytest.mark.parametrize(("words", "ranges"), [(words, found) for words in RANGES for found in RANGES[words]], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("own", [False, True])
def test_like_the_cpu(pretended, words, ranges, dtype, own):
    check_like_the_cpu(pretended, words, ranges, dtype, own)


class Compute:
    """Stands for the module ``cuda.compute``, whose sorts are texts."""

    SortOrder = SimpleNamespace(ASCENDING=0)

    def __init__(self) -> None:
        self.compiled = 0

    def make_radix_sort(self, *, compute_capability, d_in_values, **_):
        self.compiled += 1
        described = d_in_values.__cuda_array_interface__
        assert described["data"][0] != 0, "the library takes a payload without an address for none"
        text = f"{compute_capability} {np.dtype(described['typestr'])}"
        return SimpleNamespace(text=text, serialize=lambda: b"whole " + text.encode())

    def deserialize(self, content: bytes):
        if not content.startswith(b"whole "):
            raise ValueError("malformed")
        return SimpleNamespace(text=content[6:].decode())


@pytest.fixture
def compute(monkeypatch, tmp_path):
    module = Compute()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sort, "import_module", lambda name: module)
    monkeypatch.setattr(sort, "version", lambda package: "1.2.1")
    with pretended_cupy():
        yield module


def test_compiled_sorts_are_kept_on_disk(compute, tmp_path):
    for _ in range(2):
        assert sort._load_or_compile(90, 4).text == "90 uint32"
        assert sort._load_or_compile(90, 8).text == "90 uint64"
        assert sort._load_or_compile(80, 8).text == "80 uint64"
    assert compute.compiled == 3
    files = list((tmp_path / "cache").iterdir())
    assert len(files) == 3
    for file in files:
        file.write_bytes(b"wh")
    assert sort._load_or_compile(90, 4).text == "90 uint32"
    assert compute.compiled == 4


def test_without_a_folder_to_keep_them_in_sorts_are_compiled_all_the_same(compute, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert sort._load_or_compile(90, 4).text == "90 uint32"


def test_where_the_package_is_missing_cupy_sorts_and_people_are_told_once(pretended, monkeypatch, capsys):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(sort, "import_module", missing)
    for own in (False, True):
        for words, found in RANGES.items():
            for ranges in found:
                check_like_the_cpu(pretended, words, ranges, np.float64, own)
    told = capsys.readouterr().err
    assert told.count("cuda-cccl does not work (ModuleNotFoundError: No module named 'cuda.compute')") == 1
    assert "pip install -e '.[cuda12]' or pip install -e '.[cuda13]'" in told
