"""Entries of a record, made one by one; an error that a run raises is its entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .canonical import canonical, digest

ROOT = Path(__file__).resolve().parents[2]
"""The checkout that this file is in."""

LONGEST_SECONDS = 300.0
"""Time limit of a command, in seconds: one that hangs ends the recording with an error."""

OURS = (AttributeError, ImportError, NameError, TypeError, AssertionError, KeyError, IndexError)
"""Errors that the package does not raise on purpose: a public name is lost, or a run is written wrongly."""


class Recorder:
    """Runs functions whose keys match ``only`` and keeps what they return.

    folder : temporary files go there. data : folder of real instances; it may be missing.
    """

    def __init__(self, folder: Path, data: Path, only: str = "*") -> None:
        self.folder, self.data, self._only = folder, data, only
        self.entries: dict[str, Any] = {}
        self.suspects: list[str] = []
        self.skipped: list[str] = []
        self.seconds: dict[str, float] = {}
        self._places = {str(folder): "FOLDER", str(data): "DATA", str(ROOT): "ROOT"}

    def add(self, key: str, make: Callable[..., Any], /, *arguments: Any, **options: Any) -> None:
        """Keep what a function returns for these arguments, or the error that it raises, under a key."""
        if not fnmatchcase(key, self._only):
            return
        if key in self.entries:
            raise ValueError(f"two runs have the key {key}")
        begin = processor_seconds()
        try:
            value = canonical(make(*arguments, **options), self._places)
        except Exception as error:
            value = {"raised": _public_type(error), "message": canonical(str(error), self._places)}
            if isinstance(error, OURS):
                self.suspects.append(f"{key}: {type(error).__name__}: {error}")
        self.entries[key] = value
        self.seconds[key] = processor_seconds() - begin

    def skip(self, what: str) -> None:
        """Say that runs are left out since an input is not there."""
        self.skipped.append(what)

    def place(self, name: str) -> Path:
        """A path in the temporary folder, whose parent is made."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def command(self, *words: object, text: str | None = None, **environment: str) -> dict[str, Any]:
        """Run ``oocbe`` with these words; its exit code, JSON or text, and messages."""
        done = subprocess.run(
            [sys.executable, "-m", "oocbe", *map(str, words)],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **environment},
            input=text,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
        )
        found: dict[str, Any] = {"exit_code": done.returncode}
        if "--json" in words and done.stdout.strip():
            try:
                found["json"] = json.loads(done.stdout)
            except json.JSONDecodeError:
                found["json"] = [json.loads(line) for line in done.stdout.splitlines()]
        else:
            found["output"] = _without_memory(done.stdout)
        return found | {"messages": _without_memory(done.stderr)}


def _without_memory(text: str) -> list[str]:
    """Lines of an output, but those that say how much memory or time was taken."""
    return [line for line in text.splitlines() if not line.startswith(("peak memory", "time ", "memory "))]


def _public_type(error: Exception) -> str:
    """The first public type of an error: internal ones may be called otherwise."""
    import oocbe

    public = {getattr(oocbe, name) for name in oocbe.__all__ if name.endswith("Error")}
    found = [kind.__name__ for kind in type(error).__mro__ if kind in public]
    return found[0] if found else type(error).__name__


def file_digest(path: Path) -> dict[str, Any]:
    """Size and digest of a file; compressed ones by what is in them."""
    import gzip
    import lzma

    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".xz":
        data = lzma.decompress(data)
    return {"bytes": len(data), "digest": digest(data)}


def folder_digest(folder: Path) -> dict[str, Any]:
    """Digests of all files of a folder by their path in it."""
    return {str(p.relative_to(folder)): file_digest(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def processor_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])
