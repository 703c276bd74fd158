"""A current folder with files of somebody else: no command, and no process that one starts, runs any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oocbe.execution.cluster.started_workers import LocalWorkers, SlurmSettings, SlurmWorkers
from oocbe.formats import write
from oocbe.runtime.parents import child_environment
from tests.execution.cluster.test_slurm import commands  # noqa: F401
from tests.helpers.small_problems import clique
from tests.helpers.worker_functions import slept

ROOT = Path(__file__).parents[2]

HOSTILE = """
import os, sys
with open(os.environ["RAN"], "a") as file:
    print(__file__, sys.orig_argv, file=file)
raise ImportError("code of the current folder ran")
"""

NAMES = (
    "distributed",
    "random",
    "pickle",
    "selectors",
    "socket",
    "multiprocessing",
    "numpy",
    "numba",
    "oocbe",
    "signal",
)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Where modules of the current folder say that they were run; removed if they were not."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(HOSTILE)
    monkeypatch.setenv("RAN", str(tmp_path / "ran"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(folder)
    return tmp_path / "ran"


def called(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)


def test_many_files_and_agents(ran, tmp_path):
    problem = tmp_path / "small.wcsp"
    write(clique(4, 3), problem)
    fast = ("--order-seconds", "0", "--backend", "cpu")
    for arguments in (("solve", problem, problem, "--jobs", "2", *fast), ("dcop", problem, "--workers", "1")):
        done = called("-P", "-m", "oocbe", *arguments)
        assert not ran.exists(), ran.read_text()
        assert done.returncode == 0, done.stderr
    called("-m", "oocbe", "--version")  # Python's -m looks there by itself, before anything of ours has begun
    assert ran.exists()


@pytest.mark.parametrize("where", ["this host", "jobs"])
def test_workers_of_the_library(ran, commands, tmp_path, where):  # noqa: F811
    pytest.importorskip("distributed")
    (shared := tmp_path / "shared").mkdir()
    settings = SlurmSettings(interface="lo", shared_temp_directory=shared)
    with LocalWorkers(1) if where == "this host" else SlurmWorkers(settings, 1) as workers:
        assert workers.submit("sleeping", slept, 0).result(120) != os.getpid()
    assert not ran.exists(), ran.read_text()


def test_processes_of_the_fuzz(ran):
    done = called(ROOT / "tools" / "fuzz.py", "--what", "operators", "--cases", "2", "--processes", "2")
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_of_numba_say_not_where_compiled_code_is(ran, monkeypatch, tmp_path):
    """What lies in a cache is run as it is."""
    Path(".numba_config.yaml").write_text(f"cache_dir: {tmp_path}/planted\n")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    show = "from oocbe.kernels.cpu.pairs import sort; print(sort.__name__)"
    done = called("-P", "-c", show)
    assert done.stdout.strip() == "oocbe.kernels.cpu.pairs.sort", done.stderr
    assert not (tmp_path / "planted").exists()


def test_an_empty_entry_of_the_path_is_not_handed_on(ran, monkeypatch, tmp_path):
    """``PYTHONPATH=$PYTHONPATH:/folder`` makes one where nothing was set; it is the current folder to Python."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path), ""]))
    code = "import sys; print(sys.path)"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=child_environment(), capture_output=True, text=True)
    assert str(Path.cwd()) not in done.stdout and "''" not in done.stdout
    assert str(tmp_path) in done.stdout
