"""``oocbe synth table`` and ``oocbe stress``: as a user calls them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app
from oocbe.execution.cluster.workers import use_workers
from oocbe.model.settings.tuning import tuned
from oocbe.tables import scratch
from oocbe.tables.stored import StoredTable
from tests.helpers.thread_workers import InThreads


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_table(tmp_path):
    done = call("synth", "table", tmp_path / "t", "--rows", "2e4", "--groups", 500, "--sizes", "zipf", "-n", 4)
    assert done.exit_code == 0, done.output
    table = StoredTable.open(tmp_path / "t")
    assert table.scope == ("e", "a", "k0", "k1")
    assert 15_000 < table.rows <= 20_000
    assert "20" in done.output or f"{table.rows:,}" in done.output


@pytest.mark.parametrize("operator", ["join-maximise", "join-sum", "maximise"])
@pytest.mark.parametrize("flags", [[], ["--sizes", "zipf"], ["--sorted"]], ids=str)
def test_stress_finds_right_answers(tmp_path, operator, flags):
    done = call(
        "stress", "--rows", "3e4", "--operator", operator, "--memory", "32MiB", "--workdir", tmp_path, *flags, "--json"
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert report["fault"] == ""
    assert report["rows_out"] > 1000
    assert {"seconds_starting", "seconds_making", "seconds", "seconds_checking"} <= set(report)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("operator", ["join-maximise", "join-sum", "maximise"])
def test_stress_over_workers(tmp_path, operator):
    """Tables are made, and results checked, by workers as well."""
    with InThreads(2) as workers, use_workers(workers), tuned(segment_rows=25_000):
        done = call(
            "stress", "--rows", "3e4", "--operator", operator, "--memory", "96MiB", "--workdir", tmp_path, "--json"
        )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout[done.stdout.index("{") :])["fault"] == ""
    kinds = {kind[0] for kind in workers.readied}
    assert {"synthetic", "sort"} <= kinds and ("check" in kinds) == (operator != "maximise")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("operator", ["join-maximise", "maximise"])
def test_generated_rows_have_the_digest_of_stored_ones(tmp_path, operator):
    common = ["stress", "--rows", "3e4", "--operator", operator, "--memory", "96MiB", "--workdir", tmp_path]
    found = []
    for flags in (["--sorted"], ["--generated"], ["--generated", "--streams", 3]):
        done = call(*common, *flags, "--digest", "--json")
        assert done.exit_code == 0, done.output
        found.append(json.loads(done.stdout[done.stdout.index("{") :]))
    with InThreads(2) as workers, use_workers(workers):
        done = call(*common, "--generated", "--digest", "--json")
        found.append(json.loads(done.stdout[done.stdout.index("{") :]))
    assert ("generated", operator) in workers.readied
    assert len({(each["digest"], each["rows_out"], each["fault"]) for each in found}) == 1
    assert not list(tmp_path.iterdir())


def test_a_long_run_says_how_far_it_has_come(tmp_path, monkeypatch):
    monkeypatch.setattr("oocbe.cli.synth.NOTE_SECONDS", 0.0)
    monkeypatch.setattr("oocbe.stress.generated_operations.STRETCH_ROWS", 1000)
    done = call("stress", "--rows", "3e4", "--generated", "--memory", "96MiB", "--workdir", tmp_path)
    lines = [line for line in done.stderr.splitlines() if " rows (" in line]
    assert len(lines) == 2 and re.match(r"(\d+,\d+) of \1 rows \(100.0%\) after ", lines[-1])


def test_stress_tells_people_sizes_and_times_in_units(tmp_path):
    done = call("stress", "--rows", "3e4", "--memory", "32MiB", "--workdir", tmp_path)
    assert done.exit_code == 0, done.output
    told = dict(re.split(" {2,}", line) for line in done.stdout.splitlines() if "  " in line)
    assert told["bytes in"] == "703.1 KiB"
    assert told["rows in"] == "60,000"
    assert all(
        re.fullmatch(r"([0-9]+ min )?[0-9.]+ m?s", content)
        for name, content in told.items()
        if name.startswith("seconds")
    )
    assert re.fullmatch(r"[0-9.]+ [MG]iB", told["peak memory"])


def test_what_a_killed_stress_leaves_is_removed_by_the_next(tmp_path, monkeypatch):
    """Its tables are in a folder that it has locked; the lock is gone with it."""

    class Left(scratch.ScratchFolder):
        def close(self, interrupted=False):
            self._lock.release()
            self._end.detach()

    with monkeypatch.context() as patch:
        patch.setattr(scratch, "ScratchFolder", Left)
        assert call("stress", "--rows", "3e4", "--workdir", tmp_path).exit_code == 0
    (left,) = tmp_path.iterdir()
    assert (left / "a" / "manifest.json").exists()
    assert call("stress", "--rows", "3e4", "--workdir", tmp_path).exit_code == 0
    assert not list(tmp_path.iterdir())


def test_stress_notices_a_wrong_kernel(tmp_path, monkeypatch):
    from oocbe.kernels.cpu.backend import CpuBackend

    def off_by_one(*arguments):
        keys, values = join(*arguments)
        values[np.argmax(values)] += 1
        return keys, values

    join = CpuBackend.join_rows
    monkeypatch.setattr(CpuBackend, "join_rows", staticmethod(off_by_one))
    done = call("stress", "--rows", "3e4", "--operator", "join-sum", "--workdir", tmp_path, "--backend", "cpu")
    assert done.exit_code == 1
    assert "has another value" in done.output


@pytest.mark.parametrize(
    "flags", [["--rows", "many"], ["--rows", "1.5"], ["--operator", "sort"], ["--sizes", "normal"]], ids=str
)
def test_wrong_use(tmp_path, flags):
    assert call("stress", "--workdir", tmp_path, *flags).exit_code == 2


@pytest.mark.parametrize("option", ["workers", "cluster"])
def test_who_works_is_taken_from_the_environment(monkeypatch, option):
    """A job's script says so there."""
    monkeypatch.setenv(f"OOCBE_{option.upper()}", "nobody")
    done = call("stress", "--rows", "1e3")
    assert done.exit_code == 2 and f"OOCBE_{option.upper()}: 'nobody'" in done.stderr
