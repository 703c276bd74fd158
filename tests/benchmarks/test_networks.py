"""The benchmark of networks runs from its command, with and without real instances, and its dense peer is right."""

from __future__ import annotations

import pytest

import oocbe
from benchmarks.peers import dense
from oocbe.formats import write
from oocbe.stress import Spot5Settings, grid_network, random_network, spot5_day

ARGUMENTS = ("--seconds", "10", "--order-seconds", "0")


@pytest.fixture
def run(run_benchmark, monkeypatch):
    monkeypatch.setenv("OOCBE_BACKEND", "cpu")
    return lambda folder, *arguments: run_benchmark("networks", folder, *ARGUMENTS, *arguments)


def test_bounds_of_a_day_and_what_is_skipped(tmp_path, run):
    (tmp_path / "spot5").mkdir()
    write(spot5_day(Spot5Settings(photographs=14, seed=3)), tmp_path / "spot5" / "54.spot")
    done = run(tmp_path, "--tables", "10", "--only", "54,503", "--z", "3,4", "--seeds", "1", "--markdown")
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stderr and "spot5/503.spot" in done.stderr
    rows = [
        line.split("|") for line in done.stdout.splitlines() if line.startswith("| 54.spot") or line.startswith("|  |")
    ]
    optimum = oocbe.solve(tmp_path / "spot5" / "54.spot", order_seconds=0, backend="cpu").value
    measured = [row for row in rows if row[3].strip()]
    assert measured
    for row in measured:
        assert int(row[4].replace(",", "")) <= optimum <= int(row[5].replace(",", ""))


def test_networks_agree_with_the_peers(tmp_path, run):
    peers = "dense,toulbar2" if _has_toulbar2() else "dense"
    done = run(tmp_path, "--tables", "2", "--quick", "--peers", peers)
    assert done.returncode == 0, done.stderr
    assert "Table 2, scale-free networks" in done.stdout
    assert "answers differ" not in done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_the_dense_peer(seed):
    for problem in (random_network(8, 4, 0.5, tightness=0.3, seed=seed), grid_network(4, 3, tightness=0.4, seed=seed)):
        expected = oocbe.solve(problem, order_seconds=0, backend="cpu")
        order = list(range(len(problem.variables)))
        answer = dense.solve(problem, order, 1 << 30)
        assert (answer.status, answer.value) == (expected.status, expected.value)
        with pytest.raises(dense.OutOfMemoryError):
            dense.solve(problem, order, 100)


def _has_toulbar2() -> bool:
    from importlib.util import find_spec

    return find_spec("pytoulbar2") is not None
