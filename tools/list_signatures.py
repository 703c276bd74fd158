"""Update the list of signatures of loops, which `oocbe warm-up` compiles, from the loops that a cache holds.

    NUMBA_CACHE_DIR=FOLDER python tools/list_signatures.py            # after the suite: add what is missing
    NUMBA_CACHE_DIR=FOLDER python tools/list_signatures.py --check    # change nothing; ends with 1 if something is
    NUMBA_CACHE_DIR=FOLDER python tools/list_signatures.py --first    # after README's first solve alone: mark its loops

Entries of loops that are gone, or have other parameters now, are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numba.core.environment import _rebuild_env
from numba.core.typing.templates import Signature

from oocbe.kernels.cpu import dispatchers, jit, signatures
from oocbe.kernels.cpu.machine_code import DAMAGED
from tools.imports import ROOT


class _Reader(pickle.Unpickler):
    """Reads a compilation without its constants."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return (lambda *_: None) if found is _rebuild_env else found


def compiled() -> Iterator[signatures.Typed]:
    """Module, function and types of the compilations in the cache, of the modules as they are."""
    for source in sorted((ROOT / "oocbe").rglob("kernels/cpu/**/*.py")):
        module = ".".join(source.relative_to(ROOT).with_suffix("").parts)
        folders = jit._cache_folders(str(source), os.environ.get(jit.CACHE_VARIABLE, ""))
        for file in sorted(file for folder in folders.all() for file in Path(folder).glob("*.nbc")):
            with file.open("rb") as stream, suppress(*DAMAGED):  # of an earlier version
                pickle.load(stream)  # the machine code
                parts = _Reader(stream).load()
                (signature,) = (part for part in parts if isinstance(part, Signature))
                yield module, file.name.rpartition("-")[0], signature.args


def table(loops: Iterable[signatures.Typed], names: dict[str, str]) -> dict[str, dict[str, list[str]]]:
    """Signatures by module and function; ``names`` gets the expressions of named types."""
    found: dict[str, dict[str, list[str]]] = {}
    for module, name, types in loops:
        text = ", ".join(dispatchers.described(kind, names) for kind in types)
        found.setdefault(module, {}).setdefault(name, []).append(text)
    return found


def main() -> None:
    """Update or check the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--first", action="store_true")
    arguments = parser.parse_args()
    gone: list[str] = []
    listed, cached = signatures.listed(broken=gone), list(compiled())
    missing = [loop for loop in cached if loop not in listed]
    complaints = [f"{module}:{name}{types} is not listed" for module, name, types in missing]
    complaints += [f"{entry} is listed, and not there" for entry in gone]
    print(*complaints, f"{len(listed)} signatures are listed, {len(cached)} are in the cache", sep="\n")
    if arguments.check:
        sys.exit(bool(complaints))
    loops = [*listed, *missing]
    first = cached if arguments.first else signatures.listed(is_quick=True, broken=[])
    names = dict[str, str]()
    content = {"types": names, "first solve": table(first, names), "loops": table(loops, names)}
    signatures.FILE.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
