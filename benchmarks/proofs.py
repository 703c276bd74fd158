"""Proofs of instances: time of the solve without and with ``--proof``, sizes, and time of the checkers.

    python benchmarks/proofs.py                                      # SPOT5 and weighted CSPs of ../shared/data
    python benchmarks/proofs.py --instances spot5/8.spot,wcsp/*/*.wcsp --time-limit 60
    python benchmarks/proofs.py --markdown                           # rows for RESULTS.md

Each instance is solved by ``oocbe solve``, then again with ``--proof`` and ``--opb``, and the proof is checked by
``tools/check_proof.py``, all in processes of their own. Times are processor seconds, which do not depend on what else
the machine does; with ``--processor-clock`` the time limit counts them, too. *Proven* is what the proof concludes, by
the checker. ``veripb`` checks it too, if it is on the path. The exit code is 1 where a checker refuses a proof. A solve
that ends at its time limit has a gap.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import ROOT, describe_run, instances, print_table, run_used

FAMILIES = ("spot5/*.spot", "wcsp/**/*.wcsp")

VERIPB_SECONDS = 300
"""Time limit of ``veripb`` for a proof."""

HEAD = ["instance", "solve s", "with proof s", "OPB KB", "proof KB", "rows", "proven", "check s", "VeriPB s"]


def row_of(path: Path, time_limit: str, program: list[str]) -> list[str] | None:
    """A row of the table; None, with a line on standard error, if a checker refuses the proof."""
    sys.path.insert(0, str(ROOT))
    from tools.fuzzing.proofs_mode import veripb_refuses

    command = [sys.executable, *program, "oocbe", "solve", str(path), "--time-limit", time_limit]
    done, _, alone = run_used(command)
    if done.returncode not in (0, 10, 11, 20):
        return []
    with tempfile.TemporaryDirectory() as folder:
        proof, opb = Path(folder) / "p.pbp", Path(folder) / "p.opb"
        done, _, proving = run_used([*command, "--proof", str(proof), "--opb", str(opb)])
        if not proof.exists():
            print(f"{path}: {done.stderr.strip()}", file=sys.stderr)
            return []
        checker = str(ROOT / "tools" / "check_proof.py")
        checked, _, seconds = run_used([sys.executable, "-I", checker, str(opb), str(proof)])
        before, slow = resource.getrusage(resource.RUSAGE_CHILDREN), ""
        try:
            refusal = veripb_refuses(opb, proof, seconds=VERIPB_SECONDS)
        except subprocess.TimeoutExpired:
            refusal, slow = None, "not finished"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if checked.returncode or refusal:
            print(f"{path}: {checked.stderr.strip()} {refusal}", file=sys.stderr)
            return None
        other = slow if refusal is None else f"{after.ru_utime - before.ru_utime:.1f}"
        rows = done.stdout.partition("proof: ")[2].partition(" rows")[0].rpartition("; ")[2]
        sizes = [f"{file.stat().st_size / 1000:.0f}" for file in (opb, proof)]
        words = checked.stdout.split()[1:]
        proven = "gap" if words[0] == "BOUNDS" and words[1] != words[2] else "optimum"
        proven = "infeasible" if words[0] == "UNSAT" or words[1:2] == ["INF"] else proven
        return [path.name, f"{alone:.1f}", f"{proving:.1f}", *sizes, rows, proven, f"{seconds:.1f}", other]


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", help="patterns below the data folder, separated by commas")
    parser.add_argument("--time-limit", default="60", help="seconds of each solve")
    parser.add_argument("--processor-clock", action="store_true", help="the limit is of processor seconds")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    program = [str(ROOT / "benchmarks" / "processor_clock.py")] if arguments.processor_clock else ["-m"]
    paths = instances(arguments.instances, FAMILIES)
    found = []
    for path in paths:
        found.append(row_of(path, arguments.time_limit, program))
        print(found[-1], file=sys.stderr, flush=True)
    print_table([HEAD, *(row for row in found if row)], arguments.markdown)
    if shutil.which("veripb") is None:
        print("veripb is not on the path")
    print(describe_run())
    return int(None in found)


if __name__ == "__main__":
    sys.exit(main())
