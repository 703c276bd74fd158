"""Bounds of nodes against brute force: none is above what a node's best completion costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.kernels.cpu.projection import BLOCK, REMOVED, AscentNetwork, project_table
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.search.depth_tree import Root, laid_out
from tests.helpers.bound_problems import (
    anything,
    check_message,
    costly_photographs,
    kept_of,
    photographs,
    random_message,
)
from tests.helpers.bound_sources import bound_sources
from tests.helpers.depth_searches import blank, node_bounds
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values

SEEDS = examples(250)

LARGEST_COMPARED = 2**28
"""Sums of costs up to which those of sources for messages are compared: they are scaled, and compared in float64."""

MANY_SEEDS = 2500
"""Problems of each of eight kinds: 20,000."""


def scaled(problem: Problem, factor: int | float) -> Problem:
    """The problem with all costs multiplied."""
    functions = tuple(
        Function(f.scope, f.tuples, f.values * factor, None if f.default is None else f.default * factor)
        for f in problem.functions
    )
    bound = None if problem.upper_bound is None else problem.upper_bound * factor
    return replace(problem, functions=functions, constant=problem.constant * factor, upper_bound=bound)


def huge(seed: int) -> Problem:
    problem = anything(seed)
    return scaled(problem, 10**14) if problem.is_integral else scaled(problem, 1e180)


def tiny(seed: int) -> Problem:
    problem = anything(seed)
    return scaled(problem, 2.0**-900) if not problem.is_integral else scaled(problem, 1e-7)


def far_apart(seed: int) -> Problem:
    """Floats of which some are so large that others are lost beside them."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=5).tolist()
    functions = []
    for _ in range(8):
        scope = tuple(random.choice(5, size=int(random.integers(1, 4)), replace=False).tolist())
        shape = [sizes[v] for v in scope]
        costs = random.normal(size=shape) * 10.0 ** random.integers(-6, 12)
        functions.append(Function.from_array(scope, costs))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), name=f"far apart {seed}")


def pairs(seed: int) -> Problem:
    """Dense costs over pairs, some forbidden, as in frequency assignment."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 6, size=5).tolist()
    functions = []
    for v in range(5):
        for u in range(v):
            costs = random.choice([0, 1, 10, 100, 1000, -3], size=(sizes[u], sizes[v])).astype(float)
            costs[random.random(costs.shape) < 0.1] = math.inf
            functions.append(Function.from_array((u, v), np.where(np.isinf(costs), 77777, costs).astype(int), 77777))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), name=f"pairs {seed}")


def larger(seed: int) -> Problem:
    """Functions over up to six variables, many cells forbidden, many costs 0, some below, and some beyond any sum."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, size=7).tolist()
    functions = []
    for _ in range(int(random.integers(2, 7))):
        scope = tuple(random.choice(7, size=int(random.integers(3, 7)), replace=False).tolist())
        shape = [sizes[v] for v in scope]
        kept = np.argwhere(random.random(shape) < random.choice([0.3, 0.8, 1.0]))
        costs = random.choice([0, 0, 0, 1, 2, 9, -4, 10**9], size=len(kept))
        functions.append(Function(scope, kept, costs, None if random.integers(2) else int(random.integers(-3, 20))))
    variables = tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes))
    return Problem(variables, tuple(functions), constant=int(random.integers(-5, 5)), name=f"larger {seed}")


KINDS = [anything, photographs, costly_photographs, pairs, huge, tiny, far_apart, larger]


def values_of(problem: Problem) -> np.ndarray:
    """What each assignment costs, infinite where it is infeasible; an axis a variable. The upper bound counts not."""
    total, feasible = all_values(problem.below(None))
    return np.where(feasible, total.astype(np.float64), np.inf)


def check_rows(problem: Problem, seed: int) -> tuple[int, int]:
    """Assert that bounds hold along one walk; numbers of rows, and of those that were ruled out."""
    tables = ScopeTables.of(problem)
    assert tables is not None
    return check_walk(tables, values_of(problem), seed)


