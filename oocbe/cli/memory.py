"""The memory limit of a command: what its flag or the environment says, kept by the process as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oocbe.errors import ResourceError
from oocbe.results.failure import is_want_of_memory
from oocbe.system.memory import REMEDY, MemoryLimit

VARIABLE = "OOCBE_MEMORY"
"""Environment variable of the limit, for commands without the flag, too."""

DEVICE = Path("/dev/nvidiactl")
"""There where the machine has a device, whose driver maps far more than it uses."""


@contextmanager
def limited(flag: object) -> Iterator[None]:
    """Within the block the process takes what the flag, or else the environment, allows beside the program itself.

    Where neither names a limit, readers and verbs hold themselves to the default one.

    Raises
    ------
    ResourceError : in place of any error that says that memory could not be had.
    """
    given = flag if isinstance(flag, str) else os.environ.get(VARIABLE)
    if not given:
        yield
        return
    from oocbe.settings.machine import available_processors  # with NumPy, which other commands do without
    from oocbe.settings.option_values import parse_bytes
    from oocbe.system.data_limit import data_limit
    from oocbe.tables.table import format_bytes

    limit = parse_bytes("--memory" if isinstance(flag, str) else VARIABLE, given)
    assert limit is not None
    with MemoryLimit(limit):
        if DEVICE.exists():
            yield
            return
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own maps a gigabyte for its first array
        try:
            with data_limit.of(limit, available_processors()):
                yield
        except Exception as error:
            if not is_want_of_memory(error):
                raise
            said = f" ({error})" if str(error) else ""
            raise ResourceError(f"the memory limit of {format_bytes(limit)} was reached{said}; {REMEDY}") from error
