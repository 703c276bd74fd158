"""A process in which the n-th block of memory from a size on cannot be had, for every n, one after the other."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SOURCE = """
#include <errno.h>
#include <stddef.h>
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static long left = -1, least = 1;
void fail_allocation(long number, long size) { left = number; least = size; }
long allocations_left(void) { return left; }
static int fails(size_t size) {
    if (size < (size_t)least || __atomic_load_n(&left, __ATOMIC_RELAXED) <= 0) return 0;
    if (__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0) return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t size) { return fails(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return fails(size) ? NULL : __libc_realloc(block, size); }
"""

WORK = """
import json, sys
from pathlib import Path
from tests.helpers.failing_allocations import every_allocation
print(json.dumps(every_allocation(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
"""


def library(folder: Path) -> Path | None:
    """A library to be loaded before all others; None where it cannot be made."""
    source, made = folder / "failing.c", folder / "failing.so"
    source.write_text(SOURCE)
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, source], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return made


def ends_of(made: Path, what: str, folder: Path, least: int, step: int) -> list[list[str]]:
    """Kinds and messages of the errors of a work whose allocations fail, one for each n that was tried."""
    environment = {**os.environ, "LD_PRELOAD": str(made), "OOCBE_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["TMPDIR"] = str(folder)
    command = [sys.executable, "-c", WORK, what, str(folder), str(least), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


def every_allocation(what: str, folder: Path, least: int, step: int) -> list[list[str]]:
    """In a process with the library: the work's end for the first allocation that fails, the one ``step`` later, ….

    The last one is that of a work that needs no more allocations: an answer.
    """
    work = {"solve": _solve, "operator": _join}[what](folder)
    shim = ctypes.CDLL(None)
    work()
    ends, number = [], 1
    while True:
        left = sorted(path.name for path in folder.iterdir())
        shim.fail_allocation(ctypes.c_long(number), ctypes.c_long(least))
        try:
            work()
            end = ["", ""]
        except Exception as error:
            end = [type(error).__name__, str(error)]
        has_failed = shim.allocations_left() == 0
        shim.fail_allocation(ctypes.c_long(-1), ctypes.c_long(least))
        found = sorted(path.name for path in folder.iterdir())
        if end[0] and found != left:  # clearing up has failed: the next work does it
            work()
            found = sorted(path.name for path in folder.iterdir())
            end = end if found == left else ["left", f"{end}: {left} {found}"]
        ends.append(end)
        if not has_failed:
            return ends
        number += step


def _solve(folder: Path) -> Callable[[], None]:
    import oocbe

    problem = oocbe.Problem(
        tuple(oocbe.Variable(f"x{i}", 4) for i in range(8)),
        tuple(
            oocbe.Function(
                (i, i + 2),
                [[a, b] for a in range(4) for b in range(4)],
                [a * b + i for a in range(4) for b in range(4)],
                0,
            )
            for i in range(6)
        ),
    )
    options = {"order_seconds": 0, "backend": "cpu", "bounds": "none", "tables": "incomplete", "memory": "64MiB"}

    def work() -> None:
        assert oocbe.solve(problem, **options).value == 15

    return work


def _join(folder: Path) -> Callable[[], None]:
    import numpy as np

    import oocbe

    rows = np.arange(3000)
    tables = [
        oocbe.Table.from_rows({"a": 60, "b": 50}, np.array([rows // 50, rows % 50]).T, rows, oocbe.MIN_SUM),
        oocbe.Table.from_rows({"b": 50, "c": 60}, np.array([rows % 50, rows // 50]).T, rows, oocbe.MIN_SUM),
    ]
    options = {"memory": "16MiB", "scratch": folder, "backend": "cpu", "overwrite": True, "streams": 1}

    def work() -> None:
        assert oocbe.join_maximise(*tables, ["b"], output=folder / "joined", **options).rows == 3600

    return work
