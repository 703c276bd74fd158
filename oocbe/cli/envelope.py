"""Common parts of every JSON object of the command line: program, command, input; and failures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from oocbe import __version__
from oocbe.model.results.schema import schema_version_of

DIGEST_BLOCK = 1 << 20
"""Block size for reading the input, in bytes."""

_now: dict[str, object] = {}
"""The command of this process, and its file."""


def begin(command: str, parameters: Mapping[str, object]) -> None:
    """Record the starting command, by its name and its parameters."""
    _now.clear()
    _now["command"] = command
    files = parameters.get("files")
    _now["file"] = files[0] if isinstance(files, list) and len(files) == 1 else parameters.get("file")


def wrapped(content: Mapping[str, object]) -> dict[str, object]:
    """An answer after the program's version, the command and its input's digest."""
    head = {
        "schema_version": content.get("schema_version"),
        "program": {"name": "oocbe", "version": __version__},
        "command": _now.get("command"),
        "input": _input(_now.get("file")),
    }
    return {**head, **content}


def failure(status: str, error: Mapping[str, object] | None = None) -> dict[str, object]:
    """The output of a command without an answer: its status, and for errors a description."""
    version = schema_version_of(str(_now.get("command")))
    return {"schema_version": version, "status": status, **({} if error is None else {"error": error})}


def _input(file: object) -> dict[str, object] | None:
    """Path, size and SHA-256 of the input file as stored, compressed or not; None if there is none."""
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
