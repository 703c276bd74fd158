"""Check the code's structure against ``docs/architecture.md``: layers, families, circles, lines in all, benchmarks.

Each layer may import from itself and from those below it. Run from anywhere; ends with 1 and what is wrong where the
agreement is broken.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from imports import PACKAGE, ROOT, circles, imports, modules

LAYERS = (
    ("__main__",),
    ("cli",),
    ("api", "dcop", "stress"),
    ("certificates",),
    ("junction_trees", "search"),
    ("bounds", "counting", "propagation"),
    ("formats",),
    ("elimination",),
    ("algebra",),
    ("execution",),
    ("tables",),
    ("kernels",),
    ("model",),
    ("runtime",),
    ("errors",),
)
"""Subpackages of the package, the highest first; those of one layer do not import one another."""

FAMILIES = ("bounds", "counting", "search", "propagation", "junction_trees", "dcop", "certificates", "stress")
"""Subpackages with kernels of their own, which no other subpackage imports. The core is below them and imports none."""

APART = (("elimination.plan", "elimination.runs"),)
"""The first may not import the second: a plan runs nothing."""

CEILING = 109_080
"""Lines of the package at most, all sources counted: those of today, and room for a new format (150 lines), which must
fail no test. A commit that raises it otherwise says why."""

SOURCES = (".py", ".cu", ".cuh")


def subpackage_of(module: str) -> str:
    """The subpackage below the package that a module is in; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def complaints() -> Iterator[str]:
    """What is wrong, a line each."""
    known = modules()
    edges = imports(known)
    layer = {subpackage: number for number, subpackages in enumerate(LAYERS) for subpackage in subpackages}
    for name, imported in edges.items():
        if name == PACKAGE.name:  # it names what users may import, of all layers
            continue
        if subpackage_of(name) not in layer:
            yield f"{name}: its subpackage is in no layer; add it to LAYERS in tools/check_structure.py"
            continue
        for other in sorted(imported):
            here, there = subpackage_of(name), subpackage_of(other)
            if other != PACKAGE.name and here != there and layer.get(there, -1) <= layer[here]:
                yield f"{name}: imports {other}, of a layer that is not below its own"
            if there in FAMILIES and here != there and other.startswith(f"{PACKAGE.name}.{there}.kernels"):
                yield f"{name}: imports {other}, a kernel of another family"
        for above, below in APART:
            prefix = f"{PACKAGE.name}.{above}"
            if name == prefix or name.startswith(f"{prefix}."):
                wrong = [other for other in imported if other.startswith(f"{PACKAGE.name}.{below}")]
                yield from (f"{name}: imports {other}; {above} stays apart from {below}" for other in sorted(wrong))
    below_the_package = {name: others - {PACKAGE.name} for name, others in edges.items() if name != PACKAGE.name}
    for group in circles(below_the_package):
        yield f"import circle: {', '.join(group)}"
    if sum(lines_of_subpackages().values()) > CEILING:
        yield f"the package has more than {CEILING:,} lines; delete some, or raise CEILING and say why"
    yield from _unlisted_benchmarks()


def lines_of_subpackages() -> Counter[str]:
    """Lines of each subpackage's sources, comments and blank lines included; a module outside of all counts as one."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*"):
        if path.suffix in SOURCES:
            found[path.relative_to(PACKAGE).parts[0]] += path.read_bytes().count(b"\n")
    return found


def _unlisted_benchmarks() -> Iterator[str]:
    folder = ROOT / "benchmarks"
    listed = (folder / "README.md").read_text()
    for path in sorted(folder.glob("*.py")):
        if path.name not in listed and _is_command(path):
            yield f"{path.relative_to(ROOT)}: is not in benchmarks/README.md"


def _is_command(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text()


def main() -> int:
    """Print what is wrong and return the exit code."""
    found = list(complaints())
    for line in found:
        print(line)
    lines = lines_of_subpackages()
    print("lines:", ", ".join(f"{subpackage} {count:,}" for subpackage, count in lines.most_common() if count > 500))
    print(f"{len(modules())} modules, {sum(lines.values()):,} lines of {CEILING:,}, {len(found)} complaints")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
