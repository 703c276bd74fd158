"""Reading and writing LP: meaning, also by HiGHS, and every kind of damage with its line."""

from __future__ import annotations

import lzma
import re

import highspy
import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read_model, write

PROGRAM = r"""\ a comment [ -> sos
Maximize
 value: 3 x + 2 y + 4 z + 0.5
Subject To
 room: 2 x + y + 3 z <= 7
 some: x + z >= 1
Bounds
 0 <= x <= 2
 -1 <= y <= 3
 z <= 2
General
 x y z
End
"""


def test_meaning(tmp_path):
    path = tmp_path / "p.lp.xz"
    path.write_bytes(lzma.compress(PROGRAM.encode()))
    system = read_model(path)
    assert system.names == ("x", "y", "z") and system.row_names == ("room", "some")
    assert system.maximises and system.constant == 0.5 and system.integral.all()
    values = [
        3 * x + 2 * y + 4 * z + 0.5
        for x in range(3)
        for y in range(-1, 4)
        for z in range(3)
        if 2 * x + y + 3 * z <= 7 and x + z >= 1
    ]
    assert oocbe.solve(path).value == max(values)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_is_read_back_equal(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (dict(enumerate((rng.integers(-3, 4, 4) * 0.1).tolist())), -0.3 if row % 2 else -np.inf, 1 / 3)
        for row in range(3)
    ]
    system = oocbe.LinearSystem.from_rows(
        rows,
        [0, -np.inf, -2, 1 / 7],
        [1, np.inf, 5, np.inf],
        [True, False, True, False],
        names=("a", "b_1", "x.y", "d"),
        objective=rng.integers(-3, 4, 4) / 3,
        constant=-0.7,
        maximises=bool(seed % 2),
    )
    write(system, tmp_path / "p.lp")
    again = read_model(tmp_path / "p.lp")
    assert (again.names, again.maximises, again.constant) == (system.names, system.maximises, system.constant)
    for name in ("lower", "upper", "integral", "objective"):
        assert getattr(again, name).tolist() == getattr(system, name).tolist()
    sides = [
        (coefficients, low, high)
        for coefficients, lower, upper in zip(dense(system), system.row_lower, system.row_upper, strict=True)
        for low, high in [(lower, np.inf), (-np.inf, upper)]
        if np.isfinite(low) or np.isfinite(high)
    ]
    assert list(zip(dense(again), again.row_lower, again.row_upper, strict=True)) == sides
    peer = by_highs(tmp_path / "p.lp")
    assert (tuple(peer.col_names_), peer.offset_) == (system.names, system.constant)
    assert (list(peer.col_lower_), list(peer.col_upper_)) == (system.lower.tolist(), system.upper.tolist())
    assert (list(peer.row_lower_), list(peer.row_upper_)) == (again.row_lower.tolist(), again.row_upper.tolist())
    assert list(peer.col_cost_) == system.objective.tolist()


def dense(system):
    out = np.zeros((system.rows, system.variables))
    out[np.repeat(np.arange(system.rows), np.diff(system.starts)), system.columns] = system.coefficients
    return [tuple(row) for row in out.tolist()]


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("Maximize", "Largest", 2, "found 'Largest', expected minimize or maximize"),
        ("3 x + 2 y", "3 x 2 y", 3, "found '2', expected a sign or a section"),
        ("3 x", "3 * x", 3, "found '*', expected a sign, as terms"),
        ("x + z >= 1", "x + z >=", 7, "found 'Bounds', expected the right side, a number"),
        ("x + z >= 1", "x + z + 1 >= 1", 6, "expected constants on its right side"),
        ("x + z >= 1", "x + z >= 1 + x", 7, "expected a sign or a relation"),
        ("x + z >= 1", "x + bounds >= 1", 6, "found 'bounds', expected a number or a variable"),
        ("3 x +", "1e20 x + 0.1 x +", 3, "whose sum is no double"),
        ("z <= 2", "z <= -inf", 10, "found a bound that leaves no value"),
        ("z <= 2", "z", 11, "expected a sign or a relation"),
        ("Subject To", "Subject", 5, "expected 'to' after 'subject'"),
        ("End", "", 12, "the file ends, expected 'end'"),
        ("End", "End x", 13, "found 'x', expected nothing after 'end'"),
    ],
)
def test_damage(tmp_path, old, new, line, expected):
    path = tmp_path / "p.lp"
    path.write_text(PROGRAM.replace(old, new, 1))
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read_model(path)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("+ 0.5", "+ [ x ^ 2 ] / 2", 3, "quadratic parts"),
        ("x + z >= 1", "x = 1 -> z >= 1", 6, "indicator constraints"),
        ("General", "Semi-continuous", 11, "semicontinuous variables"),
        ("General", "SOS", 11, "special ordered sets"),
        ("General", "General Constraints", 11, "general constraints"),
    ],
)
def test_parts_that_are_not_linear_are_named(tmp_path, old, new, line, what):
    path = tmp_path / "p.lp"
    path.write_text(PROGRAM.replace(old, new, 1))
    with pytest.raises(UnsupportedError, match=re.escape(f"p.lp, line {line}: {what} are not supported")):
        read_model(path)


