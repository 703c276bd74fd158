"""Processes that end with the one that started them, however it ended."""

from __future__ import annotations

import os
import threading
import time

ALONE_SECONDS = 0.2
"""So often a process looks whether the one that started it is still there."""


def end_with(parent: int) -> None:
    """End this process, in the middle of a compiled loop too, when the one that started it is there no more."""
    threading.Thread(target=_watch, args=(parent,), name="oocbe-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ALONE_SECONDS)
    os._exit(1)
