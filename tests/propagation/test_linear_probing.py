"""Probes of linear systems: each is what propagation makes of the assignment, and failures are those of domains."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.formats import as_problem
from oocbe.model.linear_system import LinearSystem
from oocbe.model.settings.tuning import tuned
from oocbe.propagation import propagate
from oocbe.propagation.bounds import PROGRESS, linear_rows_of, propagate_bounds
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.kernels.cpu.linear_rows import Rounding
from oocbe.propagation.propagate import failures_of, probe, probe_bounds, two_valued
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples
from tests.kernels.conftest import skip_without_gpu

INF = float("inf")
OUTWARD = Rounding(True, 0.0, PROGRESS)


@st.composite
def systems(draw, is_binary=False):
    count = draw(st.integers(1, 7))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        variables = draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=count))
        terms = {v: draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for v in variables}
        low = draw(st.sampled_from([-INF, -2, -1, 0, 1, 2]))
        rows.append((terms, low, draw(st.sampled_from([INF, *(s for s in (0, 1, 2, 3) if s >= low)]))))
    if is_binary:
        return LinearSystem.from_rows(rows, [0] * count, [1] * count)
    upper = [draw(st.sampled_from([1, 1, 1, 4])) for _ in range(count)]
    return LinearSystem.from_rows(rows, [0] * count, upper, [draw(st.integers(0, 3)) > 0 for _ in range(count)])


def assert_as_propagated(system, bounds, tried, failed):
    """Each probe fails where propagation of the system with the assignment does."""
    for v, value, fails in zip(*tried, failed, strict=True):
        lower, upper = bounds.lower.copy(), bounds.upper.copy()
        lower[v] = upper[v] = value
        alone = propagate_bounds(replace(system, lower=lower, upper=upper), backend="cpu")
        assert fails == (alone.status == "infeasible")


@settings(max_examples=examples(150))
@given(systems())
def test_a_probe_is_propagation_of_the_assignment(system):
    bounds = propagate_bounds(system, backend="cpu")
    if bounds.status != "fixpoint":
        return
    tried = two_valued(bounds, system.integral)
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    probes = np.repeat(tried, 2), values
    assert_as_propagated(system, bounds, probes, failures_of(linear_rows_of(system), bounds, *probes, OUTWARD))


def sparse_binaries(seed, count):
    """Inequalities of four terms over binaries, of which some are fixed by nothing else."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count + count // 3):
        terms = random.choice(count, 4, replace=False).tolist()
        rows.append(({v: int(random.choice([-2, -1, 1, 2])) for v in terms}, -INF, int(random.integers(0, 3))))
    return LinearSystem.from_rows(rows, [0] * count, [1] * count)


def test_many_probes_by_threads():
    system = sparse_binaries(1, 120)
    bounds = propagate_bounds(system, backend="cpu")
    assert bounds.status == "fixpoint"
    tried = two_valued(bounds, system.integral)
    assert len(tried) > 40
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    probes = np.repeat(tried, 2), values
    failed = failures_of(linear_rows_of(system), bounds, *probes, OUTWARD)
    assert failed.any()
    assert_as_propagated(system, bounds, probes, failed)


@settings(max_examples=examples(150))
@given(systems(is_binary=True), st.sampled_from([2, 4, 4096]))
def test_probed_bounds_are_the_domains_that_probing_of_values_leaves(system, block):
    with tuned(few_rows=block):
        bounds = propagate_bounds(system, backend="cpu")
        found = probe_bounds(system, bounds)
    network = Network(as_problem(system))
    expected = network.propagate()
    probed = probe(network, expected)
    assert (found.bounds.status == "infeasible") == (expected.status == "infeasible")
    if expected.status == "fixpoint":
        kept = [network.domains.values(v).tolist() for v in range(len(system.names))]
        ends = zip(found.bounds.lower.tolist(), found.bounds.upper.tolist(), strict=True)
        assert kept == [list(range(int(low), int(high) + 1)) for low, high in ends]
        assert (found.failures > 0) == (probed.failures > 0)
    solutions = [
        point
        for point in itertools.product((0, 1), repeat=len(system.names))
        if all(
            low <= sum(a * point[v] for v, a in zip(columns, coefficients, strict=True)) <= high
            for columns, coefficients, low, high in _rows(system)
        )
    ]
    if solutions:
        assert (found.bounds.lower <= np.min(solutions, axis=0)).all()
        assert (found.bounds.upper >= np.max(solutions, axis=0)).all()
    elif found.bounds.status == "fixpoint":
        assert len(two_valued(found.bounds, system.integral)) > 1


