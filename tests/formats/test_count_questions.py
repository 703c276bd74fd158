"""Comments of clauses that ask for another count, and headers with a wrong number of clauses."""

from __future__ import annotations

from fractions import Fraction

import pytest

import oocbe
from oocbe.api.tasks.questions import TASKS
from oocbe.api.tasks.verbs import run_task
from oocbe.errors import FormatError, UnsupportedError, amount

CLAUSES = "p cnf 4 2\n1 2 0\n3 4 0\n"


def written(folder, text, name="p.cnf"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "line",
    [
        "c p anything 3 0",
        "c p opt-show_2 1 0",
        "c t pmc",
        "c t pwmc",
        "c t amc-complex",
        "c max 1 2 0",
        "c MUST MULTIPLY BY 2**3 0",
        "c p show 1 9 0",
        "c p show -1 0",
        "c p weight 1 0.4+0.2i 0",
        "c p weight 1 2i 0",
        "c p weight 1 0",
        "c p weight 1 0.4 0 0.4",
        "c p weight 1 1e99999 0",
        "c p weight 1 1/0 0",
        "c p weight 1 1 0",
        "c p weight 1 -2 0",
        "c p weight 1 0 0",
        "c p weight -1 7/5 0",
        "c p weight 5 0.4 0",
        "c p weight x 0.4 0",
        "c weights 0.5 0.5 1 1 1 1 1 1 1 1",
    ],
)
@pytest.mark.parametrize("name", ["p.cnf", "p.wcnf"])
def test_another_count_is_refused_with_its_line(tmp_path, line, name):
    text = f"{CLAUSES}{line}\n" if name == "p.cnf" else f"h 1 2 0\nh 3 4 0\nc\n{line}\n"
    path = written(tmp_path, text, name)
    problem = oocbe.read(path)
    for task in TASKS:
        with pytest.raises(UnsupportedError, match=f"{name}, line 4: .*, and the task {task} would leave that out"):
            run_task(task, problem)
    for refused in (
        lambda: oocbe.JunctionTree(problem),
        lambda: oocbe.write(problem, tmp_path / "q.uai"),
        lambda: oocbe.count(oocbe.propagate(problem.with_evidence({"1": "1"})).reduced),
        lambda: oocbe.solve(problem, semiring="sum-product"),
    ):
        with pytest.raises(UnsupportedError, match="line 4: this comment requests"):
            refused()
    assert not (tmp_path / "q.uai").exists()
    result = oocbe.solve(path)
    assert result.value == 0 and f"{path}, line 4: this comment requests" in result.notes[0]
    assert "the optimum does not depend on that" in oocbe.bound(path).notes[0]


@pytest.mark.parametrize(
    "line",
    [
        "c t mc",
        "c p cnf 9 9",
        "c p show 4 3\nc p show 2 1 0",
        "c ind 1 2 3 4 0",
        "c t is a time",
        "c p = 0.5",
        "c MUST MULTIPLY BY 2**0 0",
        "c",
        "c p",
        "cnf",
        "created by 3",
    ],
)
def test_comments_and_projections_on_all_variables_ask_for_the_count(tmp_path, line):
    result = oocbe.count(written(tmp_path, f"{line}\n{CLAUSES}"))
    assert (result.value, result.notes) == (9, ())


@pytest.mark.parametrize(
    ("line", "what"),
    [("vp 1 2 0", "projected"), ("a 1 0", "quantified"), ("x1 -2 0", "exclusive")],
)
def test_lines_that_are_no_clauses_are_refused_by_name(tmp_path, line, what):
    with pytest.raises(UnsupportedError, match=f"line 4: {what}.* are not supported"):
        oocbe.read(written(tmp_path, f"{CLAUSES}{line}\n"))


HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("lines", "kind", "expected"),
    [
        ("c p show 1 2 0", "pmc", 3),
        ("c p show 1 0\nc p show 3 0", "pmc", 4),
        ("c p show 0", "pmc", 1),
        ("c t pmc\nc ind 1 2 0", "pmc", 3),
        ("cr 1 2", "pmc", 3),
        ("c t pmc\nc p show 1 2 3 4 0", "pmc", 9),
        ("c t wmc", "wmc", 9),
        ("c p weight 1 0.4 0", "wmc", 3 * (2 * Fraction(2, 5) + Fraction(3, 5))),
        ("c p weight -1 6e-1 0", "wmc", 3 * (2 * Fraction(2, 5) + Fraction(3, 5))),
        ("c p weight 1 .4e+1 0\nc p weight -1 -1. 0", "wmc", 3 * (8 - 1)),
        ("c p weight 1 0 0\nc p weight -1 2 0", "wmc", 6),
        ("c p weight 1 2/5 0\nc t pwmc\nc p weight 1 0.4\nc p show 1 0", "pwmc", 1),
        ("c t wpmc\nc p weight 3 1/3 0\nc p show 1 2 0", "pwmc", 3),
        ("c weights 1 1 3 4 1 1 1 1", "wmc", 3 * (3 + 3 + 4)),
        ("w 1 0.25", "wmc", (Fraction(1, 4) + Fraction(3, 8)) * Fraction(3, 4)),
        ("w 1 -1\nw 2 -1\nw 3 -1", "wmc", 3 * (HALF + 1)),
        ("w 1 0.25\nc p weight 2 0.5 0", "wmc", 3 * (Fraction(1, 4) + Fraction(3, 8))),
    ],
)
def test_weights_and_projections(tmp_path, lines, kind, expected):
    """Other tasks refuse them, the count answers them."""
    path = written(tmp_path, f"{CLAUSES}{lines}\n")
    result = oocbe.count(path)
    assert (result.value, result.kind) == (expected, kind)
    with pytest.raises(UnsupportedError, match=r"p.cnf, line \d: .*, and the task kbest would leave that out"):
        oocbe.k_best(path)
    assert "the optimum does not depend on that" in oocbe.solve(path).notes[0]


