"""Who reaches the processes of a run: nobody without its key, and nobody from another host."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import oocbe
from oocbe.execution.cluster import started_workers
from oocbe.execution.cluster.started_workers import LocalWorkers, SlurmSettings, SlurmWorkers
from tests.execution.cluster.test_slurm import commands  # noqa: F401
from tests.helpers.listening import answer_of, code_that_runs, descendants, ports
from tests.helpers.small_problems import clique
from tests.helpers.worker_functions import slept

distributed = pytest.importorskip("distributed")


def check_ports(found, processes: int) -> None:
    """One port for each process, all of them on loopback, where only who has the run's key is answered."""
    assert len(found) == len({port.process for port in found}) == processes
    for port in found:
        assert port.is_loopback, port
        for scheme, security in (("tcp", None), ("tls", started_workers.security_of_run())):
            assert isinstance(code_that_runs(port, scheme, security), Exception), (port, scheme)
        page = b"GET /health HTTP/1.0\r\n\r\n"
        for is_encrypted in (False, True):
            answer = answer_of(port, page, encrypted=is_encrypted)
            assert answer == b"" or isinstance(answer, Exception), (port, answer)


def security_in(folder: Path):
    """What a worker has: its certificates."""
    (key,) = folder.rglob(started_workers.KEY)
    certificate = key.with_name(started_workers.CERTIFICATE)
    assert key.stat().st_mode & 0o077 == 0 and key.parent.stat().st_mode & 0o077 == 0
    return distributed.Security(
        require_encryption=True, tls_ca_file=str(certificate), tls_client_cert=str(certificate), tls_client_key=str(key)
    )


def ready(workers) -> None:
    """Wait until all are there."""
    deadline = time.monotonic() + 120
    workers.submit("sleeping", slept, 0).result(120)
    while workers._dask.count < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_workers_of_this_host(tmp_path, monkeypatch):
    """The scheduler and each worker listen once, and whoever has the key runs code there: that is what it keeps out."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = ports([os.getpid()])
    with LocalWorkers(2) as workers:
        ready(workers)
        found = ports(descendants(os.getpid())) - before
        check_ports(found, 3)
        security = security_in(tmp_path)
        answers = [code_that_runs(port, "tls", security) for port in found if port.process != os.getpid()]
        assert [answer["status"] for answer in answers] == ["OK", "OK"]
    assert ports([os.getpid()]) == before


def test_workers_of_jobs(commands, tmp_path):  # noqa: F811
    """Here the network between the hosts is this host's loopback interface."""
    (shared := tmp_path / "shared").mkdir()
    settings = SlurmSettings(cores=2, processes=2, interface="lo", shared_temp_directory=shared)
    before = ports([os.getpid()])
    with SlurmWorkers(settings, 2) as workers:
        ready(workers)
        group = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and of_group(p, workers.jobs)]
        found = ports([os.getpid(), *group]) - before
        check_ports(found, 3)
        security = security_in(shared)
        answers = [code_that_runs(port, "tls", security) for port in found if port.process != os.getpid()]
        assert [answer["status"] for answer in answers] == ["OK", "OK"]


def of_group(process: Path, groups: list[str]) -> bool:
    """Whether a process is of one of these process groups, which a pretended job is."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[2] in groups
    except OSError:
        return False


def test_other_processes_listen_nowhere(monkeypatch):
    """Those that solve many problems, or are agents, talk through pairs of sockets without a name."""
    before = ports([os.getpid()])
    hard = clique(12, 8, largest=50)
    outcomes = oocbe.solve_many([clique(3, 2), hard, hard], jobs=2, bounds="none", dominance=False, backend="cpu")
    assert next(outcomes).number == 0
    assert len(descendants(os.getpid())) > 2
    assert ports(descendants(os.getpid())) == before
    outcomes.close()

    from oocbe.dcop import dpop
    from oocbe.dcop.agents import InProcesses

    collect, seen = InProcesses.collect, []

    def listed(self):
        seen.append((len(descendants(os.getpid())), ports(descendants(os.getpid())) - before))
        return collect(self)

    monkeypatch.setattr(InProcesses, "collect", listed)
    dpop(clique(4, 2), workers=2)
    assert seen and all(found == set() for _, found in seen) and max(number for number, _ in seen) > 1
