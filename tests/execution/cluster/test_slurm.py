"""Workers in SLURM jobs: commands on the path that do what SLURM's do, on this host."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.errors import ClusterError, UsageError
from oocbe.execution.cluster import choice, started_workers
from oocbe.execution.cluster.started_workers import SlurmSettings, SlurmWorkers
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from tests.elimination.test_piecewise import complete_problem, run
from tests.helpers.worker_functions import slept

pytest.importorskip("distributed")

SBATCH = """#!/bin/bash
# Starts the job here, in a session of its own, whose number is the job's.
[ "$1" = --parsable ] || exit 2
log=$(sed -n 's/^#SBATCH --output=//p' "$2")
setsid bash -c 'export SLURM_JOB_ID=$$; exec bash "$0" > "${1//%j/$$}" 2>&1' "$2" "$log" < /dev/null > /dev/null 2>&1 &
echo "$!;here"
"""
SQUEUE = """#!/bin/bash
for job in $(echo "${@: -1}" | sed 's/--jobs=//; s/,/ /g'); do kill -0 -- "-$job" 2> /dev/null && echo "$job"; done
exit 0
"""
SCANCEL = """#!/bin/bash
for job in "$@"; do kill -9 -- "-$job" 2> /dev/null; done
exit 0
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def written(folder: Path, text: str) -> Path:
    path = folder / "jobs.yaml"
    path.write_text(text)
    return path


def test_two_workers_of_a_job_one_of_which_is_killed(commands, shared, tmp_path):
    """Jobs are submitted when there is work, workers that are killed start again, and nothing is left."""
    problem, order = complete_problem(6, 6), list(range(6))
    expected = run(problem, order, BucketEngine("cpu"), dominance=False)[0]
    text = f"jobqueue: {{slurm: {{cores: 2, processes: 2, interface: lo, shared-temp-directory: {shared}}}}}"
    with SlurmWorkers(SlurmSettings.read(written(tmp_path, text)), 2) as workers:
        assert workers.count == 2 and not workers.jobs
        first = workers.submit("sleeping", slept, 0).result(120)
        os.kill(first, 9)
        with tuned(segment_rows=1000, first_segments=3, least_segment_seconds=0.5):
            engine = BucketEngine("cpu", workers=workers)
            assert run(problem, order, engine, dominance=False)[0] == expected
        assert workers.submit("sleeping", slept, 0).result(120) != first
        (job,) = workers.jobs
        keys = [path for path in shared.rglob("*.pem") if path.stat().st_mode & 0o077]
        assert not keys and list(shared.rglob("*.pem"))
    assert list(shared.iterdir()) == []
    deadline = time.monotonic() + 30
    while subprocess.run(["kill", "-0", "--", f"-{job}"], capture_output=True, check=False).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_jobs_that_end_at_once_are_told_of(commands, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(started_workers, "ASK_SECONDS", 0.1)
    settings = SlurmSettings(
        interface="lo", shared_temp_directory=shared, job_script_prologue=("echo no module", "exit 1")
    )
    with SlurmWorkers(settings, 1) as workers:
        workers.submit("sleeping", slept, 0)
        deadline = time.monotonic() + 60
        with pytest.raises(ClusterError, match=r"jobs \d+ ended before a worker connected: no module"):
            while time.monotonic() < deadline:
                workers.check()
                time.sleep(0.05)


def test_an_sbatch_that_refuses(commands, shared):
    (commands / "sbatch").write_text("#!/bin/bash\necho 'invalid account' >&2; exit 1\n")
    settings = SlurmSettings(interface="lo", shared_temp_directory=shared)
    with (
        SlurmWorkers(settings, 1) as workers,
        pytest.raises(ClusterError, match="sbatch takes no job: invalid account"),
    ):
        workers.submit("sleeping", slept, 0)
    assert list(shared.iterdir()) == []


def test_the_script_says_what_the_file_says(tmp_path):
    file = written(
        tmp_path,
        "cores: 16\nmemory: 64 GiB\nprocesses: 4\nqueue: long\naccount: science\nwalltime: 01:30:00\n"
        "job-extra: ['--gpus=4', '--exclusive']\njob-directives-skip: [--exclusive]\n"
        "job_script_prologue: module load python\ndeath-timeout: 60\nlocal-directory: /local\n",
    )
    lines = SlurmSettings.read(file).script("tls://10.0.0.1:99", {"NAME": "a b"}, Path("/logs")).splitlines()
    assert lines[:10] == [
        "#!/usr/bin/env bash",
        "#SBATCH --job-name=oocbe",
        "#SBATCH --output=/logs/job-%j.log",
        "#SBATCH --nodes=1 --ntasks=1",
        "#SBATCH --cpus-per-task=16",
        "#SBATCH --partition=long",
        "#SBATCH --account=science",
        "#SBATCH --time=01:30:00",
        "#SBATCH --mem=64G",
        "#SBATCH --gpus=4",
    ]
    assert lines[10] == "module load python"
    assert {"export OOCBE_THREADS=4", "export NAME='a b'", "export TMPDIR=/local"} <= set(lines)


def test_each_worker_of_a_job_with_as_many_gpus_has_one(tmp_path):
    script = SlurmSettings(cores=2, processes=2, python="told").script("tls://a:1", {}, tmp_path)
    told = tmp_path / "told"
    told.write_text('#!/bin/bash\necho "$CUDA_VISIBLE_DEVICES"\n')
    told.chmod(0o755)
    for seen, expected in (("4,7", ["4", "7"]), ("GPU-1", ["GPU-1", "GPU-1"]), ("", ["", ""])):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": seen}
        done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True, check=True)
        assert sorted(done.stdout.split("\n")[:-1]) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobqueue: {slurm: {coers: 3}}", "coers is no setting of a job; known are cores"),
        ("cores: many", "cores must be a whole number"),
        ("job-extra-directives: 3", "must be a list of lines"),
        ("cores: 1\nprocesses: 2", "each process needs a core"),
        ("[1, 2]", "no section jobqueue: slurm:"),
        ("a: [", "not to be read"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        SlurmSettings.read(written(tmp_path, text))


def test_jobs_are_asked_for_by_a_file_and_a_number(tmp_path):
    file = written(tmp_path, "cores: 4")
    options = SolveOptions.from_mapping({"cluster": f"slurm:{file}", "workers": 6})
    made = choice.slurm_workers(file, options.workers, None)
    assert (made.wanted, made.settings.cores) == (6, 4)
    for workers in (None, "gpus", "gpus:2"):
        with pytest.raises(UsageError, match="give the number of workers"):
            choice.slurm_workers(file, workers, None)
    with pytest.raises(UsageError, match="there is no such file"):
        SolveOptions.from_mapping({"cluster": "slurm:nowhere.yaml"})
