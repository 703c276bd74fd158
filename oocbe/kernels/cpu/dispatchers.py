"""Numba's part of compiled loops: compilation without the interpreter lock, cached on disk."""

from __future__ import annotations

import fcntl
import os
import pickle
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oocbe.runtime.data_limit import data_limit

with data_limit.lifted():
    import numba
import numpy as np
from llvmlite.binding import parse_bitcode
from numba import types
from numba.core.caching import _Cache as Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.event import Listener, register
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from oocbe.errors import OocbeError
from oocbe.kernels.cpu.compiler import Loop as Signature
from oocbe.kernels.cpu.compiler import compiler
from oocbe.kernels.cpu.jit import Loop, say
from oocbe.kernels.cpu.machine_code import DAMAGED, MachineCode, machine
from oocbe.runtime.compilation import compilation
from oocbe.runtime.deadline import current
from oocbe.runtime.writable import write_whole


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
    """Compilations of a loop: a file each, loaded also from read-only folders.

    A file's name has a digest of all that the machine code depends on, so there is no index that two processes could
    overwrite. A process that compiles holds the lock of that file; others wait for it instead of compiling the same.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop, self._folders, self._files = loop, loop.folders, dict[Any, str]()

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
        rtsys.initialize(target_context)  # the allocations of compiled code
        file = self._file(sig, target_context.codegen())
        found = self._load(file, target_context)
        if found is None and self.is_writable:
            _locks.append(_lock(f"{self._folders.writable}/{file}.lock"))
            if _locks[-1] is not None:
                found = self._load(file, target_context)  # another process may have compiled it meanwhile
            if found is not None:
                _unlock()
        return found

    def missing(self, signature: Any, codegen: Any) -> Signature | None:
        """The loop, if it is in no cache, and another process can compile it."""
        return self._loop.missing(*self._described(signature, codegen))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compilation if possible; warn the user if there is no good folder."""
        if self._folders.warning:
            say(self._folders.warning)
        if not self.is_writable:
            return
        try:
            if not data.library.has_dynamic_globals:
                short = data._replace(type_annotation="")._reduce()  # that is a listing of the types, for readers
                made, ((name, form, (code, bitcode)), *others) = self._machine_code(data, *short), short
                library = name, form, (code if made is None else b"", bitcode)
                content = pickle.dumps(made) + dumps((library, *others))
                write_whole(f"{self._folders.writable}/{self._file(sig, data.codegen)}", content)
        except OSError as error:
            say(f"a compiled loop is not kept: {error}")
        finally:
            _unlock()

    def _file(self, signature: Any, codegen: Any) -> str:
        """The file of a signature. What Numba compiles for may be configured."""
        if signature not in self._files:  # a signature's text takes half a millisecond
            self._files[signature] = self._loop.file(*self._described(signature, codegen))
        return self._files[signature]

    def _described(self, signature: Any, codegen: Any) -> tuple[str, Any]:
        processor = codegen.magic_tuple()
        types = ", ".join(described(item, None) for item in signature)
        return types, None if processor == machine() else processor

    def _machine_code(self, data: Any, library: Any, description: Any, own: Any, *others: Any) -> MachineCode | None:
        """A compilation's machine code; None: only loops call it, or Numba has to load what it refers to."""
        *_, reload, referenced = others
        constants = {item.env_name: list(item.consts) for item in (own, *referenced) if item is own or item.consts}
        objects = (item for items in constants.values() for item in items)
        if self._loop.is_helper or reload or not all(isinstance(item, np.dtype) for item in objects):
            return None
        module = data.library._get_module_for_linking()
        external = [item.name for item in (*module.functions, *module.global_variables) if item.is_declaration]
        return MachineCode(
            library[2][0],
            description.llvm_cpython_wrapper_name,
            tuple(name for name in external if not name.startswith("llvm.")),
            tuple(constants.items()),
        )

    def _load(self, file: str, target_context: Any) -> Any:
        for folder in self._folders.all():
            with suppress(OSError, *DAMAGED), Path(folder, file).open("rb") as stream:  # these count as missing
                stored: MachineCode | None = pickle.load(stream)
                (name, form, (code, bitcode)), *others = pickle.load(stream)
                library = name, form, (code if stored is None else stored.code, bitcode)
                with data_limit.lifted():
                    return self._rebuilt(target_context, library, *others)
        return None

    def _rebuilt(self, target_context: Any, library: Any, *others: Any) -> Any:
        """A saved compilation."""
        context = target_context
        if self._loop.is_helper:
            name, _, (_, bitcode) = library
            whole = _HelperLibrary(target_context.codegen(), name)
            whole._shared_module, whole._finalized = parse_bitcode(bitcode), True
            context = SimpleNamespace(
                codegen=lambda: SimpleNamespace(unserialize_library=lambda _: whole),
                typing_context=target_context.typing_context,
                get_executable=target_context.get_executable,
            )
        made = CompileResult._rebuild(context, library, *others)
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


def described(kind: Any, names: dict[str, str] | None) -> str:
    """A Numba type as the list of signatures has it, with ``names`` of named tuples; None: without. OocbeError: it has
    none, but in Numba."""
    if isinstance(kind, types.Array):
        text = f"array({kind.dtype}, {kind.ndim}, {kind.layout!r})"
        return text if kind.mutable else f"readonly{text[len('array') :]}"
    if isinstance(kind, types.BaseTuple):
        inner = ", ".join(described(item, names) for item in kind)
        if not isinstance(kind, types.BaseNamedTuple):
            return f"tuple({inner})"
        owner = kind.instance_class
        text = f"named('{owner.__module__}:{owner.__qualname__}', {inner})"
        if names is None:
            return text
        number = 1
        while names.setdefault(f"{owner.__name__}{number}", text) != text:
            number += 1
        return f"{owner.__name__}{number}"
    if isinstance(kind, types.Literal):
        return f"literal({kind.literal_value!r})"
    if names is None or isinstance(kind, types.Number | types.Boolean | types.NoneType):
        return str(kind)
    raise OocbeError(f"a loop is called with a value of the type {kind}, which the list of signatures has no name for")


def dispatcher(loop: Loop) -> Any:
    """Numba's dispatcher of a loop.

    Cached code is executed, so a settings file in the current folder (``.numba_config.yaml``), possibly another user's,
    does not determine the cache folder.
    """
    pipeline = {"pipeline_class": _HelperCompiler} if loop.is_helper else {}
    compiled: Any = numba.njit(**loop.settings, **pipeline)(loop.py_func)
    cache, compile_here = _Cache(loop), compiled.compile
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
    return compiled