def _rows(system):
    for row in range(system.rows):
        part = slice(system.starts[row], system.starts[row + 1])
        yield system.columns[part], system.coefficients[part], system.row_lower[row], system.row_upper[row]


def test_the_deadline_ends_it_with_what_holds():
    system = LinearSystem.from_rows([({0: 1, 1: 1}, 1, INF)], [0, 0], [1, 1])
    bounds = propagate_bounds(system, backend="cpu")
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        deadline.end = 0.0
        found = probe_bounds(system, bounds)
    assert found.bounds.status == "limit" and found.bounds.lower.tolist() == [0, 0]


@pytest.mark.parametrize("upper", [1e6, INF])
def test_numbers_without_end_do_not_stop_probes(upper):
    # x0 = 1 makes x1 and x2 run after one another.
    rows = [({1: 1, 2: -1}, 0, INF), ({2: 1, 1: -1, 0: -1}, 0, INF)]
    system = LinearSystem.from_rows(rows, [0, 0, 0], [1, upper, upper])
    before, propagate.STEPS = propagate.STEPS, 100
    try:
        found = probe_bounds(system, propagate_bounds(system, backend="cpu"))
    finally:
        propagate.STEPS = before
    assert found.bounds.status == "fixpoint" and found.bounds.upper[0] == 1


@pytest.mark.gpu
@pytest.mark.parametrize(("seed", "count"), [(1, 30), (2, 120), (3, 700), (4, 3000), (5, 3001)])
def test_probes_on_a_device_are_those_of_the_processor(seed, count):
    skip_without_gpu()
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceProbes

    system = sparse_binaries(seed, count)
    bounds = propagate_bounds(system, backend="cpu")
    assert bounds.status == "fixpoint"
    tried = two_valued(bounds, system.integral)
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    rows = linear_rows_of(system)
    given = rows, bounds, np.repeat(tried, 2), values, OUTWARD
    assert np.array_equal(failures_of(*given, DeviceProbes(rows)), failures_of(*given))
    for block in (64, 1 << 14):
        with tuned(probe_device_block=block):
            found = [probe_bounds(system, bounds, backend=backend) for backend in ("cuda", "cpu")]
        assert found[0].bounds.status == found[1].bounds.status
        if found[0].bounds.status == "fixpoint":
            assert found[0].bounds.lower.tobytes() == found[1].bounds.lower.tobytes()
            assert found[0].bounds.upper.tobytes() == found[1].bounds.upper.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(8))
def test_probes_of_reals_on_a_device(seed):
    skip_without_gpu()
    from oocbe.propagation.kernels.cuda.linear_rows import DeviceProbes

    random = np.random.default_rng(seed)
    rows = []
    for _ in range(60):
        terms = random.choice(80, int(random.integers(2, 40)), replace=False).tolist()
        rows.append(({v: int(random.choice([-3, -1, 1, 2])) / 4 for v in terms}, -INF, int(random.integers(0, 4))))
    system = LinearSystem.from_rows(rows, [0] * 80, [1] * 60 + [4] * 20, [True] * 60 + [False] * 20)
    bounds = propagate_bounds(system, backend="cpu")
    assert bounds.status == "fixpoint"
    tried = two_valued(bounds, system.integral)
    values = np.stack([bounds.lower[tried], bounds.upper[tried]], axis=1).reshape(-1)
    rows = linear_rows_of(system)
    given = rows, bounds, np.repeat(tried, 2), values, OUTWARD
    assert np.array_equal(failures_of(*given, DeviceProbes(rows)), failures_of(*given))
