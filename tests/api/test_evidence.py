"""What every task's result says of the evidence that it was given."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.api.tasks.questions import TASKS
from oocbe.api.tasks.verbs import run_task
from oocbe.cli.main import app

FAST = {"order_seconds": 0.0, "backend": "cpu"}
RAIN, GRASS = oocbe.Variable("rain", 2, ("yes", "no")), oocbe.Variable("grass", 2, ("wet", "dry"))
NETWORK = oocbe.Problem(
    (RAIN, GRASS),
    (
        oocbe.Function.from_array((0,), np.array([0.25, 0.75])),
        oocbe.Function.from_array((0, 1), np.array([[0.9, 0.1], [0.5, 0.5]])),
    ),
    semiring=oocbe.MAX_PRODUCT,
)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_tells_its_evidence_by_name(task):
    problem = NETWORK if task != "min-marginals" else NETWORK.in_semiring(oocbe.MIN_SUM)
    result = run_task(task, problem, evidence={"grass": "wet"}, **FAST)
    assert result.evidence == result.to_json()["evidence"] == {"grass": "wet"}
    assert "grass=wet" in result._repr_html_()
    assert run_task(task, problem, **FAST).evidence == {}


def test_evidence_of_a_fixed_problem_is_told_as_well():
    assert NETWORK.evidence == {}
    assert NETWORK.with_evidence({"rain": 1, "grass": "dry"}).evidence == {"rain": "no", "grass": "dry"}


def test_the_command_line_prints_it(tmp_path):
    path = tmp_path / "lawn.uai"
    oocbe.formats.write(NETWORK, path)
    grass = oocbe.read(path).variables[1].name  # the format has no names
    asked = ["solve", str(path), "--task", "marginals", "--evidence", f"{grass}=0"]
    assert f"{grass}=0" in CliRunner().invoke(app, asked).stdout
    assert json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["evidence"] == {grass: "0"}