def check_walk(tables: ScopeTables, values: np.ndarray, seed: int) -> tuple[int, int]:
    """Assert that bounds hold along one walk; ``values`` : what assignments cost, infinite where infeasible."""
    problem = tables.problem
    random = np.random.default_rng(seed)
    finite = values[np.isfinite(values)]
    low, high = (finite.min().item(), finite.max().item()) if len(finite) else (0.0, 10.0)
    threshold = low + random.choice([-0.1, 0, 0.05, 0.3, 0.6, 1.1]) * (high - low)
    threshold = round(threshold) if tables.is_integral else threshold
    root = Root(tables, threshold)
    if random.integers(2):
        root.ascend(laid_out(tables), blank(root))
    count = len(problem.sizes)
    order = random.permutation(count).tolist()
    # Of floats, sums in another order differ by less than this.
    rounding = 0.0 if tables.is_integral else 2 * tables.rounding

    def best_of(rows: np.ndarray, *variables: int) -> np.ndarray:
        """The best completion of each row, float64 (rows,); the last of some more variables by its values."""
        assigned = order[: rows.shape[1]]
        named = [*assigned, *(v for v in variables if v not in assigned)]
        kept = sorted(named)
        best = values.min(axis=tuple(v for v in range(count) if v not in named))
        best = best.transpose([kept.index(v) for v in named])
        return best[np.newaxis][np.zeros(len(rows), dtype=np.int64), *rows.T]

    def check(states: np.ndarray, bounds: np.ndarray, rows: np.ndarray) -> None:
        """No row that is ruled out, nor bound, nor value removed, is better than the best completion."""
        best = best_of(rows)
        is_out = bounds >= root.need
        assert (best[is_out] >= threshold - rounding).all(), (problem.name, rows[is_out], best[is_out], threshold)
        most = np.maximum(best, threshold) + rounding
        holds = np.array([root.unscale(b) <= m for b, m in zip(bounds.tolist(), most.tolist(), strict=True)], bool)
        assert holds[~is_out].all(), (problem.name, rows[~holds], bounds[~holds], best[~holds])
        rows, best = rows[~is_out], best[~is_out]
        first = root.network.value_start
        removed = states[~is_out, : first[-1]] == REMOVED
        for v in np.unique(owner[removed.any(axis=0)]).tolist():
            gone = removed[:, first[v] : first[v + 1]]
            if v in order[: rows.shape[1]]:  # values that it does not have are no matter
                is_wrong = gone[np.arange(len(rows)), rows[:, order.index(v)]] & (best < threshold - rounding)
            else:
                is_wrong = gone & (best_of(rows, v) < threshold - rounding)
            assert not is_wrong.any(), (problem.name, rows, v, np.argwhere(is_wrong), threshold)

    owner = np.repeat(np.arange(count), problem.sizes)
    rows = np.empty((1, 0), dtype=np.int64)
    check(root.state[None], np.array([root.bound]), rows)
    if root.bound >= root.need:
        return 1, 1
    tried = ruled_out = 0
    for v in order:
        parent = np.repeat(np.arange(len(rows)), problem.sizes[v])
        value = np.tile(np.arange(problem.sizes[v]), len(rows))
        rows = np.column_stack([rows[parent], value])
        passes, radius = int(random.integers(0, 5)), int(random.integers(1, 4))
        states, bounds = node_bounds(root, order[: rows.shape[1]], rows, passes, radius)
        check(states, bounds, rows)
        kept = np.flatnonzero(bounds < root.need)
        tried, ruled_out = tried + len(rows), ruled_out + len(rows) - len(kept)
        rows = rows[np.sort(random.permutation(kept)[:12])]
    return tried, ruled_out


def check_kind(make, seeds: range) -> None:
    tried = ruled_out = 0
    for seed in seeds:
        more, out = check_rows(make(seed), seed)
        tried, ruled_out = tried + more, ruled_out + out
    assert 0 < ruled_out < tried


@pytest.mark.parametrize("make", KINDS)
def test_no_bound_is_above_the_best_completion(make):
    check_kind(make, range(SEEDS))