def test_decimals_of_one_variable_are_added_as_they_are_written(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(PROGRAM.replace("x + z >= 1", "0.1 x + z + 0.2 x - 1 z >= 0.3"))
    system = read_model(path)
    assert dense(system)[1] == (0.3, 0, 0)


SPELLINGS = r"""MIN obj: - x + 3 y - -2 z +1e1
st
 - x >= -4
 -2 <= x - y <= +3
 free: x + x => .5
 5 >= w
Bounds
 x free
 -inf <= y <= infinity
 -3.5 <= z
 w = 2
bin
 b x
int w
END
"""


def test_spellings(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(SPELLINGS)
    system = read_model(path)
    assert (system.names, system.row_names) == (("x", "y", "z", "w", "b"), ("row 0", "row 1", "free", "row 3"))
    assert (system.objective.tolist(), system.constant, system.maximises) == ([-1, 3, 2, 0, 0], 10, False)
    assert dense(system) == [(-1, 0, 0, 0, 0), (1, -1, 0, 0, 0), (2, 0, 0, 0, 0), (0, 0, 0, 1, 0)]
    assert system.row_lower.tolist() == [-4, -2, 0.5, -np.inf]
    assert system.row_upper.tolist() == [np.inf, 3, np.inf, 5]
    assert system.lower.tolist() == [0, -np.inf, -3.5, 2, 0] and system.upper.tolist() == [1, np.inf, np.inf, 2, 1]
    assert system.integral.tolist() == [True, False, False, True, True]


def test_integers_of_any_size_are_exact(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(f"max x\nst\nc: {2**70 + 1} x <= {2**71}\nbounds\nx <= 9\ngeneral\nx\nend\n")
    system = read_model(path)
    assert system.is_exact and system.coefficients.tolist() == [2**70 + 1]
    assert oocbe.solve(path).value == 1


def by_highs(path):
    """The program as HiGHS reads it: an independent reader of what is no trap."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    return solver.getLp()


NAMES = ("e1", "2x", "free", "a b", "a+b", "a_b", "x[0]", "x(0)", "info", "nan", "é", ".x", "e", "x_0_", "x,y")


def test_names_that_are_none_are_replaced(tmp_path):
    rows = [(dict.fromkeys(range(len(NAMES)), 1.0), 1.0, 3.0), ({0: 1.0}, 1.0, np.inf)]
    system = oocbe.LinearSystem.from_rows(
        rows, [0] * len(NAMES), [1] * len(NAMES), names=NAMES, row_names=("c", "c_lo"), objective=np.arange(15.0)
    )
    write(system, tmp_path / "p.lp")
    again = read_model(tmp_path / "p.lp")
    assert again.names == (
        *("_e1", "_2x", "_free", "a_b_2", "a_b_3", "a_b", "x_0__2", "x(0)"),
        *("_info", "_nan", "_", "_.x", "e", "x_0_", "x,y"),
    )
    assert again.row_names == ("c_lo", "c_up", "c_lo_2")
    assert tuple(by_highs(tmp_path / "p.lp").col_names_) == again.names


BY_HIGHS = r"""\ File written by HiGHS .lp file handler
min
 obj: +1 c0 +2 c1
st
 r0lo: +1 c0 +1 c1 >= +2
 r0up: +1 c0 +1 c1 <= +5
 r_ekk1: = +0
bounds
 c0 <= 3
 c1 <= 3
bin
gen
 c0
 c1
semi
end
"""


def test_empty_sections_and_empty_rows(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(BY_HIGHS)
    assert oocbe.solve(path).value == 2
    system = read_model(path)
    assert (system.row_lower[2], system.row_upper[2], system.starts.tolist()) == (0, 0, [0, 2, 4, 4])
    path.write_text(BY_HIGHS.replace("semi", "sos\nsemi-continuous\nlazy constraints\nuser cuts"))
    assert oocbe.solve(path).value == 2
    path.write_text(BY_HIGHS.replace("semi", "semi\n c0"))
    with pytest.raises(UnsupportedError, match="line 15: semicontinuous variables are not supported"):
        read_model(path)


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ("= 0", True), ("= 1", False), (">= 0", True), ("<= -1", False), ("0 >= -1", True), ("0 = 1", False),
        ("3 >= 2", True), ("2 >= 3", False), ("1 <= 0 <= 3", False), ("-1 <= 0 <= 3", True), ("0 c0 <= -1", False),
    ],
)  # fmt: skip
def test_rows_without_variables_hold_or_not(tmp_path, row, holds):
    path = tmp_path / "p.lp"
    path.write_text(BY_HIGHS.replace("r_ekk1: = +0", f"r: {row}"))
    assert oocbe.solve(path).value == (2 if holds else None)


BY_GUROBI = """\\ Model LP_test
Maximize
  3 x[0] + 5 x[1] - 2 flow[a,b] + 0 y[-1,(2,c)][d].e
Subject To
 R[0]: x[0] <= 4
 R1: x[0] + 2 x[1]-flow[a,b] <= 12
 R2: 3 x[0] + 2 x[1] <= 18
Bounds
 flow[a,b] <= 1
 y[-1,(2,c)][d].e <= 1
Generals
 x[0] x[1] flow[a,b] y[-1,(2,c)][d].e
End
"""


def test_brackets_glued_to_a_name_belong_to_it(tmp_path):
    path = tmp_path / "p.lp"
    path.write_text(BY_GUROBI)
    system = read_model(path)
    assert system.names == ("x[0]", "x[1]", "flow[a,b]", "y[-1,(2,c)][d].e") and system.row_names[0] == "R[0]"
    assert oocbe.solve(path).value == 31
    for quadratic in ("[ x[0] ^ 2 ] / 2", "[x[0]^2]/2", "2[ x[0] * x[1] ]"):
        path.write_text(BY_GUROBI.replace("- 2 flow[a,b]", f"+ {quadratic}"))
        with pytest.raises(UnsupportedError, match="line 3: quadratic parts are not supported"):
            read_model(path)
