"""Reading OPB: meaning against brute force over the text, large integers, products, and damage with its line."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read, read_model

SAMPLE = """* #variable= 5 #constraint= 4
* a comment
min: +3 x1 -2 ~x2 +4 x1 x3 ;
+1 x1 +2 x2 -3 ~x3 >= -1 ;
* another
-1 x1 +1 x1 x2 ~x3 +2 x4 <= 1;
+1 x2 +1 x3 +1 x4 = 2 ;
"""


def path_of(tmp_path, text):
    path = tmp_path / "sample.opb"
    path.write_text(text)
    return path


def test_meaning(tmp_path):
    problem = read(path_of(tmp_path, SAMPLE))
    names = [v.name for v in problem.variables]
    assert sorted(names) == sorted(["x1", "x2", "x3", "x4", "x5", "x1*x3", "x1*x2*~x3"])
    expected = {}
    for x in itertools.product((0, 1), repeat=5):
        x1, x2, x3, x4, _ = x
        if x1 + 2 * x2 - 3 * (1 - x3) >= -1 and -x1 + x1 * x2 * (1 - x3) + 2 * x4 <= 1 and x2 + x3 + x4 == 2:
            expected[x] = 3 * x1 - 2 * (1 - x2) + 4 * x1 * x3
    found = {}
    for assignment in itertools.product((0, 1), repeat=7):
        value = problem.evaluate(assignment)
        if value is not None:
            at = dict(zip(names, assignment, strict=True))
            found[tuple(at[f"x{k}"] for k in range(1, 6))] = value
    assert found == expected
    assert oocbe.count(problem).value == len(expected)
    result = oocbe.solve(path_of(tmp_path, SAMPLE), order_seconds=0)
    assert (result.status, result.value) == ("optimal", min(expected.values()))


def test_maximisation_and_variables_that_occur_nowhere(tmp_path):
    problem = read(path_of(tmp_path, "* #variable= 3\nmax: 2 x1 -1 x2 ;\n1 x1 1 x2 >= 1 ;\n"))
    assert [v.name for v in problem.variables] == ["x1", "x2", "x3"]
    assert oocbe.solve(problem).value == 2
    other = read(path_of(tmp_path, "* #variable= 3\n1 a 1 b >= 1 ;\n"))
    assert [v.name for v in other.variables] == ["a", "b"]
    assert oocbe.count(other).value == 3


@pytest.mark.parametrize("weight", ["[3] ", "[ 3 ] ", "[3 ]\n", "[ 3]", "[3]"])
def test_blanks_within_a_weight(tmp_path, weight):
    problem = read(path_of(tmp_path, f"* #variable= 2 #soft= 1\nsoft: 6 ;\n{weight}+1 x1 +1 x2 >= 1 ;\n"))
    assert problem.evaluate((0, 0, 1)) == 3
    assert problem.evaluate((0, 1, 0)) == 0


def test_the_number_of_variables_is_in_any_comment_before_all_else(tmp_path):
    head = "* a comment\n\n* another one #constraint= 1\n * #variable= 3 #constraint= 1\n"
    problem = read(path_of(tmp_path, f"{head}min: +1 x1 ;\n+1 x1 +1 x2 >= 1 ;\n* #variable= 9\n"))
    assert [v.name for v in problem.variables] == ["x1", "x2", "x3"]
    with pytest.raises(UnsupportedError, match="line 4: 99999999 variables"):
        read(path_of(tmp_path, f"{head.replace('= 3', '= 99999999')}+1 x1 >= 1 ;\n"))


def test_comments_behind_a_semicolon(tmp_path):
    problem = read(path_of(tmp_path, "min: +1 x1 ; * x1 is\n+1 x1 +1 x2 >= 1 ;* +1 x3 >= 1 ;\n+1 x2 <= 0 ; *\n"))
    assert [problem.evaluate(x) for x in itertools.product((0, 1), repeat=2)] == [None, None, 1, None]
    with pytest.raises(FormatError, match=r"line 1: found '\*'"):  # perhaps a product
        read(path_of(tmp_path, "min: +1 x1 * x2 ;\n+1 x1 >= 1 ;\n"))


def test_large_numbers_of_soft_constraints_with_a_common_factor(tmp_path):
    path = tmp_path / "large.wbo"
    path.write_text(
        f"soft: ;\n[2] {2**70} x1 >= 1 ;\n[5] {2**70} x1 <= {2**70 - 1} ;\n[1] {2**70} x1 +{2**71} x2 = {2**70} ;\n"
    )
    result = oocbe.solve(path)
    assert (result.status, result.value) == ("optimal", 3)


@pytest.mark.parametrize("most", [None, 9, 3, 0])
def test_soft_constraints(tmp_path, most):
    text = f"""* #variable= 3 #constraint= 6 #soft= 4 mincost= 2 maxcost= 5 sumcost= 14
