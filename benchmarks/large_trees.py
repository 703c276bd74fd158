"""Junction trees larger than the memory: made on disk, asked, and what both took.

    python benchmarks/large_trees.py                              # a grid of 22 by 22, under 512 MiB
    python benchmarks/large_trees.py --side 16 --memory 160MiB    # a smaller one

The network is a grid of variables of two values, each with its neighbours above and to the left as parents; its numbers
come from a seed. ``oocbe compile`` makes the tree, ``oocbe query`` asks for the posteriors of the first and the last
variable without evidence and with some. Seconds are processor time, user and system together; memory is the largest
resident set of each process. The exit code is 1 where the probability of no evidence is not 1, or the first variable's
posterior not its prior, to 10^-9.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
from measuring import describe_run, print_table


def grid(side: int, path: Path) -> float:
    """Write the network; the prior probability of its first variable's first value."""
    random = np.random.default_rng(1)
    names = [[f"x{row}_{column}" for column in range(side)] for row in range(side)]
    lines = ["network grid {}"]
    lines += [f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}" for line in names for name in line]
    prior = 0.0
    for row, column in product(range(side), repeat=2):
        parents = [names[r][c] for r, c in ((row - 1, column), (row, column - 1)) if r >= 0 and c >= 0]
        shares = [round(float(x), 6) for x in random.random(2 ** len(parents))]
        if not parents:
            prior = shares[0]
            lines.append(f"probability ( {names[0][0]} ) {{ table {prior:.6f}, {1 - prior:.6f}; }}")
            continue
        given = product("ab", repeat=len(parents))
        listed = [f"({', '.join(g)}) {s:.6f}, {1 - s:.6f};" for g, s in zip(given, shares, strict=True)]
        lines.append(f"probability ( {names[row][column]} | {', '.join(parents)} ) {{ {' '.join(listed)} }}")
    path.write_text("\n".join(lines) + "\n")
    return prior


def measured(*arguments: str) -> tuple[str, float, int]:
    """Output, processor seconds and largest resident set (bytes) of a command of oocbe."""
    command = [sys.executable, "-m", "oocbe", *arguments]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read().decode()
    if status:
        raise SystemExit(f"{' '.join(command)} failed with {status}")
    return text, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> int:
    """Make, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=22, help="of the grid")
    parser.add_argument("--memory", default="512MiB", help="of both commands")
    parser.add_argument("--folder", type=Path, help="where the tree is made; a temporary one by default")
    given = parser.parse_args()
    print(describe_run())
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        prior = grid(given.side, folder / "grid.bif")
        tree, cases = folder / "grid.tree", folder / "cases.json"
        made, making, making_bytes = measured(
            "compile", str(folder / "grid.bif"), str(tree), "--memory", given.memory, "--json"
        )
        cases.write_text(json.dumps([{}, {"x1_1": "a"}]))
        last = f"x{given.side - 1}_{given.side - 1}"  # else most variables would not matter
        asked = ("--cases", str(cases), "--targets", f"x0_0,{last}", "--memory", given.memory)
        answers, asking, asking_bytes = measured("query", str(tree), *asked)
        size = sum(path.stat().st_size for path in tree.iterdir())
    found = json.loads(made)
    rows = list(csv.DictReader(io.StringIO(answers)))
    print_table(
        [
            ["side", "width", "rows", "GiB on disk", "made in, s", "peak, MiB", "two cases in, s", "peak, MiB"],
            [
                str(given.side),
                str(found["width"]),
                f"{found['rows']:,}",
                f"{size / (1 << 30):.2f}",
                f"{making:.1f}",
                f"{making_bytes / (1 << 20):.0f}",
                f"{asking:.1f}",
                f"{asking_bytes / (1 << 20):.0f}",
            ],
        ]
    )
    is_right = math.isclose(float(rows[0]["log_evidence"]), 0, abs_tol=1e-9)
    is_right &= math.isclose(float(rows[0]["x0_0=a"]), prior, abs_tol=1e-9)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
