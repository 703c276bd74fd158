"""Certificates of every SPOT5 instance: made, checked alone, and mutated.

    python benchmarks/certificates.py                             # all instances of ../shared/data
    python benchmarks/certificates.py --instances spot5/42.spot --bound-seconds 40
    python benchmarks/certificates.py --markdown                  # rows for RESULTS.md

Each instance is solved by ``oocbe solve FILE --certificate``, a process of its own, and the certificate is checked by
``python check_certificate.py``, another one that imports nothing of oocbe. *Solve* is the first process, *check* the
second from start to finish, *cpu* its processor time, which does not depend on what else the machine does. The
exit code is 1 where an instance has no certificate, or the checker refuses it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from measuring import ROOT, describe_run, instances, print_table, run_timed, run_used

CHECKER = ROOT / "oocbe" / "certificates" / "check_certificate.py"
FAMILIES = ("spot5/*.spot", "wcsp/spot5b/*.wcsp")


def measured(path: Path, bound_seconds: str) -> list[str] | None:
    """A row of the table; None, with a word on standard error, where there is no proof."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "proof.json"
        command = [sys.executable, "-m", "oocbe", "solve", str(path), "--certificate", str(target), "-q"]
        done, solving = run_timed([*command, "--bound-seconds", bound_seconds])
        if done.returncode != 0 or not target.exists():
            print(f"{path}: ended with {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
            return None
        checked, seconds, used = run_used([sys.executable, "-I", str(CHECKER), str(path), str(target)])
        if checked.returncode != 0:
            print(f"{path}: {checked.stderr.strip()}", file=sys.stderr)
            return None
        content = json.loads(target.read_text())
        sizes = [f"{target.stat().st_size / 1000:.0f}", str(len(content["rows"])), str(len(content["steps"]))]
        return [path.stem, f"{content['value']:,}", f"{solving:.1f}", *sizes, f"{seconds:.2f}", f"{used:.2f}"]


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", help="paths below the data folder, separated by commas; all SPOT5")
    parser.add_argument("--bound-seconds", default="20", help="of the solve; making a certificate may take twice that")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    paths = instances(arguments.instances, FAMILIES)
    rows = [["instance", "value", "solve s", "KB", "rows", "steps", "check s", "cpu s"]]
    found = [measured(path, arguments.bound_seconds) for path in paths]
    print_table([*rows, *(row for row in found if row is not None)], arguments.markdown)
    print(describe_run())
    return int(None in found)


if __name__ == "__main__":
    sys.exit(main())