soft: {"" if most is None else most} ;
[2] +1 x1 +2 x2 -3 ~x3 >= 1 ;
[3] -1 x1 +1 x1 x2 <= -1;
[4] +1 x2 +1 x3 = 1 ;
[5] +1 x1 >= -2 ;
[1] +1 x1 >= 7 ;
+1 x1 +1 x3 >= 1 ;
"""
    path = tmp_path / "sample.wbo"
    path.write_text(text)
    problem = read(path)
    expected = {}
    for x1, x2, x3 in itertools.product((0, 1), repeat=3):
        cost = 2 * (x1 + 2 * x2 - 3 * (1 - x3) < 1) + 3 * (-x1 + x1 * x2 > -1) + 4 * (x2 + x3 != 1) + 1
        if x1 + x3 >= 1 and (most is None or cost < most):
            expected[x1, x2, x3] = cost
    found = {}
    names = [v.name for v in problem.variables]
    for assignment in itertools.product((0, 1), repeat=len(names)):
        value = problem.evaluate(assignment)
        if value is not None:
            at = dict(zip(names, assignment, strict=True))
            key = (at["x1"], at["x2"], at["x3"])
            assert key not in found
            found[key] = value
    assert found == expected
    result = oocbe.solve(path, order_seconds=0)
    assert result.value == min(expected.values(), default=None)


def test_a_literal_and_its_negation_are_never_both_true(tmp_path):
    problem = read(path_of(tmp_path, "1 x1 ~x1 >= 0 ;\n"))
    solutions = [a for a in itertools.product((0, 1), repeat=2) if problem.evaluate(a) is not None]
    assert solutions == [(0, 0), (1, 0)]
    assert read_model(path_of(tmp_path, "2 x1 x1 >= 1 ;\n")).variables == 1


@pytest.mark.parametrize("bits", [52, 53, 62, 63, 64, 127, 255])
def test_large_coefficients(tmp_path, bits):
    big = 2**bits
    text = f"+{big} x1 +{big} x2 +1 x3 >= {big} ;\n+{big} x1 -{big} x2 >= 0 ;\n"
    system = read_model(path_of(tmp_path, text))
    assert system.is_exact == (bits >= 53)
    found = oocbe.formats.as_problem(system) if bits < 62 else None
    if found is not None:
        assert oocbe.count(found).value == sum(a or b for a, b, _ in itertools.product((0, 1), repeat=3) if a >= b)
    # Coefficients beyond 64 bits fit where nothing but their size beside the right side counts.
    small = read(path_of(tmp_path, f"+{big} x1 +2 x2 +3 x3 <= 4 ;\n"))
    assert [a for a in itertools.product((0, 1), repeat=3) if small.evaluate(a) is not None] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
    ]


def test_numbers_that_have_no_room_are_refused_by_name(tmp_path):
    big = 2**100
    with pytest.raises(UnsupportedError, match="constraint 1: as integers, its numbers leave 64 bits"):
        read(path_of(tmp_path, f"+{big} x1 +{big + 1} x2 +{big - 1} x3 +1 x4 <= {2 * big} ;\n"))
    with pytest.raises(UnsupportedError, match="objective's coefficient of x1"):
        read(path_of(tmp_path, f"min: +{big} x1 ;\n1 x1 >= 0 ;\n"))


def test_coefficients_of_one_may_be_signs_or_left_out(tmp_path):
    """As toulbar2 has it."""
    problem = read(path_of(tmp_path, "min: x1 x2 -x3 + x2 ;\nx1 + x2 - x3 >= 0 ;\n"))
    for x1, x2, x3 in itertools.product((0, 1), repeat=3):
        named = {"x1": x1, "x2": x2, "x3": x3, "x1*x2": x1 * x2}
        value = problem.evaluate([named[v.name] for v in problem.variables])
        assert value == (x1 * x2 - x3 + x2 if x1 + x2 - x3 >= 0 else None)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("+1 x1 >= 1", 1, "expected ';'"),
        ("+1 x1 >= ;", 1, "expected the right-hand side"),
        ("+1 x1 1 ;", 1, "expected a literal"),
        ("+1 x1 ;", 1, "expected a term or a relation"),
        ("+1 >= 1 ;", 1, "expected a literal"),
        ("+ 1 x1 >= 1 ;", 1, "expected a literal"),
        ("+1.5 x1 >= 1 ;", 1, "expected a coefficient, an integer"),
        ("+1 x1 >= 1.5 ;", 1, "expected the right-hand side, an integer"),
        ("+1 x1 >= 1e3 ;", 1, "expected the right-hand side, an integer"),
        ("+1 x1 >= x2 ;", 1, "expected the right-hand side, an integer"),
        ("+1 x1 >= nan ;", 1, "expected the right-hand side, an integer"),
        ("+1_0 x1 >= 1 ;", 1, "expected a coefficient, an integer"),
        ("+1 ~~x1 >= 1 ;", 1, "expected a literal"),
        ("+1 ~ >= 1 ;", 1, "expected a literal"),
        ("+1 x1*x2 >= 1 ;", 1, "expected a literal"),
        ("+1 x1 > 1 ;", 1, "begins no token"),
        ("+1 x1 >= 1 ;\n\n+1 x2 => 1 ;", 3, "begins no token|expected"),
        ("+1 x1 == 1 ;", 1, "expected the right-hand side"),
        ("+1 x1 >= 1 ;\nmin: +1 x1 ;", 2, "expected it once, at the beginning"),
        ("min: +1 x1 ;\nmin: +1 x1 ;", 2, "expected it once, at the beginning"),
        ("min +1 x1 ;", 1, "expected ':' after min"),
        ("min: +1 x1 >= 1 ;", 1, "expected a term or ';'"),
        ("min: +1 x1", 1, "expected a term or ';'"),
        ("+1 x1 >= 1 ; ;", 1, "expected a term or a relation"),
        (": +1 x1 >= 1 ;", 1, "expected a term or a relation"),
        (f"+{2**255 + 1} x1 >= 1 ;", 1, "at most 255 bits"),
        ("+" + "9" * 5000 + " x1 >= 1 ;", 1, "at most 255 bits"),
        ("+1 x1 >= " + "9" * 5000 + " ;", 1, "at most 255 bits"),
        ("+1 x1 >= 1 ;\n\x01", 2, "binary data"),
        ("+1 x1 >= 1 ;\n[5] +1 x1 >= 1 ;", 2, "files that begin with soft:"),
        ("soft: 5 ;\nmin: +1 x1 ;", 2, "expected it once, at the beginning"),
        ("soft: 5 ;\n[0] +1 x1 >= 1 ;", 2, "a weight above 0"),
        ("soft: 5 ;\n[1] +1 violated.1 >= 1 ;", 2, "expected another name"),
        ("soft: 5 ;\n[1] +1 x1 >= 1 ;\n+1 x1 +1 ~violated.1 >= 1 ;", 3, "expected another name"),
        ("soft: x ;", 1, "violations have to cost less than, an integer"),
        (b"+1 x\xff >= 1 ;", 1, "expected UTF-8"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path, text, line, message):
    path = tmp_path / "damaged.opb"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError, match=rf"damaged.opb, line {line}: .*({message})"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* #variable= 99999999999\n+1 x1 >= 1 ;", "line 1: 99999999999 variables"),
        ("* #variable= " + "9" * 400 + "\n+1 x1 >= 1 ;", r"line 1: 9+… \(80 digits\) variables"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, text, message):
    with pytest.raises(UnsupportedError, match=message):
        read(path_of(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "rows", "variables"),
    [("128ebits_any", 514, 384), ("21array_alg_ineq7", 2733, 2814), ("air06", 825, 8627), ("p0291.0.s", 253, 291)],
)
def test_real_instances(data, name, rows, variables):
    system = read_model(data(f"mps/{name}.opb.gz"))
    assert (system.rows, system.variables) == (rows, variables)
    assert system.is_exact == (name == "128ebits_any")


def test_two_formats_of_one_instance_agree(data):
    by_rows = read_model(data("mps/p2756.opb.gz")), read_model(data("mps/p2756.mps.gz"))
    assert by_rows[0].rows == by_rows[1].rows and by_rows[0].variables == by_rows[1].variables
    sizes = [np.sort(np.abs(system.coefficients)) for system in by_rows]  # rows may be turned around
    assert np.array_equal(*sizes)
