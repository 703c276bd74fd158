"""Results: exit codes, labels, and JSON that any parser reads."""

import json
from dataclasses import replace

import pytest

from oocbe.model.results.result import Result, Status
from tests.helpers.sample_results import make_result


@pytest.mark.parametrize(("status", "code"), [("optimal", 0), ("exact", 0), ("infeasible", 10), ("limit", 20)])
def test_exit_codes(status: Status, code: int) -> None:
    assert make_result(status).exit_code == code


def test_json_names_variables_and_values() -> None:
    content = json.loads(json.dumps(make_result().to_json(), allow_nan=False))
    assert content["schema_version"] == 1
    assert content["assignment"] == {"a": "yes", "b": "0"}
    assert content["order"] == ["b", "a"]
    assert (content["value"], content["status"], content["seconds"]["total"]) == (3, "optimal", 0.5)


def test_json_has_every_field_of_the_result() -> None:
    missing = set(Result.__dataclass_fields__) - set(make_result().to_json())
    assert missing == {"variables"}


def test_without_an_assignment_there_are_no_labels() -> None:
    result = replace(make_result("infeasible"), assignment=None, value=None)
    assert result.labels is None
    assert result.to_json()["assignment"] is None
