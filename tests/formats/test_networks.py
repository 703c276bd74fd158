"""Networks of pyAgrum and pgmpy as problems: the same posteriors, by the same names."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import oocbe
from oocbe.errors import UnsupportedError, UsageError
from tests.helpers.effort import examples


def test_posteriors_are_those_of_pyagrum(tmp_path):
    gum = pytest.importorskip("pyagrum")
    gum.initRandom(5)
    network = gum.fastBN("a{x|y|z}->b[2]->d{p|q};c{1|5|9}->b;a->d", 3)
    problem = oocbe.from_pyagrum(network)
    assert {v.name: v.labels for v in problem.variables}["c"] == ("1", "5", "9")
    peer = gum.LazyPropagation(network)
    peer.setEvidence({"d": "q"})
    peer.makeInference()
    ours = oocbe.marginals(problem, evidence={"d": "q"}).marginals_by_name
    assert oocbe.marginals(network, evidence={"d": "q"}).marginals_by_name == ours
    assert oocbe.JunctionTree(network).problem.variables == problem.variables
    for name in "abc":
        assert list(ours[name].values()) == pytest.approx(peer.posterior(name).tolist(), abs=1e-12)
    oocbe.write(problem, tmp_path / "n.bif")
    again = oocbe.from_pyagrum(gum.loadBN(str(tmp_path / "n.bif")))
    for row in itertools.product(*(v.labels for v in problem.variables)):
        named = dict(zip((v.name for v in problem.variables), row, strict=True))
        assert again.evaluate(named) == pytest.approx(
            problem.evaluate(named), rel=1e-6
        )  # pyAgrum reads floats of 32 bits


class Field:
    """What a ``MarkovRandomField`` of pyAgrum answers; itself, it crashes where Numba was loaded before (3.3.1)."""

    def __init__(self, variables, factors):
        self._variables, self._factors = variables, factors

    def nodes(self):
        return range(len(self._variables))

    def variable(self, node):
        name, labels = self._variables[node]
        return SimpleNamespace(name=lambda: name, labels=lambda: labels, domainSize=lambda: len(labels))

    def factors(self):
        return list(self._factors)

    def factor(self, scope):
        names = [self._variables[v][0] for v in scope]
        return SimpleNamespace(names=names, toarray=lambda: np.array(self._factors[scope], dtype=float).T)


def test_a_markov_network_as_pyagrum_answers():
    field = Field([("a", ("x", "y")), ("b", ("0", "1", "2"))], {(0, 1): [[1, 2, 3], [4, 5, 0]]})
    problem = oocbe.from_pyagrum(field, "field")
    assert problem.name == "field"
    assert [problem.evaluate((a, b)) for a in range(2) for b in range(3)] == [1, 2, 3, 4, 5, None]


class Table:
    """What a ``TabularCPD`` and a ``DiscreteFactor`` of pgmpy answer."""

    def __init__(self, variables, values, state_names=None):
        self.variables, self.values, self.state_names = variables, np.array(values), state_names or {}


class Network:
    """What a discrete Bayesian network of pgmpy answers."""

    def __init__(self, nodes, tables):
        self._nodes, self._tables = nodes, tables

    def nodes(self):
        return self._nodes

    def get_cpds(self):
        return self._tables


STATES = {"rain": ["yes", "no"], "grass": ["wet", "dry"]}
LAWN = (
    Table(["rain"], [0.25, 0.75], {"rain": STATES["rain"]}),
    Table(["grass", "rain"], [[1, 0.5], [0, 0.5]], STATES),
)


def test_a_network_as_pgmpy_answers():
    problem = oocbe.from_pgmpy(Network(["grass", "rain"], LAWN))
    assert [f.scope for f in problem.functions] == [(1,), (1, 0)]
    posterior = oocbe.marginals(problem, evidence={"grass": "wet"}).marginals_by_name["rain"]
    assert posterior == pytest.approx({"yes": 0.4, "no": 0.6})


def test_the_same_from_pgmpy_itself():
    factors = pytest.importorskip("pgmpy.factors.discrete")
    models = pytest.importorskip("pgmpy.models")
    model = models.DiscreteBayesianNetwork([("rain", "grass")])
    model.add_cpds(
        factors.TabularCPD("rain", 2, [[0.25], [0.75]], state_names={"rain": STATES["rain"]}),
        factors.TabularCPD("grass", 2, [[1, 0.5], [0, 0.5]], ["rain"], [2], state_names=STATES),
    )
    posterior = oocbe.marginals(oocbe.from_pgmpy(model), evidence={"grass": "wet"}).marginals_by_name["rain"]
    assert posterior == pytest.approx({"yes": 0.4, "no": 0.6})


def shuffled(seed):
    """A belief network whose tables have the child anywhere in the scope, zeros, and names with spaces."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=6).tolist()
    variables = tuple(oocbe.Variable(f"node {v}", n, tuple(f"{v}/{x}" for x in range(n))) for v, n in enumerate(sizes))
    functions = []
    for child in random.permutation(6).tolist():
        parents = [v for v in range(child) if random.random() < 0.5]
        table = random.integers(0, 5, size=[sizes[v] for v in (*parents, child)]) + np.eye(sizes[child])[0]
        scope = random.permutation([*parents, child]).tolist()
        axes = [[*parents, child].index(v) for v in scope]
        functions.append(oocbe.Function.from_array(scope, np.transpose(table / table.sum(-1, keepdims=True), axes)))
    return oocbe.Problem(variables, tuple(functions), semiring=oocbe.MAX_PRODUCT, constant=1, name="shuffled")


