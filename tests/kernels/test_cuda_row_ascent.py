"""Rows bounded on the device: bounds and states are the processor's, bit for bit, in launches of every shape."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oocbe.bounds.row_ascent import RowAscent
from oocbe.bounds.row_reduction import reduced
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.row_search import RowSearch
from oocbe.search.shared_bounds import SharedBounds
from oocbe.stress import grid_network, random_network
from tests.helpers.bound_problems import anything, costly_photographs, photographs
from tests.helpers.small_problems import all_values
from tests.kernels.conftest import skip_without_gpu

pytestmark = pytest.mark.gpu

SHAPES = ((1, 32, True), (1, 128, False), (2, 32, True), (4, 128, True), (4, 256, False))
"""Rows and threads of a block, and whether slots are in shared memory."""


@pytest.fixture(autouse=True)
def _device():
    skip_without_gpu()


def frequencies(seed: int) -> Problem:
    """Dense costs over pairs of large domains, some forbidden, as in frequency assignment."""
    random = np.random.default_rng(seed)
    sizes = random.integers(3, 45, size=6).tolist()
    functions = []
    for v in range(6):
        for u in range(v):
            if random.random() < 0.8:
                costs = random.choice([0, 1, 10, 100, 1000, 77777], size=(sizes[u], sizes[v]))
                functions.append(Function.from_array((u, v), costs, 77777))
    functions.append(Function.from_array((0,), random.integers(0, 9, size=sizes[0])))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), name=f"pairs {seed}")


def wide(seed: int) -> Problem:
    """Functions over up to six variables, floats."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, size=9).tolist()
    functions = []
    for _ in range(9):
        scope = tuple(random.choice(9, size=int(random.integers(1, 7)), replace=False).tolist())
        functions.append(Function.from_array(scope, random.normal(size=[sizes[v] for v in scope])))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), name=f"wide {seed}")


def thresholds(problem: Problem, random: np.random.Generator) -> float:
    """Somewhere about the values of assignments."""
    if math.prod(problem.sizes) <= 1 << 16:
        total, feasible = all_values(problem.below(None))
        values = total[feasible].astype(np.float64)
    else:
        some = [tuple(random.integers(0, problem.sizes)) for _ in range(200)]
        found = [problem.evaluate(assignment) for assignment in some]
        values = np.array([value for value in found if value is not None])
    low, high = (values.min().item(), values.max().item()) if len(values) else (0.0, 10.0)
    threshold = low + random.choice([0.05, 0.3, 0.6, 1.1, 3]) * (high - low)
    return round(threshold) if problem.is_integral else threshold


def check_walk(problem: Problem, seed: int, kept_rows: int) -> int:
    """Assert that rows along one walk are the same on both sides; how many there were."""
    from oocbe.bounds.kernels.cuda.row_ascent import DeviceAscent, LaunchShape

    random = np.random.default_rng(seed)
    ascent = RowAscent(ScopeTables.of(problem), thresholds(problem, random))
    count = len(problem.sizes)
    order = random.permutation(count).tolist()
    ascent.ascend(ascent.level(order), int(random.integers(0, 4)))
    if ascent.bound >= ascent.need:
        return 0
    device = DeviceAscent(ascent.network, ascent.need)
    states, bounds, level, tried = ascent.state[None], np.array([ascent.bound]), None, 0
    for place, v in enumerate(order):
        parent = np.repeat(np.arange(len(states)), problem.sizes[v])
        value = np.tile(np.arange(problem.sizes[v]), len(states))
        # Levels are laid out anew now and then: passes may go over variables that are assigned.
        if level is None or random.random() < 0.6:
            level = ascent.level(order[place + int(random.integers(0, 2)) :])
        passes, radius = int(random.integers(0, 5)), int(random.integers(1, 4))
        assert device.can_bound(level, v)
        made, made_bounds = ascent.rows(level, v, states, bounds, parent, value, passes, radius)
        good = np.flatnonzero(made_bounds < ascent.need)
        for shape in [None, *(LaunchShape(*shape) for shape in SHAPES)]:
            there = device.uploaded(states)
            found, found_bounds = device.rows(level, v, there, bounds, parent, value, passes, radius, shape)
            np.testing.assert_array_equal(found_bounds, made_bounds)
            np.testing.assert_array_equal(device.taken(found, good).get(), made[good])
        tried += len(parent)
        kept = np.sort(random.permutation(good)[:kept_rows])
        states, bounds = made[kept], made_bounds[kept]
        if not len(kept):
            break
    return tried


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, frequencies, wide])
def test_rows_are_those_of_the_processor(make):
    assert sum(check_walk(make(seed), seed, 12) for seed in range(40)) > 500


def test_a_few_rows():
    assert check_walk(frequencies(3), 3, 3) > 50
    assert check_walk(wide(4), 4, 3) > 10


def test_many_variables():
    problem = grid_network(24, 3, tightness=0.0, seed=5)
    assert check_walk(problem, 1, 50) > 10_000


def test_rows_that_do_not_fit_shared_memory():
    problem = random_network(70, 30, 0.9, tightness=0.0, seed=3)
    ascent = RowAscent(ScopeTables.of(problem), 10**7)
    from oocbe.bounds.kernels.cuda.row_ascent import DeviceAscent

    device = DeviceAscent(ascent.network, ascent.need)
    level = ascent.level(range(1, 70))
    states, bounds = ascent.state[None], np.array([ascent.bound])
    parent, value = np.zeros(30, dtype=np.int64), np.arange(30)
    assert device.can_bound(level, 0)
    made, made_bounds = ascent.rows(level, 0, states, bounds, parent, value, 1, 1)
    found, found_bounds = device.rows(level, 0, device.uploaded(states), bounds, parent, value, 1, 1)
    np.testing.assert_array_equal(found_bounds, made_bounds)
    np.testing.assert_array_equal(found.get(), made)


@pytest.mark.parametrize("make", [frequencies, photographs, anything])
def test_searches_on_both_sides_do_the_same(make, tune):
    for work in (0, 1 << 12):
        tune(device_row_work=work)
        for seed in range(8):
            problem = make(seed)
            ends = []
            for backend in ("cpu", "auto", "cuda"):
                known = SharedBounds(problem, SolveOptions().gap, lambda *_: None)
                search = RowSearch(reduced(ScopeTables.of(problem)), known, 1 << 26, backend)
                search.work(math.inf, Deadline())
                ends.append(
                    (known.lower, known.value, known.assignment, search.nodes, search.ruled_out, search.largest)
                )
            assert ends[0] == ends[1] == ends[2]
