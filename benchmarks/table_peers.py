"""Tables beside Gecode: what is made of rows in memory, their first fixpoint, and the one after bounds of variables.

    python benchmarks/table_peers.py
    CPATH=... LIBRARY_PATH=... LD_LIBRARY_PATH=... python benchmarks/table_peers.py     # Gecode where it was unpacked

Gecode (libgecode-dev) is called by a program that is compiled here. Made-up tables of a million rows, a Sudoku of 27
tables of all permutations, and the families of Santi et al. 2025; SystemExit where other values are left. Seconds of
Gecode are those of making its tuple sets, of posting and the first fixpoint, and of the second one; ours those of all
that is made of the rows with the first fixpoint, and of the second one; processor time of all threads, ours the least
of ``--repeat``. Gecode makes a tuple set for each table of the Sudoku, where ours share their rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gpu_compact_tables import knapsack, sudoku
from measuring import describe_run, print_table

from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation.fixpoint import Network

SOURCE = Path(__file__).parent / "peers" / "gecode_tables.cpp"


def compiled(folder: Path) -> Path:
    """The program, or SystemExit where Gecode is not there."""
    program = folder / "gecode_tables"
    libraries = ["-lgecodeint", "-lgecodekernel", "-lgecodesupport"]
    done = subprocess.run(
        ["g++", "-O3", "-std=c++17", str(SOURCE), "-o", str(program), *libraries],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"Gecode cannot be compiled with, install libgecode-dev: {done.stderr[:500]}")
    return program


def made_up(rows: int, columns: int, size: int) -> Problem:
    tuples = np.unique(np.random.default_rng(0).integers(0, size, (rows, columns)), axis=0)
    variables = tuple(Variable(f"x{v}", size) for v in range(columns))
    return Problem(variables, constraints=(Constraint(tuple(range(columns)), tuples, True),))


def family(name: str, seed: int) -> Problem:
    sizes, tuples, _ = knapsack(seed, name)
    tuples = np.unique(tuples, axis=0)
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, constraints=(Constraint(tuple(range(len(sizes))), tuples, True),))


def of_gecode(program: Path, problem: Problem, bounds: list[tuple[int, int]]) -> dict[str, object]:
    numbers = [np.array([len(problem.sizes), *problem.sizes, len(problem.constraints)])]
    for c in problem.constraints:
        numbers += [np.array([len(c.scope), len(c.tuples), *c.scope]), c.tuples.reshape(-1)]
    numbers.append(np.array([len(bounds), *(n for pair in bounds for n in pair)]))
    given = np.concatenate(numbers).astype(np.int64).tobytes()
    done = subprocess.run([str(program)], input=given, capture_output=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def of_ours(problem: Problem, bounds: list[tuple[int, int]]) -> tuple[float, float, list[list[int]]]:
    begin = time.process_time()
    network = Network(problem, backend="cpu")
    found = network.propagate()
    middle = time.process_time()
    left = [network.domains.counts.tolist() if found.status == "fixpoint" else []]
    for v, most in bounds:
        network.domains.keep(v, np.arange(problem.sizes[v]) <= most)
    again = time.process_time()
    found = network.propagate()
    end = time.process_time()
    left.append(network.domains.counts.tolist() if found.status == "fixpoint" else [])
    return middle - begin, end - again, left


def lines(program: Path, repeat: int) -> list[list[str]]:
    made = []
    problems = {
        "10^6 rows x 10 columns of 50": made_up(1_000_000, 10, 50),
        "Sudoku, 27 tables of 362,880": sudoku(32),
        **{f"{name}, seed {seed}": family(name, seed) for name in ("LIN_B", "LIN_EB") for seed in (1, 2)},
    }
    for name, problem in problems.items():
        bounds = [(v, (size - 1) // 2) for v, size in list(enumerate(problem.sizes))[:3]]
        theirs = of_gecode(program, problem, bounds)
        best: tuple[float, float] = (np.inf, np.inf)
        for _ in range(repeat):
            first, second, left = of_ours(problem, bounds)
            best = min(best[0], first), min(best[1], second)
            if left != [theirs["first"], theirs["second"]]:
                raise SystemExit(f"{name}: Gecode leaves other values")
        building, posting, again = (float(str(theirs[key])) for key in ("building", "posting", "again"))
        made.append([
            name, f"{1e3 * building:,.1f}", f"{1e3 * posting:,.1f}", f"{1e3 * best[0]:,.1f}",
            f"{(building + posting) / best[0]:.1f}", f"{1e3 * again:,.2f}", f"{1e3 * best[1]:,.2f}",
        ])  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours, of which the best counts")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        title = ["ms", "Gecode, tuple sets", "to the fixpoint", "ours, all", "ratio", "Gecode, again", "ours, again"]
        print_table([title, *lines(compiled(Path(folder)), given.repeat)], given.markdown)
    print(describe_run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
