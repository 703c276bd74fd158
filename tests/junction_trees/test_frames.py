"""Cases from data frames with missing values, and answers by names and labels, also as data frames."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import oocbe
from tests.helpers.small_networks import enumerated, random_network, summed

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

RAIN, GRASS = oocbe.Variable("rain", 2, ("yes", "no")), oocbe.Variable("grass", 2, ("wet", "dry"))
LAWN = oocbe.Problem(
    (RAIN, GRASS),
    (oocbe.Function.from_array((0,), [0.25, 0.75]), oocbe.Function.from_array((0, 1), [[1, 0], [0.5, 0.5]])),
    semiring=oocbe.SUM_PRODUCT,
)
ROWS = [{"rain": None, "grass": "wet"}, {"rain": "no", "grass": None}, {"rain": "yes", "grass": "dry"}, {}]
YES = [0.4, 0.0, 0.0, 0.25]


@pytest.fixture
def tree():
    return oocbe.JunctionTree(LAWN, order_seconds=0)


def frames():
    """The cases in all forms in which users have them."""
    text = {name: [row.get(name) for row in ROWS] for name in ("rain", "grass")}
    yield "pandas", pandas.DataFrame(text)
    yield "pandas of objects", pandas.DataFrame(text, dtype=object)
    yield "pandas of categories", pandas.DataFrame(text).astype("category")
    unused = pandas.CategoricalDtype(["hail", "no", "yes"])
    yield "unused categories", pandas.DataFrame(text).astype({"rain": unused})
    yield "pandas of Arrow", pandas.DataFrame(text).convert_dtypes(dtype_backend="pyarrow")
    yield "polars", polars.DataFrame(text)
    yield "polars of categories", polars.DataFrame(text, schema=dict.fromkeys(text, polars.Categorical))
    yield "polars in chunks", polars.concat([polars.DataFrame(text)[:2], polars.DataFrame(text)[2:]], rechunk=False)
    yield "a lazy frame", polars.LazyFrame(text)
    yield "arrow", arrow.table(text)
    yield "records", pandas.DataFrame(text).to_dict("records")
    yield "records of None", ROWS
    positions = {"rain": [np.nan, 1.0, 0.0, np.nan], "grass": [0.0, np.nan, 1.0, np.nan]}
    yield "positions in floats", pandas.DataFrame(positions)
    yield "positions in nullable integers", pandas.DataFrame(positions).astype("Int8")
    yield "records of nullable integers", pandas.DataFrame(positions).astype("Int8").to_dict("records")
    yield "positions with NaN in polars", polars.DataFrame(positions)


@pytest.mark.parametrize("frame", [pytest.param(frame, id=name) for name, frame in frames()])
def test_missing_values_are_not_observed(frame, tree):
    found = tree.batch(frame)
    np.testing.assert_allclose(found["rain"]["yes"], YES)
    assert found.status.tolist() == ["exact", "exact", "impossible", "exact"]
    assert tree.predict(frame)["grass"].tolist() == ["wet", "wet", None, "wet"]


def test_a_case_with_missing_values_is_observed_as_in_a_batch(tree):
    for case, yes in zip(ROWS, YES, strict=True):
        tree.retract()
        tree.observe(case)
        assert tree.marginal("rain")[0] == pytest.approx(yes)
    tree.retract()
    tree.observe({"grass": 0.0})  # a position in a column with NaN
    assert tree.evidence == {"grass": "wet"}


@pytest.mark.parametrize("missing", [None, np.nan, np.float64("nan"), np.float32("nan"), pandas.NA, pandas.NaT])
def test_observing_a_missing_value_retracts_what_was_observed_before(tree, missing):
    tree.observe({"rain": "yes"}, likelihood={"grass": [0.9, 0.1]})
    tree.observe({"rain": missing, "grass": missing})
    assert tree.evidence == {}
    assert tree.marginal("rain")[0] == pytest.approx(0.25)
    tree.observe({"grass": missing})  # nothing is to be retracted
    tree.observe({"grass": missing, "rain": "no"}, likelihood={"grass": [1, 0]})
    assert tree.marginal("grass").tolist() == [1, 0]
    assert tree.evidence == {"rain": "no"}


def test_columns_without_an_entry_and_without_rows(tree):
    assert tree.batch(pandas.DataFrame({"rain": [None, None]}))["rain"]["yes"].tolist() == pytest.approx([0.25, 0.25])
    assert len(tree.batch(polars.DataFrame({"rain": []}))["rain"]["yes"]) == 0
    assert len(tree.batch(pandas.DataFrame({"rain": []})).to_pandas()) == 0


@pytest.mark.parametrize(
    ("frame", "error", "expected"),
    [
        (pandas.DataFrame({"rain": ["no", "hail"]}), oocbe.UsageError, "case 1 .*no value 'hail'"),
        (pandas.DataFrame({"snow": ["no"]}), oocbe.UsageError, "no variable 'snow'"),
        (pandas.Series({"rain": "no"}), oocbe.UsageError, "a data frame of pandas, not Series"),
        (arrow.table([["no"], ["no"]], ["rain", "rain"]), oocbe.UsageError, "named twice"),
        (arrow.table({"rain": [[1]]}), oocbe.UsageError, "column rain: .*list"),
        (arrow.table({"rain": [0.5]}), oocbe.UsageError, "no value 0.5"),
        (pandas.DataFrame({"rain": [1, "no"]}), oocbe.ModelError, "column rain"),
    ],
)
def test_what_no_case_can_be(frame, error, expected, tree):
    with pytest.raises(error, match=expected):
        tree.batch(frame)


def test_answers_of_a_batch_as_frames(tree):
    found = tree.batch(ROWS, ["rain"], [["grass", "rain"]])
    frame = found.to_pandas()
    assert frame.columns.tolist()[:4] == ["status", "log_evidence", "rain=yes", "rain=no"]
    assert frame["rain=yes"].tolist() == pytest.approx(YES)
    assert frame["grass=wet,rain=no"].tolist() == pytest.approx([0.6, 0.5, 0, 0.375])
    assert frame["log_evidence"].tolist() == pytest.approx([math.log(0.625), math.log(0.75), -math.inf, 0])
    assert found["grass", "rain"]["wet", "no"].tolist() == pytest.approx([0.6, 0.5, 0, 0.375])
    cases = pandas.DataFrame(ROWS, index=pandas.Index([7, 2, 5, 7], name="lawn"))  # numbers would match other rows
    answers = (tree.batch(cases), tree.predict(cases), tree.predict_proba(cases))
    assert all(answer.to_pandas().index.equals(cases.index) for answer in answers)
    assert found.to_polars().to_dicts() == frame.to_dict("records") == arrow.table(found).to_pylist()
    with pytest.raises(KeyError):
        found["grass"]


@pytest.mark.parametrize("seed", range(4))
def test_predictions_and_queries_are_those_of_an_enumeration(seed):
    random = np.random.default_rng(seed)
    problem = random_network(random, variables=5)
    tree = oocbe.JunctionTree(problem, order_seconds=0)
    names, sizes = [v.name for v in problem.variables], problem.sizes
    seen = random.integers(-2, np.array(sizes), size=(30, 5)).clip(-1)
    frame = pandas.DataFrame(np.where(seen < 0, np.nan, seen), columns=names)
    predicted = tree.predict(frame)
    proba = tree.predict_proba(frame, names[:1])
    tree.observe({names[1]: 0})
    before = tree.marginal(names[0]).tolist()
    for row, case in enumerate(seen.tolist()):
        given = {v: x for v, x in enumerate(case) if x >= 0}
        weights = enumerated(problem, {v: np.eye(sizes[v])[x] for v, x in given.items()})
        evidence = frame.loc[row].to_dict()
        joint = tree.query(names[:2], evidence)
        if weights.sum() == 0:
            assert proba.status[row] == "impossible"
            assert predicted.indices[row].tolist() == [-1] * 5
            assert not joint.values.any()
            assert tree.map_query(evidence=evidence) is None
            continue
        np.testing.assert_allclose(joint.values, summed(weights, [0, 1]), atol=1e-12)
        for v, variable in enumerate(problem.variables):
            shares = summed(weights, [v])
            assert shares[predicted.indices[row, v]] == pytest.approx(shares.max())
            if v == 0:
                assert [own[row] for own in proba[variable.name].values()] == pytest.approx(shares.tolist())
        best = tree.map_query(evidence=evidence)
        assert best.keys() == {n for n, x in zip(names, case, strict=True) if x < 0}
        whole = tuple(x if x >= 0 else int(best[n]) for n, x in zip(names, case, strict=True))
        assert weights[whole] == weights.max()
        pair = tree.map_query(names[:2], evidence)
        assert joint[tuple(pair.values())] == pytest.approx(joint.values.max())
    assert tree.evidence == {names[1]: problem.variables[1].label(0)}
    assert tree.marginal(names[0]).tolist() == before


def test_a_query_restores_evidence_and_likelihoods(tree):
    tree.observe({"rain": "yes"}, likelihood={"grass": [0.25, 1]})
    log_evidence = tree.log_evidence
    assert tree.map_query(evidence={"grass": "dry"}) == {"rain": "no"}
    assert tree.query(["rain"], {"grass": "wet"})["yes"] == pytest.approx(0.4)
    assert (tree.evidence, tree.log_evidence) == ({"rain": "yes"}, log_evidence)
    with pytest.raises(oocbe.UsageError):
        tree.map_query(["hail"], {"grass": "dry"})
    assert (tree.evidence, tree.log_evidence) == ({"rain": "yes"}, log_evidence)


def test_samples_and_counts_have_names_and_labels(tree):
    drawn = tree.sample(50, seed=3)
    frame = drawn.to_pandas()
    assert frame.columns.tolist() == ["rain", "grass"]
    assert len(drawn) == len(frame) == 50
    assert frame["rain"].tolist() == drawn["rain"].tolist() == [RAIN.labels[x] for x in np.asarray(drawn)[:, 0]]
    assert tree.batch(drawn).log_evidence.tolist() == tree.batch(drawn.indices).log_evidence.tolist()  # a round trip
    with pytest.raises(oocbe.UsageError, match="no variable 'snow'"):
        drawn["snow"]
    counts = tree.expected_counts(polars.DataFrame(ROWS[:2]))
    first, second = counts
    assert (counts["rain"], counts["grass"], counts[-1]) == (first, second, second)
    assert first["yes"] == pytest.approx(0.4)
    assert second["no", "wet"] == pytest.approx(0.6 + 0.5)
    counted = second.to_pandas()
    assert counted.columns.tolist() == ["rain", "grass", "count"]
    assert counted["count"].tolist() == np.asarray(second).ravel().tolist()
    assert list(map(tuple, counted[["rain", "grass"]].to_numpy())) == [*itertools.product(RAIN.labels, GRASS.labels)]


def test_results_of_tasks_by_name_and_as_frames(tree):
    found = oocbe.marginals(LAWN, evidence={"grass": "wet"})
    assert found["rain"] == pytest.approx({"yes": 0.4, "no": 0.6})
    assert found.to_pandas().columns.tolist() == ["variable", "label", "probability"]
    assert found.to_polars().rows()[1] == ("rain", "no", pytest.approx(0.6))
    costs = oocbe.Problem((RAIN, GRASS), (oocbe.Function.from_array((0, 1), [[1, 0], [5, 3]]),))
    assert oocbe.solve(costs)["grass"] == "dry"
    best = oocbe.k_best(costs, 3)
    assert best["rain"] == "yes"
    assert best.to_polars().rows() == [(0, "yes", "dry"), (1, "yes", "wet"), (3, "no", "dry")]
    assert tree.mpe()["rain"] == "no"
    assert tree.mpe().to_pandas()[["rain", "grass"]].to_numpy().tolist() == [["no", "wet"]]


def test_a_variable_with_the_name_of_another_column():
    problem = oocbe.Problem((oocbe.Variable("value", 2),), (oocbe.Function.from_array((0,), [1, 0]),))
    with pytest.raises(oocbe.UsageError, match="two columns are called 'value'"):
        oocbe.k_best(problem, 2).to_pandas()


def test_posteriors_of_a_frame_are_those_of_pyagrum(data):
    gum = pytest.importorskip("pyagrum")
    gum.initRandom(4)
    network = gum.fastBN("a{x|y|z}->b[2]->d{p|q};c{1|5|9}->b;a->d", 3)
    generator = gum.BNDatabaseGenerator(network)
    generator.drawSamples(60)
    frame = generator.to_pandas().astype(str)
    hidden = np.random.default_rng(3).random(frame.shape) < 0.5
    frame = frame.mask(hidden)
    tree = oocbe.JunctionTree(oocbe.from_pyagrum(network))
    found = tree.predict_proba(frame)
    predicted = tree.predict(frame).to_pandas()
    peer = gum.LazyPropagation(network)
    for row in range(len(frame)):
        peer.setEvidence({name: x for name, x in frame.loc[row].items() if isinstance(x, str)})
        peer.makeInference()
        for name in frame.columns:
            theirs = peer.posterior(name).tolist()
            assert [own[row] for own in found[name].values()] == pytest.approx(theirs, abs=1e-9)
            assert theirs[list(found[name]).index(predicted.loc[row, name])] == pytest.approx(max(theirs))
