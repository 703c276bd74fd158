"""``oocbe.propagate`` and ``oocbe propagate``: what is left has the same solutions, and files of it read the same."""

from __future__ import annotations

import itertools
import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import UnsupportedError, UsageError
from oocbe.formats import as_problem, read_model, write
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.settings.tuning import tuning
from oocbe.propagation import bounds
from oocbe.propagation.bounds import exact_round, propagate_round
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.propagate import probe
from tests.helpers.effort import examples
from tests.propagation.test_fixpoint import left, models
from tests.propagation.test_linear_bounds import integer_systems, real_systems


def labelled(problem):
    """Solutions by the labels of their values, with what each is worth."""
    found = {}
    for assignment in itertools.product(*(range(size) for size in problem.sizes)):
        value = problem.evaluate(assignment)
        if value is not None:
            found[tuple(v.label(a) for v, a in zip(problem.variables, assignment, strict=True))] = value
    return found


@settings(max_examples=examples(200))
@given(models(), st.booleans())
def test_what_is_left_has_the_same_solutions(model, probing):
    result = oocbe.propagate(model, probe=probing)
    before = labelled(model.expanded())
    if result.status == "infeasible":
        assert not before and result.reduced is None and result.domains is None
        return
    assert labelled(result.reduced.expanded()) == before
    assert sum(result.reduced.problem.sizes) == sum(model.problem.sizes) - result.removed
    again = oocbe.propagate(result.reduced, probe=probing)
    assert (again.status, again.removed) == ("fixpoint", 0)
    assert json.loads(json.dumps(result.to_json()))["status"] == "fixpoint"


@settings(max_examples=examples(160))
@given(models(), st.sampled_from([0, 200, tuning().work_bytes]))
def test_probing_removes_what_is_contradictory_alone_and_puts_everything_back(model, bit_set_bytes):
    network = Network(model, bit_set_bytes, 0)
    found = network.propagate()
    if found.status != "fixpoint":
        return
    before = left(found, model)
    for v in range(len(model.problem.variables)):
        for value in sorted(before[v]):
            tried = network.tried(v, value)
            fresh = Network(model)
            fresh.domains.keep(v, np.arange(model.problem.sizes[v]) == value)
            assert fresh.propagate().status == tried.status
            assert left(found, model) == before
            assert found.domains.counts.tolist() == [len(values) for values in before]
    probed = probe(network, found)
    assert probed.probes >= probed.failures
    if found.status == "fixpoint":
        for v in range(len(model.problem.variables)):
            assert all(network.tried(v, value).status == "fixpoint" for value in found.domains.values(v).tolist())


@settings(max_examples=examples(200))
@given(integer_systems())
def test_a_system_and_its_problem_have_the_same_points(system):
    problem = as_problem(system)
    points = []
    for point in itertools.product(
        *(range(int(a), int(b) + 1) for a, b in zip(system.lower, system.upper, strict=True))
    ):
        sums = np.zeros(system.rows)
        np.add.at(
            sums,
            np.repeat(np.arange(system.rows), np.diff(system.starts)),
            system.coefficients * np.array(point)[system.columns],
        )
        if ((sums >= system.row_lower) & (sums <= system.row_upper)).all():
            points.append(tuple(map(str, point)))
    assert sorted(labelled(problem)) == sorted(points)
    by_values, by_bounds = oocbe.propagate(problem), oocbe.propagate(system)
    if by_bounds.status == "infeasible":
        assert not points
    elif by_values.status == "fixpoint":
        for v, name in enumerate(system.names):
            kept = by_values.reduced.variables[v]
            assert {kept.label(a) for a in range(kept.size)} >= {p[v] for p in points}, name


@pytest.mark.parametrize("systems", [integer_systems(), real_systems()])
def test_mps_files_of_systems_read_the_same(tmp_path, systems):
    @settings(max_examples=examples(200))
    @given(systems)
    def check(system):
        path = tmp_path / "s.mps"
        write(system, path)
        again = read_model(path)
        kept = np.isfinite(system.row_lower) | np.isfinite(system.row_upper)
        assert again.names == system.names and again.row_names == tuple(f"row_{r}" for r in np.flatnonzero(kept))
        assert again.lower.tolist() == system.lower.tolist() and again.upper.tolist() == system.upper.tolist()
        assert again.integral.tolist() == system.integral.tolist()
        assert again.row_lower.tolist() == pytest.approx(system.row_lower[kept].tolist(), abs=1e-12)
        assert (again.row_lower <= system.row_lower[kept]).all()
        assert again.row_upper.tolist() == system.row_upper[kept].tolist()
        assert sorted(again.coefficients) == sorted(system.coefficients)

    check()


