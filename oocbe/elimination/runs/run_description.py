"""What a run directory holds, read without its lock: also while a process works there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oocbe.elimination.runs.run_directory import FORMAT_VERSION, LARGEST_RECORD, RUN_FORMAT, messages_in, record_in
from oocbe.errors import UnsupportedError
from oocbe.model.results.numerals import finite
from oocbe.tables import disk
from oocbe.tables.folder_lock import LOCK_NAME
from oocbe.tables.manifest import read_record

_SIGNS = {"min-sum": 1, "max-sum": -1}
"""Semirings that have bounds: what is known is kept in min-sum."""


def is_run(folder: Path) -> bool:
    """Whether a folder is a run directory in which a run has begun."""
    return (folder / "run.json").exists()


def has_lock(folder: Path) -> bool:
    """Whether a process works, or has worked, in a folder."""
    return (folder / LOCK_NAME).exists()


def describe_run(folder: Path) -> dict[str, object]:
    """Figures about a run, as JSON types: of which problem, how far it has come, and what is known by now.

    Raises
    ------
    CorruptDataError : a record is damaged. UnsupportedError : of another version of the format.
    FileNotFoundError : the run was removed meanwhile.
    """
    run = read_record(folder / "run.json", LARGEST_RECORD, RUN_FORMAT)
    if run.get("version") != FORMAT_VERSION:
        raise UnsupportedError(
            f"{folder}: a run directory of format version {run.get('version')}; this program reads {FORMAT_VERSION}"
        )
    identity = run.get("identity")
    result = _record(folder, "result", identity).get("result", {})
    known = _record(folder, "known", identity).get("known", {})
    sign = _SIGNS.get(str(run.get("semiring")))
    lower, value = (None if sign is None or x is None else sign * x for x in (known.get("lower"), known.get("value")))
    return {
        "kind": "run",
        "problem": run.get("problem"),
        "semiring": run.get("semiring"),
        "begun_by": f"oocbe {run.get('program')}",
        "options": run.get("options"),
        "status": result.get("status", "unfinished"),
        "value": finite(result["value"] if result else value),
        "bound": finite(result["bound"] if result else lower),
        "published_messages": messages_in(folder),
        "bytes": disk.size_of(folder),
    }


def _record(folder: Path, what: str, identity: object) -> dict[str, dict[str, Any]]:
    """A record of this very run; nothing where there is none."""
    content = record_in(folder, what)
    return content if content is not None and content.get("identity") == identity else {}
