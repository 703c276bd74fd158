"""Marginals and partition functions of belief networks against an independent junction tree."""

import math

import numpy as np
import pytest

from oocbe.api.tasks.marginals import log_partition, marginals
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions

gum = pytest.importorskip("pyagrum")
OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")


def network(seed, nodes=14, arcs=22, most_values=4):
    """A random belief network, and the same as a problem; the table's axes come last variable first."""
    gum.initRandom(seed)
    generator = gum.BNGenerator() if hasattr(gum, "BNGenerator") else None
    if generator is not None:
        made = generator.generate(nodes, arcs, most_values)
    else:
        made = gum.randomBN(n=nodes, ratio_arc=arcs / nodes, domain_size=most_values)
    names = [made.variable(n).name() for n in made.nodes()]
    index = {name: i for i, name in enumerate(names)}
    functions = []
    for n in made.nodes():
        table = made.cpt(n)
        scope = [index[name] for name in reversed(table.names)]
        functions.append(Function.from_array(scope, table.toarray()))
    variables = tuple(Variable(name, made.variableFromName(name).domainSize()) for name in names)
    return made, Problem(variables, tuple(functions), semiring=SUM_PRODUCT, name=f"network {seed}")


@pytest.mark.parametrize("seed", range(6))
def test_marginals_and_evidence(seed):
    made, problem = network(seed)
    random = np.random.default_rng(seed)
    evidence = {
        int(v): int(random.integers(problem.sizes[v])) for v in random.choice(len(problem.sizes), size=3, replace=False)
    }
    oracle = gum.LazyPropagation(made)
    oracle.setEvidence({problem.variables[v].name: value for v, value in evidence.items()})
    oracle.makeInference()
    given = problem.with_evidence(evidence)
    result = marginals(given, OPTIONS)
    assert result.value == pytest.approx(math.log(oracle.evidenceProbability()), rel=1e-9)
    assert log_partition(given, OPTIONS).value == pytest.approx(result.value, rel=1e-13)
    for variable, own in zip(problem.variables, result.marginals, strict=True):
        np.testing.assert_allclose(own, oracle.posterior(variable.name).toarray(), rtol=1e-9, atol=1e-12)
