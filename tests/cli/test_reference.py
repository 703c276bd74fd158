"""Man page, page of options and types agree with the tables of options; shells complete what there is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from oocbe.cli.main import app
from tools.write_reference import ROOT, WRITTEN


@pytest.mark.parametrize("path", WRITTEN)
def test_what_is_written_agrees_with_the_tables(path):
    assert (ROOT / path).read_text() == WRITTEN[path](), "run python -m tools.write_reference"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_groff_has_no_complaints():
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", ROOT / "docs" / "oocbe.1"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell):
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0
    assert "_OOCBE_COMPLETE=complete_" + shell in done.stdout


def test_another_shell_is_refused():
    done = CliRunner().invoke(app, ["completion", "tcsh"])
    assert done.exit_code == 2
    assert "known: bash, zsh, fish" in done.stderr


@pytest.mark.parametrize(("words", "expected"), [("oocbe so", ["solve"]), ("oocbe solve --temp", ["--temperature"])])
def test_what_may_follow(words, expected):
    """As the script asks it, of a process that is called by the program's name. At its end, no run of the collector
    over all containers delays it."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_OOCBE_COMPLETE": "complete_bash"}
    program = (
        "import atexit, gc, sys\natexit.register(lambda: print('frozen' if gc.get_freeze_count() else 'collected'))\n"
        "sys.argv = ['oocbe']; from oocbe.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [*expected, "frozen"], done.stderr
