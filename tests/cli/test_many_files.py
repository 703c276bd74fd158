"""``oocbe solve FILE FILE…``: an answer a file, an exit code of all, and nothing left behind after Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.resources import files as resources
from multiprocessing import Pipe
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.api.tasks.solving_processes import serve
from oocbe.cli.main import app
from oocbe.formats import write
from oocbe.runtime import interruption
from tests.helpers.signals import signalled_at_every_line
from tests.helpers.small_problems import clique

SCHEMA = json.loads(resources("oocbe").joinpath("schema", "solve.json").read_text())
FAST = ["--order-seconds", "0", "--backend", "cpu", "--jobs", "2"]
ONE = [*FAST[:-1], "1"]
"""With one process, whose start takes longer than all else."""


@pytest.fixture
def files(tmp_path):
    """Two problems, and between them a file that is none."""
    paths = [tmp_path / name for name in ("one.wcsp", "broken.wcsp", "two.wcsp")]
    write(clique(4, 3, largest=9), paths[0])
    paths[1].write_text("nothing\n")
    write(clique(5, 3, largest=9), paths[2])
    return paths


def test_lines_of_json_and_the_exit_code(files):
    found = CliRunner().invoke(app, ["solve", *map(str, files), *FAST, "--json"])
    answers = {}
    for line in found.stdout.splitlines():
        answer = json.loads(line)
        jsonschema.validate(answer, SCHEMA)
        answers[answer["input"]["path"]] = answer
    assert set(answers) == set(map(str, files))
    for path in (files[0], files[2]):
        assert answers[str(path)]["value"] == oocbe.solve(path, order_seconds=0, backend="cpu").value
    assert answers[str(files[1])]["error"]["type"] == "FormatError"
    assert "broken.wcsp" in found.stderr
    assert found.exit_code == 2


def test_a_folder_and_a_table_of_its_files(files, tmp_path):
    (tmp_path / "notes.txt").write_text("no problem\n")
    (tmp_path / "inner").mkdir()
    table = tmp_path / "table.csv"
    found = CliRunner().invoke(app, ["solve", str(tmp_path), *ONE, "--csv", str(table)])
    assert found.exit_code == 2
    assert "3 files: 2 optimal, 1 error" in found.stderr
    with table.open(newline="") as stream:
        rows = {row["file"]: row for row in csv.DictReader(stream)}
    assert set(rows) == set(map(str, files))
    for path in (files[0], files[2]):
        row, result = rows[str(path)], oocbe.solve(path, order_seconds=0, backend="cpu")
        assert (row["status"], row["value"], row["bound"]) == ("optimal", str(result.value), str(result.bound))
        assert (row["exit code"], row["error"]) == ("0", "")
    assert rows[str(files[1])]["status"] == "error" and "broken.wcsp" in rows[str(files[1])]["error"]
    refused = CliRunner().invoke(app, ["solve", str(tmp_path / "inner")])
    assert refused.exit_code == 2 and "no file in this folder" in refused.stderr
    (tmp_path / "inner" / "run.json").write_text("{}")
    refused = CliRunner().invoke(app, ["solve", str(tmp_path / "inner")])
    assert refused.exit_code == 2 and "this is a run directory" in refused.stderr
    refused = CliRunner().invoke(app, ["solve", *map(str, files), "--csv", str(files[2])])
    assert refused.exit_code == 2 and "this is the problem itself" in refused.stderr
    refused = CliRunner().invoke(app, ["solve", str(files[0]), "--csv", str(tmp_path / "missing" / "table.csv")])
    assert refused.exit_code == 2 and "--csv" in refused.stderr


def test_names_of_files_are_any_bytes(files, tmp_path):
    """Other commands call the problem by what UTF-8 has of the file's name."""
    odd, table, copy = tmp_path / os.fsdecode(b"odd\xff.spot"), tmp_path / "table.csv", tmp_path / "copy.wcsp"
    odd.write_bytes(Path("examples/daily.spot").read_bytes())
    found = CliRunner().invoke(app, ["solve", str(odd), str(files[0]), *ONE, "--csv", str(table)])
    assert found.exit_code == 0 and os.fsencode(odd) in table.read_bytes()
    assert CliRunner().invoke(app, ["convert", str(odd), str(copy)]).exit_code == 0
    assert copy.read_text().startswith("odd? ")


