"""Compilation of the package's CUDA sources on first use, for the current device, and launches.

A ``.cu`` file holds ``extern "C"`` kernels. Types and other compile-time choices are macros (*definitions*), so that
one source serves all value types and semirings; the line ``// variants: NAME=a|b NAME=c|d`` at its top lists the values
of each, and a test compiles each of them on machines without a device. ``#include "x.cuh"`` is replaced by that file's
text here, not by the compiler: CuPy's cache on disk is keyed by the source text, and would keep a stale kernel after a
change of a header. No other header is needed, including CUDA's own.

The source alone defines the members of a struct and their order; the host sets each value by name. All members are 8
bytes wide, or structs of such, so there is no padding and a struct is an array of uint64.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.spans import device_span
from oocbe.runtime.tracing.recorder import KERNELS, active
from oocbe.runtime.waiting import interruptibly

PACKAGE = Path(__file__).parents[2]
"""The folder above all CUDA sources, which are in folders called ``kernels/cuda``."""

OPTIONS = ("-std=c++17", "--fmad=false")
"""No contraction of a · b + c: sums of products are rounded twice, as on the CPU."""

C_TYPES = {np.dtype(np.int32): "int", np.dtype(np.int64): "long long", np.dtype(np.float32): "float",
           np.dtype(np.float64): "double", np.dtype(np.uint32): "unsigned int",
           np.dtype(np.uint64): "unsigned long long"}  # fmt: skip
"""C type of a dtype in a definition."""

Definition = str | int


@cache
def _sources() -> dict[str, Path]:
    """Sources and headers by file name, in any folder."""
    return {
        path.name: path for path in sorted(PACKAGE.glob("**/kernels/cuda/**/*.cu*")) if path.suffix in (".cu", ".cuh")
    }


@cache
def source_text(name: str) -> str:
    """Text of ``name.cu`` with headers inlined, each once."""
    seen: set[str] = set()

    def put_in(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return expand(_sources()[match[1]])

    def expand(path: Path) -> str:
        return re.sub(r'^#include "([\w.]+)"$', put_in, path.read_text(encoding="utf-8"), flags=re.MULTILINE)

    return expand(_sources()[f"{name}.cu"])


def choices(name: str) -> dict[str, list[str]]:
    """Definitions of a source, and the values of each, from its ``// variants:`` lines."""
    # Values may contain blanks (long long): a name and an equals sign start the next choice.
    lines = re.findall(r"^// variants: (.*)$", source_text(name), flags=re.MULTILINE)
    found = [choice for line in lines for choice in re.findall(r"(\w+)=(.*?)(?= \w+=|$)", line)]
    return {name: values.split("|") for name, values in found}


def defined_source(name: str, definitions: dict[str, Definition] | dict[str, str]) -> str:
    """Text of ``name.cu`` with definitions.

    They are not options of the compiler: for each new list of options, CuPy runs the compiler on an empty file, for
    some 10 ms, before it reads its cache.
    """
    lines = [f"#define {key} {value}\n" for key, value in sorted(definitions.items())]
    return "".join([*lines, "#line 1\n", source_text(name)])


def kernel(source: str, function: str, **definitions: Definition) -> Any:
    """A kernel of ``source.cu``, compiled with some definitions; compilations are cached in memory and on disk."""
    return _function(source, function, tuple(sorted(definitions.items())))


def cooperative_kernel(
    source: str, function: str, threads: int, shared_bytes: int = 0, /, **definitions: Definition
) -> tuple[Any, int]:
    """A kernel with grid barriers and its resident blocks of ``threads``, each with shared dynamic bytes."""
    found = _function(source, function, tuple(sorted(definitions.items())), cooperative=True)
    return found, _resident_blocks(found, threads, shared_bytes, cupy().cuda.runtime.getDevice())


def launch(function: Any, blocks: int, threads: int, *arguments: Any, shared_bytes: int = 0) -> None:
    """Queue a kernel on CuPy's current stream; without blocks there is no launch.

    Arguments are CuPy arrays (a pointer), Python integers (``long long``), NumPy scalars (their C type) and NumPy
    arrays (a struct of the same bytes, by value).
    """
    if blocks > 0:
        passed = tuple([as_struct(a) if isinstance(a, np.ndarray) else a for a in arguments])
        if active() is None:  # launches take most of the host's time of small operations
            function((blocks,), (threads,), passed, shared_mem=shared_bytes)
            return
        with device_span(KERNELS, getattr(function, "name", "kernel")):
            function((blocks,), (threads,), passed, shared_mem=shared_bytes)


class PreparedLaunch:
    """A cooperative launch for repeated use: its arguments are prepared once and read at each launch.

    function : of :func:`cooperative_kernel`. blocks, threads : of the grid; at most the resident blocks.
    arguments : NumPy arrays, each a struct of the same bytes; a launch reads their current contents.
    shared_bytes : of a block. The stream is CuPy's current one at construction. stream : of the launches.
    """

    def __init__(
        self, function: Any, blocks: int, threads: int, arguments: Sequence[NDArray[Any]], shared_bytes: int = 0
    ) -> None:
        self.stream = cupy().cuda.get_current_stream()
        self._name = getattr(function, "name", "kernel")
        addresses = np.array([argument.ctypes.data for argument in arguments], dtype=np.uintp)
        self._held = function, arguments, addresses
        self._launch = partial(
            cupy().cuda.driver.launchCooperativeKernel, function.kernel.ptr, blocks, 1, 1, threads, 1, 1, shared_bytes,
            self.stream.ptr, addresses.ctypes.data,
        )  # fmt: skip

    def __call__(self) -> None:
        """Queue the launch."""
        with device_span(KERNELS, self._name):
            self._launch()


