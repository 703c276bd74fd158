"""Modules between ``oocbe.solve`` and the loop that joins a bucket: no more than are written down, and all of those.

The page lists their functions, too. Counted are the modules of this package whose functions are on the stack when the
joining kernel is called: one line down from the verb. Where a piece is joined by the thread of its stream, the stack of
the thread that asked for pieces belongs to the path as well.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

import oocbe
from oocbe.elimination.engine import bucket_stream
from oocbe.kernels.cpu.buckets import bucket_join
from oocbe.kernels.cuda import modules
from oocbe.kernels.cuda.buckets import bucket_join as device_join
from oocbe.kernels.cuda.device import why_unavailable
from tests.helpers.pretended_cupy import pretended_cupy

ROOT = Path(__file__).parents[1]
CODE_MAP = ROOT / "docs" / "code-map.md"

CEILINGS = {"on the CPU": 8, "out of core": 13, "on the GPU": 10}
"""Modules on the longest path; lower them with every layer that goes."""

PLAIN = {"bounds": "none", "tables": "incomplete", "order_seconds": 0.0}


Stack = tuple[tuple[str, str], ...]
"""Modules of this package on a stack, each with a function, the outermost first."""

Functions = dict[str, list[str]]
"""Functions by module."""


def stack_of(frame: FrameType | None) -> Stack:
    """The stack of a frame; comprehensions, without frames in some versions of Python, and lambdas have no entry."""
    names = []
    while frame is not None:
        name = frame.f_code.co_qualname
        if not name.endswith(">"):
            names.append((frame.f_globals.get("__name__", ""), name))
        frame = frame.f_back
    return tuple((module, name) for module, name in reversed(names) if module.startswith("oocbe."))


def functions_of(stack: Stack) -> Functions:
    """Functions of each module on a stack, in their order, each once."""
    found: Functions = {}
    for module, name in stack:
        functions = found.setdefault(module, [])
        if name not in functions:
            functions.append(name)
    return found


def listed(functions: Functions) -> str:
    """A line for each module, as on the code map."""
    return "\n".join(f"{module.removeprefix('oocbe.')}: {', '.join(own)}" for module, own in functions.items())


class Paths:
    """Calls a kernel and remembers by which modules it was called."""

    def __init__(self, kernel) -> None:
        self._kernel = kernel
        self._own: set[Stack] = set()
        self._of_workers: set[Stack] = set()
        self._asking: set[Stack] = set()

    def __call__(self, *arguments):
        is_worker = threading.current_thread() is not threading.main_thread()
        (self._of_workers if is_worker else self._own).add(stack_of(sys._getframe(1)))
        return self._kernel(*arguments)

    def asked_by(self, function):
        """A function that has other threads make things, such that whoever asks for one is on the path of all."""

        def remembered(*arguments, **named):
            with closing(function(*arguments, **named)) as made:
                while True:
                    self._asking.add(stack_of(sys._getframe(1)))
                    try:
                        one = next(made)
                    except StopIteration:
                        return
                    yield one

        return remembered

    @property
    def found(self) -> list[Functions]:
        """Modules on each path, in their order, with their functions."""
        all_paths = self._own | {asking + own for asking in self._asking for own in self._of_workers}
        return [functions_of(path) for path in all_paths]


def check(where: str, found: Iterable[Functions]) -> None:
    """The longest path has the number of modules that the page says, and is the one that it names."""
    longest = listed(max(found, key=lambda path: (len(path), [*path.items()])))
    assert longest == documented_paths()[where], f"the path {where} of docs/code-map.md is not this:\n{longest}"


def documented_paths() -> dict[str, str]:
    """The lists of the page, by where the bucket is joined."""
    found = re.findall(r"^\*\*([\w ]+)\*\*: (\d+) modules\n\n```text\n(.*?)\n```", CODE_MAP.read_text(), re.M | re.S)
    assert {where: int(number) for where, number, _ in found} == CEILINGS
    return {where: lines for where, _, lines in found}


def modules_of(lines: str) -> list[str]:
    """Modules of a list of the page."""
    return [f"oocbe.{line.partition(':')[0]}" for line in lines.splitlines()]


def test_the_page_names_modules_that_there_are_and_their_ceilings():
    for where, lines in documented_paths().items():
        names = modules_of(lines)
        assert len(names) == CEILINGS[where]
        assert [name for name in names if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


def test_on_the_cpu(monkeypatch):
    paths = Paths(bucket_join.walk_on)
    monkeypatch.setattr(bucket_join, "walk_on", paths)
    monkeypatch.setenv("OOCBE_THREADS", "1")
    oocbe.solve(ROOT / "examples" / "daily.spot", backend="cpu", **PLAIN)
    check("on the CPU", paths.found)


def test_out_of_core(monkeypatch):
    paths = Paths(bucket_join.walk_on)
    monkeypatch.setattr(bucket_join, "walk_on", paths)
    monkeypatch.setattr(bucket_stream, "run_in_order", paths.asked_by(bucket_stream.run_in_order))
    monkeypatch.setenv("OOCBE_THREADS", "1")
    oocbe.solve(ROOT / "examples" / "daily.spot", backend="cpu", piece_rows=300, **PLAIN)
    check("out of core", [path for path in paths.found if "oocbe.elimination.engine.bucket_stream" in path])


class ProblemPath:
    """The path of a problem through a solve, as a profiler (:func:`sys.setprofile`).

    A call with a problem among its arguments, from another module, enters a module. The first entry is a *stop*. An
    entry from a further module is a *return*; constructors of dataclasses do not count.

    Attributes
    ----------
    stops : functions entered, by module, in the order of the stops. returns : pairs of modules, caller and entered.
    """

    def __init__(self) -> None:
        self.stops: Functions = {}
        self.returns: list[tuple[str, str]] = []
        self._edges: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code, module = frame.f_code, module_of(frame)
        if event != "call" or not module or "<" in code.co_name or "__create_fn__" in code.co_qualname:
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not any(isinstance(frame.f_locals.get(name), oocbe.Problem) for name in arguments if name != "self"):
            return
        caller, back = "", frame.f_back
        while back is not None and not caller:
            caller, back = module_of(back), back.f_back
        functions = self.stops.setdefault(module, [])
        if code.co_qualname not in functions:
            functions.append(code.co_qualname)
        if caller not in (module, "") and (caller, module) not in self._edges:
            if any(entered == module for _, entered in self._edges):
                self.returns.append((caller, module))
            self._edges.add((caller, module))

    def __str__(self) -> str:
        """A line for each stop, as on the code map."""
        return listed(self.stops)


def module_of(frame: FrameType) -> str:
    """The module of this package that a frame belongs to; empty for others."""
    name = frame.f_globals.get("__name__", "")
    return name if name.startswith("oocbe.") else ""


MOST_STOPS, MOST_RETURNS = 35, 12
"""Limits of the path of a problem through a solve."""

PAGE_LINES = 45
"""Lines of a printed page for the path."""


def test_a_problem_makes_few_stops_and_returns_and_the_page_shows_them(monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "1")
    options = {"backend": "cpu", "order_seconds": 0.0}
    oocbe.solve(ROOT / "examples" / "daily.spot", **options)  # loads the modules
    path = ProblemPath()
    sys.setprofile(path)
    try:
        oocbe.solve(ROOT / "examples" / "daily.spot", **options)
    finally:
        sys.setprofile(None)
    assert len(path.stops) <= MOST_STOPS, str(path)
    assert len(path.returns) <= MOST_RETURNS, path.returns
    assert len(str(path).splitlines()) <= PAGE_LINES
    page = CODE_MAP.read_text()
    assert f"enters {len(path.stops)} modules, with {len(path.returns)} returns" in page
    assert str(path) in page, f"the path of docs/code-map.md is not this:\n{path}"


class Reached(BaseException):
    """The first kernel is about to be launched, on a device that there is not."""


def test_to_the_first_launch_on_a_pretended_gpu(monkeypatch):
    def reached(argument):
        raise Reached

    paths = Paths(reached)
    monkeypatch.setattr(modules, "as_struct", paths)
    monkeypatch.setattr(device_join, "kernel", lambda *which, **definitions: None)
    with pretended_cupy(), pytest.raises(Reached):
        oocbe.solve(ROOT / "examples" / "daily.spot", backend="cuda", **PLAIN)
    check("on the GPU", paths.found)


@pytest.mark.gpu
@pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}")
def test_on_the_gpu(monkeypatch):
    paths = Paths(modules.as_struct)  # of every argument of every launch
    monkeypatch.setattr(modules, "as_struct", paths)
    oocbe.solve(ROOT / "examples" / "daily.spot", backend="cuda", **PLAIN)
    others = {"oocbe.elimination.row_pruning.dominance", "oocbe.kernels.cuda.pairs.selection"}  # no joins: prefix sums
    joins = [path for path in paths.found if "oocbe.kernels.cuda.buckets.bucket_join" in path]
    longest = max((path for path in joins if others.isdisjoint(path)), key=lambda path: (len(path), [*path]))
    assert list(longest) == modules_of(documented_paths()["on the GPU"])  # its functions: those of the first launch
