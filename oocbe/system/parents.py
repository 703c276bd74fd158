"""A process that does not outlive the one that started it."""

from __future__ import annotations

import os
import threading
import time

ALONE_SECONDS = 0.2
"""So often a process looks whether the one that started it is still there."""


def end_with(parent: int) -> None:
    """End this process, in the middle of a join too, when the process that started it was killed."""
    threading.Thread(target=_wait_for_end, args=(parent,), name="oocbe-parent", daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ALONE_SECONDS)
    os._exit(1)
