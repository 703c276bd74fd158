"""Junction trees of small problems against enumeration with fractions."""

import math

import numpy as np
import pytest

import oocbe
from oocbe.junction_trees.tree import JunctionTree
from tests.helpers.effort import examples
from tests.helpers.small_networks import enumerated, random_network, random_product, summed

CLOSE = {"rtol": 1e-12, "atol": 1e-15}


def random_evidence(random, problem, most=4):
    """Values and likelihoods by name, and both as likelihoods by index."""
    values, soft, known = {}, {}, {}
    count = int(random.integers(0, min(most, len(problem.sizes)) + 1))
    for v in random.choice(len(problem.sizes), count, replace=False).tolist():
        name, size = problem.variables[v].name, problem.sizes[v]
        if random.random() < 0.6:
            values[name] = int(random.integers(size))
            known[v] = np.eye(size)[values[name]]
        else:
            soft[name] = known[v] = 5 * random.random(size)
    return values, soft, known


@pytest.mark.parametrize("space", ["auto", "log"])
@pytest.mark.parametrize("seed", range(examples(120)))
def test_everything_equals_enumeration(seed, space):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random)
    tree = JunctionTree(problem, order_seconds=0, space=space)
    for _ in range(3):
        values, soft, known = random_evidence(random, problem)
        weights = enumerated(problem, known)
        total = weights.sum()
        tree.retract()
        tree.observe(values, likelihood=soft)
        batch = tree.batch([values, {}], likelihood={n: np.stack([x, np.ones_like(x)]) for n, x in soft.items()})
        if total == 0:
            assert tree.log_evidence == batch.log_evidence[0] == -math.inf
            assert batch.status[0] == "impossible"
            for v in problem.variables:
                assert (tree.marginal(v.name) == 0).all()
                assert (batch.marginals[v.name][0] == 0).all()
            continue
        assert tree.log_evidence == pytest.approx(math.log(total), rel=1e-12, abs=1e-13)
        assert batch.log_evidence[0] == pytest.approx(tree.log_evidence, rel=1e-12, abs=1e-13)
        assert batch.status[0] == "exact"
        for v, variable in enumerate(problem.variables):
            np.testing.assert_allclose(tree.marginal(variable.name), summed(weights, [v]), **CLOSE)
            np.testing.assert_allclose(batch.marginals[variable.name][0], tree.marginal(variable.name), **CLOSE)
        some = random.permutation(len(problem.sizes))[:3].tolist()
        joint = tree.marginal(*(problem.variables[v].name for v in some))
        np.testing.assert_allclose(joint, summed(weights, some), **CLOSE)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_observing_and_retracting_come_back(seed):
    random = np.random.default_rng(100 + seed)
    problem = random_network(random)
    tree = JunctionTree(problem, order_seconds=0)
    tree.calibrate()
    names = [v.name for v in problem.variables]
    before = [tree.marginal(name) for name in names]
    evidence = tree.log_evidence
    for _ in range(6):
        values, soft, _ = random_evidence(random, problem)
        tree.observe(values, likelihood=soft)
        tree.marginal(names[int(random.integers(len(names)))])
        given = [*values, *soft]
        if given and random.random() < 0.5:
            tree.retract(given[0])
    tree.retract()
    assert tree.evidence == {}
    assert tree.log_evidence == pytest.approx(evidence, abs=1e-13)
    for name, marginal in zip(names, before, strict=True):
        np.testing.assert_allclose(tree.marginal(name), marginal, **CLOSE)


@pytest.mark.parametrize("seed", range(6))
def test_both_sides_of_each_separator_agree(seed):
    random = np.random.default_rng(200 + seed)
    problem = random_network(random, variables=9, zeros=0.1)
    tree = JunctionTree(problem, order_seconds=0)
    tree.observe({"v8": 0})
    cliques = tree._tree.shape.cliques
    assert any(clique.separator for clique in cliques)
    for clique in cliques:
        if clique.separator == 0:
            continue
        shared = [problem.variables[v].name for v in clique.variables[: clique.separator]]
        own = [problem.variables[v].name for v in clique.variables[clique.separator :]]
        above = [problem.variables[v].name for v in cliques[clique.parent].variables]
        below = tree.marginal(*shared, *own).sum(axis=tuple(range(len(shared), len(shared) + len(own))))
        others = [name for name in above if name not in shared]
        across = tree.marginal(*shared, *others).sum(axis=tuple(range(len(shared), len(above))))
        np.testing.assert_allclose(below, across, **CLOSE)


