"""Benchmarks as commands within this process: one of its own loads the library anew, longer than its work takes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def _module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A benchmark as a module; those beside it go by plain names, as when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load_benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A function from a benchmark's name to its module."""
    return partial(_module, monkeypatch=monkeypatch)


@pytest.fixture
def run_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """A function from a benchmark's name, the folder of instances and arguments to what comes of the command.

    What a benchmark measures in processes of their own is done in this one as well, but for peers: libraries of two of
    them, OR-Tools and HiGHS, can't be loaded into one process.
    """

    def run(name: str, folder: Path, *arguments: str) -> Outcome:
        module = _module(name, monkeypatch)
        in_its_own = getattr(module, "run_child", None)

        def in_this_process(script: str, called: Sequence[str], seconds: float | None = None) -> dict[str, Any]:
            assert Path(script).stem == name
            if called[0] == "peer" and in_its_own is not None:
                return dict(in_its_own(script, called, seconds))
            answer: dict[str, Any] = json.loads(json.dumps(module.CHILDREN[called[0]](*called[1:])))
            return answer

        if hasattr(module, "run_child"):
            monkeypatch.setattr(module, "run_child", in_this_process)
        monkeypatch.setenv("OOCBE_DATA", str(folder))
        monkeypatch.setattr(sys, "argv", [str(module.__file__), *arguments])
        capsys.readouterr()
        try:
            code, said = module.main(), ""
        except SystemExit as ended:
            code, said = (ended.code, "") if isinstance(ended.code, int) else (1, str(ended.code))
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err + said)

    return run