def test_mps_of_real_instances_survives(data, tmp_path):
    for name in ("dsbmip", "gt2", "rentacar", "bell5"):
        system = read_model(data(f"mps/{name}.mps.gz"))
        write(system, tmp_path / "again.mps.gz")
        again = read_model(tmp_path / "again.mps.gz")
        for what in ("starts", "columns", "coefficients", "lower", "upper", "integral", "objective", "row_upper"):
            assert np.array_equal(getattr(again, what), getattr(system, what)), what
        assert np.allclose(again.row_lower, system.row_lower, rtol=1e-15, atol=0)
        assert (again.names, again.row_names, again.constant) == (system.names, system.row_names, system.constant)


ENDLESS = """NAME endless
ROWS
 N C
 L LE
 G GE
COLUMNS
 M 'MARKER' 'INTORG'
 X C -1 LE 2
 X GE 1
 Y C -3 LE 3
 M 'MARKER' 'INTEND'
RHS
 RHS LE 12 GE 1
BOUNDS
 PL B X
 PL B Y
ENDATA
"""


def test_endless_domains_are_solved_where_propagation_ends_them(tmp_path):
    path = tmp_path / "endless.mps"
    path.write_text(ENDLESS)
    with pytest.raises(UnsupportedError, match="variable X has no bound above; give it one"):
        oocbe.read(path)
    result = oocbe.solve(path)
    best = min(-x - 3 * y for x in range(1, 20) for y in range(20) if 2 * x + 3 * y <= 12)
    assert (result.status, result.value) == ("optimal", best)
    assert oocbe.count(str(path)).value == sum(2 * x + 3 * y <= 12 for x in range(1, 20) for y in range(20))
    path.write_text(ENDLESS.replace("GE 1\nBOUNDS", "GE 100\nBOUNDS"))
    assert oocbe.solve(path).status == "infeasible"
    path.write_text(ENDLESS.replace(" M 'MARKER' 'INTORG'\n", "").replace(" M 'MARKER' 'INTEND'\n", ""))
    with pytest.raises(UnsupportedError, match="variable X is real"):
        oocbe.solve(path)


def test_fractions_become_integers(tmp_path):
    path = tmp_path / "fractions.mps"
    path.write_text(
        "NAME f\nROWS\n N C\n L R\nCOLUMNS\n M 'MARKER' 'INTORG'\n X R .1 C 0.5\n Y R 0.25\n"
        "RHS\n R R 0.7\nBOUNDS\n UP B X 9\n UP B Y 9\nENDATA\n"
    )
    problem = oocbe.read(path)
    expected = {(str(x), str(y)) for x in range(10) for y in range(10) if 10 * x + 25 * y <= 70}
    assert set(labelled(problem)) == expected


def test_a_fixed_variable_may_have_any_coefficient(tmp_path):
    """Beyond 64 bits as well, once fractions have a common denominator: there is nothing to choose."""
    path = tmp_path / "fixed.mps"
    path.write_text(
        "NAME f\nROWS\n N C\n L R\nCOLUMNS\n M 'MARKER' 'INTORG'\n X R 1e12 C -1\n Y R 0.00000001 C -1\n"
        "RHS\n R R 2000000000000\nBOUNDS\n FX B X 2\n UP B Y 3\nENDATA\n"
    )
    result = oocbe.solve(path)
    assert (result.status, result.value) == ("optimal", -2)


def test_json_and_exit_codes(tmp_path):
    runner = CliRunner()
    path = tmp_path / "p.opb"
    path.write_text("1 x1 1 x2 >= 2 ;\n1 x1 -1 x3 >= 0 ;\n")
    done = runner.invoke(app, ["propagate", str(path), "--json", "--output", str(tmp_path / "out.mps")])
    content = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (content["status"], content["removed"], content["rounds"]) == ("fixpoint", 2, [2])
    assert content["domains"] == {"x1": [1, 1], "x2": [1, 1], "x3": [0, 1]}
    assert read_model(tmp_path / "out.mps").lower.tolist() == [1, 1, 0]
    done = runner.invoke(app, ["propagate", str(path), "--probe", "--json"])
    content = json.loads(done.stdout)
    assert content["domains"] == {"x1": [1, 1], "x2": [1, 1], "x3": [0, 1]}
    assert (content["probes"], content["failures"]) == (2, 0)
    path.write_text("1 x1 1 x2 >= 3 ;\n")
    done = runner.invoke(app, ["propagate", str(path), "--json", "--output", str(tmp_path / "none.mps")])
    content = json.loads(done.stdout)
    assert (done.exit_code, content["status"], content["constraint"]) == (10, "infeasible", "constraint 1")
    assert not (tmp_path / "none.mps").exists()
    endless = tmp_path / "endless.mps"
    endless.write_text(ENDLESS.replace(" L LE", " G LE"))
    done = runner.invoke(app, ["propagate", str(endless), "--json"])
    assert json.loads(done.stdout)["domains"]["X"] == [1, None]
    done = runner.invoke(app, ["propagate", str(path), "--rounds", "-1"])
    assert done.exit_code == 2 and "at least 0" in done.output
    done = runner.invoke(app, ["propagate", str(endless), "--rounds", "0"])
    assert done.exit_code == 20 and "limit of 0 rounds" in done.output