@pytest.mark.parametrize("make", KINDS)
def test_bounds_hold_for_what_a_reduction_leaves(make):
    for seed in range(25):
        check_reduction(make(seed), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", KINDS)
def test_no_bound_of_20_000_problems_is_above_the_best_completion(make):
    """Other problems than in the quick test, each with the sources for whole messages and with variables eliminated."""
    check_kind(make, range(SEEDS, SEEDS + MANY_SEEDS))
    for seed in range(SEEDS, SEEDS + MANY_SEEDS):
        problem = make(seed)
        check_reduction(problem, seed)
        largest = [np.abs(f.values).max(initial=abs(f.default or 0)) for f in problem.functions]
        if sum(largest) + abs(problem.constant) < LARGEST_COMPARED:
            check_sources(problem, seed)


def check_reduction(problem: Problem, seed: int) -> None:
    """Assert that bounds hold along a walk over the variables that are left, as their rows stand for all the others."""
    tables = ScopeTables.of(problem)
    assert tables is not None
    made = reduced(tables)
    gone = tuple(v for v in range(len(problem.sizes)) if v not in made.variables)
    check_walk(made.tables, values_of(problem).min(axis=gone)[np.ix_(*kept_of(made))], seed)


def check_sources(problem: Problem, seed: int) -> None:
    """Assert that the bounds of all sources hold for the rows of a message."""
    for source in bound_sources(problem, 0.02, seed):
        eliminated, separator = random_message(problem, seed)
        check_message(problem, source, eliminated, separator)


@pytest.mark.parametrize("sizes", [(2,) * 9, (3, 1, 4, 5, 2), (2, BLOCK + 1, 2, 2), (2, 2, 2, BLOCK + 1), (5, 5, 5, 5)])
def test_a_projection_is_the_least_cost_of_each_value_that_is_left(sizes):
    start, count = np.concatenate([[0], np.cumsum(sizes)]), len(sizes)
    nothing, uses = np.zeros(0, dtype=np.int64), np.arange(count)
    for seed, share in enumerate((0.0, 0.3, 0.7)):
        random = np.random.default_rng(seed)
        table = random.integers(0, 1 << 20, sizes, dtype=np.int32)
        state = random.integers(0, 1 << 20, 2 * start[-1], dtype=np.int32)
        state[: start[-1]][random.random(start[-1]) < share] = REMOVED
        beside = (start, nothing, uses, np.array([0, count]), np.zeros(count, dtype=np.int64), uses)
        network = AscentNetwork(*beside, start[-1] + start[:-1], np.zeros(count, dtype=np.int64), table.ravel())
        own = [state[start[-1] + start[v] : start[-1] + start[v + 1]].astype(np.int64) for v in range(count)]
        left = np.ix_(*(state[start[v] : start[v + 1]] != REMOVED for v in range(count)))
        for axis in range(count):
            least, work = np.zeros(sizes[axis], dtype=np.int32), np.zeros((5, BLOCK + 1), dtype=np.int64)
            project_table.py_func(network, 0, axis, state, least, work)
            costs = np.full(sizes, int(REMOVED))
            taken = sum(np.ix_(*(shares * (v != axis) for v, shares in enumerate(own))))
            costs[left] = (table - taken)[left]
            assert least.tolist() == costs.min(axis=tuple(set(range(count)) - {axis})).tolist()


def test_the_bound_of_a_complete_row_is_what_it_costs():
    problem = pairs(3)
    tables = ScopeTables.of(problem)
    values = values_of(problem)
    root = Root(tables, int(values[np.isfinite(values)].max()) + 1)
    rows = np.argwhere(np.isfinite(values))
    _, bounds = node_bounds(root, range(len(problem.sizes)), rows, 2, 2)
    assert [root.unscale(bound) for bound in bounds.tolist()] == values[np.isfinite(values)].tolist()


def test_functions_too_large_to_be_written_out_are_refused():
    variables = tuple(Variable(f"x{v}", 50) for v in range(3))
    assert ScopeTables.of(Problem(variables, (Function((0, 1, 2), [[0, 0, 0]], [1], 0),))) is None


def test_sums_beyond_their_dtype_are_refused():
    variables = (Variable("x", 2),)
    assert ScopeTables.of(Problem(variables, (Function((0,), [[0]], [2**62], 0),))) is None
    assert ScopeTables.of(Problem(variables, (Function((0,), [[0]], [1e302], 0),))) is None
