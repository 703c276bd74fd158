"""Check that the package's files stay short: no file over 400 lines, half of them under 160.

A file that grows beyond what one can read in a sitting is split by what its parts mean. Run from anywhere; ends with 1
and the files concerned where the agreement is broken.
"""

import statistics
import sys
from pathlib import Path

LONGEST = 400
MEDIAN = 160
PACKAGE = Path(__file__).resolve().parents[1] / "oocbe"


def main() -> int:
    """Print the figures and return the exit code."""
    # Files that only re-export, such as __init__.py, would lower the median without saying anything.
    lines = {file: len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py") if file.name != "__init__.py"}
    too_long = {file: count for file, count in lines.items() if count > LONGEST}
    for file, count in sorted(too_long.items()):
        print(f"{file.relative_to(PACKAGE.parent)}: {count} lines, more than {LONGEST}")
    median = statistics.median(lines.values())
    print(f"{len(lines)} files, median {median:g} lines (less than {MEDIAN}), longest {max(lines.values())}")
    return int(bool(too_long) or median >= MEDIAN)


if __name__ == "__main__":
    sys.exit(main())
