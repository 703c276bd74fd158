"""Flags that commands have in common: which command has which, and that each has its effect there."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.cli import failures
from oocbe.cli.main import COMMANDS, app
from oocbe.kernels.cpu import signatures
from oocbe.model.settings.options import OPTIONS
from tests.helpers.all_commands import write_inputs

SYNTH = ("random", "scale-free", "grid", "spot5", "table")

CALLS = {
    "solve": "cycle.wcsp",
    "bound": "cycle.wcsp --z 2",
    "plan": "cycle.wcsp",
    "propagate": "cycle.wcsp --output left.wcsp",
    "verify": "cycle.wcsp cycle.sol",
    "inspect": "cycle.wcsp",
    "convert": "cycle.wcsp cycle.cfn",
    "join": "sales.csv rents.csv --group-by shop --max gain --on shop -o best.csv",
    "compile": "small.bif new.tree",
    "query": "small.tree --cases cases.csv",
    "uai": "small.bif - - PR",
    "dcop": "cycle.wcsp",
    "stress": "--rows 1e3",
    "trace": "run.json",
    "simulate": "--segments 40 --workers 3",
    "warm-up": "",
    "doctor": "",
    "completion": "bash",
    **{
        f"synth {kind}": "table" if kind == "table" else f"made.{'spot' if kind == 'spot5' else 'wcsp'}"
        for kind in SYNTH
    },
}
"""Arguments of a call of each command that ends with 0."""

COMMON = {
    "--quiet": (),
    "--json": (),
    "--memory": ("64MiB",),
    "--time-limit": ("60",),
    "--seed": ("3",),
    "--workers": ("2",),
    "--trace": ("new.json",),
}
"""Common flags, each with a value."""

RANDOM = {"solve", "plan", "bound", "compile", "uai", "stress", "simulate", *(f"synth {kind}" for kind in SYNTH)}
SHARED = {"solve", "plan", "dcop", "stress", "simulate"}
SHORT = {"trace", "simulate", "warm-up", "doctor", *(f"synth {kind}" for kind in SYNTH)}
TRACED = {"solve", "plan", "bound", "convert", "join", "compile", "query", "dcop", "stress"}
HAS = {
    "--quiet": set(CALLS) - {"completion"},
    "--json": set(CALLS) - {"completion"},
    "--memory": set(CALLS) - {"completion"},
    "--time-limit": set(CALLS) - SHORT - {"completion"},
    "--seed": RANDOM,
    "--workers": SHARED,
    "--trace": TRACED,
}
"""The commands for which each flag has a meaning."""


def call(command: str, *more: str):
    return CliRunner().invoke(app, [*command.split(), *CALLS[command].split(), *more])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    made = {
        "solve cycle.wcsp": ("--solution", "cycle.sol", "--trace", "run.json"),
        "compile small.bif": ("small.tree",),
        "synth table": ("stored", "--rows", "1e3", "--groups", "10"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for arguments, more in made.items():
            assert CliRunner().invoke(app, [*arguments.split(), *more]).exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def folder(inputs, tmp_path, monkeypatch):
    """A folder with the inputs; warming up takes no time."""
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signatures, "listed", lambda is_quick: [])
    return tmp_path


def test_all_commands_are_here():
    assert {command.split()[0] for command in CALLS} == set(COMMANDS)
    kinds = next(group for group in app.registered_groups if group.name == "synth").typer_instance.registered_commands
    assert {kind.name for kind in kinds} == set(SYNTH)
    assert {name for option in OPTIONS.values() for name in option.commands.split()} <= set(COMMANDS)


@pytest.mark.parametrize("flag", COMMON)
@pytest.mark.parametrize("command", CALLS)
def test_a_flag_without_a_meaning_is_refused(command, flag):
    if command in HAS[flag]:
        assert f"{flag}" in CliRunner().invoke(app, [*command.split(), "--help"]).stdout
        return
    done = call(command, flag, *COMMON[flag])
    assert (done.exit_code, f"No such option: {flag}" in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("command", sorted(HAS["--quiet"]))
def test_quiet_leaves_standard_error_empty(command):
    done = call(command, "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == {
        "query": 3,  # the answers: a line for each case after the head
        "uai": 2,  # a result file: the task, and the answer
        **dict.fromkeys(("convert", "join", "compile", "warm-up", *(f"synth {kind}" for kind in SYNTH)), 0),
    }.get(command, 1)


@pytest.mark.parametrize("command", sorted(HAS["--json"]))
def test_json_is_one_document(command):
    done = call(command, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["command"] == command.split()[0]
    for path in Path().iterdir():
        if not path.is_symlink() and path.is_file():
            path.unlink()
    quiet = call(command, "--json", "--quiet") if command not in ("compile", "synth table") else done
    assert json.loads(quiet.stdout)["command"] == command.split()[0]
    assert quiet is done or quiet.stderr == ""


@pytest.mark.parametrize("command", sorted(HAS["--memory"]))
def test_memory_limits_the_process(command, monkeypatch):
    limits = []
    monkeypatch.setattr(failures, "limited", lambda limit: limits.append(limit) or nullcontext())
    assert call(command, "--memory", "2").exit_code == 2
    done = call(command, "--memory", "64MiB")
    assert (done.exit_code, limits[-1]) == (0, "64MiB"), done.output


@pytest.mark.parametrize("command", sorted(HAS["--time-limit"] - {"solve"}))
def test_a_time_limit_ends_the_command(command):
    done = call(command, "--time-limit", "0")
    assert done.exit_code == 20, done.output
    assert call(command, "--time-limit", "soon").exit_code == 2


@pytest.mark.parametrize("command", sorted(HAS["--seed"]))
def test_a_seed_is_checked(command):
    done = call(command, "--seed", "x")
    assert (done.exit_code, "--seed: 'x' is not an integer" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("stress", ("--digest", "--json")),
        ("simulate", ("--json",)),
        ("plan", ("--order", "min-degree", "--order-seconds", "0", "--json")),
        *((f"synth {kind}", ()) for kind in SYNTH if kind != "table"),
    ],
)
def test_another_seed_gives_something_else(command, more, folder):
    found = set()
    for seed in range(5):
        done = call(command, "--seed", str(seed), *more)
        assert done.exit_code == 0, done.output
        if more:
            content = json.loads(done.stdout)
            found.add(str(content.get("digest") or content.get("seconds") if command != "plan" else content["order"]))
        else:
            found.add((folder / CALLS[command]).read_text())
    assert len(found) > 1


@pytest.mark.parametrize("command", sorted(HAS["--workers"]))
def test_workers_are_counted_in_the_same_way(command):
    done = call(command, "--workers", "many")
    assert (done.exit_code, "none of 2, cpus:4, gpus and gpus:2" in done.stderr) == (2, True)
    assert call(command, "--workers", "0").exit_code == (2 if command == "simulate" else 0)
    if command == "simulate":
        assert json.loads(call(command, "--workers", "cpus:7", "--json").stdout)["workers"] == 7


@pytest.mark.parametrize("command", sorted(HAS["--trace"]))
def test_a_trace_is_written(command):
    if command == "convert":  # of a table: that of a problem is too short for spans
        done = CliRunner().invoke(app, ["convert", "stored", "copy", "--trace", "new.json"])
    else:
        done = call(command, "--trace", "new.json")
    assert done.exit_code == 0, done.output
    content = json.loads(CliRunner().invoke(app, ["trace", "new.json", "--json"]).stdout)
    assert content["is_whole"] and content["about"].startswith(f"oocbe {command}")
    assert content["lanes"], "nothing is recorded: the command should refuse the flag"
    assert call(command, "--trace", "missing/new.json").exit_code == 2
