"""The memory limit of a command: what its flag or the environment says, kept by the process as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oocbe.runtime.memory import MemoryLimit

VARIABLE = "OOCBE_MEMORY"
"""Environment variable of the limit, for commands without the flag, too."""

DEVICE = Path("/dev/nvidiactl")
"""File of NVIDIA's driver. Where it exists no system limit is set: the driver maps far more memory than it uses."""


@contextmanager
def limited(flag: object) -> Iterator[None]:
    """Within the block the process takes what the flag, or else the environment, allows beside the program itself.

    Where neither names a limit, readers and verbs hold themselves to the default one.
    """
    given = flag if isinstance(flag, str) else os.environ.get(VARIABLE)
    if not given:
        yield
        return
    from oocbe.model.settings.machine import available_processors  # with NumPy, which other commands do without
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
