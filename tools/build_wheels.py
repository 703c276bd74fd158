"""Build the source distribution and the wheel into a folder, and try the wheel with several Pythons.

    python tools/build_wheels.py                                   # into dist/, tried with this Python
    python tools/build_wheels.py --python python3.11 --python python3.13 --output wheels

The wheel has no compiled code, so one serves all Pythons and machines: loops are compiled where they run. What is tried
is what ``tools/check_package.py --solve`` tries; nothing is left in the folder where something is wrong. Needs the
``dev`` extras.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from check_package import built, complaints, tried


def main() -> int:
    """Build, look, try and keep; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("dist"), help="folder (default: dist)")
    parser.add_argument("--python", action="append", help="what the wheel is tried with (default: this one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oocbe-wheels-") as name:
        source, wheel = built(Path(name))
        if found := complaints(source, wheel):
            print("\n".join(found))
            return 1
        for number, python in enumerate(options.python or [sys.executable]):
            folder = Path(name, str(number))
            folder.mkdir()
            tried(source, wheel, python, True, folder)
        options.output.mkdir(parents=True, exist_ok=True)
        for path in (source, wheel):
            print(shutil.copy(path, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
