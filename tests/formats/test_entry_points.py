"""Other packages add formats by entry points."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MODULE = """
from oocbe.formats.registry import Format
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem


def parse(text):
    numbers = [int(word) for word in text.data.split()]
    return Problem((Variable("x", len(numbers)),), (Function.from_array((0,), numbers),))


def render(problem):
    return " ".join(str(problem.evaluate((value,))) for value in range(problem.sizes[0]))


LIST = Format("list", "costs of one variable", parse, render)
NUMBER = 3
"""


@pytest.fixture
def package(tmp_path):
    """A package beside oocbe, as an installation leaves it, with the entry point that is given."""

    def made(point):
        (tmp_path / "their_formats.py").write_text(MODULE)
        info = tmp_path / "their_formats-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-formats\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[oocbe.formats]\nlist = their_formats:{point}\n")
        (tmp_path / "costs.list").write_text("7 3 5")
        return tmp_path

    return made


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "oocbe", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_format_of_another_package_is_read_and_written(package):
    folder = package("LIST")
    done = run(folder, "convert", "costs.list", "costs.cfn")
    assert done.returncode == 0, done.stderr
    done = run(folder, "convert", "costs.cfn", "again.list")
    assert done.returncode == 0, done.stderr
    assert (folder / "again.list").read_text().split() == ["7", "3", "5"]


def test_an_entry_point_that_is_no_format_is_named(package):
    done = run(package("NUMBER"), "convert", "costs.list", "costs.cfn")
    assert done.returncode == 2
    assert "the format list of their_formats:NUMBER is no Format" in done.stderr
