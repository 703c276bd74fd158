"""Batches whose cases observe the same variables, answered by a tree of the others."""

import numpy as np
import pytest

from oocbe.junction_trees import batches
from oocbe.junction_trees.conditioning import condition
from oocbe.junction_trees.tree import JunctionTree
from tests.helpers.effort import examples
from tests.helpers.small_networks import random_network, random_product


@pytest.fixture
def eager(monkeypatch, tune):
    """Makes every group worth a tree of its own, and says which were made."""
    made = []

    def record(*arguments):
        made.append(condition(*arguments[:3], np.inf, arguments[4]))
        return made[-1]

    monkeypatch.setattr(batches, "condition", record)
    tune(group_tree_variable_seconds=0.0)
    return made


def random_cases(random, problem, patterns=3, each=6):
    """Cases in random order, as many of each of some sets of observed variables."""
    cases: list[dict[str, int]] = []
    for _ in range(patterns):
        some = random.choice(len(problem.sizes), int(random.integers(0, len(problem.sizes) + 1)), replace=False)
        names = {problem.variables[v].name: problem.sizes[v] for v in some.tolist()}
        cases += [{name: int(random.integers(size)) for name, size in names.items()} for _ in range(each)]
    return [cases[i] for i in random.permutation(len(cases))]


@pytest.mark.parametrize("seed", range(examples(120)))
def test_trees_of_groups_say_what_the_whole_tree_says(seed, eager):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random, variables=8)
    cases = random_cases(random, problem)
    tree = JunctionTree(problem, order_seconds=0)
    soft = {problem.variables[0].name: random.random((len(cases), problem.sizes[0]))} if seed % 3 == 0 else {}
    targets = [v.name for v in problem.variables][:: 1 + seed % 2]
    found = tree.batch(cases, targets, likelihood=soft)
    assert not tree._tree.is_possible or any(c is not None for c in eager)
    for i, case in enumerate(cases):
        tree.retract()
        values = {name: np.eye(tree.marginal(name).shape[0])[value] for name, value in case.items()}
        both = {name: values.get(name, 1.0) * given[i] for name, given in soft.items()}
        if any(not given.any() for given in both.values()):
            continue  # its value has the likelihood 0, which one case by itself may not say
        tree.observe({k: v for k, v in case.items() if k not in both}, likelihood=both)
        assert found.log_evidence[i] == pytest.approx(tree.log_evidence, rel=1e-12, abs=1e-12)
        assert found.status[i] == ("impossible" if tree.log_evidence == -np.inf else "exact")
        assert list(found.marginals) == targets
        for name in targets:
            np.testing.assert_allclose(found.marginals[name][i], tree.marginal(name), rtol=1e-11, atol=1e-14)


def test_barren_variables_go_and_others_stay():
    problem = random_network(np.random.default_rng(1), variables=8, zeros=0)
    tree = JunctionTree(problem, order_seconds=0)._tree
    parents = {f.scope[-1]: set(f.scope[:-1]) for f in problem.functions}
    wanted, frontier = {0}, [0, 3]
    while frontier:  # ancestors of the target and of what is observed
        v = frontier.pop()
        wanted.add(v)
        frontier += parents[v] - wanted
    made = condition(tree, [3], {0}, np.inf, 1 << 30)
    assert set(made.hidden) == wanted - {3}
    assert made.tree.work < tree.work


def test_probabilities_that_do_not_quite_add_up_are_kept():
    problem = random_network(np.random.default_rng(1), variables=8, zeros=0)
    for f in problem.functions:
        f.values[:] *= 1 - 1e-9
    tree = JunctionTree(problem, order_seconds=0)._tree
    made = condition(tree, [3], {0}, np.inf, 1 << 30)
    assert set(made.hidden) == set(range(8)) - {3}
