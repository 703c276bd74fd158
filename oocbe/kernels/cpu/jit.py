"""Compilation of all loops: Numba, without the interpreter lock, cached on disk.

Parallelism comes from :mod:`oocbe.kernels.cpu.threads` (several calls of one compiled loop over row ranges), not from
Numba's own: a compiled loop without the lock is simpler, can be scheduled dynamically and survives a fork.

Numba invalidates a cached compilation when the function's own file changes, not when a helper from another file does.
So each module's compilations are in a folder named after a digest of its source and of the modules of this package that
it names, directly or not; a new digest removes the old folder. The folders are in the first writable one of several
places: a container may have a read-only program and no home. Unwritable places before it are read as well: an image is
warmed up during its build, and read-only afterwards.

Numba loads its whole compiler before it reads its cache, and the modules that defined the cached code. That takes
longer than a small solve, so cached code is loaded separately here; the first actual compilation loads the rest.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from oocbe.runtime.address_space import LOOPS_BYTES, require
from oocbe.runtime.data_limit import data_limit

require(LOOPS_BYTES, "loading and running compiled loops")

# ruff: noqa: E402  (Numba's library ends the process if memory is short)
with data_limit.lifted():
    import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.event import Listener, register
from numba.core.runtime import rtsys

from oocbe.runtime.compilation import compilation
from oocbe.runtime.writable import can_be_written, private_scratch

Function = TypeVar("Function", bound=Callable[..., Any])

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable with the folder of compiled loops."""

_MODULE = re.compile(rb"oocbe\.((?:\w+\.)*kernels\.cpu\.\w+(?:\.\w+)*)")
"""Pattern of the package's loop modules in a compiled function's data."""

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120  (half the time of a Path, at every start)
"""The folder of the package; all compiled loops are below it, in folders called ``kernels/cpu``."""


class _Locator(FunctionCache._impl_class._locator_classes[0]):  # type: ignore[misc]
    """Folder of a function's compilations: Numba's configuration at the time of decoration."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """The locator; Numba's own method writes a test file, for each of hundreds of loops."""
        return cls(py_func, py_file)


class _Implementation(FunctionCache._impl_class):  # type: ignore[misc]
    """Numba's cache implementation, with a single locator."""

    _locator_classes = (_Locator,)


class _DataFile(IndexDataCacheFile):  # type: ignore[misc]
    """Cached compilations of a function, loaded without the Numba modules that define parts of them."""

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # noqa: PTH123  (half the time of a Path, at every start)
            return _Unpickler(io.BytesIO(file.read())).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _environment if found is _rebuild_env else found


def _environment(module: str, constants: Sequence[object], name: str) -> Any:
    """The constants of a function of a module; Numba's own method imports that module, for its names.

    Only code in object mode looks names up, and there is none here. Numba's modules take a tenth of a second, and one
    of them another third, as it searches for SciPy's BLAS.
    """
    if not module.startswith("numba.") or module in sys.modules or lookup_environment(name) is not None:
        return _rebuild_env(module, constants, name)
    made = Environment({"__name__": module})
    made.consts[:] = constants
    made.env_name = name
    Environment._memo[name] = made
    return made


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, loaded without the compiler, and with additional read-only folders.

    Parameters
    ----------
    function : the loop. folders : of its compilations; the first is that of Numba's configuration.
    """

    _impl_class = _Implementation

    def __init__(self, function: Any, folders: _Folders) -> None:
        super().__init__(function)
        self._folders = folders
        stamp, name, base = self._impl.locator.get_source_stamp(), Path(self.cache_path).name, self._impl.filename_base
        self._paths = [f"{folder}/{name}" for folder in folders.all()]
        self._files = [_DataFile(path, base, stamp) for path in self._paths]

    @property
    def folder(self) -> str:
        """Folder with compilations of this function's module; if there are none yet, the folder for new ones."""
        return next((path for path in self._paths if Path(path).is_dir()), self._paths[0])

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compilation for a signature, or None; Numba's own method first refreshes the context, for over 100 ms."""
        rtsys.initialize(target_context)  # the allocations of compiled code
        key = self._index_key(sig, target_context.codegen())
        for file in self._files:
            with suppress(OSError):  # unreadable files count as missing
                found = file.load(key)
                if found is not None:
                    with data_limit.lifted():
                        return self._impl.rebuild(target_context, found)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compilation if possible; warn the user if there is no good folder."""
        if self._folders.warning:
            _say(self._folders.warning)
        if self._folders.writable is not None:
            super().save_overload(sig, data)


class _Listener(Listener):  # type: ignore[misc]
    """Listener for Numba's compilations; cached code causes no events."""

    def on_start(self, event: Any) -> None:
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()


register("numba:compile", _Listener())


def jit(function: Function) -> Function:
    """Compile a loop over arrays and numbers on its first call (decorator; the static type is the function's own)."""
    return _compiled(function)


