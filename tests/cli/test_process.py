"""The program as a process: pipes, full disks, signals, environment, start-up."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY = str(EXAMPLES / "daily.spot")
OOCBE = [sys.executable, "-m", "oocbe"]


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    return {**kept, **more}


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OOCBE, *arguments], capture_output=True, text=True, env=clean_environment(**environment), check=False
    )


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day that takes long enough to be interrupted."""
    path = tmp_path_factory.mktemp("hard") / "hard.spot"
    done = CliRunner().invoke(app, ["synth", "spot5", str(path), "-n", "140", "--window", "90"])
    assert done.exit_code == 0
    return path


def test_the_module_runs_and_no_command_is_wrong_use() -> None:
    assert "Commands:" in call("--help").stdout
    assert call().returncode == 2
    done = CliRunner().invoke(app, ["solve"])
    assert (done.exit_code, done.stdout) == (2, "")


def test_an_unknown_environment_variable_is_refused() -> None:
    done = call("solve", DAILY, OOCBE_ORDR="min-fill")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "oocbe: unknown environment variable OOCBE_ORDR; did you mean OOCBE_ORDER?\n"


def test_malformed_input_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "bad.spot").write_text("2\n0 1 1 13 0\n")
    done = CliRunner().invoke(app, ["solve", str(tmp_path / "bad.spot")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "bad.spot, line" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = subprocess.Popen(
        [*OOCBE, "inspect", DAILY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
    )
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    with command.stderr:
        assert command.stderr.read() == b""
    assert command.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_ends_with_thirty() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*OOCBE, "inspect", DAILY], stdout=full, stderr=subprocess.PIPE, env=clean_environment(), check=False
        )
    assert done.returncode == 30
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


CLOSED = ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"]


def in_shell(redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose streams a shell changes."""
    script = f'"$@" {redirections}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *OOCBE, *arguments],
        capture_output=True, text=True, env=clean_environment(), check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A problem with an optimum of 3."""
    path = tmp_path_factory.mktemp("small") / "small.wcsp"
    path.write_text("small 1 2 1 100\n2\n1 0 5 1\n1 3\n")
    return str(path)


@pytest.mark.parametrize(
    "closed", [pytest.param(own, marks=pytest.mark.slow if own in CLOSED[3:-1] else ()) for own in CLOSED]
)
def test_closed_streams_change_no_exit_code_and_nothing_that_is_written(
    closed: str, small: str, tmp_path: Path
) -> None:
    made = tmp_path / "made.wcsp"
    if closed in (">&-", CLOSED[-1]):  # a solve loads ten times as much, and writes two files
        command, shown, head = (
            ["solve", small, "-q", "--trace", str(tmp_path / "trace"), "--solution"],
            "optimal 3\n",
            "#",
        )
    else:
        command, shown, head = ["convert", small, "-q"], "", "small 1 2"
    done = in_shell(closed, *command, str(made))
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("" if ">&-" in closed.split() else shown, "")
    assert made.read_text().startswith(head)
    if "2>&-" in closed:  # where there is no place for the message
        done = in_shell(closed, "inspect", str(tmp_path / "none.wcsp"))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr


def test_closed_standard_input_is_no_empty_file() -> None:
    done = in_shell("<&-", "solve", "-", "--format", "wcsp")
    assert (done.returncode, done.stderr) == (2, "oocbe: -: standard input is closed; name a file\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("wanted", ["--help", "--version", "inspect", pytest.param("solve", marks=pytest.mark.slow)])
def test_output_that_cannot_be_written_is_named(wanted: str, small: str) -> None:
    arguments = [wanted] if wanted.startswith("-") else [wanted, small]
    done = in_shell(">/dev/full", *arguments)
    assert done.returncode == 30
    assert done.stderr.startswith("oocbe: standard output: No space left on device")
    if wanted in ("solve", "--version"):  # print as inspect and --help do
        return
    assert in_shell("2>/dev/full", *arguments).returncode == 0
    done = in_shell("1</dev/null", *arguments)
    assert (done.returncode, done.stderr) == (2, "oocbe: standard output: Bad file descriptor\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_notes_that_cannot_be_written_change_nothing(tmp_path: Path) -> None:
    done = in_shell("2>/dev/full", "convert", DAILY, str(tmp_path / "daily.wcsp"))
    assert (done.returncode, (tmp_path / "daily.wcsp").exists()) == (0, True)
    assert in_shell("2>/dev/full", "solve", str(tmp_path / "none.spot")).returncode == 2


def hear_interrupts() -> None:
    """A shell starts what runs in the background with SIGINT ignored, ``nohup`` with SIGHUP; children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(("number", "code", "with_workdir"), [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)])
def test_interruption_leaves_what_is_published_and_no_temporary_files(
    number: signal.Signals, code: int, with_workdir: bool, hard: Path, tmp_path: Path
) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    scratch.mkdir()
    # One heuristic, which takes a third of the time of all.
    arguments = ["solve", str(hard), "--verbose", "--order-seconds", "0", "--order", "min-degree", "--memory", "1GiB"]
    arguments += ["--bounds", "none"]
    arguments += ["--workdir", str(work)] if with_workdir else []
    command = subprocess.Popen(
        [*OOCBE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(TMPDIR=str(scratch)),
        preexec_fn=hear_interrupts,
    )
    assert command.stderr is not None
    seen = ""
    for line in command.stderr:
        seen += line
        if line.startswith("bucket "):
            break
    time.sleep(0.3)
    command.send_signal(number)
    printed, rest = command.communicate(timeout=60)
    assert command.returncode == code, seen + rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert list(scratch.iterdir()) == []
    if with_workdir:
        assert "--resume goes on from there" in printed
        assert list(work.glob("order-*/message-*.json"))
        assert not [p for p in work.rglob("*") if ".partial" in p.name]
        assert (work / "lock").read_text() == ""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_an_interrupted_solve_writes_all_that_was_asked_for(
    number: signal.Signals, code: int, hard: Path, tmp_path: Path
) -> None:
    scratch, solution, trace = (tmp_path / name for name in ("scratch", "solution", "trace.json"))
    scratch.mkdir()
    command = subprocess.Popen(
        [
            *OOCBE,
            "solve",
            str(hard),
            "--json",
            "--verbose",
            "--solution",
            str(solution),
            "--trace",
            str(trace),
            "--bounds",
            "constant",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(TMPDIR=str(scratch)),
        preexec_fn=hear_interrupts,
    )
    assert command.stderr is not None
    for line in command.stderr:
        if "incumbent" in line:
            break
    command.send_signal(number)
    printed, rest = command.communicate(timeout=60)
    assert command.returncode == code, rest
    content = json.loads(printed)
    assert (content["schema_version"], content["status"]) == (1, "interrupted")
    assert CliRunner().invoke(app, ["verify", str(hard), str(solution)]).exit_code == 0
    assert f"# value: {content['value']}" in solution.read_text()
    assert CliRunner().invoke(app, ["trace", str(trace)]).exit_code == 0
    assert list(scratch.iterdir()) == []
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGHUP, 129)],
)
def test_a_signal_while_modules_load_has_an_answer(number: signal.Signals, code: int) -> None:
    """It waits for the command, as no module can end in the middle of its import."""
    script = (
        "import os, sys\nfrom oocbe import __main__\nclass Finder:\n    def find_spec(name, *_):\n"
        f"        if name == 'oocbe.cli.failures':\n            os.kill(os.getpid(), {int(number)})\n"
        f"sys.meta_path.insert(0, Finder)\nsys.argv = ['oocbe', 'solve', {DAILY!r}, '--json']\n__main__.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, preexec_fn=hear_interrupts
    )
    assert (done.returncode, done.stderr) == (code, "oocbe: interrupted; temporary files are removed\n")
    assert json.loads(done.stdout)["status"] == "interrupted"


def test_an_interruption_of_generated_code_ends_with_its_exit_code(tmp_path: Path) -> None:
    """Python marks an interrupt inside code that it got as text, and would end by a signal instead."""
    (tmp_path / "generated.py").write_text(
        "import os, signal\nimport typer\nfrom oocbe.cli.failures import guarded\n"
        "def command() -> int:\n    exec('os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]')\n"
        "typer.run(guarded(command))\n"
    )
    environment = clean_environment(PYTHONPATH=os.pathsep.join([str(EXAMPLES.parent), str(tmp_path)]))
    done = subprocess.run(
        [sys.executable, "-m", "generated"],
        env=environment,
        capture_output=True,
        check=False,
        preexec_fn=hear_interrupts,
    )
    assert (done.returncode, done.stdout) == (130, b""), done.stderr


def test_killed_and_resumed(tmp_path: Path) -> None:
    """As a user would: kill -9, an error without --resume, the rest with it."""
    work = str(tmp_path / "work")
    killed = call("solve", DAILY, "--workdir", work, OOCBE_FAULT="message:renamed:60")
    assert killed.returncode == -signal.SIGKILL
    refused = CliRunner().invoke(app, ["solve", DAILY, "--workdir", work])
    assert refused.exit_code == 2
    assert "60 published messages; continue it with --resume" in refused.stderr
    resumed = CliRunner().invoke(app, ["solve", DAILY, "--workdir", work, "--resume"])
    assert resumed.exit_code == 0, resumed.stderr
    assert "optimum          2112" in resumed.stdout
    assert "resumed: 60 messages" in resumed.stdout
    assert CliRunner().invoke(app, ["solve", DAILY, "--resume"]).exit_code == 2


def test_a_misspelt_fault_point_is_refused() -> None:
    done = call("solve", DAILY, OOCBE_FAULT="message:renamd:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "OOCBE_FAULT" in done.stderr
