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

import fcntl
import io
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from oocbe.runtime.address_space import LOOPS_BYTES, require
from oocbe.runtime.data_limit import data_limit

require(LOOPS_BYTES, "loading and running compiled loops")

# ruff: noqa: E402  (Numba's library ends the process if memory is short)
with data_limit.lifted():
    import numba
import numpy as np
from llvmlite.binding import parse_assembly, parse_bitcode
from numba.core.caching import _Cache as Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.event import Listener, register
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typing.typeof import typeof_impl
from numba.np.numpy_support import from_dtype, map_layout

from oocbe.kernels.cpu.compiler import Loop, compiler
from oocbe.kernels.cpu.interpreter import Interpreter
from oocbe.runtime.compilation import compilation
from oocbe.runtime.deadline import current
from oocbe.runtime.writable import can_be_written, private_scratch, write_whole

Function = TypeVar("Function", bound=Callable[..., Any])

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable with the folder of compiled loops."""

_MODULE = re.compile(rb"oocbe\.((?:\w+\.)*kernels\.cpu\.(?!jit\b|interpreter\b)\w+(?:\.\w+)*)")
"""Pattern of the package's loop modules in a source. This module compiles them; its settings are part of file names."""

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120  (half the time of a Path, at every start)
"""The folder of the package; all compiled loops are below it, in folders called ``kernels/cpu``."""


_EMPTY = parse_assembly("").as_bitcode()
"""Bitcode of an empty module."""


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


class _HelperLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a loop that only other loops call: they contain it, and it is optimised there alone, not once more
    for each loop between. Nothing is made for the processor."""

    @property
    def codegen(self) -> Any:
        """In place of what keeps the constants of code in object mode."""
        return SimpleNamespace(set_env=lambda *_: None)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._compiled_object, self._finalized = b"", True


class _HelperCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler of such loops."""

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *others: Any) -> None:
        library = _HelperLibrary(target_context.codegen(), "helper")
        library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *others)


