"""What goes wrong before a format is looked at: empty and binary files, archives, size limits, names."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest

from oocbe.errors import FormatError, ResourceError, UnsupportedError, UsageError
from oocbe.formats import formats, read, write
from oocbe.formats.files import read_bytes, write_bytes
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem

SUFFIXES = list(formats())
BOMB_BLOCKS = 96
SMALL = {
    "bif": b"network n { } variable x { type discrete [ 2 ] { 0, 1 }; } probability ( x ) { table 0.5, 0.5; }\n",
    "cfn": b"{{p <9} {x 2} {f {[x] [0 5]}}}\n",
    "cnf": b"p cnf 1 1\n1 0\n",
    "lg": b"MARKOV 1 2 1 1 0 2 -0.5 -1.5\n",
    "lp": b"min 5 x st binary x end\n",
    "mps": b"NAME s\nROWS\n N C\nCOLUMNS\n X C 5\nBOUNDS\n BV B X\nENDATA\n",
    "net": b"net { } node x { states = (0 1); } potential (x) { data = (0.5 0.5); }\n",
    "opb": b"min: +5 x1 ;\n",
    "qpbo": b"1 1\n1 1 5\n",
    "spot": b"1\n0 5 1 2 0\n0\n",
    "uai": b"MARKOV 1 2 1 1 0 2 0.25 0.75\n",
    "wcnf": b"p wcnf 1 1 9\n5 1 0\n",
    "wcsp": b"p 1 2 1 9\n2\n1 0 0 1\n1 5\n",
    "xdsl": b'<smile><nodes><cpt id="x"><state id="a"/><state id="b"/><probabilities>0.5 0.5</probabilities></cpt>'
    b"</nodes></smile>\n",
    "xml": b'<instance format="XCSP3" type="COP"> <variables> <var id="x"> 0 5 </var> </variables> <objectives>'
    b"<minimize> x </minimize> </objectives> </instance>\n",
    "yaml": b"{objective: min, domains: {d: {values: [0, 1]}}, variables: {x: {domain: d, cost_function: 5 * x}},\n"
    b"agents: [a]}\n",
}


def test_formats():
    assert sorted(SUFFIXES) == SUFFIXES
    assert set(SMALL) <= set(SUFFIXES)
    assert all(f.description for f in formats().values())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b" \n\n \t"])
def test_empty_file(tmp_path, suffix, content):
    path = tmp_path / f"p.{suffix}"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=rf"line 1: the file is empty, expected a problem in the {suffix} format"):
        read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_binary_file(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    path.write_bytes(b"3\n2\n\x00\x01\x02" + bytes(range(256)))
    with pytest.raises(FormatError, match=rf"p\.{suffix}, line 3: found the byte 0x00: binary data, expected text"):
        read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_letters_that_are_no_text(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    path.write_bytes(bytes(range(128, 256)) * 1000)
    with pytest.raises(FormatError, match=r"line 1: (found|the file ends)") as caught:
        read(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("suffix", SMALL)
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed(tmp_path, suffix, compress):
    path = tmp_path / f"p.{suffix}.{'gz' if compress is gzip.compress else 'xz'}"
    path.write_bytes(compress(SMALL[suffix]))
    problem = read(path)
    assert problem.sizes == (2,)
    assert problem.evaluate((1,)) is not None
    # The suffix may be missing, and streams may be concatenated.
    other = tmp_path / f"q.{suffix}"
    other.write_bytes(compress(SMALL[suffix][:7]) + compress(SMALL[suffix][7:]))
    assert read(other).evaluate((1,)) == problem.evaluate((1,))


@pytest.mark.parametrize("suffix", SMALL)
@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_truncated_archive(tmp_path, suffix, kind):
    data = (gzip.compress if kind == "gz" else lzma.compress)(SMALL[suffix])
    path = tmp_path / f"p.{suffix}.{kind}"
    for kept in (*range(6, len(data) - 2, 5), len(data) - 2):
        path.write_bytes(data[:kept])
        with pytest.raises(FormatError, match=rf"p\.{suffix}\.{kind}: the \.{kind} data end too early"):
            read(path)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_damaged_archive(tmp_path, kind):
    content = SMALL["wcsp"] + b"\n" * 500
    data = bytearray((gzip.compress if kind == "gz" else lzma.compress)(content))
    path = tmp_path / f"p.wcsp.{kind}"
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        try:
            found = read_bytes(path)
        except FormatError as error:
            assert error.line is None
            assert str(path) in str(error)
        else:
            assert found == content  # a time stamp or a flag without meaning


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_name_that_breaks_its_promise(tmp_path, kind):
    path = tmp_path / f"p.wcsp.{kind}"
    path.write_bytes(SMALL["wcsp"])
    with pytest.raises(FormatError, match=rf"found no \.{kind} header, expected"):
        read(path)


@pytest.fixture(scope="module", params=["gz", "xz"])
def bomb(request) -> tuple[str, bytes]:
    """The kind of an archive, and one of some kilobytes whose content is 96 MiB."""
    million = b"0 " * 2**19
    packer = zlib.compressobj(1, wbits=31) if request.param == "gz" else lzma.LZMACompressor(preset=0)
    return request.param, b"".join([*(packer.compress(million) for _ in range(BOMB_BLOCKS)), packer.flush()])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bomb_is_stopped_while_decompressing(tmp_path, suffix, bomb):
    kind, content = bomb
    path = tmp_path / f"p.{suffix}.{kind}"
    path.write_bytes(content)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"larger than 4,194,304 bytes.*OOCBE_MAX_INPUT_BYTES"):
            read(path, max_bytes=4 * 2**20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * 2**20  # the whole would be 96 MiB


def test_archive_that_asks_for_too_much_memory(tmp_path):
    path = tmp_path / "p.wcsp.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    packed = bytearray(lzma.compress(SMALL["wcsp"], check=lzma.CHECK_NONE, filters=[{**filters[0], "dict_size": 4096}]))
    # The dictionary's size is the last byte of the filter's properties in the block header: 36 means 1 GiB.
    place = packed.index(bytes([lzma.FILTER_LZMA2, 1, 0])) + 2
    packed[place] = 36
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    path.write_bytes(packed)
    with pytest.raises(FormatError, match=r"damaged \.xz data .*[Mm]emory"):
        read(path)


def test_limit_from_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "p.wcsp"
    path.write_bytes(SMALL["wcsp"])
    monkeypatch.setenv("OOCBE_MAX_INPUT_BYTES", str(len(SMALL["wcsp"])))
    assert read(path).sizes == (2,)
    monkeypatch.setenv("OOCBE_MAX_INPUT_BYTES", str(len(SMALL["wcsp"]) - 1))
    with pytest.raises(FormatError, match="OOCBE_MAX_INPUT_BYTES"):
        read(path)
    assert read(path, max_bytes=10**6).sizes == (2,)
    for wrong in ("many", "0", "-5"):
        monkeypatch.setenv("OOCBE_MAX_INPUT_BYTES", wrong)
        with pytest.raises(UsageError):
            read(path)


def test_format_by_name_and_by_suffix(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes(SMALL["wcsp"])
    assert read(path, format="wcsp").evaluate((1,)) == 5
    with pytest.raises(
        UsageError, match=r"unknown suffix of a file format; name one .* known formats: " + ", ".join(SUFFIXES)
    ):
        read(path)
    with pytest.raises(UsageError, match="unknown format 'json'"):
        read(path, format="json")
    (tmp_path / "P.WCSP").write_bytes(SMALL["wcsp"])
    assert read(tmp_path / "P.WCSP").evaluate((1,)) == 5


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_problems_are_read_from_pipes(compress):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(compress(SMALL["wcsp"]))
    try:
        assert read(f"/dev/fd/{reading}", format="wcsp").evaluate((1,)) == 5
    finally:
        os.close(reading)


def test_places_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        read("a" * 300 + ".wcsp")
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "missing.wcsp")
    (tmp_path / "folder.wcsp").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "folder.wcsp")
    with pytest.raises(UsageError, match="cannot be written"):
        write(Problem((Variable("x", 2),)), tmp_path / "missing" / "p.wcsp")


@pytest.mark.parametrize("kind", ["", ".gz", ".xz"])
def test_writing_is_all_or_nothing(tmp_path, kind, monkeypatch):
    path = tmp_path / f"p.wcsp{kind}"
    write_bytes(path, b"before")
    first = path.read_bytes()

    def fail(_self, _target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(ResourceError, match="the disk is full"):
            write_bytes(path, b"after")
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    write_bytes(path, b"before")
    assert path.read_bytes() == first  # no time stamp inside
    assert read_bytes(path) == b"before"


def test_spot_is_written_only_where_it_can_express_the_problem(tmp_path):
    pairs = Function.from_array((0, 1), [[0, 1], [2, 3]])
    with pytest.raises(UnsupportedError):
        write(Problem((Variable("x", 2), Variable("y", 2)), (pairs,)), tmp_path / "p.spot")


def test_reading_needs_no_heavy_imports():
    import subprocess

    code = "import sys, oocbe.formats; sys.exit(any(m in sys.modules for m in ('zarr', 'numba', 'rich', 'typer')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_links_are_followed_and_pipes_are_written_into(tmp_path):
    target, link, pipe = tmp_path / "target.wcsp", tmp_path / "link.wcsp", tmp_path / "pipe.wcsp"
    target.write_bytes(b"before")
    link.symlink_to(target)
    write_bytes(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_bytes(pipe, b"through")
        assert os.read(descriptor, 100) == b"through"
    finally:
        os.close(descriptor)
    assert pipe.is_fifo()


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(tmp_path, packed):
    content = gzip.compress(SMALL["wcsp"]) if packed else SMALL["wcsp"]
    command = [sys.executable, "-m", "oocbe", "convert", "-", str(tmp_path / "out.wcsp"), "--format", "wcsp"]
    subprocess.run(command, input=content, capture_output=True, check=True)
    assert read(tmp_path / "out.wcsp").evaluate([1]) == 5
    done = subprocess.run(command[:6], input=content, capture_output=True, check=False)
    assert (done.returncode, b"known formats" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.wcsp", "p 1 2 1 9\n2\n1 0 0 1\n1 5\n"),
        ("p.cfn", '{"problem": {"name": "p", "mustbe": "<9"}, "variables": {"a": 2}, "functions": {}}'),
        (
            "p.bif",
            "network p { }\nvariable a { type discrete [ 2 ] { x, y }; }\nprobability ( a ) { table 0.5, 0.5; }\n",
        ),
        ("p.wcnf", "h 1 0\n3 -1 0\n"),
        ("p.uai", "MARKOV\n1\n2\n1\n1 0\n2\n0.5 0.5\n"),
        ("p.qpbo", "1 1\n1 1 3\n"),
        ("p.lp", "minimize\n 2 x\nsubject to\nbinary\n x\nend\n"),
    ],
)
def test_files_from_windows(tmp_path, name, text):
    """Lines that end with two characters, and a mark in front that says nothing."""
    plain, windows = tmp_path / name, tmp_path / f"windows.{name}"
    plain.write_bytes(text.encode())
    windows.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    one, other = read(plain), read(windows)
    assert one.variables == other.variables
    assert [one.evaluate((value,)) for value in (0, 1)] == [other.evaluate((value,)) for value in (0, 1)]


def test_a_clause_of_the_new_form_ends_on_its_line(tmp_path):
    """Where its 0 is missing, the next line's weight would be a literal of it."""
    file = tmp_path / "p.wcnf"
    file.write_text("c begins\nh 1 2\n3 -1 0\n")
    with pytest.raises(FormatError, match="line 3: found '3', expected 0 at the end of the clause on the line before"):
        read(file)
    file.write_text("p wcnf 3 1 9\n9 1 2\n3 0\n")  # the old form has clauses over several lines
    assert read(file).constraints
