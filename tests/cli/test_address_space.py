"""A limit on address space (``ulimit -v``): out of memory, with the limit's name, whatever fails first."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import oocbe
from oocbe.errors import FormatError, ModelError
from oocbe.model.results.failure import exit_code_of, message_of
from oocbe.runtime import address_space

DAILY = str(Path(__file__).parents[2] / "examples" / "daily.spot")


def limited(mebibytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    command = [sys.executable, "-m", "oocbe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what is used")
@pytest.mark.parametrize("mebibytes", [50, 150, 300])
def test_what_libraries_need_is_looked_at_before_they_are_loaded(mebibytes: int) -> None:
    done = limited(mebibytes, "solve", DAILY, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["exit_code"]) == (30, 30)
    assert done.stderr.startswith("oocbe: out of memory: loading ")
    assert f"the limit on address space (ulimit -v) is {mebibytes} MiB: raise it" in done.stderr
    if mebibytes == 50:
        assert limited(mebibytes, "--version").returncode == 0


@pytest.mark.parametrize(
    "error",
    [
        OSError("Could not find/load shared object file 'libllvmlite.so'"),
        ImportError("failed to map segment from shared object"),
        SystemError("initialization of _internal failed without raising an exception"),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_under_a_limit_what_fails_to_load_is_out_of_memory(error, monkeypatch):
    monkeypatch.setattr(address_space, "limit", lambda: 300 << 20)
    assert exit_code_of(error) == 30
    assert message_of(error).startswith("out of memory")
    monkeypatch.setattr(address_space, "limit", lambda: None)
    is_plain = isinstance(error, MemoryError | ImportError) or getattr(error, "errno", None) == 12
    assert (exit_code_of(error) == 30) == is_plain
    assert exit_code_of(ModuleNotFoundError("no module")) == 1


def test_under_a_limit_other_errors_stay_what_they_are(monkeypatch):
    monkeypatch.setattr(address_space, "limit", lambda: 300 << 20)
    others = [
        ImportError("cannot import name 'x' from 'oocbe'"),
        SystemError("bad argument to internal function"),
        OSError("libx.so: cannot open shared object file: No such file or directory"),
    ]
    for error in others:
        assert exit_code_of(error) != 30 and "memory" not in message_of(error)
        error.__cause__ = MemoryError()
        assert (exit_code_of(error) == 30) == (not isinstance(error, OSError))


@pytest.mark.parametrize(
    "error",
    [
        SystemError("error return without exception set"),
        ImportError("mmap.so: failed to map segment from shared object"),
        ImportError("libarrow.so: cannot map zero-fill pages"),
        RuntimeError("can't start new thread"),
        RuntimeError("Zstd compression error: b'Allocation error : not enough memory'"),
        Exception("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),  # Arrow
    ],
)
def test_signs_of_failed_allocations_are_known_without_a_limit(error):
    assert exit_code_of(error) == 30


@pytest.mark.parametrize("number", [7**100, 10**600, 2**14000])
def test_huge_numbers_are_shortened_in_messages(number):
    length = len(str(number))
    for text in (f"the number {number} there", f"the number {number:,} there"):
        for error in (ModelError(text), FormatError("x", 3, text)):
            shown = str(error)
            assert f"the number {str(number)[:12]}… ({length:,} digits) there" in shown and len(shown) < 100
    assert str(ModelError(f"{2**64} and {2**127:,}")) == f"{2**64} and {2**127:,}"


def test_sizes_beyond_any_memory_are_powers_of_two():
    scope = {f"x{i}": 3 for i in range(20_000)}
    table = oocbe.Table.from_rows(scope, [[0] * len(scope)], [1])
    with pytest.raises(oocbe.errors.ResourceError, match=r"takes about 2\^31702 B"):
        oocbe.CompleteTable.from_table(table)