def test_inspect_describes_files_as_they_are_written(data):
    runner = CliRunner()
    done = runner.invoke(app, ["inspect", str(data("mps/egout.mps.gz")), "--json"])
    content = json.loads(done.stdout)
    assert (content["kind"], content["rows"], content["non_zeros"]) == ("linear system", 98, 282)
    done = runner.invoke(app, ["inspect", str(data("xcsp/Amaze-Amaze_2012-03-07.xml.gz")), "--json"])
    content = json.loads(done.stdout)
    assert (content["variables"], content["short_tables"], content["left_out"]) == (121, 65, [])


def test_ctrl_c_ends_with_what_is_known(interrupts_heard, monkeypatch):
    # Each makes the other larger by one, for ever.
    rows = [({0: 1, 1: -1}, 1, math.inf), ({1: 1, 0: -1}, 0, math.inf)]
    endless = oocbe.LinearSystem.from_rows(rows, [0, 0], [math.inf, math.inf])
    made = []

    def interrupted_in_the_third_round(*arguments):
        made.append(propagate_round(*arguments))
        if len(made) == 3:
            signal.raise_signal(signal.SIGINT)
        return made[-1]

    monkeypatch.setattr(bounds, "propagate_round", interrupted_in_the_third_round)
    with pytest.raises(oocbe.Interrupted) as caught:
        oocbe.propagate(endless, rounds=10**9)
    assert caught.value.result.status == "interrupted"
    assert caught.value.result.reduced.lower[0] > 0
    assert len(made) == 3


def test_time_limits_end_it():
    rows = [({0: 1, 1: -1}, 1, math.inf), ({1: 1, 0: -1}, 0, math.inf)]
    endless = oocbe.LinearSystem.from_rows(rows, [0, 0], [math.inf, math.inf])
    result = oocbe.propagate(endless, rounds=10**9, time_limit=0.2)
    assert result.status == "limit" and "time limit" in result.reason


def test_wrong_use():
    with pytest.raises(UsageError, match="at least 0"):
        oocbe.propagate(oocbe.LinearSystem.from_rows([], [0], [1]), rounds=-1)
    huge = oocbe.LinearSystem.from_rows([({0: 2**70, 1: -(2**70)}, 0, math.inf)], [0, 0], [math.inf, math.inf])
    with pytest.raises(UnsupportedError):
        oocbe.propagate(huge, probe=True)


def test_probing_a_system_with_reals_tries_its_integers():
    # Whatever x1 is, x0 = 1 leaves no room for x2 >= 1 / 2.
    rows = [({0: 1, 1: 1, 2: 1}, -math.inf, 1.25), ({2: 2, 1: 4}, 1, math.inf), ({1: 1, 0: -1}, 0, math.inf)]
    system = oocbe.LinearSystem.from_rows(rows, [0, 0, 0], [1, 1, 9], [True, True, False])
    result = oocbe.propagate(system, probe=True)
    assert (result.status, result.failures) == ("fixpoint", 1)
    assert result.domains["x0"] == (0, 0) and oocbe.propagate(system).domains["x0"] == (0, 1)


def test_parts_that_are_left_out_are_named(tmp_path):
    path = tmp_path / "tour.xml"
    path.write_text(
        '<instance format="XCSP3" type="CSP"> <variables> <array id="x" size="[3]"> 0..2 </array> </variables>\n'
        "<constraints> <stretch> x[] </stretch> <intension> lt(x[0],x[1]) </intension> </constraints> </instance>"
    )
    result = oocbe.propagate(path)
    assert result.status == "fixpoint" and any("<stretch>" in text for text in result.left_out)
    assert isinstance(result.reduced, CompactProblem) and result.removed == 2
    with pytest.raises(UnsupportedError, match="<stretch> is not supported"):
        oocbe.solve(path)


