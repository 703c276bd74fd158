"""Buckets on the device: the same rows in the same order as on the CPU, bit for bit for integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oocbe.elimination.buckets.forward import Forward, RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import UsageError
from oocbe.formats import read
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.semiring import MIN_SUM, SEMIRINGS
from oocbe.stress.tables import random_network
from oocbe.tables.residence import to_host
from tests.helpers.bound_sources import ExactSource
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force

needs_device = pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}")


@pytest.fixture(scope="module", autouse=True)
def backend():
    """These tests name their engines themselves; the folder's fixture would run them twice."""


@pytest.fixture(params=[0, 1 << 70], ids=["values searched", "rows read"])
def units_of_levels(request, monkeypatch):
    """What the units of levels are, whatever their number."""
    monkeypatch.setattr("oocbe.kernels.cuda.buckets.bucket_join.ROWS_A_SEARCH", request.param)


def messages(problem, semiring, order, engine, dominance=True, bounds=None):
    """Value of the problem, and keys and values of every message in the order they were made."""
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepare(problem, semiring, order), dominance, store, engine=engine, bounds=bounds).run()
        tables = [to_host(m.table()) for bucket in outcome.buckets for m in bucket.messages]
    return outcome.value, [(t.layout.scope, t.keys, t.values) for t in tables]


def same(first, second, exact):
    assert (first[0] is None) == (second[0] is None)
    assert len(first[1]) == len(second[1])
    for (scope1, keys1, values1), (scope2, keys2, values2) in zip(first[1], second[1], strict=True):
        assert scope1 == scope2
        assert np.array_equal(keys1, keys2)
        assert values1.dtype == values2.dtype
        if exact:
            assert np.array_equal(values1, values2)
        else:
            np.testing.assert_allclose(values1, values2, rtol=1e-12)


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_random_problems_give_the_same_messages(random_problem, units_of_levels, semiring, seed):
    problem = random_problem(seed, variables=9, linear=False)
    order = np.random.default_rng(seed).permutation(9).tolist()
    on_cpu = messages(problem, semiring, order, BucketEngine("cpu"))
    on_device = messages(problem, semiring, order, BucketEngine("cuda"))
    same(on_cpu, on_device, exact=prepare(problem, semiring, order).dtype.kind == "i")


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("with_tables", [True, False], ids=["additive bound", "constant bound"])
@pytest.mark.parametrize("above", [1, 4, 100])
@pytest.mark.parametrize("seed", range(examples(80)))
def test_rows_that_no_completion_makes_good_enough(random_problem, units_of_levels, seed, above, with_tables):
    problem = replace(random_problem(seed, variables=9, linear=False), upper_bound=None).in_semiring(MIN_SUM)
    best = brute_force(problem)
    if best is None:
        pytest.skip("nothing is feasible")
    order = np.random.default_rng(seed).permutation(9).tolist()
    found = []
    for backend in ("cpu", "cuda"):
        source = ExactSource(problem, seed, best + above, with_tables)  # draws anew at each call
        limited = problem.below(best + above)
        found.append(messages(limited, MIN_SUM, order, BucketEngine(backend), seed % 2 == 0, source))
    same(*found, exact=prepare(problem, MIN_SUM, order).dtype.kind == "i")
    assert found[0][0] == pytest.approx(best)


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("domain", [2, 5, 70])
def test_networks_with_small_and_large_domains(domain):
    problem = random_network(8 if domain < 70 else 4, domain, 0.5, seed=domain)
    order = list(range(len(problem.variables)))
    same(
        messages(problem, problem.semiring, order, BucketEngine("cpu")),
        messages(problem, problem.semiring, order, BucketEngine("cuda")),
        exact=True,
    )


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("dominance", [True, False])
@pytest.mark.parametrize("device_work", [0, 100])
def test_a_day_of_photographs_and_buckets_on_both_sides(dominance, device_work):
    problem = read("examples/daily.spot")
    order = list(range(len(problem.variables)))
    engine = BucketEngine("auto", device_work=device_work)
    assert engine.uses_device
    on_cpu = messages(problem, problem.semiring, order, BucketEngine("cpu"), dominance)
    same(on_cpu, messages(problem, problem.semiring, order, engine, dominance), exact=True)
    assert on_cpu[0] == 2112


@pytest.mark.gpu
@needs_device
def test_little_device_memory_gives_smaller_pieces_and_the_same_rows(monkeypatch):
    from oocbe.kernels.cuda.buckets import bucket_join

    problem = read("examples/daily.spot")
    order = list(range(len(problem.variables)))
    on_cpu = messages(problem, problem.semiring, order, BucketEngine("cpu"))
    monkeypatch.setattr(bucket_join, "_free_memory", lambda: 4096)
    same(on_cpu, messages(problem, problem.semiring, order, BucketEngine("cuda")), exact=True)


@pytest.mark.gpu
@needs_device
def test_the_row_limit_holds_on_the_device():
    problem = read("examples/daily.spot")
    prepared = prepare(problem, problem.semiring, list(range(len(problem.variables))))
    with MessageStore(1 << 30) as store, pytest.raises(RowCapError, match="more than 3 rows"):
        Forward(prepared, True, store, row_cap=3, engine=BucketEngine("cuda")).run()


@pytest.mark.skipif(why_unavailable() is None, reason="there is a CUDA device")
def test_without_a_device_auto_works_on_the_cpu_and_cuda_says_why():
    assert not BucketEngine("auto").uses_device
    with pytest.raises(UsageError, match="the cuda backend cannot be used"):
        BucketEngine("cuda")
