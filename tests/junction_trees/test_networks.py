"""Real belief networks: beside pyAgrum, beside elimination, and against what must hold of any tree."""

import gzip
import json
import math

import numpy as np
import pytest

import oocbe
from oocbe.api.tasks import marginals as task
from oocbe.junction_trees import tree as tree_module
from oocbe.model.settings.options import SolveOptions

SMALL = ["alarm", "hailfinder", "water", "mildew", "pigs"]


def without(large: tuple[str, ...], *names: str) -> list:
    """The networks, of which the large ones, dearer than all others together here, are tried by slow tests."""
    return [pytest.param(name, marks=pytest.mark.slow if name in large else ()) for name in names]


@pytest.fixture(scope="module")
def network(request):
    cache = {}

    def of(name, data):
        if name not in cache:
            problem = oocbe.read(data(f"bif/{name}.bif.gz"))
            with gzip.open(data(f"evidence/{name}.20.json.gz"), "rt") as file:
                cache[name] = problem, json.load(file), oocbe.JunctionTree(problem, order_seconds=0)
        return cache[name]

    return of


@pytest.mark.parametrize("name", without(("mildew", "pigs"), *SMALL, "andes", "win95pts", "insurance"))
def test_posteriors_are_those_of_pyagrum(name, network, data, tmp_path):
    """Its numbers of files pass through float32."""
    gum = pytest.importorskip("pyagrum")
    problem, cases, tree = network(name, data)
    plain = tmp_path / "network.bif"
    plain.write_bytes(gzip.decompress(data(f"bif/{name}.bif.gz").read_bytes()))
    engine = gum.LazyPropagation(gum.loadBN(str(plain)))
    for case in ({}, *cases[:2]):
        engine.eraseAllEvidence()
        engine.setEvidence(case)
        engine.makeInference()
        tree.retract()
        tree.observe(case)
        tree.calibrate()
        for v in problem.variables:
            if v.name not in case:
                np.testing.assert_allclose(tree.marginal(v.name), engine.posterior(v.name).toarray(), atol=1e-6)
        probability = engine.evidenceProbability() if case else 1.0
        assert tree.log_evidence == pytest.approx(math.log(probability), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", without(("mildew", "pigs"), *SMALL))
def test_posteriors_are_those_of_elimination(name, network, data, monkeypatch):
    """The pass back over messages, which is what answers where there is no room for a tree."""
    problem, cases, tree = network(name, data)
    index = {v.name: i for i, v in enumerate(problem.variables)}
    case = cases[0]
    evidence = {index[k]: problem.variables[index[k]].labels.index(label) for k, label in case.items()}
    monkeypatch.setattr(task, "_marginals_by_tree", lambda *_: None)
    result = task.marginals(problem.with_evidence(evidence), SolveOptions(order_seconds=0, backend="cpu"))
    tree.retract()
    tree.observe(case)
    assert tree.log_evidence == pytest.approx(result.value, rel=1e-10)
    for v, own in zip(problem.variables, result.marginals, strict=True):
        np.testing.assert_allclose(tree.marginal(v.name), own, atol=1e-10)


@pytest.mark.parametrize("name", without(("mildew", "pigs"), *SMALL))
def test_batches_single_cases_and_trees_of_groups_agree(name, network, data, monkeypatch, tune):
    problem, cases, tree = network(name, data)
    batch = tree.batch(cases[:8])
    assert (batch.status == "exact").all()
    names = [v.name for v in problem.variables]
    for i in (0, 7):
        tree.retract()
        tree.observe(cases[i])
        assert batch.log_evidence[i] == pytest.approx(tree.log_evidence, rel=1e-12)
        for v in names:
            np.testing.assert_allclose(batch.marginals[v][i], tree.marginal(v), atol=1e-12)
    tune(group_tree_variable_seconds=0.0, alternative_share=math.inf)
    grouped = tree.batch(cases[:5], targets=names[::3])
    np.testing.assert_allclose(grouped.log_evidence, batch.log_evidence[:5], rtol=1e-12)
    for v in names[::3]:
        np.testing.assert_allclose(grouped.marginals[v], batch.marginals[v][:5], atol=1e-11)


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "water"])
def test_counts_and_explanations_of_networks(name, network, data):
    problem, cases, tree = network(name, data)
    for own in tree.expected_counts(cases):
        assert own.values.sum() == pytest.approx(len(cases))
    index = {v.name: i for i, v in enumerate(problem.variables)}
    tree.retract()
    tree.observe(cases[3])
    best = tree.mpe()
    evidence = {index[k]: problem.variables[index[k]].labels.index(label) for k, label in cases[3].items()}
    other = oocbe.most_probable_explanation(problem.with_evidence(evidence), order_seconds=0, backend="cpu")
    assert best.logarithm == pytest.approx(other.value, rel=1e-10)
    assert math.log(problem.evaluate(best.indices)) == pytest.approx(best.logarithm, rel=1e-10)
    drawn = tree.sample(2000, seed=1).indices
    for v in problem.variables[:10]:
        shares = np.bincount(drawn[:, index[v.name]], minlength=v.size) / 2000
        spread = np.sqrt(tree.marginal(v.name) / 2000)
        assert (np.abs(shares - tree.marginal(v.name)) <= 5 * spread + 1e-12).all()


