"""Batches on the device against the CPU's."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest

import oocbe
from oocbe.errors import ResourceError
from oocbe.junction_trees import batches
from oocbe.junction_trees.conditioning import condition
from oocbe.junction_trees.kernels.cuda import sweeps
from oocbe.junction_trees.query_elimination.answer import QueryAnswer
from oocbe.junction_trees.tree import JunctionTree
from oocbe.kernels.cuda.device import cupy
from tests.helpers.small_networks import enumerated, random_network, random_product, summed
from tests.kernels.conftest import skip_without_gpu

pytestmark = pytest.mark.gpu

CLOSE = {"rtol": 1e-12, "atol": 1e-15}


@pytest.fixture(autouse=True)
def _device():
    skip_without_gpu()


def both(problem, **options):
    """The same tree twice, swept over on the CPU and on the device."""
    names = [v.name for v in problem.variables]
    return tuple(JunctionTree(problem, order=names, backend=backend, **options) for backend in ("cpu", "cuda"))


def random_cases(random, problem, count, most=3):
    """Value indices (cases, variables), up to so many observed in each case."""
    observed = np.full((count, len(problem.sizes)), -1)
    for case in observed:
        for v in random.choice(len(case), int(random.integers(0, most + 1)), replace=False).tolist():
            case[v] = random.integers(problem.sizes[v])
    return observed


def assert_same(found, expected):
    assert found.status.tolist() == expected.status.tolist()
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-12, atol=1e-12)
    for answers, others in ((found.marginals, expected.marginals), (found.joints, expected.joints)):
        assert list(answers) == list(others)
        for name, numbers in answers.items():
            np.testing.assert_allclose(numbers, others[name], **CLOSE)


@pytest.mark.parametrize("seed", range(12))
def test_batches_are_those_of_the_cpu(seed, monkeypatch):
    monkeypatch.setattr(sweeps, "CHUNK", (1, 2, 128)[seed % 3])
    monkeypatch.setattr(sweeps, "STRETCH_ROWS", (1, 1 << 18)[seed % 2])
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random, variables=9)
    here, there = both(problem)
    for count in (1, 33, 70, 300):
        cases = random_cases(random, problem, count)
        soft = {v.name: 5 * random.random((count, v.size)) for v in problem.variables[seed % 3 : seed % 3 + 2]}
        groups = [[problem.variables[0].name, problem.variables[-1].name]]
        for likelihood in (None, soft):
            found = there.batch(cases, joint=groups, likelihood=likelihood)
            assert_same(found, here.batch(cases, joint=groups, likelihood=likelihood))


def test_a_batch_equals_enumeration():
    random = np.random.default_rng(40)
    problem = random_network(random)
    cases = random_cases(random, problem, 20)
    found = both(problem)[1].batch(cases)
    for i, case in enumerate(cases):
        weights = enumerated(problem, {v: np.eye(problem.sizes[v])[x] for v, x in enumerate(case) if x >= 0})
        total = weights.sum()
        assert found.status[i] == ("exact" if total else "impossible")
        if not total:
            assert found.log_evidence[i] == -math.inf
        for v, variable in enumerate(problem.variables):
            expected = summed(weights, [v]) if total else np.zeros(variable.size)
            np.testing.assert_allclose(found.marginals[variable.name][i], expected, **CLOSE)


def test_thousands_of_cases_in_blocks(tune):
    random = np.random.default_rng(41)
    problem = random_network(random, variables=12)
    here, there = both(problem)
    cases = random_cases(random, problem, 5000)
    expected = here.batch(cases)
    assert_same(there.batch(cases), expected)
    tune(device_block_cases=700)
    first = there.batch(cases)
    assert_same(first, expected)
    again = there.batch(cases)  # no sum depends on how threads are scheduled
    for name, numbers in first.marginals.items():
        np.testing.assert_array_equal(numbers, again.marginals[name])


def test_some_targets_and_cases_that_observe_nothing():
    random = np.random.default_rng(42)
    problem = random_network(random, variables=9)
    here, there = both(problem)
    cases = random_cases(random, problem, 50)
    assert_same(there.batch(cases, ["v3", "v8"]), here.batch(cases, ["v3", "v8"]))
    assert_same(there.batch(cases, []), here.batch(cases, []))
    assert_same(there.batch([{}, {}]), here.batch([{}, {}]))
    assert there.batch([]).marginals["v0"].shape == (0, problem.sizes[0])


def test_messages_are_scaled():
    """A chain of observations each of which is improbable: no float64 holds the product."""
    random = np.random.default_rng(43)
    count = 400
    hidden = [oocbe.Variable(f"h{i}", 3) for i in range(count)]
    seen = [oocbe.Variable(f"s{i}", 2) for i in range(count)]
    functions = [oocbe.Function.from_array((i, i + 1), random.dirichlet([1, 1, 1], 3)) for i in range(count - 1)]
    functions += [
        oocbe.Function.from_array((i, count + i), [[x, 1 - x] for x in random.random(3) / 50]) for i in range(count)
    ]
    problem = oocbe.Problem((*hidden, *seen), tuple(functions), semiring=oocbe.SUM_PRODUCT)
    here, there = (JunctionTree(problem, order_seconds=0, backend=backend) for backend in ("cpu", "cuda"))
    cases = np.full((5, 2 * count), -1)
    cases[1, count:] = 0
    cases[2:, count:] = random.integers(0, 2, (3, count))
    expected = here.batch(cases)
    assert expected.log_evidence.min() < -1000
    assert_same(there.batch(cases), expected)


def test_what_probabilities_would_lose_is_computed_in_logarithms():
    count = 100
    variables = (oocbe.Variable("cause", 2), *(oocbe.Variable(f"effect{i}", 2) for i in range(count)))
    functions = [oocbe.Function.from_array((0, 1 + i), [[1e-4, 1 - 1e-4], [1.0, 0.0]]) for i in range(count)]
    functions.append(oocbe.Function.from_array((0,), [0.5, 0.5]))
    there = JunctionTree(
        oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT), order_seconds=0, backend="cuda"
    )
    case = {f"effect{i}": 0 for i in range(count)}
    found = there.batch([{"cause": 0} | case, case, case | {"effect0": 1, "cause": 1}, {}])
    assert found.log_evidence[0] == pytest.approx(math.log(0.5) + count * math.log(1e-4), rel=1e-12)
    assert found.status.tolist() == ["exact", "exact", "impossible", "exact"]
    np.testing.assert_allclose(found.marginals["cause"], [[1, 0], [0, 1], [0, 0], [0.5, 0.5]], atol=1e-15)


def test_trees_of_groups_have_inputs(monkeypatch, tune):
    made = []

    def record(*arguments):
        made.append(condition(*arguments[:3], np.inf, arguments[4]))
        return made[-1]

    monkeypatch.setattr(batches, "condition", record)
    tune(group_tree_variable_seconds=0.0)
    random = np.random.default_rng(44)
    problem = random_network(random, variables=9)
    here, there = both(problem)
    cases = np.full((60, 9), -1)
    for v in (2, 5):
        cases[:, v] = random.integers(0, problem.sizes[v], len(cases))
    soft = {"v3": random.random((len(cases), problem.sizes[3]))}
    assert_same(there.batch(cases, likelihood=soft), here.batch(cases, likelihood=soft))
    assert any(tree is not None and tree.inputs for tree in made)


def test_blocks_are_smaller_where_memory_is_short(monkeypatch, tune):
    from oocbe.junction_trees.kernels.cuda.sweeps import Block
    from oocbe.kernels.cuda.transfer.memory import free_blocks, held_bytes, limit_bytes, set_limit

    random = np.random.default_rng(45)
    problem = random_network(random, variables=12)
    here, there = both(problem)
    cases = random_cases(random, problem, 20_000)
    expected = here.batch(cases)
    there.batch(cases[:40])
    strides = []
    make = Block.__init__

    def record(self, tree, rows, count, **named):
        strides.append(count)
        make(self, tree, rows, count, **named)

    monkeypatch.setattr(Block, "__init__", record)
    tune(device_tree_share=100)  # more is thought to be free than there is
    free_blocks()
    limit = limit_bytes()
    try:
        set_limit(held_bytes() + (1 << 22))
        assert_same(there.batch(cases), expected)
        free_blocks()
        set_limit(held_bytes() + 1)
        fill = []  # parts of blocks that are in use may be free, and a small tree would find room there
        with suppress(cupy().cuda.memory.OutOfMemoryError):
            while True:
                fill.append(cupy().empty(512, dtype=np.uint8))
        with pytest.raises(ResourceError, match="device memory"):
            both(random_network(random, variables=12))[1].batch(np.full_like(cases, -1))
    finally:
        set_limit(limit)
    assert len(strides) > 1
    assert strides == sorted(strides, reverse=True)


@pytest.mark.parametrize("seed", range(8))
def test_cliques_without_rows_are_joined_on_the_device(seed, tune):
    tune(device_cells=1 if seed % 2 else 20)  # or some cliques there, and their neighbours here
    random = np.random.default_rng(seed)
    problem = random_product(random, zeros=0.1) if seed % 4 > 1 else random_network(random, variables=9)
    weights = enumerated(problem)
    if weights.sum() == 0:
        return
    answer = QueryAnswer.of(problem)
    found = answer.posteriors(range(len(problem.sizes)), "cuda")
    for v in range(len(problem.sizes)):
        np.testing.assert_allclose(found[v], summed(weights, [v]), **CLOSE)
    assert answer.log_evidence("cuda") == pytest.approx(math.log(weights.sum()), rel=1e-12, abs=1e-13)
