"""NumPy's buffers under a limit of the process's data: where they find no memory, NumPy ends the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np

from oocbe.runtime.data_limit import BUFFER_ITEMS, data_limit

PROGRAM = """
import ctypes, os, resource, sys
import numpy as np
from oocbe.runtime.data_limit import data_limit, mapped_data

random = np.random.default_rng(0)
values, best = random.integers(0, 100, (4000, 5)), random.integers(0, 100, 4000)
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
for hole in range(20, 280, 12):
    for count in (1, 2, 3, 4, 5):
        child = os.fork()
        if child == 0:
            with data_limit.of(1 << 30, 1):
                resource.setrlimit(resource.RLIMIT_DATA, (mapped_data() + 1500 * 1024,) * 2)
                holes = [library.malloc(ctypes.c_size_t(hole * 1024)) for _ in range(count)]
                for bits in range(20, 7, -1):
                    while library.malloc(ctypes.c_size_t(1 << bits)):
                        pass
                for place in holes:
                    library.free(ctypes.c_void_p(place))
                try:
                    for _ in range(20):
                        values - best[:, None]
                except (MemoryError, SystemError):  # NumPy's ways to report one
                    os._exit(1)
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            sys.exit(f"{count} holes of {hole} KiB: signal {os.WTERMSIG(status)}")
"""


def test_a_broadcast_without_memory_is_an_error():
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_buffers_are_short_in_all_threads_and_as_before_behind_the_block():
    before, seen = np.getbufsize(), []
    with data_limit.of(1 << 30, 2):
        assert np.getbufsize() == BUFFER_ITEMS
        thread = threading.Thread(target=lambda: seen.append(np.getbufsize()))
        thread.start()
        thread.join()
    assert seen == [BUFFER_ITEMS] and np.getbufsize() == before
