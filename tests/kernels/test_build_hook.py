"""The build hook of an editable install, with a stand-in for the front end's interface."""

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Generic, TypeVar

import pytest

ROOT = Path(__file__).parents[2]

Config = TypeVar("Config")


class Interface(Generic[Config]):
    """What the hook inherits."""


@pytest.fixture
def hook(monkeypatch):
    """The hook of this repository."""
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = Interface
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.CompileLoops()
    made.root = str(ROOT)
    made.warnings = []
    made.app = types.SimpleNamespace(display_warning=made.warnings.append)
    return made


def test_the_packages_of_an_isolated_build_are_found(hook, monkeypatch, tmp_path):
    """The front end names them in PYTHONPATH; without them, the first solve compiles for a minute."""
    run = subprocess.Popen
    seen = []

    def popen(command, *, env, **settings):
        seen.append(env["PYTHONPATH"].split(os.pathsep))
        checked = [*command[:2], "import isolated; import oocbe.kernels.cpu.signatures"]
        return run(checked, env=env, cwd=tmp_path, **settings)

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "isolated.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(subprocess, "Popen", popen)
    hook.initialize("editable", {})
    assert hook.warnings == []
    assert seen == [[str(tmp_path / "site"), str(ROOT)]]
    hook.initialize("standard", {})
    assert len(seen) == 1
