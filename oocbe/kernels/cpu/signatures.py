"""The signatures that loops are called with, listed in ``signatures.json``, and their compilation in advance.

The list is kept by ``tools/list_signatures.py``, from what a run of the whole suite has compiled.
"""

from __future__ import annotations

import ast
import json
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from numba import types

from oocbe.errors import OocbeError
from oocbe.kernels.cpu.compiler import POLL_SECONDS, Compiler, Loop, found
from oocbe.kernels.cpu.jit import CACHE_VARIABLE, cache_folder

FILE = Path(__file__).with_suffix(".json")
"""The list. ``types``: expressions of named types; ``loops``: signatures of each function of each module; ``first
solve``: those of the README's first solve."""


def _named(name: str, *kinds: Any) -> Any:
    owner = found(*name.split(":"))
    if len(owner._fields) != len(kinds):
        raise AttributeError(f"{name} has {len(owner._fields)} fields, and is listed with {len(kinds)}")
    return types.BaseTuple.from_types(kinds, owner)


_MAKERS: dict[str, Callable[..., Any]] = {
    "array": types.Array,
    "readonly": partial(types.Array, readonly=True),
    "named": _named,
    "tuple": lambda *kinds: types.BaseTuple.from_types(kinds),
    "literal": types.literal,
}


def made(text: str, named: dict[str, Any]) -> tuple[Any, ...]:
    """The Numba types of a signature, expressions of :func:`described` with commas; ``named``: the names' types."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _MAKERS[node.func.id](*map(value, node.args))
        if isinstance(node, ast.Name):
            return named[node.id] if node.id in named else getattr(types, node.id)
        return ast.literal_eval(node)

    tree = ast.parse(f"({text},)" if text else "()", mode="eval").body
    assert isinstance(tree, ast.Tuple)
    return tuple(map(value, tree.elts))


Typed = tuple[str, str, tuple[Any, ...]]
"""Module and qualified name of a loop, and Numba's types of its arguments."""


def listed(is_quick: bool = False, broken: list[str] | None = None) -> list[Typed]:
    """The listed loops.

    is_quick : only those of a first solve. broken : gets the entries whose function or types are not there, or have
        changed; without it they raise ImportError or AttributeError.
    """
    content = json.loads(FILE.read_text())
    entries = [("", name, text) for name, text in content["types"].items()]  # the parts of a type come before it
    for module, functions in content["first solve" if is_quick else "loops"].items():
        entries += [(module, name, text) for name, texts in functions.items() for text in texts]
    named: dict[str, Any] = {}
    loops: list[Typed] = []
    for module, name, text in entries:
        try:
            kinds = made(text, named)
            if module and found(module, name).py_func.__code__.co_argcount != len(kinds):
                raise AttributeError(f"{module}:{name} has other parameters than those listed")
        except (ImportError, AttributeError):
            if broken is None:
                raise
            broken.append(f"{module}:{name}({text})")
            continue
        if module:
            loops.append((module, name, kinds))
        else:
            (named[name],) = kinds
    return loops


def compile_listed(is_quick: bool, processes: int, say: Callable[[str], None]) -> tuple[int, float]:
    """Compile the listed loops that no cache holds: their number, and the seconds of all processes.

    is_quick : only the loops of a first solve. processes : number of compiling children. say : gets a line for each
        module.
    Raises OocbeError: a loop cannot be compiled, or no folder for compiled loops can be written.
    """
    if cache_folder() is None:
        raise OocbeError(f"no folder for compiled loops can be written; {CACHE_VARIABLE} may name one")
    missing = [loop for loop in map(missing_loop, listed(is_quick)) if loop is not None]
    waiting, left, spent = deque(missing), Counter(module for module, *_ in missing), 0.0
    running: dict[Loop, float] = {}
    compiler = Compiler(processes)
    while waiting or running:
        while waiting and len(running) < processes:
            running[waiting[0]] = time.perf_counter()
            compiler.start(waiting.popleft())
        for loop in [loop for loop in running if compiler.is_over(loop)]:
            spent += time.perf_counter() - running.pop(loop)
            left[loop[0]] -= 1
            if not left[loop[0]]:
                say(f"{loop[0]}: compiled")
        time.sleep(POLL_SECONDS)
    compiler.close()
    for module, name, signature in filter(missing_loop, listed(is_quick) if missing else ()):
        found(module, name).compile(signature)  # raises the error of the compilation
        raise OocbeError(f"{module}:{name} was compiled, and could not be stored below {cache_folder()}")
    return len(missing), spent


def missing_loop(loop: Typed) -> Loop | None:
    """The loop, if no cache holds it, and one can be written."""
    module, name, signature = loop
    function = found(module, name)
    missing: Loop | None = function._cache.missing(signature, function.targetctx.codegen())
    return missing
