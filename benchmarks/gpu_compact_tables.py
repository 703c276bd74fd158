"""Compact-Table on a CUDA device: calls with their answers, beside bit sets on the processor, and a Sudoku of tables.

    python benchmarks/gpu_compact_tables.py                          # families LIN_B and LIN_EB of Santi et al. 2025
    python benchmarks/gpu_compact_tables.py --tables 10 --markdown

The families are made up again from the paper's table 2: configurations of a bounded knapsack as the rows of one table,
and a linear equation over some of its variables. A search without a goal goes down and back: it fixes a variable or
halves its domain, propagates the equation, and asks the table; only the last is timed, from the call to the answer in
the host's domains, which must be the processor's after every call. A batch is so many such tables, each with variables
of its own, that are all asked in every call.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

import numpy as np
from measuring import describe_run, print_table

from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation.device_tables import DeviceTables
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.tables import CompactTable, LinearFilter, codes_of

FAMILIES = {"LIN_B": ((80, 150), 600, (5_000, 10_000)), "LIN_EB": ((100, 200), 800, (5_000, 15_000))}
"""Variables, largest domain and rows, as in the paper's table 2."""


def knapsack(seed: int, family: str) -> tuple[list[int], np.ndarray, list[LinearConstraint]]:
    """Sizes of domains, rows int64 (rows, variables), and an equation as two inequalities; some row satisfies it."""
    variables, largest, rows = FAMILIES[family]
    random = np.random.default_rng(seed)
    count = int(random.integers(variables[0], variables[1] + 1))
    sizes = random.integers(2, largest + 1, count)
    tuples = random.integers(0, sizes, (int(random.integers(rows[0], rows[1] + 1)), count))
    scope = np.sort(random.choice(count, count // 2, replace=False))
    weights = random.integers(1, 10, len(scope))
    side = int(tuples[0, scope] @ weights)
    columns = tuple(w * np.arange(size) for w, size in zip(weights, sizes[scope], strict=True))
    place = tuple(scope.tolist())
    both = [LinearConstraint(place, columns, side), LinearConstraint(place, tuple(-c for c in columns), -side)]
    return sizes.tolist(), tuples, both


def dive(seed: int, family: str, calls: int, batch: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """What the tables are like, and microseconds of each call on the device and on the processor."""
    made = [knapsack(1000 * seed + k, family) for k in range(batch)]
    sizes = [size for part in made for size in part[0]]
    firsts = np.cumsum([0, *(len(part[0]) for part in made)]).tolist()
    found, expected = Domains.of_sizes(sizes), Domains.of_sizes(sizes)
    tables, here, equations = [], [], []
    for first, (own, tuples, both) in zip(firsts, made, strict=False):
        scope = tuple(range(first, first + len(own)))
        codes = codes_of(tuples, own)
        tables.append((scope, codes, "table"))
        here.append(CompactTable(scope, codes, expected, "table"))
        for linear in both:
            moved = LinearConstraint(tuple(first + v for v in linear.scope), linear.coefficients, linear.capacity)
            equations.append(LinearFilter(moved, expected))
    on_device = DeviceTables(tables, found)
    random = np.random.default_rng(seed)
    spent: list[tuple[float, float]] = []
    saved: list[tuple[np.ndarray, np.ndarray]] = []

    def back() -> None:
        for table in (on_device, *here):
            table.pop()
        expected.alive[:], expected.counts[:] = saved.pop()

    while len(spent) < calls:
        for table in (on_device, *here):
            table.push()
        saved.append((expected.alive.copy(), expected.counts.copy()))
        is_possible = True
        if spent:  # the first call is about whole domains
            for first, last in itertools.pairwise(firsts):
                open_ones = first + np.flatnonzero(expected.counts[first:last] > 1)
                if len(open_ones):
                    v = int(random.choice(open_ones))
                    values = expected.values(v)
                    kept = values[:1] if random.random() < 0.2 else values[: -(-len(values) // 2)]
                    expected.keep(v, np.isin(np.arange(sizes[v]), kept))
            is_possible = all(linear.filter(expected) is not None for linear in equations)
        if is_possible:
            found.alive[:], found.counts[:] = expected.alive, expected.counts
            begin = time.perf_counter()
            lost = on_device.filter(found)
            middle = time.perf_counter()
            kept_rows = [table.filter(expected) is not None for table in here]
            end = time.perf_counter()
            spent.append((1e6 * (middle - begin), 1e6 * (end - middle)))
            is_possible = all(kept_rows)
            if is_possible != (lost is not None):
                raise SystemExit(f"{family} {seed}: the device says {lost}, the processor {kept_rows}")
            if is_possible and not (
                (found.alive == expected.alive).all()
                and (found.counts == expected.counts).all()
                and on_device.rows_left == sum(table.rows_left for table in here)
            ):
                raise SystemExit(f"{family} {seed}: other values are left on the device after {len(spent)} calls")
        if not is_possible or (expected.counts == 1).all():
            for _ in range(int(random.integers(1, len(saved) + 1))):
                back()
    shape = [
        f"{len(sizes):,}",
        f"{sum(sizes):,}",
        f"{sum(len(part[1]) for part in made):,}",
    ]
    times = np.array(spent[2:])
    return shape, times[:, 0], times[:, 1]


def family_lines(count: int, calls: int, batch: int) -> list[list[str]]:
    """A line an instance, and one of all."""
    lines = []
    for family in FAMILIES:
        together: list[np.ndarray] = []
        for seed in range(1, count + 1):
            shape, device, here = dive(seed, family, calls, batch)
            together.append(np.stack([device, here]))
            lines.append([f"{family}_{seed}", *shape, *_times(device), *_times(here)])
        device, here = np.concatenate(together, axis=1)
        lines.append([f"{family}, all", "", "", "", *_times(device), *_times(here)])
    return lines


def _times(spent: np.ndarray) -> list[str]:
    return [f"{np.median(spent):.1f}", f"{np.percentile(spent, 95):.1f}"]


def sudoku(clues: int) -> Problem:
    """A grid of 27 tables of all permutations, and the clues of a puzzle as tables of a row."""
    grid = np.array([[(3 * (r % 3) + r // 3 + c) % 9 for c in range(9)] for r in range(9)])
    cells = np.arange(81).reshape(9, 9)
    boxes = cells.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)
    tuples = np.array(list(itertools.permutations(range(9))))
    tables = [Constraint(tuple(scope.tolist()), tuples, True) for scope in (*cells, *cells.T, *boxes)]
    random = np.random.default_rng(3)
    given = [
        Constraint((int(cell),), np.array([[grid.reshape(-1)[cell]]]), True)
        for cell in np.sort(random.choice(81, clues, replace=False))
    ]
    variables = tuple(Variable(f"x{cell}", 9) for cell in range(81))
    return Problem(variables, constraints=(*given, *tables))


def sudoku_lines(repeat: int) -> list[list[str]]:
    """Milliseconds from rows in memory to the fixpoint, on the device and by threads."""
    problem = sudoku(32)
    lines = []
    domains = {}
    for backend in ("cuda", "cpu"):
        spent = []
        for _ in range(repeat):
            begin = time.perf_counter()
            network = Network(problem, backend=backend)
            made = time.perf_counter()
            found = network.propagate()
            spent.append((made - begin, time.perf_counter() - made))
        domains[backend] = network.domains.alive.tolist()
        best = min(spent, key=sum)
        left = f"{int(network.domains.counts.sum())}"
        lines.append([backend, found.status, left, *(f"{1e3 * s:.1f}" for s in (*best, sum(best)))])
    if domains["cuda"] != domains["cpu"]:
        raise SystemExit("sudoku: other values are left on the device")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=6, help="instances of each family")
    parser.add_argument("--calls", type=int, default=200, help="calls of each instance")
    parser.add_argument("--batch", type=int, default=16, help="tables of a batch; 0: no batches")
    parser.add_argument("--repeat", type=int, default=5, help="runs of the Sudoku, of which the best counts")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    given = parser.parse_args()
    title = ["instance", "variables", "values", "rows", "µs a call, median", "95 %", "bit sets, median", "95 %"]
    print_table([title, *family_lines(given.tables, given.calls, 1)], given.markdown)
    if given.batch:
        print(f"{given.batch} tables in one launch; bit sets one after the other\n")
        print_table([title, *family_lines(1, given.calls // 4, given.batch)], given.markdown)
    title = ["Sudoku, 27 tables of 362,880 rows", "", "values left", "made, ms", "fixpoint, ms", "together"]
    print_table([title, *sudoku_lines(given.repeat)], given.markdown)
    print(describe_run(["cupy"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