def inline(function: Function) -> Function:
    """Inline a small helper into its callers' loops, without a call (decorator)."""
    return _compiled(function, inline="always")


def helper(function: Function) -> Function:
    """Compile a loop that only compiled loops may call (decorator).

    The conversion of Python objects to arguments is left out: it takes about a hundredth of a second for each array to
    compile, often as long as the loop itself.
    """
    return _compiled(function, no_cpython_wrapper=True)


def borrowing(function: Function) -> Function:
    """Compile a loop that borrows arrays and returns numbers, without reference counts (decorator).

    It may not allocate; see :func:`without_allocation`, which is for helpers called only by loops.
    """
    return _compiled(function, _nrt=False)


def without_allocation(function: Function) -> Function:
    """Compile a helper that borrows arrays and returns numbers, without reference counts (decorator).

    Numba counts references to an array at each assignment, tuple and slice, with an atomic instruction each, and elides
    only pairs without a loop between them: most of the time of a loop that handles millions of short pieces. Here
    nothing is counted. In return nothing can be allocated; Numba rejects functions that would. Only other loops may
    call it, as with :func:`helper`.
    """
    return _compiled(function, _nrt=False, no_cpython_wrapper=True)


def _compiled(function: Function, **settings: Any) -> Function:
    """Compile with Numba, which reads its cache folder from its configuration once, at decoration.

    No loop is called from C, so C wrappers are left out. Cached code is executed, so a settings file in the current
    folder (``.numba_config.yaml``), possibly another user's, does not determine the cache folder.
    """
    folders = _cache_folders(function.__code__.co_filename, os.environ.get(CACHE_VARIABLE, ""))
    compiled: Any = numba.njit(nogil=True, no_cfunc_wrapper=True, **settings)(function)
    if folders.all():
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folders.all()[0]
        try:
            compiled._cache = _Cache(function, folders)
        finally:
            numba.config.CACHE_DIR = before
    else:
        _say(folders.warning)
    result: Function = compiled
    return result


class _Folders(NamedTuple):
    """Folders of compilations, of one module or of all.

    Attributes
    ----------
    writable : for new compilations; None if no folder is writable.
    others : read-only folders, possibly with older compilations.
    warning : printed at a compilation.
    """

    writable: str | None
    others: tuple[str, ...]
    warning: str

    def all(self) -> tuple[str, ...]:
        """The folders to search, in order."""
        return self.others if self.writable is None else (self.writable, *self.others)


@cache
def _cache_folders(source: str, chosen: str) -> _Folders:
    """The folders of a module's compilations.

    chosen : the folder in ``NUMBA_CACHE_DIR``, or nothing.
    """
    package, module = _package_and_module(source)
    places = _places(package, chosen)
    name = f"{module}-{source_digest(package, module)}"
    if places.writable == _beside(package) and not Path(places.writable, name).exists():
        for stale in Path(places.writable).glob(f"{module}-*"):  # other installations do not share this place
            shutil.rmtree(stale, ignore_errors=True)
    writable = None if places.writable is None else f"{places.writable}/{name}"
    return _Folders(writable, tuple(f"{folder}/{name}" for folder in places.others), places.warning)


def _beside(package: str) -> str:
    return f"{package}/__pycache__/compiled"


@cache
def _places(package: str, chosen: str) -> _Folders:
    """The first writable folder of: the chosen one, next to the source, the home, the scratch folder.

    Readable folders before it are the others.
    """
    home = _home()
    wanted = [f"{chosen}/oocbe"] if chosen else [_beside(package), *([] if home is None else [f"{home}/oocbe"])]
    others: list[str] = []
    for folder in wanted:
        if can_be_written(folder):
            return _Folders(folder, tuple(others), "")
        if os.access(folder, os.R_OK | os.X_OK):
            others.append(folder)
    tried, scratch = " nor ".join(wanted), private_scratch("oocbe-cache")
    if scratch is None:
        warning = f"neither {tried} nor a scratch folder can be written, so loops are compiled anew in every process"
    else:
        warning = f"neither {tried} can be written, so compiled loops are kept in {scratch}"
    return _Folders(scratch, tuple(others), warning)


def _home() -> str | None:
    """The user's cache folder; None without a home."""
    try:
        return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # a user without an entry in the system
        return None


@cache
def _say(what: str) -> None:
    """Print a warning to stderr, once a process; it is not an error."""
    print(f"oocbe: {what}; {CACHE_VARIABLE} may name a better place", file=sys.stderr)


def _package_and_module(source: str) -> tuple[str, str]:
    """The root folder of module names, and a module's dotted name relative to it."""
    package = PACKAGE if source.startswith(PACKAGE + os.sep) else os.path.dirname(source)  # noqa: PTH120
    return package, source[len(package) + 1 :].removesuffix(".py").replace(os.sep, ".")


def source_digest(package: str, module: str) -> str:
    """Digest of a module's source and of the modules below the same folder that it names, directly or not."""
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