def posteriors(problem, peers, evidence):
    """Each variable's posterior is the peer's, by label."""
    ours = oocbe.marginals(problem, evidence=evidence).marginals_by_name
    for name in set(ours) - set(evidence):
        assert ours[name] == pytest.approx(peers(name), abs=1e-9)


@pytest.mark.parametrize("seed", range(examples(32)))
def test_to_pyagrum_and_back(seed):
    gum = pytest.importorskip("pyagrum")
    problem, evidence = shuffled(seed), {"node 5": "5/0", "node 2": "2/0"}
    network = oocbe.to_pyagrum(problem)
    peer = gum.LazyPropagation(network)
    peer.setEvidence(evidence)
    peer.makeInference()
    labels = {v.name: v.labels for v in problem.variables}
    posteriors(problem, lambda name: dict(zip(labels[name], peer.posterior(name).tolist(), strict=True)), evidence)
    again = oocbe.from_pyagrum(network)
    assert again.variables == problem.variables and again.name == "shuffled"
    for row in itertools.product(*map(range, problem.sizes)):
        assert (again.evaluate(row) or 0) == pytest.approx(problem.evaluate(row) or 0, rel=1e-12)


@pytest.mark.parametrize("seed", range(examples(32)))
def test_to_pgmpy_and_back(seed):
    inference = pytest.importorskip("pgmpy.inference")
    problem, evidence = shuffled(seed), {"node 5": "5/0", "node 2": "2/0"}
    model = oocbe.to_pgmpy(problem)
    assert model.check_model()
    peer = inference.VariableElimination(model)

    def of_peer(name):
        found = peer.query([name], evidence=evidence, show_progress=False)
        return dict(zip(found.state_names[name], found.values.tolist(), strict=True))

    posteriors(problem, of_peer, evidence)
    again = oocbe.from_pgmpy(model)
    assert sorted(v.name for v in again.variables) == [v.name for v in problem.variables]
    for row in itertools.product(*map(range, problem.sizes)):
        named = {v.name: v.label(x) for v, x in zip(problem.variables, row, strict=True)}
        assert (again.evaluate(named) or 0) == pytest.approx(problem.evaluate(named) or 0, rel=1e-12)


def test_only_belief_networks_are_converted_back(monkeypatch):
    costs = oocbe.Problem((oocbe.Variable("a", 2),), ())
    for convert in (oocbe.to_pyagrum, oocbe.to_pgmpy):
        with pytest.raises(UnsupportedError, match="probabilities, not a min-sum problem"):
            convert(costs)
        for module in ("pyagrum", "pgmpy", "pgmpy.models"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match="install it with: pip install p"):
            convert(shuffled(0))


def test_what_is_no_network_is_refused():
    with pytest.raises(UsageError, match="from_pyagrum: dict is no network of pyAgrum"):
        oocbe.from_pyagrum({})
    diagram = SimpleNamespace(nodes=None, variable=None, cpt=None, utility=None)  # decisions have no table
    with pytest.raises(UsageError, match="is no network of pyAgrum"):
        oocbe.from_pyagrum(diagram)
    with pytest.raises(UsageError, match="from_pgmpy: list is no network of pgmpy"):
        oocbe.from_pgmpy([])
    for call in (oocbe.marginals, oocbe.JunctionTree, oocbe.solve):
        with pytest.raises(UsageError, match=r"expected a Problem .*, or a network of pyAgrum or pgmpy, not list"):
            call([])
    with pytest.raises(UsageError, match="variable 'snow' has no table"):
        oocbe.from_pgmpy(Network(["rain", "grass", "snow"], LAWN))
    other = Table(["rain"], [0.5, 0.5], {"rain": ["no", "yes"]})
    with pytest.raises(UsageError, match="give all of them the same state_names"):
        oocbe.from_pgmpy(Network(["rain", "grass"], (*LAWN, other)))
