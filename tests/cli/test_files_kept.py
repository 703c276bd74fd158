"""No output of a command takes the place of a file that it reads, or of another output."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app
from oocbe.errors import UsageError
from oocbe.formats.files import write_plain

NETWORK = """network small { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 2 ] { wet, dry }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( grass | rain ) { (yes) 1.0, 0.0; (no) 0.5, 0.5; }
"""

JOIN = ["join", "sales.csv", "costs.csv", "--group-by", "shop", "--max", "gain"]
QUERY = ["query", "w.tree", "--cases", "w.csv"]
SOLVE = ["solve", "grid.wcsp"]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy("examples/grid.wcsp", tmp_path)
    monkeypatch.chdir(tmp_path)
    texts = {"w.bif": NETWORK, "x.evid": "1 0 0\n", "w.csv": "rain\nyes\n", "ord.txt": "0 1\n", "x.sol": "a 0\n"}
    for name, text in (texts | dict.fromkeys(("sales.csv", "costs.csv"), "shop,gain\na,1\n")).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "d[1]").mkdir()
    shutil.copy(tmp_path / "sales.csv", tmp_path / "d[1]" / "a.csv")
    (tmp_path / "w.tree").mkdir()
    (tmp_path / "w.tree" / "tree.json").write_text("{}")
    (tmp_path / "hard").hardlink_to(tmp_path / "costs.csv")
    (tmp_path / "soft").symlink_to("w.csv")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*JOIN, "-o", "zz.csv", "--trace", "costs.csv"], "--trace costs.csv: this is read as FILE"),
        ([*JOIN, "-o", "zz.csv", "--trace", "hard"], "--trace hard: this is read as FILE"),
        ([*JOIN, "-o", "costs.csv"], "--output costs.csv: this is read as FILE"),
        (
            ["join", "s*.csv", "--group-by", "shop", "--max", "gain", "-o", "sales.csv"],
            "--output sales.csv: this is read as FILE",
        ),
        (
            ["join", "d[1]/*.csv", "costs.csv", "--group-by", "shop", "--max", "gain", "-o", "d[1]/a.csv"],
            "--output d[1]/a.csv: this is read as FILE",
        ),
        (
            ["join", "d[1]/**/a.csv", "costs.csv", "--group-by", "shop", "--max", "gain", "-o", "d[1]/a.csv"],
            "--output d[1]/a.csv: this is read as FILE",
        ),
        ([*QUERY, "-o", "zz.csv", "--trace", "w.csv"], "--trace w.csv: this is read as --cases"),
        ([*QUERY, "-o", "zz.csv", "--trace", "soft"], "--trace soft: this is read as --cases"),
        ([*QUERY, "-o", "zz.csv", "--trace", "w.tree/tree.json"], "--trace w.tree/tree.json: this is read as TREE"),
        ([*QUERY, "-o", "w.csv"], "--out w.csv: this is read as --cases"),
        (
            ["convert", "w.bif", "w4.uai", "--evidence", "x.evid", "--trace", "x.evid"],
            "--trace x.evid: this is read as --evidence",
        ),
        (
            ["convert", "w.bif", "x.evid", "--to", "uai", "--evidence", "x.evid"],
            "OUT x.evid: this is read as --evidence",
        ),
        (
            ["solve", "w.bif", "--evidence", "x.evid", "--solution", "x.evid"],
            "--solution x.evid: this is read as --evidence",
        ),
        (
            ["bound", "w.bif", "--evidence", "x.evid", "--solution", "x.evid"],
            "--solution x.evid: this is read as --evidence",
        ),
        (["uai", "w.bif", "x.evid", "-", "MAR", "-o", "x.evid"], "--output x.evid: this is read as EVIDENCE"),
        ([*SOLVE, "--order", "ord.txt", "--solution", "ord.txt"], "--solution ord.txt: this is read as --order"),
        (["solve", "grid.wcsp", "w.bif", "--csv", "w.bif"], "--csv w.bif: this is the problem itself"),
        (["propagate", "grid.wcsp", "--output", "grid.wcsp"], "--output grid.wcsp: this is the problem itself"),
        (["trace", "ord.txt", "--png", "ord.txt"], "--png ord.txt: this is read as FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_output_over_an_input_is_refused_before_any_work(folder, arguments, said):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = call(*arguments)
    assert (done.exit_code, f"{said}; name another file" in done.stderr) == (2, True), done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*JOIN, "-o", "zz.csv", "--trace", "zz.csv"], "--output zz.csv: the trace goes there"),
        ([*QUERY, "-o", "zz.csv", "--trace", "zz.csv"], "--out zz.csv: the trace goes there"),
        (["convert", "grid.wcsp", "zz.cfn", "--trace", "zz.cfn"], "OUT zz.cfn: the trace goes there"),
        (["compile", "w.bif", "zz", "--trace", "zz"], "TREE zz: the trace goes there"),
    ],
)
def test_an_output_over_another_output_is_refused_before_any_work(folder, arguments, said):
    done = call(*arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not list(folder.glob("zz*"))


def test_a_table_of_answers_may_lie_in_the_folder_of_the_problems(folder):
    for _ in range(2):
        (folder / "w.bif").unlink(missing_ok=True)
        assert call("solve", folder, "--csv", folder / "answers.csv").exit_code == 0


def test_a_solution_may_take_the_place_of_its_hint(folder):
    for hint in ([], ["--hint", "best.sol"]):
        assert call(*SOLVE, *hint, "--solution", "best.sol").exit_code == 0
    assert call("verify", "grid.wcsp", "best.sol").exit_code == 0


def test_a_count_in_lines_is_no_file(folder):
    (folder / "competition").mkdir()
    assert "s SATISFIABLE" in call("solve", "grid.wcsp", "--task", "count", "-o", "competition").stdout


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("solve - --format wcsp --solution grid.wcsp < grid.wcsp", "--solution grid.wcsp: this is the problem itself"),
        ("convert - grid.wcsp --format wcsp --to cfn < grid.wcsp", "OUT grid.wcsp: this is the problem itself"),
        ("solve grid.wcsp --solution /dev/stderr", "--solution /dev/stderr: standard error goes there"),
        ("convert grid.wcsp log --to cfn", "OUT log: standard error goes there"),
        ("solve grid.wcsp --solution out > out", "--solution out: standard output goes there"),
    ],
)
def test_an_output_over_an_open_stream_is_refused(folder, shell, said):
    before = (folder / "grid.wcsp").read_bytes()
    subprocess.run(f"{sys.executable} -m oocbe {shell} 2> log", shell=True, check=False)
    assert f"{said}; name another file" in (folder / "log").read_text()
    assert (folder / "grid.wcsp").read_bytes() == before


def test_names_that_are_read_as_no_file_may_be_written(folder):
    (folder / "auto").write_text("")
    assert call(*SOLVE, "--solution", "auto").exit_code == 0
    (folder / "rain=yes").write_text("")
    assert call("solve", "w.bif", "--evidence", "rain=yes", "--solution", "rain=yes").exit_code == 0


@pytest.mark.parametrize("code", [errno.EACCES, errno.EBUSY, errno.EPERM, errno.EXDEV])
@pytest.mark.parametrize("step", ["temporary_beside", "replace"])
def test_a_file_is_written_in_place_where_its_folder_takes_no_other(folder, monkeypatch, step, code):
    def refused(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"oocbe.formats.files.{step}", refused)
    (folder / "same").hardlink_to(folder / "x.sol")
    write_plain(folder / "x.sol", "a 1\n")
    assert (folder / "same").read_text() == "a 1\n"
    with pytest.raises(UsageError, match=r"new[.]sol: cannot be written"):
        write_plain(folder / "new.sol", "a 1\n")
    assert not (folder / "new.sol").exists()


def test_a_file_in_a_folder_that_takes_no_other_is_no_reason_to_refuse(folder, monkeypatch):
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: path != folder and access(path, mode))
    assert call(*SOLVE, "--solution", folder / "x.sol").exit_code == 0
    assert call(*SOLVE, "--solution", folder / "new.sol").exit_code == 2


def test_the_path_of_an_open_file_is_never_replaced(folder):
    with (folder / "log").open("w") as log:
        write_plain(f"/dev/fd/{log.fileno()}", "first\n")
        assert os.path.samestat(os.fstat(log.fileno()), (folder / "log").stat())
    assert (folder / "log").read_text() == "first\n"


def test_a_stream_without_bytes_takes_text(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    write_plain("-", "ä\n")
    assert sys.stdout.getvalue() == "ä\n"
