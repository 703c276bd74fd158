"""Solution files, and the judgement of what they claim."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocbe
from oocbe.errors import FormatError, UsageError
from oocbe.formats.solutions import Solution, Verdict, read_solution, verify_solution, write_solution
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem, violations_of
from oocbe.model.semiring import MAX_PRODUCT
from tests.helpers.sample_results import make_result

PROBLEM = Problem(
    variables=(Variable("a", 2, ("no", "yes")), Variable("b", 3)),
    functions=(Function.from_array((0, 1), [[0, 1, 2], [3, 4, -1]], infeasible=-1),),
    constraints=(Constraint((0, 1), np.array([[0, 0]])),),
    linear_constraints=(LinearConstraint((1,), (np.array([0, 5, 9]),), 8, "capacity"),),
    name="small",
)


def solution(a: str, b: str, claimed: int | float | None = None) -> Solution:
    return Solution("test", {"a": a, "b": b}, {}, claimed)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "small.sol"
    write_solution(make_result(), file)
    read = read_solution(file)
    assert read.labels == {"a": "yes", "b": "0"}
    assert (read.claimed_value, read.semiring) == (3, "min-sum")
    assert read.assignment(PROBLEM) == (1, 0)


def test_names_with_spaces_and_signs_survive(tmp_path: Path) -> None:
    variables = (Variable("first photograph", 2, ("", "# 1")), Variable('"b"', 2))
    write_solution(replace(make_result(), variables=variables), tmp_path / "odd.sol")
    assert read_solution(tmp_path / "odd.sol").labels == {"first photograph": "# 1", '"b"': "0"}


def test_the_json_of_a_solve_is_a_solution_too(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(make_result().to_json()))
    assert read_solution(file).assignment(PROBLEM) == (1, 0)
    assert read_solution(file).claimed_value == 3


def test_a_result_without_assignment_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="infeasible"):
        write_solution(replace(make_result("infeasible"), assignment=None), tmp_path / "none.sol")
    assert not (tmp_path / "none.sol").exists()


def test_claims_about_small_costs_are_held_against_their_own_size() -> None:
    """A claim that is off by all that the costs come to is no claim that is right but for rounding."""
    tiny = Problem((Variable("a", 2),), (Function.from_array((0,), [3e-12, 1e-12]),), constant=-1e-12)
    for claimed, is_right in ((2e-12, True), (2e-12 * (1 + 1e-12), True), (0.0, False), (3e-12, False)):
        assert verify_solution(tiny, Solution("test", {"a": "0"}, {}, claimed)).accepted == is_right


@given(st.dictionaries(st.text(), st.text(), min_size=1, max_size=4), st.text())
def test_any_names_and_labels_survive(
    tmp_path_factory: pytest.TempPathFactory, names: dict[str, str], name: str
) -> None:
    variables = tuple(Variable(key, 1, (label,)) for key, label in names.items())
    result = replace(make_result(), variables=variables, assignment=(0,) * len(names), problem=name)
    file = tmp_path_factory.mktemp("names") / "any.sol"
    write_solution(result, file)
    assert read_solution(file).labels == names


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a yes\na no\nb 0\n", 2, "already has a value on line 1"),
        ("a\nb 0\n", 1, "expected a variable's name and its value"),
        ("a yes\nc 0\n", 2, "no variable 'c'"),
        ("a yes\n", None, "variable 'b' of small has no value"),
        ("a maybe\nb 0\n", 1, "its values are no, yes"),
        ("# value: nan\na yes\nb 0\n", 1, "not a finite number"),
        ('a "yes\nb 0\n', 1, "does not end"),
        ('{"assignment": null, "status": "infeasible"}', None, "its status is 'infeasible'"),
        ('{"assignment": {', 1, "damaged JSON"),
        ('{"format": "oocbe certificate", "assignment": [0]}', None, "oocbe verify --certificate"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, text: str, line: int | None, part: str) -> None:
    file = tmp_path / "damaged.sol"
    file.write_text(text)
    with pytest.raises(FormatError, match=part) as caught:
        read_solution(file).assignment(PROBLEM)
    assert caught.value.line == line


def test_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.sol").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="not a text file"):
        read_solution(tmp_path / "binary.sol")


def test_a_feasible_assignment_is_accepted_only_with_its_value() -> None:
    assert verify_solution(PROBLEM, solution("no", "1", claimed=1)).accepted
    assert verify_solution(PROBLEM, solution("no", "1")).accepted
    wrong = verify_solution(PROBLEM, solution("no", "1", claimed=2))
    assert (wrong.value, wrong.accepted, wrong.violations) == (1, False, ())


def test_floats_agree_up_to_their_last_digits() -> None:
    problem = replace(PROBLEM, constant=0.1)
    assert verify_solution(problem, solution("no", "1", claimed=1.1000000000001)).accepted
    assert not verify_solution(problem, solution("no", "1", claimed=1.1001)).accepted


def test_a_tiny_probability_is_not_any_tiny_number() -> None:
    problem = Problem((Variable("x", 1),), (Function.from_array((0,), [2.5e-46]),), constant=1.0, semiring=MAX_PRODUCT)
    right = Solution("test", {"x": "0"}, {}, 2.5e-46)
    assert verify_solution(problem, right).accepted
    for wrong in (0.0, 9.9e-10, 2.6e-46):
        assert not verify_solution(problem, Solution("test", {"x": "0"}, {}, wrong)).accepted


def test_each_violation_is_named_with_its_values() -> None:
    assert violations_of(PROBLEM, (0, 0)) == ("constraint 0 forbids a=no, b=0",)
    assert violations_of(PROBLEM, (1, 2)) == (
        "capacity: 9 exceeds the capacity of 8",
        "function 0 has no value for a=yes, b=2",
    )
    bounded = replace(PROBLEM, upper_bound=4)
    assert violations_of(bounded, (1, 1)) == ("value 4 is not below the upper bound 4",)
    assert violations_of(bounded, (1, 0)) == ()


def test_an_allowed_list_that_misses_the_assignment() -> None:
    only = Problem((Variable("a", 3),), constraints=(Constraint((0,), np.array([[2]]), allowed=True),))
    assert violations_of(only, (1,)) == ("constraint 0 does not list a=1",)


def test_a_claim_made_in_another_semiring_is_judged_there() -> None:
    problem = Problem((Variable("a", 2),), (Function.from_array((0,), [2, 3]),), constant=2)
    claim = Solution("test", {"a": "1"}, {}, 6, "max-product")
    assert verify_solution(problem, claim).accepted
    assert verify_solution(problem, replace(claim, semiring=None)).value == 5
    # Without a constant there is none in the other semiring either: not the 0 that is neutral where values are added.
    assert verify_solution(Problem(problem.variables, problem.functions), replace(claim, claimed_value=3)).accepted


def test_the_library_function_takes_paths(tmp_path: Path) -> None:
    (tmp_path / "s.sol").write_text("a no\nb 1\n# value: 1\n")
    assert oocbe.verify(PROBLEM, tmp_path / "s.sol").accepted


def test_a_claim_beyond_the_range_of_floats_is_no_crash() -> None:
    claim = 10**400
    assert not Verdict(2.5, (), claim).agrees
    assert Verdict(claim, (), claim).agrees
    assert not Verdict(claim, (), 2.5).agrees
