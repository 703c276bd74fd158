"""Messages that were forgotten have the values that they had, and the backward pass finds the same assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.preparation.prepare import prepare
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from oocbe.stress.tables import grid_network, random_network
from tests.helpers.effort import examples

needs_device = pytest.mark.skipif(why_unavailable() is not None, reason=f"no CUDA device: {why_unavailable()}")


class ForgetfulStore(MessageStore):
    """Forgets each message that may be forgotten as soon as it has been joined."""

    def joined(self, message):
        if not self._forget(message):
            super().joined(message)


def forward(problem, semiring, store, tables, may_forget=True):
    prepared = prepare(problem, semiring, list(range(len(problem.variables))))
    return prepared, Forward(prepared, True, store, tables=tables).run(may_forget=may_forget)


def probabilities(seed, variables=9):
    """A network whose products leave the range of floats unless they are scaled."""
    random = np.random.default_rng(seed)
    sizes = [2 + v % 2 for v in range(variables)]
    functions = []
    for scope in itertools.combinations(range(variables), 2):
        if random.random() < 0.4:
            values = random.random([sizes[v] for v in scope]) * 1e-90
            values[random.random(values.shape) < 0.2] = 0.0
            functions.append(Function.from_array(scope, values))
    return Problem(
        tuple(Variable(f"v{v}", size) for v, size in enumerate(sizes)), tuple(functions), semiring=MAX_PRODUCT
    )


CASES = {
    "grid": (grid_network(4, 4, seed=1), MIN_SUM),
    "chain of grids": (grid_network(5, 2, tightness=0.1, seed=3), MIN_SUM),
    "maximum": (random_network(9, 3, 0.4, seed=2), MAX_SUM),
}


@pytest.mark.parametrize("most", [1, 4, 1 << 20])
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
@pytest.mark.parametrize("name", CASES)
def test_forgotten_messages_have_the_values_that_they_had(tune, name, tables, most):
    tune(most_lookups=most, slow_lookups=1)
    problem, semiring = CASES[name]
    with MessageStore(1 << 30) as store, ForgetfulStore(1 << 30) as forgetful:
        prepared, kept = forward(problem, semiring, store, tables, may_forget=False)
        _, outcome = forward(problem, semiring, forgetful, tables)
        assert outcome.value == kept.value
        pairs = [
            (one, other)
            for a, b in zip(kept.buckets, outcome.buckets, strict=True)
            for one, other in zip(a.messages, b.messages, strict=True)
        ]
        forgotten = [other for _, other in pairs if other.is_forgotten]
        assert (len(forgotten) == 0) == (most == 1)
        assert forgetful.in_memory == sum(other.nbytes for _, other in pairs if not other.is_forgotten)
        for one, other in pairs:
            sizes = [problem.sizes[v] for v in one.scope]
            values, feasible = outcome.recomputation.cells(other, {}, one.scope)
            for cell in np.ndindex(*sizes):
                expected = one.value_at(dict(zip(one.scope, cell, strict=True)))
                # Dominance drops rows of what is kept; what is computed again has them.
                if expected is not None:
                    assert feasible[cell]
                    assert values[cell] == expected
        assignment = backward_pass(prepared, outcome.buckets, outcome.recomputation)
        assert assignment == backward_pass(prepared, kept.buckets)
    assert problem.in_semiring(semiring).evaluate(assignment) == outcome.value


def test_chains_of_forgotten_messages_stay_short(tune):
    """With two values a variable along a chain, one message in three is kept where four lookups are allowed."""
    tune(most_lookups=4)
    costs = np.arange(4).reshape(2, 2)
    chain = Problem(
        tuple(Variable(f"v{i}", 2) for i in range(13)),
        tuple(Function.from_array((i, i + 1), costs) for i in range(12)),
    )
    with ForgetfulStore(1 << 30) as store:
        _, outcome = forward(chain, MIN_SUM, store, "complete")
        forgotten = [m.is_forgotten for b in outcome.buckets for m in b.messages]
    assert forgotten == ([True, True, False] * 4)[: len(forgotten)]


@pytest.mark.parametrize("seed", range(examples(32)))
def test_products_that_would_underflow(seed):
    problem = probabilities(seed)
    with MessageStore(1 << 30) as store, ForgetfulStore(1 << 30) as forgetful:
        prepared, kept = forward(problem, MAX_PRODUCT, store, "complete", may_forget=False)
        _, outcome = forward(problem, MAX_PRODUCT, forgetful, "complete")
        assert any(m.is_forgotten for b in outcome.buckets for m in b.messages)
        assert backward_pass(prepared, outcome.buckets, outcome.recomputation) == backward_pass(prepared, kept.buckets)


def test_less_is_written_where_memory_is_short():
    """What has been joined is forgotten before it is written to disk."""
    problem = grid_network(6, 4, tightness=0.0, seed=2)
    written = []
    for may_forget in (False, True):
        with MessageStore(60_000) as store:
            prepared, outcome = forward(problem, MIN_SUM, store, "complete", may_forget)
            written.append(sum(m.nbytes for b in outcome.buckets for m in b.messages if m._stored is not None))
            assert any(m.is_forgotten for b in outcome.buckets for m in b.messages) == may_forget
            assert problem.evaluate(backward_pass(prepared, outcome.buckets, outcome.recomputation)) == outcome.value
    assert written[1] < written[0]


@pytest.mark.gpu
@needs_device
@pytest.mark.parametrize("tables", ["incomplete", "complete"])
def test_a_device_that_fills_up_sends_nothing_home_that_can_be_forgotten(monkeypatch, tune, tables):
    tune(device_used_share=-1, slow_lookups=1)
    problem = grid_network(5, 5, tightness=0.2, seed=4)
    fetched, fetch = [], MessageStore._fetch

    def watched(store, message, besides=()):
        fetched.append(message)
        fetch(store, message, besides)

    monkeypatch.setattr(MessageStore, "_fetch", watched)
    with MessageStore(1 << 30) as store:
        prepared = prepare(problem, MIN_SUM, list(range(len(problem.variables))))
        outcome = Forward(prepared, True, store, engine=BucketEngine("cuda"), tables=tables).run(may_forget=True)
        found = [m for b in outcome.buckets for m in b.messages]
        assert sum(m.is_forgotten for m in found) > len(fetched)
        assignment = backward_pass(prepared, outcome.buckets, outcome.recomputation)
    assert problem.evaluate(assignment) == outcome.value == oocbe.solve(problem, backend="cpu").value