CP_SAT = """
import json, sys
from ortools.sat.python import cp_model
for system in json.loads(sys.stdin.read()):
    model = cp_model.CpModel()
    x = [model.new_int_var(low, high, "") for low, high in zip(system["lower"], system["upper"])]
    for terms, low, high in system["rows"]:
        columns, coefficients = zip(*terms)
        own = cp_model.LinearExpr.weighted_sum([x[v] for v in columns], coefficients)
        model.add_linear_constraint(own, low, high)
    solver = cp_model.CpSolver()
    p = solver.parameters
    p.cp_model_presolve, p.cp_model_probing_level, p.linearization_level, p.symmetry_level = False, 0, 0, 0
    p.stop_after_root_propagation, p.fill_tightened_domains_in_response, p.num_workers = True, True, 1
    status = solver.solve(model)
    print(json.dumps([[min(d.domain), max(d.domain)] for d in solver.response_proto.tightened_variables]))
"""
"""A program of its own: OR-Tools and other solvers do not bear one another in one process."""


def of_cp_sat(system):
    """A system as the program reads it."""
    rows = []
    for row in range(system.rows):
        entries = range(system.starts[row], system.starts[row + 1])
        terms = [(int(system.columns[e]), int(system.coefficients[e])) for e in entries]
        low, high = system.row_lower[row], system.row_upper[row]
        rows.append(
            (terms, math.ceil(low) if low > -math.inf else -(2**62), math.floor(high) if high < math.inf else 2**62)
        )
    return {"lower": system.lower.astype(int).tolist(), "upper": system.upper.astype(int).tolist(), "rows": rows}


def test_bounds_are_those_of_cp_sat(data):
    pytest.importorskip("ortools")
    names = ("seymour", "p0548", "harp2", "p0201")
    systems = [read_model(data(f"mps/{name}.mps.gz")) for name in names]
    given = json.dumps([of_cp_sat(system) for system in systems])
    done = subprocess.run([sys.executable, "-c", CP_SAT], input=given, capture_output=True, text=True, check=True)
    for name, system, line in zip(names, systems, done.stdout.splitlines(), strict=True):
        found = oocbe.propagate(system).reduced
        assert [[int(a), int(b)] for a, b in zip(found.lower, found.upper, strict=True)] == json.loads(line), name


MODELLED = """max o: 3.5 ONE_VAR_CONSTANT + 2 x - y
st
 one: ONE_VAR_CONSTANT = 1.0
 r: 2 x - 4 y + 2 RgR0 = 6
 s: RgR1 - RgR0 + x = 1
bounds
 x <= 3
 y <= 2
 RgR0 <= 4.5
 __dummy = 0
 RgR1 <= 9
gen
 x y
end
"""


def test_reals_that_every_solution_gives_an_integer(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(MODELLED)
    points = [
        (3.5 + 2 * x - y, x, y, slack)
        for x in range(4)
        for y in range(3)
        if 0 <= (slack := 3 - x + 2 * y) <= 4 and 0 <= 1 - x + slack <= 9
    ]
    result = oocbe.solve(path)
    assert result.value == max(points)[0] and oocbe.count(path).value == len(points)
    labels = result.to_json()["assignment"]
    assert (3.5 + 2 * int(labels["x"]) - int(labels["y"]), *(int(labels[n]) for n in ("x", "y", "RgR0"))) in points
    path.write_text(MODELLED.replace("2 x - 4 y", "x - 4 y"))  # RgR0 may be a half now
    with pytest.raises(UnsupportedError, match="variable RgR0 is real"):
        oocbe.solve(path)


def test_bounds_that_go_on_for_ever_are_kept_below_infinity():
    """Upper bounds of a system without a solution double in each round."""
    rows = [({0: 7.0, 1: 4.0}, -math.inf, 0.0), ({0: -2.0, 1: -1.0}, -math.inf, 0.0), ({1: 1.0}, 0.15, math.inf)]
    system = oocbe.LinearSystem.from_rows(rows, [-math.inf, 0], [2.5, math.inf])
    left = oocbe.propagate(system).reduced
    assert left is None or (np.isfinite(left.upper[0]) and left.upper[0] < -1e19)
    with pytest.raises(UnsupportedError, match="variable x0 has no bound below"):
        oocbe.propagation.propagate.finite(system)
    lower, upper = np.array([0, 10**400], dtype=object), np.array([math.inf, 10**400], dtype=object)
    assert exact_round(system, lower, upper, np.array([0, 0, 1], dtype=np.uint8)) == (0, None, None)
    huge = oocbe.propagation.propagate.with_bounds(
        system, np.array([-(10**400), 10**400], dtype=object), np.array([-(10**400), 10**400], dtype=object)
    )
    assert huge.lower.tolist() == [-math.inf, -huge.upper[0]] and huge.upper[1] == math.inf
