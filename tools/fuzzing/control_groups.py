"""Programs in a control group with little memory and no swap, or where none can be made, with their peak measured."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")

REMOVAL_SECONDS = 10.0
"""The kernel takes a while to end a process on a busy machine."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Ended:
    """A program that has ended.

    Attributes
    ----------
    code : exit code, negative where a signal ended it. output, errors : what it wrote.
    peak : most bytes that its group had, files that the system keeps for it included, or that it had itself.
    is_group : whether ``peak`` is the group's, which was limited.
    """

    code: int
    output: str
    errors: str
    peak: int
    is_group: bool


def run(
    command: Sequence[str], limit: int, environment: dict[str, str], seconds: float, folder: Path | None = None
) -> Ended:
    """Run a program whose group may have so many bytes; TimeoutExpired where it takes longer."""
    with group_of(limit) as group:
        join: Callable[[], object] | None = None
        if group is not None:
            members = group / "cgroup.procs"
            join = lambda: members.write_text(str(os.getpid()))  # noqa: E731  in the child, before its program
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            preexec_fn=join,
            cwd=folder,
        )
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if group is None:
            import resource

            # Of all children so far: no less than this one's.
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        else:
            peak = peak_of(group)
    return Ended(process.returncode, output, errors, peak, group is not None)


def run_python(
    command: Sequence[str], limit: int, environment: dict[str, str], seconds: float, folder: Path | None = None
) -> Ended:
    """:func:`run` of Python with these arguments."""
    return run([sys.executable, *command], limit, environment, seconds, folder)


@contextmanager
def group_of(limit: int) -> Iterator[Path | None]:
    """A new group, removed at the end; None where this process may not make one."""
    made: Path | None = None
    for parent, files in (
        (ROOT, {"memory.max": limit, "memory.swap.max": 0}),
        (ROOT / "memory", {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}),
    ):
        group = parent / f"oocbe-fuzz-{os.getpid()}-{next(_numbers)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, number in files.items():
                if "sw" not in name or (group / name).exists():  # kernels without swap have no limit on it
                    with (group / name).open("r+") as file:
                        file.write(str(number))
        except OSError:
            group.rmdir()
            continue
        made = group
        break
    try:
        yield made
    finally:
        if made is not None:
            _remove(made)


def _remove(group: Path) -> None:
    """End what is left in a group, for example processes that compile loops for the next run, and remove it."""
    end = time.monotonic() + REMOVAL_SECONDS
    while True:
        for process in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def peak_of(group: Path) -> int:
    """Most bytes that a group had."""
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        with suppress(OSError):
            return int((group / name).read_text())
    return 0
