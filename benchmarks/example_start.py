"""``oocbe solve`` on the README's example as a whole process, caches warm, and where its time goes.

    python benchmarks/example_start.py             # 11 runs
    python benchmarks/example_start.py --runs 3 --top 20

One run that is not counted compiles what is missing in the caches. The phases are those of the run in the middle, and
hold the loading of compiled code where it is first called, most of it in the order search. Imports are measured by one
more run under ``-X importtime``, which slows them; they are spread over the interpreter's own share, the command line's
and the first phases. *warm* is each phase once more in a process that has solved the example before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter

from measuring import EXAMPLE, describe_run, median, print_table, run_child, run_timed

LIMIT_SECONDS = 2.0
SOLVE = ["-m", "oocbe", "solve", str(EXAMPLE)]
PHASES = ("read", "order", "forward", "backward")


def run_once() -> dict[str, float]:
    """One process: its wall time and phases."""
    done, seconds = run_timed([sys.executable, *SOLVE, "--json", "--quiet"])
    if done.returncode != 0:
        raise SystemExit(f"oocbe ended with {done.returncode}: {done.stderr}")
    phases = json.loads(done.stdout)["seconds"]
    return {"process": seconds, **phases}


def solve_warm() -> dict[str, float]:
    """In a child: the phases of a second solve."""
    import oocbe

    oocbe.solve(EXAMPLE)
    return dict(oocbe.solve(EXAMPLE).seconds)


def import_seconds() -> Counter[str]:
    """Time that each top-level package's modules took to import, without what they import in turn."""
    command = [sys.executable, "-X", "importtime", *SOLVE, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        own, _, module = (part.strip() for part in line.removeprefix("import time:").split("|"))
        if own.isdigit():  # not the heading
            package = module.split(".")[0]
            spent["standard library" if package in sys.stdlib_module_names else package] += int(own)
    return Counter({package: microseconds / 1e6 for package, microseconds in spent.items()})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=11, help="processes (default 11)")
    parser.add_argument("--top", type=int, default=8, help="packages to list by import time (default 8)")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(solve_warm()))
        return
    run_once()
    runs = [run_once() for _ in range(max(1, options.runs))]
    bare = median([{"seconds": run_timed([sys.executable, "-c", "pass"])[1]} for _ in range(5)], "seconds")["seconds"]
    walls = [run["process"] for run in runs]
    middle = median(runs, "process")
    warm = run_child(__file__, [])
    imports = import_seconds()
    outside = middle["process"] - middle["total"]
    table = [["seconds", "process", "warm"], ["min", f"{min(walls):.3f}", ""]]
    table.append(["median", f"{statistics.median(walls):.3f}", f"{warm['total']:.3f}"])
    table.append(["max", f"{max(walls):.3f}", ""])
    table += [[f"… {phase}", f"{middle[phase]:.3f}", f"{warm[phase]:.3f}"] for phase in PHASES]
    table.append(["… elsewhere within the solve", f"{middle['total'] - sum(middle[p] for p in PHASES):.3f}", ""])
    table.append(["… before and after the solve", f"{outside:.3f}", ""])
    table.append(["bare interpreter", f"{bare:.3f}", ""])
    table.append(["imports (under -X importtime)", f"{imports.total():.3f}", ""])
    table += [[f"… {package}", f"{seconds:.3f}", ""] for package, seconds in imports.most_common(options.top)]
    print_table(table, options.markdown)
    print(f"\n{len(runs)} runs. {describe_run()}")
    passed = statistics.median(walls) < LIMIT_SECONDS
    print(f"{'pass' if passed else 'FAIL'}  median {statistics.median(walls):.2f} s, under {LIMIT_SECONDS:g} s")


if __name__ == "__main__":
    main()
