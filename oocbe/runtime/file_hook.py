"""Fault injection into file operations, for tests and the fuzz (:mod:`oocbe.tables.disk`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Hook = Callable[[str, Path], int | None]
"""Called with the operation (``create``, ``write``, ``synchronise``, ``rename``, ``folder``, ``remove``, ``read``) and
the file before it happens; may raise OSError, or return a limit of bytes for a write."""

_hook: Hook | None = None


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Within the block, ``hook`` is called for every file operation of this process; for tests."""
    global _hook
    outer, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = outer


def before(operation: str, path: Path) -> int | None:
    """Call the hook, if any."""
    return None if _hook is None else _hook(operation, path)
