"""``oocbe completion``: scripts with which a shell completes commands, flags and files."""

from __future__ import annotations

from typing import Annotated

import typer

from oocbe.cli import COMPLETION_VARIABLE
from oocbe.cli.flags import command

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
