"""A pipe, socket, device or folder in the place of a file is refused, and never waited for."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import FormatError, OocbeError, TimeLimitError, UsageError
from oocbe.tables.parts import PartsWriter, PartWriter
from oocbe.tables.stored import open_table
from tests.helpers.killed_trees import network, stored_tree

SECONDS = 60
"""After so long a call that waits for a pipe ends with an error; it ends at once where it does not wait."""


@pytest.fixture(autouse=True)
def _ends():
    def refuse(*_: object) -> None:
        raise AssertionError("waited")

    before = signal.signal(signal.SIGALRM, refuse)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


MADE = {"pipe": pipe, "socket": listening_socket, "device": device, "folder": folder}
everything = pytest.mark.parametrize("what", MADE)


def replaced(path: Path, what: str) -> None:
    if path.exists():
        path.unlink()
    MADE[what](path)


def rows() -> oocbe.Table:
    return oocbe.Table.from_rows({"a": 3, "b": 2}, [[0, 0], [1, 0], [2, 1]], [1, 2, 3])


def table(path: Path) -> None:
    oocbe.StoredTable.save(path, rows(), chunk_rows=2)


def columns(path: Path) -> None:
    oocbe.StoredTable.save(path, rows(), chunk_rows=2, codec="zstd")


def parts(path: Path) -> None:
    given = rows()
    with PartsWriter(path, given.layout, given.dtype, given.semiring) as writer:
        part = writer.part_path()
        with PartWriter(part, given.layout, given.dtype, given.semiring) as one:
            one.append(given.keys, given.values)
        writer.add(part)


def complete(path: Path) -> None:
    oocbe.StoredCompleteTable.save(path, oocbe.CompleteTable.from_table(rows()))


def read_all(path: Path) -> None:
    found = open_table(path)
    found.verify()
    found.to_table()


def problem() -> oocbe.Problem:
    variables = tuple(oocbe.Variable(name, 2) for name in "abc")
    functions = tuple(oocbe.Function.from_array((i, i + 1), np.array([[1.0, 2.0], [3.0, 0.5]])) for i in range(2))
    return oocbe.Problem(variables, functions, semiring=oocbe.SUM_PRODUCT)


def tree(path: Path) -> None:
    oocbe.JunctionTree(problem()).save(path)


def tree_on_disk(path: Path) -> None:
    stored_tree(network(), path).save(path)


def ask(path: Path) -> None:
    found = oocbe.JunctionTree.open(path)
    for variable in found.problem.variables:
        found.marginal(variable.name)


def run(path: Path) -> None:
    oocbe.solve(problem().in_semiring(oocbe.MIN_SUM), workdir=path)


def resume(path: Path) -> None:
    oocbe.solve(problem().in_semiring(oocbe.MIN_SUM), workdir=path, resume=True)


KEPT = [
    (table, read_all), (columns, read_all), (parts, read_all), (complete, read_all), (tree, ask), (tree_on_disk, ask),
    (run, resume),
]  # fmt: skip


@everything
@pytest.mark.parametrize(("make", "read"), KEPT, ids=lambda given: given.__name__)
def test_every_file_of_a_folder_that_oocbe_has_written(make, read, what, tmp_path):
    make(tmp_path / "sound")
    names = [p.relative_to(tmp_path / "sound") for p in (tmp_path / "sound").rglob("*") if p.is_file()]
    assert names
    for number, name in enumerate(names):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "sound", copy)
        replaced(copy / name, what)
        try:
            read(copy)
        except OocbeError as error:
            assert name.name in str(error) or f"chunk {name.name}" in str(error)
            if what == "pipe":
                assert "is no file but a pipe" in str(error)
            if name.suffix == ".json":
                assert CliRunner().invoke(app, ["inspect", str(copy)]).exit_code in (2, 40)
        else:
            # A lock of nobody is made anew; an answer that cannot be read is computed again, with a note.
            assert make is run and name.name in ("lock", "result.json")


@everything
def test_files_that_a_person_names(what, tmp_path):
    oocbe.write(problem(), tmp_path / "p.uai")
    cases = {
        "x.evid": ["solve", "p.uai", "--evidence", "x.evid"],
        "x.sol": ["verify", "p.uai", "x.sol"],
        "x.json": ["verify", "p.uai", "--certificate", "x.json"],
        "x.csv": ["query", "t", "--cases", "x.csv"],
        "x.order": ["solve", "p.uai", "--order", "x.order"],
        "x.trace": ["trace", "x.trace"],
        "x.parquet": ["convert", "x.parquet", "y"],
    }
    tree(tmp_path / "t")
    for name, command in cases.items():
        MADE[what](tmp_path / name)
        given = [str(tmp_path / word) if word in (name, "p.uai", "t", "y") else word for word in command]
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 2, (command, done.output)
        reasons = ("is no file", "folder", "nor a file that exists")
        assert any(text in done.stderr for text in reasons), (command, done.stderr)


@everything
def test_parquet(what, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "folder").mkdir()
    written = rows().to_parquet(tmp_path / "folder" / "a.parquet")
    wrong = tmp_path / "folder" / "b.parquet"
    MADE[what](wrong)
    given = [written.parent, [written, wrong]] if what != "folder" else []
    for source in (wrong, *given):
        with pytest.raises((FormatError, UsageError), match=r"is no file but a|no Parquet file is in this folder"):
            oocbe.Table.from_parquet(source)


@pytest.mark.parametrize("what", ["socket", "device", "folder"])
def test_problems(what, tmp_path):
    MADE[what](tmp_path / "p.uai")
    with pytest.raises(UsageError, match=r"is no file but|this is a folder"):
        oocbe.read(tmp_path / "p.uai")


def test_pipes_of_a_shell_are_read_as_files_are(tmp_path):
    """What ``<(…)`` names: a pipe that some process has open."""
    oocbe.write(problem(), tmp_path / "p.uai")
    (tmp_path / "x.evid").write_text("1 0 1")
    texts = {name: (tmp_path / name).read_text() for name in ("p.uai", "x.evid")}
    with pipes(texts.values()) as (model, evidence):
        found = oocbe.read(model, "uai", evidence)
    assert found.evaluate([1, 0, 1]) == oocbe.read(tmp_path / "p.uai").evaluate([1, 0, 1])
    solution = oocbe.solve(tmp_path / "p.uai", semiring="max-product").labels
    with pipes([" ".join(f"{name}={label}" for name, label in solution.items())]) as (named,):
        assert CliRunner().invoke(app, ["verify", str(tmp_path / "p.uai"), named]).exit_code == 0


@contextmanager
def pipes(texts):
    """Names of pipes from which a process would read some texts."""
    with ExitStack() as opened:
        names = []
        for text in texts:
            reading, writing = os.pipe()
            opened.callback(os.close, reading)
            os.write(writing, text.encode())
            os.close(writing)
            names.append(f"/dev/fd/{reading}")
        yield names


def test_a_pipe_with_a_name_is_waited_for(tmp_path):
    oocbe.write(problem(), tmp_path / "p.uai")
    os.mkfifo(tmp_path / "pipe.uai")
    text = (tmp_path / "p.uai").read_text()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit((tmp_path / "pipe.uai").write_text, text)
        assert oocbe.read(tmp_path / "pipe.uai").sizes == (2, 2, 2)
        writing.result()


@pytest.mark.parametrize("written", ["nothing opened it", "MARKOV 3"])
@pytest.mark.parametrize("command", [["solve"], ["solve", "--task", "count"], ["bound"], ["dcop"]], ids=" ".join)
def test_a_time_limit_ends_the_wait_for_a_pipe(command, written, tmp_path):
    """Nobody writes, or somebody begins and does not go on."""
    path = tmp_path / "pipe.uai"
    os.mkfifo(path)
    with ExitStack() as held:
        if written == "MARKOV 3":
            held.callback(os.close, os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            writing = os.open(path, os.O_WRONLY)
            held.callback(os.close, writing)
            os.write(writing, written.encode())
        done = CliRunner().invoke(app, [*command, str(path), "--time-limit", "0.2"])
    assert done.exit_code == 20, done.output
    assert "the time limit was reached" in done.stderr


@pytest.mark.parametrize("verb", [oocbe.solve, oocbe.plan, oocbe.count, partial(oocbe.bound, z=2)])
def test_a_time_limit_of_a_verb_holds_for_reading(verb, tmp_path):
    os.mkfifo(tmp_path / "pipe.uai")
    with pytest.raises(TimeLimitError, match="the time limit was reached"):
        verb(tmp_path / "pipe.uai", time_limit=0.2)
