"""The most probable explanation against brute force, toulbar2 and a junction tree."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.errors import UnsupportedError
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.stress import grid_network
from tests.helpers.effort import examples

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu")

WORKER = """
import json, sys, pytoulbar2
network = pytoulbar2.CFN()
network.Option.btdMode = 1  # along a tree decomposition of a min-fill order
network.Option.setVarOrder("-3")
network.Read(sys.argv[1])
solution = network.Solve(timeLimit=600)
assert not network.Option.limited
print("\\n" + json.dumps([int(value) for value in solution[0]]))
"""


@pytest.mark.parametrize("semiring", [MAX_PRODUCT, SUM_PRODUCT])
@pytest.mark.parametrize("seed", range(examples(48)))
def test_against_brute_force(random_problem, seed, semiring):
    problem = random_problem(seed, semiring=MAX_PRODUCT).in_semiring(semiring)
    values = [(problem.evaluate(a), a) for a in itertools.product(*map(range, problem.sizes))]
    best = max((pair for pair in values if pair[0] is not None), default=None)
    result = oocbe.most_probable_explanation(problem, OPTIONS)
    if best is None:
        assert (result.status, result.value, result.exit_code) == ("infeasible", None, 10)
        return
    (reported, assignment) = result.assignments[0]
    assert reported == result.value == pytest.approx(math.log(best[0]), abs=result.tolerance)
    assert problem.evaluate(assignment) == pytest.approx(best[0])


def test_variables_with_one_value_left_are_still_there_in_the_result():
    costs = grid_network(4, 3, tightness=0.0, seed=2)
    functions = tuple(oocbe.Function(f.scope, f.tuples, np.exp(-f.values / 30)) for f in costs.functions)
    problem = oocbe.Problem(costs.variables, functions, semiring=MAX_PRODUCT)
    best = oocbe.most_probable_explanation(problem, OPTIONS)
    fixed = best.assignments[0][1][5]
    given = problem.with_evidence({5: fixed})
    for order in ("auto", "min-degree"):
        result = oocbe.most_probable_explanation(given, OPTIONS, order=order)
        assert result.value == pytest.approx(best.value, abs=result.tolerance)
        assert result.assignments[0][1][5] == fixed
        assert sorted(result.order) == list(range(16))
        assert result.order[0] == 5


def compare_with_toulbar2(path, tmp_path):
    pytest.importorskip("pytoulbar2")
    plain = tmp_path / "network.uai"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    done = subprocess.run([sys.executable, "-c", WORKER, str(plain)], capture_output=True, text=True, check=True)
    problem = oocbe.read(path)
    theirs = in_logarithms(problem).evaluate(json.loads(done.stdout.splitlines()[-1]))
    ours = oocbe.most_probable_explanation(problem, OPTIONS, order_seconds=0.5)
    assert ours.status == "exact"
    # Theirs is an assignment, so it cannot be better; its costs were rounded to seven digits, so it may be worse.
    assert -theirs <= ours.value + ours.tolerance
    assert ours.value == pytest.approx(-theirs, abs=1e-4)


SMALL = ["grid/50-12-5", "protein/pdb1hg7", "protein/pdb1hyp", "protein/pdb1k51", "protein/pdb2mcm"]
LARGE = [
    "grid/50-16-5",
    "grid/75-18-5",
    "grid/90-20-5",
    "pedigree/pedigree1",
    "pedigree/pedigree18",
    "pedigree/pedigree23",
    "pedigree/pedigree33",
]


@pytest.mark.parametrize("name", SMALL)
def test_the_same_optimum_as_toulbar2(name, data, tmp_path):
    compare_with_toulbar2(data(f"uai/{name}.uai.gz"), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", LARGE)
def test_the_same_optimum_as_toulbar2_on_large_networks(name, data, tmp_path):
    compare_with_toulbar2(data(f"uai/{name}.uai.gz"), tmp_path)


@pytest.mark.parametrize("name", ["asia", "alarm", "insurance", "win95pts"])
def test_explanation_and_marginals_given_evidence_as_a_junction_tree_has_them(name, data, tmp_path):
    gum = pytest.importorskip("pyagrum")
    path = data(f"bif/{name}.bif.gz")
    plain = tmp_path / f"{name}.bif"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    network = gum.loadBN(str(plain))
    free = oocbe.read(path)
    best = oocbe.most_probable_explanation(free, OPTIONS)
    labels = best.labels
    # Part of a possible assignment, so that the evidence has a positive probability.
    random = np.random.default_rng(1)
    observed = random.choice(sorted(labels), size=3, replace=False).tolist()
    given = oocbe.read(path, evidence=[f"{v}={labels[v]}" for v in observed])
    result = oocbe.most_probable_explanation(given, OPTIONS)
    assert result.evidence == {v: labels[v] for v in observed}
    assert result.value == pytest.approx(best.value, abs=1e-9)
    assert result.value == pytest.approx(math.log(joint_probability(network, labels)), rel=1e-5)
    oracle = gum.LazyPropagation(network)
    oracle.setEvidence({v: labels[v] for v in observed})
    oracle.makeInference()
    posteriors = oocbe.marginals(given, options=OPTIONS, semiring="sum-product")
    for variable, own in zip(given.variables, posteriors.marginals, strict=True):
        theirs = oracle.posterior(variable.name)
        for value, probability in enumerate(own):
            assert probability == pytest.approx(theirs[{variable.name: variable.label(value)}], abs=1e-6)


def joint_probability(network, labels):
    chosen = network.completeInstantiation()
    chosen.fromdict(labels)
    return network.jointProbability(chosen)


def test_command_line(tmp_path):
    network, solution = tmp_path / "n.bif", tmp_path / "n.sol"
    network.write_text(
        "network n { }\nvariable a { type discrete [ 2 ] { yes, no }; }\n"
        "variable b { type discrete [ 2 ] { yes, no }; }\n"
        "probability ( a ) { table 0.4, 0.6; }\nprobability ( b | a ) { (yes) 0.9, 0.1; (no) 0.5, 0.5; }\n"
    )
    run = CliRunner().invoke
    done = run(app, ["solve", str(network), "--task", "mpe", "--json", "--solution", str(solution)])
    content = json.loads(done.stdout)
    assert (content["status"], content["assignment"], content["evidence"]) == ("exact", {"a": "yes", "b": "yes"}, {})
    assert content["log_probability"] == pytest.approx(math.log(0.36))
    assert content["probability"] == pytest.approx(0.36)
    assert 0 < content["tolerance"] < 1e-8
    assert run(app, ["verify", str(network), str(solution)]).exit_code == 0
    assert run(app, ["verify", str(network), str(solution), "--evidence", "a=no"]).exit_code == 10
    shown = run(app, ["solve", str(network), "--task", "mpe", "--evidence", "b=no"])
    assert "b=no" in shown.stdout and "a=no" in shown.stdout
    done = run(app, ["bound", str(network), "--z", "2", "--json", "--evidence", "b=no"])
    assert json.loads(done.stdout)["bounds"][0]["log_incumbent"] == pytest.approx(math.log(0.3))


def test_a_time_limit_leaves_bounds_on_both_sides():
    costs = grid_network(16, 3, tightness=0.0, seed=1)
    functions = tuple(oocbe.Function(f.scope, f.tuples, np.exp(-f.values / 30)) for f in costs.functions)
    problem = oocbe.Problem(costs.variables, functions, semiring=MAX_PRODUCT)
    result = oocbe.most_probable_explanation(problem, OPTIONS, time_limit=1.5, incumbent_seconds=0.3)
    assert result.status in ("limit", "exact")
    assert result.assignments
    logarithm = -in_logarithms(problem).evaluate(result.assignments[0][1])
    assert result.value == pytest.approx(logarithm, abs=1e-9)
    if result.status == "limit":
        assert result.exit_code == 20
        assert result.bound is not None and result.bound >= result.value


def test_sums_have_no_explanation():
    problem = oocbe.Problem((oocbe.Variable("x", 2),))
    with pytest.raises(UnsupportedError, match="optimum"):
        oocbe.most_probable_explanation(problem, OPTIONS)
