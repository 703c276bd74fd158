"""The limit on a process's address space (``ulimit -v``), which makes libraries fail to load, or end the process in C.

NumPy's BLAS and LLVM map more address space than memory, and end the process if mapping fails. Therefore the limit is
checked before they are loaded.
"""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path

from oocbe.errors import ResourceError

ARRAYS_BYTES = 160 << 20
"""Address space for NumPy, in bytes. It took 121 MiB, less the BLAS buffers of one thread."""

LOOPS_BYTES = 256 << 20
"""Address space for compiled loops, in bytes. Numba and LLVM took 175 MiB, the loops of a small solve 127 MiB."""

THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
"""Variable for the number of BLAS threads: NumPy allocates buffers for each core, which the engine does not need."""

_ARENA_MAX = -8
"""Parameter of ``mallopt``, as in ``malloc.h``."""


def limit() -> int | None:
    """Limit on this process's address space in bytes; None without one."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def require(nbytes: int, what: str) -> None:
    """Raise ResourceError if less than ``nbytes`` of address space remains for loading ``what``."""
    most = limit()
    if most is None:
        return
    os.environ.setdefault(THREADS_VARIABLE, "1")
    share_arenas()
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return
    if most - used < nbytes:
        raise ResourceError(
            f"out of memory: {what} takes {nbytes >> 20} MiB of address space, and {max(0, most - used) >> 20} MiB are "
            f"left; {remedy(most)}"
        )


@cache
def share_arenas() -> None:
    """Make all threads of this process share one malloc arena, unless ``MALLOC_ARENA_MAX`` is set.

    Otherwise the C library maps 64 MiB of address space for each, and each keeps its own freed blocks: under a limit of
    48 MiB, the resident set of a join on 16 threads grew by 99 MiB, with one arena by 26 MiB in the same time.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def remedy(most: int) -> str:
    """Advice about a limit in bytes."""
    return f"the limit on address space (ulimit -v) is {most >> 20} MiB: raise it"
