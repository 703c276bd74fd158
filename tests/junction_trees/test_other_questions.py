"""Best assignments, samples and expected counts of small networks, against enumeration with fractions."""

import math

import numpy as np
import pytest

import oocbe
from oocbe.junction_trees.tree import JunctionTree
from tests.helpers.effort import examples
from tests.helpers.killed_trees import stored_tree
from tests.helpers.small_networks import enumerated, random_network, random_product, summed


def observed(random, problem, count=2):
    some = random.choice(len(problem.sizes), count, replace=False).tolist()
    return {v: int(random.integers(problem.sizes[v])) for v in some}


def named(problem, values):
    return {problem.variables[v].name: value for v, value in values.items()}


def assigned(problem, labels):
    index = {v.name: number for number, v in enumerate(problem.variables)}
    found = {}
    for name, label in labels.items():
        variable = problem.variables[index[name]]
        found[index[name]] = [variable.label(i) for i in range(variable.size)].index(label)
    return found


@pytest.mark.parametrize("seed", range(examples(80)))
def test_best_assignments(seed):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random)
    tree = JunctionTree(problem, order_seconds=0)
    seen = observed(random, problem)
    soft = next(v for v in range(len(problem.sizes)) if v not in seen)
    likelihood = random.random(problem.sizes[soft])
    known = {v: np.eye(problem.sizes[v])[x] for v, x in seen.items()} | {soft: likelihood}
    weights = enumerated(problem, known)
    tree.observe(named(problem, seen), likelihood={problem.variables[soft].name: likelihood})
    found = tree.mpe()
    some = sorted(random.choice(len(problem.sizes), 3, replace=False).tolist())
    maximised = tree.marginal_map([problem.variables[v].name for v in some])
    if weights.sum() == 0:
        assert found is None
        assert maximised is None
        return
    assignment = assigned(problem, found.values)
    assert len(assignment) == len(problem.sizes)
    best = weights.max()
    assert float(weights[tuple(assignment[v] for v in range(len(assignment)))]) == pytest.approx(float(best), rel=1e-12)
    assert found.logarithm == pytest.approx(math.log(best), rel=1e-12, abs=1e-13)
    others = tuple(v for v in range(len(problem.sizes)) if v not in some)
    left = weights.sum(axis=others)
    chosen = assigned(problem, maximised.values)
    assert sorted(chosen) == some
    assert float(left[tuple(chosen[v] for v in some)]) == pytest.approx(float(left.max()), rel=1e-12)
    assert maximised.logarithm == pytest.approx(math.log(left.max()), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("space", ["auto", "log"])
@pytest.mark.parametrize("seed", range(4))
def test_samples_follow_the_posterior(seed, space):
    """Pearson's statistic of all assignments that are expected at least five times, at one in a million."""
    random = np.random.default_rng(seed)
    problem = random_network(random, variables=6)
    tree = JunctionTree(problem, order_seconds=0, space=space)
    seen = {0: int(tree.sample(1, seed).indices[0, 0])}
    tree.observe(named(problem, seen))
    weights = enumerated(problem, {v: np.eye(problem.sizes[v])[x] for v, x in seen.items()})
    expected = 20_000 * summed(weights, list(range(6)))
    drawn = tree.sample(20_000, seed=seed).indices
    assert drawn.shape == (20_000, 6)
    counts = np.zeros(problem.sizes)
    np.add.at(counts, tuple(drawn.T), 1)
    assert (counts[expected == 0] == 0).all()
    common = expected >= 5
    cells = int(common.sum())
    statistic = float(((counts - expected)[common] ** 2 / expected[common]).sum())
    # Wilson and Hilferty 1931: the cube root of a chi-square is nearly normal.
    freedom = max(1, cells - 1)
    normal = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert normal < 4.75
    assert (drawn == tree.sample(20_000, seed=seed).indices).all()
    assert cells == 1 or (drawn != tree.sample(20_000, seed=seed + 1).indices).any()


@pytest.mark.parametrize("space", ["auto", "log"])
@pytest.mark.parametrize("seed", range(examples(32)))
def test_expected_counts(seed, space):
    random = np.random.default_rng(seed)
    problem = random_network(random, variables=6)
    tree = JunctionTree(problem, order_seconds=0, space=space)
    cases = [observed(random, problem, int(random.integers(0, 4))) for _ in range(40)]
    expected = [np.zeros([problem.sizes[v] for v in f.scope]) for f in problem.functions]
    possible = 0
    for case in cases:
        weights = enumerated(problem, {v: np.eye(problem.sizes[v])[x] for v, x in case.items()})
        if weights.sum() == 0:
            continue
        possible += 1
        for own, f in zip(expected, problem.functions, strict=True):
            own += summed(weights, list(f.scope))
    found = tree.expected_counts([named(problem, case) for case in cases])
    for own, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-11, atol=1e-13)
        assert own.values.sum() == pytest.approx(possible)


@pytest.mark.parametrize("make", [lambda problem: JunctionTree(problem, order_seconds=0), stored_tree])
def test_expected_counts_of_cases_whose_messages_are_scaled(make):
    """A message over a hundred observations is beyond the range that is kept, and divided by its greatest number."""
    random = np.random.default_rng(7)
    steps, states = 150, 4
    variables = [oocbe.Variable(f"{kind}{t}", states) for t in range(steps) for kind in ("state", "seen")]
    start = random.dirichlet(np.ones(states))
    move, show = random.dirichlet(np.ones(states), (2, steps, states))
    functions = [oocbe.Function.from_array((0,), start)]
    functions += [oocbe.Function.from_array((2 * t - 2, 2 * t), move[t]) for t in range(1, steps)]
    functions += [oocbe.Function.from_array((2 * t, 2 * t + 1), show[t]) for t in range(steps)]
    problem = oocbe.Problem(tuple(variables), tuple(functions), semiring=oocbe.SUM_PRODUCT)
    seen = random.integers(states, size=steps)
    forward, backward = np.zeros((steps, states)), np.ones((steps, states))
    for t in range(steps):
        forward[t] = (forward[t - 1] @ move[t] if t else start) * show[t][:, seen[t]]
        forward[t] /= forward[t].sum()
    for t in range(steps - 2, -1, -1):
        backward[t] = move[t + 1] @ (show[t + 1][:, seen[t + 1]] * backward[t + 1])
        backward[t] /= backward[t].sum()
    both = [forward[t - 1][:, None] * move[t] * (show[t][:, seen[t]] * backward[t]) for t in range(1, steps)]
    found = make(problem).expected_counts([{f"seen{t}": int(seen[t]) for t in range(steps)}, {}])
    prior = start.copy()
    for t in range(1, steps):
        np.testing.assert_allclose(found[t], both[t - 1] / both[t - 1].sum() + prior[:, None] * move[t], atol=1e-12)
        prior = prior @ move[t]


def test_impossible_evidence_has_no_samples_and_no_explanation():
    problem = oocbe.Problem(
        (oocbe.Variable("a", 2),), (oocbe.Function.from_array((0,), [1.0, 0.0]),), semiring=oocbe.SUM_PRODUCT
    )
    tree = JunctionTree(problem)
    assert tree.sample(3).indices.tolist() == [[0], [0], [0]]
    tree.observe({"a": 1})
    assert tree.mpe() is None
    assert tree.marginal_map(["a"]) is None
    with pytest.raises(oocbe.UsageError, match="impossible"):
        tree.sample(1)
    assert tree.expected_counts([{"a": 1}, {"a": 0}, {}])[0].values.tolist() == [2, 0]
