"""Few file descriptors, and a folder that fills up: work ends well, or says what is missing and can be resumed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oocbe
from oocbe.io import write
from oocbe.system.data_limit import data_limit, mapped_data
from oocbe.system.parents import connected_child

resource = pytest.importorskip("resource")

ROOT = Path(__file__).resolve().parents[2]


def grid(side: int, size: int) -> oocbe.Problem:
    """Neighbours in a grid should differ, each pair by its own costs."""
    places = [(row, column) for row in range(side) for column in range(side)]
    pairs = [(a, b) for a in places for b in places if b in ((a[0] + 1, a[1]), (a[0], a[1] + 1))]
    cells = [(a, b) for a in range(size) for b in range(size)]
    functions = [
        oocbe.Function(tuple(r * side + c for r, c in pair), cells, [(a * 7 + b * 5 + i) % 11 for a, b in cells], None)
        for i, pair in enumerate(pairs)
    ]
    return oocbe.Problem(tuple(oocbe.Variable(f"x{i}", size) for i in range(side * side)), tuple(functions))


def run(folder: Path, *command: str, limits: dict[int, int], **environment: str) -> subprocess.CompletedProcess[str]:
    """A program under limits of the system."""

    def limit() -> None:
        for number, most in limits.items():
            resource.setrlimit(number, (most, resource.getrlimit(number)[1]))

    path = os.pathsep.join([str(ROOT), *sys.path])
    variables = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), "OOCBE_BACKEND": "cpu", **environment}
    return subprocess.run(
        [sys.executable, *command],
        preexec_fn=limit,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


JOIN = """
import numpy as np, oocbe
rows = np.arange(6000)
one = oocbe.Table.from_rows({"a": 60, "b": 100}, np.array([rows // 100, rows % 100]).T, rows, oocbe.MIN_SUM)
other = oocbe.Table.from_rows({"b": 100, "c": 60}, np.array([rows % 100, rows // 100]).T, rows, oocbe.MIN_SUM)
tables = [oocbe.StoredTable.save(name, table, chunk_rows=200) for name, table in (("one", one), ("other", other))]
made = oocbe.join_maximise(*tables, ["b"], output="made", memory="4MiB", scratch=".", streams=4)
print(made.rows)
"""

TREE = """
import numpy as np, oocbe
numbers = np.random.default_rng(1)
cells = np.array(np.unravel_index(np.arange(1024), [4] * 5)).T
problem = oocbe.Problem(
    tuple(oocbe.Variable(f"x{i}", 4) for i in range(60)),
    tuple(oocbe.Function(tuple(range(i, i + 5)), cells, numbers.random(1024), None) for i in range(56)),
    semiring=oocbe.SUM_PRODUCT,
)
tree = oocbe.JunctionTree(problem, folder="tree", memory="1MiB")
print(len(tree.marginal('x3')))
print(len(oocbe.JunctionTree.open("tree", memory="1MiB").marginal('x3')))
"""


@pytest.mark.parametrize(("program", "expected"), [(JOIN, "3600"), (TREE, "4\n4")])
def test_work_on_disk_needs_few_file_descriptors(tmp_path, program, expected):
    done = run(tmp_path, "-c", program, limits={resource.RLIMIT_NOFILE: 64})
    assert done.stdout.strip() == expected, done.stderr[-2000:]


@pytest.mark.parametrize("more", [(), ("--workdir", "run"), ("--workers", "2")])
def test_a_solve_needs_few_file_descriptors(tmp_path, more):
    write(grid(5, 4), tmp_path / "grid.wcsp")
    options = ("--bounds", "none", "--tables", "incomplete", "--memory", "64MiB", "-q")
    done = run(tmp_path, "-m", "oocbe", "solve", "grid.wcsp", *options, *more, limits={resource.RLIMIT_NOFILE: 64})
    assert done.returncode in (0, 30), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    if done.returncode == 30:
        assert "files" in done.stderr, done.stderr
    else:
        assert done.stdout.startswith("optimal")


def test_a_run_whose_folder_fills_up_is_resumed_when_there_is_room(tmp_path):
    write(grid(6, 5), tmp_path / "grid.wcsp")
    options = ("--bounds", "none", "--tables", "incomplete", "--order", "linear", "--workdir", "run", "-q")
    command = ("-m", "oocbe", "solve", "grid.wcsp", *options, "--resume")
    ends = []
    for most in (2_000, 4_000, 16_000, 1 << 30):  # bytes of a file at most: what a full disk refuses, for every user
        done = run(tmp_path, *command, limits={resource.RLIMIT_FSIZE: most})
        ends.append(done.returncode)
        assert "Traceback" not in done.stderr
        if done.returncode:
            assert done.returncode == 30, done.stderr
            assert "run" in done.stderr
    assert ends[0] == 30
    assert ends[-1] == 0
    assert done.stdout.startswith("optimal")


def test_processes_of_a_command_have_the_limit_from_before():
    """They compile loops as well, and nothing would lift the limit there."""
    kind = resource.RLIMIT_DATA
    before = resource.getrlimit(kind)
    with data_limit.of(1 << 30, 1):
        assert resource.getrlimit(kind) != before
        process, connection = connected_child("oocbe.tasks.worker", 1)
        with connection, process:
            assert resource.prlimit(process.pid, kind) == before
            process.kill()
    assert resource.getrlimit(kind) == before


def test_a_lower_limit_of_the_system_is_left_as_it_is():
    kind = resource.RLIMIT_DATA
    before = resource.getrlimit(kind)
    lower = (mapped_data() + (1 << 30), before[1])
    resource.setrlimit(kind, lower)
    try:
        with data_limit.of(1 << 40, 1):
            assert resource.getrlimit(kind) == lower
    finally:
        resource.setrlimit(kind, before)
