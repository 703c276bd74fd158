"""The structure of the code: what checks it finds what is wrong, and the page about it names what is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


imports = tool("imports")
check_structure = tool("check_structure")


def test_circles_are_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e2"}, "e2": {"e"}}
    assert sorted(imports.circles(edges)) == [["b", "c"], ["e", "e2"]]


def test_every_import_counts(tmp_path, monkeypatch):
    package = tmp_path / "oocbe"
    (package / "model").mkdir(parents=True)
    (package / "cli").mkdir()
    (package / "__init__.py").touch()
    (package / "cli" / "__init__.py").touch()
    (package / "cli" / "main.py").touch()
    (package / "model" / "__init__.py").touch()
    (package / "model" / "late.py").write_text("def run():\n    from oocbe.cli import main\n    return main\n")
    (package / "model" / "typed.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import oocbe.cli.main\n"
    )
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "README.md").write_text("`python benchmarks/known.py`")
    for name in ("known", "unknown"):
        (tmp_path / "benchmarks" / f"{name}.py").write_text('if __name__ == "__main__":\n    pass\n')
    for module in (imports, check_structure):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "PACKAGE", package)
    assert sorted(check_structure.complaints()) == [
        "benchmarks/unknown.py: is not in benchmarks/README.md",
        "oocbe.model.late: imports oocbe.cli.main, of a layer that is not below its own",
        "oocbe.model.typed: imports oocbe.cli.main, of a layer that is not below its own",
    ]


def test_nothing_is_wrong_here():
    assert list(check_structure.complaints()) == []


def test_the_picture_is_what_the_imports_say(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["draw_layers.py", "--check"])
    assert (tool("draw_layers").main(), capsys.readouterr().out) == (0, "")


def test_the_page_names_what_is_there():
    page = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("architecture", "code-map"))
    paths = re.findall(r"`(oocbe/[\w/.]+|tools/[\w.]+)`", page)
    assert len(paths) > 60
    for path in paths:
        assert (ROOT / path).exists(), path
    files = {path.name for path in (ROOT / "oocbe").rglob("*.*")}
    assert set(re.findall(r"`(\w+\.(?:py|cu))`", page)) <= files
    for path, names in re.findall(r"`(oocbe/[\w/]+\.py)` \(([^)]*)\)", page):
        text = (ROOT / path).read_text()
        for name in re.findall(r"`(\w+)(?:\.\w+)?`", names):
            assert re.search(rf"\b{name}\b", text), (path, name)