def test_lines_for_people(files):
    found = CliRunner().invoke(app, ["solve", str(files[0]), str(files[2]), *ONE, "--quiet"])
    value = oocbe.solve(files[2], order_seconds=0, backend="cpu").value
    assert f"{files[2]}  optimal {value}" in found.stdout.splitlines()
    assert found.exit_code == 0


@pytest.mark.parametrize(
    "flag", [["--solution", "x"], ["--task", "count"], ["--trace", "x"], ["--evidence", "x0=1"], ["--jobs", "0"]]
)
def test_flags_of_one_file_are_refused(files, flag):
    found = CliRunner().invoke(app, ["solve", str(files[0]), str(files[2]), *flag])
    assert found.exit_code == 2 and flag[0].strip("-") in found.stderr


def test_standard_input_is_one_problem(files):
    found = CliRunner().invoke(app, ["solve", str(files[0]), "-"])
    assert found.exit_code == 2 and "standard input" in found.stderr


def children_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_all_processes(tmp_path, interrupts_heard, number):
    """Whatever ends the command ends its processes; unless it is killed, no scratch folder is left."""
    hard = tmp_path / "hard.wcsp"
    write(clique(14, 8, largest=50, has_forbidden=False), hard)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "oocbe", "solve", str(hard), str(hard), "--jobs", "2", "--backend", "cpu"]
    command += ["--bounds", "none", "--order-seconds", "0", "--memory", "64MiB"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        deadline = time.monotonic() + 120
        while len(children := children_of(process)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(children) >= 2
        while len(list(scratch.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(number)
        process.wait(60)
        assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        while any(map(is_running, children)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(map(is_running, children))
        if number != signal.SIGKILL:
            assert list(scratch.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_leaves_the_answers_so_far(tmp_path, interrupts_heard, number):
    """A line for what is done and for what is at work; one sentence about what has not begun, and no traceback."""
    easy, hard = tmp_path / "easy.wcsp", tmp_path / "hard.wcsp"
    write(clique(3, 2), easy)
    write(clique(12, 8, largest=50), hard)
    command = [sys.executable, "-m", "oocbe", "solve", *map(str, (easy, hard, hard, hard)), "--json", *FAST]
    command += ["--bounds", "constant", "--workdir", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        first = json.loads(process.stdout.readline())
        assert (first["status"], first["input"]["path"]) == ("optimal", str(easy))
        deadline = time.monotonic() + 120
        known = '"assignment":['
        while sum(known in p.read_text() for p in tmp_path.glob("runs/hard*/known.json")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = children_of(process)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    answers = [json.loads(line) for line in out.splitlines()]
    for answer in answers:
        jsonschema.validate(answer, SCHEMA)
        assert (answer["status"], answer["input"]["path"]) == ("interrupted", str(hard))
        assert answer["value"] is not None and len(answer["assignment"]) == 12
    assert len(answers) == 2
    assert process.returncode == 128 + number
    assert "1 of 4 files without an answer" in errors and "Traceback" not in errors and "leaked" not in errors
    assert len(errors.splitlines()) == 2, errors
    assert not any(map(is_running, children))


def test_a_signal_at_any_line_of_a_solving_process_leaves_no_traceback(interrupts_heard, monkeypatch):
    """Its parent closes the connection, and ends it at the same time."""

    class Ended(Exception):
        pass

    def leave(code):
        raise Ended

    def served():
        ours, theirs = Pipe()
        with ours, theirs, suppress(Ended), socket.socket(fileno=os.dup(ours.fileno())) as connection:
            ours.send("task")
            connection.shutdown(socket.SHUT_WR)
            serve(theirs, str)
            return "returned"
        return "left"

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 60.0)
    ends = signalled_at_every_line(served, signal.SIGTERM, ("solving_processes.py", "interruption.py", "contextlib.py"))
    assert ends == {"returned", "left", "heard"}


def test_a_signal_at_any_moment_leaves_no_traceback(tmp_path, interrupts_heard):
    """While modules are imported, while processes start or solve, and at the end."""
    easy, hard = tmp_path / "easy.wcsp", tmp_path / "hard.wcsp"
    write(clique(3, 2), easy)
    write(clique(18, 12, largest=50), hard)  # takes much longer than the last moment
    command = [sys.executable, "-m", "oocbe", "solve", *map(str, (easy, hard, easy)), "--jobs", "2", "-q", *FAST]
    for moment in range(6):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(0.25 * moment)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM), (moment, errors)
        assert not any(sign in errors for sign in ("Traceback", "Exception", "leaked", "Error")), (moment, errors)
