"""The script for a SLURM job of its own, with an ``srun`` that does what SLURM's does, on this host."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app

pytest.importorskip("distributed")
if shutil.which("openssl") is None:
    pytest.skip("openssl makes the certificates", allow_module_level=True)

EXAMPLES = Path(__file__).parents[3] / "examples"

SRUN = """#!/bin/bash
# All tasks on this host; a signal is for all of them.
for task in $(seq "$SLURM_NTASKS"); do "$@" & done
trap 'kill $(jobs -p) 2> /dev/null' TERM
wait
wait
"""

CUTTING = """
import runpy, sys
from oocbe.model.settings.tuning import tuned

with tuned(segment_rows=100, first_segments=3, least_segment_seconds=0.1):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a script with few rows cut into segments."""


class Jobs:
    """Jobs that the script is submitted for, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "scratch"):
            (folder / name).mkdir()
        for name, text in {
            "srun": SRUN,
            "hostname": "#!/bin/bash\necho 127.0.0.1\n",
            "python": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
            "oocbe": f'#!/bin/bash\nexec {sys.executable} -m oocbe "$@"\n',
            "dask": f'#!/bin/bash\nexec {sys.executable} -m dask "$@"\n',
        }.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.number = os.getpid() * 10

    def submit(self, *command: str, tasks: int = 1, patience: int = 5) -> subprocess.Popen[str]:
        """``patience``: seconds that a command has for a signal that SLURM may have sent to it as well."""
        self.number += 1
        script, wait = (EXAMPLES / "slurm.sh").read_text(), 'ends_within {} "$command"'
        assert wait.format(5) in script
        (self.folder / "slurm.sh").write_text(script.replace(wait.format(5), wait.format(patience)))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OOCBE_", "SLURM_"))}
        job = {
            "SUBMIT_DIR": self.folder,
            "JOB_NAME": "days",
            "JOB_ID": self.number,
            "NTASKS": tasks,
            "CPUS_PER_TASK": 1,
        }
        return subprocess.Popen(
            ["bash", str(self.folder / "slurm.sh"), *command],
            cwd=self.folder,
            env=kept
            | {f"SLURM_{name}": str(value) for name, value in job.items()}
            | {
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{kept['PATH']}",
                "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), kept.get("PYTHONPATH", "")]),
                "TMPDIR": str(self.folder / "scratch"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def check_left(self, *left: str) -> None:
        """Nothing is left but these files in the run's folder."""
        assert sorted(path.name for path in (self.folder / "days-run").iterdir()) == sorted(left)
        assert list((self.folder / "scratch").iterdir()) == []


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def test_a_job_that_is_ended_goes_on_when_it_is_submitted_again(jobs):
    """SLURM signals the script alone before the time is up, and all processes where the job is cancelled."""
    problem = str(jobs.folder / "hard.spot")
    assert CliRunner().invoke(app, ["synth", "spot5", problem, "-n", "140", "--window", "90"]).exit_code == 0
    command = ["oocbe", "solve", problem, "--verbose", "--order", "min-degree", "--order-seconds", "0"]
    command += ["--bounds", "none"]
    notes = ["a new one begins there", " found in "]
    for note, whom in zip(notes, ("the script", "all processes"), strict=True):
        job = jobs.submit(*command, patience=1 if whom == "the script" else 5)
        seen = ""
        for line in job.stderr:
            seen += line
            if line.startswith("bucket "):
                break
        os.kill(job.pid, signal.SIGTERM) if whom == "the script" else os.killpg(job.pid, signal.SIGTERM)
        printed, rest = job.communicate(timeout=300)
        assert job.returncode == 143, seen + rest
        assert "interrupted" in rest and "Traceback" not in rest
        assert "--resume goes on from there" in printed
        assert [known for known in notes if known in printed] == [note]
        assert ("there is no run in" in seen) == (note == notes[0])  # said at the beginning, too
        jobs.check_left("work")


def test_a_script_of_ones_own_joins_over_the_workers_of_the_job(jobs):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(1)
    shared = {"day": np.arange(4000) % 5, "shop": np.arange(4000) // 5}
    gains = {name: rng.integers(1, 90, 4000) for name in ("sales", "rents")}
    for name, gain in gains.items():
        parquet.write_table(pa.table(shared | {"gain": gain}), jobs.folder / f"{name}.parquet")
    (jobs.folder / "cutting.py").write_text(CUTTING)
    job = jobs.submit("python", "cutting.py", str(EXAMPLES / "join.py"), tasks=2)
    _, rest = job.communicate(timeout=120)
    assert job.returncode == 0, rest
    found = parquet.read_table(jobs.folder / "best.parquet").to_pydict()
    best = sum(gains.values()).reshape(-1, 5).max(axis=1)
    assert dict(zip(found["shop"], found["gain"], strict=True)) == dict(enumerate(best.tolist()))
    assert len(list((jobs.folder / "best.table").glob("part-*"))) > 1
    assert oocbe.StoredTable.open(jobs.folder / "best.table").rows == 800
    jobs.check_left()


def test_the_page_shows_the_example():
    code = (EXAMPLES / "join.py").read_text().partition("from distributed")
    assert f"```python\n{''.join(code[1:])}```" in (EXAMPLES.parent / "docs" / "cluster.md").read_text()


def test_a_command_that_fails_gives_its_exit_code(jobs):
    job = jobs.submit("oocbe", "solve", "nowhere.spot", tasks=0)  # it needs no workers
    _, rest = job.communicate(timeout=120)
    assert job.returncode == 2 and "nowhere.spot" in rest
    jobs.check_left()
