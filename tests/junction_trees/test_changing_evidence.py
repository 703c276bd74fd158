"""A tree whose evidence changes again and again, beside a batch over all of the states that it was in."""

import numpy as np

from oocbe.junction_trees.query_engine import Calibration
from oocbe.junction_trees.tree import JunctionTree
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from tests.helpers.small_networks import random_network


def grid(side: int, size: int, seed: int) -> Problem:
    """A Markov network whose cliques have many rows, and whose variables are in several cliques."""
    random = np.random.default_rng(seed)
    pairs = [(i * side + j, i * side + j + 1) for i in range(side) for j in range(side - 1)]
    pairs += [(i * side + j, i * side + j + side) for i in range(side - 1) for j in range(side)]
    functions = []
    for pair in pairs:
        weights = random.random((size, size))
        weights[random.random((size, size)) < 0.2] = 0
        functions.append(Function.from_array(pair, weights, infeasible=0.0))
    return Problem(tuple(Variable(f"x{v}", size) for v in range(side * side)), tuple(functions), semiring=SUM_PRODUCT)


def test_posteriors_are_those_of_the_evidence_now():
    problem = grid(4, 4, seed=2)
    tree, random = JunctionTree(problem), np.random.default_rng(5)
    seen, found = [], []
    known: dict[str, int] = {}
    for _ in range(40):
        gone = [name for name in known if random.random() < 0.4]
        if gone:
            tree.retract(*gone)
        for name in gone:
            del known[name]
        new = {f"x{v}": int(random.integers(4)) for v in random.choice(16, 2, replace=False)}
        tree.observe(new)
        known |= new
        seen.append(dict(known))
        found.append((tree.log_evidence, [tree.marginal(v.name) for v in problem.variables]))
    expected = JunctionTree(problem).batch(seen)
    assert (expected.log_evidence > -np.inf).any()
    for case, (logarithm, marginals) in enumerate(found):
        np.testing.assert_allclose(logarithm, expected.log_evidence[case], rtol=1e-10)
        for v, own in zip(problem.variables, marginals, strict=True):
            np.testing.assert_allclose(own, expected.marginals[v.name][case], atol=1e-12)


def test_a_likelihood_with_one_value_left_is_an_observation_and_others_are_none():
    problem = grid(4, 4, seed=2)
    tree = JunctionTree(problem)
    tree.observe({"x5": 1}, likelihood={"x6": [0, 0, 0.3, 0], "x9": [0.2, 0, 0.4, 0.1]})
    before = [tree.marginal(v.name) for v in problem.variables]
    tree.observe({"x6": 2})
    for v, own in zip(problem.variables, before, strict=True):
        np.testing.assert_allclose(tree.marginal(v.name), own, atol=1e-12)


def test_the_second_marginal_computes_those_of_all_variables(monkeypatch):
    """Each sweep for one variable alone would cost as much as the sweep for all."""
    problem = random_network(np.random.default_rng(3), variables=9)
    tree = JunctionTree(problem)
    asked = []
    posteriors = Calibration.posteriors
    monkeypatch.setattr(
        Calibration, "posteriors", lambda self, targets: asked.append(len(targets)) or posteriors(self, targets)
    )
    found = [tree.marginal(v.name) for v in problem.variables]
    assert asked == [1, 8]
    tree.calibrate()
    for v, own in zip(problem.variables, found, strict=True):
        np.testing.assert_array_equal(tree.marginal(v.name), own)
