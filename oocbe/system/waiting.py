"""Waiting for other threads without becoming deaf: to signals, and to what ends the wait for another reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

LOOK_UP_SECONDS = 0.2
"""Waiting threads look up this often. A signal that arrives just before a thread blocks on a lock does not wake it."""


def wait_for(
    attempt: Callable[[float], Result], not_yet: type[Exception], check: Callable[[], None] = lambda: None
) -> Result:
    """What an attempt returns that may take time.

    Parameters
    ----------
    attempt : waits so many seconds at most, and raises ``not_yet`` where that was not enough.
    check : called before each attempt; raises what is to end the wait.
    """
    while True:
        check()
        try:
            return attempt(LOOK_UP_SECONDS)
        except not_yet:
            continue
