"""Real instances to damage: the shipped examples, and those of the folder that tests use, too."""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MOST_BYTES = 60_000
"""Larger files are left alone: a failure's file holds what was damaged."""

EVIDENCE = (b"2\n2 1\n0 1\n", b"1\n2 0 1 2 1\n", b"0\n", b"1\n0\n", b"3 0 1 1 0 2 1")
"""Evidence files, of which some fit the network that they are read with."""

SUFFIXES = (".spot", ".wcsp", ".uai", ".bif", ".cfn")


@cache
def real_files() -> list[tuple[str, bytes]]:
    """Name and (decompressed) content of each instance that is small enough, in the order of their names."""
    instances = Path(os.environ.get("OOCBE_DATA", ROOT.parent / "shared" / "data"))
    found = []
    for folder in (ROOT / "examples", instances):
        for path in sorted(folder.rglob("*")):
            name = path.name.removesuffix(".gz")
            if not name.endswith(SUFFIXES) or path.stat().st_size > MOST_BYTES:
                continue
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            if len(data) <= MOST_BYTES:
                found.append((name, data))
    return found
