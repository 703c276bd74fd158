"""Conditional probabilities from cases, against enumeration of all assignments and against pyAgrum."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.junction_trees import fitting

RANDOM = np.random.default_rng(0)
NAMES = ("cloudy", "rain", "grass")
WEATHER = Path(__file__).parents[2] / "examples" / "weather.bif"


def test_a_network_by_its_path():
    fitted, course = oocbe.fit_tables(WEATHER, [{"ferry": "late"}], rounds=1)
    assert fitted.name == "weather" and course[1] > course[0]


def network(is_possible: bool = True) -> oocbe.Problem:
    """Three variables of two and three values, each a child of the ones before it."""
    variables = [oocbe.Variable("cloudy", 2, ("yes", "no")), oocbe.Variable("rain", 3), oocbe.Variable("grass", 2)]
    functions = []
    for child in range(3):
        table = RANDOM.dirichlet(np.ones(variables[child].size), [v.size for v in variables[:child]])
        if child == 2 and not is_possible:
            table[..., 0], table[..., 1] = 1.0, 0.0
        functions.append(oocbe.Function.from_array(range(child + 1), table, infeasible=0.0))
    return oocbe.Problem(tuple(variables), tuple(functions), constant=1, semiring=oocbe.MAX_PRODUCT, name="lawn")


def cases_with_gaps(problem: oocbe.Problem, count: int, share: float):
    seen = np.array(oocbe.JunctionTree(problem).sample(count, seed=2))
    seen[RANDOM.random(seen.shape) < share] = -1
    return seen


def dense(problem: oocbe.Problem):
    return [
        np.where(feasible, values, 0) for values, feasible in (f.to_array(problem.sizes) for f in problem.functions)
    ]


def enumerated(problem: oocbe.Problem, cases, prior: float):
    """Tables after one round, and the log-likelihood before it."""
    tables, total = dense(problem), 0.0
    counts = [np.zeros_like(t) for t in tables]
    for case in cases:
        weights = {
            full: np.prod([t[full[: t.ndim]] for t in tables])
            for full in product(*map(range, problem.sizes))
            if all(seen in (-1, value) for seen, value in zip(case, full, strict=True))
        }
        total += np.log(sum(weights.values()))
        for full, weight in weights.items():
            for own in counts:
                own[full[: own.ndim]] += weight / sum(weights.values())
    return [(own + prior) / (own + prior).sum(axis=-1, keepdims=True) for own in counts], total


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_a_round_against_enumeration(prior):
    problem = network()
    cases = cases_with_gaps(problem, 60, 0.3)
    expected, logarithm = enumerated(problem, cases, prior)
    fitted, course = oocbe.fit_tables(problem, cases, rounds=1, prior=prior)
    assert course[0] == pytest.approx(logarithm, rel=1e-12)
    assert course[1] == pytest.approx(enumerated(fitted, cases, 0.0)[1], rel=1e-12)
    for own, wanted in zip(dense(fitted), expected, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-12)
    assert fitted.variables == problem.variables


def test_complete_cases_give_relative_frequencies_at_once():
    problem = network()
    cases = cases_with_gaps(problem, 300, 0.0)
    fitted, course = oocbe.fit_tables(problem, cases)
    assert len(course) == 3  # the second round changes nothing
    for own in dense(fitted):
        counts = np.zeros(own.shape)
        np.add.at(counts, tuple(cases[:, : own.ndim].T), 1)
        np.testing.assert_allclose(own * counts.sum(axis=-1, keepdims=True), counts, atol=1e-9)


def test_frames_with_gaps_and_a_variable_without_a_column():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    problem = network()
    cases = cases_with_gaps(problem, 80, 0.3)
    cases[:, 1] = -1
    labels = [[None if x < 0 else v.label(x) for x in cases[:, i]] for i, v in enumerate(problem.variables)]
    columns = {name: own for name, own in zip(NAMES, labels, strict=True) if name != "rain"}
    expected, course = oocbe.fit_tables(problem, cases, rounds=4)
    assert (np.diff(course) >= -1e-9).all()
    with_nan = pandas.DataFrame(columns)
    with_nan["grass"] = with_nan["grass"].astype("float64")
    for frame in (with_nan, polars.DataFrame(columns)):
        fitted, same = oocbe.fit_tables(problem, frame, rounds=4)
        assert same.tolist() == course.tolist()
        assert all(np.array_equal(a, b) for a, b in zip(dense(fitted), dense(expected), strict=True))


def test_parents_without_a_case_keep_their_probabilities():
    problem = network()
    fitted, _ = oocbe.fit_tables(problem, [{"cloudy": "yes", "rain": "0", "grass": "1"}])
    before, after = dense(problem), dense(fitted)
    assert after[0].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(after[1][1], before[1][1])
    assert after[2][0, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("seed", "settings"), [(3, {}), (5, {}), (5, {"space": "log"}), (3, {"prior": 0.5})], ids=str)
def test_rounds_share_the_rows_of_one_tree(monkeypatch, seed, settings):
    """Also where probabilities leave the range of products (seed 3), and where some become 0 (seed 5)."""
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(seed))
    problem = network()
    tables = dense(problem)
    for table in tables:
        table[RANDOM.random(table.shape) < 0.3] *= 1e-70
        table /= table.sum(axis=-1, keepdims=True)
    functions = (oocbe.Function.from_array(f.scope, t) for f, t in zip(problem.functions, tables, strict=True))
    problem = replace(problem, functions=tuple(functions))
    cases = cases_with_gaps(problem, 10, 0.5)
    made, logs, assembled = [], [], fitting.assembled
    monkeypatch.setattr(fitting, "JunctionTree", lambda *a, **k: made.append(1) or oocbe.JunctionTree(*a, **k))
    monkeypatch.setattr(fitting, "assembled", lambda *a: logs.append(a[-1]) or assembled(*a))
    settings = {"rounds": 60, "tolerance": 0.0, **settings}
    fitted, course = oocbe.fit_tables(problem, cases, **settings)
    assert len(made) == 1 and len(logs) == len(course) - 1 > 5
    if "prior" not in settings:
        assert all(logs) if seed == 3 or "space" in settings else not any(logs)
        assert any((table == 0).any() for table in dense(fitted)) == (seed == 5)
    monkeypatch.setattr(fitting, "_reweighted", lambda *a: None)
    expected, same = oocbe.fit_tables(problem, cases, **settings)
    assert len(made) == 1 + len(same)
    np.testing.assert_allclose(course[: len(same)], same[: len(course)], rtol=1e-12)
    for own, wanted in zip(dense(fitted), dense(expected), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-9, atol=1e-12)


def test_a_prior_brings_back_rows_of_probability_0():
    variables = (oocbe.Variable("a", 2), oocbe.Variable("b", 2))
    tables = [oocbe.Function.from_array((0,), [0.5, 0.5]), oocbe.Function.from_array((0, 1), [[1, 0], [0.5, 0.5]], 0)]
    problem = oocbe.Problem(variables, tuple(tables), constant=1, semiring=oocbe.MAX_PRODUCT)
    fitted, _ = oocbe.fit_tables(problem, [{"a": "0", "b": "0"}], rounds=2, prior=1.0)
    np.testing.assert_allclose(dense(fitted)[1], [[2 / 3, 1 / 3], [0.5, 0.5]])


@pytest.mark.filterwarnings("ignore:.*likelihood divergence")  # its last round, by rounding
def test_pyagrum_finds_the_same():
    gum, pandas = pytest.importorskip("pyagrum"), pytest.importorskip("pandas")
    gum.initRandom(1)  # a fifth of its random starts ends in another optimum, or in an error
    problem = network()
    cases = cases_with_gaps(problem, 500, 0.2)
    fitted, _ = oocbe.fit_tables(problem, cases, rounds=500, tolerance=0.0)
    given = oocbe.to_pyagrum(problem)
    texts = {v.name: ["?" if x < 0 else v.label(x) for x in cases[:, i]] for i, v in enumerate(problem.variables)}
    learner = gum.BNLearner(pandas.DataFrame(texts), given, ["?"])
    learner.useNoPrior()
    learner.useEM(1e-9)
    theirs, ours = learner.learnParameters(given.dag()), oocbe.to_pyagrum(fitted)
    for name in NAMES:
        one, two = theirs.cpt(name), ours.cpt(name)
        moved = np.transpose(two.toarray(), [two.names[::-1].index(n) for n in one.names[::-1]])
        np.testing.assert_allclose(moved, one.toarray(), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": -1}, "rounds: -1"),
        ({"prior": -0.5}, "prior: -0.5"),
        ({"tolerance": float("nan")}, "tolerance: nan"),
        ({}, r"case 1 \(the first is 0\) is impossible in round 0"),
    ],
)
def test_what_is_refused(settings, message):
    cases = [{"grass": "0"}, {"grass": "1"}]
    with pytest.raises(oocbe.UsageError, match=message):
        oocbe.fit_tables(network(is_possible=False), cases, **settings)


def test_a_problem_that_is_no_network_is_refused():
    problem = oocbe.Problem((oocbe.Variable("a", 2),), (oocbe.Function.from_array((0,), [1, 2]),))
    with pytest.raises(oocbe.UnsupportedError):
        oocbe.fit_tables(problem, [{}])