def test_hard_clauses_of_weighted_files(tmp_path):
    text = "h 1 2 0\nh 3 4 0\n5 -1 0\nc p show 1 2 0\nc p weight 1 1/4 0\n"
    assert oocbe.count(written(tmp_path, text, "p.wcnf")).value == 1 + Fraction(1, 4)


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        ("c p weight 1 0.4 0\nc p weight 1 0.5 0", 5, "another weight of the literal 1"),
        ("c t mc\nc p weight 1 0.4 0", 5, "a weight, of the type mc without weights"),
        ("c p show 1 0\nc t wmc", 4, "a projection, of the type wmc without one"),
        ("c t mc\nc t wmc", 5, "the count of type wmc, after type mc"),
        ("c p weight 2 3 0\nc p weight 1 2 0\nc p weight -1 2 0", 4, "the weight 3 of a literal of 2; its negation"),
    ],
)
def test_contradictions(tmp_path, lines, line, what):
    with pytest.raises(UnsupportedError, match=f"line {line}: this comment requests {what}"):
        oocbe.count(written(tmp_path, f"{CLAUSES}{lines}\n"))


def test_notes_about_weights(tmp_path):
    assert oocbe.count(written(tmp_path, f"{CLAUSES}c p weight 1 0.4 0\n")).notes[:1] == (
        "literals without a weight weigh 1 less that of their negation: 1",
    )
    assert oocbe.count(written(tmp_path, f"{CLAUSES}w 1 0.4\n")).notes[:1] == (
        "variables without a weight weigh 1/2, as in Cachet: 3",
    )


def test_behind_the_end_comments_are_heard_and_clauses_are_not(tmp_path):
    assert oocbe.count(written(tmp_path, f"{CLAUSES}%\n0\nc\n1 0\n")).value == 9
    with pytest.raises(UnsupportedError, match="line 6: this comment requests"):
        oocbe.count(written(tmp_path, f"{CLAUSES}%\n0\nc max 1 0\n"))
    assert oocbe.count(written(tmp_path, f"{CLAUSES}%\n0\nc p show 1 0\n")).value == 2


def test_projections_of_pseudo_boolean_constraints(tmp_path):
    text = "* #variable= 3 #constraint= 1\n{}+1 x1 +1 x2 +1 x3 >= 1 ;\n"
    for lines, expected in {
        "* ind x1 x2 ;\n": 4,
        "* ind 1 0\n* cr 3 ;\n": 4,
        "* p show 2 0\n": 2,
        "* p weight x1 1/3 ;\n": 1 + 1 + 1 + Fraction(1, 3),
        "* t pwmc\n* p weight 1 4 0\n* p weight ~x1 5 0\n* p show 1 0\n": 9,
    }.items():
        assert oocbe.count(written(tmp_path, text.format(lines), "p.opb")).value == expected, lines
    with pytest.raises(UnsupportedError, match=r"p.opb, line 2: .* \('max'\)"):
        oocbe.count(written(tmp_path, text.format("* max x1 x2 ;\n"), "p.opb"))
    assert oocbe.count(written(tmp_path, text.format("* ind 1 2 3 0\n"), "p.opb")).value == 7


@pytest.mark.parametrize("promised", [0, 1, 3, 1000])
@pytest.mark.parametrize("name", ["p.cnf", "p.wcnf"])
def test_clauses_count_and_not_how_many_the_header_promises(tmp_path, promised, name):
    text = CLAUSES if name == "p.cnf" else "p wcnf 4 2 9\n9 1 2 0\n9 3 4 0\n"
    result = oocbe.count(written(tmp_path, text.replace("4 2", f"4 {promised}", 1) + "%\n0\n", name))
    assert result.value == 9
    assert result.notes == (
        f"{tmp_path / name}: the header states {amount(promised, 'clause')}; the 2 of the file are used",
    )


def test_the_number_of_variables_is_part_of_the_problem(tmp_path):
    assert oocbe.count(written(tmp_path, CLAUSES.replace("4 2", "6 2"))).value == 36
    with pytest.raises(FormatError, match="line 3: found 4, expected a literal"):
        oocbe.read(written(tmp_path, CLAUSES.replace("4 2", "3 2")))
    with pytest.raises(FormatError, match=r"line 1: .*expected the line 'p cnf"):
        oocbe.read(written(tmp_path, CLAUSES.removeprefix("p cnf 4 2\n")))
