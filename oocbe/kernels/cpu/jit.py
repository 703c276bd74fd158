"""Compiled loops: decorators, and calls of cached machine code. Numba compiles what is in no cache.

Parallelism comes from :mod:`oocbe.kernels.cpu.threads` (several calls of one compiled loop over row ranges), not from
Numba's own: a compiled loop without the lock is simpler, can be scheduled dynamically and survives a fork.

Numba invalidates a cached compilation when the function's own file changes, not when a helper from another file does.
So each module's compilations are in a folder named after a digest of its source and of the modules of this package that
it names, directly or not; a new digest removes the old folder. The folders are in the first writable one of several
places: a container may have a read-only program and no home. Unwritable places before it are read as well: an image is
warmed up during its build, and read-only afterwards.

The import of Numba takes longer than a small solve. So it waits for the first compilation in this process.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, update_wrapper
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from oocbe.kernels.cpu.compiler import Loop as Signature
from oocbe.kernels.cpu.compiler import compiler, found
from oocbe.kernels.cpu.machine_code import DAMAGED, MachineCode, Run, described, kind, link, machine, numba_version
from oocbe.runtime.address_space import LOOPS_BYTES, require
from oocbe.runtime.writable import can_be_written, private_scratch

require(LOOPS_BYTES, "loading and running compiled loops")

Function = TypeVar("Function", bound=Callable[..., Any])

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable with the folder of compiled loops."""

_MODULE = re.compile(rb"oocbe\.((?:\w+\.)*kernels\.cpu\.(?!jit\b|interpreter\b)\w+(?:\.\w+)*)")
"""Pattern of the package's loop modules in a source. This module compiles them; its settings are part of file names."""

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120  (half the time of a Path, at every start)
"""The folder of the package; all compiled loops are below it, in folders called ``kernels/cpu``."""


class Loop:
    """A compiled function. Calls with cached machine code, and interpreted calls, run without Numba."""

    def __init__(self, function: Any, is_interpreted: bool, settings: dict[str, object]) -> None:
        update_wrapper(self, function)
        self.py_func, self.is_interpreted, self.settings = function, is_interpreted, settings
        self.folders = _cache_folders(function.__code__.co_filename, os.environ.get(CACHE_VARIABLE, ""))
        self._runs: dict[Any, Run] = {}
        self._files: dict[tuple[str, object], str] = {}

    @property
    def is_helper(self) -> bool:
        """Whether only other loops call it."""
        return "no_cpython_wrapper" in self.settings

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the machine code for the arguments' types; without any, interpret the call, or compile."""
        key = tuple(map(kind, arguments))
        run = self.dispatcher if named else self._runs.get(key)
        if run is None:
            if self.is_interpreted and self.interpreter.takes(arguments):
                return self.interpreter(*arguments)
            # What is in no cache is the dispatcher's for good: a search of folders takes longer than it.
            run = self._runs[key] = self.load(arguments) or self.dispatcher
        return run(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)

    @cached_property
    def interpreter(self) -> Any:
        """The interpreted calls."""
        return found("oocbe.kernels.cpu.interpreter", "Interpreter")(self, self._missing)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's, which compiles."""
        return found("oocbe.kernels.cpu.dispatchers", "dispatcher")(self)

    def load(self, arguments: tuple[Any, ...]) -> Run | None:
        """The cached machine code for the types of some arguments; None: there is none, or Numba has to load it."""
        try:
            file = self.file(", ".join(map(described, arguments)))
        except (KeyError, TypeError, AttributeError):
            return None
        for folder in self.folders.all():
            with suppress(OSError, *DAMAGED):
                with open(f"{folder}/{file}", "rb") as stream:  # noqa: PTH123  (half the time of a Path, at every start)
                    made = pickle.load(stream)
                return link(made, self.py_func) if isinstance(made, MachineCode) else None
        return None

    def _missing(self, arguments: tuple[Any, ...]) -> Signature | None:
        with suppress(KeyError, TypeError, AttributeError):
            is_configured = os.environ.keys() & {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}  # then Numba knows for what
            processor = self.targetctx.codegen().magic_tuple() if is_configured else None
            return self.missing(", ".join(map(described, arguments)), processor)
        return None

    def missing(self, types: str, processor: object = None) -> Signature | None:
        """The loop, if it is in no cache, and another process can compile it; parameters as of :meth:`file`."""
        module = self.py_func.__module__
        if self.folders.writable is None or not module.startswith("oocbe.") or getattr(sys, "frozen", False):
            return None  # a frozen program's executable is the program itself
        file = self.file(types, processor)
        if any(os.path.exists(f"{folder}/{file}") for folder in self.folders.all()):  # noqa: PTH110
            return None
        return module, self.py_func.__qualname__, types

    def file(self, types: str, processor: object = None) -> str:
        """Name of the file of a compilation: a digest of all that the machine code depends on.

        types : of the arguments. processor : what Numba compiles for, if that is not this one.
        """
        if (types, processor) not in self._files:
            code = self.py_func.__code__
            depends = f"{types} {processor or machine()} {sys.implementation.cache_tag} {self.settings} "
            depends += f"{numba_version()} {blake2b(code.co_code).hexdigest()}"
            name = self.py_func.__qualname__.replace("<", "").replace(">", "")
            digest = blake2b(depends.encode(), digest_size=12).hexdigest()
            self._files[types, processor] = f"{name}-{code.co_firstlineno}.{digest}.nbc"
        return self._files[types, processor]