def test_tables_and_counts_of_all_variables_are_found_once(monkeypatch):
    """Each table took a scan of all functions: 0.2 seconds of a network of 8,000."""
    variables = tuple(oocbe.Variable(f"x{i}", 2) for i in range(5))
    channel = np.array([[0.75, 0.25], [0.5, 0.5]])
    functions = [oocbe.Function.from_array((0,), [0.25, 0.75])]
    functions += [oocbe.Function.from_array((i, i + 1), channel) for i in range(4)]
    tree = oocbe.JunctionTree(oocbe.Problem(variables, tuple(functions), semiring="sum-product"))
    calls = []
    given = tree_module.conditionals
    monkeypatch.setattr(tree_module, "conditionals", lambda problem: calls.append(1) or given(problem))
    tree.table("x3").values[:] = 0  # the caller's own
    assert all((tree.table(f"x{i}").values == channel).all() for i in range(1, 5))
    assert (tree.table("x0").values == [0.25, 0.75]).all()
    assert len(calls) == 1
    counts = tree.expected_counts([{"x0": "1"}])
    assert counts["x2"] is counts[2] and counts["x0"] is counts["x0"] is counts[0]


@pytest.mark.parametrize("is_hard", [False, True])
def test_few_rows_of_a_large_scope_are_sorted_instead_of_an_array_filled(is_hard, monkeypatch):
    """Arrays of all assignments took half of the 1.3 seconds for eleven lists of 4,000 rows."""
    size = 100
    values = np.random.default_rng(5).permutation(size)
    rows = np.stack([np.arange(size), values], axis=1)
    weights = 1.0 + np.arange(size) % 7
    soft = oocbe.Function((1, 0), rows[:, ::-1], weights)
    parts = {"constraints": (oocbe.Constraint((0, 1), rows, allowed=True),)} if is_hard else {}
    problem = oocbe.Problem(
        (oocbe.Variable("a", size), oocbe.Variable("b", size)),
        (oocbe.Function.from_array((0,), weights),) if is_hard else (soft,),
        semiring="sum-product",
        **parts,
    )

    def refuse(self, sizes):
        assert len(self.scope) < 2
        return given(self, sizes)

    kind = oocbe.Constraint if is_hard else oocbe.Function
    given = kind.to_array
    monkeypatch.setattr(kind, "to_array", refuse)
    tree = oocbe.JunctionTree(problem)
    found = tree.marginal("b")
    assert found[values] == pytest.approx(weights / weights.sum())
    assert math.isclose(tree.log_evidence, math.log(weights.sum()))
