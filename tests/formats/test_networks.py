"""Networks of pyAgrum and pgmpy as problems: the same posteriors, by the same names."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import oocbe
from oocbe.errors import UsageError


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


def test_what_is_no_network_is_refused():
    with pytest.raises(UsageError, match="from_pyagrum: dict is no network of pyAgrum"):
        oocbe.from_pyagrum({})
    with pytest.raises(UsageError, match="from_pgmpy: list is no network of pgmpy"):
        oocbe.from_pgmpy([])
    with pytest.raises(UsageError, match="variable 'snow' has no table"):
        oocbe.from_pgmpy(Network(["rain", "grass", "snow"], LAWN))
    other = Table(["rain"], [0.5, 0.5], {"rain": ["no", "yes"]})
    with pytest.raises(UsageError, match="give all of them the same state_names"):
        oocbe.from_pgmpy(Network(["rain", "grass"], (*LAWN, other)))
