"""Workers in processes that Dask looks after: the same tables, whoever is killed, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import oocbe
from oocbe.algebra.inputs import Execution
from oocbe.algebra.operators import join_maximise
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.api.tasks import verbs
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.errors import ClusterError, UnsupportedError, UsageError
from oocbe.execution.budget import Budget
from oocbe.execution.cluster import choice, dask_workers
from oocbe.execution.cluster.dask_workers import DaskWorkers
from oocbe.execution.cluster.started_workers import LocalWorkers
from oocbe.execution.cluster.workers import LostWorkError, current, use_workers
from oocbe.kernels import backend_for
from oocbe.kernels.cuda import device
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from oocbe.stress import generated_operations
from oocbe.stress.generated_operations import JOIN_MAXIMISE, GeneratedOperation, digest_by, digest_here
from oocbe.stress.tables import SyntheticTable
from tests.elimination.test_piecewise import complete_problem, run
from tests.elimination.test_segments import clique_problem
from tests.helpers.durable_runs import solve_in
from tests.helpers.out_of_core_modes import same_rows
from tests.helpers.worker_functions import failed, slept

distributed = pytest.importorskip("distributed")

PROBLEM = complete_problem(7, 6)
"""Two messages of 46,656 and 7,776 rows, which take longer to give away than to make."""


def cutting(**more):
    return tuned(segment_rows=4000, first_segments=3, least_segment_seconds=0.5, **more)


@pytest.fixture(scope="module")
def expected():
    return run(PROBLEM, list(range(7)), BucketEngine("cpu"), dominance=False)[0]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Where all scratch folders go."""
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def workers(scratch):
    with Killing(2) as made:
        made.kill_at(0)
        yield made
    assert not [pid for pid in made.started if Path(f"/proc/{pid}").exists()]


def found_by(workers):
    with cutting():
        return run(PROBLEM, list(range(7)), BucketEngine("cpu", workers=workers), dominance=False)[0]


def test_the_tables_are_those_of_one_process(workers, expected):
    assert found_by(workers) == expected
    assert workers.count == len(workers.running) == 2


class Killing(LocalWorkers):
    """Workers one of which is killed whenever some have been given so many segments, and all of them are there."""

    def kill_at(self, every, most=1):
        self.every, self.given, self.killed, self.most = every, 0, [], most

    def submit(self, name, work, told):
        self.given += 1
        if (
            self.every
            and self.given % self.every == 0
            and len(self.killed) < self.most
            and self._dask is not None
            and self._dask.count == self.processes
        ):
            self.killed.append(self.running[len(self.killed) % len(self.running)])
            os.kill(self.killed[-1], signal.SIGKILL)
        return super().submit(name, work, told)


def test_workers_killed_in_the_middle(workers, expected):
    workers.kill_at(4)
    for _ in range(10):
        assert found_by(workers) == expected
        if workers.killed:
            break
    workers.kill_at(0)
    assert found_by(workers) == expected


