"""Switch interval of the interpreter's threads while one of them feeds the device."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 2e-4
"""Switch interval of the interpreter's threads, in seconds (5 ms by default)."""

_lock = threading.Lock()
_users = 0
_before = 0.0


@contextmanager
def quick_switching() -> Iterator[None]:
    """Shorten the interpreter's switch interval for the time of a ``with`` block, in the whole process.

    The thread that queues kernels releases the interpreter at each call of the runtime. With many threads that read,
    check and write, it would wait for each of them in turn.
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(SECONDS, _before))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setswitchinterval(_before)