class _Cache(Cache):  # type: ignore[misc]
    """Compilations of a function: a file each, loaded without the compiler, also from read-only folders.

    A file's name has a digest of all that the machine code depends on, so there is no index that two processes could
    overwrite. A process that compiles holds the lock of that file; others wait for it instead of compiling the same.
    The folders are those of the function's module, and the settings are Numba's.
    """

    def __init__(self, function: Any, folders: _Folders, settings: dict[str, object]) -> None:
        self._folders = folders
        self._function = function
        self._files: dict[Any, str] = {}
        self._is_helper = "no_cpython_wrapper" in settings
        code = function.__code__
        self._name = f"{function.__qualname__.replace('<', '').replace('>', '')}-{code.co_firstlineno}"
        source = blake2b(code.co_code).hexdigest()
        self._versions = f"{sys.implementation.cache_tag} {numba.__version__} {settings} {source}"

    @property
    def is_writable(self) -> bool:
        """Whether there is a folder for new compilations."""
        return self._folders.writable is not None

    @property
    def cache_path(self) -> str:
        """Folder with compilations of this function's module; if there are none yet, the folder for new ones."""
        paths = self._folders.all()
        return next((path for path in paths if Path(path).is_dir()), paths[0] if paths else "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compilation for a signature, or None: the caller compiles it then, and holds its lock."""
        rtsys.initialize(target_context)  # the allocations of compiled code; Numba's own refresh takes over 100 ms
        file = self._file(sig, target_context.codegen())
        found = self._load(file, target_context)
        if found is None and self.is_writable:
            _locks.append(_lock(f"{self._folders.writable}/{file}.lock"))
            if _locks[-1] is not None:
                found = self._load(file, target_context)  # another process may have compiled it meanwhile
            if found is not None:
                _unlock()
        return found

    def missing(self, signature: Any, codegen: Any) -> Loop | None:
        """The loop, if it is in no cache, and another process can compile it."""
        module = self._function.__module__
        if not self.is_writable or not module.startswith("oocbe.") or getattr(sys, "frozen", False):
            return None  # a frozen program's executable is the program itself
        file = self._file(signature, codegen)
        if any(os.path.exists(f"{folder}/{file}") for folder in self._folders.all()):  # noqa: PTH110
            return None
        return module, self._function.__qualname__, signature

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compilation if possible; warn the user if there is no good folder."""
        if self._folders.warning:
            _say(self._folders.warning)
        if not self.is_writable:
            return
        try:
            if not data.library.has_dynamic_globals:
                short = data._replace(type_annotation="")  # a listing of the types, for readers
                write_whole(f"{self._folders.writable}/{self._file(sig, data.codegen)}", dumps(short._reduce()))
        except OSError as error:
            _say(f"a compiled loop is not kept: {error}")
        finally:
            _unlock()

    def _file(self, signature: Any, codegen: Any) -> str:
        if signature not in self._files:  # a signature's text takes a tenth of a millisecond
            depends = f"{signature} {codegen.magic_tuple()} {self._versions}"
            self._files[signature] = f"{self._name}.{blake2b(depends.encode(), digest_size=12).hexdigest()}.nbc"
        return self._files[signature]

    def _load(self, file: str, target_context: Any) -> Any:
        for folder in self._folders.all():
            with suppress(OSError):  # unreadable files count as missing
                with open(f"{folder}/{file}", "rb") as stream:  # noqa: PTH123  (half the time of a Path, at every start)
                    found = _Unpickler(io.BytesIO(stream.read())).load()
                with data_limit.lifted():
                    return self._rebuilt(target_context, *found)
        return None

    def _rebuilt(self, target_context: Any, library: Any, description: Any, *others: Any) -> Any:
        """A saved compilation. Its bitcode, which takes most of the time of loading to parse, is parsed only if another
        loop is compiled that calls this one."""
        name, kind, (code, bitcode) = library
        codegen = target_context.codegen()
        context = target_context
        if self._is_helper:
            whole = _HelperLibrary(codegen, name)
            whole._finalized = True
            context = SimpleNamespace(
                codegen=lambda: SimpleNamespace(unserialize_library=lambda _: whole),
                typing_context=target_context.typing_context,
                get_executable=target_context.get_executable,
            )
        else:
            symbols = (description.llvm_func_name, description.llvm_cpython_wrapper_name)
            codegen._engine._defined_symbols.update(symbols)
        made = CompileResult._rebuild(context, (name, kind, (code, _EMPTY)), description, *others)
        made.library._get_module_for_linking = cache(partial(parse_bitcode, bitcode))
        return made._replace(target_context=target_context)

    def enable(self) -> None:
        """Nothing: the cache is always on, and a change of the code changes the files' names."""

    disable = flush = enable


LOCK_POLL_SECONDS = 0.01
"""Time between two attempts to lock a file that another process holds while it compiles, which takes seconds."""

_locks: list[tuple[str, int] | None] = []
"""Locks of the running compilations, innermost last; Numba's own lock lets one thread compile at a time."""


def _lock(path: str) -> tuple[str, int] | None:
    """Wait for the lock of a file, and take it; None where files cannot be locked.

    The system frees the lock of a process that ends. It belongs to the process alone, not to its children.
    """
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not _is_locked(file):
                compilation.begin(loops=0)  # the wait is no working time of an attempt
                try:
                    while not _is_locked(file):
                        time.sleep(LOCK_POLL_SECONDS)
                finally:
                    compilation.end()
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(file).st_ino:  # noqa: PTH116
                    return path, file
            os.close(file)  # its last owner has removed it
    return None


def _is_locked(file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock() -> None:
    """Free the lock of the innermost compilation."""
    held = _locks.pop()
    if held is not None:
        with suppress(OSError):
            os.unlink(held[0])  # noqa: PTH108
        os.close(held[1])


class _Listener(Listener):  # type: ignore[misc]
    """Listener for Numba's compilations; cached code causes no events."""

    def on_start(self, event: Any) -> None:
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()
        cache = event.data["dispatcher"]._cache
        if event._exc_details is not None and isinstance(cache, _Cache) and cache.is_writable:
            _unlock()


register("numba:compile", _Listener())

_type_of_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)  # type: ignore[untyped-decorator]
def _(array: Any, context: Any) -> Any:
    """The type of an array. Numba's own method loads NumPy's masked arrays, a fortieth of a small solve."""
    if type(array) is not np.ndarray or array.dtype.char not in "?bBhHiIlLqQfd" or not array.dtype.isnative:
        return _type_of_array(array, context)
    return numba.types.Array(from_dtype(array.dtype), array.ndim, map_layout(array), readonly=not array.flags.writeable)


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
    """Compile with Numba, and keep the result in this module's cache.

    No loop is called from C, so C wrappers are left out. Cached code is executed, so a settings file in the current
    folder (``.numba_config.yaml``), possibly another user's, does not determine the cache folder.
    """
    folders = _cache_folders(function.__code__.co_filename, os.environ.get(CACHE_VARIABLE, ""))
    settings |= {"nogil": True, "no_cfunc_wrapper": True}
    if "no_cpython_wrapper" in settings:
        settings["pipeline_class"] = _HelperCompiler
    compiled: Any = numba.njit(**settings)(function)
    cache, compile_here = _Cache(function, folders, settings), compiled.compile
    compiled._cache = cache

    def compile_loop(signature: Any) -> Any:
        """Numba's own method holds a lock for all threads, so another process compiles before it is called."""
        deadline = current()
        if deadline is not None and tuple(signature) not in compiled.overloads:
            missing = cache.missing(signature, compiled.targetctx.codegen())
            if missing is not None:
                compiler.compile(missing, deadline.outermost)
        return compile_here(signature)

    compiled.compile = compile_loop
    if is_interpreted and "no_cpython_wrapper" not in settings:
        interpreter = Interpreter(compiled, lambda signature: cache.missing(signature, compiled.targetctx.codegen()))
        compile_for_arguments = compiled._compile_for_args

        def function_for(*arguments: Any, **named: Any) -> Any:
            """Numba calls this if no compiled signature fits, and then the result, with the same arguments."""
            return (
                interpreter
                if not named and interpreter.takes(arguments)
                else compile_for_arguments(*arguments, **named)
            )

        compiled._compile_for_args = function_for
    result: Function = compiled
    return result


def is_ready(loop: Function, *arguments: object) -> bool:
    """Whether a call of a loop needs no compilation. If it does, another process compiles it from now on.

    True as well if no other process can compile it, or failed to: the call compiles it then.
    """
    compiled: Any = loop
    if compiled.overloads:
        return True
    missing = compiled._cache.missing(tuple(map(compiled.typeof_pyval, arguments)), compiled.targetctx.codegen())
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
