"""Steps of the backward pass where memory runs out: an error, never the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, resource, sys
from types import SimpleNamespace
import numpy as np
from oocbe.api.tasks.top_down import gaps
from oocbe.model.semiring import MIN_SUM

random = np.random.default_rng(0)
evaluated = SimpleNamespace(feasible=random.random((4000, 5)) < 0.5, values=random.integers(0, 100, (4000, 5)))
tables = SimpleNamespace(prepared=SimpleNamespace(semiring=MIN_SUM))
gaps(tables, evaluated)
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
for hole in range(20, 280, 6):
    for count in (1, 2, 3, 4, 5):
        child = os.fork()
        if child == 0:
            used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_DATA, (used + 1500 * 1024,) * 2)
            holes = [library.malloc(ctypes.c_size_t(hole * 1024)) for _ in range(count)]
            for bits in range(20, 7, -1):
                while library.malloc(ctypes.c_size_t(1 << bits)):
                    pass
            for place in holes:
                library.free(ctypes.c_void_p(place))
            try:
                for _ in range(20):
                    gaps(tables, evaluated)
            except (MemoryError, SystemError):  # NumPy's way to report one
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            sys.exit(f"holes of {hole} KiB, {count}: signal {os.WTERMSIG(status)}")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of a process's data is Linux's")
def test_gaps_end_in_an_error():
    # NumPy (2.4) ends the process where its buffer for a broadcast over short rows finds no memory.
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
