"""Synthetic days look like the real ones, and the format's writer gives back what its reader reads."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.errors import UnsupportedError, UsageError
from oocbe.formats.spot import render
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.stress import Spot5Settings, grid_network, spot5_day

ROOT = Path(__file__).parents[2]


def same(one: Problem, other: Problem) -> bool:
    return (
        [(v.size, v.labels) for v in one.variables] == [(v.size, v.labels) for v in other.variables]
        and [(c.scope, c.tuples.tolist()) for c in one.constraints]
        == [(c.scope, c.tuples.tolist()) for c in other.constraints]
        and [(f.scope, f.values.tolist()) for f in one.functions]
        == [(f.scope, f.values.tolist()) for f in other.functions]
        and [(c.scope, np.concatenate(c.coefficients).tolist()) for c in one.linear_constraints]
        == [(c.scope, np.concatenate(c.coefficients).tolist()) for c in other.linear_constraints]
    )


def test_a_day_has_the_structure_of_a_real_one() -> None:
    day = spot5_day(Spot5Settings(photographs=200, window=12, ternary=1.0, seed=1))
    kinds = Counter(v.labels for v in day.variables)
    assert set(kinds) == {("0", "13"), ("0", "2"), ("0", "1", "2", "3")}
    arities = Counter(len(c.scope) for c in day.constraints)
    assert 2.7 <= arities[2] / 200 <= 16
    assert arities[3] == 200
    clashes = {
        tuple(tuple(day.variables[v].label(value) for v, value in zip(c.scope, row, strict=True)) for row in c.tuples)
        for c in day.constraints
        if len(c.scope) == 2
    }
    assert {(("1", "1"), ("2", "2"), ("3", "3")), (("13", "13"),), (("1", "13"), ("3", "13"))} <= clashes
    assert {int(f.values[0]) for f in day.functions} == {1, 2, 1000}


def test_leaving_everything_out_is_feasible_and_costs_all_weights() -> None:
    day = spot5_day(Spot5Settings(photographs=50, seed=3))
    assert day.evaluate([0] * 50) == sum(int(f.values[0]) for f in day.functions)


def test_a_wider_window_has_more_clashes() -> None:
    counts = [len(spot5_day(Spot5Settings(window=w, ternary=0, seed=2)).constraints) for w in (0, 4, 8, 16)]
    assert counts[0] == 0
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("settings", [{"photographs": 0}, {"stereo": 1.1}, {"window": -1}, {"ternary": 1000}])
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        Spot5Settings(**settings)  # type: ignore[arg-type]


def test_the_shipped_example_is_what_its_command_makes() -> None:
    day = spot5_day(Spot5Settings(photographs=120, window=10, seed=4))
    assert render(day) == (ROOT / "examples" / "daily.spot").read_text()
    grid = grid_network(6, 4, tightness=0.3, seed=1)
    shipped = oocbe.read(ROOT / "examples" / "grid.wcsp")
    assert [f.scope for f in shipped.functions] == [f.scope for f in grid.functions]


def test_written_days_are_read_back(tmp_path: Path) -> None:
    day = spot5_day(Spot5Settings(photographs=60, seed=5))
    oocbe.write(day, tmp_path / "day.spot.gz")
    assert same(day, oocbe.read(tmp_path / "day.spot.gz"))


@pytest.mark.parametrize("name", ["54", "503", "1502"])
def test_real_days_survive_a_round_trip(name: str, tmp_path: Path, data: Callable[[str], Path]) -> None:
    real = oocbe.read(data(f"spot5/{name}.spot"))
    (tmp_path / "copy.spot").write_text(render(real))
    assert same(real, oocbe.read(tmp_path / "copy.spot"))


def test_a_capacity_is_written_as_in_published_files(tmp_path: Path) -> None:
    capacity = LinearConstraint((1, 0), (np.array([0, 7]), np.array([0, 199, 1])), 200, "recorder capacity")
    problem = Problem(PHOTOGRAPH, (COST,), linear_constraints=(capacity,))
    assert render(problem).splitlines()[-2:] == ["1", "90000"]
    (tmp_path / "copy.spot").write_text(render(problem))
    copy = oocbe.read(tmp_path / "copy.spot")
    for values in product(range(3), range(2)):
        assert copy.evaluate(values) == problem.evaluate(values)
    assert render(copy) == render(problem)


PHOTOGRAPH = (Variable("p", 3), Variable("q", 2))
COST = Function((0,), np.array([[0]]), np.array([5]), default=0)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Problem(PHOTOGRAPH, (COST,), constant=1), "without a constant"),
        (Problem(PHOTOGRAPH, (Function.from_array((0, 1), np.ones((3, 2), int)),)), "single photographs"),
        (Problem(PHOTOGRAPH, (Function.from_array((0,), [5, 0, 1]),)), "one value that costs"),
        (Problem(PHOTOGRAPH, (COST,), (Constraint((0, 1), np.array([[0, 1]])),)), "that are taken"),
        (Problem(PHOTOGRAPH, linear_constraints=(LinearConstraint((1,), (np.array([0, 7]),), 5),)), "capacity of 200"),
        (Problem(PHOTOGRAPH, linear_constraints=(LinearConstraint((), (), -1),)), "capacity of 200"),
        (Problem(PHOTOGRAPH, linear_constraints=(LinearConstraint((1,), (np.array([0, -7]),), 200),)), "below 0"),
        (Problem(PHOTOGRAPH, linear_constraints=(LinearConstraint((1,), (np.array([3, 7]),), 200),)), "left out"),
        (
            Problem(PHOTOGRAPH, linear_constraints=(LinearConstraint((1,), (np.array([0, 10**10]),), 200),)),
            "consumptions",
        ),
    ],
)
def test_what_the_format_cannot_express_is_refused(problem: Problem, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        render(problem)


def test_allowed_lists_become_forbidden_ones() -> None:
    allowed = Constraint((1, 0), np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 2]]), allowed=True)
    assert render(Problem(PHOTOGRAPH, (COST,), (allowed,))).splitlines()[-1] == "2 1 0 1 1"