class OfNumba:
    """A function of a module of Numba, for use in loops, or what it makes of ``arguments``; imported with the first
    compilation."""

    def __init__(self, module: str, name: str, *arguments: Any) -> None:
        self._of, self._arguments = (module, name), arguments

    @cached_property
    def _numba_type_(self) -> Any:
        value, context = found(*self._of), found("numba.core.registry", "cpu_target").typing_context
        made = value(*self._arguments) if self._arguments else value
        context.refresh()
        return context.resolve_value_type(made)


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Numba's intrinsics (decorator)."""
    return OfNumba("numba.extending", "intrinsic", typed)


def jit(function: Function) -> Function:
    """Compile a loop over arrays and numbers on its first call (decorator; the static type is the function's own)."""
    return _compiled(function)


def jit_at_once(function: Function) -> Function:
    """Compile a loop that is never interpreted, as its calls are long (decorator)."""
    return _compiled(function, is_interpreted=False)


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


def _compiled(function: Function, is_interpreted: bool = True, **settings: Any) -> Function:
    """Compile with Numba, and keep the result in this module's cache. No loop is called from C: without C wrappers."""
    settings |= {"nogil": True, "no_cfunc_wrapper": True}
    result: Any = Loop(function, is_interpreted and "no_cpython_wrapper" not in settings, settings)
    made: Function = result
    return made


def is_ready(loop: Function, *arguments: object) -> bool:
    """Whether a call of a loop needs no compilation. If it does, another process compiles it from now on.

    True as well if no other process can compile it, or failed to: the call compiles it then.
    """
    compiled: Any = loop
    if compiled._runs or compiled.load(arguments) is not None:
        return True
    missing = compiled._missing(arguments)
    return missing is None or compiler.has_tried(missing)


class _Folders(NamedTuple):
    """Folders of compilations, of one module or of all.
    ``writable`` is for new compilations; None if no folder is writable. ``others`` are read-only folders, possibly with
    older compilations. ``warning`` is printed at a compilation."""

    writable: str | None
    others: tuple[str, ...]
    warning: str

    def all(self) -> tuple[str, ...]:
        """The folders to search, in order."""
        return self.others if self.writable is None else (self.writable, *self.others)


@cache
def _cache_folders(source: str, chosen: str) -> _Folders:
    """The folders of a module's compilations; ``chosen``: that in ``NUMBA_CACHE_DIR``, or nothing."""
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
    """The first writable of chosen, source's, home and scratch folder; the readable ones before are others."""
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


def cache_folder() -> str | None:
    """The folder of new compilations; None if there is none that can be written."""
    return _places(PACKAGE, os.environ.get(CACHE_VARIABLE, "")).writable


def _home() -> str | None:
    """The user's cache folder; None without a home."""
    try:
        return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # a user without an entry in the system
        return None


@cache
def say(what: str) -> None:
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
