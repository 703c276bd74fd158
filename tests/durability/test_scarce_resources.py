"""Few file descriptors, and a folder that fills up: work ends well, or says what is missing and can be resumed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.formats import write
from oocbe.runtime.data_limit import data_limit, mapped_data
from oocbe.runtime.parents import serving_child

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


@pytest.mark.parametrize("more", [("--workdir", "run"), ("--workers", "2")])
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


@pytest.mark.parametrize(
    "commands",
    [
        ["solve grid.wcsp again.wcsp third.wcsp --jobs 2 -q"],
        ["convert rows.parquet table --values cost --semiring min-sum", "convert table back.parquet --values cost"],
        ["compile net.uai tree --memory 1MiB", "query tree --cases cases.csv -o answers.csv --memory 1MiB"],
    ],
    ids=["many", "tables", "trees"],
)
def test_other_commands_need_few_file_descriptors(tmp_path, commands):
    for name in ("grid.wcsp", "again.wcsp", "third.wcsp"):
        write(grid(3, 3), tmp_path / name)
    pairs = "\n".join(f"2 {i} {i + 1}" for i in range(11))
    tables = "4\n0.1 0.2 0.3 0.4\n" * 11
    (tmp_path / "net.uai").write_text(f"MARKOV\n12\n{' 2' * 12}\n11\n{pairs}\n{tables}")
    (tmp_path / "cases.csv").write_text("0,1\n" + "1,\n" * 500)
    rows = np.arange(60)
    table = oocbe.Table.from_rows({"a": 6, "b": 10}, np.array([rows // 10, rows % 10]).T, rows, oocbe.MIN_SUM)
    if "parquet" in commands[0]:
        pytest.importorskip("pyarrow")
        oocbe.StoredTable.save(tmp_path / "first", table).to_parquet(tmp_path / "rows.parquet", "cost")
    for command in commands:
        done = run(tmp_path, "-m", "oocbe", *command.split(), limits={resource.RLIMIT_NOFILE: 64})
        assert done.returncode == 0, done.stderr[-2000:]


def test_a_run_whose_folder_fills_up_is_resumed_when_there_is_room(tmp_path):
    write(grid(5, 5), tmp_path / "grid.wcsp")
    options = ("--bounds", "none", "--tables", "incomplete", "--order", "linear", "--workdir", "run", "-q")
    command = ("-m", "oocbe", "solve", "grid.wcsp", *options, "--resume")
    ends = []
    for most in (2_000, 16_000, 1 << 30):  # bytes of a file at most: what a full disk refuses, for every user
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
        process, connection = serving_child("oocbe.api.tasks.many", 1)
        with connection, process:
            assert resource.prlimit(process.pid, kind) == before
            process.kill()
    assert resource.getrlimit(kind) == before


def test_a_limit_beyond_what_the_system_counts_is_its_largest():
    with data_limit.of(sys.maxsize, 1):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] in (sys.maxsize, resource.RLIM_INFINITY)


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


def test_a_system_that_does_not_report_a_process_s_data_has_no_limit_on_it(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr("oocbe.runtime.data_limit.mapped_data", lambda: 0)
    with data_limit.of(1 << 30, 1):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before and not data_limit.is_set


def test_a_limit_that_was_lifted_more_than_once_holds_after_the_last_time():
    kind = resource.RLIMIT_DATA
    before = resource.getrlimit(kind)
    with data_limit.of(1 << 30, 1):
        inside = resource.getrlimit(kind)
        with data_limit.lifted():
            data_limit.lift()
            assert resource.getrlimit(kind) == before
            data_limit.lower(more=4096)
            assert resource.getrlimit(kind) == before  # the block around it goes on
        assert resource.getrlimit(kind)[0] == inside[0] + 4096
    assert resource.getrlimit(kind) == before
    with data_limit.lifted():
        assert resource.getrlimit(kind) == before


LOAD = """
import sys
import numpy as np
from oocbe.runtime import data_limit
from tests.helpers.small_loop import total
numbers, others = np.arange(4), np.arange(4.0)
print(total(others))  # what comes with the first loop
data_limit.PROGRAM_DATA_BYTES = -(64 << 20)
with data_limit.data_limit.of(0 if sys.argv[1] else 1 << 40, 0):
    print(total(numbers))
