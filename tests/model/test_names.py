"""Answers and questions by names and labels."""

import pytest

import oocbe
from oocbe.errors import UsageError

RAIN = oocbe.Problem(
    (oocbe.Variable("rain", 2, ("yes", "no")), oocbe.Variable("grass", 2, ("wet", "dry"))),
    (oocbe.Function.from_array((0,), [0.25, 0.75]), oocbe.Function.from_array((0, 1), [[1, 0], [0.5, 0.5]])),
    semiring=oocbe.SUM_PRODUCT,
)
WALK = oocbe.Problem(
    (oocbe.Variable("rain", 2, ("no", "yes")), oocbe.Variable("umbrella", 2, ("home", "along"))),
    (oocbe.Function.from_array((0, 1), [[0, 3], [9, 1]]),),
)


def test_an_assignment_by_labels_is_worth_what_its_indices_are():
    result = oocbe.solve(WALK)
    assert WALK.evaluate(result.labels) == WALK.evaluate(result.assignment) == result.value
    assert WALK.evaluate({"umbrella": "along", "rain": 1}) == 1
    with pytest.raises(UsageError, match="no value is given for umbrella"):
        WALK.evaluate({"rain": "no"})
    with pytest.raises(UsageError, match="no value 'maybe'; its values are no, yes"):
        WALK.evaluate({"rain": "maybe", "umbrella": "home"})


def test_evidence_by_names_is_evidence_by_indices():
    for evidence in ({"rain": "yes"}, {"rain": 1}, {0: 1}, "rain=yes"):
        assert oocbe.solve(WALK, evidence=evidence).labels == {"rain": "yes", "umbrella": "along"}
    assert oocbe.solve(WALK.with_evidence({"rain": "yes"})).value == 1
    with pytest.raises(UsageError, match="there is no variable 'snow'; there are: rain, umbrella"):
        WALK.with_evidence({"snow": "yes"})
    with pytest.raises(UsageError, match="there is no variable 'Umbrela'; did you mean 'umbrella'"):
        WALK.with_evidence({"Umbrela": "along"})


def test_what_is_no_problem_and_no_path_is_refused():
    for given in (3, ["a"], None):
        with pytest.raises(UsageError, match=f"expected a Problem .* not {type(given).__name__}"):
            oocbe.solve(given)


def test_marginals_by_name():
    result = oocbe.marginals(RAIN, evidence={"grass": "wet"})
    assert result.probability == pytest.approx(0.625)  # of wet grass
    rain = result.marginals_by_name["rain"]
    assert rain == pytest.approx({"yes": 0.4, "no": 0.6})
    assert result.labels is None


def test_a_task_with_assignments_has_the_best_one_like_a_result():
    result = oocbe.k_best(WALK, 2)
    assert result.labels == {"rain": "no", "umbrella": "home"} == result.labelled[0][1]
    assert result.assignment == oocbe.solve(WALK).assignment
    assert [WALK.evaluate(labels) for _, labels in result.labelled] == [value for value, _ in result.labelled] == [0, 1]


def test_results_and_names_can_be_verified():
    verdict = oocbe.verify(WALK, oocbe.solve(WALK))
    assert (verdict.accepted, verdict.value, verdict.claimed_value) == (True, 0, 0)
    assert oocbe.verify(WALK, oocbe.k_best(WALK, 2)).accepted
    assert oocbe.verify(WALK, {"rain": "yes", "umbrella": "along"}).value == 1
    assert oocbe.verify(RAIN, oocbe.most_probable_explanation(RAIN)).accepted
    with pytest.raises(UsageError, match="no assignment"):
        oocbe.verify(WALK, oocbe.count(WALK))


def test_the_bound_at_the_optimum_is_the_optimum():
    result = oocbe.solve(WALK)
    assert (result.status, result.bound, result.gap) == ("optimal", 0, 0)
    assert result.anytime[-1][1:] == (0, 0)


def test_names_and_labels_of_another_case_are_told():
    with pytest.raises(UsageError, match="no value 'Yes'; its values are no, yes; did you mean 'yes'"):
        WALK.evaluate({"rain": "Yes", "umbrella": "home"})
    with pytest.raises(UsageError, match="no variable 'RAIN'; did you mean 'rain'"):
        oocbe.solve(WALK, evidence={"RAIN": "yes"})
    for pair, meant in (("Rain=yes", "'rain'"), ("rain=YES", "'yes'")):
        with pytest.raises(UsageError, match=f"did you mean {meant}"):
            oocbe.solve(WALK, evidence=pair)