def or_null(array: Any | None) -> Any:
    """An array, or the null pointer for None, as an argument of a kernel."""
    return 0 if array is None else array


def as_struct(argument: Any) -> Any:
    """A NumPy array as one element of its bytes, the only form that CuPy passes by value; other arguments unchanged."""
    if isinstance(argument, np.ndarray) and argument.size != 1:
        return np.ascontiguousarray(argument).reshape(-1).view(np.dtype((np.void, argument.nbytes)))
    return argument


@cache
def _function(
    source: str, function: str, definitions: tuple[tuple[str, Definition], ...], cooperative: bool = False
) -> Any:
    return _module(source, definitions, cooperative).get_function(function)


@cache
def _module(source: str, definitions: tuple[tuple[str, Definition], ...], cooperative: bool) -> Any:
    module = cupy().RawModule(
        code=defined_source(source, dict(definitions)), options=OPTIONS, enable_cooperative_groups=cooperative
    )
    device = cupy().cuda.Device()

    def compiled() -> None:
        with device:
            module.compile()

    interruptibly(compiled)
    return module


@cache
def _resident_blocks(function: Any, threads: int, shared_bytes: int, device: int) -> int:
    ask = cupy().cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    a_multiprocessor = ask(function.kernel.ptr, threads, shared_bytes)
    return int(a_multiprocessor) * multiprocessors(device)


WIDE_TYPES = ("i64", "u64", "wide")
"""Types of members with 8 bytes, besides pointers."""


@cache
def members(source: str, struct: str) -> dict[str, str]:
    """C type of each member of a struct of ``source.cu``, by name and in order; a pointer's ends with a star.

    Raises TypeError: the source has no such struct, or a member is not 8 bytes wide.
    """
    found = re.search(rf"^struct {struct} \{{$(.*?)^\}};", source_text(source), flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise TypeError(f"{source}.cu has no struct {struct}")
    types: dict[str, str] = {}
    for declaration in re.sub(r"//.*", "", found[1]).split(";")[:-1]:
        match = re.fullmatch(r"\s*((?:const )?\w+) (.*)", declaration, flags=re.DOTALL)
        assert match is not None, declaration
        for declared in match[2].split(","):
            name = declared.strip()
            types[name.lstrip("*")] = f"{match[1]} *" if name.startswith("*") else match[1]
    for kind in types.values():
        if not kind.endswith("*") and kind not in WIDE_TYPES:
            words(source, kind)  # raises if it is no struct
    return types


@cache
def words(source: str, struct: str) -> int:
    """Size of a struct in numbers of 8 bytes."""
    kinds = members(source, struct).values()
    return sum(1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind) for kind in kinds)


class Struct:
    """A struct of ``source.cu`` with some members preset: each launch sets the others.

    Hundreds of launches of a bucket differ in a few members, so names are looked up and checked once.

    source, struct : its location. known : values of some members, by name, as for :func:`packed`.
    Raises TypeError: the struct has no such member.
    """

    def __init__(self, source: str, struct: str, /, **known: Any) -> None:
        places = _places(source, struct)
        if not known.keys() <= places.keys():
            raise TypeError(f"struct {struct} of {source}.cu has no {', '.join(sorted(known.keys() - places.keys()))}")
        self._name = f"struct {struct} of {source}.cu"
        self._words = [0] * words(source, struct)
        self._open = {name: place for name, place in places.items() if name not in known}
        for name, value in known.items():
            _set(self._words, places[name], value)

    def words(self, **values: Any) -> list[int]:
        """The struct's words, for an enclosing one, from all members not preset; TypeError: other names."""
        if values.keys() != self._open.keys():
            wrong = ", ".join(sorted(self._open.keys() ^ values.keys()))
            raise TypeError(f"{self._name} and the values given for it differ in: {wrong}")
        found = self._words.copy()
        for name, value in values.items():
            if type(value) is int:
                found[self._open[name][0]] = value
            else:
                _set(found, self._open[name], value)
        return found

    def packed(self, **values: Any) -> NDArray[np.uint64]:
        """The struct as a kernel's argument, uint64 (words,); arguments and errors as of :meth:`words`."""
        return np.array(self.words(**values), dtype=np.uint64)


def place_of(source: str, struct: str, member: str) -> int:
    """Offset of a member in the result of :func:`packed`, in numbers of 8 bytes."""
    return _places(source, struct)[member][0]


def packed(source: str, struct: str, /, **values: Any) -> NDArray[np.uint64]:
    """A struct of ``source.cu`` as a kernel's argument, uint64 (:func:`words`,).

    values : of every member, by name: a Python integer, a NumPy scalar of 8 bytes, an address or a CuPy array for a
        pointer (None: the null pointer), or for a struct within it the list of its words.

    Raises TypeError: the names differ from those of the struct's members.
    """
    return Struct(source, struct).packed(**values)


def _set(found: list[int], place: tuple[int, int], value: Any) -> None:
    """Store a member's value at its place: first word and number of words."""
    first, count = place
    if isinstance(value, list):
        if len(value) != count:
            raise TypeError(f"a struct within a struct takes {count} words, not {len(value)}")
        found[first : first + count] = value
    else:
        found[first] = word(value)


def word(value: Any) -> int:
    """A member's value as a number: a Python integer, a NumPy scalar of 8 bytes, a CuPy array's address, or None."""
    if isinstance(value, int):
        return value
    if value is None:
        return 0
    if isinstance(value, np.generic):
        return int(value.view(np.uint64))
    return int(value.data.ptr)


@cache
def _places(source: str, struct: str) -> dict[str, tuple[int, int]]:
    """First word and number of words of each member of a struct, by name and in order."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, kind in members(source, struct).items():
        count = 1 if kind.endswith("*") or kind in WIDE_TYPES else words(source, kind)
        places[name] = end, count
        end += count
    return places
