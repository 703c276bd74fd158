"""Dask's settings for our workers, with the reason of each deviation from Dask's defaults.

They apply to processes that we start. An existing cluster has its own: no result depends on them, as every segment can
be repeated anywhere, and written parts count only once they are listed.
"""

from __future__ import annotations

from typing import Any

from oocbe.errors import install_hint

QUIET = "CRITICAL"
"""Log level of Dask's messages about workers; our own messages report them."""

SETTINGS: dict[str, Any] = {
    # A worker that dies is held against all tasks that it had, also those that waited there. Ours counts for itself
    # how often a segment was lost, and what is written by a worker that died is never listed.
    "distributed.scheduler.allowed-failures": 20,
    # The loops of a first segment are compiled for up to a minute; on a full machine no message leaves meanwhile.
    "distributed.scheduler.worker-ttl": "15 minutes",
    # Segments are large, few and alike: nothing is gained by moving those that wait.
    "distributed.scheduler.work-stealing": False,
    # The budget of each segment is the arbiter of memory. Dask's manager would pause or end workers by the size of a
    # process, in which memory that is free, and files that are mapped, count as used.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # A sampling profiler of its own takes a percent or two.
    "distributed.worker.profile.enabled": False,
    # Nor does anybody look at how the loops of messages and the machine are doing, fifty times a second and twice.
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    # Rows are in files, so there is no memory of Dask's to be managed.
    "distributed.scheduler.active-memory-manager.start": False,
    # Asking the driver makes a CUDA context before the worker's device is chosen.
    "distributed.diagnostics.nvml": False,
    # The loop of messages waits for compilers and for a full machine; that is no reason for a warning.
    "distributed.admin.tick.limit": "10 minutes",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.logging": {"distributed": QUIET, "distributed.worker": QUIET, "distributed.scheduler": QUIET},
}
"""Settings of Dask by name."""

MISSING = f"workers need Dask distributed, which is not installed ({{error}}); {install_hint('cluster')}"
"""Error message if Dask is not installed; ``error`` : the import error."""


def apply() -> None:
    """Apply the settings in this whole process, which is one of ours; others, such as certificates, stay Dask's."""
    import dask

    dask.config.set(SETTINGS)
