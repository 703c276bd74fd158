"""The limit on a process's address space (``ulimit -v``), which makes libraries fail to load, or end the process in C.

NumPy's BLAS and LLVM map more address space than memory, and end the process if mapping fails. Therefore the limit is
checked before they are loaded.
"""

from __future__ import annotations

import os
import resource

from oocbe.errors import ResourceError
from oocbe.runtime.process_memory import memory_in_use, share_arenas

ARRAYS_BYTES = 160 << 20
"""Address space for NumPy, in bytes. It took 121 MiB, less the BLAS buffers of one thread."""

LOOPS_BYTES = 256 << 20
"""Address space for compiled loops, in bytes. Numba and LLVM took 175 MiB, the loops of a small solve 127 MiB."""

THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
"""Variable for the number of BLAS threads: NumPy allocates buffers for each core, which the engine does not need."""


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
    used = memory_in_use()[0]
    if most - used < nbytes:
        raise ResourceError(
            f"out of memory: {what} takes {nbytes >> 20} MiB of address space, and {max(0, most - used) >> 20} MiB are "
            f"left; {remedy(most)}"
        )


def remedy(most: int) -> str:
    """Advice about a limit in bytes."""
    return f"the limit on address space (ulimit -v) is {most >> 20} MiB: raise it"
