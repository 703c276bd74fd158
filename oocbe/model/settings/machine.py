"""What the machine allows and what this process has used of it: memory, in bytes.

A batch job or container usually has less memory than the machine shows, so the control group's limit counts first.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from oocbe.model.settings.option_values import parse_bytes
from oocbe.runtime.memory import own_memory

DEVICE_MEMORY_VARIABLE = "OOCBE_DEVICE_MEMORY"
"""Environment variable with a limit on device memory, for operators, which have no option for it."""

CONTROL_GROUP_ROOT = Path("/sys/fs/cgroup")
"""Where the system shows control groups."""

DEFAULT_SHARE = 0.8
"""Share of the available memory that is used when no limit is given: the rest is for the interpreter, compiled code
and the operating system's file cache, without which writing tables to disk stalls."""


def _control_group(controller: str = "") -> Path:
    """Path of this process's group in the hierarchy of version 2, or of a controller of version 1; else the root."""
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
    """The folders of a group and of those around it, the root's included."""
    relative = Path(*[part for part in group.parts if part not in ("/", "..")])
    return [root / relative, *(root / parent for parent in relative.parents)]


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def control_group_limit(root: Path = CONTROL_GROUP_ROOT, group: Path | None = None) -> int | None:
    """The tightest memory limit in bytes of the control groups that this process is in; None where there is none.

    Limits apply to everything below them, so all ancestors are looked at.
    """
    first = _control_group("memory") if group is None else group
    group = _control_group() if group is None else group
    limits = [_read_limit(folder / "memory.max") for folder in _folders(root, group)]
    limits += [_read_limit(folder / "memory.limit_in_bytes") for folder in _folders(root / "memory", first)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def control_group_processors(root: Path = CONTROL_GROUP_ROOT, group: Path | None = None) -> float | None:
    """Processors' worth of time that the tightest control group allows, such as 2.5; None where nothing limits it."""
    group = _control_group() if group is None else group
    quotas = [_read_quota(folder / "cpu.max") for folder in _folders(root, group)]
    first = [_read_limit(root / "cpu" / f"cpu.cfs_{what}_us") for what in ("quota", "period")]  # version 1
    if first[0] is not None and first[1]:
        quotas.append(first[0] / first[1])
    known = [quota for quota in quotas if quota is not None]
    return min(known) if known else None


def _read_quota(file: Path) -> float | None:
    try:
        quota, period = file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


@cache
def available_processors() -> int:
    """Threads that can run at a time: cores this process may run on, or, where less, its control group's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = control_group_processors()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


_SECONDS_KEPT = 1.0
"""How long limits of control groups are taken for unchanged: to read them takes as long as to make a small table."""


def available_memory() -> int:
    """Bytes that this process may use at most: the machine's memory, or the control group's limit where it is less."""
    return _memory_at(time.monotonic() // _SECONDS_KEPT)


@lru_cache(maxsize=1)
def _memory_at(moment: float) -> int:
    """What is available in a stretch of time."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = control_group_limit()
    return machine if limit is None else min(machine, limit)


def default_memory_limit() -> int:
    """Bytes used as the limit when the user gives none."""
    return int(available_memory() * DEFAULT_SHARE)


def check_room(nbytes: int, limit: int | None = None) -> None:
    """Raise MemoryError where a block of so many bytes does not fit the limit beside what the process has.

    limit : bytes; None: the default one.

    For results in memory, which have no limit of their own: the system would give the block, and kill the process when
    it is written to.
    """
    limit = default_memory_limit() if limit is None else limit
    if nbytes > limit or (nbytes >= LARGE_BLOCK and own_memory() + nbytes > limit):
        raise MemoryError


def peak_memory() -> int:
    """Largest resident set of this process so far, in bytes."""
    import resource  # absent on some systems; only needed when a result is made

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others kibibytes


def resident_memory() -> int:
    """Resident set of this process now, in bytes; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


LARGE_BLOCK = 1 << 20
"""Bytes from which a freed block goes back to the system at once, once a limit is to be kept."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``, as ``malloc.h`` has them."""


def give_back_large_blocks() -> None:
    """Have the C library give back large blocks when they are freed, for this whole process.

    It keeps blocks of up to 32 MiB for later by default, in a heap for each thread. Under a tight limit the resident
    set was half as large again as what was in use. Other C libraries than glibc are left as they are.
    """
    import ctypes  # absent on some systems; only needed where a limit is given

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, LARGE_BLOCK)  # it had grown with the blocks freed so far


def device_memory_limit() -> int | None:
    """Bytes of device memory that ``OOCBE_DEVICE_MEMORY`` allows; None: all of it.

    Raises
    ------
    UsageError : the variable is no number of bytes.
    """
    return parse_bytes(DEVICE_MEMORY_VARIABLE, os.environ.get(DEVICE_MEMORY_VARIABLE) or None)
