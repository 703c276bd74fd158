"""What every JSON object of the command line says beside its answer: program, command, input; and failures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from oocbe import __version__
from oocbe.model.results.schema import schema_version_of

_COMMANDS = {"compile_tree": "compile", "warm_up": "warm-up"}
"""Commands that are not called like their function."""

DIGEST_BLOCK = 1 << 20
"""Bytes of the input that are read at a time."""

_now: dict[str, object] = {}
"""The command that this process runs, and its file."""


def begin(function: str, parameters: Mapping[str, object]) -> None:
    """Remember the command that begins, by its function's name and its parameters."""
    _now.clear()
    _now["command"] = _COMMANDS.get(function, function)
    files = parameters.get("files")
    _now["file"] = files[0] if isinstance(files, list) and len(files) == 1 else parameters.get("file")


def wrapped(content: Mapping[str, object]) -> dict[str, object]:
    """An answer with the program's version, the command and its input's digest; those come first."""
    head = {
        "schema_version": content.get("schema_version"),
        "program": {"name": "oocbe", "version": __version__},
        "command": _now.get("command"),
        "input": _input(_now.get("file")),
    }
    return {**head, **content}


def failure(status: str, error: Mapping[str, object] | None = None) -> dict[str, object]:
    """What is printed where a command ends without an answer: its status, and for errors what went wrong."""
    version = schema_version_of(str(_now.get("command")))
    return {"schema_version": version, "status": status, **({} if error is None else {"error": error})}


def _input(file: object) -> dict[str, object] | None:
    """Path, bytes and SHA-256 of the input file as it lies there, compressed or not; None where there is no such."""
    if not isinstance(file, Path):
        return None
    import hashlib

    digest, size = hashlib.sha256(), 0
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as stream:
                while block := stream.read(DIGEST_BLOCK):
                    digest.update(block)
                    size += len(block)
            return {"path": str(file), "bytes": size, "sha256": digest.hexdigest()}
    return {"path": str(file), "bytes": None, "sha256": None}