"""


def test_loops_are_loaded_where_the_limit_has_no_room_for_them(tmp_path):
    """LLVM ends the process where it cannot have memory for a loop."""
    for is_limited in ("", "limited"):  # first compiled and kept, then loaded
        done = run(tmp_path, "-c", LOAD, is_limited, limits={})
        assert (done.returncode, done.stdout) == (0, "6.0\n6\n"), done.stderr[-2000:]


THREADLESS = """
import threading
import numpy as np, oocbe
from oocbe.junction_trees.case_files import write_zarr
from oocbe.model.results.failure import exit_code_of, message_of
rows = np.arange(60)
problem = oocbe.Problem(
    (oocbe.Variable("x", 2), oocbe.Variable("y", 2)),
    (oocbe.Function.from_array((0, 1), [[0.1, 0.2], [0.3, 0.4]]),),
    semiring=oocbe.SUM_PRODUCT,
)
tree = oocbe.JunctionTree(problem)
found = tree.batch([{"x": 1}])
table = oocbe.Table.from_rows({"a": 6, "b": 10}, np.array([rows // 10, rows % 10]).T, rows, oocbe.MIN_SUM)
stored = oocbe.StoredTable.save("stored", table)
stored.to_parquet("there.parquet", "cost")

def start(self):
    raise RuntimeError("can't start new thread")

threading.Thread.start = start
for work in (
    lambda: stored.to_parquet("made.parquet", "cost"),
    lambda: oocbe.StoredTable.from_parquet("there.parquet", "again", "cost", semiring=oocbe.MIN_SUM),
    lambda: write_zarr(found, __import__("pathlib").Path("made.zarr")),
):
    try:
        work()
        print("done")
    except Exception as error:
        print(exit_code_of(error))
"""


def test_without_threads_work_is_refused_for_want_of_memory(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("zarr")
    done = run(tmp_path, "-c", THREADLESS, limits={})
    assert (done.returncode, done.stdout, done.stderr) == (0, "30\n30\n30\n", "")
    assert {path.name for path in tmp_path.iterdir()} == {"stored", "there.parquet"}


ARROW = """
import numpy as np, oocbe
from oocbe.runtime import data_limit
rows = np.arange(200_000)
table = oocbe.Table.from_rows({"a": 500, "b": 400}, np.array([rows // 400, rows % 400]).T, rows, oocbe.MIN_SUM)
stored = oocbe.StoredTable.save("stored", table, chunk_rows=50_000)
stored.to_parquet("first.parquet", "cost")
data_limit.PROGRAM_DATA_BYTES = -(64 << 20)
with data_limit.data_limit.of(0, 0):
    stored.to_parquet("made.parquet", "cost")
    again = oocbe.StoredTable.from_parquet("made.parquet", "again", "cost", semiring=oocbe.MIN_SUM)
print(again.rows)
"""


def test_parquet_is_written_and_read_where_the_limit_has_no_room_for_arrow(tmp_path):
    """Arrow's threads end the process where a block is refused."""
    pytest.importorskip("pyarrow")
    done = run(tmp_path, "-c", ARROW, limits={}, ARROW_DEFAULT_MEMORY_POOL="system")
    assert (done.returncode, done.stdout) == (0, "200000\n"), done.stderr[-2000:]


ZARR = """
import oocbe
from pathlib import Path
from oocbe.junction_trees.case_files import write_zarr
from oocbe.runtime import data_limit
network = oocbe.read("network.uai")
tree = oocbe.JunctionTree(network)
found = tree.batch([{"1": 1}])
data_limit.PROGRAM_DATA_BYTES = -(64 << 20)
with data_limit.data_limit.of(0, 0):
    write_zarr(found, Path("made.zarr"))
"""


def test_answers_are_written_where_the_limit_has_no_room_for_zarr(tmp_path):
    """Its thread repeats the error of a block that is refused."""
    pytest.importorskip("zarr")
    (tmp_path / "network.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4 0.1 0.2 0.3 0.4\n")
    done = run(tmp_path, "-c", ZARR, limits={})
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "made.zarr" / "posteriors" / "0").is_dir()


THREAD = """
import threading
from concurrent.futures import ThreadPoolExecutor
from oocbe.runtime import data_limit
data_limit.PROGRAM_DATA_BYTES = -(16 << 20)
with data_limit.data_limit.of(0, 0):
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(threading.current_thread) for _ in range(4)]
print(len(found), all(future.result().name for future in found))
"""


def test_threads_start_where_the_limit_has_no_room_for_them(tmp_path):
    """Python waits for ever for a thread that had no memory to begin with."""
    done = run(tmp_path, "-c", THREAD, limits={})
    assert (done.returncode, done.stdout) == (0, "4 True\n"), done.stderr[-2000:]
