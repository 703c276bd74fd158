"""What somebody meets first: help, warm-up, what is said while loops are compiled."""

import ast
import io
import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from oocbe.cli import progress
from oocbe.cli.main import app
from oocbe.cli.output import times
from oocbe.cli.progress import BarObserver, LogObserver, observer_for
from oocbe.kernels.cpu import dispatchers, signatures
from oocbe.model.settings.machine import control_group_processors
from oocbe.model.settings.options import SolveOptions, default_text
from oocbe.runtime.compilation import SENTENCE, Compilation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [[], ["solve"], ["synth", "grid"]])
def test_h_is_help(command):
    short, long = (CliRunner().invoke(app, [*command, flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert "Usage" in short.stdout


def test_a_task_for_a_command_is_told_how():
    """``count`` got "did you mean convert"."""
    command = [sys.executable, "-m", "oocbe", "count", "options.cnf"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "oocbe: count is a task: oocbe solve FILE --task count\n")


def test_help_shows_the_defaults_and_variables_of_all_options():
    shown = " ".join(CliRunner().invoke(app, ["solve", "--help"]).stdout.split()).replace("- ", "-")
    for name in SolveOptions.names():
        assert f"[default: {default_text(name)}; OOCBE_{name.upper()}]" in shown


@pytest.mark.parametrize("name", SolveOptions.names())
def test_defaults_in_help_are_those_of_the_options(name):
    actual, text = getattr(SolveOptions(), name), default_text(name)
    assert text
    if actual is not None:
        assert SolveOptions.parsed(name, text) == actual


def bar_lines(monkeypatch, compiles: bool) -> list[str]:
    monkeypatch.setattr(progress, "compilation", SimpleNamespace(is_running=compiles))
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    plan = cast(Any, SimpleNamespace(buckets=[None] * 1234))
    with closing(BarObserver(console)) as observer:
        observer.started(plan)
        observer.bounds_changed(123_456, 234_567_890, "search", None)
        observer.bucket_done(617, 1234, "a-variable-with-a-rather-long-name", 123_456_789, 10**9)
        assert observer._progress is not None
        console.print(observer._progress.get_renderable())
    return [line for line in screen.getvalue().splitlines() if "a-variable" in line or SENTENCE in line]


def test_the_bar_fits_80_columns_and_keeps_bar_and_clock(monkeypatch):
    (line, *_) = bar_lines(monkeypatch, compiles=False)
    line = line.split("\r")[-1].replace("\x1b[2K", "").replace("\x1b[?25l", "")
    assert len(line) <= 80
    assert "━" * 5 in line
    assert "617/1234" in line
    assert "0:00:0" in line


def test_the_bar_says_that_loops_are_compiled(monkeypatch):
    assert any(SENTENCE in line for line in bar_lines(monkeypatch, compiles=True))


def test_a_dumb_terminal_gets_a_log(monkeypatch):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("TERM", "xterm")
    assert type(observer_for(quiet=False, verbose=False)) is BarObserver
    monkeypatch.setenv("TERM", "dumb")
    with closing(observer_for(quiet=False, verbose=False)) as observer:
        assert type(observer) is LogObserver


def test_compiling_within_compiling_counts_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("oocbe.runtime.compilation.time", SimpleNamespace(perf_counter=lambda: now[0]))
    counted = Compilation()
    for at, step in ((1, counted.begin), (2, counted.begin), (4, counted.end)):
        now[0] = at
        step()
    assert (counted.seconds, counted.is_running) == (3, True)
    now[0] = 5
    counted.end()
    now[0] = 9
    assert (counted.seconds, counted.loops, counted.is_running) == (4, 2, False)


def test_times_tell_compiling_apart():
    told = times({"order": 1.0, "forward": 3.0, "total": 4.5, "compiling": 2.0})
    assert told == "4.50 s (order 1.00 s, forward 3.00 s; of it compiling, once for this machine: 2.00 s)"


LOADED = """
import gc

import oocbe
from oocbe.kernels.cpu.dispatchers import described
from oocbe.kernels.cpu.jit import Loop
from oocbe.kernels.cpu.signatures import listed
from oocbe.stress.tables import grid_network, random_network


def check(is_quick):
    found = (item for item in gc.get_objects() if type(item) is Loop)
    loops = {(item.py_func.__module__, item.py_func.__name__, types) for item in found for types, _ in item._files}
    known = {(module, name, ", ".join(described(kind, None) for kind in s)) for module, name, s in listed(is_quick)}
    print(sorted(str(loop) for loop in loops - known if loop[0].startswith("oocbe.")), len(loops) > 9)
"""

SOLVES = f"""{LOADED}
for problem in (random_network(30, 7, 0.2, 0.2, 5), random_network(18, 10, 0.6, 0.4, 6), grid_network(10, 3, 0.1, 7)):
    oocbe.solve(problem)
check(False)
"""

EXAMPLE = f"""{LOADED}
oocbe.solve({str(ROOT / "examples" / "daily.spot")!r})
check(True)
"""

COMPILES = """
from oocbe.kernels.cpu import signatures

some = [loop for loop in signatures.listed() if loop[1] == "log_sum_exp"][:2]  # short ones
signatures.listed = lambda is_quick: some
lines = []
print(signatures.compile_listed(False, 2, lines.append)[0], signatures.compile_listed(False, 2, lines.append)[0], lines)
"""


@pytest.mark.parametrize("script", [EXAMPLE, pytest.param(SOLVES, marks=pytest.mark.slow)])
def test_the_list_of_signatures_has_what_solves_need(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_listed_loops_are_there_and_have_the_listed_parameters():
    broken = []
    listed = signatures.listed(broken=broken)
    assert broken == []
    assert len(set(listed)) == len(listed) > 300
    assert set(signatures.listed(is_quick=True)) < set(listed)


@pytest.mark.parametrize(
    ("loops", "types", "error"),
    [
        ("{'oocbe.kernels.cpu.gone': {'f': ['int64']}}", "{}", ImportError),
        ("{'oocbe.kernels.cpu.pairs.sort': {'gone': ['int64']}}", "{}", AttributeError),
        ("{'oocbe.kernels.cpu.pairs.sort': {'ascent': ['int64, int64, int64, int64']}}", "{}", AttributeError),
        ("{}", "{'Level1': \"named('oocbe.kernels.cpu.projection:Level', int64)\"}", AttributeError),
    ],
)
def test_entries_without_a_function_or_type_are_broken(loops, types, error, tmp_path, monkeypatch):
    content = {"types": ast.literal_eval(types), "loops": ast.literal_eval(loops)}
    (tmp_path / "list.json").write_text(json.dumps(content))
    monkeypatch.setattr(signatures, "FILE", tmp_path / "list.json")
    with pytest.raises(error):
        signatures.listed()
    broken = []
    assert signatures.listed(broken=broken) == []
    assert len(broken) == 1


def test_types_of_signatures_are_written_and_read():
    names, named = {}, {}
    for *_, kinds in signatures.listed():
        texts = [dispatchers.described(kind, names) for kind in kinds]
        for name in names.keys() - named.keys():
            (named[name],) = signatures.made(names[name], named)
        assert signatures.made(", ".join(texts), named) == kinds


def test_missing_loops_are_compiled_once(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILES], env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"2 0 \['oocbe\.[\w.]+: compiled'.*\]", done.stdout.strip())


def test_warm_up_says_what_it_does():
    assert CliRunner().invoke(app, ["warm-up", "--quick"]).exit_code == 0
    again = CliRunner().invoke(app, ["warm-up", "--quick"])
    assert again.exit_code == 0, again.output
    assert "0 loops" in again.stdout
    assert "kept in" in again.stdout


def test_quotas_of_control_groups(tmp_path):
    group = tmp_path / "jobs" / "mine"
    group.mkdir(parents=True)
    assert control_group_processors(tmp_path, group.relative_to(tmp_path)) is None
    (group / "cpu.max").write_text("max 100000\n")
    (tmp_path / "jobs" / "cpu.max").write_text("250000 100000\n")
    assert control_group_processors(tmp_path, group.relative_to(tmp_path)) == 2.5
    (group / "cpu.max").write_text("50000 100000\n")
    assert control_group_processors(tmp_path, group.relative_to(tmp_path)) == 0.5


def test_help_imports_no_arrays():
    """NumPy takes longer than all the rest of it."""
    script = "import sys; from oocbe.cli.main import program; program(); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
