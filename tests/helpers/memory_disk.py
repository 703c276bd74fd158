"""Where tests put thousands of small files: forcing each to a real disk would take minutes, and tests nothing more."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Parent of temporary folders that is kept in memory; None, the system's own, where there is no such disk."""


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A temporary folder on the memory disk, removed at the end."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK, prefix="pytest-oocbe-") as folder:
        yield Path(folder)
