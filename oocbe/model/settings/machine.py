"""Memory and processors of the machine available to this process, and their use; memory in bytes.

A batch job or container usually has less memory than the machine; therefore the control group's limit counts first.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path

from oocbe.model.settings.option_values import parse_bytes, parse_count
from oocbe.runtime.process_memory import LARGE_BLOCK, own_memory

DEVICE_MEMORY_VARIABLE = "OOCBE_DEVICE_MEMORY"
"""Environment variable with a limit on device memory for operators, which have no such option."""

GPUS_VARIABLE = "OOCBE_GPUS"
"""Environment variable with a limit on the number of GPUs for operators, which have no such option."""

_gpus: ContextVar[int | None] = ContextVar("gpus", default=None)

CONTROL_GROUP_ROOT = Path("/sys/fs/cgroup")
"""Mount point of control groups."""

DEFAULT_SHARE = 0.8
"""Default share of the available memory to use: the rest is for the interpreter, compiled code and the operating
system's file cache, without which writing tables to disk stalls."""


def _control_group(controller: str = "") -> Path:
    """Path of this process's group in version 2's hierarchy, or a controller's of version 1; else the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return Path("/")
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return Path(group)
    return Path("/")


def _folders(root: Path, group: Path) -> list[Path]:
    """The folders of a group and its ancestors, including the root's."""
    relative = Path(*[part for part in group.parts if part not in ("/", "..")])
    return [root / relative, *(root / parent for parent in relative.parents)]


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def control_group_limit(root: Path = CONTROL_GROUP_ROOT, group: Path | None = None) -> int | None:
    """The tightest memory limit, in bytes, of this process's control groups and ancestors; None without one."""
    first = _control_group("memory") if group is None else group
    group = _control_group() if group is None else group
    limits = [_read_limit(folder / "memory.max") for folder in _folders(root, group)]
    limits += [_read_limit(folder / "memory.limit_in_bytes") for folder in _folders(root / "memory", first)]
    return min((limit for limit in limits if limit is not None), default=None)


def control_group_processors(root: Path = CONTROL_GROUP_ROOT, group: Path | None = None) -> float | None:
    """The tightest processor quota of this process's control groups, such as 2.5 processors; None without one."""
    group = _control_group() if group is None else group
    quotas = [_read_quota(folder / "cpu.max") for folder in _folders(root, group)]
    first = [_read_limit(root / "cpu" / f"cpu.cfs_{what}_us") for what in ("quota", "period")]  # version 1
    if first[0] is not None and first[1]:
        quotas.append(first[0] / first[1])
    return min((quota for quota in quotas if quota is not None), default=None)


def _read_quota(file: Path) -> float | None:
    try:
        quota, period = file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


@cache
def available_processors() -> int:
    """Maximum concurrent threads: cores available to this process, or its control group's quota, if less."""
    cores = len(os.sched_getaffinity(0))
    quota = control_group_processors()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


_SECONDS_KEPT = 1.0
"""Seconds for which limits of control groups are cached: reading them takes as long as making a small table."""


def available_memory() -> int:
    """Maximum bytes for this process: the machine's memory, or the control group's limit, if less."""
    return _memory_at(time.monotonic() // _SECONDS_KEPT)


@lru_cache(maxsize=1)
def _memory_at(moment: float) -> int:
    """Available memory, cached for one interval of time."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = control_group_limit()
    return machine if limit is None else min(machine, limit)


def default_memory_limit() -> int:
    """Default memory limit in bytes."""
    return int(available_memory() * DEFAULT_SHARE)


def check_room(nbytes: int, limit: int | None = None) -> None:
    """Raise MemoryError if a block of ``nbytes`` bytes does not fit the limit in addition to the process's memory.

    limit : bytes; None: the default one.

    For results in memory, which have no limit of their own: the system would grant the block, and kill the process on
    writing to it.
    """
    limit = default_memory_limit() if limit is None else limit
    if nbytes > limit or (nbytes >= LARGE_BLOCK and own_memory() + nbytes > limit):
        raise MemoryError


def device_memory_limit() -> int | None:
    """Bytes that ``OOCBE_DEVICE_MEMORY`` allows on a device; None: all. UsageError: no number of bytes."""
    return parse_bytes(DEVICE_MEMORY_VARIABLE, os.environ.get(DEVICE_MEMORY_VARIABLE) or None)


@contextmanager
def use_gpus(count: int | None) -> Iterator[None]:
    """Within the block, this process uses at most so many GPUs; None: as many as :data:`GPUS_VARIABLE` states."""
    token = _gpus.set(count)
    try:
        yield
    finally:
        _gpus.reset(token)


def gpu_limit() -> int | None:
    """GPUs that this process uses at most; None: all. UsageError: :data:`GPUS_VARIABLE` is not positive."""
    text = os.environ.get(GPUS_VARIABLE)
    return _gpus.get() or (parse_count(GPUS_VARIABLE, text) if text else None)
