"""The command line of the fuzz; see ``tools/fuzz.py --help``."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from pathlib import Path

from .runner import COMMANDS, FORMATS, MODES, Counts, Failures, Plan, replay, report, run_mode

DESCRIPTION = """Attack oocbe with random problems, tables, files and kills, judged by brute force of its own.

Ends with 1 where something failed; each failure is saved as a file that --replay runs again."""


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzz, or replay a failure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tools/fuzz.py", description=DESCRIPTION)
    parser.add_argument("--minutes", type=float, default=2.0, help="in all, shared by the modes (default 2)")
    parser.add_argument(
        "--cases", type=int, help="of each mode, however long they take: the same whatever --processes is"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (default 0)")
    parser.add_argument(
        "--what",
        choices=(*MODES, *FORMATS, "formats", *COMMANDS, "memory-each"),
        action="append",
        metavar="MODE",
        help=f"may be repeated: {', '.join(MODES)} (the default: these in turn); formats: each format against its"
        f" reference implementation, or one of {', '.join(FORMATS)}; memory-each: each command under a memory limit, or"
        f" one of {', '.join(COMMANDS)}",
    )
    parser.add_argument("--processes", type=int, default=1, help="processes with seeds of their own (default 1)")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder of the failures' files")
    parser.add_argument(
        "--hang-seconds", type=float, default=180.0, help="a case that takes longer hangs (default 180)"
    )
    parser.add_argument("--enough", type=int, metavar="FAILURES", help="end after so many failures (default: never)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check the case of a failure's file once more")
    given = parser.parse_args(arguments)
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that are started take no module from the current folder
    if given.replay is not None:
        return _replay(given.replay, given.hang_seconds)
    if given.minutes <= 0 or given.processes < 1 or (given.cases is not None and given.cases < 1):
        parser.error("--minutes must be above 0, --processes and --cases at least 1")
    several = {"formats": FORMATS, "memory-each": COMMANDS}
    modes = tuple(m for what in given.what or MODES for m in several.get(what, (what,)))
    length = f"{given.minutes:g} minutes" if given.cases is None else f"{given.cases:,} cases of each"
    print(f"seed {given.seed}, {given.processes} processes, {length}: {', '.join(modes)}", flush=True)
    failures = Failures(given.failures, given.enough)
    counts: dict[str, Counts] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for mode in modes:
            if failures.are_enough:
                break
            seconds = given.minutes * 60 / len(modes) if given.cases is None else math.inf
            plan = Plan((mode,), seconds, given.seed, given.hang_seconds, cases=given.cases)
            run_mode(plan, given.processes, failures, counts.setdefault(mode, Counts()))
    finally:
        print("\n".join(report(counts)), flush=True)  # of a run that a signal ends, too
    for path in failures.paths:
        print(f"failed: tools/fuzz.py --replay {path}")
    return int(bool(failures.paths))


def _replay(path: Path, hang_seconds: float) -> int:
    found = replay(path, hang_seconds)
    if found is None:
        print(f"{path}: holds now")
        return 0
    print(f"{path}: {found['what']}: expected {found['expected']}, found {found['found']}")
    print(found.get("traceback", ""), end="")
    return 1
