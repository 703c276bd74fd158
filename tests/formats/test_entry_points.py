"""Other packages add formats by entry points."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from oocbe.errors import UsageError
from oocbe.formats.registry import Format, formats

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-format.md"

MODULE = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)[0] + "\nNUMBER = 3\n"
"""The module that the page shows, and an object that is no format."""


@pytest.fixture
def package(tmp_path):
    """A package beside oocbe, as an installation leaves it, with the entry point that is given."""

    def made(point):
        (tmp_path / "their_formats.py").write_text(MODULE)
        info = tmp_path / "their_formats-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-formats\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[oocbe.formats]\npairs = their_formats:{point}\n")
        (tmp_path / "costs.pairs").write_text("2 3  # sizes\n0 1 0 2 7\n0 1 1 0 -3\n")
        return tmp_path

    return made


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "oocbe", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_format_of_another_package_is_read_and_written(package):
    folder = package("PAIRS")
    done = run(folder, "convert", "costs.pairs", "costs.cfn")
    assert done.returncode == 0, done.stderr
    done = run(folder, "convert", "costs.cfn", "again.pairs")
    assert done.returncode == 0, done.stderr
    assert (folder / "again.pairs").read_text().split("\n")[0] == "2 3"


def test_an_entry_point_that_is_no_format_is_named(package):
    done = run(package("NUMBER"), "convert", "costs.pairs", "costs.cfn")
    assert done.returncode == 2
    assert "the format pairs of their_formats:NUMBER is no Format" in done.stderr


@pytest.mark.parametrize("name", ["PAIRS", "csv", "yml", "wcsp"])
def test_a_format_with_a_name_that_is_no_suffix_of_its_own_is_refused(monkeypatch, name):
    """It would never be found by the suffix of a file."""
    theirs = SimpleNamespace(name="pairs", value="their_formats:PAIRS", load=lambda: Format(name, "costs", str))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [theirs])
    with pytest.raises(UsageError, match="no Format with a name of its own, in lower case"):
        formats.__wrapped__()


def test_formats_of_other_packages_are_listed_by_name(monkeypatch):
    theirs = SimpleNamespace(name="dat", value="their_formats:DAT", load=lambda: Format("dat", "costs", str))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [theirs])
    assert "dat" in formats.__wrapped__()
    assert list(formats.__wrapped__()) == sorted(formats.__wrapped__())


def test_a_malformed_file_is_named_with_its_line(package):
    folder = package("PAIRS")
    (folder / "costs.pairs").write_text("2 3\n0 1 0 2 7\n\n0 1 0 3 7\n")
    done = run(folder, "solve", "costs.pairs")
    assert done.returncode == 2
    assert "costs.pairs, line 4: found 3, expected a value" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("2 3\n0 1 0 1 7\n1 0 1 0 8\n", "line 3: found a second cost of values (0, 1) of variables (0, 1)"),
        ("# nothing\n", "the file ends, expected the sizes"),
    ],
)
def test_a_file_that_says_nothing_or_twice_is_refused(package, content, message):
    folder = package("PAIRS")
    (folder / "costs.pairs").write_text(content)
    done = run(folder, "solve", "costs.pairs")
    assert done.returncode == 2
    assert message in done.stderr


def test_an_error_of_another_packages_parser_is_not_oocbes(package):
    folder = package("PAIRS")
    module = folder / "their_formats.py"
    module.write_text(module.read_text().replace("variables: list[Variable] = []", "variables = [1 // 0]"))
    done = run(folder, "solve", "costs.pairs")
    assert done.returncode == 2
    assert "costs.pairs: the format pairs of another package failed: ZeroDivisionError" in done.stderr