def test_rows_that_change_owner(workers, tmp_path):
    """Each worker sorts some rows, and each range of keys is then read from all that were sorted."""
    specs = [SyntheticTable(40_000, 1000, own=own, seed=n) for n, own in enumerate("ab")]
    tables = [spec.write(tmp_path / spec.own, None, 500) for spec in specs]
    with use_workers(workers), cutting():
        join_maximise(*tables, "e", output=tmp_path / "first")  # in which this process does some segments itself
        before = workers.read
        result = join_maximise(*tables, "e", output=tmp_path / "second")
    read = workers.read.without(before)
    assert read.rows >= 2 * sum(table.rows for table in tables)
    assert 0 <= read.changed_owner <= read.rows
    parts = [json.loads((part / "zarr.json").read_text()) for part in result.path.glob("part-*")]
    names = {f"{workers.cluster} worker {number}" for number in (1, 2)}
    assert {part["attributes"]["oocbe"]["writer"] for part in parts} <= names


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_killed_fifty_times(workers, expected):
    workers.kill_at(5, most=50)
    while len(workers.killed) < 50:
        assert found_by(workers) == expected
    workers.kill_at(0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_operator_whose_workers_are_killed_fifty_times(workers, tmp_path):
    tables = [
        SyntheticTable(40_000, 1000, own=own, seed=n).write(tmp_path / own, None, 500) for n, own in enumerate("ab")
    ]
    expected = join_maximise(*(table.to_table() for table in tables), "e")
    workers.kill_at(5, most=50)
    with use_workers(workers), cutting():
        while len(workers.killed) < 50:
            with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
                same_rows(join_maximise(*tables, "e", output=Path(folder) / "found"), expected)
    workers.kill_at(0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_digest_whose_workers_are_killed(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(generated_operations, "STRETCH_ROWS", 1 << 15)
    pair = tuple(SyntheticTable(2_000_000, 60_000, is_sorted=True, own=own, seed=1) for own in "ab")
    operation = GeneratedOperation(JOIN_MAXIMISE, pair)
    context = ExecutionContext.within(backend_for(0, "cpu"), Budget(1 << 28), tmp_path, Execution(streams=2))
    expected = digest_here(operation, context)
    assert expected.fault == ""
    workers.kill_at(5, most=10)
    while len(workers.killed) < 10:
        with cutting(most_segment_seconds=0.5):
            assert digest_by(workers, operation, tmp_path, "cpu", None) == expected
    workers.kill_at(0)


def test_a_worker_that_dies_at_work_has_its_work_done_by_another(workers):
    future = workers.submit("sleeping", slept, 1.0)
    deadline = time.monotonic() + 60
    while len(workers.running) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.3)
    killed = workers.running
    for pid in killed:  # either may have it
        os.kill(pid, signal.SIGKILL)
    with suppress(LostWorkError):  # it came to an end, and its result was lost on its way
        assert future.result(120) not in killed


def test_errors_come_back_as_they_are(workers):
    with pytest.raises(UsageError, match="what was wrong"):
        workers.submit("failing", failed, "what was wrong").result(60)


def test_workers_that_cannot_begin_are_told_of(scratch, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with LocalWorkers(1) as workers:
        workers.submit("sleeping", slept, 0)
        deadline = time.monotonic() + 60
        with pytest.raises(ClusterError, match="worker 1 exited 3 times at its start: nothing was printed"):
            while time.monotonic() < deadline:
                workers.check()
                time.sleep(0.05)


@pytest.fixture
def shared_scratch(scratch):
    """Where clusters within this process go; they leave a folder there."""
    yield scratch
    shutil.rmtree(scratch / "dask-scratch-space", ignore_errors=True)


@pytest.fixture
def client(shared_scratch):
    """A client of a cluster within this process."""
    import dask

    with (
        dask.config.set({"temporary-directory": str(shared_scratch)}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


def test_a_client_of_ones_own(client, tmp_path):
    submitted = []
    submit = client.submit
    client.submit = lambda *arguments, **more: submitted.append(more["key"]) or submit(*arguments, **more)
    problem = clique_problem()
    plain = verbs.run_task("count", problem, order_seconds=0, tables="incomplete")
    with tuned(segment_rows=20, first_segments=2, least_segment_seconds=0.5):
        found = verbs.run_task("count", problem, order_seconds=0, tables="incomplete", client=client, workdir=tmp_path)
    assert found.value == plain.value
    assert submitted and all("bucket of" in key for key in submitted)
    assert client.status == "running"
    assert list(tmp_path.iterdir()) == []


def test_many_problems_by_a_client_s_executor(client, tmp_path):
    """Each is a task of the cluster; what fails there is told here, and the client stays open."""
    (tmp_path / "broken.spot").write_text("nothing of this kind")
    files = ["examples/daily.spot", str(tmp_path / "broken.spot"), "examples/daily.spot"]
    found = list(oocbe.solve_many(files, executor=client.get_executor(), order_seconds=0))
    found.sort(key=lambda outcome: outcome.number)
    assert [outcome.result and outcome.result.value for outcome in found] == [2112, None, 2112]
    assert found[1].failure.kind == "FormatError" and "broken.spot" in found[1].failure.message
    assert client.status == "running"


@pytest.mark.usefixtures("shared_scratch")
def test_a_cluster_without_workers():
    with (
        distributed.LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50, processes=False
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        workers = DaskWorkers(client)
        workers._seen -= dask_workers.PATIENCE_SECONDS  # the last one was there so long ago
        try:
            with pytest.raises(ClusterError, match="no worker is left at"):
                found_by(workers)
        finally:
            workers.close()


def test_a_scheduler_that_is_gone(client, monkeypatch):
    workers = DaskWorkers(client)
    try:
        client.cluster.close()
        client.close()
        workers._look()
        with pytest.raises(
            ClusterError, match=r"the scheduler at .* is gone; run it again: .*goes on with --resume, and all else"
        ):
            workers.submit("sleeping", slept, 0)
        with pytest.raises(
            ClusterError, match=r"the scheduler at .* is gone; run it again: .*goes on with --resume, and all else"
        ):
            workers.check()
    finally:
        workers.close()


@pytest.fixture
def own_cluster(tmp_path):
    """A scheduler and a worker in processes of their own: the scheduler, and its address."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    command += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(tmp_path / "where")]
    scheduler = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd=tmp_path)
    processes = [scheduler]
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "where").exists() or not (text := (tmp_path / "where").read_text()):
            assert time.monotonic() < deadline and scheduler.poll() is None
            time.sleep(0.05)
        address = json.loads(text)["address"]
        command = [sys.executable, "-P", "-m", "oocbe.execution.cluster.worker", address]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        yield scheduler, address
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("number", "segment"), [pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow), (signal.SIGKILL, 4)]
)
def test_a_scheduler_that_is_killed(own_cluster, number, segment, monkeypatch, capfd):
    """In the middle of the work: one clear error in the end, and nothing that a thread has to say."""
    scheduler, address = own_cluster
    given, submit = [], DaskWorkers.submit

    def counted(self, *arguments):
        given.append(1)
        if len(given) == segment:
            scheduler.send_signal(number)
        return submit(self, *arguments)

    monkeypatch.setattr(DaskWorkers, "submit", counted)
    monkeypatch.setattr(dask_workers, "GONE_SECONDS", 0.5)
    with (
        pytest.raises(
            ClusterError, match=r"the scheduler at .* is gone; run it again: .*goes on with --resume, and all else"
        ),
        choice.use_cluster(None, address, None),
    ):
        found_by(current())
    assert capfd.readouterr().err == ""


def test_a_scheduler_that_stops_for_a_while(own_cluster, expected):
    scheduler, address = own_cluster
    with choice.use_cluster(None, address, None):
        scheduler.send_signal(signal.SIGSTOP)
        timer = threading.Timer(3.0, scheduler.send_signal, (signal.SIGCONT,))
        timer.start()
        assert found_by(current()) == expected
        timer.join()


def test_a_scheduler_that_answers_no_more(own_cluster, monkeypatch):
    scheduler, address = own_cluster
    monkeypatch.setattr(dask_workers, "PATIENCE_SECONDS", 1.0)
    try:
        with (
            pytest.raises(ClusterError, match=r"(has not answered|no worker is left) .*run it again"),
            choice.use_cluster(None, address, None),
        ):
            scheduler.send_signal(signal.SIGSTOP)
            found_by(current())
    finally:
        scheduler.send_signal(signal.SIGCONT)


def test_a_worker_whose_scheduler_never_answers(tmp_path):
    program = "from oocbe.execution.cluster import worker; worker.START_SECONDS = 1; worker.main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, "tcp://127.0.0.1:9"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 30
    assert done.stderr == "oocbe worker: no scheduler answers at tcp://127.0.0.1:9 for 1 seconds\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "right"), [("127.0.0.1:8799", "tcp://127.0.0.1:8799"), ("n1:1", "tls://n1:1")])
def test_an_address_without_its_scheme(given, right):
    with pytest.raises(UsageError, match=rf"cluster: {given}: tls:// or tcp:// is missing; give {right}"):
        SolveOptions.from_mapping({"cluster": given})


def test_clusters_that_do_not_answer_or_must_not_be_asked(monkeypatch):
    monkeypatch.setattr(choice, "CONNECT_SECONDS", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        oocbe.solve("examples/daily.spot", cluster="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="whoever reaches a scheduler's port runs code there"):
        oocbe.solve("examples/daily.spot", cluster="tcp://node1:8786")
    with pytest.raises(UsageError, match="Dask's configuration names no certificates"):
        oocbe.solve("examples/daily.spot", cluster="tls://127.0.0.1:9")
    with pytest.raises(UsageError, match="are of this host, and cluster"):
        oocbe.solve("examples/daily.spot", cluster="tcp://127.0.0.1:9", workers=2)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("sent", "why"), [(b"", "the port is silent"), (b"HTTP/1.1 400 Bad Request", "another program does")]
)
def test_a_port_without_a_scheduler(sent, why, monkeypatch):
    """A program that says nothing, such as a stopped scheduler, or something else, such as a dashboard."""
    monkeypatch.setattr(choice, "CONNECT_SECONDS", 0.5)

    def answer():
        with suppress(OSError), ExitStack() as taken:
            while True:
                taken.enter_context(listening.accept()[0]).sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        (thread := threading.Thread(target=answer)).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}: {why}"):
            oocbe.solve("examples/daily.spot", cluster=address)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("text", ["two", "gpus:0", "cpus", True, "-1", "2:cpus"])
def test_workers_that_make_no_sense(text):
    with pytest.raises(UsageError, match="is none of 2, cpus:4, gpus and gpus:2"):
        SolveOptions.from_mapping({"workers": text})


def test_no_workers_by_number():
    assert SolveOptions.from_mapping({"workers": "0"}).workers is None


def test_gpus_where_none_can_be_used(monkeypatch):
    """The option is named, and what to ask for instead."""
    monkeypatch.setattr(device, "why_unavailable", lambda: "this machine has no CUDA device")
    message = "workers: gpus requests GPUs, and no GPU can be used: this machine has no CUDA device; give cpus:N"
    with pytest.raises(UsageError, match=message):
        oocbe.count("examples/daily.spot", workers="gpus", order_seconds=0)


def test_workers_of_this_host(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "3")
    assert choice.local_workers("3", None).processes == choice.local_workers("cpus:3", 10).processes == 3
    assert choice.local_workers("cpus:7", None).processes == 7
    with pytest.raises(UsageError, match=r"5 processes for 3 threads; give cpus:5 to start them nevertheless$"):
        choice.local_workers("5", None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(UsageError, match="as many as --cpus-per-task says"):
        choice.local_workers("5", None)


def test_nothing_is_started_where_no_bucket_is_large():
    result = oocbe.solve("examples/daily.spot", workers="cpus:2", order_seconds=0)
    assert result.value == 2112
    assert current() is None


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with LocalWorkers(1) as workers, pytest.raises(UnsupportedError, match=r"pip install -e '\.\[cluster\]'"):
        workers.submit("x", slept, 0)


SOLVE = """
import json, sys
from pathlib import Path
from oocbe.execution.cluster.started_workers import LocalWorkers
from oocbe.execution.cluster.workers import using
from oocbe.model.settings.tuning import tuned
from tests.elimination.test_piecewise import complete_problem
from tests.helpers.durable_runs import solve_in

if __name__ == "__main__":
    cutting = tuned(segment_rows=1000, first_segments=8, least_segment_seconds=0.3)
    with LocalWorkers(2) as workers, using(workers), cutting:
        found = solve_in(Path(sys.argv[1]), problem=complete_problem(7, 6), order=sys.argv[2], bounds="none")
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_process_that_asks_killed_and_resumed(tmp_path):
    """Its workers end with it, and what is left of it is gone once it has been resumed."""
    order = tmp_path / "order"
    order.write_text("\n".join(f"x{v}" for v in range(7)))
    command = [sys.executable, "-c", SOLVE, str(tmp_path / "run"), str(order)]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("run/order-*/.message-*.partial/part-*"))) < 3:  # one of its own, two of workers
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    assert len(children) >= 2
    first.kill()
    first.wait()
    while [pid for pid in children if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    expected = solve_in(None, problem=PROBLEM, order=str(order), bounds="none")
    for name in ("value", "assignment", "tables"):
        assert found[name] == expected[name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["order", "run"]
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("o")] == []
