"""The two commands, ``record`` and ``compare``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

SHOWN = 6
"""Differences of an entry that are printed; the rest is counted."""

FORMAT = 1
"""Version of a record, raised where entries of older ones mean something else."""


def main(arguments: list[str] | None = None) -> int:
    """Record or compare; 0 where all is equal, 1 where something differs, 2 where a record cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("record", "run everything and write FILE"),
        ("compare", "run everything and print what differs from FILE"),
        ("between", "print where two records differ, without a run"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("file", type=Path, metavar="FILE")
        if name == "between":
            command.add_argument("other", type=Path, metavar="OTHER")
        else:
            command.add_argument(
                "--only", default="*", metavar="PATTERN", help="runs whose keys match, such as 'trees/*'"
            )
            command.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest runs")
        if name != "record":
            help_text = "entries, or lines such as '*.notes*', that may differ; repeatable"
            command.add_argument("--without", action="append", default=[], metavar="PATTERN", help=help_text)
        if name == "compare":
            command.add_argument("--keep", type=Path, metavar="OTHER", help="write the new record there")
    given = parser.parse_args(arguments)
    if given.command == "between":
        return _told(_read(given.file), _read(given.other), given.without, "*")
    old = _read(given.file) if given.command == "compare" else None
    new = _recorded(given.only, given.slowest)
    target = given.file if given.command == "record" else given.keep
    if target is not None:
        target.write_text(json.dumps({"format": FORMAT, "entries": new}, indent=1, sort_keys=True) + "\n")
    return 0 if old is None else _told(old, new, given.without, given.only)


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    if content.get("format") != FORMAT:
        print(f"{path}: no record of the format {FORMAT}; record it again", file=sys.stderr)
        raise SystemExit(2)
    entries: dict[str, Any] = content["entries"]
    return entries


def _recorded(only: str, slowest: int) -> dict[str, Any]:
    """All entries of this checkout."""
    _settle()
    from . import agents, commands, conversions, names, operators, solving, trees
    from .recorder import ROOT, Recorder, processor_seconds

    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore", DeprecationWarning)  # aliases of public names warn, and are what is wanted here
    logging.getLogger("oocbe").setLevel(logging.ERROR)  # which of two meanings a value has is no news here
    data = Path(os.environ.get("OOCBE_DATA") or ROOT.parent / "shared" / "data")
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        recorder = Recorder(Path(folder).resolve(), data, only)
        for module in (names, solving, operators, trees, agents, conversions, commands):
            before = len(recorder.entries)
            module.run(recorder)
            name, count = module.__name__.rpartition(".")[2], len(recorder.entries) - before
            print(f"{name}: {count} entries, {processor_seconds():.0f} s of processor time", file=sys.stderr)
    for what in recorder.skipped:
        print(f"skipped: {what}", file=sys.stderr)
    for what in recorder.suspects:
        print(f"suspect: {what}", file=sys.stderr)
    ranked = sorted(recorder.seconds.items(), key=lambda pair: -pair[1])[:slowest]
    for key, seconds in ranked:
        print(f"{seconds:8.2f} s  {key}", file=sys.stderr)
    return recorder.entries


def _settle() -> None:
    """Settings of this process and its children under which answers do not depend on the machine's mood."""
    for name in list(os.environ):
        if name.startswith("OOCBE_") and name != "OOCBE_DATA":
            del os.environ[name]
    for name in ("OOCBE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["OOCBE_BACKEND"] = "cpu"


def _told(old: dict[str, Any], new: dict[str, Any], without: list[str], only: str) -> int:
    """Print where two records differ; 1 where they do."""
    differing = 0
    for key, lines in _differences(old, new, only):
        kept = [line for line in lines if not any(fnmatchcase(f"{key}:{line}", f"{p}*") for p in without)]
        if kept:
            differing += 1
            print(key)
            for line in kept[:SHOWN]:
                print(f"    {line}")
            if len(kept) > SHOWN:
                print(f"    … {len(kept) - SHOWN:,} more")
    print(f"{differing} of {len(old.keys() | new.keys())} entries differ", file=sys.stderr)
    return 1 if differing else 0


def _differences(old: dict[str, Any], new: dict[str, Any], only: str) -> Iterator[tuple[str, list[str]]]:
    from .canonical import differences
    from .names import lost_names

    for key in sorted(old.keys() | new.keys()):
        if not fnmatchcase(key, only):
            continue
        if key not in new:
            yield key, ["lost: there is no such run any more, or its input is missing"]
        elif key not in old:
            yield key, ["new: the record has no such run"]
        elif key.startswith("names/"):
            yield key, lost_names(key, old[key], new[key])
        else:
            yield key, list(differences(old[key], new[key]))
