"""An answer is printed also where a file beside it cannot be written; ``-`` is standard output, or refused."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app
from oocbe.cli.output import beside_answer, code_beside
from oocbe.errors import CorruptDataError, RequestedEndError, TimeLimitError, ValueRangeError
from oocbe.formats import read
from oocbe.model.results.failure import Failure

GRID = "examples/grid.wcsp"
NETWORK = """network small { }
variable rain { type discrete [ 2 ] { yes, no }; }
probability ( rain ) { table 0.25, 0.75; }
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("suffix", ["", ".toulbar2.sol", ".csv"])
def test_the_optimum_is_printed_where_its_solution_cannot_be_written(tmp_path, suffix):
    target = tmp_path / f"full{suffix}"
    target.symlink_to("/dev/full")
    done = call("solve", GRID, "--solution", target, "--quiet")
    assert (done.exit_code, done.stdout) == (30, "optimal 1812\n")
    assert str(target) in done.stderr and "disk is full" in done.stderr and "--workdir" not in done.stderr


def test_the_json_has_the_answer_and_the_error():
    done = call("solve", GRID, "--solution", "/dev/full", "--json")
    content = json.loads(done.stdout)
    assert (done.exit_code, content["value"], content["status"]) == (30, 1812, "optimal")
    assert content["error"]["exit_code"] == 30 and "/dev/full" in content["error"]["message"]
    assert "error" not in json.loads(call("solve", GRID, "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "flag", "suffix"),
    [
        (["solve", GRID, "--certificate"], "optimal", ""),
        (["solve", GRID, "--report"], "optimal", ".html"),
        (["solve", "examples/options.cnf", "--task", "count", "--opb"], "exact", ".opb"),
        (["solve", "small.bif", "--task", "mpe", "--output"], "exact", ".MPE"),
        (["solve", "small.bif", "--task", "mpe", "--solution"], "exact", ""),
        (["bound", GRID, "--solution"], "1812", ""),
        (["dcop", GRID, "--solution"], "1812", ""),
        (["dcop", GRID, "--metrics"], "1812", ""),
        (["dcop", GRID, "--algo", "dpop", "--output"], "FINISHED", ""),
        (["propagate", GRID, "--output"], "fixpoint", ".cfn"),
        (["uai", GRID, "-", "-", "MAP", "--output"], "MAP", ""),
    ],
    ids=str,
)
def test_other_files_beside_an_answer(tmp_path, arguments, flag, suffix):
    target = tmp_path / f"full{suffix}"
    target.symlink_to("/dev/full")
    (tmp_path / "small.bif").write_text(NETWORK)
    arguments = [tmp_path / text if text == "small.bif" else text for text in arguments]
    done = call(*arguments, target, "--quiet")
    assert (done.exit_code, flag in done.stdout, f"{target}: " in done.stderr) == (30, True, True), done.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 30),
        (CorruptDataError("a block is damaged"), 40),
        (ValueRangeError("the sum leaves int64"), 2),
        (TimeLimitError("the time limit of 1 s was reached"), 20),
    ],
    ids=repr,
)
def test_an_answer_outlives_what_fails_for_its_certificate(tmp_path, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setattr("oocbe.certificates.making.write_certificate", fail)
    done = call("solve", GRID, "--certificate", tmp_path / "c", "--quiet")
    assert (done.exit_code, done.stdout) == (code, "optimal 1812\n"), done.stderr
    assert f"{tmp_path / 'c'}: not written: " in done.stderr and "no answer" not in done.stderr


def test_a_requested_end_is_no_failure_of_a_file():
    with pytest.raises(RequestedEndError), beside_answer(Path("c")):
        raise RequestedEndError("stop")


def test_exit_codes_of_answers_are_kept_and_of_several_failures_the_greatest_counts(tmp_path, monkeypatch):
    (tmp_path / "no.cnf").write_text("p cnf 1 2\n1 0\n-1 0\n")
    (tmp_path / "full.html").symlink_to("/dev/full")
    done = call("solve", tmp_path / "no.cnf", "--report", tmp_path / "full.html", "--quiet")
    assert (done.exit_code, done.stdout, "disk is full" in done.stderr) == (10, "infeasible\n", True)
    for failures, kept in (([], 0), ([2, 40, 30], 40)):
        monkeypatch.setattr("oocbe.cli.output.lost", [Failure("", "", code) for code in failures])
        assert [code_beside(code) for code in (None, 0, 10, 11, 20, 129, 130, 143)] == [
            *[kept] * 2,
            *(10, 11, 20, 129, 130, 143),
        ]


def test_a_table_of_a_batch_is_tried_first(tmp_path):
    done = call("solve", GRID, GRID, "--csv", "/dev/full", "--quiet")
    assert (done.exit_code, done.stdout, "/dev/full: the disk is full" in done.stderr) == (30, "", True), done.stderr
    done = call("solve", GRID, GRID, "--csv", "/dev/fd/missing", "--quiet")
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr


def test_rows_of_a_batch_may_be_lost(tmp_path):
    table, begin = tmp_path / "t.csv", len("file,status,value,bound,seconds,exit code,error\r\n")
    run = [sys.executable, "-m", "oocbe", "solve", GRID, GRID, "--csv", table, "--quiet"]

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (begin + 20, begin + 20))

    done = subprocess.run(run, capture_output=True, text=True, preexec_fn=limit)
    assert (done.returncode, done.stdout.count("optimal 1812")) == (30, 2), done.stderr
    assert f"{table}: not written: File too large" in done.stderr
    assert table.stat().st_size == begin + 20