def test_jeffrey_tells_probabilities_from_likelihoods():
    problem = random_network(np.random.default_rng(5), zeros=0)
    tree = JunctionTree(problem, order_seconds=0)
    size = problem.sizes[3]
    wanted = np.arange(1, size + 1) / (size * (size + 1) / 2)
    given = {value: tree.batch([{"v3": value}]).marginals["v0"][0] for value in range(size)}
    tree.revise("v3", wanted)
    np.testing.assert_allclose(tree.marginal("v3"), wanted, **CLOSE)
    np.testing.assert_allclose(tree.marginal("v0"), sum(wanted[x] * given[x] for x in range(size)), **CLOSE)
    tree.revise("v3", wanted[::-1])
    np.testing.assert_allclose(tree.marginal("v3"), wanted[::-1], **CLOSE)
    tree.retract("v3")
    tree.observe(likelihood={"v3": wanted})
    assert not np.allclose(tree.marginal("v3"), wanted)


def test_costs_weigh_by_temperature():
    problem = oocbe.Problem(
        (oocbe.Variable("a", 2), oocbe.Variable("b", 2)),
        (oocbe.Function.from_array((0, 1), [[0, 1500], [3000, np.inf]]),),
    )
    tree = JunctionTree(problem, temperature=1000.0)
    weights = np.exp([[0, -1.5], [-3, -np.inf]])
    np.testing.assert_allclose(tree.marginal("a", "b"), weights / weights.sum(), rtol=1e-13)
    assert tree.log_evidence == pytest.approx(math.log(weights.sum()))
    cold = JunctionTree(problem)  # exp(-3000) is no float64: logarithms hold it
    cold.observe({"a": 1})
    assert cold.log_evidence == pytest.approx(-3000)
    np.testing.assert_allclose(cold.marginal("b"), [1, 0])


def test_what_probabilities_would_lose_is_computed_in_logarithms():
    """A hundred children each 10^-4 times as likely with the only value of their parent that is possible."""
    count = 100
    variables = (oocbe.Variable("cause", 2), *(oocbe.Variable(f"effect{i}", 2) for i in range(count)))
    effect = [[1e-4, 1 - 1e-4], [1.0, 0.0]]
    functions = [oocbe.Function.from_array((0, 1 + i), effect) for i in range(count)]
    functions.append(oocbe.Function.from_array((0,), [0.5, 0.5]))
    problem = oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT)
    tree = JunctionTree(problem, order_seconds=0)
    case = {f"effect{i}": 0 for i in range(count)}
    tree.observe({"cause": 0} | case)
    assert tree.log_evidence == pytest.approx(math.log(0.5) + count * math.log(1e-4), rel=1e-12)
    batch = tree.batch([{"cause": 0} | case, case, case | {"effect0": 1, "cause": 1}, {}])
    assert batch.log_evidence[0] == pytest.approx(tree.log_evidence, rel=1e-12)
    assert batch.status.tolist() == ["exact", "exact", "impossible", "exact"]
    np.testing.assert_allclose(batch.marginals["cause"], [[1, 0], [0, 1], [0, 0], [0.5, 0.5]], atol=1e-15)
    tree.retract()
    np.testing.assert_allclose(tree.marginal("cause"), [0.5, 0.5])


def test_problems_without_variables_or_weights():
    nothing = oocbe.Problem((), (), constant=3.0, semiring=oocbe.SUM_PRODUCT)
    assert JunctionTree(nothing).log_evidence == pytest.approx(math.log(3))
    one = (oocbe.Variable("a", 2),)
    never = oocbe.Problem(one, (oocbe.Function.from_array((0,), [0.0, 0.0]),), semiring=oocbe.SUM_PRODUCT)
    tree = JunctionTree(never)
    assert tree.log_evidence == -math.inf
    assert tree.marginal("a").tolist() == [0, 0]
    assert tree.batch([{}, {"a": 1}]).status.tolist() == ["impossible", "impossible"]
    alone = JunctionTree(oocbe.Problem(one, (), semiring=oocbe.SUM_PRODUCT))
    assert alone.marginal("a").tolist() == [0.5, 0.5]
    assert alone.log_evidence == pytest.approx(math.log(2))
    assert alone.batch([]).marginals["a"].shape == (0, 2)
