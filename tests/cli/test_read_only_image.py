"""Every command works in an image that is read-only, package and current folder too, for a user without a home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oocbe.cli.main import COMMANDS
from tests.helpers.all_commands import run_all, write_inputs

ROOT = Path(__file__).parents[2]

SHUT = """set -e
mount -t tmpfs none "$1"
awk '$5 !~ "^/(proc|sys|dev)(/|$)" && $5 != SCRATCH {print $5}' SCRATCH="$1" /proc/self/mountinfo |
while read -r place; do mount -o remount,bind,ro "$place"; done
cd "$2"
shift 2
if touch file 2>/dev/null; then echo 'the folder can be written'; exit 1; fi
exec "$@"
"""
"""Of a process with mounts of its own: one folder in memory can be written, no other; then the command that follows."""


def shut(scratch: Path, folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing but a scratch folder can be written; permissions alone do not stop root."""
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")}
    return subprocess.run(
        [*namespace, "sh", "-c", SHUT, "sh", str(scratch), str(folder), *command],
        env={**kept, "TMPDIR": str(scratch), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.timeout(600)  # where it comes first, it compiles what all commands need
def test_every_command_works_where_only_temporary_files_can_be_written(tmp_path: Path) -> None:
    scratch, inputs, warm = (tmp_path / name for name in ("scratch", "inputs", "warm"))
    for folder in (scratch, inputs, warm):
        folder.mkdir()
    try:
        tried = shut(scratch, inputs, "true")
    except FileNotFoundError:
        pytest.skip("there is no unshare here, by which a process gets mounts of its own")
    if tried.returncode:
        pytest.skip(f"a process may not have mounts of its own here: {tried.stderr.strip()}")
    write_inputs(inputs)
    before = run_all(inputs, warm)
    assert {line.split()[0] for line in before} == set(COMMANDS)
    assert {line: said for line, said in before.items() if said[0]} == {}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = shut(
        scratch, inputs, sys.executable, "-m", "tests.helpers.all_commands", str(inputs), str(scratch), PYTHONPATH=path
    )
    assert done.returncode == 0, done.stderr
    found, compiled = json.loads(done.stdout)
    assert found == before
    assert compiled == 0  # what was compiled while the image could be written is used
