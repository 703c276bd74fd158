"""CPMpy models by oocbe and by CPMpy's other solvers: processor seconds, with equal answers; and counts of solutions.

    python benchmarks/cpmpy_models.py --limit 20 --markdown

Each solve includes the translation of the model, runs after a small one that loads and compiles the solver, and has one
thread of OR-tools. Counts are those of ``count()`` of oocbe, and of ``solveAll`` of the others. PySAT optimises by RC2,
CPMpy's other solver of the same package. The second table has small problems of the kinds in XCSP3's mini-COP track.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import cpmpy as cp
import numpy as np
from measuring import describe_run, print_table

from oocbe.api.cpmpy import CPM_oocbe

SEED = np.random.default_rng
OPTIONS: dict[str, dict[str, Any]] = {"ortools": {"num_search_workers": 1}}


def queens(n: int) -> Any:
    x, places = cp.intvar(0, n - 1, shape=n), np.arange(n)
    return cp.Model(cp.AllDifferent(x), cp.AllDifferent(x + places), cp.AllDifferent(x - places))


def send_more_money() -> Any:
    s, e, n, d, m, o, r, y = letters = cp.intvar(0, 9, shape=8)
    total = 1000 * (s + m) + 100 * (e + o) + 10 * (n + r) + d + e
    return cp.Model(cp.AllDifferent(letters), total == 10000 * m + 1000 * o + 100 * n + 10 * e + y, s > 0, m > 0)


def sudoku() -> Any:
    text = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
    given, x = np.array(list(map(int, text))).reshape(9, 9), cp.intvar(1, 9, shape=(9, 9))
    boxes = [x[i : i + 3, j : j + 3] for i, j in itertools.product(range(0, 9, 3), repeat=2)]
    return cp.Model([cp.AllDifferent(group) for group in [*x, *x.T, *boxes]], x[given > 0] == given[given > 0])


def magic_square(n: int) -> Any:
    x, total = cp.intvar(1, n * n, shape=(n, n)), n * (n * n + 1) // 2
    lines = [*x, *x.T, np.diag(x), np.diag(np.fliplr(x))]
    return cp.Model(cp.AllDifferent(x), [cp.sum(list(line)) == total for line in lines])


def golomb(n: int, longest: int) -> Any:
    x = cp.intvar(0, longest, shape=n)
    gaps = [b - a for a, b in itertools.combinations(x, 2)]
    return cp.Model(x[0] == 0, cp.IncreasingStrict(x), cp.AllDifferent(gaps), minimize=x[-1])


def knapsack(n: int) -> Any:
    rng, x = SEED(1), cp.boolvar(shape=n)
    weights, gains = rng.integers(10, 60, n), rng.integers(10, 60, n)
    return cp.Model(cp.sum(x * weights) <= int(weights.sum()) // 3, maximize=cp.sum(x * gains))


def job_shop(jobs: int, machines: int) -> Any:
    rng = SEED(2)
    lengths = rng.integers(1, 5, (jobs, machines))
    orders = [rng.permutation(machines) for _ in range(jobs)]
    horizon = int(lengths.sum() // 2)
    start = cp.intvar(0, horizon, shape=(jobs, machines))
    model = cp.Model([start[j, k] + lengths[j, k] <= start[j, k + 1] for j in range(jobs) for k in range(machines - 1)])
    for machine in range(machines):
        tasks = [(j, list(orders[j]).index(machine)) for j in range(jobs)]
        model += cp.NoOverlap([start[t] for t in tasks], [int(lengths[t]) for t in tasks])
    model.minimize(cp.max(start[:, -1] + lengths[:, -1]))
    return model


def tour(n: int) -> Any:
    lengths = SEED(3).integers(1, 50, (n, n))
    x = cp.intvar(0, n - 1, shape=n)
    return cp.Model(cp.Circuit(x), minimize=cp.sum(cp.Element(lengths[i].tolist(), x[i]) for i in range(n)))


def weighted(n: int, width: int) -> Any:
    """A weighted constraint network: random costs of each two variables at most ``width`` apart."""
    rng, x = SEED(4), cp.intvar(0, 3, shape=n)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + width + 1))]
    costs = [cp.Element(rng.integers(0, 100, 16).tolist(), 4 * x[i] + x[j]) for i, j in pairs]
    return cp.Model(minimize=cp.sum(costs))


def colouring(n: int, width: int) -> Any:
    rng, x = SEED(5), cp.intvar(0, 3, shape=n)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + width)) if rng.random() < 0.5]
    return cp.Model([x[i] != x[j] for i, j in pairs], cp.sum(x) >= 0)


def warehouses(places: int, stores: int) -> Any:
    rng = SEED(6)
    costs, room = rng.integers(10, 90, (stores, places)), rng.integers(2, 5, places)
    x, is_open = cp.intvar(0, places - 1, shape=stores), cp.boolvar(shape=places)
    model = cp.Model([cp.Count(x, w) <= int(room[w]) for w in range(places)])
    model += [(x[s] == w).implies(is_open[w]) for s in range(stores) for w in range(places)]
    model.minimize(60 * cp.sum(is_open) + cp.sum(cp.Element(costs[s].tolist(), x[s]) for s in range(stores)))
    return model


def open_shop(n: int) -> Any:
    lengths = SEED(7).integers(1, 10, (n, n))
    horizon = int(lengths.sum(0).max() + lengths.sum(1).max())
    start, end = cp.intvar(0, horizon, shape=(n, n)), cp.intvar(0, horizon)
    model = cp.Model([own <= end for own in (start + lengths).flat], minimize=end)
    for i in range(n):
        model += cp.NoOverlap(list(start[i]), lengths[i].tolist())
        model += cp.NoOverlap(list(start[:, i]), lengths[:, i].tolist())
    return model


def quadratic_assignment(n: int) -> Any:
    rng = SEED(8)
    flows, distances = rng.integers(0, 10, (n, n)), rng.integers(1, 10, (n, n)).ravel().tolist()
    x, pairs = cp.intvar(0, n - 1, shape=n), itertools.permutations(range(n), 2)
    costs = [int(flows[i, j]) * cp.Element(distances, n * x[i] + x[j]) for i, j in pairs]
    return cp.Model(cp.AllDifferent(x), minimize=cp.sum(costs))


def autocorrelation(n: int) -> Any:
    """Low autocorrelation binary sequence."""
    x, sums = cp.boolvar(shape=n), cp.intvar(-n, n, shape=n)
    gaps = [sums[k] == n - k - 2 * cp.sum(x[i] != x[i + k] for i in range(n - k)) for k in range(1, n)]
    return cp.Model(sums[0] == 0, gaps, minimize=cp.sum(own * own for own in sums))


def fewest_colours(n: int, share: float) -> Any:
    rng, x = SEED(9), cp.intvar(0, 7, shape=n)
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < share]
    return cp.Model([x[i] != x[j] for i, j in pairs], minimize=cp.max(x))


def still_life(n: int) -> Any:
    """The densest stable pattern of the game of life in a square, within dead cells."""
    x = cp.boolvar(shape=(n + 4, n + 4))
    inner = np.pad(np.ones((n, n), dtype=bool), 2)
    model = cp.Model([~cell for cell in x[~inner]], maximize=cp.sum(x))
    for i, j in itertools.product(range(1, n + 3), repeat=2):
        near = cp.sum(x[i + a, j + b] for a, b in itertools.product((-1, 0, 1), repeat=2) if a or b)
        model += [x[i, j].implies((near >= 2) & (near <= 3)), (near == 3).implies(x[i, j])]
    return model


def coins(n: int, each: int) -> Any:
    """Coins in a square, as many in each line, near the diagonal."""
    x, squares = cp.boolvar(shape=(n, n)), np.subtract.outer(np.arange(n), np.arange(n)) ** 2
    return cp.Model([cp.sum(line) == each for line in [*x, *x.T]], minimize=cp.sum(x * squares))


def nurses(n: int, days: int) -> Any:
    """Shifts (none, day, night) with the least cost of wishes: no day after a night, a free day in five, cover."""
    wishes, x = SEED(10).integers(0, 10, (n, days, 3)), cp.intvar(0, 2, shape=(n, days))
    model = cp.Model()
    for own in x:
        model += [(own[d] == 2).implies(own[d + 1] != 1) for d in range(days - 1)]
        model += [cp.Count(own[d : d + 5], 0) >= 1 for d in range(days - 4)]
    model += [cp.Count(day, 1) >= n // 3 for day in x.T]
    model += [cp.Count(day, 2) == 2 for day in x.T]
    model.minimize(cp.sum(cp.Element(wishes[i, d].tolist(), x[i, d]) for i in range(n) for d in range(days)))
    return model


def fast_food(restaurants: int, depots: int) -> Any:
    places = np.sort(SEED(11).choice(500, restaurants, replace=False)).tolist()
    x = cp.intvar(0, restaurants - 1, shape=depots)
    nearest = [cp.min([cp.Element([abs(p - q) for q in places], d) for d in x]) for p in places]
    return cp.Model(cp.IncreasingStrict(x), minimize=cp.sum(nearest))


SOLVES: dict[str, Callable[[], Any]] = {
    "knapsack, 40 things": lambda: knapsack(40),
    "send more money": send_more_money,
    "sudoku": sudoku,
    "queens, 8": lambda: queens(8),
    "queens, 12": lambda: queens(12),
    "magic square, 4": lambda: magic_square(4),
    "Golomb ruler, 6 marks": lambda: golomb(6, 20),
    "job shop, 4 jobs, 3 machines": lambda: job_shop(4, 3),
    "tour of 7 cities": lambda: tour(7),
    "weighted network, 60 variables, width 4": lambda: weighted(60, 4),
    "weighted network, 200 variables, width 6": lambda: weighted(200, 6),
}
COPS: dict[str, Callable[[], Any]] = {
    "warehouses, 8 places, 16 stores": lambda: warehouses(8, 16),
    "quadratic assignment, 8 places": lambda: quadratic_assignment(8),
    "still life, 7 x 7": lambda: still_life(7),
    "fast food, 25 restaurants, 4 depots": lambda: fast_food(25, 4),
    "nurses, 8 in 14 days": lambda: nurses(8, 14),
    "coins, 14 x 14": lambda: coins(14, 6),
    "fewest colours, 30 vertices": lambda: fewest_colours(30, 0.2),
    "open shop, 4 x 4": lambda: open_shop(4),
    "tour of 12 cities": lambda: tour(12),
    "Golomb ruler, 8 marks": lambda: golomb(8, 40),
    "low autocorrelation, 14 bits": lambda: autocorrelation(14),
}
COUNTS: dict[str, Callable[[], Any]] = {
    "queens, 8": lambda: queens(8),
    "queens, 10": lambda: queens(10),
    "magic square, 3": lambda: magic_square(3),
    "colouring, 60 variables": lambda: colouring(60, 5),
}


def stop(*_: object) -> None:
    raise TimeoutError


def measured(make: Callable[[], Any], solver: str, limit: float, counts: bool) -> tuple[str, Any]:
    """Processor seconds as text, and the answer; None where the limit was reached."""
    model = make()
    solver = "rc2" if solver == "pysat" and model.has_objective() else solver
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 2 * limit)  # encodings of RC2 keep no limit
    begin, wall = time.process_time(), time.perf_counter()
    answer: Any
    try:
        if counts:
            answer = CPM_oocbe(model).count() if solver == "oocbe" else model.solveAll(solver=solver, time_limit=limit)
        else:
            solved = model.solve(solver=solver, time_limit=limit, **OPTIONS.get(solver, {}))
            answer = model.objective_value() if solved and model.has_objective() else model.status().exitstatus.name
    except TimeoutError:
        return "limit", None
    except Exception as error:  # a peer's own limits, or what it makes of the alarm
        if time.perf_counter() - wall >= 2 * limit:
            return "limit", None
        print(f"{solver}: {error!r:.200}", file=sys.stderr)
        return "–", None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.process_time() - begin
    proven = ("OPTIMAL",) if counts or model.has_objective() else ("FEASIBLE", "UNSATISFIABLE")
    if solver != "oocbe" or not counts:
        # Choco's best answer at the limit is called optimal by CPMpy 1.1.
        in_time = solver == "oocbe" or time.perf_counter() - wall < 0.9 * limit
        answer = answer if in_time and model.status().exitstatus.name in proven else None
    return ("limit" if answer is None else f"{seconds:.3f} s"), answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each solve")
    parser.add_argument(
        "--solvers", default="oocbe,ortools,choco,exact,pysat,z3", help="CPMpy's names, separated by commas"
    )
    parser.add_argument("--markdown", action="store_true", help="rows for a file of results")
    arguments = parser.parse_args()
    solvers = arguments.solvers.split(",")
    for solver, counts in itertools.product(solvers, (False, True)):
        measured(lambda: knapsack(5), solver, 60, False)
        measured(lambda: queens(5), solver, 60, counts)
    rows = [["model", *solvers, "answer"]]
    for counts, makes in ((False, SOLVES), (False, COPS), (True, COUNTS)):
        for name, make in makes.items():
            found = [measured(make, solver, arguments.limit, counts) for solver in solvers]
            answers = {answer for _, answer in found if answer is not None}
            if len(answers) > 1:
                raise SystemExit(f"{name}: the answers {answers} differ")
            shown = f"{answers.pop():,}" if answers and not isinstance(next(iter(answers)), str) else "; ".join(answers)
            rows.append([f"{name}, count" if counts else name, *(seconds for seconds, _ in found), shown])
            print(rows[-1], file=sys.stderr, flush=True)
    print_table(rows, arguments.markdown)
    print(describe_run(["cpmpy", "ortools", "pychoco", "exact", "python-sat", "z3-solver"]), file=sys.stderr)


if __name__ == "__main__":
    main()
