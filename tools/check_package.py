"""Build the package, look at what is in it, and try the wheel where nothing else of the project is.

    python tools/check_package.py                          # with this Python
    python tools/check_package.py --python python3.13      # the wheel is tried with another one
    python tools/check_package.py --solve                  # the example is solved, too, which compiles its loops

Builds the source distribution and, from that alone, the wheel; ``twine check --strict`` judges both; then an
environment is made from nothing, the wheel installed with what it depends on, the man page found, the example planned
by the installed command, and some of the tests of the source distribution run against the installed package: no folder
named ``oocbe`` is beside them. Needs the ``dev`` extras, and what pip installs from. Ends with 1 where something is
wrong.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

IN_SOURCE = (
    *("README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "mkdocs.yml", "examples/daily.spot"),
    *("tests/conftest.py", "docs/index.md", "docs/api/solving.md", "tools/check_package.py", "benchmarks/README.md"),
    *("oocbe/py.typed", "oocbe/schema/solve.json", "oocbe/kernels/cuda/buckets/bucket_join.cu"),
)
"""Some of what the source distribution must have: a file of each kind."""

NOT_IN_SOURCE = ("shared/", ".ci-venv/", ".venv/", "__pycache__", ".nbi", ".nbc")
"""What must be in neither distribution: instances, environments, compiled loops."""

IN_WHEEL = ("oocbe/py.typed", "oocbe/schema/solve.json", "oocbe/kernels/cuda/buckets/bucket_join.cu")

TESTS = (
    "tests/test_public_interface.py",
    "tests/model/test_names.py",
    "tests/formats/test_bif_format.py",
    "tests/formats/test_lp_format.py",
)
"""Tests that compile next to nothing: this is about what is in the package, not about what it computes."""

TOOLS = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100")


def call(*command: str | Path, folder: Path) -> str:
    """What a command prints on standard output; where it fails, its output is shown and the program ends."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel made from it."""
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    call(sys.executable, "-m", "twine", "check", "--strict", source, wheel, folder=folder)
    return source, wheel


def complaints(source: Path, wheel: Path) -> list[str]:
    """What the distributions lack, or have too much."""
    with tarfile.open(source) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    with zipfile.ZipFile(wheel) as archive:
        wheel_names = archive.namelist()
    found = [f"{source.name}: {name} is missing" for name in IN_SOURCE if name not in names]
    found += [f"{wheel.name}: {name} is missing" for name in IN_WHEEL if name not in wheel_names]
    for where, own in ((source.name, names), (wheel.name, wheel_names)):
        found += [f"{where}: has {name}" for name in own if any(part in name for part in NOT_IN_SOURCE)]
    roots = {name.partition("/")[0] for name in wheel_names}
    found += [f"{wheel.name}: has {root}" for root in roots if root != "oocbe" and not root.startswith("oocbe-")]
    return found


def tried(source: Path, wheel: Path, python: str, solves: bool, folder: Path) -> None:
    """Install the wheel in an environment of its own, and use it: plan the example, or solve it, and run tests."""
    call(python, "-m", "venv", folder / "environment", folder=folder)
    programs = folder / "environment" / "bin"
    call(programs / "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", wheel, *TOOLS, folder=folder)
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (tests,) = (path.parent for path in folder.glob("*/pyproject.toml"))
    shutil.rmtree(tests / "oocbe")
    version = call(programs / "oocbe", "--version", folder=tests).split()[1]
    if not wheel.name.startswith(f"oocbe-{version}-"):
        raise SystemExit(f"{wheel.name}: the program says {version}")
    if not (programs.parent / "share" / "man" / "man1" / "oocbe.1").exists():
        raise SystemExit(f"{wheel.name}: no man page was installed")
    example = tests / "examples" / "daily.spot"
    call(programs / "oocbe", "plan", example, folder=folder)
    if solves and call(programs / "oocbe", "solve", "--quiet", example, folder=folder) != "optimal 2112\n":
        raise SystemExit(f"{wheel.name}: the example's optimum is not 2112")
    where = call(programs / "python", "-c", "import oocbe; print(oocbe.__file__)", folder=tests).strip()
    if not Path(where).is_relative_to(programs.parent):
        raise SystemExit(f"not the installed package was imported, but {where}")
    print(call(programs / "python", "-m", "pytest", *TESTS, folder=tests).splitlines()[-1])


def main() -> int:
    """Build, look and try; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="what the wheel is tried with (default: this one)")
    parser.add_argument("--solve", action="store_true", help="solve the example, too")
    options = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oocbe-package-") as name:
        folder = Path(name)
        source, wheel = built(folder)
        found = complaints(source, wheel)
        for line in found:
            print(line)
        if not found:
            tried(source, wheel, options.python, options.solve, folder)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{source.name}, {wheel.name}: {len(found)} complaints, {time.perf_counter() - begin:.0f} s "
        f"({spent.ru_utime + spent.ru_stime:.0f} s of processor time)"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
