"""Steps after an installation: compiling loops in advance, and completion in shells.

``oocbe warm-up`` compiles the loops of commands. ``oocbe completion`` prints scripts with which a shell completes
commands, flags and files.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from oocbe.cli import COMPLETION_VARIABLE
from oocbe.cli.flags import command
from oocbe.cli.output import note, print_answer, seconds

QuickFlag = Annotated[bool, typer.Option("--quick", help="Compile only the loops of a first solve.")]


@command("warm-up")
def warm_up(quick: QuickFlag = False) -> None:
    """Compile the loops of all commands, so that no command waits for them.

    Compiles in a process per core, and stores the loops in the cache (NUMBA_CACHE_DIR, or beside the program). Run it
    once after an installation, or during the build of an image. A command compiles any missing loop itself.
    """
    from oocbe.kernels.cpu.jit import cache_folder
    from oocbe.kernels.cpu.signatures import compile_listed
    from oocbe.model.settings.machine import available_processors

    begin, where = time.perf_counter(), cache_folder()
    loops, spent = compile_listed(quick, available_processors(), note)
    took = time.perf_counter() - begin
    rows = [("compiled", f"{loops} loops in {seconds(spent)}"), ("time", seconds(took)), ("kept in", where)]
    content = {"schema_version": 1, "loops": loops, "seconds_compiling": spent, "seconds": took, "cache": where}
    print_answer(lambda: content, rows)


SHELLS = ("bash", "zsh", "fish")
"""Shells with a script."""


@command("completion")
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print the completion script of commands and flags for SHELL, which the shell loads at its start."""
    from oocbe.errors import UsageError

    if shell not in SHELLS:
        raise UsageError(f"completion {shell}: no script for this shell; known: {', '.join(SHELLS)}")
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="oocbe", complete_var=COMPLETION_VARIABLE, shell=shell))
    return 0
