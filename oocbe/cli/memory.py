"""The memory limit of a command, from its flag or the environment, for the whole process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oocbe.runtime.memory import MemoryLimit

VARIABLE = "OOCBE_MEMORY"
"""Environment variable of the limit, which also applies to commands without the flag."""

DEVICE = Path("/dev/nvidiactl")
"""File of NVIDIA's driver. If it exists, no system limit is set, as the driver maps far more memory than it uses."""


@contextmanager
def limited(flag: object) -> Iterator[None]:
    """Within the block, limit the process's memory to that of the flag, or else the environment, plus the program.

    If neither sets a limit, readers and verbs observe the default one.
    """
    given = flag if isinstance(flag, str) else os.environ.get(VARIABLE)
    if not given:
        yield
        return
    from oocbe.model.settings.machine import available_processors  # imports NumPy, which other commands do not need
    from oocbe.model.settings.option_values import parse_bytes
    from oocbe.runtime.data_limit import data_limit

    limit = parse_bytes("--memory" if isinstance(flag, str) else VARIABLE, given)
    assert limit is not None
    with MemoryLimit(limit):
        if DEVICE.exists():
            yield
            return
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own maps a gigabyte for its first array
        with data_limit.of(limit, available_processors()):
            yield
