"""What tests ask workers to do."""

from __future__ import annotations

import os
import time

from oocbe.errors import UsageError


def slept(seconds: float) -> int:
    """The number of the process that slept."""
    time.sleep(seconds)
    return os.getpid()


def failed(text: str) -> None:
    raise UsageError(text)
