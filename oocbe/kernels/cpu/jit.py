"""The one way in which loops are compiled here: Numba, without the interpreter lock, cached on disk.

Parallelism comes from :mod:`oocbe.kernels.cpu.threads` (several calls of one compiled loop over row ranges), not from
Numba's own: a compiled loop without the lock is simpler, can be scheduled dynamically and survives a fork.

Numba renews a cached compilation when the function's own file changes, not when a helper compiled into it from another
file does. So each module's compilations lie in a folder named after a digest of its source and of the modules of this
package that it names, directly or not; a new digest removes the folder of the one before. These folders lie in the
first of several places that can be written: a container may have a read-only program and no home.

Numba also loads everything that it compiles with before it looks into its cache. That takes longer than a small solve
does, so here code from the cache is loaded by itself: whatever must be compiled after all loads the rest then.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
from numba.core.caching import FunctionCache
from numba.core.event import Listener, register
from numba.core.runtime import rtsys

from oocbe.system.compilation import compilation

Function = TypeVar("Function", bound=Callable[..., Any])

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""The environment variable that says where compiled loops are kept."""

_MODULE = re.compile(rb"oocbe\.kernels\.cpu\.(\w+(?:\.\w+)*)")
"""Names of the package's modules of loops in a compiled function's data."""

PACKAGE = os.path.dirname(__file__)  # noqa: PTH120  (half the time of a Path, at every start)
"""The folder of this module, below which all compiled loops of the engine are."""


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, which does without what only compiling needs."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for a signature, or None; Numba's own first refreshes the context, for over 100 ms."""
        rtsys.initialize(target_context)  # the allocations of compiled code
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _Listener(Listener):  # type: ignore[misc]
    """Hears from Numba when it compiles; what is in the cache is not compiled."""

    def on_start(self, event: Any) -> None:
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()


register("numba:compile", _Listener())


def jit(function: Function) -> Function:
    """Compile a loop over arrays and numbers on its first call (decorator; the type stays the function's own)."""
    return _compiled(function)


def inline(function: Function) -> Function:
    """Compile a small helper into its callers' loops as a whole, so that no call remains there (decorator)."""
    return _compiled(function, inline="always")


def helper(function: Function) -> Function:
    """Compile a loop for other compiled loops only, which are the only ones that may call it (decorator).

    What makes Python objects into arguments is left out: it takes long to compile, about a hundredth of a second for
    each array, and as long as the loop itself for many.
    """
    return _compiled(function, no_cpython_wrapper=True)


def borrowing(function: Function) -> Function:
    """Compile a loop that borrows arrays and returns numbers, without counting references (decorator).

    It may not allocate; :func:`without_allocation` says more, and is for those that only loops call.
    """
    return _compiled(function, _nrt=False)


def without_allocation(function: Function) -> Function:
    """Compile a helper that borrows arrays and returns numbers, without counting references (decorator).

    Numba counts references to an array whenever it gets another name, goes into a tuple or is sliced, with an atomic
    instruction each, and only leaves out pairs of them that no loop parts: most of the time of a loop that handles
    millions of short pieces. Here nothing is counted. In return nothing can be allocated; Numba refuses to compile what
    would. Only other loops may call it, as with :func:`helper`.
    """
    return _compiled(function, _nrt=False, no_cpython_wrapper=True)


def _compiled(function: Function, **settings: Any) -> Function:
    """Numba takes the folder of its cache from its configuration, once, while it decorates a function.

    No loop is called from C, so what Numba would compile for that is left out.
    """
    folder = _cache_folder(function.__code__.co_filename, numba.config.CACHE_DIR)
    compiled: Any = numba.njit(nogil=True, no_cfunc_wrapper=True, **settings)(function)
    if folder is not None:
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
        try:
            compiled._cache = _Cache(function)
        finally:
            numba.config.CACHE_DIR = before
    result: Function = compiled
    return result


@cache
def _cache_folder(source: str, chosen: str) -> str | None:
    """Where a module's compilations lie; None where nothing can be written anywhere.

    chosen : the folder that ``NUMBA_CACHE_DIR`` names, or nothing.
    """
    package, module = _package_and_module(source)
    place = _place(package, chosen)
    if place is None:
        return None
    folder = Path(place.folder, f"{module}-{source_digest(package, module)}")
    if place.is_of_this_program and not folder.exists():
        for stale in folder.parent.glob(f"{module}-*"):
            shutil.rmtree(stale, ignore_errors=True)
    return str(folder)


class _Place(NamedTuple):
    """A folder for the compilations of all modules; one that other installations share keeps what is stale."""

    folder: str
    is_of_this_program: bool


@cache
def _place(package: str, chosen: str) -> _Place | None:
    """The first folder that can be written: the one chosen, next to the source, in the home, in the scratch folder."""
    if chosen:
        places = [_Place(f"{chosen}/oocbe", False)]
    else:
        beside, home = _Place(f"{package}/__pycache__/compiled", True), _home()
        places = [beside] if home is None else [beside, _Place(f"{home}/oocbe", False)]
    for place in places:
        if _can_be_written(place.folder):
            return place
    tried = " nor ".join(place.folder for place in places)
    folder = _scratch()
    if folder is None:
        _say(f"neither {tried} nor a scratch folder can be written, so loops are compiled anew in every process")
        return None
    _say(f"neither {tried} can be written, so compiled loops are kept in {folder}")
    return _Place(folder, False)


def _home() -> str | None:
    """The user's folder of caches; None where there is no home."""
    try:
        return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # a user that the system does not know
        return None


def _can_be_written(folder: str) -> bool:
    """Whether files can be made in a folder, which is made where it is missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _scratch() -> str | None:
    """A folder of this user alone where temporary files go: what lies there is run, so nobody else may write it.

    One that somebody else has made under this name is left alone: a new one is used, and removed at the end.
    """
    try:
        folder = Path(tempfile.gettempdir(), f"oocbe-cache-{os.geteuid() if hasattr(os, 'geteuid') else 'user'}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not _is_private(folder):
                folder = Path(tempfile.mkdtemp(prefix="oocbe-cache-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK | os.X_OK) else None


def _is_private(folder: Path) -> bool:
    """Whether this is a folder, no link, that only this user may look into."""
    found = folder.lstat()
    is_mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and is_mine and not stat.S_IMODE(found.st_mode) & 0o077


def _say(what: str) -> None:
    """Tell people, once: it is about a process and no error."""
    print(f"oocbe: {what}; {CACHE_VARIABLE} may name a better place", file=sys.stderr)


def _package_and_module(source: str) -> tuple[str, str]:
    """The folder that modules are named from, and a module's name there: dotted where it lies deeper."""
    package = PACKAGE if source.startswith(PACKAGE + os.sep) else os.path.dirname(source)  # noqa: PTH120
    return package, source[len(package) + 1 :].removesuffix(".py").replace(os.sep, ".")


def source_digest(package: str, module: str) -> str:
    """Digest of a module's source and of those below the same folder that it names, directly or not."""
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
        with open(f"{package}/{module.replace('.', '/')}.py", "rb") as file:  # noqa: PTH123  (half the time of a Path, at every start)
            text = file.read()
    except OSError:  # a frozen program has no sources, and they do not change
        return b"", frozenset()
    return blake2b(text).digest(), frozenset(name.decode() for name in _MODULE.findall(text))