def test_rows_of_a_batch_are_written_whole(tmp_path, monkeypatch):
    """Also where the system takes a part of a row at a time."""
    write, table = io.FileIO.write, tmp_path / "t.csv"

    class Partial(io.FileIO):
        def write(self, data):
            return write(self, bytes(data)[:5])

    def opened(path, mode="r", buffering=-1, encoding=None, **_):
        if path != table or "w" not in mode:
            return of_path(path, mode, buffering, encoding)
        raw = Partial(path, mode.removesuffix("b"))
        return raw if buffering == 0 else io.TextIOWrapper(io.BufferedWriter(raw), encoding, newline="")

    of_path = Path.open
    monkeypatch.setattr(Path, "open", opened)
    assert call("solve", GRID, GRID, "--csv", table, "--quiet").exit_code == 0
    assert [line.split(",")[2] for line in table.read_text().splitlines()] == ["value", "1812", "1812"]


def test_full_standard_output_gives_no_advice_about_a_folder():
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "oocbe", "solve", GRID, "--quiet"]
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "standard output: " in done.stderr, "--workdir" in done.stderr) == (30, True, False)


def test_a_solution_for_a_pipe_behind_a_link():
    run = [sys.executable, "-m", "oocbe", "solve", GRID, "--quiet", "--solution", "/dev/stdout"]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout.startswith("# oocbe solution")) == (0, True)
    assert done.stdout.endswith("optimal 1812\n")


def test_standard_output_is_not_a_target_of_its_own(tmp_path):
    with (tmp_path / "out").open("w") as out:
        run = [sys.executable, "-m", "oocbe", "solve", GRID, "--solution", tmp_path / "out"]
        done = subprocess.run(run, stdout=out, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "standard output goes there" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["solve", GRID, "--solution", "-"], "--solution -: standard output is for the answer"),
        (["propagate", GRID, "--output", "-"], "--output -: standard output is for the answer"),
        (["solve", GRID, "--trace", "-"], "--trace -: standard output is for the answer"),
        (["convert", GRID, "-", "--to", "cfn", "--json"], "OUT -: standard output is for the answer"),
        (["synth", "table", "-"], "OUT -: standard output is for the answer"),
        (["solve", GRID, "--hint", "-"], "--hint -: standard input is not supported here"),
        (["query", "tree", "--cases", "-"], "--cases -: standard input is not supported here"),
        (["join", "-", "--group-by", "a", "--count"], "FILE -: standard input is not supported here"),
    ],
    ids=str,
)
def test_a_dash_that_is_no_stream_is_refused(arguments, said):
    done = call(*arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert not Path("-").exists()


def test_problems_are_written_to_standard_output(tmp_path):
    done = call("convert", GRID, "-", "--to", "cfn")
    (tmp_path / "grid.cfn").write_text(done.stdout)
    assert (done.exit_code, read(tmp_path / "grid.cfn").sizes) == (0, read(GRID).sizes)
    done = call("synth", "random", "-", "--to", "wcsp", "-n", 3, "-d", 2)
    assert (done.exit_code, done.stdout.startswith("random-n3-d2")) == (0, True)
    assert not Path("-").exists()


@pytest.mark.parametrize("is_given", [True, False])
def test_another_work_folder_is_advised_where_one_was_given(tmp_path, monkeypatch, is_given):
    def load(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("oocbe.cli.solve.load", load)
    done = call("solve", GRID, *(["--workdir", tmp_path / "run"] if is_given else []))
    assert (done.exit_code, "; free some space" in done.stderr) == (30, True)
    assert ("another --workdir may have more" in done.stderr) == is_given


def test_an_answer_of_a_trace_keeps_the_error_of_its_run(tmp_path):
    assert call("solve", GRID, "--trace", tmp_path / "t.json").exit_code == 0
    (tmp_path / "t.png").symlink_to("/dev/full")
    done = call("trace", tmp_path / "t.json", "--png", tmp_path / "t.png", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"], str(tmp_path / "t.png") in done.stderr) == (
        30,
        None,
        True,
    )


def test_a_trace_that_cannot_begin_is_named():
    done = call("solve", GRID, "--trace", "/dev/full")
    assert (done.exit_code, "/dev/full: No space left on device" in done.stderr) == (30, True), done.stderr
