"""Reading is held to the memory limit, and takes little beside the file's bytes."""

from __future__ import annotations

import gzip
import lzma
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import oocbe
from oocbe.dcop import dpop
from oocbe.errors import FormatError, ResourceError
from oocbe.formats.text import LONGEST_TOKEN, Lexer, Text
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.memory import PROGRAM_BYTES, MemoryLimit
from oocbe.runtime.process_memory import own_memory

MIB = 1 << 20
PROBLEM = b"p 2 2 1 10\n2 2\n2 0 1 0 1\n0 0 5\n"


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("xz", partial(lzma.compress, preset=0))], ids=["gz", "xz"]
)
@pytest.mark.parametrize("filling", [b" ", b"0", b"1 "])
def test_what_decompresses_to_more_than_the_limit_is_refused(tmp_path, suffix, compress, filling):
    path = tmp_path / f"bomb.wcsp.{suffix}"
    path.write_bytes(compress(PROBLEM + filling * (30 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(ResourceError, match="OOCBE_MAX_INPUT_BYTES") as caught:
            oocbe.read(path, memory="16MiB")
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
    for named in (str(path), f"{8 * MIB:,}", f"{16 * MIB:,}", f"{path.stat().st_size:,}", "--memory", "OOCBE_MEMORY"):
        assert named in str(caught.value)


@pytest.mark.parametrize("verb", [oocbe.solve, oocbe.plan, oocbe.bound, oocbe.count, dpop, oocbe.JunctionTree])
def test_verbs_hold_reading_to_their_limit(tmp_path, verb):
    path = tmp_path / "bomb.wcsp.gz"
    path.write_bytes(gzip.compress(PROBLEM + b" " * (20 * MIB)))
    with pytest.raises(ResourceError, match="16,777,216"):
        verb(path, memory="16MiB")


def test_files_of_a_named_format_that_are_solved_side_by_side_are_held_to_their_limit(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(PROBLEM + b" " * (20 * MIB)))
    with ThreadPoolExecutor(1) as pool:
        (outcome,) = oocbe.solve_many([path], executor=pool, format="wcsp", memory="16MiB")
    assert outcome.failure.kind == "ResourceError" and "16,777,216" in outcome.failure.message


def test_a_decompressor_that_asks_for_gigabytes_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]
    path = tmp_path / "window.wcsp.xz"
    path.write_bytes(lzma.compress(PROBLEM, filters=filters))
    with pytest.raises(ResourceError, match="--memory"):
        oocbe.read(path, memory="64MiB")


def test_blanks_that_fit_are_read(tmp_path):
    path = tmp_path / "blank.wcsp.gz"
    path.write_bytes(gzip.compress(PROBLEM + b" " * (5 * MIB)))
    assert oocbe.solve(path, memory="16MiB").value == 0


def test_tokens_take_no_memory_of_their_own():
    numbers = np.arange(400_000)
    data = " ".join(map(str, numbers)).encode()
    tracemalloc.start()
    try:
        text = Text("p", data)
        assert [text.integer(i, "a number") for i in (399_999, 0, 200_000)] == [399_999, 0, 200_000]
        assert tracemalloc.get_traced_memory()[0] < 16 * MIB  # those of one window
        values = text.integers(0, len(text), "numbers")
        assert tracemalloc.get_traced_memory()[1] < values.nbytes + 32 * MIB
    finally:
        tracemalloc.stop()
    assert (values == numbers).all()


def test_a_token_with_punctuation_takes_a_few_bytes():
    import re

    text = Text("p", b"[1, 2.5] " * 10_000)
    pattern = re.compile(r'[\s,]+|"(?P<quoted>[^"]*)"|(?P<mark>[\[\]])|(?P<word>[^\s,\[\]"]+)')
    tracemalloc.start()
    try:
        lexer = Lexer(text, pattern)
        assert tracemalloc.get_traced_memory()[0] < len(lexer) + 40_000 * 12
    finally:
        tracemalloc.stop()


def test_a_word_of_megabytes_is_refused_without_a_copy():
    text = Text("p", b"0" * (LONGEST_TOKEN + 1) + b" 1")
    tracemalloc.start()
    try:
        for read in (text.word, text.integer, lambda token, what: text.floats(token, 1, what)):
            with pytest.raises(FormatError, match="line 1: found '0000"):
                read(0, "a number")
    finally:
        tracemalloc.stop()
    assert text.integer(1, "a number") == 1


def test_objects_of_a_reader_are_held_to_the_limit(monkeypatch, tmp_path):
    path = tmp_path / "p.cnf"
    path.write_text("p cnf 2 40000\n" + "1 -2 0\n" * 40_000)
    monkeypatch.setattr("oocbe.runtime.memory.PROGRAM_BYTES", 0)
    taken = iter(range(0, 1 << 40, 4 * MIB))
    monkeypatch.setattr("oocbe.runtime.memory.own_memory", lambda: next(taken))
    monkeypatch.setattr("oocbe.runtime.memory.INTERVAL_SECONDS", 0)
    with pytest.raises(ResourceError, match=f"{path}: reading it takes too much memory"):
        oocbe.read(path, memory="1MiB")


def test_limits_nest_and_the_tightest_holds(monkeypatch):
    own = own_memory()
    monkeypatch.setattr("oocbe.runtime.memory.INTERVAL_SECONDS", 0)
    with MemoryLimit(8 * MIB), MemoryLimit(64 * MIB) as inner:
        assert inner.limit == 8 * MIB
        monkeypatch.setattr("oocbe.runtime.memory.own_memory", lambda: own + PROGRAM_BYTES + 20 * MIB)
        with pytest.raises(ResourceError, match=f"the limit is {8 * MIB:,}"):
            check_deadline()
    check_deadline()  # outside of all blocks there is none
