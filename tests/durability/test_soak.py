"""Many solves in one process: memory, file descriptors, threads and temporary files stay flat."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from oocbe.errors import DiskError
from oocbe.runtime.process_memory import resident_memory
from oocbe.tables.disk import hooked
from tests.helpers.durable_runs import solve_in

GROWTH = 24 << 20
"""Bytes that a process may grow by after its first solves: caches of the allocator and of Zarr, not tables."""


POOLS = ("oocbe_", "asyncio_", "zarr_io")
"""Threads of pools that a process keeps, ours and Zarr's: they start one by one, up to a number for each machine."""


def state() -> tuple[int, int]:
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith(POOLS)]
    return len(list(Path("/proc/self/fd").iterdir())), len(threads)


def one_round(folder: Path, number: int) -> None:
    """A run in a directory, one that fails and is resumed, one in a scratch folder."""

    def fail(operation, path):
        if operation == "rename" and path.name == "message-00004.json":
            raise OSError(28, os.strerror(28), str(path))
        return

    solve_in(folder / "run", resume=False, order="min-degree")
    with hooked(fail), pytest.raises(DiskError):
        solve_in(folder / "failing", resume=False, order="min-degree")
    solve_in(folder / "failing", order="min-degree")
    solve_in(None, order="min-degree")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.parametrize(
    "solves", [pytest.param(20, id="20 solves"), pytest.param(200, id="200 solves", marks=pytest.mark.slow)]
)
def test_soak(solves, tmp_path, monkeypatch, tune):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tune(message_bytes=1500)
    for number in range(3):
        one_round(tmp_path, number)
    before, memory = state(), resident_memory()
    for number in range(solves // 4):
        one_round(tmp_path, number)
        files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
        assert files == [f"{run}/{name}" for run in ("failing", "run") for name in ("lock", "result.json", "run.json")]
    after = state()
    grown = resident_memory() - memory
    print(f"{solves} solves: descriptors and threads {before} to {after}, memory grew by {grown / 2**20:.1f} MiB")
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1]
    assert grown < GROWTH
