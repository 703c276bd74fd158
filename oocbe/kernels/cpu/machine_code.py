"""Cached machine code of loops, loaded without Numba's Python part, whose import takes longer than a small solve.

A compilation is an object file with a function that Python can call. LLVM loads it. The functions that it calls are in
three C extensions of Numba: conversion of arrays, allocation, errors. These load alone, and do not change when Numba is
imported later. Whatever is missing or unknown here is left to Numba: values of other types, symbols, versions.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from oocbe.runtime.data_limit import data_limit

Run = Callable[..., Any]

LEAST_INT, MOST_INT = -(1 << 63), (1 << 63) - 1
"""Range of the integers that Numba takes for int64."""

NUMBERS = "?bBhHiIlLqQfd"
"""NumPy's characters of the types of elements of loops."""

_ARRAY_FLAGS = 0x403
"""Bits of NumPy's flags of an array that its type depends on: contiguous in C's or Fortran's order, and writable."""


DAMAGED = EOFError, pickle.UnpicklingError, AttributeError, ImportError, LookupError, TypeError, ValueError
"""Errors of loading a file that a crash of the system left empty, or that another version wrote: it is made again."""


class MachineCode(NamedTuple):
    """A compilation, as stored. ``function``: the symbol of its function. ``externals``: symbols that it refers to.
    ``constants``: Python objects, by the symbol of the address of their environment; the function's comes first."""

    code: bytes
    function: str
    externals: tuple[str, ...]
    constants: tuple[tuple[str, list[object]], ...]


def kind(value: Any) -> Any:
    """A key of a value's type: equal keys have equal types."""
    owner = type(value)
    if owner is np.ndarray:
        return value.dtype, value.ndim, value.flags.num & _ARRAY_FLAGS
    if owner is int:
        return owner if LEAST_INT <= value <= MOST_INT else None
    return (owner, *map(kind, value)) if issubclass(owner, tuple) else owner


def described(value: Any) -> str:
    """A value's type in Numba, as listed in ``signatures.json``; TypeError: of no such type."""
    owner = type(value)
    if owner is np.ndarray and value.dtype.char in NUMBERS and value.dtype.isnative:
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return f"{'array' if value.flags.writeable else 'readonly'}({value.dtype.name}, {value.ndim}, {layout!r})"
    if owner is int and LEAST_INT <= value <= MOST_INT:
        return "int64"
    if issubclass(owner, tuple) and (owner is tuple or hasattr(owner, "_fields")):
        name = "tuple(" if owner is tuple else f"named('{owner.__module__}:{owner.__qualname__}', "
        return f"{name}{', '.join(map(described, value))})"
    if issubclass(owner, np.generic) and owner.__module__ == "numpy" and value.dtype.char in NUMBERS:
        return str(value.dtype.name)
    return {bool: "bool", float: "float64", type(None): "none"}[owner]


@cache
def numba_version() -> str:
    """Numba's version, with its revision."""
    with suppress(AttributeError, TypeError, OSError):
        return Path(_numba_folder(), "_version.py").read_text(encoding="utf-8")
    import numba  # a program without sources

    return str(numba.__version__)


def _numba_folder() -> str:
    return str(find_spec("numba").submodule_search_locations[0])  # type: ignore[union-attr,index]


@cache
def machine() -> tuple[str, str, str]:
    """The processor: LLVM's names of its kind, of itself and of its features."""
    with _lock:  # a child forked meanwhile would wait for ever for LLVM's own
        with data_limit.lifted():
            from llvmlite import binding
        features = ""
        with suppress(RuntimeError):  # LLVM knows none of this processor
            features = binding.get_host_cpu_features().flatten()
        return binding.get_process_triple(), binding.get_host_cpu_name(), features


class Linker:
    """Machine code in this process."""

    def __init__(self) -> None:
        """ImportError, OSError, AttributeError, KeyError: this version of Numba is another."""
        from llvmlite import binding

        self._known = set[str]()
        self._environments: dict[str, Any] = {}
        self._runs: dict[str, Run] = {}
        self._unpickle = _unpickler()
        self._binding = binding
        self._helpers, self._functions, memory = map(_extension, ("_helperlib", "_dynfunc", "core/runtime/_nrt_python"))
        symbols = {f"numba_{n}": a for part in (self._helpers, self._functions) for n, a in part.c_helpers.items()}
        symbols |= {n if n.startswith("_") else f"NRT_{n}": a for n, a in memory.c_helpers.items()}
        errors = (v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, BaseException))
        symbols |= {f"PyExc_{error.__name__}": id(error) for error in errors} | {"_Py_NoneStruct": id(None)}
        for name, address in symbols.items():
            binding.add_symbol(name, address)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)

    def link(self, made: MachineCode, function: Any) -> Run | None:
        """The Python function of a compilation of ``function``; None: it refers to symbols that are not here."""
        if made.function in self._runs:  # of another thread: an object is added once
            return self._runs[made.function]
        for symbol in made.externals:
            if symbol not in self._known:
                if symbol in self._helpers.c_helpers:  # mathematics
                    self._binding.add_symbol(symbol, self._helpers.c_helpers[symbol])
                if not self._binding.address_of_symbol(symbol):
                    return None  # LLVM would end the process
                self._known.add(symbol)
        self._binding.add_symbol("numba_unpickle", ctypes.cast(self._unpickle, ctypes.c_void_p).value)
        self._engine.add_object_file(self._binding.ObjectFileRef.from_data(made.code))
        self._engine.finalize_object()
        self._binding.add_symbol("numba_unpickle", self._helpers.c_helpers["unpickle"])
        for symbol, constants in made.constants:
            if symbol not in self._environments:
                environment = self._environments[symbol] = self._functions.Environment({})
                environment.consts[:] = constants
            address = self._engine.get_global_value_address(symbol)
            ctypes.c_void_p.from_address(address).value = id(self._environments[symbol])
        run: Run = self._functions.make_function(
            sys.modules.get(function.__module__, sys),
            function.__name__,
            function.__doc__ or "",
            self._engine.get_function_address(made.function),
            self._environments[made.constants[0][0]],
            None,
        )
        self._runs[made.function] = run
        return run


def _unpickler() -> Any:
    """A C function of an address, a length and a digest that unpickles a class of results or errors.

    It runs no Python code where modules are loaded: Python would call the handler of a signal that came in the loop
    there, and an exception would end the process, as machine code expects none. Numba's function runs some.
    """
    address, length = ctypes.c_void_p, ctypes.c_int
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_char_p, address, ctypes.c_ssize_t, address)
    loads = partial(call(("_PyObject_CallFunction_SizeT", ctypes.pythonapi)), pickle.loads, b"y#")
    return ctypes.PYFUNCTYPE(ctypes.py_object, address, length, address)(cache(loads))


def _extension(name: str) -> ModuleType:
    """A C extension of Numba, without its packages."""
    file = next(path for suffix in EXTENSION_SUFFIXES if (path := Path(_numba_folder(), name + suffix)).exists())
    spec = spec_from_file_location(f"numba.{name.replace('/', '.')}", file)
    module = module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def link(made: MachineCode, function: Any) -> Run | None:
    """The Python function of a compilation of ``function``; None: it is left to Numba."""
    with _lock, data_limit.lifted():  # two threads would make two linkers, and the end of one would free its code
        linker = _linker()
        return None if linker is None else linker.link(made, function)


_lock = RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@cache
def _linker() -> Linker | None:
    """The one of this process; None: with this version of Numba, there is none."""
    with suppress(ImportError, OSError, AttributeError, KeyError, TypeError, StopIteration):
        return Linker()
    return None
