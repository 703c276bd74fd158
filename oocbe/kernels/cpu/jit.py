"""The one way in which loops are compiled here: Numba, without the interpreter lock, cached on disk.

Parallelism comes from :mod:`oocbe.kernels.cpu.threads` (several calls of one compiled loop over row ranges), not from
Numba's own: a compiled loop without the lock is simpler, can be scheduled dynamically and survives a fork.

Numba renews a cached compilation when the function's own file changes, not when a helper compiled into it from another
file does. So each module's compilations lie in a folder named after a digest of its source and of the modules of this
package that it names, directly or not; a new digest removes the folder of the one before.

Numba also loads everything that it compiles with before it looks into its cache. That takes longer than a small solve
does, so here code from the cache is loaded by itself: whatever must be compiled after all loads the rest then.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

Function = TypeVar("Function", bound=Callable[..., Any])

_MODULE = re.compile(rb"oocbe\.kernels\.cpu\.(\w+)")


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, which does without what only compiling needs."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for a signature, or None; Numba's own first refreshes the context, for over 100 ms."""
        rtsys.initialize(target_context)  # the allocations of compiled code
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def jit(function: Function) -> Function:
    """Compile a loop over arrays and numbers on its first call (decorator; the type stays the function's own)."""
    return _compiled(function)


def inline(function: Function) -> Function:
    """Like :func:`jit` for a small helper that its callers swallow whole, so that no call remains in their loops."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **settings: str) -> Function:
    """Numba takes the folder of its cache from its configuration, once, while it decorates a function."""
    folder = _cache_folder(function.__code__.co_filename, numba.config.CACHE_DIR)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        compiled: Any = numba.njit(nogil=True, **settings)(function)
        compiled._cache = _Cache(function)
    finally:
        numba.config.CACHE_DIR = before
    result: Function = compiled
    return result


@cache
def _cache_folder(source: str, chosen: str) -> str:
    """Where a module's compilations lie: in the folder chosen by ``NUMBA_CACHE_DIR``, next to it, or in the home."""
    package, file = os.path.split(source)
    module = file.removesuffix(".py")
    generation = f"{module}-{source_digest(package, module)}"
    if chosen:
        return str(Path(chosen, "oocbe", generation))  # possibly shared with other installations: nothing is removed
    if not os.access(package, os.W_OK):
        return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "oocbe", generation))
    folder = Path(package, "__pycache__", "compiled", generation)
    if not folder.exists():
        for stale in folder.parent.glob(f"{module}-*"):
            shutil.rmtree(stale, ignore_errors=True)
    return str(folder)


def source_digest(package: str, module: str) -> str:
    """Digest of a module's source and of those of the same folder that it names, directly or not."""
    found = {module}
    waiting = [module]
    while waiting:
        named = _source(package, waiting.pop())[1] - found
        found |= named
        waiting += named
    digest = blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(_source(package, name)[0])
    return digest.hexdigest()


@cache
def _source(package: str, module: str) -> tuple[bytes, frozenset[str]]:
    """Digest of a module's source, and the modules of this package that it names."""
    try:
        with open(f"{package}/{module}.py", "rb") as file:  # noqa: PTH123  (half the time of a Path, at every start)
            text = file.read()
    except OSError:  # a frozen program has no sources, and they do not change
        return b"", frozenset()
    return blake2b(text).digest(), frozenset(name.decode() for name in _MODULE.findall(text))
